"""Modules and settings of sentence-transformers are followed to 1e-5, or refused by name."""

import itertools
import json

import numpy as np
import pytest
import sentence_transformers
import torch
from huggingface_hub import ModelCard
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling
from torch import nn

from modeling_tmde import TmdeError
from tests import hub_encoders
from tests.tiny_embedders import TEXTS, make_bag, make_tokenizer
from tmde import DocumentEmbedder

WIDTH = 32
PROMPTS = {"query": "haus: ", "document": "baum: "}
POOLINGS = [
    "cls",
    "mean",
    "max",
    "lasttoken",
    "mean_sqrt_len_tokens",
    "weightedmean",
    ("cls", "mean"),
]


def make_dense(width: int = WIDTH) -> Dense:
    torch.manual_seed(0)
    return Dense(width, 16, activation_function=nn.Tanh())


LATER_MODULES = {
    "none": lambda width: [],
    "normalize": lambda width: [Normalize()],
    "dense": lambda width: [make_dense(width)],
    "dense, normalize": lambda width: [make_dense(width), Normalize()],  # The shape of LaBSE.
    "layer norm": lambda width: [LayerNorm(width)],
}


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    return hub_encoders.save_encoder(tmp_path_factory.mktemp("modules") / "encoder", "xlm-roberta")


@pytest.fixture
def save_peer(encoder_folder, tmp_path):
    """Save a model of sentence-transformers, and return it and its folder."""

    def save(*later_modules, max_seq_length=None, **options):
        transformer = Transformer(str(encoder_folder))
        if max_seq_length is not None:
            transformer.max_seq_length = max_seq_length
        peer = sentence_transformers.SentenceTransformer(
            modules=[transformer, *later_modules], device="cpu", **options
        )
        peer.save_pretrained(str(tmp_path / "peer"), create_model_card=False)
        return peer, tmp_path / "peer"

    return save


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def assert_same_vectors(embedder, peer, texts=TEXTS, **options):
    for method in ("encode", "encode_query", "encode_document"):
        vectors = getattr(embedder, method)(texts, **options)
        expected = getattr(peer, method)(texts, batch_size=2, **options)
        assert vectors.shape == expected.shape
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


GRID = [
    *itertools.product(POOLINGS, ["none"], [True, False]),
    *itertools.product(["cls", "lasttoken", ("cls", "mean")], ["dense, normalize"], [True, False]),
    *itertools.product(["mean"], ["normalize", "dense", "layer norm"], [True]),
]


@pytest.mark.parametrize(("pooling", "later", "include_prompt"), GRID, ids=str)
def test_modules_give_the_vectors_of_sentence_transformers(
    pooling, later, include_prompt, save_peer, tmp_path
):
    pooling_module = Pooling(WIDTH, pooling, include_prompt=include_prompt)
    width = pooling_module.get_embedding_dimension()
    peer, folder = save_peer(pooling_module, *LATER_MODULES[later](width), prompts=PROMPTS)

    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu")

    assert_same_vectors(embedder, peer)
    assert embedder.dimension == peer.get_embedding_dimension()
    alone = np.stack([embedder.encode_query(text) for text in TEXTS])
    np.testing.assert_allclose(alone, embedder.encode_query(TEXTS), rtol=0, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "lasttoken", ("cls", "mean")], ids=str)
def test_modules_are_saved_again(pooling, save_peer, tmp_path):
    pooling_module = Pooling(WIDTH, pooling, include_prompt=False)
    dense = make_dense(pooling_module.get_embedding_dimension())
    peer, folder = save_peer(
        pooling_module, dense, Normalize(), prompts=PROMPTS, similarity_fn_name="dot"
    )
    DocumentEmbedder.from_pretrained(folder, device="cpu").save_pretrained(tmp_path / "again")

    opened = DocumentEmbedder.from_pretrained(tmp_path / "again", device="cpu")
    reopened_peer = sentence_transformers.SentenceTransformer(str(tmp_path / "again"), device="cpu")

    assert opened.similarity_fn_name == reopened_peer.similarity_fn_name == "dot"
    assert_same_vectors(opened, peer)
    assert_same_vectors(opened, reopened_peer)


