"""Fakes that ship: what stands in for the slow and the heavy in tests and demonstrations."""
