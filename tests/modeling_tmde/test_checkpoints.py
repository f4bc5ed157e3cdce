"""Folders that `save_pretrained` writes: opened by the Auto classes, with this package and, in a fresh process, by
remote code."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, PreTrainedModel

import tmde
from tests.conftest import save, tiny_model
from tests.modeling_tmde.families import BLOCKED, SEQ2SEQ, filled, padded
from tests.test_goldens import FAMILIES

# Opens every folder under "saved" and writes what it computes, knowing nothing but transformers.
WITHOUT_PACKAGE = (
    BLOCKED
    + """from pathlib import Path
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
results = {}
for folder in sorted(Path("saved").iterdir()):
    inputs = load_file(folder / "inputs.safetensors")
    names = AutoConfig.from_pretrained(folder, trust_remote_code=True).auto_map
    model = AutoModel.from_pretrained(folder, trust_remote_code=True)
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    results[f"{folder.name}/vectors"] = model(**inputs).pooler_output.detach().contiguous()
    whole = model
    if "AutoModelForSeq2SeqLM" in names:
        whole = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
        results[f"{folder.name}/written"] = whole.generate(**inputs, target_language="en", max_new_tokens=5)
    elif "AutoModelForMaskedLM" in names:
        whole = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=True)
        results[f"{folder.name}/logits"] = whole(**inputs).logits.detach().contiguous()
    whole.save_pretrained(f"again/{folder.name}")
    again = AutoModel.from_pretrained(f"again/{folder.name}", trust_remote_code=True)
    assert torch.equal(again(**inputs).pooler_output, results[f"{folder.name}/vectors"])
