"""Long documents in `DocumentEmbedder`: pieces by hand, plain vectors where a text fits, the same in any company."""

import logging
import math
import random

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modeling_tmde import long_documents
from modeling_tmde.density import SentenceDensity
from modeling_tmde.embedding import DocumentEmbedder, EncodeReport
from modeling_tmde.sentences import split_sentences
from tests.modeling_tmde.test_embedding import make_tokenizer, make_xlmr

MODES = ("chunk", "sentences")
LONG = "Die Sitzung ist eröffnet. The sitting is open! Se abre la sesión; gracias por su atención.\nA b c? " * 4
SHORT = ["The sitting is open.", "", "a", "gracias"]


class SomeWeights(SentenceDensity):
    """Fitted to vectors of 32 dimensions; weights that differ much, and depend on the vector alone."""

    mean_ = np.zeros(32)

    def weights(self, vectors: np.ndarray) -> np.ndarray:
        return (0.01 + 1 / (1 + np.exp(3 * vectors[:, 0].astype(np.float64)))).astype(np.float32)


AGGREGATIONS = ("mean", "max", SomeWeights())


def aggregated(vectors, aggregation):
    """Rows (pieces, d) to (d,), in float64."""
    if len(vectors) == 1:
        return vectors[0]
    if aggregation == "max":
        return [max(column) for column in zip(*vectors, strict=True)]
    weights = [1.0] * len(vectors) if aggregation == "mean" else aggregation.weights(np.array(vectors))
    total = sum(float(weight) for weight in weights)
    columns = zip(*vectors, strict=True)
    return [sum(float(w) * float(v) for w, v in zip(weights, column, strict=True)) / total for column in columns]


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
    ids = embedder.tokenizer(text)["input_ids"]
    length = window if mode == "chunk" else embedder.max_length
    stride = stride or max(1, (length - sum(affixes)) // 2)
    if len(ids) <= window:
        return [ids]
    parts = [ids] if mode == "chunk" else [embedder.tokenizer(part)["input_ids"] for part in split_sentences(text)]
    return [piece for part in parts or [ids] for piece in cut(part, length, stride, *affixes)]


def reference(embedder, text, mode, window, stride=None, aggregation="mean", affixes=(1, 1)):
    """One text: its pieces one by one through the model, without padding."""
    vectors = []
    for ids in inputs_by_hand(embedder, text, mode, window, stride, affixes):
        with torch.no_grad():
            hidden = embedder.model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        vectors.append((hidden[0] if embedder.pooling == "cls" else hidden.mean(0)).numpy())
    return np.array(aggregated(vectors, aggregation))


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def model():
    return make_xlmr()


WORDS = ["Guten", "z. B.", "open.", "sesión;", "Dr.", "a!", "? ", "\n", "日本。", "x" * 30, " ", "...", "\x0b"]
DOCUMENTS = st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=8)), max_size=60).map(" ".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(DOCUMENTS, min_size=1, max_size=5),
    mode=st.sampled_from(MODES),
    aggregation=st.sampled_from(AGGREGATIONS),
    sizes=st.tuples(st.integers(4, 40), st.integers(0, 38), st.integers(3, 40)),
    batch_tokens=st.integers(1, 300),
    seed=st.randoms(use_true_random=False),
)
def test_any_document_by_hand_and_in_any_company(
    model, tokenizer, texts, mode, aggregation, sizes, batch_tokens, seed
):
    max_length, step, window = sizes
    window = min(window, max_length)
    content = (window if mode == "chunk" else max_length) - 2
    stride = min(step, content) or None
    options = {"window": window, "stride": stride, "aggregation": aggregation}
    embedder = DocumentEmbedder(model, tokenizer, max_length=max_length, long_documents=mode, **options)
    expected = np.stack([reference(embedder, text, mode, **options) for text in texts])
    alone = np.stack([embedder.encode(text) for text in texts])
    np.testing.assert_allclose(alone, expected, rtol=0, atol=1e-5)
    order = list(range(len(texts)))
    seed.shuffle(order)
    together = embedder.encode([texts[i] for i in order], batch_tokens=batch_tokens)
    np.testing.assert_allclose(together, alone[order], rtol=0, atol=1e-5)
    inputs = [inputs_by_hand(embedder, text, mode, window, stride) for text in texts]
    counts = list(map(len, inputs))
    expected = EncodeReport(
        texts=len(texts),
        tokens=sum(len(ids) for pieces in inputs for ids in pieces),
        truncated=0,
        longest=max(len(tokenizer(text)["input_ids"]) for text in texts),
        seconds=embedder.last_report.seconds,
        split=sum(count > 1 for count in counts),
        pieces=sum(counts),
    )
    assert embedder.last_report == expected
    stream = embedder.encode_iter(iter(texts), chunk_size=2, batch_tokens=batch_tokens, normalize=True)
    unit = alone / np.linalg.norm(alone, axis=1, keepdims=True)
    np.testing.assert_allclose(np.concatenate(list(stream)), unit, rtol=0, atol=1e-5)
    assert embedder.last_report == EncodeReport(**vars(expected) | {"seconds": embedder.last_report.seconds})


