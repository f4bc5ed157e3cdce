"""Folders that `save_pretrained` writes: opened by the Auto classes, with this package installed and without it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from modeling_tmde import TmdeForConditionalGeneration, TmdeModel
from modeling_tmde.configuration_tmde import BOTTLENECKS
from tests.conftest import make_rows, tiny_config, tiny_model

VARIANTS = [(bottleneck, shared) for bottleneck in BOTTLENECKS for shared in (False, True)]
TEXTS = [row[language] for row in make_rows(3, seed=5) for language in ("de", "fr")]
AUTO_MAP = {
    "AutoConfig": "configuration_tmde.TmdeConfig",
    "AutoModel": "modeling_tmde.TmdeModel",
    "AutoModelForSeq2SeqLM": "modeling_tmde.TmdeForConditionalGeneration",
}

# Opens every folder under argv[1] and writes what it computes to argv[2], knowing nothing but transformers.
FRESH_INTERPRETER = """
import sys
if "--without-package" in sys.argv:
    class Blocker:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "modeling_tmde":
                raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)
    sys.meta_path.insert(0, Blocker())
    try:
        import modeling_tmde
    except ModuleNotFoundError:
        pass
    else:
        sys.exit("modeling_tmde is not blocked")
    options = {"trust_remote_code": True}
else:
    import modeling_tmde
    options = {}
from pathlib import Path
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
root, output, texts = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3].split("|")
results = {}
for folder in sorted(path for path in root.iterdir() if path.is_dir()):
    config = AutoConfig.from_pretrained(folder, **options)
    assert type(config).__name__ == "TmdeConfig", type(config)
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    encoder = AutoModel.from_pretrained(folder, **options).eval()
    whole = AutoModelForSeq2SeqLM.from_pretrained(folder, **options).eval()
    module = type(whole).__module__
    assert module.startswith("transformers_modules." if options else "modeling_tmde."), module
    with torch.no_grad():
        results[f"{folder.name}/ids"] = inputs["input_ids"]
        results[f"{folder.name}/encoder"] = encoder(**inputs).pooler_output.clone()
        results[f"{folder.name}/whole"] = whole.get_encoder()(**inputs).pooler_output.clone()
        results[f"{folder.name}/positions"] = encoder.embed_positions.weight.clone()
        results[f"{folder.name}/generated"] = whole.generate(
            **inputs, target_language="en", max_new_tokens=8, do_sample=False
        )
    again = output.parent / f"{output.stem}_again" / folder.name
    whole.save_pretrained(again)
    tokenizer.save_pretrained(again)
    reloaded = AutoModelForSeq2SeqLM.from_pretrained(again, **options).eval()
    with torch.no_grad():
        results[f"{folder.name}/again"] = reloaded.get_encoder()(**inputs).pooler_output.clone()
if "--without-package" in sys.argv:
    assert not any(name.partition(".")[0] == "modeling_tmde" for name in sys.modules)
