"""Text: chat templates, tokenizers, segments of a prompt, answers as they stream. No MLX here."""
