"""Prefix: the identity of blocks, and which of them a prompt can use. Plain Python over values."""
