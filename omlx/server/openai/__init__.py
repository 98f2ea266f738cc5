"""What the two OpenAI completion APIs share: generation fields, usage, error bodies."""
