"""Checkpoints opened by sentence-transformers give the vectors of DocumentEmbedder."""

import json

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from modeling_tmde import (
    AlignedModel,
    BagConfig,
    BagModel,
    DocumentEmbedder,
    LaserForConditionalGeneration,
    NtdvForConditionalGeneration,
    TmdeEncoderForMaskedLM,
)
from modeling_tmde.long_documents import NO_LIMIT
from tests.conftest import tiny_model
from tests.tiny_embedders import aligned, encoder, laser, ntdv

pytest.importorskip("sentence_transformers")
from sentence_transformers import SentenceTransformer  # noqa: E402

TEXTS = [
    "",
    " ",
    "漢字と仮名",
    "🙂 e\u0301 é",
    "<s> </s> <pad>",
    *(" ".join(["haus", "cane"] * n) for n in range(1, 80, 9)),
]
# The model, its longest input, and whether it needs the language of a text.
MODELS = {
    "first": (lambda: tiny_model(), 128, False),
    "pyramid": (lambda: tiny_model(bottleneck="pyramid"), 128, False),
    "bag": (lambda: BagModel(BagConfig(vocab_size=400, d_model=24)), NO_LIMIT, False),
    "laser": (lambda: LaserForConditionalGeneration(laser()), NO_LIMIT, False),
    "masked": (lambda: TmdeEncoderForMaskedLM(encoder("mean")), 40, False),
    "ntdv": (lambda: NtdvForConditionalGeneration(ntdv()), NO_LIMIT, True),
    "aligned": (lambda: AlignedModel(aligned("bilstm")), NO_LIMIT, True),
}


def save(model, folder, tokenizer):
    """No parameter keeps its initial value, so that one left out of a file is noticed."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tokenizer):
    root = tmp_path_factory.mktemp("saved")
    torch.manual_seed(0)
    for name, (make, *_) in MODELS.items():
        save(make(), root / name, tokenizer)
    return root


@pytest.mark.parametrize("name", MODELS)
def test_the_same_vectors(name, folders):
    model = SentenceTransformer(str(folders / name), trust_remote_code=True, device="cpu")
    embedder = DocumentEmbedder.from_pretrained(folders / name, device="cpu")
    _, limit, needs_language = MODELS[name]
    assert model.max_seq_length == embedder.max_length == limit
    language = {"language": "fr"} if needs_language else {}
    expected = embedder.encode(TEXTS, **language)
    assert (embedder.last_report.truncated > 0) == (limit < NO_LIMIT)
    for batch_size in (1, 64):
        vectors = model.encode(TEXTS, batch_size=batch_size, **language)
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    assert model.similarity_fn_name == "cosine" and model.get_embedding_dimension() == embedder.dimension
    if needs_language:
        with pytest.raises(ValueError, match="has a part for each language"):
            model.encode(TEXTS)


def test_the_limit_of_the_tokenizer_counts_below_that_of_the_model(tokenizer, tmp_path):
    """750 tokens of 2048 positions: the first 750 of the text, as in thesis 4.5.2."""
    shorter = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, pad_token="<pad>", eos_token="</s>"
    )
    shorter.model_max_length = 750
    save(tiny_model(max_position_embeddings=2048), tmp_path, shorter)
    model = SentenceTransformer(str(tmp_path), trust_remote_code=True, device="cpu")
    embedder = DocumentEmbedder.from_pretrained(tmp_path, device="cpu")
    assert model.max_seq_length == embedder.max_length == 750
    texts = ["haus hund " * 100, "haus hund katze " * 900]
    np.testing.assert_allclose(model.encode(texts), embedder.encode(texts), rtol=0, atol=1e-5)
    assert embedder.last_report.truncated == 1


def test_saving_again_keeps_prompts_and_similarity(tokenizer, tmp_path):
    save(tiny_model(), tmp_path, tokenizer)
    path = tmp_path / "config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"prompts": {"query": "hund "}}))
    save(tiny_model(d_model=16), tmp_path, tokenizer)
    model = SentenceTransformer(str(tmp_path), trust_remote_code=True, device="cpu")
    expected = DocumentEmbedder.from_pretrained(tmp_path, device="cpu").encode("hund haus")
    np.testing.assert_allclose(model.encode("haus", prompt_name="query"), expected, rtol=0, atol=1e-5)
    tiny_model().save_pretrained(tmp_path / "other", is_main_process=False)
    assert not (tmp_path / "other" / "modules.json").exists()
