"""Model and dataset cards, filled in from what a run and its evaluations recorded.

from modeling_tmde.hub_cards import model_card, write_model_card

print(model_card("runs/mine", repo_id="user/mine", license="apache-2.0"))
write_model_card("runs/mine", results=["results/#mine"])  # README.md, without losing what a person wrote there
"""

import importlib

_HOMES = {
    "dataset_card": "dataset_cards",
    "model_card": "model_cards",
    "public_recipe": "sources",
    "write_dataset_card": "dataset_cards",
    "write_model_card": "model_cards",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str):
    """Imported when asked for: training, which writes a card at its very end, need not wait for it."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
