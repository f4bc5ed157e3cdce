"""Metrics as modules of `evaluate`.

Each folder loads offline with `evaluate.load(path)` and can be pushed to the Hub as a Space. What a
metric computes has one implementation, here or in `tmde.documents`, which the tasks call as well.
"""
