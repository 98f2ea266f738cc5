"""The dialect of `POST /v1/chat/completions`."""
