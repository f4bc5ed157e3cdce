"""Long documents: pieces and aggregation by plain loops, plain vectors for texts that fit."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import processors
from transformers import ByT5Tokenizer

from tests.tiny_embedders import make_tables, make_tokenizer, make_xlmr
from tmde.embedding import document_embedder, long_documents
from tmde.embedding.document_embedder import DocumentEmbedder, EncodeReport
from tmde.embedding.sentence_density import SentenceDensity
from tmde.embedding.sentences import split_sentences

MODES = ["chunk", "sentences", "punctuation", "words"]
EVERY_MODE = pytest.mark.parametrize("mode", MODES)
LONG = (
    "Die Sitzung ist eröffnet. The sitting is open! Se abre la sesión; gracias por su atención.\n"
    "A b c? "
) * 4


class SomeWeights(SentenceDensity):
    """A density of 32 dimensions, whose weights differ much and depend on the vector alone."""

    mean_ = np.zeros(32)

    def weights(self, vectors: np.ndarray) -> np.ndarray:
        exponents = 3 * vectors[:, 0].astype(np.float64)
        return (0.01 + 1 / (1 + np.exp(exponents))).astype(np.float32)


AGGREGATIONS = ("mean", "max", SomeWeights())


# ---- By hand


def windows_by_hand(ids, length, stride, affixes):
    """Return the token ids of the windows of a text, by a plain loop."""
    if len(ids) <= length:
        return [ids]
    prefix, suffix = affixes
    content_end = len(ids) - suffix
    content = ids[prefix:content_end]
    room = length - prefix - suffix
    starts = []
    start = 0
    while start + room < len(content):
        starts.append(start)
        start += stride
    starts.append(len(content) - room)
    return [ids[:prefix] + content[i : i + room] + ids[content_end:] for i in starts]


def punctuation_by_hand(text):
    """Return the pieces of a text, each with the marks at its end, character by character."""
    pieces = [""]
    for character in text:
        is_mark = character in ".!?"
        ends_with_mark = pieces[-1][-1:] in (".", "!", "?")
        if ends_with_mark and not is_mark:
            pieces.append("")
        pieces[-1] += character
    return [piece.strip() for piece in pieces if piece.strip()]


def word_windows_by_hand(text, window, stride):
    """Return the parts of a text from the first to the last word of each window."""
    places = []
    end = 0
    for word in text.split():
        start = text.index(word, end)
        end = start + len(word)
        places.append((start, end))
    windows = []
    first = 0
    while not windows or first + window - stride < len(places):
        last = min(first + window, len(places)) - 1
        windows.append(text[places[first][0] : places[last][1]])
        first += stride
    return windows


def inputs_by_hand(embedder, text, mode, window, stride=None, affixes=(1, 1)):
    """Return the token ids of each input of the model."""

    def tokenize(part):
        return embedder.tokenizer(embedder.prompt + part, split_special_tokens=True)["input_ids"]

    ids = tokenize(text)
    is_long = len(text.split()) > window if mode == "words" else len(ids) > window
    parts = [text]
    length = embedder.max_length
    token_stride = stride
    if mode == "chunk":
        length = window
    elif is_long and mode == "sentences":
        parts = split_sentences(text) or [text]
    elif is_long and mode == "punctuation":
        parts = punctuation_by_hand(text) or [text]
    elif mode == "words":
        token_stride = None
        if is_long:
            parts = word_windows_by_hand(text, window, stride or max(1, window // 2))
    if not is_long and mode != "words":
        return [ids]
    if token_stride is None:
        token_stride = max(1, (length - sum(affixes)) // 2)
    inputs = []
    for part in parts:
        inputs += windows_by_hand(tokenize(part), length, token_stride, affixes)
    return inputs


def vector_by_hand(
    embedder, text, mode, window, stride=None, aggregation="mean", affixes=(1, 1), **language
):
    """Return the vector (d,) of a text: its pieces one by one, aggregated in float64."""
    vectors = []
    for ids in inputs_by_hand(embedder, text, mode, window, stride, affixes):
        with torch.no_grad():
            outputs = embedder.model(torch.tensor([ids]), torch.ones(1, len(ids)), **language)
        hidden = outputs.last_hidden_state[0].double().numpy()
        vectors.append(hidden[0] if embedder.pooling == "cls" else hidden.mean(axis=0))
    if len(vectors) == 1:
        return vectors[0]
    if aggregation == "max":
        return np.max(vectors, axis=0)
    weights = np.ones(len(vectors))
    if aggregation != "mean":
        weights = aggregation.weights(np.array(vectors)).astype(np.float64)
    return weights @ np.array(vectors) / weights.sum()


def assert_same_vectors(vectors, expected):
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def model():
    return make_xlmr()


# ---- Any document

PARTS = [
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
DOCUMENTS = st.lists(st.one_of(st.sampled_from(PARTS), st.text(max_size=8)), max_size=60)


@st.composite
def settings_of_embedders(draw):
    """Draw valid settings, and the number of special tokens and tokens of the prompt."""
    prompt = draw(st.sampled_from(["", "Q:"]))
    affixes = (1 + len(prompt), 1)  # Q and : are tokens.
    mode = draw(st.sampled_from(MODES))
    max_length = draw(st.integers(6, 40))
    window = draw(st.integers(5, max_length))
    longest_stride = (window if mode == "chunk" else max_length) - sum(affixes)
    if mode == "words":
        longest_stride = window
    stride = draw(st.one_of(st.none(), st.integers(1, longest_stride)))
    options = {
        "max_length": max_length,
        "long_documents": mode,
        "window": window,
        "stride": stride,
        "aggregation": draw(st.sampled_from(AGGREGATIONS)),
        "prompt": prompt,
    }
    return options, affixes


@settings(
    max_examples=16, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(DOCUMENTS.map(" ".join), min_size=1, max_size=5),
    options_and_affixes=settings_of_embedders(),
    batch_tokens=st.integers(1, 300),
    random=st.randoms(use_true_random=False),
)
def test_any_document_by_hand_and_in_any_company(
    model, tokenizer, texts, options_and_affixes, batch_tokens, random
):
    options, affixes = options_and_affixes
    embedder = DocumentEmbedder(model, tokenizer, **options)
    pieces = {"mode": options["long_documents"], "affixes": affixes}
    pieces |= {name: options[name] for name in ("window", "stride")}
    vectors_alone = [
        vector_by_hand(embedder, text, aggregation=options["aggregation"], **pieces)
        for text in texts
    ]
    expected = np.stack(vectors_alone)
    order = list(range(len(texts)))
    random.shuffle(order)

    shuffled, report = embedder.encode_with_report(
        [texts[i] for i in order], batch_tokens=batch_tokens
    )
    stream = embedder.encode_iter(iter(texts), 2, batch_tokens=batch_tokens, normalize=True)
    units = np.concatenate(list(stream))

    assert_same_vectors(shuffled, expected[order])
    assert_same_vectors(units, expected / np.linalg.norm(expected, axis=1, keepdims=True))
    assert report == report_by_hand(embedder, texts, pieces, report.seconds)


def report_by_hand(embedder, texts, pieces, seconds):
    """Return the report on texts that were embedded in so many seconds."""
    inputs = [inputs_by_hand(embedder, text, **pieces) for text in texts]
    whole_texts = [embedder.prompt + text for text in texts]
    whole_ids = embedder.tokenizer(whole_texts, split_special_tokens=True)["input_ids"]
    return EncodeReport(
        texts=len(texts),
        tokens=sum(sum(map(len, text_inputs)) for text_inputs in inputs),
        longest=max(map(len, whole_ids)),
        seconds=seconds,
        split=sum(len(text_inputs) > 1 for text_inputs in inputs),
        pieces=sum(map(len, inputs)),
    )


# ---- Blocks


@EVERY_MODE
@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=["mean", "max", "density"])
def test_pieces_are_embedded_in_blocks(model, tokenizer, mode, aggregation, monkeypatch):
    """One document may have any number of pieces, which come in block after block."""
    texts = ["a", LONG * 3, "", LONG, "gracias"]
    embedder = DocumentEmbedder(
        model,
        tokenizer,
        long_documents=mode,
        window=9,
        stride=2,
        aggregation=aggregation,
        max_length=16,
    )
    expected = embedder.encode(texts)
    monkeypatch.setattr(long_documents, "_BLOCK_PIECES", 7)
    monkeypatch.setattr(document_embedder, "_GROUP_CHARACTERS", 50)
    assert_same_vectors(embedder.encode(texts), expected)


@EVERY_MODE
def test_the_forms_of_vectors_are_those_of_short_texts(model, tokenizer, mode):
    embedder = DocumentEmbedder(model, tokenizer, long_documents=mode, window=9, max_length=16)
    assert embedder.encode([]).shape == (0, 32)
    assert embedder.encode(LONG).shape == (32,)
    assert not embedder.encode([LONG, "a"], convert_to_tensor=True).is_inference()


def test_windows_of_words_are_those_of_the_paper(model, tokenizer):
    """300 words: windows of 128 at 0, 64, 128, and the 108 words that are left at 192."""
    words = ["a", "b", "c", "x", "y"] * 60
    embedder = DocumentEmbedder(model, tokenizer, max_length=64, long_documents="words")
    assert embedder.long_document_settings == {
        "long_documents": "words",
        "window": 128,
        "stride": 64,
        "aggregation": "mean",
    }
    inputs = []
    for part in (words[:128], words[64:192], words[128:256], words[192:]):
        # Each is longer than the model's input, and cut into windows of tokens.
        ids = tokenizer(" ".join(part))["input_ids"]
        inputs += windows_by_hand(ids, 64, 31, (1, 1))
    vectors = []
    for ids in inputs:
        vectors.append(model(torch.tensor([ids])).last_hidden_state[0].mean(0).detach())
    vector, report = embedder.encode_with_report(" ".join(words))
    assert report.pieces == len(inputs)
    assert_same_vectors(vector, torch.stack(vectors).mean(0).numpy())


# ---- Settings


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
            "window: found 2 tokens, expected 3 to 64, the longest input of the model",
        ),
        (
            {"long_documents": "chunk", "window": 20, "stride": 19},
            "stride: found 19 tokens, expected 1 to 18",
        ),
        (
            {"long_documents": "words", "window": 0},
            "window: found 0 words, expected at least 1",
        ),
        (
            {"long_documents": "words", "stride": 129},
            "stride: found 129 words, expected 1 to 128, the words of text in a window",
        ),
        (
            {"long_documents": "chunk", "aggregation": "sum"},
            "aggregation: found 'sum', expected 'mean', 'max' or",
        ),
    ],
)
def test_bad_settings_are_named(model, tokenizer, options, message):
    with pytest.raises(ValueError, match=message):
        DocumentEmbedder(model, tokenizer, **options)


@EVERY_MODE
def test_a_density_may_be_given_by_its_file(model, tokenizer, mode, tmp_path):
    word_vectors = DocumentEmbedder(model, tokenizer).encode(LONG.split())
    density = SentenceDensity(4, "gaussian").fit(word_vectors)
    path = tmp_path / "density.npz"
    density.save(path)
    embedder = DocumentEmbedder(
        model, tokenizer, long_documents=mode, window=20, aggregation=str(path)
    )
    expected = vector_by_hand(embedder, LONG, mode, 20, aggregation=density)
    assert_same_vectors(embedder.encode(LONG), expected)


def test_a_density_of_other_vectors_is_refused(model, tokenizer):
    density = SentenceDensity(components=3).fit(np.random.default_rng(0).normal(size=(50, 5)))
    with pytest.raises(
        ValueError,
        match="aggregation: found a density of vectors of dimension 5, expected 32",
    ):
        DocumentEmbedder(model, tokenizer, long_documents="chunk", aggregation=density)


# ---- Tokenizers and languages


def tokenizer_of(template):
    """Return a tokenizer that puts special tokens around a text, or a slow one ("slow")."""
    if template == "slow":
        return ByT5Tokenizer()
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[("<s>", tokenizer.bos_token_id)]
    )
    return tokenizer


@EVERY_MODE
@pytest.mark.parametrize(
    ("template", "affixes"), [("$A", (0, 0)), ("<s> $A", (1, 0)), ("slow", (0, 1))]
)
def test_special_tokens_on_one_side_or_none(mode, template, affixes):
    """Special tokens inside a text are text."""
    tokenizer = tokenizer_of(template)
    tokenizer.truncation_side = "left"
    embedder = DocumentEmbedder(
        make_xlmr(), tokenizer, max_length=10, long_documents=mode, window=10
    )
    text = "</s> <s> open. " + LONG

    vectors = embedder.encode([text, "", "a"])

    assert_same_vectors(vectors[0], vector_by_hand(embedder, text, mode, 10, affixes=affixes))
    assert np.isfinite(vectors).all()


@EVERY_MODE
def test_pieces_inherit_the_language(tokenizer, mode, monkeypatch):
    """A model with a bag for each language; documents of several languages in several groups."""
    monkeypatch.setattr(document_embedder, "_GROUP_CHARACTERS", 300)
    embedder = DocumentEmbedder(make_tables(), tokenizer, long_documents=mode, window=12)
    texts = [LONG, "a", LONG[7:], "", LONG]
    codes = ["de", "en", "fr", "de", "en"]

    vectors = embedder.encode(texts, language=codes, batch_tokens=30)

    for text, code, vector in zip(texts, codes, vectors, strict=True):
        assert_same_vectors(vector, vector_by_hand(embedder, text, mode, 12, language=code))
