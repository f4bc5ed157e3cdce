# SPDX-License-Identifier: Apache-2.0

"""Docstrings of this package say `Example:`, for which griffe knows `Examples:` only."""

import re
from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Makes `Example:` a section that is shown as code."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rename the section in the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^(\s*)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE
            )
