"""A system whose vectors are computed from each text."""

import numpy as np


class FakeSystem:
    """Vectors from a function of the text; keeps the texts it was asked for, those to fit on, and the language."""

    dense, truncated = True, 0

    def __init__(self, vector, name="fake", fingerprint="0", kind=np.asarray, dtype=np.float32):
        self.vector, self.name, self.fingerprint, self.kind, self.dtype = (
            vector,
            name,
            fingerprint,
            kind,
            dtype,
        )
        self.calls, self.languages = [], []
        self.begin()

    def begin(self):
        self.texts, self.seconds = 0, 0.0

    def describe(self):
        return {"fingerprint": self.fingerprint}

    def represent(self, texts, fit_on=(), language=None):
        self.calls.append((list(texts), list(fit_on)))
        self.languages.append((list(texts), language))
        self.texts += len(texts)
        return self.kind(np.array([self.vector(text) for text in texts], dtype=self.dtype))
