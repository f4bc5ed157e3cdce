"""DocumentEmbedder on tiny models: same vector in any batch, order restored, nothing truncated in silence."""

import itertools
import logging

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModel,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizerLegacy,
    GPT2Config,
    GPT2Model,
    MarianConfig,
    MarianModel,
    MPNetConfig,
    MPNetModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5Model,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.embedding import DocumentEmbedder, EncodeReport, progress_bar
from tests.conftest import tiny_model

TEXTS = ["Die Sitzung ist eröffnet.", "The sitting is open.", "", "Se abre la sesión; gracias por su atención.", "a"]


def make_tokenizer(special: bool = True, pad: bool = True) -> PreTrainedTokenizerFast:
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=names, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    if special:
        ids = [(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")]
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ids)
    roles = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"} | ({"pad_token": "<pad>"} if pad else {})
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)


def make_xlmr(max_positions: int = 66) -> XLMRobertaModel:
    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=400,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=max_positions,
        pad_token_id=1,
        initializer_range=0.3,  # outputs that differ visibly from text to text
    )
    return XLMRobertaModel(config, add_pooling_layer=False).eval()


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def embedder(tokenizer):
    return DocumentEmbedder(make_xlmr(), tokenizer)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.text(max_size=40), min_size=1, max_size=12),
    batch_tokens=st.integers(1, 300),
    seed=st.randoms(use_true_random=False),
)
def test_vector_does_not_depend_on_the_batch(embedder, texts, batch_tokens, seed):
    alone = np.stack([embedder.encode(text) for text in texts])
    np.testing.assert_allclose(embedder.encode(texts), alone, rtol=0, atol=1e-5)
    np.testing.assert_allclose(embedder.encode(texts, batch_tokens=batch_tokens), alone, rtol=0, atol=1e-5)
    order = list(range(len(texts)))
    seed.shuffle(order)
    np.testing.assert_allclose(embedder.encode([texts[i] for i in order]), alone[order], rtol=0, atol=1e-5)
    assert np.isfinite(alone).all()


def test_shapes_of_nothing_and_of_one(embedder):
    assert embedder.encode([]).shape == (0, 32)
    assert embedder.encode([], convert_to_tensor=True).shape == (0, 32)
    assert embedder.encode("one").shape == (32,)
    assert embedder.encode(("one", "two")).shape == (2, 32)
    assert embedder.encode(np.array(["one", "two"])).shape == (2, 32)
    assert embedder.dimension == 32


def test_normalize_and_tensor(embedder):
    plain, unit = embedder.encode(TEXTS), embedder.encode(TEXTS, normalize=True)
    np.testing.assert_allclose(unit, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6)
    tensor = embedder.encode(TEXTS, convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor) and not tensor.is_inference()
    np.testing.assert_array_equal(tensor.numpy(), plain)


@pytest.mark.parametrize("bad", [None, b"bytes"])
def test_non_strings_are_named(embedder, bad):
    with pytest.raises(TypeError, match=f"text 1: found {type(bad).__name__}, expected str"):
        embedder.encode(["fine", bad])
    with pytest.raises(TypeError, match=f"text 3: found {type(bad).__name__}"):
        list(embedder.encode_iter(["fine", "fine", "fine", bad], chunk_size=2))


def test_lone_surrogate_is_named(embedder):
    with pytest.raises(ValueError, match=r"text 1: found the lone surrogate '\\ud800' at character 2"):
        embedder.encode(["fine", "ab\ud800"])


def test_bad_settings(embedder, tokenizer):
    with pytest.raises(ValueError, match="'max', expected one of"):
        DocumentEmbedder(make_xlmr(), tokenizer, pooling="max")
    with pytest.raises(ValueError, match="found 2, expected more than the 2 special"):
        DocumentEmbedder(make_xlmr(), tokenizer, max_length=2)
    with pytest.raises(ValueError, match="batch_tokens: found 0"):
        embedder.encode(["a"], batch_tokens=0)
    with pytest.raises(ValueError, match="chunk_size: found 0"):
        embedder.encode_iter(["a"], chunk_size=0)
    with pytest.raises(TypeError, match="one str"):
        embedder.encode_iter("a")


