"""Registers the models with transformers' Auto classes without importing either.

`AutoModel.from_pretrained` asks to run the code of a checkpoint unless transformers'
`CONFIG_MAPPING` has its `model_type`. Importing `modeling_tmde` registers all models but takes
seconds, so `import tmde` enters their names alone. transformers does the same for its own models:
an entry is the name of a class, and the module that has it is imported when the class is asked for.
Here that module is `tmde`, whose `__getattr__` imports `modeling_tmde`.

transformers has no public call for such an entry, so this sets two private attributes of
`CONFIG_MAPPING`. Tests open a checkpoint through them. With a transformers that lacks them, the
models are not entered, and the Auto classes ask for `trust_remote_code`. If transformers is not
imported yet, an import hook waits for the module of the mapping.
"""

import importlib.util
import logging
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["CONFIG_CLASSES", "register_lazily"]

# The configuration class of each `model_type`.
CONFIG_CLASSES = {
    "tmde": "TmdeConfig",
    "tmde_adapted": "AdaptedConfig",
    "tmde_aligned": "AlignedConfig",
    "tmde_bag": "BagConfig",
    "tmde_encoder": "TmdeEncoderConfig",
    "tmde_laser": "LaserConfig",
    "tmde_ntdv": "NtdvConfig",
}
_MAPPING_MODULE = "transformers.models.auto.configuration_auto"

logger = logging.getLogger(__name__)


def register_lazily(package: ModuleType) -> None:
    """Enter the models now, or as soon as transformers imports its Auto classes.

    Args:
        package: The module that imports the configuration classes when they are asked for.
    """
    loaded = sys.modules.get(_MAPPING_MODULE)
    if loaded is not None:
        _enter(loaded, package)
    else:
        sys.meta_path.insert(0, _MappingFinder(package))


def _enter(mapping_module: ModuleType, package: ModuleType) -> None:
    """Enter the models, unless this transformers keeps its mapping in another way."""
    try:
        _set_private_attributes(mapping_module, package)
    except AttributeError as error:
        logger.debug("The Auto classes need trust_remote_code for tmde's models: %s", error)


def _set_private_attributes(mapping_module: ModuleType, package: ModuleType) -> None:
    mapping = mapping_module.CONFIG_MAPPING
    names = dict(mapping._mapping)  # A copy: other mappings of transformers are made of this one.
    for model_type, class_name in CONFIG_CLASSES.items():
        if model_type not in mapping:
            names[model_type] = class_name
            mapping._modules[mapping_module.model_type_to_module_name(model_type)] = package
    mapping._mapping = names


class _MappingFinder(MetaPathFinder):
    """Finds the module of the mapping, and has it loaded by a `_MappingLoader`.

    It stays in `sys.meta_path` until the module is loaded: a library may look for the module
    without importing it.
    """

    def __init__(self, package: ModuleType):
        self.package = package
        self.is_searching = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _MAPPING_MODULE or self.is_searching:
            return None
        # The search asks every finder, this one too.
        self.is_searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.is_searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _MappingLoader(spec.loader, self)
        return spec


class _MappingLoader(Loader):
    """Loads a module by its own loader, and enters the models in it."""

    def __init__(self, loader: Loader, finder: _MappingFinder):
        self.loader = loader
        self.finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        # Only the import needs this loader; others ask the module's own for its source.
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        _enter(module, self.finder.package)
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
