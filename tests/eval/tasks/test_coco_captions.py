"""Captions of images: the folder with captions, features and ids."""

import json

import numpy as np
import pandas as pd
import pytest

from tmde.eval.planning import plan_tasks
from tmde.eval.tasks import TASKS, TaskError, coco_captions, data_fingerprint

COCO = TASKS["coco_captions"]()
# The images of the features are in another order than those of the captions.
IDS = [31, 12, 25, 40, 57, 66, 73]
SPLIT_OF_IMAGE = {12: "train", 25: "restval", 31: "val", 40: "val", 57: "test", 66: "test"}


def caption_rows(per_image: int = 6) -> list[dict]:
    rows = []
    for number in range(per_image):
        for image, split in SPLIT_OF_IMAGE.items():
            rows.append({"image_id": image, "split": split, "caption": f"{image} has {number}"})
    return rows


def write_folder(folder, rows=None, features=None, ids=IDS, suffix="parquet"):
    folder.mkdir(exist_ok=True)
    frame = pd.DataFrame(caption_rows() if rows is None else rows)
    path = folder / f"captions.{suffix}"
    if suffix == "parquet":
        frame.to_parquet(path)
    elif suffix == "jsonl":
        path.write_text("\n".join(map(json.dumps, frame.to_dict("records"))))
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    if features is None:
        features = np.arange(len(IDS) * 3, dtype=np.float32).reshape(len(IDS), 3)
    np.save(folder / "image_features.npy", features)
    (folder / "image_ids.txt").write_text("\n".join(map(str, ids)) + "\n")
    return folder


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "tsv", "csv"])
def test_splits_of_every_format(suffix, tmp_path):
    data = COCO.load(write_folder(tmp_path, suffix=suffix))
    assert list(data.splits) == ["train", "dev", "test"]
    train = data.splits["train"]
    assert train.image_ids == ["12", "25"]  # The second is `restval`, which is trained on.
    assert train.feature_rows.tolist() == [1, 2]
    dev = data.splits["dev"]
    assert dev.image_ids == ["31", "40"]
    assert dev.feature_rows.tolist() == [0, 3]
    assert data.features[data.splits["test"].feature_rows].tolist() == [[12, 13, 14], [15, 16, 17]]


def test_the_first_five_captions_of_an_image_are_used(tmp_path):
    train = COCO.load(write_folder(tmp_path)).splits["train"]
    assert train.captions[:5] == ["12 has 0", "12 has 1", "12 has 2", "12 has 3", "12 has 4"]
    assert train.captions[5] == "25 has 0"
    assert train.image_numbers.tolist() == [0] * 5 + [1] * 5


def test_the_number_of_captions_is_an_option(tmp_path):
    folder = write_folder(tmp_path)
    data = COCO.load(folder, captions_per_image=2)
    assert data.rows()["en"] == {
        "train images": 2,
        "train captions": 4,
        "dev images": 2,
        "dev captions": 4,
        "test images": 2,
        "test captions": 4,
    }


def test_features_are_mapped_and_not_read(tmp_path):
    features = np.ones((len(IDS), 3), dtype=np.float16)
    data = COCO.load(write_folder(tmp_path, features=features))
    assert isinstance(data.features, np.memmap)
    assert data.features.dtype == np.float16


def test_a_data_folder_is_searched_for_the_captions(tmp_path):
    folder = write_folder(tmp_path)
    (planned,) = [plan for plan in plan_tasks(["all"], folder) if plan.name == "coco_captions"]
    loaded = planned.load(known=["de", "en"])
    assert loaded.data.provenance.source == str(folder)
    assert loaded.data.languages == ["en"]


def test_everything_that_decides_a_result_is_in_the_fingerprint(tmp_path):
    plain = data_fingerprint(COCO.load(write_folder(tmp_path / "a")))
    assert data_fingerprint(COCO.load(write_folder(tmp_path / "b"))) == plain
    features = np.arange(len(IDS) * 3, dtype=np.float32).reshape(len(IDS), 3)
    features[-1, -1] += 1  # The features of an image without captions count, too.
    changes = [
        {"features": features},
        {"ids": [12, 31, *IDS[2:]]},
        {"rows": caption_rows(4)},
    ]
    fingerprints = {plain}
    for number, change in enumerate(changes):
        folder = write_folder(tmp_path / str(number), **change)
        fingerprints.add(data_fingerprint(COCO.load(folder)))
    assert len(fingerprints) == 4