def test_truncation_is_counted_and_warned_of_once(tokenizer, caplog):
    embedder = DocumentEmbedder(make_xlmr(), tokenizer, max_length=8)
    texts = ["x", "y" * 6, "z" * 7, "x y z w " * 700]
    lengths = [len(tokenizer(text)["input_ids"]) for text in texts]
    with caplog.at_level(logging.WARNING):
        vectors = embedder.encode(texts)
    expected = f"{sum(n > 8 for n in lengths)} of 4 texts were longer than 8 tokens and were truncated (longest"
    assert [record.message.startswith(expected) for record in caplog.records] == [True]
    assert f"longest {max(lengths):,} tokens" in caplog.text
    report = embedder.last_report
    assert report == EncodeReport(4, sum(min(n, 8) for n in lengths), 2, max(lengths), report.seconds, pieces=4)
    # what is kept is the beginning, special tokens included
    ids = tokenizer(texts[3], truncation=True, max_length=8)["input_ids"]
    with torch.no_grad():
        hidden = embedder.model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    np.testing.assert_allclose(vectors[3], hidden.mean(0).numpy(), atol=1e-5)


def test_stream_equals_list(tokenizer, caplog):
    embedder = DocumentEmbedder(make_xlmr(), tokenizer, max_length=10)
    texts = [f"text {i} " * (i % 5) for i in range(23)]
    whole = embedder.encode(texts)
    truncated = embedder.last_report.truncated
    caplog.clear()
    chunks = list(embedder.encode_iter(iter(texts), chunk_size=5))
    assert [len(chunk) for chunk in chunks] == [5, 5, 5, 5, 3]
    np.testing.assert_allclose(np.concatenate(chunks), whole, rtol=0, atol=1e-5)
    assert embedder.last_report.texts == 23 and embedder.last_report.truncated == truncated > 0
    assert len(caplog.records) == 1
    assert list(embedder.encode_iter([])) == []


def test_more_texts_than_are_tokenised_at_once(embedder):
    texts = [f"{i} " * (i % 3) for i in range(4096 + 50)]
    vectors = embedder.encode(texts)
    assert embedder.last_report.texts == 4146 and np.isfinite(vectors).all()
    picked = [0, 1, 4095, 4096, 4145]
    alone = np.stack([embedder.encode(texts[i]) for i in picked])
    np.testing.assert_allclose(vectors[picked], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("pad", [True, False])
def test_tokenizer_without_special_tokens(pad):
    embedder = DocumentEmbedder(make_xlmr(), make_tokenizer(special=False, pad=pad))
    vectors = embedder.encode(["", "abc", ""])
    assert np.isfinite(vectors).all() and np.abs(vectors[0]).max() > 0
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-6)
    np.testing.assert_allclose(embedder.encode(""), vectors[0], atol=1e-5)


def test_slow_tokenizer_counts_truncation(tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]))
    tokenizer = BertTokenizerLegacy(str(vocabulary))
    assert not tokenizer.is_fast
    embedder = DocumentEmbedder(make_bert(), tokenizer, max_length=6)
    embedder.encode(["a b", "a b a b a b", ""])
    assert (embedder.last_report.truncated, embedder.last_report.longest) == (1, 8)
    assert embedder.last_report.tokens == 4 + 6 + 2


def make_bert() -> BertModel:
    return BertModel(BertConfig(**SMALL, max_position_embeddings=40, intermediate_size=32))


