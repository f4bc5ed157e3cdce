"""Word vectors of two languages in one space.

MUSE: Conneau et al., 2018, arXiv 1710.04087; Conneau (2019), section 4.1. multiCCA: Ammar et al.,
2016, arXiv 1602.01925.

```python
german = read_word_vectors("wiki.de.vec")
english = read_word_vectors("wiki.en.vec")
dictionary = read_dictionary("de-en.txt", german, english)
mapping = align_words(german, english, dictionary)
model, tokenizer = word_bag({"de": german.mapped(mapping), "en": english})
```
"""

from __future__ import annotations

from tmde.documents.word_bag import word_bag
from tmde.documents.word_files import (
    ScoredWordPairs,
    WordVectors,
    check_codes,
    read_dictionary,
    read_similarities,
    read_word_vectors,
    write_word_vectors,
)
from tmde.documents.word_mapping import align_adversarially, align_by_similarities, align_words
from tmde.documents.word_measures import measure, similarity_correlation, translation_precision

__all__ = [
    "ScoredWordPairs",
    "WordVectors",
    "align_adversarially",
    "align_by_similarities",
    "align_words",
    "check_codes",
    "measure",
    "read_dictionary",
    "read_similarities",
    "read_word_vectors",
    "similarity_correlation",
    "translation_precision",
    "word_bag",
    "write_word_vectors",
]