from sentence_transformers import SentenceTransformer
embedder = SentenceTransformer("texts", trust_remote_code=True, device="cpu")
results["texts/vectors"] = embedder.encode(["haus hund", "house"], convert_to_tensor=True)
assert not any(name.partition(".")[0] in ("modeling_tmde", "tmde") for name in sys.modules)
save_file(results, "results.safetensors")
"""
)


def auto_class_of(model: PreTrainedModel) -> type:
    names = {
        "AutoModelForSeq2SeqLM": AutoModelForSeq2SeqLM,
        "AutoModelForMaskedLM": AutoModelForMaskedLM,
    }
    return next((names[name] for name in model._auto_map if name in names), AutoModel)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("checkpoints")
    for family in FAMILIES:
        model = filled(family)
        model.save_pretrained(root / "saved" / family)
        save_file(padded(model=model), root / "saved" / family / "inputs.safetensors")
    return root


@pytest.mark.parametrize("family", FAMILIES)
def test_auto_classes_open_what_was_saved(family, saved):
    model, folder = filled(family), saved / "saved" / family
    inputs = padded(model=model)
    expected = model.base_model(**inputs).pooler_output
    whole, report = auto_class_of(model).from_pretrained(folder, output_loading_info=True)
    assert type(whole) is type(model) and not any(report.values()) and not whole.training
    for name, buffer in model.named_buffers():  # sinusoidal positions are not in the file
        assert torch.equal(whole.get_buffer(name), buffer), name
    encoder, report = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert (
        type(encoder) is type(model.base_model)
        and not report["missing_keys"]
        and not report["unexpected_keys"]
    )
    for opened in (whole.base_model, encoder):
        assert torch.equal(opened(**inputs).pooler_output, expected)
    modules = {name.partition(".")[0] for name in whole.config.auto_map.values()}
    assert {path.stem for path in folder.glob("*.py")} == modules | {"common"} and len(modules) == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_a_missing_weight_is_reported(family, tmp_path, monkeypatch, caplog):
    model = filled(family)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    lost, _ = weights.popitem()
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    _, report = auto_class_of(model).from_pretrained(tmp_path, output_loading_info=True)
    assert report["missing_keys"] == {lost} and lost in caplog.text and "MISSING" in caplog.text


@pytest.mark.parametrize("family", [*SEQ2SEQ, "encoder-mean"])
def test_an_encoder_saved_alone_opens_with_a_new_head_and_says_so(family, tmp_path):
    model = filled(family)
    model.base_model.save_pretrained(tmp_path)
    whole, report = auto_class_of(model).from_pretrained(tmp_path, output_loading_info=True)
    assert type(whole) is type(model) and not report["unexpected_keys"]
    new = {name.partition(".")[0] for name in report["missing_keys"]}
    assert (
        new
        and new <= {"decoder", "lm_head", "head"}
        and all(parameter.isfinite().all() for parameter in whole.parameters())
    )
    inputs = padded(model=model)
    assert torch.equal(
        whole.base_model(**inputs).pooler_output, model.base_model(**inputs).pooler_output
    )


@pytest.mark.slow
def test_remote_code_without_the_package(saved, tokenizer):
    """Every family, and sentence-transformers, in one fresh process."""
    pytest.importorskip("sentence_transformers")
    save(saved / "texts", tiny_model(), tokenizer)
    changes = {
        "HF_MODULES_CACHE": str(saved / "modules"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", WITHOUT_PACKAGE]
    process = subprocess.run(
        command, cwd=saved, env=os.environ | changes, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-3000:]
    results = load_file(saved / "results.safetensors")
    expected = tmde.DocumentEmbedder.from_pretrained(saved / "texts").encode(["haus hund", "house"])
    torch.testing.assert_close(
        results.pop("texts/vectors"), torch.from_numpy(expected), atol=1e-5, rtol=0
    )
    assert {name.partition("/")[0] for name in results} == set(FAMILIES)
    for family in FAMILIES:
        model = filled(family)
        inputs = padded(model=model)
        vectors = model.base_model(**inputs).pooler_output
        torch.testing.assert_close(results[f"{family}/vectors"], vectors, atol=1e-5, rtol=1e-5)
        if family in SEQ2SEQ:
            written = model.generate(**inputs, target_language="en", max_new_tokens=5)
            assert torch.equal(results[f"{family}/written"], written)
        again = AutoModel.from_pretrained(saved / "again" / family)  # here, with the package
        torch.testing.assert_close(again(**inputs).pooler_output, vectors, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("size", [66, 55])
@pytest.mark.parametrize("family", FAMILIES)
def test_resized_vocabulary_reaches_every_table(family, size, tmp_path):
    model = filled(family)
    inputs = padded(model=model)
    before = model.base_model(**inputs).pooler_output
    assert model.resize_token_embeddings(size) is model.get_input_embeddings()
    assert model.config.vocab_size == size
    for name, parameter in model.named_parameters():
        assert 60 not in parameter.shape, name
    torch.testing.assert_close(model.base_model(**inputs).pooler_output, before)
    model.save_pretrained(tmp_path)
    loaded = auto_class_of(model).from_pretrained(tmp_path)
    torch.testing.assert_close(loaded.base_model(**inputs).pooler_output, before)
    inputs["input_ids"][:, 1] = size - 1
    if family in SEQ2SEQ:
        labels = torch.tensor([[size - 1, 2]] * 4)
        loaded(**inputs, labels=labels, target_language="en").loss.backward()
        assert (
            loaded.lm_head.weight.grad[size - 1].any()
            and loaded.decoder.embed_tokens.weight.grad[size - 1].any()
        )
    assert loaded.base_model(**inputs).pooler_output.isfinite().all()


class Command:
    """A pickle that runs what it names when it is opened."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_nothing_of_a_strange_checkpoint_runs(tokenizer, tmp_path):
    ran, folder = tmp_path / "ran", save(tmp_path / "model", tiny_model(), tokenizer)
    for path in folder.glob("*.py"):
        path.write_text(f"import os\nos.mkdir({str(ran)!r})\n")
    # The installed code opens it, not that in the folder.
    tmde.DocumentEmbedder.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(Command(ran), folder / "pytorch_model.bin")
    with pytest.raises(Exception, match="[Ww]eights only"):
        tmde.DocumentEmbedder.from_pretrained(folder)
    assert not ran.exists()
