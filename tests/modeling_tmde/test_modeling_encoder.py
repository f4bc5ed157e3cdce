"""Encoders without a decoder: sizes, a plain reference, padding, positions, the prediction head, and checkpoints."""

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
)
from tests.conftest import jittered, save
from tests.modeling_tmde.families import trained_step
from tests.modeling_tmde.test_modeling_tmde import plain_layer, random_batch

SMALL = {
    "vocab_size": 400,
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
}
XLM = {"pooling": "first", "position_embeddings": "learned"}
XLM |= {"prediction_head": "transform", "activation_function": "gelu"}
KINDS = pytest.mark.parametrize("kind", [{}, XLM], ids=["light", "xlm"])


def make_model(**changes) -> TmdeEncoderForMaskedLM:
    torch.manual_seed(0)
    return jittered(TmdeEncoderForMaskedLM(TmdeEncoderConfig(**(SMALL | changes))).eval())


# ---- The encoder


@pytest.mark.parametrize("pooling", ["first", "mean"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_encoder_equals_a_plain_reference(pooling, positions):
    model = make_model(pooling=pooling, position_embeddings=positions).model
    ids, mask = random_batch(6, 11)
    output = model(ids, mask)
    state = model.embed_tokens.weight[ids[0, :6]].double() * 32**0.5
    places = model.embed_positions.weight[:6].double()
    state = state + places * (32**0.5 if positions == "learned" else 1)
    for layer in model.layers:
        state = plain_layer(layer, state, state)
    norm = model.layer_norm
    state = nn.functional.layer_norm(state, (32,), norm.weight.double(), norm.bias.double())
    expected = state[0] if pooling == "first" else sum(state[i] for i in range(6)) / 6
    torch.testing.assert_close(output.pooler_output[0].double(), expected, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(output.token_states[0, :6].double(), state, atol=2e-5, rtol=2e-5)


@KINDS
def test_positions_that_begin_again(kind):
    """Two texts after one another, each counted from 0: which comes first makes no difference then, and only then."""
    model = make_model(**(kind | {"pooling": "mean"})).model
    first, second = torch.tensor([[0, 7, 8, 9, 2]]), torch.tensor([[0, 20, 21, 2]])
    forth, back = torch.cat([first, second], dim=1), torch.cat([second, first], dim=1)
    reset = [torch.arange(5), torch.arange(4)]
    with torch.no_grad():
        a = model(forth, position_ids=torch.cat(reset)[None]).pooler_output
        b = model(back, position_ids=torch.cat(reset[::-1])[None]).pooler_output
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
        c, d = model(forth).pooler_output, model(back).pooler_output
        assert (c - d).abs().max() > 1e-3 and (a - c).abs().max() > 1e-3


@KINDS
@pytest.mark.parametrize("position", [-1, 16])
def test_positions_without_a_vector_are_named(kind, position):
    model = make_model(**(kind | {"max_position_embeddings": 16}))
    position_ids = torch.tensor([[0, position, 2]])
    for module in (model, model.model, model.train()):
        with pytest.raises(ValueError, match=f"position_ids: found {position}, expected 0 to 15"):
            module(torch.tensor([[0, 7, 2]]), position_ids=position_ids)


def test_given_positions_compile():
    model = make_model().model
    ids = torch.tensor([[0, 7, 8, 2]])
    position_ids = torch.tensor([[0, 1, 0, 1]])
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.no_grad():
        found = compiled(ids, position_ids=position_ids).pooler_output
        expected = model(ids, position_ids=position_ids).pooler_output
    torch.testing.assert_close(found, expected)


# ---- The prediction head


@KINDS
def test_logits_and_loss_equal_a_plain_reference(kind):
    model = make_model(**kind)
    ids, mask = random_batch(6, 11)
    labels = torch.full_like(ids, -100)
    labels[0, 2], labels[0, 5], labels[1, 10] = 17, 399, 5
    output = model(ids, mask, labels=labels)
    table = model.model.embed_tokens.weight.double()
    states = model.model(ids, mask).token_states.double()
    losses = []
    for row, column in ((0, 2), (0, 5), (1, 10)):
        state = (
            model.head.dense.weight.double() @ states[row, column] + model.head.dense.bias.double()
        )
        if kind is XLM:
            state = state * 0.5 * (1 + torch.erf(state / 2**0.5))
            state = (state - state.mean()) / (state.var(unbiased=False) + 1e-5).sqrt()
            state = (
                state * model.head.layer_norm.weight.double() + model.head.layer_norm.bias.double()
            )
        logits = table @ state
        torch.testing.assert_close(
            output.logits[row, column].double(), logits, atol=1e-4, rtol=1e-4
        )
        losses.append(logits.exp().sum().log() - logits[labels[row, column]])
    assert output.loss.item() == pytest.approx(sum(losses).item() / 3, rel=1e-5)


# ---- Checkpoints


def test_fill_mask_pipeline(tokenizer, tmp_path):
    model = make_model(**XLM)
    save(tmp_path, model, tokenizer)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    fill = pipeline("fill-mask", model=str(tmp_path))
    assert type(fill.model) is TmdeEncoderForMaskedLM
    found = fill("haus<mask> katze", top_k=3)
    ids = loaded("haus<mask> katze", return_tensors="pt")["input_ids"]
    best = model(ids).logits[0, (ids[0] == 4).nonzero().item()].softmax(dim=0).topk(3)
    assert [item["token"] for item in found] == best.indices.tolist()
    assert [item["score"] for item in found] == pytest.approx(best.values.tolist(), rel=1e-5)


def test_fine_tuning_on_pairs_of_texts(tokenizer, tmp_path):
    """As on XNLI, with transformers' own Trainer: only both texts together tell the label of a pair."""
    save(tmp_path / "mlm", make_model(dropout=0.0, **XLM), tokenizer)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "mlm", num_labels=3)
    words = (("haus", "hund"), ("house", "dog", "car"))
    pairs = [
        (a, b, 2 if b == "car" else int((i == 0) == (b == "house")))
        for i, a in enumerate(words[0])
        for b in words[1]
    ]
    rows = [{**tokenizer(a, b), "labels": label} for a, b, label in pairs]
    arguments = {
        "learning_rate": 5e-3,
        "max_steps": 80,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
    }
    trainer = Trainer(
        model,
        TrainingArguments(tmp_path / "run", **arguments),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(tmp_path / "nli")
    classify = pipeline("text-classification", model=str(tmp_path / "nli"))
    found = classify([{"text": a, "text_pair": b} for a, b, _ in pairs])
    assert [each["label"] for each in found] == [f"LABEL_{label}" for _, _, label in pairs]
    inputs = tokenizer(
        "haus hund", return_tensors="pt"
    )  # the fine-tuned encoder is still an embedder
    expected = trainer.model.eval().model(**inputs).pooler_output
    torch.testing.assert_close(
        AutoModel.from_pretrained(tmp_path / "nli")(**inputs).pooler_output, expected
    )


# ---- Gradient accumulation with transformers' own Trainer

NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
KINDS_OF_LABELS = {
    "classes": (3, None, [0, 2, 1, 1, 0, 2, 2, 0]),
    "number": (1, "regression", [0.5, -1.0, 2.0, 3.5, -2.5, 0.0, 1.0, 4.0]),
    "numbers": (2, "regression", [[0.5 * row, 1.0 - row] for row in range(8)]),
    "several-classes": (2, "multi_label_classification", [[row % 2, row // 4] for row in range(8)]),
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


@pytest.mark.parametrize("batch_size", [8, 4, 2])
@pytest.mark.parametrize("kind", KINDS_OF_LABELS)
def test_accumulated_batches_have_the_gradient_of_one(kind, batch_size, tokenizer, tmp_path):
    num_labels, problem, labels = KINDS_OF_LABELS[kind]
    config = make_model(**NO_DROPOUT, **XLM).config
    config.num_labels, config.problem_type = num_labels, problem
    model = jittered(TmdeEncoderForSequenceClassification(config))
    features = []
    for row, label in enumerate(labels):
        if kind == "several-classes":
            label = [float(number) for number in label]
        input_ids = [0, *range(10, 12 + row), 2]
        mask = [1] * len(input_ids)
        features.append({"input_ids": input_ids, "attention_mask": mask, "labels": label})
    losses = []
    for feature in features:
        logits = model(torch.tensor([feature["input_ids"]])).logits[0]
        losses.append(loss_of_one_text(kind, logits, feature["labels"]))
    parameters = list(model.parameters())
    expected = torch.autograd.grad(sum(losses) / len(losses), parameters)
    collator = DataCollatorWithPadding(tokenizer)
    found = trained_step(model, features, collator, tmp_path, batch_size)
    expected = nn.utils.parameters_to_vector(expected)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("batch_size", [8, 4, 2])
def test_accumulated_batches_have_the_gradient_of_the_mean_hidden_token(
    batch_size, tokenizer, tmp_path
):
    """Texts have one to eight hidden tokens, so the batches have different numbers of them."""
    model = make_model(**NO_DROPOUT, **XLM)
    features = []
    for row in range(8):
        input_ids = [0, *range(10, 20), 2]
        labels = [-100, *range(30, 31 + row), *[-100] * (10 - row)]
        mask = [1] * len(input_ids)
        features.append({"input_ids": input_ids, "attention_mask": mask, "labels": labels})
    total = 0.0
    for row, feature in enumerate(features):
        scores = model(torch.tensor([feature["input_ids"]])).logits[0].log_softmax(-1)
        for column in range(1, 2 + row):
            total = total - scores[column, feature["labels"][column]]
    parameters = list(model.parameters())
    expected = torch.autograd.grad(total / sum(range(1, 9)), parameters)
    found = trained_step(model, features, default_data_collator, tmp_path, batch_size)
    expected = nn.utils.parameters_to_vector(expected)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)
