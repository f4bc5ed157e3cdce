"""T-MDE with a classifier of documents or of tokens: logits, losses, checkpoints, training."""

import logging
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    pipeline,
)

from modeling_tmde import TmdeForSequenceClassification, TmdeForTokenClassification
from tests.conftest import BOTTLENECKS, WORDS, jittered, make_rows, save, tiny_config, tiny_model
from tests.modeling_tmde.families import BLOCKED, padded, trained_step
from tests.modeling_tmde.test_modeling_encoder import (
    BATCH_SIZES,
    KINDS_OF_LABELS,
    gradient_of,
    loss_of_one_text,
)

HEADS = {
    AutoModelForSequenceClassification: TmdeForSequenceClassification,
    AutoModelForTokenClassification: TmdeForTokenClassification,
}
BOTH_HEADS = pytest.mark.parametrize("auto_class", HEADS)
ROW = [0, 9, 14, 33, 2]


def make_head(head_class, **changes):
    torch.manual_seed(0)
    return jittered(head_class(tiny_config(**({"num_labels": 3} | changes))).eval())


def set_classifier(model, weight: torch.Tensor, bias: list[float]) -> None:
    with torch.no_grad():
        model.classifier.weight.copy_(weight)
        model.classifier.bias.copy_(torch.tensor(bias))


# ---- Logits and losses


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_logits_are_a_linear_map_of_the_outputs(bottleneck):
    inputs = padded()
    tagger = make_head(TmdeForTokenClassification, bottleneck=bottleneck)
    outputs = tagger.model(**inputs)
    weight = tagger.classifier.weight
    bias = tagger.classifier.bias
    logits = tagger(**inputs).logits
    for text, row in enumerate(inputs["input_ids"]):
        for place in range(len(row)):
            expected = weight @ outputs.last_hidden_state[text, place] + bias
            torch.testing.assert_close(logits[text, place], expected, atol=1e-5, rtol=1e-5)

    classifier = make_head(TmdeForSequenceClassification, bottleneck=bottleneck)
    embeddings = classifier.model(**inputs).pooler_output
    logits = classifier(**inputs).logits
    for text, embedding in enumerate(embeddings):
        expected = classifier.classifier.weight @ embedding + classifier.classifier.bias
        torch.testing.assert_close(logits[text], expected, atol=1e-5, rtol=1e-5)


def test_token_loss_is_the_mean_over_labeled_tokens():
    """The classifier says 1/6, 2/6, 3/6 at every token."""
    model = make_head(TmdeForTokenClassification)
    set_classifier(model, torch.zeros(3, 32), [math.log(1), math.log(2), math.log(3)])
    labels = torch.tensor([[-100, 0, 2, 1, -100]])
    loss = model(torch.tensor([ROW]), labels=labels).loss
    expected = (math.log(6) + math.log(2) + math.log(3)) / 3
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    loss = model(torch.tensor([ROW]), labels=labels, num_items_in_batch=12).loss
    assert loss.item() == pytest.approx(expected * 3 / 12, rel=1e-6)


def test_document_loss_of_every_kind_of_labels():
    """The logits are log 1, log 2, log 3 or, with one label, 2."""
    inputs = torch.tensor([ROW, ROW])

    model = make_head(TmdeForSequenceClassification)
    set_classifier(model, torch.zeros(3, 32), [math.log(1), math.log(2), math.log(3)])
    loss = model(inputs, labels=torch.tensor([0, 2])).loss
    assert loss.item() == pytest.approx((math.log(6) + math.log(2)) / 2, rel=1e-6)
    assert model.config.problem_type == "single_label_classification"

    model = make_head(TmdeForSequenceClassification, num_labels=1)
    set_classifier(model, torch.zeros(1, 32), [2.0])
    loss = model(inputs, labels=torch.tensor([1.0, -1.0])).loss
    assert loss.item() == pytest.approx((1 + 9) / 2)
    assert model.config.problem_type == "regression"

    # Chances of 1/2, 2/3 and 3/4.
    model = make_head(TmdeForSequenceClassification)
    set_classifier(model, torch.zeros(3, 32), [math.log(1), math.log(2), math.log(3)])
    loss = model(inputs, labels=torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])).loss
    first = math.log(2) + math.log(3) + math.log(4 / 3)
    second = math.log(2) + math.log(3 / 2) + math.log(4)
    assert loss.item() == pytest.approx((first + second) / 6, rel=1e-6)
    assert model.config.problem_type == "multi_label_classification"


