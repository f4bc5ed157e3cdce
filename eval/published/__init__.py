"""Published tables, as printed; some have columns to stand beside measured ones. One YAML file a paper."""

from .tables import PublishedError, PublishedRow, PublishedTable, published_for, published_tables

__all__ = ["PublishedError", "PublishedRow", "PublishedTable", "published_for", "published_tables"]
