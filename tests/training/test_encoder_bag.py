"""A bag of an encoder's token vectors: its tokens, their vectors and weights, and a hybrid."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, T5EncoderModel

from modeling_tmde import AdaptedConfig, AdaptedModel, BagModel, TmdeError
from tests.conftest import WORDS
from tests.hub_encoders import save_encoder
from tmde import DocumentEmbedder
from tmde.training.encoder_bag import encoder_bag
from tmde.training.recipe import Recipe, RecipeError, load_recipe
from tmde.training.run import train_recipe
from tmde.training.starts import choose_start
from tmde.training.starts.base import Start

TEXTS = [" ".join(WORDS["de"]), " ".join(WORDS["en"]), WORDS["en"][0]]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder") / "xlm-roberta", "xlm-roberta")


def centered_vectors(folder, tokens):
    """Return each token's mean output alone, minus the mean of all, (tokens, width) float64."""
    model = AutoModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = []
    for token in tokens:
        ids = [
            tokenizer.bos_token_id,
            tokenizer.convert_tokens_to_ids(token),
            tokenizer.eos_token_id,
        ]
        with torch.no_grad():
            rows.append(
                model(torch.tensor([ids])).last_hidden_state[0].double().mean(dim=0).numpy()
            )
    return np.stack(rows) - np.mean(rows, axis=0)


def test_a_bag_as_wide_as_the_encoder_is_in_its_space(encoder, tmp_path):
    bag, tokenizer = encoder_bag(encoder, TEXTS)
    for part in (bag, tokenizer):
        part.save_pretrained(tmp_path / "bag")
    bag = BagModel.from_pretrained(tmp_path / "bag")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "bag")
    assert bag.config.d_model == AutoModel.from_pretrained(encoder).config.hidden_size
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    expected = centered_vectors(encoder, tokens)
    expected /= np.linalg.norm(expected, axis=1).mean()
    np.testing.assert_allclose(bag.embed_tokens.weight.detach().numpy(), expected, atol=1e-5)
    counts = Counter(token for text in TEXTS for token in tokenizer.tokenize(text))
    for token, weight in zip(tokens, bag.token_weights.tolist(), strict=True):
        if token not in tokenizer.all_special_tokens:
            assert weight == pytest.approx(
                math.log(1e-4 / (1e-4 + counts[token] / counts.total())), abs=1e-5
            )
    assert bag.token_weights[tokenizer.eos_token_id] == -20


def test_frequent_words_become_tokens(encoder):
    texts = [*TEXTS, *["Hausboot hausboot", "boothaus"] * 20]
    model = AutoModel.from_pretrained(encoder).eval()
    whole = AutoTokenizer.from_pretrained(encoder)
    with pytest.raises(TmdeError, match="whole_words=1: found vocab_size=1"):
        encoder_bag(encoder, texts, whole_words=1, vocab_size=1, lowercase=True)
    bag, tokenizer = encoder_bag(encoder, texts, whole_words=1, lowercase=True)
    assert tokenizer.tokenize("Das Hausboot")[-1] == "▁hausboot"
    assert len(tokenizer.tokenize("boothaus")) > 1
    assert (
        tokenizer.convert_tokens_to_ids("▁hausboot")
        == len(tokenizer) - 1
        == bag.config.vocab_size - 1
    )
    expected = []
    for word in ("hausboot", "boothaus"):
        with torch.no_grad():
            expected.append(
                model(torch.tensor([whole(word)["input_ids"]])).last_hidden_state[0].mean(dim=0)
            )
    larger_bag, _ = encoder_bag(encoder, texts, whole_words=2, lowercase=True)
    first, second = larger_bag.embed_tokens.weight[-2:].detach()
    # The mean of all rows is removed from both, and one factor scales them.
    assert torch.cosine_similarity(
        first - second, expected[0] - expected[1], dim=0
    ) == pytest.approx(1, abs=1e-5)


