"""The metric `same_cross_accuracy`."""