save_file({key: value.contiguous() for key, value in results.items()}, output)
"""


def variant_name(bottleneck: str, shared: bool) -> str:
    return f"{bottleneck}-{'shared' if shared else 'separate'}"


def jittered_model(**changes) -> TmdeForConditionalGeneration:
    """A model none of whose parameters has its initial value, so that one left out of a file is noticed."""
    model = tiny_model(**changes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


@pytest.fixture(scope="module")
def models() -> dict[str, TmdeForConditionalGeneration]:
    return {
        variant_name(bottleneck, shared): jittered_model(bottleneck=bottleneck, share_embeddings=shared)
        for bottleneck, shared in VARIANTS
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory, models, tokenizer) -> Path:
    root = tmp_path_factory.mktemp("saved")
    for name, model in models.items():
        model.save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    return root


@pytest.fixture(scope="module")
def expected(models, tokenizer) -> dict[str, torch.Tensor]:
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    results = {}
    for name, model in models.items():
        with torch.no_grad():
            results[f"{name}/vectors"] = model.get_encoder()(**inputs).pooler_output
            results[f"{name}/generated"] = model.generate(
                **inputs, target_language="en", max_new_tokens=8, do_sample=False
            )
    return results


def run_fresh(root: Path, folder: Path, *flags: str) -> dict[str, torch.Tensor]:
    output = folder / "results.safetensors"
    environment = os.environ | {
        "HF_MODULES_CACHE": str(folder / "modules"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", FRESH_INTERPRETER, str(root), str(output), "|".join(TEXTS), *flags]
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr[-4000:]
    return load_file(output)


@pytest.fixture(scope="module")
def with_package(saved, tmp_path_factory) -> dict[str, torch.Tensor]:
    return run_fresh(saved, tmp_path_factory.mktemp("with_package"))


@pytest.fixture(scope="module")
def without_package(saved, tmp_path_factory) -> tuple[Path, dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("without_package")
    return folder, run_fresh(saved, folder, "--without-package")


# ---- In this process


@pytest.mark.parametrize(("bottleneck", "shared"), VARIANTS)
def test_both_auto_classes_give_identical_vectors(bottleneck, shared, saved, expected, tokenizer):
    name = variant_name(bottleneck, shared)
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    encoder = AutoModel.from_pretrained(saved / name)
    whole = AutoModelForSeq2SeqLM.from_pretrained(saved / name)
    assert type(encoder) is TmdeModel and type(whole) is TmdeForConditionalGeneration
    assert not encoder.training and not whole.training
    with torch.no_grad():
        assert torch.equal(encoder(**inputs).pooler_output, expected[f"{name}/vectors"])
        assert torch.equal(whole.get_encoder()(**inputs).pooler_output, expected[f"{name}/vectors"])
    generated = whole.generate(**inputs, target_language="en", max_new_tokens=8, do_sample=False)
    assert torch.equal(generated, expected[f"{name}/generated"])


@pytest.mark.parametrize(("bottleneck", "shared"), VARIANTS)
def test_every_parameter_survives_and_nothing_is_reported_missing(bottleneck, shared, saved, models):
    name = variant_name(bottleneck, shared)
    for auto_class in (AutoModel, AutoModelForSeq2SeqLM):
        loaded, report = auto_class.from_pretrained(saved / name, output_loading_info=True)
        assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
        original = models[name] if auto_class is AutoModelForSeq2SeqLM else models[name].model
        state = original.state_dict()
        assert set(loaded.state_dict()) == set(state)
        for key, value in loaded.state_dict().items():
            assert torch.equal(value, state[key]), key


def test_a_file_without_a_parameter_is_noticed(saved, tmp_path):
    """The test above can fail: `missing_keys` says which parameter a file lacks."""
    shutil.copytree(saved / "pyramid-separate", tmp_path / "cut")
    tensors = load_file(tmp_path / "cut" / "model.safetensors")
    del tensors["model.pyramid_queries"]
    save_file(tensors, tmp_path / "cut" / "model.safetensors", metadata={"format": "pt"})
    _, report = AutoModel.from_pretrained(tmp_path / "cut", output_loading_info=True)
    assert set(report["missing_keys"]) == {"pyramid_queries"}


def sinusoids(length: int, width: int) -> torch.Tensor:
    """Vaswani et al. 2017 with sines in the first half, as fairseq and Marian have them; from complex exponentials."""
    half = width // 2
    rates = torch.logspace(0, -4, half, dtype=torch.float64)  # 1 ... 1/10000
    circle = torch.polar(
        torch.ones(length, half, dtype=torch.float64), torch.arange(length, dtype=torch.float64)[:, None] * rates
    )
    return torch.cat([circle.imag, circle.real], dim=1).float()


def test_sinusoidal_positions_survive_loading(saved):
    table = sinusoids(128, 32)
    whole = AutoModelForSeq2SeqLM.from_pretrained(saved / "first-separate")
    encoder = AutoModel.from_pretrained(saved / "first-separate")
    for positions in (whole.model.embed_positions, whole.decoder.embed_positions, encoder.embed_positions):
        torch.testing.assert_close(positions.weight, table, atol=1e-5, rtol=0)
    keys = load_file(saved / "first-separate" / "model.safetensors")
    assert not any("embed_positions" in key for key in keys)


@pytest.mark.parametrize("saved_class", [TmdeModel, TmdeForConditionalGeneration])
def test_auto_map_names_both_classes_whichever_is_saved(saved_class, tmp_path):
    saved_class(tiny_config()).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["auto_map"] == AUTO_MAP
    assert config["architectures"] == [saved_class.__name__]
    for file in ("configuration_tmde.py", "modeling_tmde.py", "layers.py"):
        assert (tmp_path / file).is_file(), file
    assert AutoConfig.from_pretrained(tmp_path).d_model == 32


def test_encoder_saved_alone_opens_as_the_same_encoder(models, expected, tokenizer, tmp_path):
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    models["pyramid-separate"].model.save_pretrained(tmp_path)
    loaded, report = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert torch.equal(loaded(**inputs).pooler_output, expected["pyramid-separate/vectors"])
    # As a whole model it has the same encoder and a new decoder, and says so.
    whole, report = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert torch.equal(whole.model(**inputs).pooler_output, expected["pyramid-separate/vectors"])
    assert {key.partition(".")[0] for key in report["missing_keys"]} == {"decoder", "lm_head"}


def test_half_precision_loading(saved, expected, tokenizer):
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    encoder = AutoModel.from_pretrained(saved / "first-separate", dtype=torch.bfloat16)
    vectors = encoder(**inputs).pooler_output
    assert vectors.dtype == torch.bfloat16
    assert torch.nn.functional.cosine_similarity(vectors.float(), expected["first-separate/vectors"]).min() > 0.999


# ---- In a fresh interpreter, with the package and through remote code


@pytest.mark.slow
@pytest.mark.parametrize(("bottleneck", "shared"), VARIANTS)
def test_fresh_interpreter_with_the_package(bottleneck, shared, with_package, expected):
    check_fresh(variant_name(bottleneck, shared), with_package, expected)


@pytest.mark.slow
@pytest.mark.parametrize(("bottleneck", "shared"), VARIANTS)
def test_remote_code_without_the_package(bottleneck, shared, without_package, expected):
    check_fresh(variant_name(bottleneck, shared), without_package[1], expected)


def check_fresh(name: str, results: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for kind in ("encoder", "whole", "again"):
        torch.testing.assert_close(results[f"{name}/{kind}"], expected[f"{name}/vectors"], atol=1e-6, rtol=0)
    assert torch.equal(results[f"{name}/generated"], expected[f"{name}/generated"])
    torch.testing.assert_close(results[f"{name}/positions"], sinusoids(128, 32), atol=1e-5, rtol=0)


@pytest.mark.slow
def test_saved_again_through_remote_code_is_a_complete_folder(without_package, saved, tokenizer, expected):
    folder = without_package[0] / "results_again" / "dual-shared"
    assert {path.name for path in (saved / "dual-shared").iterdir()} <= {path.name for path in folder.iterdir()}
    assert json.loads((folder / "config.json").read_text())["auto_map"] == AUTO_MAP
    loaded = AutoModel.from_pretrained(folder)  # here, with the package
    vectors = loaded(**tokenizer(TEXTS, return_tensors="pt", padding=True)).pooler_output
    torch.testing.assert_close(vectors, expected["dual-shared/vectors"])


# ---- Embedding tables, as users of transformers expect them


@pytest.mark.parametrize("shared", [False, True])
def test_input_and_output_embeddings(shared):
    model = tiny_model(share_embeddings=shared)
    assert model.get_input_embeddings() is model.model.embed_tokens
    assert model.get_output_embeddings() is model.lm_head
    assert model.model.get_input_embeddings() is model.model.embed_tokens
    assert model.model.get_output_embeddings() is None
    table = torch.nn.Embedding(400, 32)
    model.set_input_embeddings(table)
    assert model.model.embed_tokens is table
    inputs = torch.tensor([[0, 7, 2]])
    embedded = model.model(inputs_embeds=table(inputs)).pooler_output
    assert torch.equal(model.model(inputs).pooler_output, embedded)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("bottleneck", ["first", "full"])
def test_resized_vocabulary_reaches_encoder_decoder_and_output(bottleneck, shared, tmp_path):
    model = jittered_model(bottleneck=bottleneck, share_embeddings=shared)
    ids, labels = torch.tensor([[0, 7, 9, 2]]), torch.tensor([[0, 30, 2]])
    with torch.no_grad():
        before = model(ids, labels=labels, target_language="en")
    assert model.resize_token_embeddings(410) is model.model.embed_tokens
    assert model.config.vocab_size == 410
    for table in (model.model.embed_tokens, model.decoder.embed_tokens, model.lm_head):
        assert table.weight.shape == (410, 32)
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == shared
    after = model(ids, labels=labels, target_language="en")
    torch.testing.assert_close(after.logits[..., :400], before.logits, atol=1e-5, rtol=1e-5)
    new = torch.tensor([[0, 405, 2]])  # a new token as source and as target
    output = model(new, labels=new, target_language="en")
    output.loss.backward()
    for table in (model.model.embed_tokens, model.decoder.embed_tokens, model.lm_head):
        assert table.weight.grad[405].abs().sum() > 0
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    torch.testing.assert_close(loaded(new, labels=new, target_language="en").logits, output.logits)


def test_resized_encoder_alone():
    encoder = tiny_model().model
    before = encoder(torch.tensor([[0, 7, 2]])).pooler_output
    encoder.resize_token_embeddings(405)
    assert encoder.embed_tokens.weight.shape == (405, 32)
    assert torch.equal(encoder(torch.tensor([[0, 7, 2]])).pooler_output, before)
