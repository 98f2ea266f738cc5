"""Pipeline: what a stage is, the state it works on, how a chain is read, checked and walked."""
