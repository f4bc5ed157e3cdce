"""A teacher that is a file: its rows are looked up by their text."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import make_dataset
from tests.training.teachers import arguments, prepared, student, vectors_of
from tmde.training.teachers import find_version
from tmde.training.teachers.files import read_vector_table

TEXTS = ["house", "dog", "cat"]
VECTORS = [[0.5, -1.0], [2.0, 0.25], [-3.0, 4.0]]
ROWS = [{"de": "hund", "en": "dog"}, {"de": "baum", "en": "tree"}, {"de": "haus", "en": "house"}]


def write_vectors(path: Path, texts=TEXTS, vectors=VECTORS, kind=None, **metadata: str) -> Path:
    """Write a file of vectors, by default lists of any length in float32."""
    kind = kind or pa.list_(pa.float32())
    table = pa.table({"text": texts, "vector": pa.array(vectors, kind)})
    if metadata:
        table = table.replace_schema_metadata(metadata)
    pq.write_table(table, path, row_group_size=2)  # Several groups, as a large file has.
    return path


def look_up(teacher, rows, folder: Path, width: int = 2, **options):
    options = {"teacher_languages": ["en"]} | options
    parallel = student(teacher, width=width, **options)
    vectors = vectors_of(make_dataset(rows), parallel, arguments(folder))
    return vectors(np.arange(len(rows)))


# ---- What is read


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float16()),
        pa.list_(pa.float32()),
        pa.list_(pa.float32(), 2),
        pa.large_list(pa.float64()),
    ],
    ids=str,
)
def test_a_row_has_the_vector_of_its_text(kind, tmp_path):
    path = write_vectors(tmp_path / "vectors.parquet", kind=kind)
    vectors, is_taught = look_up(path, ROWS, tmp_path)
    assert is_taught.tolist() == [True, False, True]
    assert vectors.tolist() == [VECTORS[1], [0, 0], VECTORS[0]]


def test_a_row_is_taught_by_the_first_of_its_texts_that_the_file_has(tmp_path):
    path = write_vectors(tmp_path / "vectors.parquet", texts=["hund", "tree", "house"])
    vectors, is_taught = look_up(path, ROWS, tmp_path, teacher_languages=["en", "de"])
    assert is_taught.all()
    assert vectors.tolist() == VECTORS


def test_a_text_may_occur_twice_with_the_same_vector(tmp_path):
    path = write_vectors(tmp_path / "v.parquet", [*TEXTS, "dog"], [*VECTORS, VECTORS[1]])
    vectors, _ = look_up(path, ROWS, tmp_path)
    assert vectors[0].tolist() == VECTORS[1]


def test_a_run_keeps_the_content_of_its_file(tmp_path):
    path = write_vectors(tmp_path / "vectors.parquet")
    parallel = student(path, width=2, teacher_languages=["en"])
    rows = make_dataset(ROWS)
    before = prepared(rows, [], parallel, arguments(tmp_path))
    assert before.versions == (find_version(str(path)),)
    write_vectors(path, vectors=VECTORS[::-1])
    with pytest.raises(ValueError, match="the run started with .*restore it"):
        prepared(rows, [], parallel, arguments(tmp_path))


# ---- What is refused


def bad_file(folder: Path, **columns) -> Path:
    path = folder / "vectors.parquet"
    pq.write_table(pa.table(columns), path)
    return path


FLOATS = pa.list_(pa.float32())


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"sentence": ["a"], "vector": [[1.0]]},
            r"vectors.parquet: found no column 'text' among sentence, vector; expected the columns",
        ),
        ({"text": ["a"], "embedding": [[1.0]]}, "found no column 'vector' among text, embedding"),
        ({"text": [1], "vector": [[1.0]]}, "column 'text': found int64, expected strings"),
        (
            {"text": ["a"], "vector": [1.0]},
            "column 'vector': found double, expected lists of float16, float32 or float64",
        ),
        ({"text": ["a"], "vector": [[1]]}, r"column 'vector': found list<.*int64>, expected lists"),
        (
            {"text": ["a", "b", "a"], "vector": [[1.0, 2.0], [1.0, 3.0], [1.0, 2.5]]},
            "different vectors of 'a' in rows 1 and 3, expected one",
        ),
        (
            {"text": ["a", "b"], "vector": [[1.0, 2.0], [1.0]]},
            "row 2: found a vector of length 1, expected 2, as in row 1",
        ),
        (
            {"text": ["a", "b"], "vector": pa.array([[1.0], None], FLOATS)},
            "row 2: found a vector of length 0, expected 1, as in row 1",
        ),
        (
            {"text": ["a"], "vector": pa.array([None], FLOATS)},
            "row 1: found a vector of length 0, expected one number or more",
        ),
        (
            {"text": ["a", "b"], "vector": [[1.0], [float("nan")]]},
            r"row 2 \('b'\): found a vector with NaN or too large elements",
        ),
        (
            {"text": ["a"], "vector": pa.array([[1.0, None]], FLOATS)},
            r"row 1 \('a'\): found a vector with NaN",
        ),
        (
            {"text": ["a"], "vector": [[1e5]]},
            r"row 1 \('a'\): found a vector with NaN or too large",
        ),
        ({"text": ["a", None], "vector": [[1.0]] * 2}, "row 2: found None, expected a text"),
        (
            {"text": pa.array([], pa.string()), "vector": pa.array([], FLOATS)},
            "vectors.parquet: found no rows, expected texts with their vectors",
        ),
    ],
)
def test_a_file_that_cannot_teach_is_refused(columns, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_vector_table(bad_file(tmp_path, **columns))


def test_a_file_that_is_not_parquet_is_refused(tmp_path):
    (tmp_path / "vectors.parquet").write_text("text,vector")
    with pytest.raises(ValueError, match=r"vectors.parquet: it can't be read as parquet"):
        read_vector_table(tmp_path / "vectors.parquet")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("other.parquet", {}, "other.parquet: found no such file"),
        ("vectors.csv", {}, r"found a file \.csv, expected \.parquet, a folder or a Hub id"),
        (
            "vectors.parquet",
            {"teacher_revision": "v1"},
            "teacher_revision: found 'v1' of the file .*vectors.parquet, expected null",
        ),
        (
            "vectors.parquet",
            {"width": 3},
            r"vectors of d=2, and the model that learns them has d=3; .*model.d_model=2",
        ),
    ],
)
def test_a_teacher_that_is_no_such_file_is_refused(name, options, message, tmp_path):
    write_vectors(tmp_path / "vectors.parquet")
    (tmp_path / "vectors.csv").write_text("")
    with pytest.raises(ValueError, match=message):
        look_up(tmp_path / name, ROWS, tmp_path, **options)


def test_a_file_with_none_of_the_texts_shows_one_of_its_own(tmp_path):
    path = write_vectors(tmp_path / "vectors.parquet", texts=["House.", "Dog.", "Cat."])
    parallel = student(path, width=2, teacher_languages=["en"])
    with pytest.raises(ValueError, match=r"found no text of the training data in en .*'House\.'"):
        prepared(make_dataset(ROWS), [], parallel, arguments(tmp_path))
