"""YAML as it is meant in recipes, comparisons and arguments, where YAML 1.1 reads something else."""

import re
from typing import Any

import yaml


class PlainLoader(yaml.SafeLoader):
    """Reads 3e-4 as a number, and `no` in a list as a word: there it is Norwegian, since no list is of switches."""

    def construct_sequence(self, node: yaml.Node, deep: bool = False) -> list[Any]:
        values = super().construct_sequence(node, deep)
        return [
            part.value if value is False and part.value.lower() == "no" else value
            for part, value in zip(node.value, values, strict=True)
        ]


PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)
