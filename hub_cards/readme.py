"""A card on disk: what a person wrote into it stays."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import metadata_load, metadata_save
from huggingface_hub.repocard import RepoCard

from modeling_tmde.card_text import is_untouched, marked
from modeling_tmde.data.io import replacing, write_atomically

_TEMPLATES = Path(__file__).parent


def fill(template: str, card_class: type[RepoCard], card_data: Any, **values: Any) -> RepoCard:
    """A card from a template of this folder, with the mark by which `write_card` knows that nobody has edited it."""
    card = card_class.from_template(card_data, template_path=str(_TEMPLATES / template), **values)
    body = re.sub(r"\n{3,}", "\n\n", card.text).strip()
    card.text = marked(body)
    return card


def write_card(card: RepoCard, path: Path) -> bool:
    """
    Writes a card; of one that a person has edited or written, only the metadata are brought up to date.

    Metadata that the card does not know stay, and tags are joined.

    Returns:
        Whether the text was written.

    Raises:
        ValueError: The front matter of the file that is there is no YAML mapping.
    """
    if not path.is_file():
        write_atomically(path, str(card))
        return True
    found = _metadata(path)
    text = path.read_text(encoding="utf-8-sig")
    ours = is_untouched(text)
    data = merged(found, card.data.to_dict(), keep_results=not ours)
    with replacing(path) as temporary:
        if ours:
            temporary.write_text(str(card), encoding="utf-8")
        else:
            shutil.copyfile(path, temporary)
        metadata_save(temporary, data)
    return ours


def found_license(path: Path) -> str | None:
    """The licence in the metadata of a card that is there.

    Raises:
        ValueError: As `write_card`.
    """
    license = _metadata(path).get("license") if path.is_file() else None
    return license if isinstance(license, str) else None


def _metadata(path: Path) -> dict[str, Any]:
    try:
        return metadata_load(path) or {}
    except Exception as error:  # yaml's errors have no common base with that of a block that is no mapping
        raise ValueError(
            f"{path}: its front matter (between the lines ---) is not a YAML mapping ({error}); correct or delete it"
        ) from error


def merged(found: Mapping[str, Any], made: Mapping[str, Any], keep_results: bool) -> dict[str, Any]:
    """Metadata of both: what was made wins, what only was found stays.

    Args:
        keep_results: Results that were found stay where none were made; else they belong to a text that goes.
    """
    data = {**found, **made}
    if not keep_results and "model-index" not in made:
        data.pop("model-index", None)
    if isinstance(found.get("tags"), list):
        data["tags"] = list(dict.fromkeys([*found["tags"], *(made.get("tags") or [])]))
    return data
