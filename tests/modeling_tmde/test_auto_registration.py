"""A checkpoint opens by the Auto classes after `import tmde`, whichever library comes first."""

import logging
import subprocess
import sys
from types import ModuleType

import pytest

import modeling_tmde
from tests.conftest import nightly_except, save, tiny_model
from tmde.auto_registration import CONFIG_CLASSES, register_lazily

IMPORTS_ALONE = """
import sys
import tmde
print(sorted({"torch", "transformers", "modeling_tmde"} & set(sys.modules)))
"""
OPENS = """
import inspect
model = AutoModel.from_pretrained(sys.argv[1])
print(type(model).__module__, type(model.config).__module__)
whole = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
inputs = tokenizer("haus hund", return_tensors="pt")
print(len(whole.generate(**inputs, target_language="en", max_new_tokens=2)))
import transformers.models.auto.configuration_auto as mapping_module
print("tmde" in mapping_module.CONFIG_MAPPING_NAMES, bool(inspect.getsource(mapping_module)))
print([finder for finder in sys.meta_path if type(finder).__module__.startswith("tmde")])
"""
AUTO_CLASSES = "from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer"
SEARCH = 'importlib.util.find_spec("transformers.models.auto.configuration_auto")'
ORDERS = {
    "tmde-first": f"import sys\nimport tmde\n{AUTO_CLASSES}",
    "search-between": f"import importlib.util, sys\nimport tmde\n{SEARCH}\n{AUTO_CLASSES}",
    "transformers-first": f"import sys\n{AUTO_CLASSES}\nimport tmde",
}


def run(program: str, *arguments: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout


def test_the_package_alone_imports_no_library():
    assert run(IMPORTS_ALONE) == "[]\n"


@pytest.mark.parametrize("order", nightly_except(["tmde-first"], ORDERS))
def test_a_checkpoint_opens_without_remote_code(order, tokenizer, tmp_path):
    folder = save(tmp_path, tiny_model(), tokenizer)
    printed = run(ORDERS[order] + OPENS, str(folder)).splitlines()
    assert printed == [
        "modeling_tmde.modeling_tmde modeling_tmde.configuration_tmde",
        "1",
        "False True",
        "[]",
    ]


def test_every_model_type_is_known():
    classes = {}
    for base_model in modeling_tmde._BASE_MODELS:
        config_class = base_model.config_class
        classes[config_class.model_type] = config_class.__name__
    assert classes == CONFIG_CLASSES


def test_a_transformers_without_the_private_attributes_is_left_alone(monkeypatch, caplog):
    name = "transformers.models.auto.configuration_auto"
    newer = ModuleType(name)
    newer.CONFIG_MAPPING = {}
    monkeypatch.setitem(sys.modules, name, newer)
    with caplog.at_level(logging.DEBUG, logger="tmde.auto_registration"):
        register_lazily(ModuleType("package"))
    assert newer.CONFIG_MAPPING == {}
    assert "has no attribute '_mapping'" in caplog.text
