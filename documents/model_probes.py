"""Texts by whose vectors an index and a calibration recognize the model that they were made with.

A moved folder, an update of the package and (nearly) another dtype or device leave the vectors
alone, but any two trainings differ in them.
"""

import numpy as np

from tmde.embedding.document_embedder import DocumentEmbedder

SENTENCES = (
    "Die Brücke ist bis Freitag gesperrt.",
    "The bridge is closed until Friday.",
    "Il gatto dorme sul tavolo.",
    "Les taux d'intérêt ont encore augmenté.",
)
DECIMALS = 4  # of the numbers that are stored


def probe_vectors(embedder: DocumentEmbedder) -> np.ndarray:
    """Return the unit vectors of each sentence and of the document of all, (texts, d)."""
    language = embedder.model.config.languages[0] if embedder.needs_language else None
    texts = [*SENTENCES, " ".join(SENTENCES)]
    vectors = embedder.encode(texts, language=language, show_progress_bar=False, normalize=True)
    return np.asarray(vectors)
