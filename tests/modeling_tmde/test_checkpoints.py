"""Folders that `save_pretrained` writes.

The Auto classes open them, with this package and, in a fresh process, by remote code.
"""

import inspect
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
from modeling_tmde.sentence_transformers_files import COMPANIONS
from tests.conftest import save, tiny_model
from tests.modeling_tmde.families import BLOCKED, SEQ2SEQ, filled, of_families, padded
from tests.test_goldens import FAMILIES

FILES_OF_ALL = ["common", "inspection", "sentence_transformers_files"]
# The files that each family shares with some others.
SHARED_FILES = {
    "tmde": ["bags", "seq2seq", "transformer"],
    "tmde_adapted": ["bags", "seq2seq", "transformer"],
    "tmde_aligned": ["bags", "configuration_bag", "configuration_laser", "recurrent"],
    "tmde_bag": ["bags"],
    "tmde_encoder": ["transformer"],
    "tmde_laser": ["recurrent", "seq2seq"],
    "tmde_ntdv": ["configuration_laser", "recurrent", "seq2seq"],
}
# Opens every folder under "saved" and writes what it computes, knowing nothing but transformers.
WITHOUT_PACKAGE = (
    BLOCKED
    + f"COMPANIONS = {COMPANIONS}"
    + """
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

results = {}
for folder in sorted(Path("saved").iterdir()):
    name = folder.name
    inputs = load_file(folder / "inputs.safetensors")
    auto_map = AutoConfig.from_pretrained(folder, trust_remote_code=True).auto_map
    model = AutoModel.from_pretrained(folder, trust_remote_code=True)
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    vectors = model(**inputs).pooler_output.detach().contiguous()
    results[f"{name}/vectors"] = vectors
    whole = model
    if "AutoModelForSeq2SeqLM" in auto_map:
        whole = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
        written = whole.generate(**inputs, target_language="en", max_new_tokens=5)
        results[f"{name}/written"] = written
    elif "AutoModelForMaskedLM" in auto_map:
        whole = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=True)
        results[f"{name}/logits"] = whole(**inputs).logits.detach().contiguous()
    whole.save_pretrained(f"again/{name}")
    again = AutoModel.from_pretrained(f"again/{name}", trust_remote_code=True)
    torch.testing.assert_close(again(**inputs).pooler_output, vectors, atol=1e-7, rtol=1e-6)
    # Without these files, sentence-transformers would take the mean of the outputs.
    for companion in COMPANIONS:
        assert Path("again", name, companion).read_text() == (folder / companion).read_text()
embedder = SentenceTransformer("texts", trust_remote_code=True, device="cpu")
results["texts/vectors"] = embedder.encode(["haus hund", "house"], convert_to_tensor=True)
imported = {name.partition(".")[0] for name in sys.modules}
assert imported.isdisjoint({"modeling_tmde", "tmde"})
save_file(results, "results.safetensors")
"""
)


def auto_class_of(model: PreTrainedModel) -> type:
    """The Auto class of the whole model of a family: with its decoder or head, if it has one."""
    if "AutoModelForSeq2SeqLM" in model._auto_map:
        return AutoModelForSeq2SeqLM
    if "AutoModelForMaskedLM" in model._auto_map:
        return AutoModelForMaskedLM
    return AutoModel


def assert_same_weights(model: PreTrainedModel, expected: PreTrainedModel) -> None:
    for name, parameter in expected.named_parameters():
        assert torch.equal(model.get_parameter(name), parameter), name
    for name, buffer in expected.named_buffers():  # Sinusoidal positions are not in the file.
        assert torch.equal(model.get_buffer(name), buffer), name