@pytest.mark.parametrize("later", ["dense", "dense, normalize", "layer norm"])
def test_later_modules_keep_their_weights(later, save_peer, tmp_path):
    """Whatever the type of the encoder, when it is loaded and when it is saved."""
    peer, folder = save_peer(Pooling(WIDTH), *LATER_MODULES[later](WIDTH))
    weights = {name: weight.clone() for name, weight in peer[2].state_dict().items()}

    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu", dtype="bfloat16")
    embedder.save_pretrained(tmp_path / "again")
    opened = DocumentEmbedder.from_pretrained(tmp_path / "again", device="cpu")

    assert embedder.model.dtype == torch.bfloat16
    for name, weight in weights.items():
        torch.testing.assert_close(embedder[2].state_dict()[name], weight, rtol=0, atol=0)
        torch.testing.assert_close(opened[2].state_dict()[name], weight, rtol=0, atol=0)


@pytest.mark.parametrize("cast", ["half", "bfloat16", "double"])
@pytest.mark.parametrize("later", ["dense, normalize", "layer norm"])
def test_a_model_is_cast_with_its_later_modules(later, cast, save_peer):
    _, folder = save_peer(Pooling(WIDTH), *LATER_MODULES[later](WIDTH))
    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu")
    expected = embedder.encode(TEXTS)

    getattr(embedder, cast)()

    vectors = embedder.encode(TEXTS)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=0.1)
    with torch.no_grad():
        forwarded = embedder.eval()(embedder.preprocess(TEXTS))["sentence_embedding"]
    np.testing.assert_allclose(forwarded, vectors, rtol=0, atol=0.02)


@pytest.mark.parametrize(
    ("options", "max_seq_length"),
    [
        ({"truncate_dim": 8}, None),
        ({"default_prompt_name": "query"}, None),
        ({}, 9),
    ],
    ids=str,
)
def test_settings_are_followed(options, max_seq_length, save_peer):
    peer, folder = save_peer(
        Pooling(WIDTH), max_seq_length=max_seq_length, prompts=PROMPTS, **options
    )
    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu")
    assert embedder.max_seq_length == min(peer.max_seq_length, 64)
    assert embedder.get_embedding_dimension() == peer.get_embedding_dimension()
    assert_same_vectors(embedder, peer, [*TEXTS, "haus hund katze baum " * 5])


@pytest.mark.parametrize(
    ("setting", "value"), [("max_seq_length", 9), ("do_lower_case", True)], ids=str
)
def test_settings_of_the_transformer_module(setting, value, save_peer):
    _, folder = save_peer(Pooling(WIDTH))
    edit(folder / "sentence_bert_config.json", **{setting: value})
    peer = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu")
    assert_same_vectors(embedder, peer, ["HAUS Hund", "haus hund katze baum " * 5])


def test_another_pooling_replaces_that_of_the_model(save_peer):
    _, folder = save_peer(Pooling(WIDTH, "cls"), make_dense())
    peer, _ = save_peer(Pooling(WIDTH, "max"), make_dense())
    save_peer(Pooling(WIDTH, "cls"), make_dense())
    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu", pooling="max")
    assert_same_vectors(embedder, peer)


# ---- What is refused


@pytest.mark.parametrize("later", ["dense, normalize", "layer norm"])
def test_a_pooling_of_another_width_is_refused(later, save_peer):
    _, folder = save_peer(Pooling(WIDTH), *LATER_MODULES[later](WIDTH))
    with pytest.raises(
        TmdeError, match=r"pooling: found 'cls\+mean', .* 64 elements, expected 32 for the "
    ):
        DocumentEmbedder.from_pretrained(folder, device="cpu", pooling="cls+mean")


@pytest.mark.parametrize(
    "file",
    [
        "modules.json",
        "config_sentence_transformers.json",
        "sentence_bert_config.json",
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
    ],
)
@pytest.mark.parametrize("content", ['[{"idx": 0, ', "", '"text"'])
def test_a_damaged_file_is_named(content, file, save_peer):
    _, folder = save_peer(Pooling(WIDTH), make_dense())
    (folder / file).write_text(content)
    named = file.removesuffix("/config.json").removesuffix("/model.safetensors")
    with pytest.raises(TmdeError, match=f"{folder}/{named}"):
        DocumentEmbedder.from_pretrained(folder, device="cpu")