@BOTH_HEADS
def test_the_classifier_reads_outputs_through_dropout(auto_class):
    """With the identity as classifier, a logit is an output times 0 or 1 / (1 - 0.25)."""
    model = make_head(HEADS[auto_class], num_labels=32, dropout=0.25)
    set_classifier(model, torch.eye(32), [0.0] * 32)
    inputs = padded()
    outputs = model(**inputs).logits
    model.dropout.train()
    logits = model(**inputs).logits
    is_dropped = logits == 0
    assert 0.1 < is_dropped.float().mean() < 0.4
    torch.testing.assert_close(logits[~is_dropped], outputs[~is_dropped] / 0.75)


# ---- Batches


@BOTH_HEADS
@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_logits_do_not_depend_on_the_batch(auto_class, bottleneck, side):
    model = make_head(HEADS[auto_class], bottleneck=bottleneck)
    batch = padded(side=side, extra=3)
    logits = model(**batch).logits
    is_token = batch["attention_mask"].bool()
    for number, row in enumerate(batch["input_ids"]):
        token_ids = row[is_token[number]]
        alone = model(token_ids[None]).logits[0]
        together = logits[number]
        if auto_class is AutoModelForTokenClassification:
            together = together[is_token[number]]
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


@BATCH_SIZES
@pytest.mark.parametrize("kind", KINDS_OF_LABELS)
def test_accumulated_batches_of_documents(kind, batch_size, tokenizer, tmp_path):
    labels = KINDS_OF_LABELS[kind]
    model = make_head(
        TmdeForSequenceClassification,
        num_labels=labels.num_labels,
        problem_type=labels.problem_type,
    )
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
def test_accumulated_batches_of_tokens(batch_size, tokenizer, tmp_path):
    """Texts have two to nine labeled tokens, so the batches have different numbers of them."""
    model = make_head(TmdeForTokenClassification)
    features = []
    losses = []
    for row in range(8):
        tokens = list(range(10, 12 + row))
        labels = [token % 3 for token in tokens]
        features.append({"input_ids": [0, *tokens, 2], "labels": [-100, *labels, -100]})
        scores = model(torch.tensor([[0, *tokens, 2]])).logits[0].log_softmax(-1)
        for place, label in enumerate(labels, start=1):
            losses.append(-scores[place, label])
    expected = gradient_of(sum(losses) / len(losses), model)
    collator = DataCollatorForTokenClassification(tokenizer)
    gradient = trained_step(model, features, collator, tmp_path, batch_size)
    torch.testing.assert_close(gradient, expected, atol=1e-5, rtol=1e-3)


@BOTH_HEADS
def test_gradient_checkpointing_gives_the_same_gradients(auto_class):
    inputs = padded()
    labels = inputs["input_ids"] % 3
    if auto_class is AutoModelForSequenceClassification:
        labels = labels[:, 1]
    gradients = []
    for is_checkpointed in (False, True):
        model = make_head(HEADS[auto_class]).train()
        if is_checkpointed:
            model.gradient_checkpointing_enable()
            assert all(layer.gradient_checkpointing for layer in model.model.layers)
        model(**inputs, labels=labels).loss.backward()
        gradients.append(nn.utils.parameters_to_vector(p.grad for p in model.parameters()))
    torch.testing.assert_close(gradients[1], gradients[0])


# ---- Checkpoints


@BOTH_HEADS
@pytest.mark.parametrize("changes", [{}, {"bag_residual": True, "share_embeddings": True}])
def test_a_pretrained_checkpoint_opens_with_a_new_classifier_and_says_so(
    auto_class, changes, tmp_path, monkeypatch, caplog
):
    pretrained = tiny_model(bottleneck="dual", **changes)
    pretrained.save_pretrained(tmp_path)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    model, report = auto_class.from_pretrained(tmp_path, num_labels=5, output_loading_info=True)
    assert type(model) is HEADS[auto_class]
    assert report["missing_keys"] == {"classifier.weight", "classifier.bias"}
    assert not report["unexpected_keys"]
    assert "classifier.weight" in caplog.text
    assert "MISSING" in caplog.text
    for name, parameter in pretrained.model.named_parameters():
        assert torch.equal(model.model.get_parameter(name), parameter), name
    assert model.classifier.weight.shape == (5, 32)
    assert model.classifier.weight.std() > 0
    assert torch.equal(model.classifier.bias, torch.zeros(5))


