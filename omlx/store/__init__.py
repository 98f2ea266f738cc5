"""Store: the whereabouts of bytes. A hot tier in RAM, a cold tier on disk, one catalog over both."""
