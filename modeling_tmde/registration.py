"""Registers the models with the Auto classes of transformers, without importing transformers before its user does."""

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_CONFIGS = "transformers.models.auto.configuration_auto"
_MODELS = "transformers.models.auto.modeling_auto"

# Of each family: the modules of its config and of its models, the config, and the model of each Auto class.
_FAMILIES = (
    (
        ("configuration_tmde", "TmdeConfig"),
        "modeling_tmde",
        {"AutoModel": "TmdeModel", "AutoModelForSeq2SeqLM": "TmdeForConditionalGeneration"},
    ),
    (("configuration_bag", "BagConfig"), "modeling_bag", {"AutoModel": "BagModel"}),
    (
        ("configuration_laser", "LaserConfig"),
        "modeling_laser",
        {"AutoModel": "LaserModel", "AutoModelForSeq2SeqLM": "LaserForConditionalGeneration"},
    ),
    (
        ("configuration_ntdv", "NtdvConfig"),
        "modeling_ntdv",
        {"AutoModel": "NtdvModel", "AutoModelForSeq2SeqLM": "NtdvForConditionalGeneration"},
    ),
    (
        ("configuration_encoder", "TmdeEncoderConfig"),
        "modeling_encoder",
        {"AutoModel": "TmdeEncoderModel", "AutoModelForMaskedLM": "TmdeEncoderForMaskedLM"},
    ),
    (("configuration_aligned", "AlignedConfig"), "modeling_aligned", {"AutoModel": "AlignedModel"}),
    (
        ("configuration_adapted", "AdaptedConfig"),
        "modeling_adapted",
        {"AutoModel": "AdaptedModel", "AutoModelForSeq2SeqLM": "AdaptedForConditionalGeneration"},
    ),
)


def _config_of(module: str, name: str) -> type:
    return getattr(importlib.import_module(f".{module}", __package__), name)


def _register_configs() -> None:
    from transformers import AutoConfig

    for config, _, _ in _FAMILIES:
        config_class = _config_of(*config)
        AutoConfig.register(config_class.model_type, config_class, exist_ok=True)


def _register_models() -> None:
    import transformers

    for config, module, models in _FAMILIES:
        for auto_class, name in models.items():
            model = getattr(importlib.import_module(f".{module}", __package__), name)
            getattr(transformers, auto_class).register(_config_of(*config), model, exist_ok=True)


class _RegisterAfterImport(MetaPathFinder):
    """Waits for the Auto classes to be imported, and registers the models then.

    Registering imports modules of ours, which import more of transformers. While a module of either is half imported,
    that would be a circular import; so it waits for the outermost of them to be complete.
    """

    def __init__(self) -> None:
        self.waiting = {_CONFIGS: _register_configs, _MODELS: _register_models}
        self.thread = threading.local()  # depth: modules of the two packages that are being imported

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in ("transformers", __package__):
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next((spec for finder in others if (spec := finder.find_spec(name, path, target)) is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            loader = spec.loader
            execute = loader.exec_module
            loader.exec_module = lambda module: self._execute(loader, execute, module)
        return spec

    def _execute(self, loader: Loader, execute: Callable[[ModuleType], object], module: ModuleType) -> None:
        del loader.exec_module  # the module keeps its loader, which with this function could not be pickled
        with self._importing():
            execute(module)
        if self.thread.depth == 0:
            self.register_imported()

    @contextmanager
    def _importing(self) -> Iterator[None]:
        self.thread.depth = getattr(self.thread, "depth", 0) + 1
        try:
            yield
        finally:
            self.thread.depth -= 1

    def register_imported(self) -> None:
        """Registers with the Auto classes that have been imported by now."""
        for name in (_CONFIGS, _MODELS):
            register = self.waiting.get(name)
            if register is not None and name in sys.modules:
                with self._importing():  # of what it imports itself, nothing registers once more
                    register()
                self.waiting.pop(name, None)  # only now: after an error, the next import tries again
        if not self.waiting and self in sys.meta_path:
            sys.meta_path.remove(self)


def register_when_imported() -> None:
    """At once if the Auto classes are there already, otherwise as soon as they are."""
    finder = _RegisterAfterImport()
    sys.meta_path.insert(0, finder)
    finder.register_imported()
