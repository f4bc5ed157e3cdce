"""The metric `translation_retrieval`."""
