"""What a request would do, what one has done, and what is going on now: `/v1/trace` and `/v1/tap`."""