@settings(max_examples=200, deadline=None)
@given(tokens=st.integers(0, 60), room=st.integers(1, 20), stride=st.integers(1, 20), affixes=st.sampled_from([0, 1]))
def test_windows_cover_the_text_and_repeat_nothing(tokens, room, stride, affixes):
    """Texts of distinct tokens; every window is full, and holds a token that no window before it holds."""
    stride = min(stride, room)
    rows = [np.array([-1] * affixes + list(range(n)) + [-2] * affixes) for n in (tokens, 3, tokens + 1)]
    lengths = np.array(list(map(len, rows)))
    segments = long_documents.TokenizedTexts(np.concatenate(rows).astype(np.int32), lengths, lengths)
    piece = room + 2 * affixes
    group = long_documents.DocumentGroup(segments, np.arange(3), lengths, piece, stride, (affixes, affixes), "mean")
    ((inputs, owners),) = group._blocks() if lengths.sum() else (((), ()),)
    found = {0: [], 1: [], 2: []}
    for end, length, owner in zip(inputs.ends, inputs.lengths, owners, strict=True):
        ids = inputs.token_ids[end - length : end].tolist()
        assert ids[:affixes] == [-1] * affixes and ids[length - affixes :] == [-2] * affixes
        found[owner].append(ids[affixes : length - affixes])
    for owner, count in enumerate((tokens, 3, tokens + 1)):
        seen = set()
        assert len(found[owner]) == 1 or all(len(window) == room for window in found[owner])
        for window in found[owner]:
            assert not window or window[-1] not in seen
            seen |= set(window)
        assert seen == set(range(count)) and found[owner] == cut(list(range(count)), room, stride, 0, 0)


def test_windows_of_ten_tokens_by_hand(tokenizer):
    """`<s>` and `</s>` around each; 5 tokens of text, 2 apart; the last one ends with the text."""
    embedder = DocumentEmbedder(make_xlmr(), tokenizer, long_documents="chunk", window=7)
    assert embedder.long_document_settings == {
        "long_documents": "chunk", "window": 7, "stride": 2, "aggregation": "mean",
    }  # fmt: skip
    seen = []
    embedder.model.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["input_ids"].tolist()), with_kwargs=True
    )
    bos, *x, eos = tokenizer("qwzjkvyxqw")["input_ids"]
    assert len(x) == 10
    embedder.encode("qwzjkvyxqw", batch_tokens=1)
    assert seen == [[[bos, *x[i : i + 5], eos]] for i in (0, 2, 4, 5)]
    assert (embedder.last_report.pieces, embedder.last_report.tokens) == (4, 28)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=["mean", "max", "density"])
