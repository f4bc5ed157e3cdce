"""The metric `mining_f1`."""