@BOTH_HEADS
def test_a_classifier_is_still_an_embedder(auto_class, tmp_path):
    model = make_head(HEADS[auto_class], bottleneck="pyramid")
    model.save_pretrained(tmp_path)
    encoder, report = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not report["missing_keys"]
    expected = model.model(**padded()).pooler_output
    torch.testing.assert_close(encoder(**padded()).pooler_output, expected, atol=1e-6, rtol=1e-6)


@BOTH_HEADS
def test_a_decoder_of_a_classifier_is_new(auto_class, tmp_path):
    make_head(HEADS[auto_class]).save_pretrained(tmp_path)
    _, report = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    new_parts = {name.partition(".")[0] for name in report["missing_keys"]}
    assert new_parts == {"decoder", "lm_head"}


REMOTE = (
    BLOCKED
    + """
import transformers
from safetensors.torch import load_file, save_file

inputs = load_file("inputs.safetensors")
logits = {}
for name in sys.argv[1:]:
    auto_class = getattr(transformers, name)
    model, report = auto_class.from_pretrained(
        name, trust_remote_code=True, output_loading_info=True
    )
    assert not any(report.values()), report
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    logits[name] = model(**inputs).logits.detach().contiguous()
    model.save_pretrained(f"again/{name}")
save_file(logits, "logits.safetensors")
"""
)


@pytest.mark.nightly
def test_classifiers_open_in_a_fresh_interpreter_without_the_package(tmp_path):
    inputs = padded()
    save_file(inputs, tmp_path / "inputs.safetensors")
    names = []
    for auto_class, head_class in HEADS.items():
        names.append(auto_class.__name__)
        make_head(head_class, bottleneck="dual").save_pretrained(tmp_path / auto_class.__name__)
    environment = os.environ | {
        "HF_MODULES_CACHE": str(tmp_path / "modules"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", REMOTE, *names]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    logits = load_file(tmp_path / "logits.safetensors")
    for auto_class, head_class in HEADS.items():
        expected = make_head(head_class, bottleneck="dual")(**inputs).logits
        torch.testing.assert_close(logits[auto_class.__name__], expected, atol=1e-5, rtol=1e-5)
        again = auto_class.from_pretrained(tmp_path / "again" / auto_class.__name__)
        assert type(again) is head_class
        torch.testing.assert_close(again(**inputs).logits, expected, atol=1e-5, rtol=1e-5)


# ---- Training with transformers' own Trainer

TAGS = ["FIRST", "ANIMAL", "OTHER"]


def tagged_sentences() -> list[tuple[list[str], list[int]]]:
    """Words and their tags. The first word has a tag of its own, so that position matters."""
    sentences = []
    for row in make_rows(48, languages=("en",)):
        words = row["en"].split()
        tags = [0]
        for word in words[1:]:
            tags.append(1 if word in ("dog", "cat") else 2)
        sentences.append((words, tags))
    return sentences


def test_the_trainer_of_transformers_trains_a_tagger(tokenizer, tmp_path):
    save(tmp_path / "start", tiny_model(bottleneck="dual"), tokenizer)
    model = AutoModelForTokenClassification.from_pretrained(
        tmp_path / "start",
        num_labels=3,
        id2label=dict(enumerate(TAGS)),
        label2id={tag: number for number, tag in enumerate(TAGS)},
    )
    rows = []
    for words, tags in tagged_sentences():
        spaced_words = [words[0], *(f" {word}" for word in words[1:])]
        tokens = tokenizer(spaced_words, is_split_into_words=True)
        assert tokens["input_ids"] == tokenizer(" ".join(words))["input_ids"]
        labels = []
        word_before = None
        for word in tokens.word_ids():
            is_first_token = word is not None and word != word_before
            labels.append(tags[word] if is_first_token else -100)
            word_before = word
        rows.append({**tokens, "labels": labels})
    arguments = TrainingArguments(
        tmp_path / "run",
        learning_rate=1e-2,
        max_steps=60,
        seed=1,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=DataCollatorForTokenClassification(tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    predictions = trainer.predict(rows)
    is_labeled = predictions.label_ids != -100
    predicted = predictions.predictions.argmax(axis=-1)
    accuracy = np.mean(predicted[is_labeled] == predictions.label_ids[is_labeled])
    assert accuracy > 0.95
    # The majority's share, for comparison.
    assert np.mean(predictions.label_ids[is_labeled] == 2) < 0.8

    trainer.save_model(tmp_path / "tagger")
    tag = pipeline("token-classification", model=str(tmp_path / "tagger"))
    assert type(tag.model) is TmdeForTokenClassification
    tags = {token["entity"] for token in tag(" ".join(WORDS["en"]))}
    assert tags <= set(TAGS)
    assert "ANIMAL" in tags