def test_only_karpathys_splits_are_called_coco(tmp_path, monkeypatch):
    folder = write_folder(tmp_path)
    assert COCO.load(folder).provenance.citation == "as given by the source"
    monkeypatch.setattr(
        "tmde.eval.tasks.coco_captions.KARPATHY_IMAGES", {"train": 2, "dev": 2, "test": 2}
    )
    provenance = COCO.load(folder).provenance
    assert "Karpathy" in provenance.citation
    assert provenance.split == "test"


def captions_of_one_test_image() -> list[dict]:
    return [row for row in caption_rows() if row["image_id"] != 66]


def without(name):
    return lambda folder: (folder / name).unlink()


def changed_row(**values):
    def change(folder):
        rows = caption_rows()
        rows[8] |= values
        write_folder(folder, rows)

    return change


def features_of(array):
    return lambda folder: write_folder(folder, features=array)


NOT_FINITE = np.ones((len(IDS), 3))
NOT_FINITE[4, 1] = np.nan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            without("captions.parquet"),
            "found no file of captions, expected one of capt",
        ),
        (without("image_features.npy"), r"image_features\.npy: found no file, expected a matrix"),
        (without("image_ids.txt"), r"image_ids\.txt: found no file, expected 7 ids"),
        (
            lambda folder: (folder / "captions.jsonl").write_text("{}"),
            r"found captions\.jsonl, captions\.parquet, expected one of",
        ),
        (
            lambda folder: (folder / "image_features.npy").write_text("1 2 3"),
            r"image_features\.npy: found no array",
        ),
        (features_of(np.ones(7)), r"an array of float64 with the shape \(7,\)"),
        (features_of(np.ones((7, 3), dtype=int)), r"an array of int64 with the shape \(7, 3\)"),
        (features_of(NOT_FINITE), r"npy, row 5: found NaN or infinity, expected finite numbers"),
        (features_of(np.ones((8, 3))), r"image_ids\.txt: found 7 ids, expected 8"),
        (lambda folder: write_folder(folder, ids=[*IDS[:-1], 12]), "found '12', expected each id"),
        (
            changed_row(image_id=99),
            r"row 9, field 'image_id': found '99', expected an id of",
        ),
        (
            changed_row(split="minival"),
            "row 9, field 'split': found 'minival', expected one of",
        ),
        (
            changed_row(split="test"),
            "row 9, field 'split': found 'test', expected 'dev', where",
        ),
        (changed_row(caption=""), "row 9, field 'caption': found '', expected a text"),
        (
            lambda folder: write_folder(
                folder, [row for row in caption_rows() if row["image_id"] < 60]
            ),
            "field 'split': found 1 images in test, expected at least 2",
        ),
        (
            lambda folder: write_folder(folder, [{"image_id": 12, "caption": "a"}]),
            "field 'split': found the columns",
        ),
    ],
)
def test_bad_folders(change, message, tmp_path):
    write_folder(tmp_path)
    change(tmp_path)
    with pytest.raises(TaskError, match=message):
        COCO.load(tmp_path)


def test_features_are_checked_in_every_block(tmp_path, monkeypatch):
    monkeypatch.setattr(coco_captions, "_CHECKED_ROWS", 2)
    with pytest.raises(TaskError, match=r"image_features\.npy, row 5: found NaN"):
        COCO.load(write_folder(tmp_path, features=NOT_FINITE))


def test_no_source():
    with pytest.raises(TaskError, match="coco_captions, field 'source': found None"):
        COCO.load()


def test_other_languages_than_english_are_refused(tmp_path):
    with pytest.raises(TaskError, match="'de'"):
        COCO.load(write_folder(tmp_path), ["de"])
