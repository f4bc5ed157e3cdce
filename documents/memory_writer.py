"""Write translation memories, TMX 1.4, that OmegaT and other tools open."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias
from xml.sax.saxutils import escape, quoteattr

from langcodes import standardize_tag
from langcodes.tag_parser import LanguageTagError

from tmde.data.io import replacing

# Writes the texts of a unit by language, and its properties; those that are None are left out.
WriteUnit: TypeAlias = Callable[[Mapping[str, str], Mapping[str, object]], None]

# What XML forbids, whatever it is written as.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SEVERAL_LANGUAGES = "*all*"  # Any language of a memory may be that of the source.


@contextmanager
def memory_writer(target: Path, languages: Sequence[str]) -> Iterator[WriteUnit]:
    """Yield a function that writes a unit of a translation memory.

    Args:
        target: The file. It appears when all units are written.
        languages: The languages of the texts. The first of two is that of the source; of more, any
            may be.
    """
    source = tag_of(languages[0]) if len(languages) == 2 else _SEVERAL_LANGUAGES
    with (
        replacing(target) as temporary,
        open(temporary, "w", encoding="utf-8", newline="\n") as file,
    ):
        file.write(
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
            '<tmx version="1.4">\n'
            f'<header creationtool="tmde" creationtoolversion={quoteattr(version("tmde"))} '
            'segtype="sentence" o-tmf="tmde" adminlang="en" '
            f'srclang={quoteattr(source)} datatype="plaintext"/>\n'
            "<body>\n"
        )

        def write(texts: Mapping[str, str], properties: Mapping[str, object]) -> None:
            file.write("<tu>\n")
            for name, value in properties.items():
                if value is not None:
                    tag = f"x-{name.replace('_', '-')}"
                    file.write(f"<prop type={quoteattr(tag)}>{_content(str(value))}</prop>\n")
            for language in languages:
                if texts.get(language):
                    tag = quoteattr(tag_of(language))
                    segment = _content(texts[language])
                    file.write(f"<tuv xml:lang={tag}><seg>{segment}</seg></tuv>\n")
            file.write("</tu>\n")

        yield write
        file.write("</body>\n</tmx>\n")


def write_memory(
    target: Path,
    languages: Sequence[str],
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
) -> None:
    """Write rows of a parallel corpus as a translation memory; see `memory_writer`.

    Args:
        target: The file.
        languages: The languages of the texts.
        columns: The names of the fields of a row: `translation`, texts by language, and others,
            which become properties such as `x-score`.
        rows: The values of each row, in the order of `columns`.
    """
    with memory_writer(target, languages) as write:
        for row in rows:
            properties = dict(zip(columns, row, strict=True))
            write(properties.pop("translation"), properties)


def tag_of(code: str) -> str:
    """Return the tag by BCP 47 of a language or a locale; a code that is none stays.

    Example:
        >>> tag_of("deu_Latn"), tag_of("pt_br"), tag_of("ca@valencia")
        ('de', 'pt-BR', 'ca-valencia')
    """
    plain = re.sub(r"\.[^@]*", "", code).replace("@", "-")
    try:
        return standardize_tag(plain)
    except LanguageTagError:
        return code


def _content(text: str) -> str:
    return escape(_FORBIDDEN.sub("", text)).replace("\r", "&#13;")
