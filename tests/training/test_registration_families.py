"""In a fresh interpreter the Auto classes know every family, whichever module is imported first."""

import json
import subprocess
import sys

import pytest

SHOW = """
import json
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
classes = {"AutoModel": AutoModel, "AutoModelForSeq2SeqLM": AutoModelForSeq2SeqLM}
classes["AutoModelForMaskedLM"] = AutoModelForMaskedLM
found = {}
for kind in ("tmde", "tmde_bag", "tmde_laser", "tmde_ntdv", "tmde_encoder", "tmde_aligned"):
    config = AutoConfig.for_model(kind, vocab_size=20)
    known = {name: auto._model_mapping.get(type(config), None) for name, auto in classes.items()}
    found[kind] = [f"{type(config).__module__}.{type(config).__name__}"]
    found[kind] += [f"{name} {model.__module__}.{model.__name__}" for name, model in known.items() if model]
small = AutoConfig.for_model("tmde_encoder", vocab_size=20, d_model=8, encoder_attention_heads=2)
found["built"] = [type(auto.from_config(small)).__name__ for auto in (AutoModel, AutoModelForMaskedLM)]
small = AutoConfig.for_model("tmde_laser", vocab_size=20, d_model=8, embedding_dim=4, decoder_hidden_size=8)
found["built"] += [type(auto.from_config(small)).__name__ for auto in (AutoModel, AutoModelForSeq2SeqLM)]
print(json.dumps(found))
"""
P = "modeling_tmde"
EXPECTED = {
    "tmde": [
        f"{P}.configuration_tmde.TmdeConfig",
        f"AutoModel {P}.modeling_tmde.TmdeModel",
        f"AutoModelForSeq2SeqLM {P}.modeling_tmde.TmdeForConditionalGeneration",
    ],
    "tmde_bag": [f"{P}.configuration_bag.BagConfig", f"AutoModel {P}.modeling_bag.BagModel"],
    "tmde_laser": [
        f"{P}.configuration_laser.LaserConfig",
        f"AutoModel {P}.modeling_laser.LaserModel",
        f"AutoModelForSeq2SeqLM {P}.modeling_laser.LaserForConditionalGeneration",
    ],
    "tmde_ntdv": [
        f"{P}.configuration_ntdv.NtdvConfig",
        f"AutoModel {P}.modeling_ntdv.NtdvModel",
        f"AutoModelForSeq2SeqLM {P}.modeling_ntdv.NtdvForConditionalGeneration",
    ],
    "tmde_encoder": [
        f"{P}.configuration_encoder.TmdeEncoderConfig",
        f"AutoModel {P}.modeling_encoder.TmdeEncoderModel",
        f"AutoModelForMaskedLM {P}.modeling_encoder.TmdeEncoderForMaskedLM",
    ],
    "tmde_aligned": [f"{P}.configuration_aligned.AlignedConfig", f"AutoModel {P}.modeling_aligned.AlignedModel"],
    "built": ["TmdeEncoderModel", "TmdeEncoderForMaskedLM", "LaserModel", "LaserForConditionalGeneration"],
}
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "first",
    [
        "import modeling_tmde",
        # A family that is itself half imported when the Auto classes are there, one that imports others.
        "import modeling_tmde.modeling_aligned",
        pytest.param("import modeling_tmde.modeling_encoder", marks=SLOW),
        pytest.param("import modeling_tmde.modeling_laser", marks=SLOW),
        pytest.param("import modeling_tmde.modeling_ntdv", marks=SLOW),
        pytest.param("import modeling_tmde.configuration_aligned", marks=SLOW),
        pytest.param("from modeling_tmde import NtdvModel, LaserConfig", marks=SLOW),
        pytest.param("from transformers import AutoModelForMaskedLM; import modeling_tmde", marks=SLOW),
        pytest.param("import transformers; import modeling_tmde", marks=SLOW),
        pytest.param("import modeling_tmde; from transformers.generation import utils", marks=SLOW),
        pytest.param("from modeling_tmde.training.architectures import ARCHITECTURES", marks=SLOW),
    ],
)
def test_auto_classes_know_every_family(first):
    result = subprocess.run([sys.executable, "-c", first + SHOW], capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1]) == EXPECTED
