"""The picture of an embedding space."""

import builtins

import numpy as np
import pytest
from matplotlib import image

from modeling_tmde.eval import figures
from modeling_tmde.eval.figures import draw_embedding_space


def documents(count: int) -> dict:
    rng = np.random.default_rng(0)
    return {
        "vectors": rng.normal(size=(count, 8)).astype(np.float32),
        "labels": [("ECAT", "GCAT")[index % 2] for index in range(count)],
        "languages": [("de", "en", "fr")[index % 3] for index in range(count)],
        "document_ids": [str(index // 3) for index in range(count)],
    }


def test_a_readable_picture_is_written_whole(tmp_path):
    path = tmp_path / "space.png"
    path.write_text("an older file")
    draw_embedding_space(path, **documents(24), title="Vectors")
    picture = image.imread(path)
    height, width, _ = picture.shape
    assert (width, height) == (round(16.5 * 130), round(5.6 * 130))
    # Something is drawn in each of the three panels: colours that are neither white, grey nor black.
    for panel in range(3):
        pixels = picture[:, panel * width // 3 : (panel + 1) * width // 3, :3]
        coloured = (pixels.max(-1) - pixels.min(-1)) > 0.3
        assert coloured.sum() > 200
    assert [file.name for file in tmp_path.iterdir()] == ["space.png"]  # nothing temporary stays


def test_other_formats_and_the_smallest_number_of_documents(tmp_path):
    draw_embedding_space(str(tmp_path / "space.svg"), **documents(5))
    text = (tmp_path / "space.svg").read_text()
    assert text.startswith("<?xml")
    draw_embedding_space(str(tmp_path / "other.svg"), **documents(5), seed=1)
    assert (tmp_path / "other.svg").read_text() != text


def test_colours_tell_groups_apart_and_lines_join_translations(tmp_path, monkeypatch):
    class PlantedTSNE:
        def __init__(self, **options):
            assert options["metric"] == "cosine"
            assert options["perplexity"] < 6  # scikit-learn refuses more neighbours than documents

        def fit_transform(self, vectors):
            return np.asarray(vectors)[:, :2]

    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(figures, "TSNE", PlantedTSNE)
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **_: (drawn.append(self), path.touch()))
    vectors = np.arange(12.0).reshape(6, 2)
    draw_embedding_space(
        tmp_path / "space.png",
        vectors,
        labels=["b", "b", "a", "a", "a", "a"],
        languages=["de", "en", "de", "en", "de", "fr"],
        document_ids=["x", "x", "y", "y", "z", "z"],
        title="Six documents",
    )
    by_class, by_language, joined = drawn[0].axes
    points = {
        axes: {dots.get_label(): dots.get_offsets().tolist() for dots in axes.collections}
        for axes in (by_class, by_language, joined)
    }
    assert points[by_class] == {"a": vectors[2:].tolist(), "b": vectors[:2].tolist()}
    languages = {"de": vectors[[0, 2, 4]].tolist(), "en": vectors[[1, 3]].tolist(), "fr": vectors[[5]].tolist()}
    assert points[by_language] == points[joined] == languages
    assert [line.get_xydata().tolist() for line in joined.lines] == [vectors[i : i + 2].tolist() for i in (0, 2, 4)]
    assert drawn[0].get_suptitle() == "Six documents"
    colours = [tuple(dots.get_facecolor()[0]) for dots in by_language.collections]
    assert len(set(colours)) == 3


def test_too_few_documents(tmp_path):
    with pytest.raises(ValueError, match="at least 5 documents, found 4"):
        draw_embedding_space(tmp_path / "space.png", **documents(4))
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    original = builtins.__import__

    def without(name, *arguments, **keywords):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"tmde\[figures\]"):
        draw_embedding_space(tmp_path / "space.png", **documents(6))