def assert_same_vectors(model: PreTrainedModel, expected: PreTrainedModel) -> None:
    """The vectors are equal but for the last bit.

    Opened weights lie in memory as they lie in the file, not at multiples of 64 bytes. Matrix
    products then may add in another order: with NTDV, vectors of size 0.1 differ by 2e-9.
    """
    inputs = padded(model=expected)
    torch.testing.assert_close(
        model.base_model(**inputs).pooler_output,
        expected.base_model(**inputs).pooler_output,
        atol=1e-7,
        rtol=1e-6,
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("checkpoints")
    for family in FAMILIES:
        model = filled(family)
        model.save_pretrained(root / "saved" / family)
        save_file(padded(model=model), root / "saved" / family / "inputs.safetensors")
    return root


@of_families(FAMILIES)
def test_auto_classes_open_the_whole_model(family, saved):
    expected = filled(family)
    opened, report = auto_class_of(expected).from_pretrained(
        saved / "saved" / family, output_loading_info=True
    )
    assert type(opened) is type(expected)
    assert not any(report.values())
    assert not opened.training
    assert_same_weights(opened, expected)
    assert_same_vectors(opened, expected)


@of_families(FAMILIES)
def test_auto_model_opens_the_encoder_of_every_checkpoint(family, saved):
    expected = filled(family)
    opened, report = AutoModel.from_pretrained(saved / "saved" / family, output_loading_info=True)
    assert type(opened) is type(expected.base_model)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert_same_weights(opened, expected.base_model)
    assert_same_vectors(opened, expected)


@of_families(FAMILIES)
def test_the_inputs_of_every_encoder_have_one_order(family):
    names = list(inspect.signature(filled(family).base_model.forward).parameters)
    assert names[:3] == ["input_ids", "attention_mask", "inputs_embeds"]
    assert names[-2:] == ["pooled_only", "kwargs"]


@of_families(FAMILIES)
def test_a_checkpoint_carries_the_code_that_it_needs(family, saved):
    """Its configuration, its modeling file, and what these share with other families."""
    own_files = set()
    for class_path in filled(family)._auto_map.values():
        own_files.add(class_path.partition(".")[0])
    assert len(own_files) == 2
    shared_files = SHARED_FILES[filled(family).config.model_type]
    expected = own_files | {*FILES_OF_ALL, *shared_files}
    assert {path.stem for path in (saved / "saved" / family).glob("*.py")} == expected


@of_families(FAMILIES)
def test_a_missing_weight_is_reported(family, tmp_path, monkeypatch, caplog):
    model = filled(family)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    lost, _ = weights.popitem()
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    _, report = auto_class_of(model).from_pretrained(tmp_path, output_loading_info=True)
    assert report["missing_keys"] == {lost}
    assert lost in caplog.text
    assert "MISSING" in caplog.text


@of_families([*SEQ2SEQ, "encoder-mean"])
def test_an_encoder_saved_alone_opens_with_a_new_head_and_says_so(family, tmp_path):
    model = filled(family)
    model.base_model.save_pretrained(tmp_path)
    opened, report = auto_class_of(model).from_pretrained(tmp_path, output_loading_info=True)
    assert type(opened) is type(model)
    assert not report["unexpected_keys"]
    new_parts = {name.partition(".")[0] for name in report["missing_keys"]}
    assert new_parts
    assert new_parts <= {"decoder", "lm_head", "head"}
    for name, parameter in opened.named_parameters():
        assert parameter.isfinite().all(), name
    assert_same_vectors(opened, model)


def test_remote_code_without_the_package(saved, tokenizer):
    """Every family, and sentence-transformers, in one fresh process."""
    pytest.importorskip("sentence_transformers")
    save(saved / "texts", tiny_model(), tokenizer)
    environment = os.environ | {
        "HF_MODULES_CACHE": str(saved / "modules"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", WITHOUT_PACKAGE]
    process = subprocess.run(command, cwd=saved, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    results = load_file(saved / "results.safetensors")
    embedder = tmde.DocumentEmbedder.from_pretrained(saved / "texts")
    expected = torch.from_numpy(embedder.encode(["haus hund", "house"]))
    torch.testing.assert_close(results.pop("texts/vectors"), expected, atol=1e-5, rtol=0)
    assert {name.partition("/")[0] for name in results} == set(FAMILIES)
    for family in FAMILIES:
        model = filled(family)
        inputs = padded(model=model)
        vectors = model.base_model(**inputs).pooler_output
        torch.testing.assert_close(results[f"{family}/vectors"], vectors, atol=1e-5, rtol=1e-5)
        if family in SEQ2SEQ:
            written = model.generate(**inputs, target_language="en", max_new_tokens=5)
            assert torch.equal(results[f"{family}/written"], written)
        again = AutoModel.from_pretrained(saved / "again" / family)  # Here, with the package.
        torch.testing.assert_close(again(**inputs).pooler_output, vectors, atol=1e-5, rtol=1e-5)


SIZES = pytest.mark.parametrize("size", [66, 55])  # The models have 60 tokens.


@SIZES
@of_families(FAMILIES)
def test_resized_vocabulary_reaches_every_table(family, size):
    model = filled(family)
    inputs = padded(model=model)
    before = model.base_model(**inputs).pooler_output
    table = model.resize_token_embeddings(size)
    assert table is model.get_input_embeddings()
    assert model.config.vocab_size == size
    for name, parameter in model.named_parameters():
        assert 60 not in parameter.shape, name
    torch.testing.assert_close(model.base_model(**inputs).pooler_output, before)


@SIZES
@of_families(FAMILIES)
def test_resized_vocabulary_is_saved(family, size, tmp_path):
    model = filled(family)
    inputs = padded(model=model)
    before = model.base_model(**inputs).pooler_output
    model.resize_token_embeddings(size)
    model.save_pretrained(tmp_path)
    opened = auto_class_of(model).from_pretrained(tmp_path)
    torch.testing.assert_close(opened.base_model(**inputs).pooler_output, before)
    inputs["input_ids"][:, 1] = size - 1
    assert opened.base_model(**inputs).pooler_output.isfinite().all()


@SIZES
@of_families(SEQ2SEQ)
def test_decoder_learns_the_last_token_of_a_resized_vocabulary(family, size):
    model = filled(family)
    model.resize_token_embeddings(size)
    labels = torch.tensor([[size - 1, 2]] * 4)
    model(**padded(model=model), labels=labels, target_language="en").loss.backward()
    assert model.lm_head.weight.grad[size - 1].any()
    assert model.decoder.embed_tokens.weight.grad[size - 1].any()


class Command:
    """A pickle that runs what it names when it is opened."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_nothing_of_a_strange_checkpoint_runs(tokenizer, tmp_path):
    ran = tmp_path / "ran"
    folder = save(tmp_path / "model", tiny_model(), tokenizer)
    for path in folder.glob("*.py"):
        path.write_text(f"import os\nos.mkdir({str(ran)!r})\n")
    # The installed code opens it, not that in the folder.
    tmde.DocumentEmbedder.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(Command(ran), folder / "pytorch_model.bin")
    with pytest.raises(Exception, match="[Ww]eights only"):
        tmde.DocumentEmbedder.from_pretrained(folder)
    assert not ran.exists()