@pytest.mark.parametrize("kept", [[], [0], [0, 2]], ids=str)
def test_a_missing_pooling_is_named(kept, save_peer):
    _, folder = save_peer(Pooling(WIDTH), Normalize())
    entries = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([entries[number] for number in kept]))
    with pytest.raises(TmdeError, match="modules.json: found the modules .* without a Pooling"):
        DocumentEmbedder.from_pretrained(folder, device="cpu")


REFUSED_MODULES = [
    (0, "sentence_transformers.models.StaticEmbedding", "'StaticEmbedding', 'Pooling'"),
    (1, "sentence_transformers.models.WordWeights", "'Transformer', 'WordWeights'"),
    (2, "sentence_transformers.models.CNN", "'sentence_transformers.models.CNN', expected one of"),
    (2, "custom_code.Dense", "'custom_code.Dense', expected one of"),
]


@pytest.mark.parametrize(("position", "type_name", "message"), REFUSED_MODULES)
def test_other_modules_are_refused(position, type_name, message, save_peer):
    _, folder = save_peer(Pooling(WIDTH), Normalize())
    entries = json.loads((folder / "modules.json").read_text())
    entries[position]["type"] = type_name
    (folder / "modules.json").write_text(json.dumps(entries))
    with pytest.raises(TmdeError, match=f"modules.json: found .*{message}"):
        DocumentEmbedder.from_pretrained(folder, device="cpu")


@pytest.mark.parametrize(
    "setting",
    [
        {"transformer_task": "fill-mask"},
        {"query_length": 8},
        {"processing_kwargs": {"text": {"padding": "max_length"}}},
        {"config_kwargs": {"attention_dropout": 0.5}},
    ],
    ids=str,
)
def test_other_settings_are_refused(setting, save_peer):
    _, folder = save_peer(Pooling(WIDTH))
    edit(folder / "sentence_bert_config.json", **setting)
    name = next(iter(setting))
    with pytest.raises(TmdeError, match=f"sentence_bert_config.json: found {name}="):
        DocumentEmbedder.from_pretrained(folder, device="cpu")


def test_a_model_with_one_output_per_text_has_no_other_pooling():
    embedder = DocumentEmbedder(make_bag(), make_tokenizer(), pooling="max")
    with pytest.raises(TmdeError, match="pooling 'max' needs one output per token"):
        embedder.encode(TEXTS)


# ---- The other way round: sentence-transformers takes an embedder


def test_an_embedder_is_a_sentence_transformer(save_peer):
    peer, folder = save_peer(Pooling(WIDTH), make_dense(), Normalize(), prompts=PROMPTS)
    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu")
    assert isinstance(embedder, sentence_transformers.SentenceTransformer)

    features = embedder.preprocess(TEXTS, prompt="haus: ")
    with torch.no_grad():
        vectors = embedder.eval()(features)["sentence_embedding"]

    np.testing.assert_allclose(vectors, peer.encode(TEXTS, prompt="haus: "), rtol=0, atol=1e-5)


def test_the_trainer_of_sentence_transformers_trains_an_embedder(save_peer, tmp_path):
    _, folder = save_peer(Pooling(WIDTH), make_dense())
    (folder / "README.md").write_text("---\nlicense: mit\n---\nThe model before.\n")
    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu")
    before = embedder.encode(TEXTS)
    import datasets
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    rows = datasets.Dataset.from_dict({"anchor": ["haus", "hund"], "positive": ["casa", "cane"]})
    arguments = sentence_transformers.SentenceTransformerTrainingArguments(
        str(tmp_path / "run"), max_steps=2, learning_rate=0.01, report_to="none", use_cpu=True
    )
    trainer = sentence_transformers.SentenceTransformerTrainer(
        embedder, arguments, rows, loss=MultipleNegativesRankingLoss(embedder)
    )
    trainer.train()
    trainer.save_model(str(tmp_path / "trained"))

    after = embedder.encode(TEXTS)
    assert abs(after - before).max() > 1e-3
    opened = DocumentEmbedder.from_pretrained(tmp_path / "trained", device="cpu")
    np.testing.assert_allclose(opened.encode(TEXTS), after, rtol=0, atol=1e-5)
    # The card is that of the trained model, under the license of the model before.
    card = ModelCard.load(tmp_path / "trained" / "README.md")
    assert "generated_from_trainer" in card.data.tags
    assert card.data.license == "mit"
    assert "The model before" not in card.text
