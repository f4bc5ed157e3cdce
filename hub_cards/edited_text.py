"""Cards that people edit: generated text stands between two comments, and other text is kept."""

from __future__ import annotations

from typing import Any

import yaml
from huggingface_hub import RepoCard

from modeling_tmde import TmdeError

BEGIN = (
    "<!-- tmde: begin. Later cards replace the text up to tmde: end. Write yours before or after "
    "it, or delete both comments to keep it all. -->"
)
END = "<!-- tmde: end -->"

# Metadata of a dataset that the Hub reads from its files.
_METADATA_OF_FILES = {"dataset_info", "configs"}


def mark_text(text: str) -> str:
    """Return the generated text of a card between its comments."""
    return f"\n{BEGIN}\n\n{text}\n\n{END}\n"


def _split(text: str) -> tuple[str, str] | None:
    """Return what stands before and after the generated text; None if there is none."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return None
    return before, after


def is_edited(text: str) -> bool:
    """Return whether a card has text that a person wrote.

    Args:
        text: The whole file. Its metadata do not count.
    """
    parts = _split(RepoCard(text, ignore_metadata_errors=True).text)
    return parts is None or any(part.strip() for part in parts)


def merge_card(card: RepoCard, existing: str) -> RepoCard:
    """Return a new card with what a person wrote into the existing one.

    Its generated text replaces that of the existing card. Without such text there, the existing
    text stays as it is. Metadata that only the existing card has are kept.

    Args:
        card: The new card.
        existing: The whole existing file; empty if there is none.

    Raises:
        TmdeError: The metadata of the existing file are damaged.
    """
    if not existing:
        return card
    existing_card = _parse_card(existing)
    parts = _split(existing_card.text)
    text = existing_card.text
    if parts is not None:
        before, after = parts
        before = before.rstrip()
        if before:
            before += "\n"  # The generated text begins with another one.
        text = before + card.text.rstrip() + after
    metadata = _merge_metadata(existing_card.data.to_dict(), card.data.to_dict(), parts is None)
    metadata_text = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
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
