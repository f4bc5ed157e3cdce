"""The text of cards: filled templates, and edits by people, which later cards preserve."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from huggingface_hub import CardData, RepoCard

from modeling_tmde import TmdeError

Card = TypeVar("Card", bound=RepoCard)

BEGIN = (
    "<!-- tmde: begin. Later cards replace the text up to tmde: end. Write yours before or after "
    "it, or delete both comments to keep it all. -->"
)
END = "<!-- tmde: end -->"

# Metadata of a dataset that the Hub reads from its files.
_METADATA_OF_FILES = {"dataset_info", "configs"}


# ---- New cards


def fill_template(template: str, card_class: type[Card], data: CardData, **values: Any) -> Card:
    """Return a filled card with two comments around the generated text.

    Args:
        template: The file name of the template, in the folder of this file.
        card_class: The class of the card.
        data: The metadata of the card.
        **values: The values for the template.
    """
    card = card_class.from_template(
        data,
        template_path=str(Path(__file__).with_name(template)),
        percent=_percent,
        quote=_quote,
        shell=shlex.quote,
        **values,
    )
    text = re.sub(r"\n{3,}", "\n\n", card.text).strip()
    card.text = f"\n{BEGIN}\n\n{text}\n\n{END}\n"
    return card


def hub_languages(codes: Sequence[str]) -> list[str]:
    """Return language codes in the Hub's form.

    These are ISO 639 codes of two or three letters, without script or country. Other codes are
    omitted.
    """
    bare_codes = [re.split(r"[-_]", code)[0].lower() for code in codes]
    known = [code for code in bare_codes if re.fullmatch("[a-z]{2,3}", code)]
    return list(dict.fromkeys(known))


def _percent(value: float | None) -> str:
    """Return a share in percent, such as `83.1`; `–` for None."""
    return "–" if value is None else f"{100 * value:.1f}"


def _quote(value: str | Sequence[str]) -> str:
    """Return a text or a list of texts as Python source."""
    return json.dumps(value, ensure_ascii=False)


# ---- Cards that people edited


def _split(text: str) -> tuple[str, str] | None:
    """Return the text before and after the generated text; None if there is none."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return None
    return before, after


def is_edited(text: str) -> bool:
    """Return whether a person wrote part of a card's text.

    Args:
        text: The whole file. Its metadata is ignored.
    """
    parts = _split(RepoCard(text, ignore_metadata_errors=True).text)
    return parts is None or any(part.strip() for part in parts)


def merge_card(card: RepoCard, existing: str) -> RepoCard:
    """Return a new card that preserves what a person wrote in the existing one.

    The new generated text replaces the existing generated text. If there is none, the existing
    text is unchanged. Metadata that only the existing card has is preserved.

    Args:
        card: The new card.
        existing: The whole existing file; empty if there is none.

    Raises:
        TmdeError: The metadata of the existing file is damaged.
    """
    if not existing:
        return card
    try:
        existing_card = RepoCard(existing)
    except (TypeError, ValueError, yaml.YAMLError) as error:
        raise TmdeError(
            "README.md: the metadata between the --- lines is not a YAML mapping "
            f"({error}); fix or delete it"
        ) from error
    text = existing_card.text
    replaced = set(_METADATA_OF_FILES)
    parts = _split(text)
    if parts is not None:
        before, after = parts
        before = before.rstrip()
        if before:
            before += "\n"  # The generated text begins with another one.
        text = before + card.text.rstrip() + after
        replaced.add("model-index")  # The results belong to the text that is replaced.
    metadata = existing_card.data.to_dict()
    tags = [*(metadata.get("tags") or ()), *(card.data.get("tags") or ())]
    metadata = {name: value for name, value in metadata.items() if name not in replaced}
    metadata |= card.data.to_dict()
    metadata["tags"] = list(dict.fromkeys(tags))
    metadata_text = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
    return RepoCard(f"---\n{metadata_text}---\n{text}")