def test_a_narrower_bag_keeps_the_principal_directions(encoder):
    bag, tokenizer = encoder_bag(encoder, TEXTS, d_model=4)
    table = bag.embed_tokens.weight.detach().double().numpy()
    wide = centered_vectors(encoder, tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
    left, sizes, _ = np.linalg.svd(wide, full_matrices=False)
    expected = (left * sizes)[:, :4]
    expected /= np.linalg.norm(expected, axis=1).mean()
    # Directions may have another sign, which products do not show.
    np.testing.assert_allclose(table @ table.T, expected @ expected.T, atol=1e-4)


def test_what_no_bag_can_be_made_of(encoder, tmp_path):
    with pytest.raises(TmdeError, match="d_model=1000: expected at most"):
        encoder_bag(encoder, TEXTS, d_model=1000)
    with pytest.raises(RecipeError, match="expected the folder of a saved model, or a Hub id"):
        encoder_bag(tmp_path / "none", TEXTS)


# ---- Beside layers of the encoder


@pytest.fixture(scope="module")
def bag(encoder, tmp_path_factory):
    """A bag that begins with the encoder; it reads lower case and has the token "hausboot"."""
    folder = tmp_path_factory.mktemp("bag") / "bag"
    texts = [text.lower() for text in TEXTS] + ["hausboot"] * 20
    parts = encoder_bag(encoder, texts, whole_words=1, lowercase=True, sublinear_counts=True)
    for part in parts:
        part.save_pretrained(folder)
    return folder


def start_of(recipe: Recipe) -> Start:
    """How a run of the recipe begins, after its check."""
    start = choose_start(recipe, Path("unused"))
    start.check()
    return start


def hybrid(encoder, bag, *overrides) -> Recipe:
    """The recipe on tiny models."""
    options = [
        "data.train=sample",
        "model.encoder_layers=[1]",
        "objectives.distillation=null",
        *overrides,
    ]
    return load_recipe("hybrid", [f"warm_start.checkpoint={bag}", *options], encoder=str(encoder))


def test_a_hybrid_is_the_sum_of_some_layers_and_the_bag(encoder, bag):
    start = start_of(hybrid(encoder, bag))
    tokenizer = start.tokenizer(None)
    model = start.apply(tokenizer)[0]
    whole = AutoModel.from_pretrained(encoder).eval()
    full = AutoTokenizer.from_pretrained(encoder)
    whole.encoder.layer = torch.nn.ModuleList([whole.encoder.layer[1]])
    texts = [WORDS["en"][0].lower(), " ".join(WORDS["en"][:3]).lower()]
    # The tokens are the same, with other ids.
    layers = DocumentEmbedder(whole, full, pooling="mean").encode(texts)
    expected = layers + 4 * DocumentEmbedder.from_pretrained(bag).encode(texts)
    vectors = DocumentEmbedder(model, tokenizer).encode(texts)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    for side in ("left", "right"):
        inputs = tokenizer(texts, padding=True, padding_side=side, return_tensors="pt")
        np.testing.assert_allclose(
            model.eval().model(**inputs).pooler_output.detach(), expected, atol=1e-5
        )
    old = whole.get_input_embeddings().weight
    new = model.get_input_embeddings().weight
    pieces = full("hausboot", add_special_tokens=False)["input_ids"]
    assert len(pieces) > 1
    assert torch.allclose(
        new[tokenizer.convert_tokens_to_ids("▁hausboot")], old[pieces].mean(dim=0)
    )


def test_a_hybrid_trains_its_layers_and_keeps_its_bag(encoder, bag, tmp_path):
    options = [
        "max_steps=2",
        "data.dev_rows=20",
        "eval_pairs=[de-en]",
        "bf16=false",
        "token_cache_dir=null",
    ]
    recipe = hybrid(encoder, bag, *options, "eval_minutes=null", "data.max_rows=200")
    trainer = train_recipe(recipe, tmp_path / "run")
    model = trainer.model.model
    tokenizer = trainer.processing_class
    again = AutoModel.from_pretrained(tmp_path / "run")
    before = BagModel.from_pretrained(bag)
    assert torch.equal(again.bag_tokens.weight, before.embed_tokens.weight)
    assert torch.equal(again.token_weights, before.token_weights)
    layer = AutoModel.from_pretrained(encoder).encoder.layer[1].output.dense.weight
    assert not torch.equal(again.encoder.encoder.layer[0].output.dense.weight, layer)
    ids = tokenizer(["ein Haus"], return_tensors="pt")
    assert torch.allclose(again(**ids).pooler_output, model.eval()(**ids).pooler_output, atol=1e-6)
    again.resize_token_embeddings(len(tokenizer) + 3)
    assert (
        len(again.bag_tokens.weight)
        == len(again.token_weights)
        == again.config.vocab_size
        == len(tokenizer) + 3
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "model.encoder_layers=[0, 7]",
            r"model.encoder_layers: found \[0, 7\], expected numbers from 0 to 1",
        ),
        ("warm_start.checkpoint=null", "with model.bag_residual, it needs both"),
        ("model.bag_residual=0", "needs --encoder.* not both"),
        ("model.encoder_layers=[]", r"found \[\], expected numbers"),
        (
            "objectives.translation={}",
            "objectives.translation: expected none with model.bag_residual",
        ),
    ],
)
def test_a_hybrid_without_its_parts_is_refused(override, message, encoder, bag):
    with pytest.raises(RecipeError, match=message):
        start_of(hybrid(encoder, bag, override))


