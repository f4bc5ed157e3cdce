"""YAML as it is meant in recipes, comparisons and arguments, where YAML 1.1 reads something else."""

import re
from typing import Any

import yaml

BOOL, TEXT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:str"


class PlainLoader(yaml.SafeLoader):
    """Reads 3e-4 as a number, and `no` in a list or as a key as a word: there it is Norwegian, since no list is of
    switches and none is a key."""

    def construct_sequence(self, node: yaml.Node, deep: bool = False) -> list[Any]:
        values = super().construct_sequence(node, deep)
        return [
            part.value if value is False and part.value.lower() == "no" else value
            for part, value in zip(node.value, values, strict=True)
        ]

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        # Before any mapping is made, so that loaders which look for a key that is there twice see the word as well.
        node = super().compose_mapping_node(anchor)
        node.value = [(_as_word(key), value) for key, value in node.value]
        return node


def _as_word(key: yaml.Node) -> yaml.Node:
    """The key, or a new one in its place: it may be an alias of what is a switch elsewhere."""
    if key.tag == BOOL and key.value.lower() == "no":
        return yaml.ScalarNode(TEXT, key.value, key.start_mark, key.end_mark)
    return key


PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)
