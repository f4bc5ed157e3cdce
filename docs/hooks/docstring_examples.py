"""The docstrings of this package in the form that griffe knows."""

import re
from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Adapts the sections and references of docstrings.

    griffe knows `Examples:` and not `Example:`. It cannot read the defaults of a configuration,
    whose fields `strict` turns into arguments, so these are shown as attributes, without a default.
    A reference of transformers, a name in backticks and brackets, loses its brackets and its tilde.
    """

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of a module, class, function or attribute."""
        if obj.docstring is None:
            return
        text = obj.docstring.value
        text = re.sub(r"^(\s*)Example:$", r"\1Examples:", text, flags=re.MULTILINE)
        text = re.sub(r"\[`~?([\w.]+)`\](?![(\[])", r"`\1`", text)
        if obj.is_class and _is_configuration(obj):
            text = re.sub(r"^(\s*)Args:$", r"\1Attributes:", text, flags=re.MULTILINE)
        obj.docstring.value = text


def _is_configuration(obj: griffe.Object) -> bool:
    return any(str(decorator.value) == "strict" for decorator in obj.decorators)
