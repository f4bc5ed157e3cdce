"""A YAML loader that reads numbers and booleans as YAML 1.2 does."""

import re

import yaml

_BOOL = "tag:yaml.org,2002:bool"
_FLOAT = "tag:yaml.org,2002:float"


class PlainLoader(yaml.SafeLoader):
    """Reads numbers and switches as YAML 1.2 does.

    3e-4 is a number, only `true` and `false` are switches, and `no` is Norwegian.
    """


PlainLoader.yaml_implicit_resolvers = {}
for _first, _resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items():
    PlainLoader.yaml_implicit_resolvers[_first] = [
        (tag, pattern) for tag, pattern in _resolvers if tag != _BOOL
    ]
PlainLoader.add_implicit_resolver(_BOOL, re.compile(r"(true|false)$", re.IGNORECASE), list("tTfF"))
PlainLoader.add_implicit_resolver(
    _FLOAT, re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)
