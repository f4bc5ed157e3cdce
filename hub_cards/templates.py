"""Fill the templates of cards, which lie beside this file."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import CardData, RepoCard

from tmde.hub_cards.edited_text import mark_text
from tmde.hub_cards.markdown import percent

Card = TypeVar("Card", bound=RepoCard)


def fill_template(template: str, card_class: type[Card], data: CardData, **values: Any) -> Card:
    """Return a filled card, whose text `is_edited` knows as generated.

    Args:
        template: The file name of the template.
        card_class: The class of the card.
        data: The metadata of the card.
        **values: The values that the template takes.
    """
    card = card_class.from_template(
        data,
        template_path=str(Path(__file__).with_name(template)),
        percent=percent,
        quote=_quote,
        shell=shlex.quote,
        **values,
    )
    text = re.sub(r"\n{3,}", "\n\n", card.text)
    card.text = mark_text(text.strip())
    return card


def hub_languages(codes: Sequence[str]) -> list[str]:
    """Return language codes as the Hub knows them.

    They are ISO 639 codes of two or three letters, without script or country. Other codes are left
    out.
    """
    bare_codes = [re.split(r"[-_]", code)[0].lower() for code in codes]
    known = [code for code in bare_codes if re.fullmatch("[a-z]{2,3}", code)]
    return list(dict.fromkeys(known))


def _quote(value: str | Sequence[str]) -> str:
    """Return text, or a list of texts, as Python source."""
    return json.dumps(value, ensure_ascii=False)
