"""Long documents with tokenizers and models of other kinds: slow, one-sided, a bag, a part for each language, int8."""

import numpy as np
import pytest
import torch
from tokenizers import processors
from transformers import BertTokenizerLegacy

from modeling_tmde import BagConfig, BagModel, long_documents
from modeling_tmde.backends import quantize_int8
from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.sentences import split_sentences
from tests.conftest import tiny_model
from tests.modeling_tmde.test_embedding import make_bert, make_tokenizer, make_xlmr
from tests.modeling_tmde.test_long_documents import (
    AGGREGATIONS,
    LONG,
    MODES,
    SHORT,
    SomeWeights,
    inputs_by_hand,
    reference,
)
from tests.modeling_tmde.test_text_languages import by_hand, make_tables


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def model():
    return make_xlmr()


def test_slow_tokenizer(tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "."]))
    tokenizer = BertTokenizerLegacy(str(vocabulary))
    assert not tokenizer.is_fast
    torch.manual_seed(0)
    model = make_bert().eval()
    text = "a b. b b a b. A a b b a a a b. b"
    for mode in MODES:
        embedder = DocumentEmbedder(model, tokenizer, max_length=6, long_documents=mode)
        expected = reference(embedder, text, mode, 6)
        np.testing.assert_allclose(embedder.encode([text, "a"])[0], expected, rtol=0, atol=1e-5)
        assert embedder.last_report.split == 1 and embedder.last_report.truncated == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_tokenizer_without_special_tokens_and_of_either_side(mode, side):
    tokenizer = make_tokenizer(special=False)
    tokenizer.truncation_side = side
    embedder = DocumentEmbedder(make_xlmr(), tokenizer, max_length=10, long_documents=mode)
    expected = reference(embedder, LONG, mode, 10, affixes=(0, 0))
    vectors = embedder.encode([LONG, "", "a"])
    np.testing.assert_allclose(vectors[0], expected, rtol=0, atol=1e-5)
    assert np.isfinite(vectors).all()


def test_special_tokens_on_one_side_only(tokenizer):
    """T-MDE's own tokenizer puts its tag before a text; special tokens inside a text are text."""
    special = tokenizer.backend_tokenizer
    first = make_tokenizer()
    first.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", special.token_to_id("<s>"))]
    )
    embedder = DocumentEmbedder(make_xlmr(), first, long_documents="chunk", window=9)
    text = "</s> <s> open. " + LONG
    expected = reference(embedder, text, "chunk", 9, affixes=(1, 0))
    np.testing.assert_allclose(embedder.encode(text), expected, rtol=0, atol=1e-5)


def make_bag():
    torch.manual_seed(0)
    return BagModel(BagConfig(vocab_size=400, d_model=24)).eval()


