"""Captions of images, such as COCO's: are images found by captions, and captions by images?"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tmde.data.checks import Unquoted, bad_value
from tmde.data.labeled_tables import choose_languages, read_columns, split_of
from tmde.data.lines import read_lines
from tmde.data.tables import Table

from .base import CaptionData, CaptionedImages, Languages, Provenance, Source, Task
from .sources import (
    SPLIT_ORDER,
    check_count,
    named_files,
    open_tables,
    provenance_of,
    read_id,
    source_of,
)

FEATURES_NAME = "image_features.npy"
IDS_NAME = "image_ids.txt"
KARPATHY_IMAGES = {"train": 113_287, "dev": 5_000, "test": 5_000}
FEWEST_IMAGES = 2  # One image alone is always found.
_CHECKED_ROWS = 4096  # Rows of features that are checked at a time: 32 MiB of ResNet-101's.


class CocoCaptions(Task):
    """Image retrieval by captions, and caption retrieval by images (Conneau, 2019, section 3.1.2).

    The features of the images are given, such as the 2,048 of a ResNet-101. No image is read.
    """

    name = "coco_captions"
    description = "images found by captions and captions by images, with precomputed image features"
    provenance = Provenance(
        citation="Lin et al., Microsoft COCO: Common Objects in Context, 2014; splits of Karpathy "
        "and Fei-Fei, Deep Visual-Semantic Alignments for Generating Image Descriptions, 2015",
        license="CC BY 4.0 (captions); the images are those of their photographers",
        url="https://cocodataset.org",
    )
    languages = ("en",)
    local_names = ("captions.parquet", "captions.jsonl", "captions.tsv", "captions.csv")
    needs = f"a folder with captions.parquet, {FEATURES_NAME} and {IDS_NAME}"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        captions_per_image: int = 5,
    ) -> CaptionData:
        """Load the splits `train`, `dev` and `test`.

        Args:
            source: A folder with `captions.parquet` (or `.jsonl`, `.tsv`, `.csv`), whose columns
                are image_id, split and caption; `image_features.npy`, a row of numbers for each
                image; and `image_ids.txt`, the ids of these images, one a line in the order of the
                rows. The split is train, restval (which counts as train), dev, val, validation or
                test.
            languages: None or English.
            streaming: Ignored.
            captions_per_image: Only the first captions of an image are used; 5 as in SentEval.

        Raises:
            CorpusError: A file, a column or a split is missing; an image of a caption has no
                features or is in two splits; features that are no finite numbers.
        """
        source = source_of(self, source, f"Pass --tasks {self.name}=FOLDER: {self.needs}.")
        check_count(self, "captions_per_image", captions_per_image)
        folder = Path(source)
        # A data folder is searched for the file of the captions.
        if folder.is_file():
            folder = folder.parent
        choose_languages(str(folder), languages, ["en"])
        features, fingerprint = _open_features(folder / FEATURES_NAME)
        row_of_image = _read_image_ids(folder / IDS_NAME, len(features))
        images = _ImageCaptions(row_of_image, captions_per_image)
        for table in open_tables(self, self._find_captions(folder)):
            images.add_table(table)
        splits = images.splits(str(folder))
        counts = {name: len(split.image_ids) for name, split in splits.items()}
        provenance = provenance_of(self, str(folder), "test", copy=counts == KARPATHY_IMAGES)
        return CaptionData(splits, features, fingerprint, "en", provenance)

    def _find_captions(self, folder: Path) -> str:
        """Return the one file of captions in a folder."""
        paths = named_files(self, str(folder))
        if len(paths) != 1:
            listed = ", ".join(Path(path).name for path in paths) or "no file of captions"
            raise bad_value(
                str(folder),
                None,
                None,
                Unquoted(listed),
                f"one of {', '.join(self.local_names)}",
                "Write the columns image_id, split and caption into one of them.",
            )
        return paths[0]


def _open_features(path: Path) -> tuple[np.ndarray, str]:
    """Map the features of the images, and return them with a hash of theirs.

    Raises:
        CorpusError: The file is missing, or holds something else than rows of finite numbers.
    """
    expected = "a matrix of numbers with a row for each image"
    advice = "Write it with numpy.save, in float32 or float16."
    if not path.is_file():
        raise bad_value(str(path), None, None, Unquoted("no file"), expected, advice)
    try:
        features = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise bad_value(
            str(path), None, None, Unquoted(f"no array ({error})"), expected, advice
        ) from None
    if features.ndim != 2 or not np.issubdtype(features.dtype, np.floating):
        array = Unquoted(f"an array of {features.dtype} with the shape {features.shape}")
        raise bad_value(str(path), None, None, array, expected, advice)
    digest = hashlib.sha256(f"{features.dtype} {features.shape}".encode())
    for start in range(0, len(features), _CHECKED_ROWS):
        rows = np.ascontiguousarray(features[start : start + _CHECKED_ROWS])
        is_finite = np.isfinite(rows).all(axis=1)
        if not is_finite.all():
            number = start + int(np.argmin(is_finite)) + 1
            raise bad_value(
                str(path), number, None, Unquoted("NaN or infinity"), "finite numbers", advice
            )
        digest.update(rows.tobytes())
    return features, digest.hexdigest()[:16]


def _read_image_ids(path: Path, count: int) -> dict[str, int]:
    """Return the row of each image in the features.

    Raises:
        CorpusError: The file is missing, an id comes twice, or there are more or fewer than rows.
    """
    advice = f"Write the id of each row of {FEATURES_NAME} into it, one a line."
    if not path.is_file():
        raise bad_value(str(path), None, None, Unquoted("no file"), f"{count:,} ids", advice)
    ids = [line.strip() for _, line in read_lines(str(path))]
    if len(ids) != count:
        raise bad_value(str(path), None, None, Unquoted(f"{len(ids):,} ids"), f"{count:,}", advice)
    for image_id, occurrences in Counter(ids).most_common(1):
        if occurrences > 1:
            raise bad_value(str(path), None, None, image_id, "each id once", advice)
    return {image_id: row for row, image_id in enumerate(ids)}


class _ImageCaptions:
    """The captions of images that were read so far.

    Args:
        row_of_image: The row of each image in the features, by its id.
        captions_per_image: Later captions of an image are not used.
    """

    def __init__(self, row_of_image: dict[str, int], captions_per_image: int) -> None:
        self.row_of_image = row_of_image
        self.captions_per_image = captions_per_image
        self._captions_of_image: dict[str, list[str]] = {}
        self._split_of_image: dict[str, str] = {}

    def add_table(self, table: Table) -> None:
        """Add the rows of a table with the columns image_id, split and caption.

        Raises:
            CorpusError: A column or a value is missing, a split is unknown, or an image has no
                features or is in two splits.
        """
        numbers, columns = read_columns(table, ["split", "caption"], ["image_id"])
        for position, number in enumerate(numbers):
            image_id = read_id(table.place, number, "image_id", columns["image_id"][position])
            if image_id not in self.row_of_image:
                raise bad_value(
                    table.place,
                    number,
                    "image_id",
                    image_id,
                    f"an id of {IDS_NAME}",
                    "Delete the row, or add the features of the image.",
                )
            split = self._read_split(table.place, number, columns["split"][position])
            first_split = self._split_of_image.setdefault(image_id, split)
            if split != first_split:
                raise bad_value(
                    table.place,
                    number,
                    "split",
                    split,
                    f"{first_split!r}, where image {image_id!r} is in an earlier row",
                    "Put all captions of an image into one split.",
                )
            captions = self._captions_of_image.setdefault(image_id, [])
            if len(captions) < self.captions_per_image:
                captions.append(columns["caption"][position])

    def _read_split(self, place: str, number: int, name: str) -> str:
        split = split_of(name)
        if split not in SPLIT_ORDER:
            expected = f"one of {', '.join(SPLIT_ORDER)}"
            raise bad_value(place, number, "split", name, expected, "Rename the split.")
        return split

    def splits(self, place: str) -> dict[str, CaptionedImages]:
        """Return the splits, with images in the order of their first captions.

        Args:
            place: The source, for the error.

        Raises:
            CorpusError: A split has fewer than two images.
        """
        splits = {}
        for name in SPLIT_ORDER:
            image_ids = [image for image, split in self._split_of_image.items() if split == name]
            if len(image_ids) < FEWEST_IMAGES:
                raise bad_value(
                    place,
                    None,
                    "split",
                    Unquoted(f"{len(image_ids)} images in {name}"),
                    f"at least {FEWEST_IMAGES}",
                    "The splits train, dev and test need captions.",
                )
            splits[name] = self._collect(image_ids)
        return splits

    def _collect(self, image_ids: Sequence[str]) -> CaptionedImages:
        """Return images and their captions."""
        captions: list[str] = []
        image_numbers: list[int] = []
        for number, image_id in enumerate(image_ids):
            captions_of_image = self._captions_of_image[image_id]
            captions += captions_of_image
            image_numbers += [number] * len(captions_of_image)
        feature_rows = [self.row_of_image[image_id] for image_id in image_ids]
        return CaptionedImages(image_ids, np.array(feature_rows), captions, np.array(image_numbers))
