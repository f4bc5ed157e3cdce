"""The vectors that `tmde mine` compares: of files, or embedded into temporary ones.

They are mapped from files, because a side may be larger than memory.
"""

from pathlib import Path

import numpy as np

from modeling_tmde import TmdeError
from tmde.cli.document_sets import DocumentSet
from tmde.documents.unit_rows import slices
from tmde.embedding import DocumentEmbedder
from tmde.embedding.quantization import DTYPES, PACKED, signed_bytes

_BLOCK = 16_384  # vectors that are copied at a time


class MinedVectors:
    """Makes vectors whose cosines can be taken from those that `tmde embed` stores.

    Args:
        folder: An empty folder for files of vectors.
        precision: How the numbers of vectors are stored, as by `tmde embed`.
        truncate_dim: How many numbers of a vector are kept, but for signs in files; None for all.
    """

    def __init__(self, folder: Path, precision: str, truncate_dim: int | None) -> None:
        self.folder = folder
        self.precision = precision
        self.truncate_dim = truncate_dim
        self._file_count = 0

    @property
    def keeps_cosines(self) -> bool:
        """Whether the vectors have nearly the cosines that the model's own have."""
        return self.truncate_dim is None and self.precision not in PACKED

    def open(self, path: Path, side: DocumentSet) -> np.ndarray:
        """Open the vectors of all rows of a side, (n, width), which stay in their file.

        Raises:
            TmdeError: The file holds something else.
        """
        try:
            vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise TmdeError(f"{path}: not a .npy file ({error})") from error
        if vectors.ndim != 2 or len(vectors) != len(side):
            raise TmdeError(
                f"{path}: found shape {vectors.shape}, expected ({len(side)}, d): a vector for "
                f"each row of {side.name}, in the same order, repeated and empty rows included"
            )
        expected = DTYPES[self.precision]
        has_floats = np.issubdtype(vectors.dtype, np.floating)
        if vectors.dtype != expected and not (has_floats and self.precision == "float32"):
            raise TmdeError(
                f"{path}: found {vectors.dtype} numbers, expected {expected}; give the --precision "
                "that they were embedded with"
            )
        if self.truncate_dim is None or self.precision in PACKED:
            return vectors
        return vectors[:, : self.truncate_dim]

    def choose(self, vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the vectors of some rows, in a new file unless they are those of another file.

        Args:
            vectors: What `open` returns, (n, width).
            rows: The numbers of the rows, rising, (candidates,).

        Returns:
            (candidates, d)
        """
        if len(rows) == len(vectors) and self.precision in ("float32", "int8"):
            return vectors
        return self._converted(vectors, rows)

    def embed(self, side: DocumentSet, rows: np.ndarray, embedder: DocumentEmbedder) -> np.ndarray:
        """Embed some rows of a side into a new file.

        Args:
            side: All sentences.
            rows: The numbers of those to embed, (candidates,).
            embedder: The model.

        Returns:
            (candidates, d)
        """
        vectors = side.embed_to_file(
            rows, embedder, self._new_file(), self.truncate_dim, self.precision
        )
        return self.choose(vectors, np.arange(len(vectors)))

    def _converted(self, vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Copy the vectors of some rows to a new file, as numbers that cosines can be taken of."""
        first_rows = self._comparable(vectors[:1])
        target = np.lib.format.open_memmap(
            self._new_file(), "w+", first_rows.dtype, (len(rows), first_rows.shape[1])
        )
        for block in slices(len(rows), _BLOCK):
            target[block] = self._comparable(vectors[rows[block]])
        target.flush()
        return target

    def _comparable(self, vectors: np.ndarray) -> np.ndarray:
        if self.precision == "float32":
            return vectors
        return signed_bytes(vectors, self.precision)

    def _new_file(self) -> Path:
        self._file_count += 1
        return self.folder / f"{self._file_count}.npy"
