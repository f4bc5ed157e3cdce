"""Several teachers as one, against principal components in plain numpy."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
from scipy.spatial.distance import pdist

from tests.conftest import make_dataset, make_rows
from tests.training.teachers import (
    WIDTH,
    arguments,
    expected_vector,
    prepared,
    static_teacher,
    student,
    vectors_of,
)
from tests.training.test_teacher_files import write_vectors
from tmde.training.objectives import Distillation
from tmde.training.teachers.combination import Combination, fit_combination
from tmde.training.teachers.models import ModelTeacher
from tmde.training.teachers.versions import RECORD


def directions(vectors: np.ndarray) -> np.ndarray:
    centered = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    return centered / np.linalg.norm(centered, axis=1, keepdims=True)


def reference(teachers: list[np.ndarray], width: int) -> np.ndarray:
    """Return the projection by the singular vectors of the concatenated directions.

    If a teacher has that width, the projection is rotated towards the first such teacher.
    """
    both = np.concatenate([directions(vectors) for vectors in teachers], axis=1)
    both /= np.sqrt(len(teachers))
    if both.shape[1] == width:
        return both
    centered = both - both.mean(0)
    _, _, components = np.linalg.svd(centered, full_matrices=False)
    components = components[:width]
    places = np.abs(components).argmax(axis=1)
    components *= np.sign(components[np.arange(len(components)), places])[:, None]
    projected = centered @ components.T
    for vectors in teachers:
        if vectors.shape[1] == width:
            target = directions(vectors)
            target -= target.mean(0)
            rotation, _ = scipy.linalg.orthogonal_procrustes(projected, target)
            return projected @ rotation
    return projected


def fit(teachers: list[np.ndarray], width: int, block_rows: int = 40) -> Combination:
    """Return the combination of teachers, whose rows are read in blocks."""
    blocks = []
    for begin in range(0, len(teachers[0]), block_rows):
        blocks.append([vectors[begin : begin + block_rows] for vectors in teachers])
    return fit_combination(blocks, [vectors.shape[1] for vectors in teachers], width)


def random_vectors(rows: int, width: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, width)) * rng.uniform(0.5, 2, width) + 3).astype(np.float16)


# ---- The projection


def test_two_directions_by_hand():
    """Means (2, 0) and (0, 5): one teacher tells left from right, the other up from down."""
    first = np.array([[1.0, 0.0], [3.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
    second = np.array([[0.0, 6.0], [0.0, 6.0], [0.0, 4.0], [0.0, 4.0]])
    combination = fit([first, second], width=4)
    half = np.sqrt(0.5)
    expected = [[-half, 0, 0, half], [half, 0, 0, half], [-half, 0, 0, -half], [half, 0, 0, -half]]
    np.testing.assert_allclose(combination([first, second]), expected, atol=1e-12)


@pytest.mark.parametrize("widths", [(5, 4), (9,), (3, 3, 2)])
def test_the_projection_is_that_of_the_singular_vectors(widths):
    teachers = [random_vectors(40, width, seed) for seed, width in enumerate(widths)]
    combination = fit(teachers, width=4, block_rows=7)
    np.testing.assert_allclose(combination(teachers), reference(teachers, 4), atol=1e-9)


def test_a_teacher_and_a_copy_of_it_are_that_teacher():
    """A student that begins as this teacher, and has its directions, is where it should be."""
    teacher = random_vectors(400, 6, seed=0)
    combined = fit([teacher, teacher], width=6)([teacher, teacher])
    expected = directions(teacher)
    np.testing.assert_allclose(combined, expected - expected.mean(0), atol=1e-9)


def test_the_rotation_is_the_closest_and_changes_no_distance():
    teachers = [random_vectors(40, width, seed) for seed, width in enumerate((3, 4))]
    combined = fit(teachers, width=4)(teachers)
    target = directions(teachers[1])
    squared_error = np.square(combined - target).sum()
    rng = np.random.default_rng(2)
    for _ in range(20):
        lower_triangle = np.tril(rng.standard_normal((4, 4)), -1)
        # The exponential of a skew-symmetric matrix is a rotation.
        other_rotation = scipy.linalg.expm(0.1 * (lower_triangle - lower_triangle.T))
        assert np.square(combined @ other_rotation - target).sum() > squared_error
    both = np.concatenate([directions(vectors) for vectors in teachers], axis=1) / np.sqrt(2)
    left, singular_values, _ = np.linalg.svd(both - both.mean(0), full_matrices=False)
    unrotated = left[:, :4] * singular_values[:4]
    np.testing.assert_allclose(pdist(combined), pdist(unrotated), atol=1e-9)


def test_as_wide_as_the_student_there_is_no_projection():
    teachers = [random_vectors(40, width, seed) for seed, width in enumerate((5, 4))]
    combined = fit(teachers, width=9)(teachers)
    np.testing.assert_allclose(combined, reference(teachers, 9), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(combined, axis=1), 1)


def test_with_fewer_rows_than_coordinates_distances_stay_and_the_rest_is_zero():
    teachers = [random_vectors(4, width, seed) for seed, width in enumerate((8, 8))]
    combined = fit(teachers, width=6)(teachers)
    whole = reference(teachers, 16)
    for row in range(4):
        distances = np.linalg.norm(combined - combined[row], axis=1)
        expected = np.linalg.norm(whole - whole[row], axis=1)
        np.testing.assert_allclose(distances, expected, atol=1e-9)
    assert np.abs(combined[:, :3]).max(axis=0).min() > 1e-3  # Four points span three dimensions.
    assert (combined[:, 3:] == 0).all()


def test_a_vector_that_is_the_mean_becomes_zero():
    vectors = np.array([[1.0, 1.0], [1.0, 1.0]])
    assert fit([vectors], width=1)([vectors]).tolist() == [[0], [0]]


# ---- Teachers of a run


@pytest.fixture
def english(tmp_path: Path) -> list[dict[str, str]]:
    return make_rows(60, seed=3, languages=("de", "en"))


def vectors_of_file(path: Path, rows: list[dict[str, str]], width: int) -> np.ndarray:
    """Write random vectors of the English texts of rows, and return them by row."""
    texts = sorted({row["en"] for row in rows})
    table = random_vectors(len(texts), width, seed=7)
    write_vectors(path, texts, table.astype(np.float32).tolist())
    return table[[texts.index(row["en"]) for row in rows]]


def options(width: int = 8) -> dict:
    return {"width": width, "teacher_languages": ["en"]}


def test_a_wider_file_is_projected(english, tmp_path):
    path = tmp_path / "wide.parquet"
    expected = reference([vectors_of_file(path, english, 12)], 8)
    teacher = vectors_of(make_dataset(english), student(path, **options()), arguments(tmp_path))
    vectors, is_taught = teacher(np.arange(60))
    assert is_taught.all()
    np.testing.assert_allclose(vectors, expected, atol=1e-3)  # They are stored in float16.


@pytest.fixture
def both(tmp_path: Path, english) -> tuple[list[str], np.ndarray, np.ndarray]:
    """A model and a file of which the first ten rows are unknown, and the vectors of each."""
    pytest.importorskip("sentence_transformers")
    table = static_teacher(tmp_path / "model")
    model_vectors = np.stack([expected_vector(table, row["en"]).numpy() for row in english])
    file_vectors = vectors_of_file(tmp_path / "file.parquet", english[10:], 12)
    names = [str(tmp_path / "model"), str(tmp_path / "file.parquet")]
    return names, model_vectors, file_vectors


@pytest.mark.parametrize("folder", ["caches", None])
def test_a_row_is_taught_if_all_teachers_know_it(folder, both, english, tmp_path, monkeypatch):
    monkeypatch.setattr(ModelTeacher, "half_precision", False)
    monkeypatch.setattr("tmde.training.teachers.vectors.SHARD_ROWS", 16)
    names, model_vectors, file_vectors = both
    known = {row["en"] for row in english[10:]}
    is_known = np.array([row["en"] in known for row in english])
    assert not is_known.all()
    cache = None if folder is None else str(tmp_path / folder)
    args = arguments(tmp_path, token_cache_dir=cache)

    teacher = vectors_of(make_dataset(english), student(names, **options()), args)
    vectors, is_taught = teacher(np.arange(60))

    assert is_taught.tolist() == is_known.tolist()
    texts = [row["en"] for row in english[10:]]
    rows_of_file = [texts.index(row["en"]) for row in english if row["en"] in known]
    read = [model_vectors[is_known].astype(np.float16), file_vectors[rows_of_file]]
    np.testing.assert_allclose(vectors[is_known], reference(read, 8), atol=2e-3)
    assert (vectors[~is_known] == 0).all()


def test_dev_rows_are_projected_as_the_training_rows_are(both, english, tmp_path, monkeypatch):
    """One text has one vector, whatever the rows around it."""
    names, _, _ = both
    parallel = student(names, **options())
    args = arguments(tmp_path)
    train = make_dataset(english)
    dev = make_dataset(english[20:27])

    teachers = prepared(train, [dev], parallel, args)
    monkeypatch.setattr(ModelTeacher, "model", None)  # All vectors are there.
    files = sorted((tmp_path / "caches").iterdir())
    train_vectors, _ = teachers.vectors_of(train)(np.arange(60))
    dev_vectors, _ = teachers.vectors_of(dev)(np.arange(7))

    assert dev_vectors.tolist() == train_vectors[20:27].tolist()
    assert np.abs(dev_vectors).max() > 0.1
    # Two teachers and their combination, of train and of dev, and nothing is made again.
    assert sum(file.suffix == ".arrow" for file in files) == 6
    assert sorted((tmp_path / "caches").iterdir()) == files
    path = "tmde.training.teachers.vectors.fit_combination"
    monkeypatch.setattr(path, None)  # It is not needed again either.
    again = prepared(train, [dev], parallel, args)
    assert again.vectors_of(train)(np.arange(60))[0].tolist() == train_vectors.tolist()
    # Vectors that an earlier run left have taken their time as well.
    assert again.seconds == teachers.seconds > 0


def test_a_list_of_teachers_shares_what_one_of_them_read_alone(english, tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers")
    for seed in (0, 1):
        static_teacher(tmp_path / str(seed), seed=seed)
    rows = make_dataset(english)
    args = arguments(tmp_path)
    vectors_of(rows, student([str(tmp_path / "0")], **options()), args)
    texts: list[str] = []
    encode = ModelTeacher.encode

    def count(self, batch, language):
        texts.extend(batch)
        return encode(self, batch, language)

    monkeypatch.setattr(ModelTeacher, "encode", count)
    names = [str(tmp_path / "0"), str(tmp_path / "1")]
    vectors_of(rows, student(names, **options()), args)
    assert len(texts) == 60  # Those of the second teacher alone.


@pytest.mark.parametrize("count", [1, 2])
def test_a_wider_model_is_projected_only_if_it_is_in_a_list(count, english, tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr(ModelTeacher, "half_precision", False)
    table = static_teacher(tmp_path / "model")
    names = [str(tmp_path / "model")] * count
    rows = make_dataset(english)
    read = np.stack([expected_vector(table, row["en"]).numpy() for row in english])
    vectors, _ = vectors_of(rows, student(names, **options()), arguments(tmp_path))(np.arange(60))
    expected = directions(read)
    cosines = expected @ expected.T
    # Ten words span at most ten dimensions, so that eight lose little.
    np.testing.assert_allclose(vectors @ vectors.T, cosines, atol=0.2)
    with pytest.raises(
        ValueError, match=r"d=32, .* has d=8; .*teacher=\[.*model\], which is projected"
    ):
        vectors_of(rows, student(names[0], **options()), arguments(tmp_path))


# ---- What is refused


def test_teachers_that_are_narrower_together_are_refused(both, english, tmp_path):
    names, _, _ = both
    parallel = student(names, **options(width=50))
    with pytest.raises(ValueError, match=r"d=32 \+ 12, .* has d=50; .*model.d_model=44 or less"):
        vectors_of(make_dataset(english), parallel, arguments(tmp_path))


def test_a_run_keeps_all_of_its_teachers(both, english, tmp_path):
    names, _, _ = both
    rows = make_dataset(english)
    args = arguments(tmp_path)
    prepared(rows, [], student(names, **options()), args)
    record = json.loads((tmp_path / "run" / RECORD).read_text())
    assert [version["name"] for version in record] == names
    with pytest.raises(ValueError, match="found 1 teachers, but the run started with 2"):
        prepared(rows, [], student(names[1], **options()), args)
    with pytest.raises(ValueError, match="the run started with .*restore it"):
        prepared(rows, [], student(names[::-1], **options()), args)


@pytest.mark.parametrize("teacher", [None, "", [], ["one", ""]])
def test_a_list_without_a_teacher_is_refused(teacher):
    with pytest.raises(ValueError, match="teacher: give a sentence-transformers model, folder or"):
        Distillation(teacher)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"teacher_prompt": ["query: "]}, "teacher_prompt: found 1 for 2 teachers"),
        ({"teacher_revision": ["a", None, "b"]}, "teacher_revision: found 3 for 2 teachers"),
    ],
)
def test_lists_of_options_have_one_for_each_teacher(option, message):
    with pytest.raises(ValueError, match=message):
        student(["one", "two"], **option)


def test_each_model_has_its_prompt(english, tmp_path):
    pytest.importorskip("sentence_transformers")
    static_teacher(tmp_path / "model")
    prompts = {"teacher_prompt": ["house ", "dog "]}
    parallel = student([str(tmp_path / "model")] * 2, **options(width=2 * WIDTH), **prompts)
    vectors = vectors_of(make_dataset(english), parallel, arguments(tmp_path))
    first, second = vectors.parts
    assert first["vector"][:] != second["vector"][:]
