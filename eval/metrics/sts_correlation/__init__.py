"""The metric `sts_correlation`."""
