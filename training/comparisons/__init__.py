"""Comparison files of `tmde compare` that come with the package."""