@pytest.mark.parametrize("normalize", [False, True])
def test_a_document_that_fits_gets_the_plain_vector_bit_for_bit(model, tokenizer, mode, aggregation, normalize):
    plain = DocumentEmbedder(model, tokenizer)
    other = DocumentEmbedder(model, tokenizer, long_documents=mode, window=40, aggregation=aggregation)
    texts = [*SHORT, "Die Sitzung ist eröffnet. The sitting"]
    assert len(tokenizer(texts[-1])["input_ids"]) <= 40 and len(split_sentences(texts[-1])) == 2
    np.testing.assert_array_equal(other.encode(texts, normalize=normalize), plain.encode(texts, normalize=normalize))
    for text in texts:
        np.testing.assert_array_equal(other.encode(text, normalize=normalize), plain.encode(text, normalize=normalize))
    assert other.last_report.split == 0 and plain.last_report.pieces == 1
    # Beside a long document, and as pieces of one kind with it: one sentence is its document.
    beside = other.encode([LONG, *texts], normalize=normalize)[1:]
    np.testing.assert_allclose(beside, plain.encode(texts, normalize=normalize), rtol=0, atol=1e-6)
    always = DocumentEmbedder(model, tokenizer, long_documents="sentences", window=1, aggregation=aggregation)
    np.testing.assert_array_equal(always.encode(SHORT, normalize=normalize), plain.encode(SHORT, normalize=normalize))


@pytest.mark.parametrize("mode", MODES)
def test_a_document_of_as_many_tokens_as_the_window_fits(model, tokenizer, mode):
    text = "Die Sitzung. The sitting."
    tokens = len(tokenizer(text)["input_ids"])
    for window, pieces in ((tokens + 1, 1), (tokens, 1), (tokens - 1, 2)):
        embedder = DocumentEmbedder(model, tokenizer, long_documents=mode, window=window)
        embedder.encode(text)
        assert embedder.last_report.pieces == pieces


@pytest.mark.parametrize("mode", MODES)
def test_normalize_and_tensor(model, tokenizer, mode):
    embedder = DocumentEmbedder(model, tokenizer, long_documents=mode, window=10)
    vectors = embedder.encode([LONG, *SHORT])
    unit = embedder.encode([LONG, *SHORT], normalize=True)
    np.testing.assert_allclose(unit, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), atol=1e-6)
    tensor = embedder.encode([LONG, *SHORT], convert_to_tensor=True)
    assert not tensor.is_inference()
    np.testing.assert_array_equal(tensor.numpy(), vectors)
    assert embedder.encode([]).shape == (0, 32) and embedder.encode(LONG).shape == (32,)


def test_nothing_is_truncated_nor_warned_of_but_by_truncate(model, tokenizer, caplog):
    for mode, truncated in (("truncate", 1), ("chunk", 0), ("sentences", 0)):
        caplog.clear()
        embedder = DocumentEmbedder(model, tokenizer, max_length=12, long_documents=mode)
        with caplog.at_level(logging.WARNING):
            embedder.encode([LONG, "a"])
        report = embedder.last_report
        assert report.truncated == truncated == len(caplog.records) and report.texts == 2
        assert report.longest == len(tokenizer(LONG)["input_ids"])
        assert (report.split, report.pieces > 2) == ((0, False) if truncated else (1, True))
        assert not truncated or "long_documents='chunk' or 'sentences'" in caplog.text


def test_a_sentence_longer_than_the_model_takes_is_cut_into_windows(model, tokenizer):
    text = "Short one. " + "Wort " * 100 + "ends. Last one."
    embedder = DocumentEmbedder(model, tokenizer, max_length=20, long_documents="sentences", stride=18)
    length = len(tokenizer(split_sentences(text)[1])["input_ids"])
    expected = reference(embedder, text, "sentences", 20, 18)
    np.testing.assert_allclose(embedder.encode(text), expected, rtol=0, atol=1e-5)
    assert embedder.last_report.pieces == 2 + math.ceil((length - 2) / 18) > 4


def test_white_space_without_a_sentence_is_a_document(model, tokenizer):
    embedder = DocumentEmbedder(model, tokenizer, max_length=8, long_documents="sentences")
    text = "\n \n" * 30
    assert split_sentences(text) == []
    np.testing.assert_allclose(embedder.encode(text), reference(embedder, text, "sentences", 8), rtol=0, atol=1e-5)
    assert embedder.last_report.pieces > 1


