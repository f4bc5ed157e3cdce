"""Warm starts: from a bag, with an encoder for each language, and from the same architecture."""

import json
import math
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, PreTrainedModel, PreTrainedTokenizerFast

from modeling_tmde import AlignedModel, BagConfig, BagModel, train_tokenizer
from tests.conftest import BOTTLENECKS, LANGUAGES, make_rows, tiny_model
from tests.training.models import SHARED, encoder, laser, ntdv, tiny
from tmde.training.starts.vocabulary import VocabularyMap, map_vocabulary
from tmde.training.starts.weights import warm_start

BAG_WIDTH = 24
BOS, PAD, EOS = 0, 1, 2


def corpus_tokenizer(vocab_size: int, seed: int = 0) -> PreTrainedTokenizerFast:
    rows = make_rows(300, seed)
    texts = {language: [row[language] for row in rows] for language in LANGUAGES}
    return train_tokenizer(texts, vocab_size=vocab_size, model_max_length=128)


def embed(encoder: nn.Module, tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> torch.Tensor:
    return encoder(**tokenizer(texts, return_tensors="pt", padding=True)).pooler_output


@pytest.fixture(scope="module")
def small_tokenizer() -> PreTrainedTokenizerFast:
    return corpus_tokenizer(330)


@pytest.fixture(scope="module")
def bag(small_tokenizer, tmp_path_factory) -> tuple[BagModel, Path]:
    model = random_bag(330)
    return model, save(model, small_tokenizer, tmp_path_factory.mktemp("bag"))


def direct_model(tokenizer, d_model: int = BAG_WIDTH, **changes):
    return tiny_model(
        vocab_size=len(tokenizer), d_model=d_model, **({"bag_residual": True} | changes)
    )


def random_bag(size: int = 400, seed: int = 0) -> BagModel:
    """With vectors and weights that differ by token, as training leaves them."""
    torch.manual_seed(seed)
    model = BagModel(BagConfig(d_model=BAG_WIDTH, **SHARED | {"vocab_size": size}))
    with torch.no_grad():
        model.token_weights[EOS + 1 :] += torch.randn(size - EOS - 1)
        model.embed_tokens.weight *= torch.linspace(0.2, 2.0, BAG_WIDTH)
    return model.eval()


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def shaken(model: PreTrainedModel) -> PreTrainedModel:
    """With biases and norms that are not as initialized."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
        model.get_input_embeddings().weight[PAD] = 0
    return model


def aligned(
    kind: str, seed: int = 1, languages: tuple[str, ...] = ("de", "en", "es"), **settings
) -> AlignedModel:
    sizes = (
        {"embedding_dim": 12, "d_model": 16, "encoder_layers": 1}
        if kind == "bilstm"
        else {"d_model": BAG_WIDTH}
    )
    options = {
        "languages": list(languages),
        "pivot_languages": ["en"],
        "encoder_config": sizes | settings,
    }
    return tiny("aligned", seed, encoder=kind, **options)


def parameters_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


# ---- From a bag to T-MDE


@pytest.mark.parametrize(
    ("bottleneck", "shared"), [("first", True), *((name, False) for name in BOTTLENECKS)]
)
def test_first_embedding_is_the_norm_of_the_bag(bottleneck, shared, bag, small_tokenizer):
    model = direct_model(small_tokenizer, bottleneck=bottleneck, share_embeddings=shared)
    size = model.model.embed_tokens.weight.norm(dim=1).square().mean().sqrt()
    report = warm_start(model, small_tokenizer, bag[1])
    texts = [row["fr"] for row in make_rows(20, seed=5)]
    bags = embed(bag[0], small_tokenizer, texts)
    expected = nn.functional.layer_norm(math.sqrt(BAG_WIDTH) * bags, (BAG_WIDTH,))
    torch.testing.assert_close(
        embed(model.model, small_tokenizer, texts), expected, atol=1e-5, rtol=1e-5
    )
    table = model.model.embed_tokens.weight
    assert table.norm(dim=1).square().mean().sqrt().item() == pytest.approx(
        size.item(), rel=0.01
    )  # `<pad>` is 0 now
    scale = table[2, 0] / bag[0].embed_tokens.weight[2, 0]
    torch.testing.assert_close(table[2:], scale * bag[0].embed_tokens.weight[2:])
    assert torch.equal(model.decoder.embed_tokens.weight, table)
    torch.testing.assert_close(model.lm_head.weight[2:], table[2:])
    assert (model.lm_head.weight is table) == shared
    assert not table[1].any()
    assert [report[f"tokens_{kind}"] for kind in ("copied", "mapped", "left")] == [
        len(small_tokenizer),
        0,
        0,
    ]
    json.dumps(report)


# ---- Tables of a bag


MODELS = {
    # The tables inside the encoder, which the weights are folded into, and those outside.
    "laser": (
        lambda: laser(decoder_hidden_size=32),
        {"model.embed_tokens.weight"},
        {"decoder.embed_tokens.weight", "lm_head.weight"},
    ),
    "aligned": (
        lambda: aligned("bilstm"),
        {f"encoders.{language}.embed_tokens.weight" for language in SHARED["languages"]},
        set(),
    ),
}


def gram_of(source: BagModel, width: int, weighted: bool) -> torch.Tensor:
    """Return the inner products of the rows in float64.

    Args:
        source: The bag.
        width: The width at which they are compared: all columns, or the leading singular directions
            of the weighted table.
        weighted: Whether every row is multiplied by the weight of its token.
    """
    table = source.embed_tokens.weight.detach().double()
    weights = source.token_weights.detach().double().exp()
    if width < BAG_WIDTH:
        _, _, right = torch.linalg.svd(weights[:, None] * table, full_matrices=False)
        table = table @ right[:width].T
    if weighted:
        table = weights[:, None] * table
    return table @ table.T


@pytest.mark.parametrize("kind", MODELS)
def test_every_table_takes_the_bags_at_its_own_width(kind, tmp_path, tokenizer):
    make, inside, outside = MODELS[kind]
    source = random_bag()
    model = make()
    before = parameters_of(model)
    report = warm_start(model, tokenizer, save(source, tokenizer, tmp_path), direct_path=False)
    after = parameters_of(model)
    for name, weight in after.items():
        if name not in inside | outside:
            assert torch.equal(weight, before[name]), name  # the rest of the model is as it was
            continue
        gram = gram_of(source, weight.shape[1], weighted=name in inside)
        size = (
            before[name].double().square().sum(1).mean()
        )  # one factor gives the rows their mean square
        expected = gram * size / gram.diagonal().mean()
        found = weight.double() @ weight.double().T
        if "embed_tokens" in name:
            assert not weight[PAD].any(), name
            expected[PAD], expected[:, PAD] = 0.0, 0.0
        scale = expected.diagonal().max().item()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * scale, msg=name)
        if weight.shape[1] > BAG_WIDTH:
            assert not weight[:, BAG_WIDTH:].any()
        # `<s>` and `</s>` weigh nothing in a bag; a decoder has vectors for them.
        special = weight[[BOS, EOS]].norm(dim=1).max() / weight.norm(dim=1).median()
        assert special < 1e-6 if name in inside else special > 0.1, name
    assert (report["model_type"], report["tokens_copied"], report["tensors_copied"]) == (
        "tmde_bag",
        400,
        0,
    )
    assert report["checkpoint_width"] == BAG_WIDTH


# ---- Vocabularies


def test_finer_pieces_keep_every_bag(bag, small_tokenizer):
    """A larger vocabulary of the same text only merges more: its sums are those of the pieces."""
    larger = corpus_tokenizer(480)
    model = direct_model(larger)
    report = warm_start(model, larger, bag[1])
    assert report["tokens_copied"] == 330
    assert report["tokens_mapped"] == len(larger) - 330 > 100
    assert report["tokens_left"] == 0
    texts = [row["it"] for row in make_rows(20, seed=5)]
    assert larger(texts)["input_ids"] != small_tokenizer(texts)["input_ids"]
    expected = nn.functional.layer_norm(
        math.sqrt(BAG_WIDTH) * embed(bag[0], small_tokenizer, texts), (BAG_WIDTH,)
    )
    torch.testing.assert_close(embed(model.model, larger, texts), expected, atol=1e-4, rtol=1e-4)


def test_pieces_by_hand():
    vocabulary = VocabularyMap(torch.tensor([0, 2, 2]), torch.tensor([3, 0, 1]), size=4, copied=1)
    weights = torch.tensor([math.log(3.0), 0.0, 9.0, -20.0])
    table = torch.tensor([[4.0, 0.0], [0.0, 8.0], [9.0, 9.0], [5.0, 6.0]])
    assert vocabulary.known.tolist() == [True, False, True, False]
    assert vocabulary.log_weights(weights)[0] == -20
    assert vocabulary.log_weights(weights)[1] == -math.inf
    assert vocabulary.log_weights(weights)[2].item() == pytest.approx(math.log(4.0))
    expected = torch.tensor(
        [[5.0, 6.0], [0.0, 0.0], [3.0, 2.0], [0.0, 0.0]]
    )  # 3/4 of one and 1/4 of the other
    torch.testing.assert_close(vocabulary.table(table, weights), expected)


def test_tokens_that_are_no_text_alone_and_added_tokens(small_tokenizer):
    thai = train_tokenizer({"th": ["ไทย ภาษา ไทย"] * 9}, vocab_size=280)
    thai.add_tokens(["<greeting>"])
    vocabulary = map_vocabulary(thai, small_tokenizer, len(thai) + 2, 330)
    old = {row: token for token, row in small_tokenizer.get_vocab().items()}
    halves = 0
    for token, row in thai.get_vocab().items():
        pieces = [old[piece] for piece in vocabulary.pieces[vocabulary.rows == row].tolist()]
        if token == "<greeting>":
            assert pieces == []
        else:
            assert "".join(pieces) == token
            halves += "\ufffd" in thai.convert_tokens_to_string([token]) and len(pieces) > 1
    assert halves > 0
    assert (~vocabulary.known).sum() == 1 + 2  # the added token, and rows beyond the tokenizer


def test_capitals_of_a_checkpoint_that_reads_lower_case():
    """A lower-casing tokenizer never makes 'B': a token with capitals is the one without."""
    words = ["Haus", "Hund", "Katze", "Fluss", "Licht"]
    texts = {"de": [" ".join(words)] * 20}
    new = train_tokenizer(texts, vocab_size=320)
    old = train_tokenizer(texts, vocab_size=320, lowercase=True, add_prefix_space=True)
    assert "ĠHund" in new.get_vocab()
    assert "Ġhund" in old.get_vocab()
    vocabulary = map_vocabulary(new, old, len(new), len(old))
    pieces = {
        token: vocabulary.pieces[vocabulary.rows == row].tolist()
        for token, row in new.get_vocab().items()
    }
    assert pieces["ĠHund"] == [old.get_vocab()["Ġhund"]]
    assert pieces["H"] == pieces["h"] == [old.get_vocab()["h"]]
    halves = [
        token for token in new.get_vocab() if "\ufffd" in new.convert_tokens_to_string([token])
    ]
    assert halves
    assert all(
        pieces[token] == [old.get_vocab()[token]] for token in halves
    )  # no text alone: as they are
    assert pieces["<s>"] == [old.bos_token_id]


# ---- An encoder for each language


def test_every_language_begins_with_the_encoder_of_a_translation_model(tokenizer, tmp_path):
    source = laser(seed=5)
    model = aligned(
        "bilstm", languages=("de", "en", "it")
    )  # of languages that the checkpoint lacks, too
    report = warm_start(model, tokenizer, save(source, tokenizer, tmp_path))
    expected = parameters_of(source.model)
    for language in ("de", "en", "it"):
        found = parameters_of(model.encoders[language])
        assert found.keys() == expected.keys()
        for name, weight in expected.items():
            torch.testing.assert_close(
                found[name], weight, rtol=1e-6, atol=1e-7, msg=f"{language} {name}"
            )
    assert (report["model_type"], report["tensors_copied"], report["tensors_kept"]) == (
        "tmde_laser",
        3 * len(expected),
        [],
    )
    inputs = tokenizer(["haus und hund", "casa"], return_tensors="pt", padding=True)
    vectors = [
        model(**inputs, language_ids=torch.tensor([code])).pooler_output for code in range(3)
    ]
    for found in vectors:
        torch.testing.assert_close(
            found, source.model(**inputs).pooler_output, rtol=1e-5, atol=1e-6
        )


# ---- From the same kind


@pytest.mark.parametrize(("old", "new"), [(False, False), (True, False), (False, True)])
def test_same_architecture_is_the_same_model(old, new, tmp_path, tokenizer):
    source = tiny_model(bottleneck="dual", bag_residual=True, share_embeddings=old)
    save(shaken(source), tokenizer, tmp_path)
    model = tiny_model(1, bottleneck="dual", bag_residual=True, share_embeddings=new)
    report = warm_start(model, tokenizer, tmp_path)
    assert report["tensors_kept"] == []
    inputs = tokenizer(["haus hund", "katze"], return_tensors="pt", padding=True)
    vectors = model.model(**inputs).pooler_output
    torch.testing.assert_close(vectors, source.model(**inputs).pooler_output)
    if not new:  # tables that were apart cannot become one and stay the same
        logits = [
            m(**inputs, labels=inputs["input_ids"], target_language="es").logits
            for m in (model, source)
        ]
        torch.testing.assert_close(*logits)


def test_what_does_not_fit_keeps_its_values_and_is_named(tmp_path, tokenizer):
    source = tiny_model(languages=("it", "en", "de"), pivot_languages=("en",))
    save(shaken(source), tokenizer, tmp_path)
    changes = {
        "bottleneck": "pyramid",
        "encoder_layers": 4,
        "decoder_ffn_dim": 56,
        "bag_residual": True,
    }
    languages = {"languages": ("de", "fr", "it"), "pivot_languages": ("de",)}
    model, fresh = (tiny_model(1, **changes, **languages) for _ in range(2))
    report = warm_start(model, tokenizer, tmp_path)
    old = dict(source.named_parameters())
    new = dict(model.named_parameters())
    cold = dict(fresh.named_parameters())
    name = "decoder.embed_languages.weight"
    expected = {
        name
        for name, parameter in new.items()
        if name not in old or parameter.shape != old[name].shape
    }
    assert set(report["tensors_kept"]) == expected
    assert {"model.token_weights", "model.pyramid_queries", "model.layers.3.fc1.bias"} <= expected
    assert {
        "decoder.layers.0.fc1.weight",
        "decoder.layers.0.fc1.bias",
        "decoder.layers.0.fc2.weight",
    } <= expected
    assert report["tensors_copied"] == len(new) - len(expected)
    for kept in expected:
        assert torch.equal(new[kept], cold[kept]), kept
    assert torch.equal(new["model.layers.2.fc2.weight"], old["model.layers.2.fc2.weight"])
    assert torch.equal(new[name][[0, 2]], old[name][[2, 0]])
    torch.testing.assert_close(new[name][1], old[name].mean(dim=0))  # of the new language


COPIED = {
    # A model, where it starts, and the beginning of the names of what stays as it was.
    "laser": (laser, lambda: laser(seed=5), None),
    "ntdv": (ntdv, lambda: ntdv(seed=5), None),
    "encoder": (encoder, lambda: encoder(seed=5), None),
    # The second stage of NTDV; the first one's embedding is narrower than joined context vectors.
    "shared layers": (
        partial(ntdv, vector="sum"),
        lambda: ntdv(seed=5, shared_layers=False),
        "model.shared.",
    ),
    "concatenated": (
        partial(ntdv, vector="concat"),
        lambda: ntdv(seed=5, shared_layers=False),
        "model.shared.",
    ),
    # Languages are matched by their codes.
    "aligned": (
        lambda: aligned("bag"),
        lambda: aligned("bag", seed=5, languages=("es", "en")),
        "encoders.de.",
    ),
}


@pytest.mark.parametrize("case", COPIED)
def test_all_that_fits_is_copied(case, tokenizer, tmp_path):
    make, make_source, new = COPIED[case]
    model = make()
    source = shaken(make_source())
    before = parameters_of(model)
    report = warm_start(model, tokenizer, save(source, tokenizer, tmp_path))
    kept = {name for name in before if new is not None and name.startswith(new)}
    assert set(report["tensors_kept"]) == kept
    assert bool(kept) == (new is not None)
    for name, weight in parameters_of(model).items():
        expected = before[name] if name in kept else source.get_parameter(name)
        torch.testing.assert_close(weight, expected, rtol=1e-6, atol=1e-7, msg=name)


# ---- What is refused


def test_errors_name_what_was_found(bag, small_tokenizer, tmp_path, tokenizer):
    def refused(model, message: str, checkpoint: Path = bag[1], of=small_tokenizer) -> None:
        before = parameters_of(model)
        with pytest.raises(ValueError, match=message):
            warm_start(model, of, checkpoint)
        assert all(
            torch.equal(weight, before[name]) for name, weight in parameters_of(model).items()
        )

    plain = direct_model(small_tokenizer, bag_residual=False)
    refused(plain, "found no bag_residual; set model.bag_residual, or for T-MDE")
    refused(
        BagModel(BagConfig(vocab_size=330, d_model=16)),
        "d_model=24 and the new model 16; set model.d_model=24",
    )
    refused(plain, "no folder .*nowhere", tmp_path / "a" / "b" / "nowhere")
    tmde = save(tiny_model(), tokenizer, tmp_path / "tmde")
    refused(
        laser(),
        "of type 'tmde_laser': expected a checkpoint of tmde_bag or tmde_laser, found 'tmde'",
        tmde,
    )
    refused(
        aligned("bilstm"),
        "checkpoint of tmde_aligned or tmde_bag or tmde_laser, found 'tmde'",
        tmde,
    )
    message = "it has d_model=16 and the new model 20; set model.encoder_config.d_model=16"
    refused(
        aligned("bilstm", d_model=20),
        message,
        save(laser(), tokenizer, tmp_path / "laser"),
        tokenizer,
    )
    small = tiny_model(vocab_size=300, bag_residual=True)
    refused(small, "has the id 329, but the embedding table of its model has 300 rows")
    sizes = {
        "num_hidden_layers": 1,
        "hidden_size": 8,
        "num_attention_heads": 1,
        "intermediate_size": 8,
    }
    BertModel(BertConfig(vocab_size=9, **sizes)).save_pretrained(tmp_path / "bert")
    refused(plain, "found a model of type 'bert', expected one of this package", tmp_path / "bert")
    tiny_model().save_pretrained(tmp_path / "bare")
    refused(plain, "expected its tokenizer's files", tmp_path / "bare")
