"""The dialect of `POST /v1/messages`."""
