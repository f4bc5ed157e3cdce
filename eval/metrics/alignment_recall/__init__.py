"""The metric `alignment_recall`."""
