"""PEFT adapts every family: it trains, saves, opens again and merges."""

import stat

import pytest
import torch
from torch import nn
from transformers import (
    AutoModel,
    DataCollatorForSeq2Seq,
    PreTrainedModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from modeling_tmde import LaserConfig, LaserModel
from tests.conftest import tiny_model
from tests.modeling_tmde.families import filled, of_families, padded
from tests.modeling_tmde.test_checkpoints import auto_class_of
from tests.test_goldens import FAMILIES

peft = pytest.importorskip("peft", reason="peft is not installed")

LABELS = torch.tensor([[12, 13, 2, -100]] * 4)
TEXTS = ["haus hund", "katze", "baum fluss stadt", "haus"]
TARGETS = ["house dog", "cat", "tree river town", "house"]


def lora(model: PreTrainedModel) -> "peft.LoraConfig":
    """Return a LoRA, with random weights, of all layers that have no tied weights."""
    is_tied = getattr(model.config, "tie_word_embeddings", False)
    layers = []
    for name, layer in model.named_modules():
        is_table = layer in (model.get_input_embeddings(), model.get_output_embeddings())
        is_decoder_table = name == "decoder.embed_tokens"
        if is_tied and (is_table or is_decoder_table):
            continue
        if type(layer) in (nn.Linear, nn.Embedding, nn.Conv1d):
            layers.append(name.removeprefix("model."))
    return peft.LoraConfig(r=2, target_modules=layers, init_lora_weights=False)


def learned_from(model: nn.Module, inputs: dict[str, torch.Tensor]) -> set[str]:
    """Return the names of the weights that get a gradient from one batch."""
    outputs = model(**inputs)
    if "loss" in outputs:
        outputs.loss.backward()
    else:
        vectors = outputs.logits if "logits" in outputs else outputs.pooler_output
        vectors.square().sum().backward()
    names = set()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and parameter.grad.any():
            names.add(name)
    return names


def training_inputs(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    inputs = padded(model=model)
    if hasattr(model, "decoder"):
        # Every decoder of NTDV has a text to write.
        inputs |= {"labels": LABELS, "target_language": torch.tensor([0, 1, 0, 1])}
    return inputs


def vectors_of(model: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        return model.base_model(**padded(model=model)).pooler_output


@pytest.fixture
def opened(family, tmp_path) -> PreTrainedModel:
    """A model that was opened from a folder, where an adapter finds its base again."""
    expected = filled(family)
    expected.save_pretrained(tmp_path / "base")
    return auto_class_of(expected).from_pretrained(tmp_path / "base")


@of_families(FAMILIES)
def test_every_adapted_layer_learns(family):
    model = filled(family)
    model.add_adapter(lora(model))
    adapters = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert adapters
    assert learned_from(model, training_inputs(model)) == adapters


@of_families(FAMILIES)
def test_an_added_adapter_is_saved_and_opened(family, opened, tmp_path):
    before = vectors_of(opened)
    opened.add_adapter(lora(opened))
    after = vectors_of(opened)
    assert (after - before).abs().max() > 1e-2
    opened.save_pretrained(tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "config.json").exists()
    weights = tmp_path / "adapter" / "adapter_model.safetensors"
    config = tmp_path / "adapter" / "adapter_config.json"
    assert stat.S_IMODE(weights.stat().st_mode) == stat.S_IMODE(config.stat().st_mode)

    whole = auto_class_of(opened).from_pretrained(tmp_path / "adapter")
    torch.testing.assert_close(vectors_of(whole), after, atol=1e-6, rtol=1e-5)
    encoder = AutoModel.from_pretrained(tmp_path / "adapter")
    torch.testing.assert_close(vectors_of(encoder), after, atol=1e-6, rtol=1e-5)


@of_families(FAMILIES)
def test_an_adapted_model_is_saved_opened_and_merged(family, opened, tmp_path):
    tuned = peft.get_peft_model(opened, lora(opened))
    expected = vectors_of(tuned.get_base_model().eval())
    tuned.save_pretrained(tmp_path / "adapter")

    base = auto_class_of(opened).from_pretrained(tmp_path / "base")
    again = peft.PeftModel.from_pretrained(base, tmp_path / "adapter")
    torch.testing.assert_close(vectors_of(again.get_base_model()), expected)
    merged = again.merge_and_unload()
    torch.testing.assert_close(vectors_of(merged), expected, atol=1e-5, rtol=1e-4)
    merged.save_pretrained(tmp_path / "merged")
    saved = AutoModel.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(vectors_of(saved), expected, atol=1e-5, rtol=1e-4)


def test_convolutions_are_adapted():
    config = LaserConfig(vocab_size=60, d_model=16, embedding_dim=12, encoder_layers=2, cell="conv")
    model = LaserModel(config).eval()
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["layers.0"], init_lora_weights=False))
    assert learned_from(model, padded()) == {
        "layers.0.lora_A.default.weight",
        "layers.0.lora_B.default.weight",
    }


# ---- Trainers


@pytest.fixture
def features(tokenizer) -> list[dict]:
    rows = []
    for text, target in zip(TEXTS, TARGETS, strict=True):
        rows.append(dict(tokenizer(text, text_target=target)) | {"target_language": 1})
    return rows


def trainer_of(model, base, features, tokenizer, folder, steps: int) -> Seq2SeqTrainer:
    """Return a trainer of transformers that saves every step.

    Args:
        model: The model, perhaps in a PEFT model.
        base: The model of this package, for the collator.
        features: The rows.
        tokenizer: The tokenizer of the rows.
        folder: The folder of the checkpoints.
        steps: The number of steps.
    """
    arguments = Seq2SeqTrainingArguments(
        folder,
        max_steps=steps,
        save_steps=1,
        per_device_train_batch_size=2,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        # A PEFT model hides the signature of the model that it adapts.
        remove_unused_columns=False,
    )
    collator = DataCollatorForSeq2Seq(tokenizer, model=base)
    return Seq2SeqTrainer(model, arguments, data_collator=collator, train_dataset=features)


def test_a_trainer_saves_an_added_adapter(features, tokenizer, tmp_path):
    model = tiny_model()
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    trainer_of(model, model, features, tokenizer, tmp_path, steps=1).train()
    assert (tmp_path / "checkpoint-1" / "adapter_model.safetensors").exists()


def test_a_peft_model_trains_resumes_and_writes(features, tokenizer, tmp_path):
    model = tiny_model()
    config = peft.LoraConfig(
        task_type="SEQ_2_SEQ_LM", r=2, target_modules=["v_proj", "fc1"], init_lora_weights=False
    )
    tuned = peft.get_peft_model(model, config)
    trainer_of(tuned, model, features, tokenizer, tmp_path, steps=1).train()
    trainer = trainer_of(tuned, model, features, tokenizer, tmp_path, steps=2)
    assert trainer.train(resume_from_checkpoint=True).global_step == 2
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    written = tuned.generate(**inputs, target_language="en", max_new_tokens=4)
    merged = tuned.merge_and_unload()
    assert torch.equal(merged.generate(**inputs, target_language="en", max_new_tokens=4), written)
