"""A system whose vectors are computed from each text."""

import numpy as np


class FakeSystem:
    """A system that computes vectors by a function of the text, and remembers what it was asked.

    Args:
        vector: The function of the text.
        name: The name in tables.
        fingerprint: What distinguishes it in caches.
        kind: Makes the returned matrix of a dense one.
        dtype: The type of the numbers.

    Attributes:
        calls: Texts and texts to fit on of each call.
        languages: Texts and language of each call.
        roles: The role of the texts of each call.
    """

    dense = True
    truncated = 0

    def __init__(self, vector, name="fake", fingerprint="0", kind=np.asarray, dtype=np.float32):
        self.vector = vector
        self.name = name
        self.fingerprint = fingerprint
        self.kind = kind
        self.dtype = dtype
        self.calls = []
        self.languages = []
        self.roles = []
        self.begin()

    def begin(self):
        self.texts = 0
        self.seconds = 0.0
        self.cpu_seconds = 0.0

    def describe(self):
        return {"fingerprint": self.fingerprint}

    def represent(self, texts, fit_on=(), language=None, role=None, fit_language=None):
        self.calls.append((list(texts), list(fit_on)))
        self.languages.append((list(texts), language))
        self.roles.append(role)
        self.texts += len(texts)
        vectors = np.array([self.vector(text) for text in texts], dtype=self.dtype)
        return self.kind(vectors)
