"""What an import brings with it, and that the Auto classes know the models whatever is imported first."""

import json
import subprocess
import sys
from importlib.util import module_from_spec

import pytest
import transformers.utils

import modeling_tmde
from modeling_tmde.registration import _RegisterAfterImport

HEAVY = ("torch", "transformers", "numpy", "sklearn", "scipy", "pandas", "datasets", "accelerate", "pyarrow")
SHOW_HEAVY = f"import sys; print([name for name in {HEAVY} if name in sys.modules])"
SHOW_MAPPINGS = """
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING, MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
import json
tmde, bag = CONFIG_MAPPING["tmde"], CONFIG_MAPPING["tmde_bag"]
found = [MODEL_MAPPING[tmde], MODEL_MAPPING[bag], MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING[tmde]]
print(json.dumps([f"{model.__module__}.{model.__name__}" for model in found]))
"""


def output_of(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize(
    "code",
    [
        "import modeling_tmde",
        "import modeling_tmde.eval, modeling_tmde.training, modeling_tmde.cli.main",
        "from modeling_tmde.cli.main import app; app(['--version'], standalone_mode=False)",
    ],
)
def test_nothing_heavy_is_imported_before_its_use(code):
    assert output_of(f"{code}; {SHOW_HEAVY}").splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["", "quickstart", "train", "embed", "eval", "eval run", "eval compare"])
def test_help_waits_for_nothing_heavy(command):
    code = "from modeling_tmde.cli.main import app\ntry:\n    app({!r})\nexcept SystemExit:\n    {}"
    assert output_of(code.format([*command.split(), "--help"], SHOW_HEAVY)).splitlines()[-1] == "[]"


def test_the_tokenizer_needs_no_torch():
    output = output_of(f"import modeling_tmde; modeling_tmde.train_tokenizer; {SHOW_HEAVY}")
    assert "torch" not in output and "sklearn" not in output


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "code",
    [
        "import modeling_tmde",
        "import modeling_tmde.modeling_tmde",  # itself half imported when the Auto classes are there
        pytest.param("from transformers import AutoModel; import modeling_tmde", marks=SLOW),
        # GenerationMixin, which we import, is half imported when the Auto classes are there.
        pytest.param("import modeling_tmde; from transformers.generation import utils", marks=SLOW),
        pytest.param("import modeling_tmde; from transformers import AutoTokenizer, modeling_utils", marks=SLOW),
        pytest.param("from modeling_tmde.embedding import DocumentEmbedder", marks=SLOW),
    ],
)
def test_auto_classes_know_the_models(code):
    modules = ["modeling_tmde.modeling_tmde.TmdeModel", "modeling_tmde.modeling_bag.BagModel"]
    modules.append("modeling_tmde.modeling_tmde.TmdeForConditionalGeneration")
    assert json.loads(output_of(f"{code}\n{SHOW_MAPPINGS}")) == modules


def test_the_hook_goes_when_it_has_done_its_work():
    assert not [finder for finder in sys.meta_path if isinstance(finder, _RegisterAfterImport)]
    waits = "import modeling_tmde, sys; print([type(f).__name__ for f in sys.meta_path].count('_RegisterAfterImport'))"
    assert output_of(waits) == "1"


def test_modules_imported_under_the_hook_can_be_pickled_by_their_specs():
    code = (
        "import modeling_tmde, pickle, sys, transformers.utils.versions\n"
        "specs = [m.__spec__ for n, m in sys.modules.items() if n.partition('.')[0] == 'transformers']\n"
        "again = [pickle.loads(pickle.dumps((spec, spec.loader)))[0].name for spec in specs]\n"
        "print(len(again) > 1, again == [spec.name for spec in specs])"
    )
    assert output_of(code) == "True True"


def test_a_registration_that_failed_is_tried_again(monkeypatch):
    """With the import of another module, and while it runs, what it imports does not begin it once more."""
    hook, calls = _RegisterAfterImport(), []

    def register():
        calls.append("begun")
        if len(calls) == 1:
            raise ImportError("not yet")
        spec = hook.find_spec("transformers.utils.versions", transformers.utils.__path__)
        spec.loader.exec_module(module_from_spec(spec))

    hook.waiting = {"transformers.models.auto.configuration_auto": register}
    monkeypatch.setitem(sys.modules, "transformers.models.auto.configuration_auto", sys)
    monkeypatch.setattr(sys, "meta_path", [hook, *sys.meta_path])
    with pytest.raises(ImportError, match="not yet"):
        hook.register_imported()
    assert hook in sys.meta_path and hook.waiting
    hook.register_imported()
    assert calls == ["begun", "begun"] and not hook.waiting and hook not in sys.meta_path


def test_names_of_the_package():
    for name in modeling_tmde.__all__:
        assert getattr(modeling_tmde, name) is not None and name in dir(modeling_tmde)
    with pytest.raises(AttributeError, match="module 'modeling_tmde' has no attribute 'Nothing'"):
        _ = modeling_tmde.Nothing
