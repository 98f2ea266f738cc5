"""Config: TOML files to validated values; every problem with its file and line, all at once."""
