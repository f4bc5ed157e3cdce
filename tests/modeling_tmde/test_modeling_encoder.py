"""Encoders without a decoder: a plain reference, positions, prediction head, pipelines, losses."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    default_data_collator,
    pipeline,
)

from modeling_tmde.configuration_encoder import TmdeEncoderConfig
from modeling_tmde.modeling_encoder import (
    TmdeEncoderForMaskedLM,
    TmdeEncoderForSequenceClassification,
    TmdeEncoderModel,
)
from tests.conftest import jittered, nightly_except, save
from tests.modeling_tmde.families import trained_step
from tests.modeling_tmde.test_modeling_tmde import layer_by_hand, random_batch

SMALL = {
    "vocab_size": 400,
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
}
LIGHT = {}
XLM = {
    "pooling": "first",
    "position_embeddings": "learned",
    "prediction_head": "transform",
    "activation_function": "gelu",
}
NO_HEAD = {"prediction_head": "none"}
KINDS = pytest.mark.parametrize("kind", [LIGHT, XLM, NO_HEAD], ids=["light", "xlm", "no head"])


def make_model(**changes) -> TmdeEncoderForMaskedLM:
    torch.manual_seed(0)
    return jittered(TmdeEncoderForMaskedLM(TmdeEncoderConfig(**(SMALL | changes))).eval())


# ---- The encoder


def reference_states(model: TmdeEncoderModel, ids: torch.Tensor) -> torch.Tensor:
    """The final states of one text without padding, (length, d_model), in float64."""
    scale = 32**0.5
    states = model.embed_tokens.weight[ids].double() * scale
    positions = model.embed_positions.weight[: len(ids)].double()
    if model.config.position_embeddings == "learned":
        positions = positions * scale
    states = states + positions
    for layer in model.layers:
        states = layer_by_hand(layer, states, states)
    norm = model.layer_norm
    return nn.functional.layer_norm(states, (32,), norm.weight.double(), norm.bias.double())


@pytest.mark.parametrize("pooling", ["first", "mean"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_encoder_equals_a_plain_reference(pooling, positions):
    model = make_model(pooling=pooling, position_embeddings=positions).model
    ids, mask = random_batch(6, 11)
    expected_states = reference_states(model, ids[0, :6])
    expected = expected_states[0] if pooling == "first" else expected_states.mean(dim=0)
    output = model(ids, mask)
    states = output.token_states[0, :6].double()
    torch.testing.assert_close(states, expected_states, atol=2e-5, rtol=2e-5)
    vector = output.pooler_output[0].double()
    torch.testing.assert_close(vector, expected, atol=2e-5, rtol=2e-5)


# Two texts after one another, in either order.
FIRST = [0, 7, 8, 9, 2]
SECOND = [0, 20, 21, 2]
FORTH = torch.tensor([FIRST + SECOND])
BACK = torch.tensor([SECOND + FIRST])


@KINDS
def test_texts_that_are_each_counted_from_0_may_change_places(kind):
    model = make_model(**(kind | {"pooling": "mean"})).model
    forth_positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3]])
    back_positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    with torch.no_grad():
        forth = model(FORTH, position_ids=forth_positions).pooler_output
        back = model(BACK, position_ids=back_positions).pooler_output
        counted_on = model(FORTH).pooler_output
    torch.testing.assert_close(forth, back, atol=1e-5, rtol=0)
    assert (forth - counted_on).abs().max() > 1e-3


@KINDS
def test_texts_that_are_counted_on_may_not_change_places(kind):
    model = make_model(**(kind | {"pooling": "mean"})).model
    with torch.no_grad():
        forth = model(FORTH).pooler_output
        back = model(BACK).pooler_output
    assert (forth - back).abs().max() > 1e-3


@KINDS
@pytest.mark.parametrize("position", [-1, 16])
def test_positions_without_a_vector_are_named(kind, position):
    model = make_model(**(kind | {"max_position_embeddings": 16}))
    position_ids = torch.tensor([[0, position, 2]])
    for module in (model, model.model, model.train()):
        with pytest.raises(ValueError, match=f"position_ids: found {position}, expected 0 to 15"):
            module(torch.tensor([[0, 7, 2]]), position_ids=position_ids)


@KINDS
def test_positions_of_another_shape_are_named(kind):
    model = make_model(**kind).model
    message = r"position_ids \(1, 2\) must be \(batch, length\), \(1, 3\)"
    with pytest.raises(ValueError, match=message):
        model(torch.tensor([[0, 7, 2]]), position_ids=torch.tensor([[0, 1]]))


@KINDS
def test_an_input_that_is_too_long_is_named(kind):
    model = make_model(**(kind | {"max_position_embeddings": 4})).model
    with pytest.raises(ValueError, match="5 tokens is longer than max_position_embeddings=4"):
        model(torch.tensor([FIRST]))


def test_given_positions_compile():
    model = make_model().model
    ids = torch.tensor([[0, 7, 8, 2]])
    position_ids = torch.tensor([[0, 1, 0, 1]])
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.no_grad():
        vectors = compiled(ids, position_ids=position_ids).pooler_output
        expected = model(ids, position_ids=position_ids).pooler_output
    torch.testing.assert_close(vectors, expected)


# ---- The prediction head


def reference_logits(model: TmdeEncoderForMaskedLM, state: torch.Tensor) -> torch.Tensor:
    """The logits (vocab_size,) of a final state (d_model,), in float64."""
    if model.config.prediction_head == "none":
        return model.model.embed_tokens.weight.double() @ state
    head = model.head
    state = head.dense.weight.double() @ state + head.dense.bias.double()
    if model.config.prediction_head == "transform":
        state = state * 0.5 * (1 + torch.erf(state / 2**0.5))
        state = (state - state.mean()) / (state.var(unbiased=False) + 1e-5).sqrt()
        state = state * head.layer_norm.weight.double() + head.layer_norm.bias.double()
    return model.model.embed_tokens.weight.double() @ state


@KINDS
def test_logits_and_loss_equal_a_plain_reference(kind):
    model = make_model(**kind)
    ids, mask = random_batch(6, 11)
    targets = {(0, 2): 17, (0, 5): 399, (1, 10): 5}
    labels = torch.full_like(ids, -100)
    for place, target in targets.items():
        labels[place] = target
    states = model.model(ids, mask).token_states.double()
    output = model(ids, mask, labels=labels)
    losses = []
    for place, target in targets.items():
        expected = reference_logits(model, states[place])
        logits = output.logits[place].double()
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
        losses.append(expected.exp().sum().log() - expected[target])
    assert output.loss.item() == pytest.approx(sum(losses).item() / 3, rel=1e-5)


# ---- Checkpoints in pipelines and in transformers' own Trainer


def test_fill_mask_pipeline(tokenizer, tmp_path):
    model = make_model(**XLM)
    save(tmp_path, model, tokenizer)
    ids = AutoTokenizer.from_pretrained(tmp_path)("haus<mask> katze", return_tensors="pt").input_ids
    mask_place = ids[0].tolist().index(model.config.mask_token_id)
    expected = model(ids).logits[0, mask_place].softmax(dim=0).topk(3)
    fill = pipeline("fill-mask", model=str(tmp_path))
    predictions = pd.DataFrame(fill("haus<mask> katze", top_k=3))
    assert type(fill.model) is TmdeEncoderForMaskedLM
    assert predictions["token"].tolist() == expected.indices.tolist()
    assert predictions["score"].tolist() == pytest.approx(expected.values.tolist(), rel=1e-5)


# Only both texts together tell the label of a pair: 1 for a translation, 2 for "car".
PAIRS = [
    ("haus", "house", 1),
    ("haus", "dog", 0),
    ("haus", "car", 2),
    ("hund", "house", 0),
    ("hund", "dog", 1),
    ("hund", "car", 2),
]


@pytest.fixture
def fine_tuned(tokenizer, tmp_path) -> Path:
    """A classifier of pairs, trained as on XNLI and saved by transformers' own Trainer."""
    save(tmp_path / "mlm", make_model(dropout=0.0, **XLM), tokenizer)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "mlm", num_labels=3)
    rows = []
    for german, english, label in PAIRS:
        rows.append({**tokenizer(german, english), "labels": label})
    arguments = TrainingArguments(
        tmp_path / "run",
        learning_rate=5e-3,
        max_steps=80,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model, arguments, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    trainer.save_model(tmp_path / "nli")
    return tmp_path / "nli"


def test_fine_tuning_on_pairs_of_texts(fine_tuned):
    classify = pipeline("text-classification", model=str(fine_tuned))
    texts = []
    labels = []
    for german, english, label in PAIRS:
        texts.append({"text": german, "text_pair": english})
        labels.append(f"LABEL_{label}")
    predictions = pd.DataFrame(classify(texts))
    assert predictions["label"].tolist() == labels


def test_a_fine_tuned_encoder_is_still_an_embedder(fine_tuned, tokenizer):
    inputs = tokenizer("haus hund", return_tensors="pt")
    classifier = AutoModelForSequenceClassification.from_pretrained(fine_tuned)
    expected = classifier.model(**inputs).pooler_output
    encoder, report = AutoModel.from_pretrained(fine_tuned, output_loading_info=True)
    torch.testing.assert_close(encoder(**inputs).pooler_output, expected)
    assert not any(report.values())


# ---- Gradient accumulation with transformers' own Trainer

NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
BATCH_SIZES = pytest.mark.parametrize("batch_size", nightly_except([2], [8, 4, 2]))


@dataclass
class Labels:
    """The labels of eight texts, and the configuration that takes them."""

    num_labels: int
    problem_type: str | None
    values: list


KINDS_OF_LABELS = {
    "classes": Labels(3, None, [0, 2, 1, 1, 0, 2, 2, 0]),
    "number": Labels(1, "regression", [0.5, -1.0, 2.0, 3.5, -2.5, 0.0, 1.0, 4.0]),
    "numbers": Labels(2, "regression", [[0.5 * row, 1.0 - row] for row in range(8)]),
    "several-classes": Labels(
        2,
        "multi_label_classification",
        [[float(row % 2), float(row // 4)] for row in range(8)],
    ),
}


def loss_of_one_text(kind: str, logits: torch.Tensor, label) -> torch.Tensor:
    """Return the loss of logits (num_labels,), written out."""
    if kind == "classes":
        return logits.exp().sum().log() - logits[label]
    target = torch.tensor(label, dtype=torch.float)
    if kind == "several-classes":
        chances = 1 / (1 + (-logits).exp())
        return -(target * chances.log() + (1 - target) * (1 - chances).log()).mean()
    return (logits - target).square().mean()


def gradient_of(loss: torch.Tensor, model: nn.Module) -> torch.Tensor:
    """The gradient of a loss as one vector of all parameters."""
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return nn.utils.parameters_to_vector(gradients)


@BATCH_SIZES
@pytest.mark.parametrize("kind", KINDS_OF_LABELS)
def test_accumulated_batches_have_the_gradient_of_one(kind, batch_size, tokenizer, tmp_path):
    labels = KINDS_OF_LABELS[kind]
    config = make_model(**NO_DROPOUT, **XLM).config
    config.num_labels = labels.num_labels
    config.problem_type = labels.problem_type
    model = jittered(TmdeEncoderForSequenceClassification(config))
    features = []
    losses = []
    for row, label in enumerate(labels.values):
        input_ids = [0, *range(10, 12 + row), 2]
        mask = [1] * len(input_ids)
        features.append({"input_ids": input_ids, "attention_mask": mask, "labels": label})
        logits = model(torch.tensor([input_ids])).logits[0]
        losses.append(loss_of_one_text(kind, logits, label))
    expected = gradient_of(sum(losses) / len(losses), model)
    collator = DataCollatorWithPadding(tokenizer)
    gradient = trained_step(model, features, collator, tmp_path, batch_size)
    torch.testing.assert_close(gradient, expected, atol=1e-5, rtol=1e-3)


@BATCH_SIZES
def test_accumulated_batches_have_the_gradient_of_the_mean_hidden_token(batch_size, tmp_path):
    """Texts have one to eight hidden tokens, so the batches have different numbers of them."""
    model = make_model(**NO_DROPOUT, **XLM)
    input_ids = [0, *range(10, 20), 2]
    features = []
    losses = []
    for row in range(8):
        targets = list(range(30, 31 + row))
        labels = [-100, *targets, *[-100] * (11 - len(targets))]
        mask = [1] * len(input_ids)
        features.append({"input_ids": input_ids, "attention_mask": mask, "labels": labels})
        scores = model(torch.tensor([input_ids])).logits[0].log_softmax(-1)
        for column, target in enumerate(targets, start=1):
            losses.append(-scores[column, target])
    expected = gradient_of(sum(losses) / len(losses), model)
    gradient = trained_step(model, features, default_data_collator, tmp_path, batch_size)
    torch.testing.assert_close(gradient, expected, atol=1e-5, rtol=1e-3)
