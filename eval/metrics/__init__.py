"""Metrics as `evaluate` modules: each folder loads offline with `evaluate.load(path)` and can be pushed as a Space."""
