"""sentence-transformers opens a checkpoint and gives its vectors; further modules are kept."""

import json

import numpy as np
import pytest
import torch

from modeling_tmde import NtdvForConditionalGeneration, TmdeEncoderForMaskedLM
from modeling_tmde.inspection import NO_LIMIT
from modeling_tmde.sentence_transformers_files import write_sentence_transformers_files
from tests.conftest import jittered, save, tiny_model
from tests.embedding.export_texts import TEXTS
from tests.tiny_embedders import encoder, make_bag, make_xlmr, ntdv
from tmde import DocumentEmbedder

LONG_TEXT = " ".join(["haus", "cane"] * 80)


def open_by_sentence_transformers(folder):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    return sentence_transformers.SentenceTransformer(
        str(folder), trust_remote_code=True, device="cpu"
    )


# ---- Vectors

# The model, and its longest input.
SAVED = {
    "pyramid": (lambda: tiny_model(bottleneck="pyramid", max_position_embeddings=100), 100),
    "bag": (lambda: make_bag(), NO_LIMIT),
    "masked": (lambda: TmdeEncoderForMaskedLM(encoder("mean")), 40),
    "ntdv": (lambda: NtdvForConditionalGeneration(ntdv()), NO_LIMIT),
}


@pytest.mark.parametrize("name", SAVED)
def test_sentence_transformers_gives_the_same_vectors(name, tokenizer, tmp_path):
    make, limit = SAVED[name]
    torch.manual_seed(0)
    save(tmp_path, jittered(make()), tokenizer)
    embedder = DocumentEmbedder.from_pretrained(tmp_path, device="cpu")
    language = {"language": "fr"} if embedder.needs_language else {}
    texts = [*TEXTS, "", LONG_TEXT]
    expected, report = embedder.encode_with_report(texts, **language)

    opened = open_by_sentence_transformers(tmp_path)

    assert (report.truncated > 0) == (limit < NO_LIMIT)
    assert opened.max_seq_length == limit
    assert embedder.max_length == limit
    assert opened.similarity_fn_name == "cosine"
    assert opened.get_embedding_dimension() == embedder.dimension
    for batch_size in (1, 64):
        vectors = opened.encode(texts, batch_size=batch_size, **language)
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


def test_a_model_of_several_encoders_asks_for_the_language(tokenizer, tmp_path):
    save(tmp_path, NtdvForConditionalGeneration(ntdv()), tokenizer)
    opened = open_by_sentence_transformers(tmp_path)
    with pytest.raises(ValueError, match="has separate weights for each language"):
        opened.encode(TEXTS)


@pytest.fixture
def saved_twice(tokenizer, tmp_path):
    """A folder whose tokenizer takes 50 of 128 positions and whose prompts a person edited."""
    save(tmp_path, tiny_model(), tokenizer)
    for name, change in (
        ("tokenizer_config.json", {"model_max_length": 50}),
        ("config_sentence_transformers.json", {"prompts": {"query": "hund "}}),
    ):
        settings = json.loads((tmp_path / name).read_text())
        (tmp_path / name).write_text(json.dumps(settings | change))
    tiny_model(d_model=16).save_pretrained(tmp_path)
    return tmp_path


def test_saving_again_keeps_prompts_and_the_limit_of_the_tokenizer(saved_twice):
    """The limit is the first 50 tokens of the text, as 750 in thesis 4.5.2."""
    embedder = DocumentEmbedder.from_pretrained(saved_twice, device="cpu")
    expected, report = embedder.encode_with_report(["hund haus", "hund " + "katze haus " * 90])

    opened = open_by_sentence_transformers(saved_twice)
    vectors = opened.encode(["haus", "katze haus " * 90], prompt_name="query")

    assert opened.max_seq_length == 50
    assert embedder.max_length == 50
    assert report.truncated == 1
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


# ---- Files that are there already

FILES = ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json")
NORMALIZE = {"idx": 2, "name": "2", "path": "", "type": "sentence_transformers.models.Normalize"}


def test_files_of_a_folder_with_further_modules_are_kept(tmp_path):
    tiny_model().save_pretrained(tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text())
    (tmp_path / "modules.json").write_text(json.dumps([*modules, NORMALIZE]))
    (tmp_path / "1_Pooling/config.json").write_text("{}")
    before = read_files(tmp_path)

    tiny_model().save_pretrained(tmp_path)

    assert read_files(tmp_path) == before


def read_files(folder):
    return {name: json.loads((folder / name).read_text()) for name in FILES}


def test_no_file_of_an_earlier_save_is_left(tmp_path):
    """Models of other widths, limits and languages are saved in the same folder."""
    models = [
        tiny_model(d_model=16),
        NtdvForConditionalGeneration(ntdv()),
        make_bag(),
        tiny_model(),
    ]
    for number, model in enumerate(models):
        model.save_pretrained(tmp_path / str(number))
        model.save_pretrained(tmp_path / "shared")
        assert read_files(tmp_path / "shared") == read_files(tmp_path / str(number))


def test_files_of_another_pooling_and_damaged_ones_are_replaced(tmp_path):
    model = tiny_model()
    model.save_pretrained(tmp_path)
    expected = read_files(tmp_path)
    (tmp_path / "modules.json").write_text("[{")  # as a save that was killed leaves it
    write_sentence_transformers_files(make_xlmr(), tmp_path, "mean")
    assert read_files(tmp_path)["1_Pooling/config.json"]["pooling_mode_mean_tokens"]

    model.save_pretrained(tmp_path)

    assert read_files(tmp_path) == expected
