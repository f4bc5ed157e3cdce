"""Imports run one way, modeling_tmde <- eval <- hub_cards <- training <- cli; cards are imported when asked for."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("eval", "hub_cards", "training", "cli")


def imported(path: Path) -> set[str]:
    """Names of modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("layer", ["modeling_tmde", *LAYERS])
def test_nothing_imports_what_is_above_it(layer):
    above = LAYERS[LAYERS.index(layer) + 1 :] if layer in LAYERS else LAYERS
    files = list((ROOT / layer).rglob("*.py"))
    assert files
    for path in files:
        wrong = {name for name in imported(path) if name.split(".")[:1] == ["modeling_tmde"] and "." in name}
        wrong = {name for name in wrong if name.split(".")[1] in above}
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


def test_cards_wait_until_they_are_asked_for():
    code = (
        "import sys, modeling_tmde.hub_cards as cards; print(cards.__all__)\n"
        "heavy = ('torch', 'transformers', 'numpy', 'huggingface_hub', 'jinja2')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    names, heavy = result.stdout.splitlines()
    assert heavy == "[]" and "write_model_card" in names
    import modeling_tmde.hub_cards as cards

    assert all(callable(getattr(cards, name)) for name in cards.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = cards.nothing
