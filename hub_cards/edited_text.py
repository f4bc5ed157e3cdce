"""Cards that people edit: a mark tells generated text, and edited text is never replaced."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import yaml
from huggingface_hub import ModelCard, RepoCard

from modeling_tmde import TmdeError

# The mark at the end of a generated text holds a hash of the text.
_MARK = re.compile(r"\n*<!-- tmde:card ([0-9a-f]{16})[^>]*-->\s*\Z")
_NOTE = "delete this line to keep the text as it is; edited text is kept anyway"

# Metadata of a dataset that the Hub reads from its files.
_METADATA_OF_FILES = {"dataset_info", "configs"}


def mark_text(text: str) -> str:
    """Return the text of a card with the mark by which `is_edited` knows it."""
    return f"\n{text}\n\n<!-- tmde:card {_digest(text)} ({_NOTE}) -->\n"


def is_edited(text: str) -> bool:
    """Return whether a person wrote or edited the text of a card.

    Args:
        text: The whole file. Its metadata do not count.
    """
    body = ModelCard(text, ignore_metadata_errors=True).text
    mark = _MARK.search(body)
    if mark is None:
        return True
    return _digest(body[: mark.start()]) != mark[1]


def merge_card(card: RepoCard, existing: str) -> RepoCard:
    """Return a new card with what a person wrote into the existing one.

    The text is that of the existing card if a person edited it. Metadata that only the existing
    card has are kept.

    Args:
        card: The new card.
        existing: The whole existing file; empty if there is none.

    Raises:
        TmdeError: The metadata of the existing file are damaged.
    """
    if not existing:
        return card
    existing_card = _parse_card(existing)
    keeps_text = is_edited(existing)
    metadata = _merge_metadata(existing_card.data.to_dict(), card.data.to_dict(), keeps_text)
    metadata_text = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
    text = existing_card.text if keeps_text else card.text
    return RepoCard(f"---\n{metadata_text}---\n{text}")


def _parse_card(content: str) -> RepoCard:
    try:
        return RepoCard(content)
    except Exception as error:
        # YAML errors have no common base with that of a block that is no mapping.
        raise TmdeError(
            "README.md: its metadata (between the lines ---) are no YAML mapping "
            f"({error}); correct or delete them"
        ) from error


def _merge_metadata(old: dict[str, Any], new: dict[str, Any], keeps_text: bool) -> dict[str, Any]:
    """Return the new metadata, the old ones that are not among them, and the tags of both."""
    replaced = set(_METADATA_OF_FILES)
    if not keeps_text:
        # The results belong to the text that is replaced.
        replaced.add("model-index")
    merged = {key: value for key, value in old.items() if key not in replaced}
    merged.update(new)
    tags = [*(old.get("tags") or ()), *(new.get("tags") or ())]
    merged["tags"] = list(dict.fromkeys(tags))
    return merged


def _digest(text: str) -> str:
    """Return the first 16 hexadecimal digits of a SHA-256; ends of lines and of texts are alike."""
    normalized = text.strip().replace("\r\n", "\n")
    return hashlib.sha256(normalized.encode()).hexdigest()[:16]