def test_a_bag_is_split_only_where_a_window_is_given(tokenizer):
    text = "open " * 3000
    plain = DocumentEmbedder(make_bag(), tokenizer).encode([text, "a"])
    for mode in MODES:
        embedder = DocumentEmbedder(make_bag(), tokenizer, long_documents=mode)
        np.testing.assert_array_equal(embedder.encode([text, "a"]), plain)
        assert embedder.last_report.split == 0
        embedder = DocumentEmbedder(make_bag(), tokenizer, long_documents=mode, window=20)
        embedder.encode([LONG, "a"])
        assert embedder.last_report.split == 1
    vectors = embedder.encode([LONG, "a", ""])
    pieces = DocumentEmbedder(make_bag(), tokenizer).encode(split_sentences(LONG))
    np.testing.assert_allclose(vectors[0], pieces.mean(0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_bag_has_no_use_for_what_splits_nothing(tokenizer, mode):
    for options in ({"stride": 5}, {"aggregation": "max"}, {"aggregation": SomeWeights()}):
        with pytest.raises(ValueError, match="^window: the model takes texts of any length, so nothing is split"):
            DocumentEmbedder(make_bag(), tokenizer, long_documents=mode, **options)
    for options in ({"window": 20, "aggregation": "max"}, {"max_length": 20, "stride": 5}):
        DocumentEmbedder(make_bag(), tokenizer, long_documents=mode, **options)
    options = {"long_documents": mode, "window": 20, "stride": 5}
    if mode == "chunk":
        assert DocumentEmbedder(make_bag(), tokenizer, **options).long_document_settings["stride"] == 5
    else:
        with pytest.raises(ValueError, match="^stride: found 5, but the model takes sentences of any length"):
            DocumentEmbedder(make_bag(), tokenizer, **options)


@pytest.mark.parametrize("mode", MODES)
def test_pieces_inherit_the_language(tokenizer, mode, monkeypatch):
    """A model with a table for each language; documents of several languages in several blocks."""
    embedder = DocumentEmbedder(make_tables(), tokenizer, long_documents=mode, window=12)
    texts, codes = [LONG, "a", LONG[7:], "", LONG], ["de", "en", "fr", "de", "en"]
    vectors = embedder.encode(texts, language=codes, batch_tokens=30)
    for text, code, vector in zip(texts, codes, vectors, strict=True):
        pieces = inputs_by_hand(embedder, text, mode, 12)
        table = embedder.model.tables[["de", "en", "fr"].index(code)].weight.detach().double().numpy()
        np.testing.assert_allclose(vector, np.mean([table[ids].mean(0) for ids in pieces], axis=0), atol=1e-5)
    np.testing.assert_allclose(embedder.encode("a", language="fr"), by_hand(embedder, "a", "fr"), atol=1e-5)
    monkeypatch.setattr(long_documents, "_GROUP_CHARACTERS", 10)
    np.testing.assert_allclose(embedder.encode(texts, language=codes), vectors, rtol=0, atol=1e-5)
    streamed = list(embedder.encode_iter(iter(texts), 2, language=iter(codes)))
    np.testing.assert_allclose(np.concatenate(streamed), vectors, rtol=0, atol=1e-5)


def test_the_splitter_is_told_the_language_of_each_document(model, tokenizer, monkeypatch):
    told = []

    def split(text, language=None):
        told.append((text, language))
        return split_sentences(text, language)

    monkeypatch.setattr(long_documents, "split_sentences", split)
    embedder = DocumentEmbedder(model, tokenizer, long_documents="sentences", window=10)
    texts = [LONG, "a", LONG + "b"]
    for codes, expected in ((None, [None, None]), ("fr", ["fr", "fr"]), (["de", "it", None], ["de", None])):
        told.clear()
        list(embedder.encode_iter(texts, 2, language=codes))
        assert told == [(LONG, expected[0]), (LONG + "b", expected[1])]
        with monkeypatch.context() as patch:
            patch.setattr(long_documents, "_GROUP_CHARACTERS", 10)  # each document is a group of its own
            told.clear()
            embedder.encode(texts, language=codes)
        assert told == [(LONG, expected[0]), (LONG + "b", expected[1])]
    for codes in (["de"], ["de"] * 4):
        with pytest.raises(ValueError, match=f"language: found {len(codes)} codes for 3 texts"):
            embedder.encode(texts, language=codes)
    with pytest.raises(TypeError, match="language of text 1: found int, expected str"):
        embedder.encode(texts, language=["de", 7, "fr"])
    # An abbreviation of one language ends a sentence of another.
    german = "Das ist bzw. Das war gut. " * 5
    vectors = [embedder.encode(german, language=code) for code in ("de", "en")]
    assert len(split_sentences(german, "de")) < len(split_sentences(german, "en"))
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=["mean", "max", "density"])
def test_int8(tokenizer, mode, aggregation):
    embedder = DocumentEmbedder(
        quantize_int8(make_xlmr()), tokenizer, long_documents=mode, window=20, aggregation=aggregation
    )
    expected = reference(embedder, LONG, mode, 20, aggregation=aggregation)
    np.testing.assert_allclose(embedder.encode([LONG, *SHORT])[0], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_compiled(tokenizer, mode):
    """By a compiler that takes no time: what counts is how its batches are padded."""
    model = make_xlmr()
    expected = DocumentEmbedder(model, tokenizer, long_documents=mode, window=20).encode([LONG, *SHORT])
    model.compile(backend="eager", dynamic=True)
    embedder = DocumentEmbedder(model, tokenizer, long_documents=mode, window=20)
    np.testing.assert_allclose(embedder.encode([LONG, *SHORT]), expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_onnx(tokenizer, tmp_path):
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package)
    tiny_model().model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    for mode in MODES:
        options = {"device": "cpu", "long_documents": mode, "window": 20, "aggregation": "max"}
        plain, onnx = (DocumentEmbedder.from_pretrained(tmp_path, backend=b, **options) for b in ("torch", "onnx"))
        np.testing.assert_allclose(onnx.encode([LONG, "a"]), plain.encode([LONG, "a"]), rtol=0, atol=1e-5)
        assert onnx.last_report.split == 1