SMALL = {"vocab_size": 400, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
SEQ2SEQ = {
    "vocab_size": 400, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 40,
    "pad_token_id": 1, "decoder_start_token_id": 1,
}  # fmt: skip
T5 = {"vocab_size": 400, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (make_xlmr, 64),  # 66 positions from padding_idx + 1 on
        (lambda: MPNetModel(MPNetConfig(**SMALL, intermediate_size=32, max_position_embeddings=42)), 40),
        (make_bert, 40),
        (lambda: BertForSequenceClassification(make_bert().config), 40),
        (lambda: GPT2Model(GPT2Config(vocab_size=400, n_embd=16, n_layer=1, n_head=2, n_positions=40)), 40),
        (lambda: MarianModel(MarianConfig(**SEQ2SEQ)), 40),
        (lambda: T5Model(T5Config(**T5)), 750),
    ],
)
def test_position_limits_hold(make, limit, tokenizer):
    torch.manual_seed(0)
    embedder = DocumentEmbedder(make().eval(), tokenizer)
    assert embedder.max_length == limit and embedder.pooling == "mean"
    texts = ["x y z w " * 300, "short", ""]
    vectors = embedder.encode(texts)
    assert vectors.shape == (3, embedder.dimension) and np.isfinite(vectors).all()
    np.testing.assert_allclose(embedder.encode("short"), vectors[1], rtol=0, atol=1e-5)
    assert embedder.last_report.truncated == 0


def make_bag() -> BagModel:
    torch.manual_seed(0)
    model = BagModel(BagConfig(vocab_size=400, d_model=24)).eval()
    with torch.no_grad():
        model.token_weights[3:] = torch.randn(397)
    return model


def test_default_max_length_is_all_that_model_and_tokenizer_take():
    endless, short = make_tokenizer(), make_tokenizer()
    short.model_max_length = 40
    tmde, bag, t5 = tiny_model(), make_bag(), T5Model(T5Config(**T5))
    for model, tokenizer, asked, limit in (
        (tmde, endless, None, 128),  # its positions
        (tmde, short, None, 40),
        (tmde, endless, 500, 128),
        (tmde, endless, 50, 50),
        (bag, endless, None, 10**9),
        (bag, short, None, 10**9),  # what the tokenizer says is of other models
        (bag, short, 7, 7),
        (t5, endless, None, 750),
        (t5, endless, 2000, 2000),
        (t5, short, None, 40),
    ):
        assert DocumentEmbedder(model, tokenizer, max_length=asked).max_length == limit, (model.config, asked)
    assert DocumentEmbedder(make_xlmr(max_positions=1202), endless).max_length == 1200  # not 750


def test_training_mode_is_left_as_it_was(tokenizer):
    model = make_xlmr().train()
    model.embeddings.eval()
    DocumentEmbedder(model, tokenizer).encode(TEXTS)
    assert model.training and model.encoder.training and not model.embeddings.training


def test_wrong_tokenizer_for_the_model(tokenizer):
    torch.manual_seed(0)
    model = BertModel(BertConfig(**(SMALL | {"vocab_size": 50}), intermediate_size=32))
    with pytest.raises(ValueError, match="text 1: token id .* 50 token embeddings"):
        DocumentEmbedder(model, tokenizer).encode(["", "gracias"])


@pytest.fixture(scope="module")
def checkpoint(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint")
    make_xlmr().save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_from_pretrained(checkpoint, embedder):
    loaded = DocumentEmbedder.from_pretrained(checkpoint, device="cpu")
    assert not loaded.model.training and loaded.device.type == "cpu" and loaded.max_length == 64
    np.testing.assert_allclose(loaded.encode(TEXTS), embedder.encode(TEXTS), atol=1e-6)
    assert "pooling='mean'" in repr(loaded) and "XLMRobertaModel" in repr(loaded)
    assert loaded.to("cpu") is loaded


def test_low_precision_gives_float32_vectors(checkpoint, embedder):
    loaded = DocumentEmbedder.from_pretrained(str(checkpoint), dtype="bfloat16", device="cpu")
    vectors = loaded.encode(TEXTS)
    assert loaded.model.dtype == torch.bfloat16 and vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, embedder.encode(TEXTS), atol=0.15)


