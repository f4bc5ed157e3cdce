"""Long documents: pieces and aggregation by plain loops, plain vectors where a text fits, batch invariance."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import processors
from transformers import ByT5Tokenizer

from tests.tiny_embedders import make_tables, make_tokenizer, make_xlmr
from tmde.embedding import document_embedder as embedding
from tmde.embedding import long_documents
from tmde.embedding.document_embedder import DocumentEmbedder, EncodeReport
from tmde.embedding.long_documents import SentenceDensity, split_sentences

MODES = ("chunk", "sentences")
LONG = (
    "Die Sitzung ist eröffnet. The sitting is open! Se abre la sesión; gracias por su atención.\nA b c? "
    * 4
)


class SomeWeights(SentenceDensity):
    """Fitted to vectors of 32 dimensions; weights that differ much, and depend on the vector alone."""

    mean_ = np.zeros(32)

    def weights(self, vectors: np.ndarray) -> np.ndarray:
        return (0.01 + 1 / (1 + np.exp(3 * vectors[:, 0].astype(np.float64)))).astype(np.float32)


AGGREGATIONS = ("mean", "max", SomeWeights())


def cut(ids, length, stride, prefix, suffix):
    """Token ids of the windows, by a plain loop."""
    if len(ids) <= length:
        return [ids]
    before, text, after = ids[:prefix], ids[prefix : len(ids) - suffix], ids[len(ids) - suffix :]
    room, start, windows = length - prefix - suffix, 0, []
    while start + room < len(text):
        windows.append(before + text[start : start + room] + after)
        start += stride
    return [*windows, before + text[-room:] + after]


def inputs_by_hand(embedder, text, mode, window, stride=None, affixes=(1, 1)):
    """The token ids of each input of the model."""
    texts = [embedder.prompt + part for part in (text, *split_sentences(text))]
    tokens = [embedder.tokenizer(part, split_special_tokens=True)["input_ids"] for part in texts]
    ids, *sentences = tokens
    length = window if mode == "chunk" else embedder.max_length
    stride = stride or max(1, (length - sum(affixes)) // 2)
    if len(ids) <= window:
        return [ids]
    parts = [ids] if mode == "chunk" else sentences
    return [piece for part in parts or [ids] for piece in cut(part, length, stride, *affixes)]


def reference(
    embedder, text, mode, window, stride=None, aggregation="mean", affixes=(1, 1), **language
):
    """The vector (d,) of one text: its pieces one by one through the model, aggregated in float64."""
    vectors = []
    for ids in inputs_by_hand(embedder, text, mode, window, stride, affixes):
        with torch.no_grad():
            hidden = embedder.model(
                torch.tensor([ids]), torch.ones(1, len(ids)), **language
            ).last_hidden_state[0]
        vectors.append(
            (hidden[0] if embedder.pooling == "cls" else hidden.mean(0)).double().numpy()
        )
    if len(vectors) == 1 or aggregation == "max":
        return np.max(vectors, axis=0)
    weights = (
        np.ones(len(vectors)) if aggregation == "mean" else aggregation.weights(np.array(vectors))
    )
    return (
        sum(float(weight) * vector for weight, vector in zip(weights, vectors, strict=True))
        / weights.sum()
    )


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def model():
    return make_xlmr()


WORDS = [
    "Guten",
    "z. B.",
    "open.",
    "sesión;",
    "Dr.",
    "a!",
    "? ",
    "\n",
    "日本。",
    "x" * 30,
    " ",
    "...",
    "\x0b",
]
DOCUMENTS = st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=8)), max_size=60).map(
    " ".join
)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(DOCUMENTS, min_size=1, max_size=5),
    mode=st.sampled_from(MODES),
    aggregation=st.sampled_from(AGGREGATIONS),
    sizes=st.tuples(st.integers(6, 40), st.integers(0, 38), st.integers(5, 40)),
    prompt=st.sampled_from(["", "Q:"]),
    batch_tokens=st.integers(1, 300),
    seed=st.randoms(use_true_random=False),
)
def test_any_document_by_hand_and_in_any_company(
    model, tokenizer, texts, mode, aggregation, sizes, prompt, batch_tokens, seed
):
    max_length, step, window = sizes
    window = min(window, max_length)
    affixes = (1 + len(prompt), 1)  # of Q and : each is a token
    content = (window if mode == "chunk" else max_length) - sum(affixes)
    stride = min(step, content) or None
    options = {"window": window, "stride": stride, "aggregation": aggregation}
    embedder = DocumentEmbedder(
        model, tokenizer, max_length=max_length, long_documents=mode, prompt=prompt, **options
    )
    expected = np.stack(
        [reference(embedder, text, mode, affixes=affixes, **options) for text in texts]
    )
    order = list(range(len(texts)))
    seed.shuffle(order)
    together, found_report = embedder.encode_with_report(
        [texts[i] for i in order], batch_tokens=batch_tokens
    )
    np.testing.assert_allclose(together, expected[order], rtol=0, atol=1e-5)
    inputs = [inputs_by_hand(embedder, text, mode, window, stride, affixes) for text in texts]
    counts = list(map(len, inputs))
    report = EncodeReport(
        texts=len(texts),
        tokens=sum(len(ids) for pieces in inputs for ids in pieces),
        longest=max(
            len(tokenizer(prompt + text, split_special_tokens=True)["input_ids"]) for text in texts
        ),
        seconds=found_report.seconds,
        split=sum(count > 1 for count in counts),
        pieces=sum(counts),
    )
    assert found_report == report
    stream = embedder.encode_iter(
        iter(texts), chunk_size=2, batch_tokens=batch_tokens, normalize=True
    )
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(np.concatenate(list(stream)), unit, rtol=0, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=["mean", "max", "density"])
def test_pieces_are_embedded_in_blocks(model, tokenizer, mode, aggregation, monkeypatch):
    """One document may have any number of pieces; they are embedded some at a time, over block after block."""
    texts = ["a", LONG * 3, "", LONG, "gracias"]
    options = {
        "long_documents": mode,
        "window": 9,
        "stride": 2,
        "aggregation": aggregation,
        "max_length": 16,
    }
    embedder = DocumentEmbedder(model, tokenizer, **options)
    expected = embedder.encode(texts)
    monkeypatch.setattr(long_documents, "_BLOCK_PIECES", 7)
    monkeypatch.setattr(embedding, "_GROUP_CHARACTERS", 50)
    np.testing.assert_allclose(embedder.encode(texts), expected, rtol=0, atol=1e-5)
    assert embedder.encode([]).shape == (0, 32) and embedder.encode(LONG).shape == (32,)
    assert not embedder.encode(texts, convert_to_tensor=True).is_inference()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"long_documents": "split"},
            r"long_documents: found 'split', expected one of \('truncate', 'chunk', 'sent",
        ),
        (
            {"window": 20},
            "window, stride, aggregation: found 20, None, mean, but long_documents='truncate'",
        ),
        (
            {"long_documents": "chunk", "window": 2},
            "window: found 2 tokens, expected 3 to 64, an input of the model",
        ),
        (
            {"long_documents": "chunk", "window": 20, "stride": 19},
            "stride: found 19 tokens, expected 1 to 18",
        ),
        (
            {"long_documents": "chunk", "aggregation": "sum"},
            "aggregation: found 'sum', expected 'mean', 'max' or",
        ),
    ],
)
def test_bad_settings(model, tokenizer, options, message):
    with pytest.raises(ValueError, match=message):
        DocumentEmbedder(model, tokenizer, **options)


@pytest.mark.parametrize("mode", MODES)
def test_weights_of_a_density(model, tokenizer, mode, tmp_path):
    density = SentenceDensity(4, "gaussian").fit(
        DocumentEmbedder(model, tokenizer).encode(LONG.split())
    )
    density.save(tmp_path / "density.npz")
    options = {"long_documents": mode, "window": 20}
    embedder = DocumentEmbedder(
        model, tokenizer, aggregation=str(tmp_path / "density.npz"), **options
    )
    expected = reference(embedder, LONG, mode, 20, aggregation=density)
    np.testing.assert_allclose(embedder.encode(LONG), expected, rtol=0, atol=1e-5)
    other = SentenceDensity(components=3).fit(np.random.default_rng(0).normal(size=(50, 5)))
    with pytest.raises(
        ValueError,
        match="aggregation: found a density of vectors of dimension 5, expected 32, that",
    ):
        DocumentEmbedder(model, tokenizer, aggregation=other, **options)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("template", "affixes"), [("$A", (0, 0)), ("<s> $A", (1, 0)), ("slow", (0, 1))]
)
def test_special_tokens_on_one_side_or_none(mode, template, affixes):
    """Special tokens inside a text are text."""
    tokenizer = make_tokenizer() if template != "slow" else ByT5Tokenizer()
    tokenizer.truncation_side = "left"
    if template != "slow":
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[("<s>", tokenizer.bos_token_id)]
        )
    embedder = DocumentEmbedder(make_xlmr(), tokenizer, max_length=10, long_documents=mode)
    text = "</s> <s> open. " + LONG
    vectors = embedder.encode([text, "", "a"])
    np.testing.assert_allclose(
        vectors[0], reference(embedder, text, mode, 10, affixes=affixes), rtol=0, atol=1e-5
    )
    assert np.isfinite(vectors).all()


@pytest.mark.parametrize("mode", MODES)
def test_pieces_inherit_the_language(tokenizer, mode, monkeypatch):
    """A model with a bag for each language; documents of several languages in several groups."""
    monkeypatch.setattr(embedding, "_GROUP_CHARACTERS", 300)
    embedder = DocumentEmbedder(make_tables(), tokenizer, long_documents=mode, window=12)
    texts, codes = [LONG, "a", LONG[7:], "", LONG], ["de", "en", "fr", "de", "en"]
    vectors = embedder.encode(texts, language=codes, batch_tokens=30)
    for text, code, vector in zip(texts, codes, vectors, strict=True):
        np.testing.assert_allclose(
            vector, reference(embedder, text, mode, 12, language=code), atol=1e-5
        )
