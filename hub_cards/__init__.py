"""Model and dataset cards, filled in from what a run and its evaluations recorded."""