def test_a_hybrid_is_of_one_encoder_and_goes_on_without_it(encoder, bag, tmp_path):
    with pytest.raises(
        RecipeError,
        match="the encoder lacks its token .*; expected a bag initialized from this encoder",
    ):
        start_of(hybrid(save_encoder(tmp_path / "bert", "bert"), bag))
    # The direct path is T-MDE's: the bag still is beside the encoder.
    first = start_of(hybrid(encoder, bag, "warm_start.direct_path=false"))
    tokenizer = first.tokenizer(None)
    model = first.apply(tokenizer)[0]
    assert torch.equal(
        model.model.bag_tokens.weight, BagModel.from_pretrained(bag).embed_tokens.weight
    )
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "hybrid")
    start = [f"warm_start.checkpoint={tmp_path / 'hybrid'}", "objectives.distillation=null"]
    start_of(load_recipe("adapted", start))
    for wrong in ("objectives.translation={}", "model.encoder_layers=[0]"):
        with pytest.raises(RecipeError, match=wrong.partition("=")[0]):
            start_of(load_recipe("adapted", [*start, wrong]))
    AdaptedModel(AdaptedConfig(**model.config.to_dict() | {"bag_residual": 0.0})).save_pretrained(
        tmp_path / "without"
    )
    with pytest.raises(RecipeError, match="model.bag_residual needs --encoder"):
        start[0] = f"warm_start.checkpoint={tmp_path / 'without'}"
        start_of(load_recipe("adapted", [*start, "model.bag_residual=4"]))
    empty = AutoModel.from_pretrained(tmp_path / "without", bag_residual=4.0)
    assert not empty.token_weights.any()
    with pytest.raises(ValueError, match="expected input_ids, because bag_residual"):
        model.model(inputs_embeds=torch.zeros(1, 2, model.config.hidden_size))


@pytest.mark.parametrize("kind", ["modernbert", "t5"])
def test_layers_of_other_encoders(kind, tmp_path):
    folder = save_encoder(tmp_path / kind, kind)
    layer = ["objectives.distillation=null", "model.encoder_layers=[0]"]
    with pytest.raises(
        RecipeError, match=r"can't keep only the (T5Encoder|ModernBert)Model layers \[1\]"
    ):
        start_of(
            load_recipe("adapted", [layer[0], "model.encoder_layers=[1]"], encoder=str(folder))
        )
    start = start_of(load_recipe("adapted", layer, encoder=str(folder)))
    tokenizer = start.tokenizer(None)
    model = start.apply(tokenizer)[0].eval()
    model.save_pretrained(tmp_path / "saved")
    whole = (
        T5EncoderModel.from_pretrained(folder)
        if kind == "t5"
        else AutoModel.from_pretrained(folder)
    )
    del (whole.encoder.block if kind == "t5" else whole.layers)[1:]
    ids = tokenizer([TEXTS[0]], return_tensors="pt")["input_ids"]
    expected = whole.eval()(input_ids=ids).last_hidden_state.mean(dim=1)
    for found in (model.model, AutoModel.from_pretrained(tmp_path / "saved")):
        torch.testing.assert_close(found(input_ids=ids).pooler_output, expected)
