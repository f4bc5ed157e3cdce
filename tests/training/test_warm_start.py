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
from tests.conftest import LANGUAGES, make_rows, tiny_model
from tests.training.logs import assert_equal_weights
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
    """Return a bag whose vectors and weights differ by token, as training leaves them."""
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
    """Return the model with biases and norms that are not as initialized."""
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
    """Return copies of all parameters."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def texts_in(language: str) -> list[str]:
    return [row[language] for row in make_rows(20, seed=5)]


def root_mean_square(table: torch.Tensor) -> float:
    """Return the root of the mean of the squared norms of the rows."""
    return table.norm(dim=1).square().mean().sqrt().item()


def normed_bags(bag: BagModel, tokenizer, texts: list[str]) -> torch.Tensor:
    """Return the embeddings of a T-MDE that begins with a bag."""
    bags = embed(bag, tokenizer, texts)
    return nn.functional.layer_norm(math.sqrt(BAG_WIDTH) * bags, (BAG_WIDTH,))


# ---- From a bag to T-MDE


@pytest.mark.parametrize(
    ("bottleneck", "shared"),
    [("first", True), ("first", False), ("pyramid", False), ("full", False), ("dual", False)],
)
def test_first_embedding_is_the_norm_of_the_bag(bottleneck, shared, bag, small_tokenizer):
    model = direct_model(small_tokenizer, bottleneck=bottleneck, share_embeddings=shared)
    size_before = root_mean_square(model.model.embed_tokens.weight)

    report = warm_start(model, small_tokenizer, bag[1])

    texts = texts_in("fr")
    expected = normed_bags(bag[0], small_tokenizer, texts)
    vectors = embed(model.model, small_tokenizer, texts)
    torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=1e-5)
    table = model.model.embed_tokens.weight
    # The difference is `<pad>`, which is 0 now.
    assert root_mean_square(table) == pytest.approx(size_before, rel=0.01)
    scale = table[2, 0] / bag[0].embed_tokens.weight[2, 0]
    torch.testing.assert_close(table[2:], scale * bag[0].embed_tokens.weight[2:])
    assert torch.equal(model.decoder.embed_tokens.weight, table)
    torch.testing.assert_close(model.lm_head.weight[2:], table[2:])
    assert (model.lm_head.weight is table) == shared
    assert not table[1].any()
    assert report["tokens_copied"] == len(small_tokenizer)
    assert report["tokens_mapped"] == 0
    assert report["tokens_left"] == 0
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
        {
            "encoders.de.embed_tokens.weight",
            "encoders.en.embed_tokens.weight",
            "encoders.es.embed_tokens.weight",
        },
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
            # The rest of the model is as it was.
            assert torch.equal(weight, before[name]), name
            continue
        gram = gram_of(source, weight.shape[1], weighted=name in inside)
        # One factor gives the rows their mean square.
        mean_square = before[name].double().square().sum(1).mean()
        expected = gram * mean_square / gram.diagonal().mean()
        products = weight.double() @ weight.double().T
        if "embed_tokens" in name:
            assert not weight[PAD].any(), name
            expected[PAD] = 0.0
            expected[:, PAD] = 0.0
        scale = expected.diagonal().max().item()
        torch.testing.assert_close(products, expected, rtol=1e-4, atol=1e-5 * scale, msg=name)
        if weight.shape[1] > BAG_WIDTH:
            assert not weight[:, BAG_WIDTH:].any()
        # `<s>` and `</s>` weigh nothing in a bag; a decoder has vectors for them.
        special = weight[[BOS, EOS]].norm(dim=1).max() / weight.norm(dim=1).median()
        if name in inside:
            assert special < 1e-6, name
        else:
            assert special > 0.1, name
    assert report["model_type"] == "tmde_bag"
    assert report["tokens_copied"] == 400
    assert report["tensors_copied"] == 0
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
    texts = texts_in("it")
    assert larger(texts)["input_ids"] != small_tokenizer(texts)["input_ids"]
    expected = normed_bags(bag[0], small_tokenizer, texts)
    torch.testing.assert_close(embed(model.model, larger, texts), expected, atol=1e-4, rtol=1e-4)


def test_pieces_by_hand():
    vocabulary = VocabularyMap(torch.tensor([0, 2, 2]), torch.tensor([3, 0, 1]), size=4, copied=1)
    weights = torch.tensor([math.log(3.0), 0.0, 9.0, -20.0])
    table = torch.tensor([[4.0, 0.0], [0.0, 8.0], [9.0, 9.0], [5.0, 6.0]])
    assert vocabulary.known.tolist() == [True, False, True, False]
    assert vocabulary.log_weights(weights)[0] == -20
    assert vocabulary.log_weights(weights)[1] == -math.inf
    assert vocabulary.log_weights(weights)[2].item() == pytest.approx(math.log(4.0))
    # The third row is 3/4 of one piece and 1/4 of the other.
    expected = torch.tensor([[5.0, 6.0], [0.0, 0.0], [3.0, 2.0], [0.0, 0.0]])
    torch.testing.assert_close(vocabulary.table(table, weights), expected)


def test_tokens_that_are_no_text_alone_and_added_tokens(small_tokenizer):
    thai = train_tokenizer({"th": ["ไทย ภาษา ไทย"] * 9}, vocab_size=280)
    thai.add_tokens(["<greeting>"])

    vocabulary = map_vocabulary(thai, small_tokenizer, len(thai) + 2, 330)

    num_split_halves = 0
    for token, row in thai.get_vocab().items():
        pieces = small_tokenizer.convert_ids_to_tokens(pieces_of(vocabulary, row))
        if token == "<greeting>":
            assert pieces == []
        else:
            assert "".join(pieces) == token
            if is_no_text(token, thai) and len(pieces) > 1:
                num_split_halves += 1
    assert num_split_halves > 0
    # The added token is unknown, and so are the rows beyond the tokenizer.
    assert (~vocabulary.known).sum() == 1 + 2


def pieces_of(vocabulary: VocabularyMap, row: int) -> list[int]:
    """Return the old tokens that make up a new one."""
    return vocabulary.pieces[vocabulary.rows == row].tolist()


def is_no_text(token: str, tokenizer: PreTrainedTokenizerFast) -> bool:
    """Return whether a token holds only some of the bytes of a character."""
    return "\ufffd" in tokenizer.convert_tokens_to_string([token])


def test_capitals_of_a_checkpoint_that_reads_lower_case():
    """A lower-casing tokenizer never makes 'B': a token with capitals is the one without."""
    words = ["Haus", "Hund", "Katze", "Fluss", "Licht"]
    texts = {"de": [" ".join(words)] * 20}
    new = train_tokenizer(texts, vocab_size=320)
    old = train_tokenizer(texts, vocab_size=320, lowercase=True, add_prefix_space=True)
    assert "ĠHund" in new.get_vocab()
    assert "Ġhund" in old.get_vocab()

    vocabulary = map_vocabulary(new, old, len(new), len(old))

    old_ids = old.get_vocab()
    new_ids = new.get_vocab()
    assert pieces_of(vocabulary, new_ids["ĠHund"]) == [old_ids["Ġhund"]]
    assert pieces_of(vocabulary, new_ids["H"]) == [old_ids["h"]]
    assert pieces_of(vocabulary, new_ids["h"]) == [old_ids["h"]]
    assert pieces_of(vocabulary, new_ids["<s>"]) == [old.bos_token_id]
    halves = [token for token in new_ids if is_no_text(token, new)]
    assert halves
    for token in halves:
        assert pieces_of(vocabulary, new_ids[token]) == [old_ids[token]]


# ---- An encoder for each language


def test_every_language_begins_with_the_encoder_of_a_translation_model(tokenizer, tmp_path):
    """The checkpoint knows no Italian, which begins alike."""
    languages = ("de", "en", "it")
    source = laser(seed=5)
    model = aligned("bilstm", languages=languages)

    report = warm_start(model, tokenizer, save(source, tokenizer, tmp_path))

    expected = parameters_of(source.model)
    for language in languages:
        weights = parameters_of(model.encoders[language])
        assert weights.keys() == expected.keys()
        for name, weight in expected.items():
            message = f"{language} {name}"
            torch.testing.assert_close(weights[name], weight, rtol=1e-6, atol=1e-7, msg=message)
    assert report["model_type"] == "tmde_laser"
    assert report["tensors_copied"] == 3 * len(expected)
    assert report["tensors_kept"] == []
    inputs = tokenizer(["haus und hund", "casa"], return_tensors="pt", padding=True)
    expected_vectors = source.model(**inputs).pooler_output
    for index in range(len(languages)):
        vectors = model(**inputs, language_ids=torch.tensor([index])).pooler_output
        torch.testing.assert_close(vectors, expected_vectors, rtol=1e-5, atol=1e-6)


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
    if not new:  # Tables that were apart cannot become one and stay the same.
        inputs |= {"labels": inputs["input_ids"], "target_language": "es"}
        torch.testing.assert_close(model(**inputs).logits, source(**inputs).logits)


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
    model = tiny_model(1, **changes, **languages)
    before = parameters_of(model)

    report = warm_start(model, tokenizer, tmp_path)

    old = dict(source.named_parameters())
    new = dict(model.named_parameters())
    not_fitting = set()
    for name, parameter in new.items():
        if name not in old or parameter.shape != old[name].shape:
            not_fitting.add(name)
    assert set(report["tensors_kept"]) == not_fitting
    assert report["tensors_copied"] == len(new) - len(not_fitting)
    assert not_fitting >= {
        "model.token_weights",
        "model.pyramid_queries",
        "model.layers.3.fc1.bias",
        "decoder.layers.0.fc1.weight",
        "decoder.layers.0.fc1.bias",
        "decoder.layers.0.fc2.weight",
    }
    for name in not_fitting:
        assert torch.equal(new[name], before[name]), name
    assert torch.equal(new["model.layers.2.fc2.weight"], old["model.layers.2.fc2.weight"])
    languages_name = "decoder.embed_languages.weight"
    assert torch.equal(new[languages_name][[0, 2]], old[languages_name][[2, 0]])
    # The new language begins with the mean of the old ones.
    torch.testing.assert_close(new[languages_name][1], old[languages_name].mean(dim=0))


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
    make, make_source, new_prefix = COPIED[case]
    model = make()
    source = shaken(make_source())
    before = parameters_of(model)

    report = warm_start(model, tokenizer, save(source, tokenizer, tmp_path))

    new_names = set()
    if new_prefix is not None:
        new_names = {name for name in before if name.startswith(new_prefix)}
        assert new_names
    assert set(report["tensors_kept"]) == new_names
    for name, weight in parameters_of(model).items():
        expected = before[name] if name in new_names else source.get_parameter(name)
        torch.testing.assert_close(weight, expected, rtol=1e-6, atol=1e-7, msg=name)


# ---- What is refused


@pytest.fixture
def assert_refused(bag, small_tokenizer):
    """A function that checks the error of a warm start, which must leave the model as it is."""

    def check(model, message: str, checkpoint: Path = bag[1], tokenizer=small_tokenizer) -> None:
        before = parameters_of(model)
        with pytest.raises(ValueError, match=message):
            warm_start(model, tokenizer, checkpoint)
        assert_equal_weights(parameters_of(model), before)

    return check


@pytest.fixture
def plain_model(small_tokenizer):
    return direct_model(small_tokenizer, bag_residual=False)


def test_models_that_a_bag_does_not_fit_are_refused(assert_refused, plain_model):
    assert_refused(plain_model, "need model.bag_residual; set it, or for T-MDE")
    narrow = BagModel(BagConfig(vocab_size=330, d_model=16))
    assert_refused(narrow, "d_model=24 and the new model 16; set model.d_model=24")
    small = tiny_model(vocab_size=300, bag_residual=True)
    message = "has the id 329, but the model has 300 embeddings"
    assert_refused(small, message)


def test_checkpoints_of_other_architectures_are_refused(assert_refused, tokenizer, tmp_path):
    checkpoint = save(tiny_model(), tokenizer, tmp_path)
    message = "of type 'tmde_laser': expected a checkpoint of tmde_bag or tmde_laser, found 'tmde'"
    assert_refused(laser(), message, checkpoint)
    message = "checkpoint of tmde_aligned or tmde_bag or tmde_laser, found 'tmde'"
    assert_refused(aligned("bilstm"), message, checkpoint)


def test_a_checkpoint_of_another_width_is_refused(assert_refused, tokenizer, tmp_path):
    checkpoint = save(laser(), tokenizer, tmp_path)
    message = "it has d_model=16 and the new model 20; set model.encoder_config.d_model=16"
    assert_refused(aligned("bilstm", d_model=20), message, checkpoint, tokenizer)


def test_folders_without_a_model_of_this_package_are_refused(assert_refused, plain_model, tmp_path):
    assert_refused(plain_model, "nowhere: no such folder", tmp_path / "a" / "b" / "nowhere")
    sizes = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 1}
    config = BertConfig(vocab_size=9, intermediate_size=8, **sizes)
    BertModel(config).save_pretrained(tmp_path / "bert")
    message = "found a model of type 'bert', expected one of this package"
    assert_refused(plain_model, message, tmp_path / "bert")
    tiny_model().save_pretrained(tmp_path / "bare")
    assert_refused(plain_model, "expected its tokenizer's files", tmp_path / "bare")