def test_seq2seq_checkpoint_loads_its_encoder(tokenizer, tmp_path):
    torch.manual_seed(0)
    T5Model(T5Config(**T5)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    embedder = DocumentEmbedder.from_pretrained(tmp_path, device="cpu")
    encoder = AutoModel.from_pretrained(tmp_path).get_encoder().eval()
    with torch.no_grad():
        hidden = encoder(input_ids=torch.tensor([tokenizer(TEXTS[0])["input_ids"]])).last_hidden_state
    np.testing.assert_allclose(embedder.encode(TEXTS[0]), hidden[0].mean(0).numpy(), atol=1e-5)


def test_paths_that_are_no_model(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder .*nowhere"):
        DocumentEmbedder.from_pretrained(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file"):
        DocumentEmbedder.from_pretrained(tmp_path / "file")


def test_progress_is_one_line_every_30_seconds_in_a_log(embedder, capsys, monkeypatch):
    embedder.encode(TEXTS, show_progress_bar=True)
    assert not capsys.readouterr().err  # done before
    now = itertools.count(0, 12)
    with progress_bar(total=10, desc="Embedding") as bar:
        bar._time = lambda: next(now)
        bar.start_t = bar.last_print_t = 0
        for _ in range(10):
            bar.update(1)
    lines = list(filter(None, capsys.readouterr().err.splitlines()))
    assert 3 <= len(lines) <= 5 and lines[0].startswith("Embedding: ") and "10/10" in lines[-1]


@pytest.mark.parametrize(
    "make", [make_xlmr, lambda: T5Model(T5Config(**T5)), lambda: MarianModel(MarianConfig(**SEQ2SEQ))]
)
def test_checkpoint_without_tokenizer_files(make, tmp_path):
    """transformers 5 makes up an empty tokenizer for XLM-R: every text would get the same few <unk>s."""
    make().save_pretrained(tmp_path)
    with pytest.raises((ValueError, OSError), match="files"):
        DocumentEmbedder.from_pretrained(tmp_path, device="cpu")


def test_device_is_checked_before_loading(checkpoint):
    with pytest.raises(ValueError, match="device: found 'nonsense'"):
        DocumentEmbedder.from_pretrained(checkpoint, device="nonsense")


@settings(max_examples=20, deadline=None)
@given(
    texts=st.lists(st.text(max_size=40), max_size=12), batch_tokens=st.integers(1, 60), max_length=st.integers(3, 30)
)
def test_bag_without_padding_equals_the_plain_forward(texts, batch_tokens, max_length):
    tokenizer = make_tokenizer()
    embedder = DocumentEmbedder(make_bag(), tokenizer, max_length=max_length)
    vectors = embedder.encode(texts, batch_tokens=batch_tokens)
    for text, vector in zip(texts, vectors, strict=True):
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=max_length)
        expected = embedder.model(**inputs).pooler_output[0].detach().numpy()
        np.testing.assert_allclose(vector, expected, rtol=0, atol=1e-6)
    lengths = [len(ids) for ids in tokenizer(texts)["input_ids"]] if texts else []
    report = embedder.last_report
    assert report.tokens == sum(min(length, max_length) for length in lengths)
    assert report.truncated == sum(length > max_length for length in lengths)
    assert report.longest == max(lengths, default=0)


def test_a_tokenizer_that_does_more_than_its_backend_is_asked_itself():
    class Shouting(PreTrainedTokenizerFast):
        def _encode_plus(self, text, *args, **kwargs):
            text = text.upper() if isinstance(text, str) else [one.upper() for one in text]
            return super()._encode_plus(text, *args, **kwargs)

    tokenizer = Shouting(tokenizer_object=make_tokenizer().backend_tokenizer, eos_token="</s>", pad_token="<pad>")
    vectors = DocumentEmbedder(make_bag(), tokenizer).encode(["abc", "ABC"])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)


def test_compile(tokenizer, monkeypatch):
    """By a compiler that takes no time: what counts is how batches are padded."""
    expected = DocumentEmbedder(make_xlmr(), tokenizer).encode(TEXTS)
    embedder = DocumentEmbedder(make_xlmr(), tokenizer)
    compile = type(embedder.model).compile
    monkeypatch.setattr(type(embedder.model), "compile", lambda model, **_: compile(model, backend="eager"))
    embedder._compile()
    np.testing.assert_allclose(embedder.encode(TEXTS), expected, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="compile: BagModel adds up rows of a table, which gains nothing"):
        DocumentEmbedder(make_bag(), tokenizer)._compile()
