"""Leave out of a text what is in no language: tags, variables, flags, paths and addresses."""

from __future__ import annotations

import re

# An alternative that may run far before it fails begins only where a word or a path does. So a long
# text without spaces takes a time that grows with its length, and not with the square of it.
_CODE = re.compile(
    r"""
    https?://\S+                          # an address
    | (?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+   # an e-mail address
    | </?[a-zA-Z][^<>]*>                  # <b>, <span color='green'>, </b>
    | &(?:[a-zA-Z]+|\#\d+);               # &nbsp;
    | \$?\{[^{}\s]*\}                     # {name}, ${name}, {0}
    | \$\w+(?:[.|]\w+)*                   # $name, $unit.name, $HOME
    | %\(\w+\)[sdif]                      # %(name)s
    | %(?:\d+\$)?[sdif](?!\w)             # %s, %1$s
    | (?<!\w)--?[a-zA-Z][\w-]*(?:=\S+)?   # --no-delay, -v
    | (?<![\w.-])(?:\.\.?|[\w.-]+)?(?:[/\\][\w.-]+){2,}/?  # /usr/share/doc, data/maps/a.map
    | ~(?:[/\\][\w.-]+)+                  # ~/notes.txt
    | (?<!\w)\w+_\w+(?:[._]\w+)*          # ai_controller, player_name
    | (?<!\w)[a-zA-Z]+(?:\.[a-zA-Z]\w+)+(?!\w)  # module.function, notes.txt
    | (?<!\w)\w*\d\w*                     # 498YW
    """,
    re.VERBOSE,
)


def without_code(text: str) -> str:
    """Return a text without tags, variables, flags, paths, addresses and words with digits.

    Example:
        >>> without_code("<i>Copy</i> $unit.name to /usr/share/doc --force")
        'Copy to'
    """
    return " ".join(_CODE.sub(" ", text).split())
