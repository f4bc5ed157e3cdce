"""Calibrations that come with the package: by the name of the encoder, or by its vectors."""

import pytest

from modeling_tmde import TmdeError
from tests.tiny_embedders import make_tokenizer, make_xlmr
from tmde.documents import packaged_calibrations as module
from tmde.documents.calibration import Calibration, probe_cosines
from tmde.documents.pair_probabilities import find_calibration, needed_calibration
from tmde.embedding.document_embedder import DocumentEmbedder

NAME = "intfloat/multilingual-e5-small"


@pytest.fixture
def embedder():
    return DocumentEmbedder(make_xlmr(), make_tokenizer(), pooling="mean")


@pytest.fixture
def unknown(embedder, tmp_path):
    """The name of a folder without a calibration."""
    embedder.save_pretrained(str(tmp_path / "model"))
    return str(tmp_path / "model")


@pytest.mark.parametrize("file", module._FILES.values())
def test_packaged_files_are_calibrations(file):
    assert Calibration.load(file).prompt == ""


def test_an_encoder_is_known_by_its_name(embedder, unknown):
    embedder.model.name_or_path = NAME
    calibration = module.packaged_calibration(embedder)
    calibration.check_embedder(embedder)
    assert needed_calibration(None, unknown, None, embedder) == calibration
    assert find_calibration(unknown, None, embedder) == calibration


def test_an_encoder_is_known_by_its_vectors(embedder, unknown, tmp_path, monkeypatch):
    packaged = Calibration.load(module._FILES[NAME])
    fitting = packaged.model_copy(update={"probe_cosines": probe_cosines(embedder)})
    fitting.save(tmp_path / "fitting.json")
    monkeypatch.setattr(module, "_FILES", {NAME: tmp_path / "fitting.json"})
    assert module.packaged_calibration(embedder) == fitting
    assert needed_calibration(None, unknown, None, embedder) == fitting


def test_another_encoder_has_none(embedder, unknown):
    assert module.packaged_calibration(embedder) is None
    assert find_calibration(unknown, None, embedder) is None
    with pytest.raises(TmdeError, match="found no calibration"):
        needed_calibration(None, unknown, None, embedder)