# ---- Memory and progress


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=["mean", "max", "density"])
def test_pieces_come_in_blocks_that_hold_little(model, tokenizer, mode, aggregation, monkeypatch):
    """One document may have any number of pieces; they are embedded some at a time, over block after block."""
    texts = ["a", LONG * 3, "", LONG, "gracias"]
    options = {"long_documents": mode, "window": 9, "stride": 2, "aggregation": aggregation, "max_length": 16}
    embedder = DocumentEmbedder(model, tokenizer, **options)
    expected = embedder.encode(texts)
    pieces = embedder.last_report.pieces
    blocks = []
    embed_window = embedder._embed_window

    def spy(inputs, *rest):
        blocks.append((len(inputs), len(inputs.token_ids)))
        return embed_window(inputs, *rest)

    monkeypatch.setattr(embedder, "_embed_window", spy)
    for name, value in {"_BLOCK_PIECES": 7, "_BLOCK_TOKENS": 80, "_GROUP_CHARACTERS": 50}.items():
        monkeypatch.setattr(long_documents, name, value)
    np.testing.assert_allclose(embedder.encode(texts), expected, rtol=0, atol=1e-5)
    assert sum(count for count, _ in blocks) == pieces and len(blocks) > pieces / 8
    assert all(count <= 7 and tokens <= 80 for count, tokens in blocks)


def test_documents_come_in_groups_of_few_characters(monkeypatch):
    monkeypatch.setattr(long_documents, "_GROUP_CHARACTERS", 10)
    assert list(long_documents._spans([3, 3, 3, 3, 50, 0, 0, 0, 0], 4)) == [(0, 3), (3, 4), (4, 5), (5, 9)]
    assert list(long_documents._spans([1] * 5, 2)) == [(0, 2), (2, 4), (4, 5)]
    assert list(long_documents._spans([50, 50], 2)) == [(0, 1), (1, 2)]
    assert list(long_documents._spans([], 4)) == [(0, 0)]


@pytest.mark.parametrize("mode", MODES)
def test_the_progress_bar_counts_documents(model, tokenizer, mode, monkeypatch, capsys):
    monkeypatch.setattr(long_documents, "_GROUP_CHARACTERS", 500)
    embedder = DocumentEmbedder(model, tokenizer, long_documents=mode, window=12)
    embedder.encode([LONG, *SHORT, LONG * 2, "a"], show_progress_bar=True)
    assert "7/7" in capsys.readouterr().err
    steps = []
    group = next(embedder._long.groups([LONG, *SHORT, "b"], 100))
    group.embedded(lambda inputs, done: embedder._embed_window(inputs, 50, False, done), steps.append)
    assert sum(steps) == 6 and len(steps) > 3 and max(steps) < 6


@pytest.mark.parametrize("characters", [1, 2**22])
def test_an_error_names_the_document(tokenizer, characters, monkeypatch):
    monkeypatch.setattr(long_documents, "_GROUP_CHARACTERS", characters)
    embedder = DocumentEmbedder(make_xlmr(), tokenizer, long_documents="sentences", window=5)
    with pytest.raises(ValueError, match=r"text 2: found the lone surrogate '\\ud800' at character 6"):
        embedder.encode([LONG, "a", "Eins. \ud800 Zwei."])
    with pytest.raises(TypeError, match="text 1: found NoneType"):
        embedder.encode(["a", None])


# ---- Settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"long_documents": "split"}, r"long_documents: found 'split', expected one of \('truncate', 'chunk', 'sent"),
        ({"window": 20}, "window: found 20 with long_documents='truncate', which splits nothing"),
        ({"stride": 5}, "stride: found 5 with long_documents='truncate'"),
        ({"aggregation": "max"}, "aggregation: found 'max' with long_documents='truncate'"),
        ({"long_documents": "chunk", "window": 2}, "window: found 2 tokens, expected 3 to 64: an input of the model"),
        ({"long_documents": "chunk", "window": 65}, "window: found 65 tokens, expected 3 to 64"),
        ({"long_documents": "sentences", "window": 0}, "window: found 0 tokens, expected 1 to 64"),
        ({"long_documents": "chunk", "window": 20, "stride": 19}, "stride: found 19 tokens, expected 1 to 18"),
        ({"long_documents": "chunk", "stride": 0}, "stride: found 0 tokens, expected 1 to 62"),
        ({"long_documents": "chunk", "aggregation": "sum"}, "aggregation: found 'sum', which is no file; expected"),
    ],
)
def test_bad_settings(model, tokenizer, options, message):
    with pytest.raises(ValueError, match=message):
        DocumentEmbedder(model, tokenizer, **options)


def test_an_aggregation_of_another_type(model, tokenizer):
    with pytest.raises(TypeError, match="aggregation: found int, expected one of"):
        DocumentEmbedder(model, tokenizer, long_documents="chunk", aggregation=3)


def test_a_density_that_does_not_fit_is_refused_at_once(model, tokenizer):
    with pytest.raises(ValueError, match=r"aggregation: found SentenceDensity\(.*that is not fitted; fit it to"):
        DocumentEmbedder(model, tokenizer, long_documents="chunk", aggregation=SentenceDensity())
    other = SentenceDensity(components=3).fit(np.random.default_rng(0).normal(size=(50, 5)))
    with pytest.raises(ValueError, match="aggregation: found a density of vectors of dimension 5, expected 32, that"):
        DocumentEmbedder(model, tokenizer, long_documents="chunk", aggregation=other)


def test_bad_aggregation_is_told_before_the_model_is_loaded(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="aggregation: found '.*nowhere', which is no file"):
        DocumentEmbedder.from_pretrained(tmp_path, long_documents="chunk", aggregation=tmp_path / "nowhere")


# ---- The density of paper 003


@pytest.fixture(scope="module")
def density(model, tokenizer):
    rng = random.Random(0)
    words = LONG.split()
    sentences = [" ".join(rng.choices(words, k=rng.randint(1, 8))) for _ in range(200)]
    vectors = DocumentEmbedder(model, tokenizer).encode(sentences)
    return SentenceDensity(components=4, kernel="gaussian").fit(vectors)


@pytest.mark.parametrize("mode", MODES)
def test_weights_of_a_density(model, tokenizer, density, mode, tmp_path):
    options = {"long_documents": mode, "window": 20}
    embedder = DocumentEmbedder(model, tokenizer, aggregation=density, **options)
    texts = [LONG, "a", LONG[30:120]]
    for text, vector in zip(texts, embedder.encode(texts), strict=True):
        np.testing.assert_allclose(vector, reference(embedder, text, mode, 20, aggregation=density), atol=1e-5)
    mean = DocumentEmbedder(model, tokenizer, **options).encode(texts)
    assert np.abs(embedder.encode(texts) - mean)[[0, 2]].max() > 1e-3
    path = tmp_path / "density.npz"
    density.save(path)
    for given_as in (path, str(path)):
        loaded = DocumentEmbedder(model, tokenizer, aggregation=given_as, **options)
        np.testing.assert_allclose(loaded.encode(texts), embedder.encode(texts), rtol=0, atol=1e-6)
        assert loaded.long_document_settings == embedder.long_document_settings
    other = SentenceDensity(components=3, kernel="gaussian", bandwidth=1.0).fit(mean.repeat(5, axis=0) + mean[:1])
    names = {
        DocumentEmbedder(model, tokenizer, aggregation=one, **options).long_document_settings["aggregation"]
        for one in (density, other, "mean")
    }
    assert len(names) == 3 and "mean" in names


def test_a_density_is_named_by_its_contents(model, tokenizer, density):
    def name(one):
        options = {"long_documents": "chunk", "aggregation": one}
        return DocumentEmbedder(model, tokenizer, **options).long_document_settings["aggregation"]

    arrays = density.to_arrays()
    assert name(SentenceDensity.from_arrays(arrays)) == name(density)
    for key in ("points_", "log_b_", "kernel"):  # one array, one number, one name
        changed = "tophat" if key == "kernel" else arrays[key] + 1e-9
        assert name(SentenceDensity.from_arrays(arrays | {key: np.asarray(changed)})) != name(density), key
