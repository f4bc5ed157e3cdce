"""What the licenses of a model's origins allow for its own license. This is no legal advice.

| license of the start or of the data | what it asks of a model that is shared |
|---|---|
| cc-by-sa-*, gpl-*, agpl-*, lgpl-* | the same license, or a later version (share-alike) |
| cc-by-nc-sa-* | the same license, or a later version (share-alike, non-commercial) |
| cc-by-nc-* | a non-commercial license, cc-by-nc-* or cc-by-nc-sa-* |
| cc-by-nd-*, cc-by-nc-nd-* | that it is not shared at all (no derivatives) |
| apache-2.0, mit, bsd*, cc-by-*, cc0-* ... | attribution at most |
| any other, or none stated | not known here |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modeling_tmde import TmdeError


@dataclass(frozen=True)
class LicenseRule:
    """What the licenses of one kind ask of a model that is made from what they cover.

    Attributes:
        pattern: The identifiers of the Hub, as a regular expression; `family` and `version` are its
            parts.
        meaning: What the licenses ask, for messages.
        is_bound: Whether the model must have the same license, or a later version of it.
        allowed: The licenses that the model may have, as a regular expression; None for any. With
            `is_bound` it is not read.
    """

    pattern: str
    meaning: str
    is_bound: bool = False
    allowed: str | None = None


_NOTHING = r"(?!)"  # Matches no license.

# The first rule whose pattern matches is that of a license.
RULES = (
    LicenseRule(r"(?P<family>cc-by-(nc-)?nd)(-.*)?", "no derivatives", allowed=_NOTHING),
    LicenseRule(
        r"(?P<family>cc-by-nc-sa)(-(?P<version>[\d.]+))?",
        "share-alike and non-commercial",
        is_bound=True,
    ),
    LicenseRule(r"(?P<family>cc-by-nc)(-.*)?", "non-commercial", allowed=r"cc-by-nc(-sa)?(-\d.*)?"),
    LicenseRule(r"(?P<family>cc-by-sa)(-(?P<version>[\d.]+))?", "share-alike", is_bound=True),
    LicenseRule(r"(?P<family>[al]?gpl)(-(?P<version>[\d.]+))?", "share-alike", is_bound=True),
    LicenseRule(
        r"(apache|mit|bsd|cc-by|cc0|unlicense|isc|zlib|wtfpl|pddl|odc-by|cdla-permissive|psfl?)"
        r"\b.*",
        "attribution",
    ),
)


@dataclass(frozen=True)
class LicensedOrigin:
    """Something that a model was made from, and its license.

    Attributes:
        name: The public name of the model or of the source of training text.
        kind: "model" or "data".
        license: The identifier of its license as it was stated; None if none was.
    """

    name: str
    kind: str
    license: str | None

    @property
    def rule(self) -> LicenseRule | None:
        """What its license asks; None if that is not known."""
        return rule_of(self.license)

    @property
    def is_demanding(self) -> bool:
        """Whether its license limits what license a model made from it may have."""
        rule = self.rule
        return rule is not None and (rule.is_bound or rule.allowed is not None)

    def allows(self, license: str) -> bool:
        """Return whether a model made from it may have a license, as far as is known."""
        rule = self.rule
        if rule is None or self.license is None:
            return True
        if rule.is_bound:
            return _is_same_or_later(self.license, license, rule)
        return rule.allowed is None or re.fullmatch(rule.allowed, license.lower()) is not None


def rule_of(license: str | None) -> LicenseRule | None:
    """Return what a license asks; None for one that is not stated or not known."""
    if license is None:
        return None
    for rule in RULES:
        if re.fullmatch(rule.pattern, license.lower()):
            return rule
    return None


def _is_same_or_later(bound: str, license: str, rule: LicenseRule) -> bool:
    """Return whether a license is the one that binds a model, or a later version of it."""
    old = re.fullmatch(rule.pattern, bound.lower())
    new = re.fullmatch(rule.pattern, license.lower())
    if old is None or new is None or old["family"] != new["family"]:
        return False
    return _version(new) >= _version(old)


def _version(match: re.Match) -> tuple[int, ...]:
    """Return the version of a license as numbers that can be compared."""
    text = match["version"] or "0"
    return tuple(int(part) for part in text.strip(".").split("."))


# ---- The chain of a run


def license_chain(
    origins: Iterable[Mapping[str, Any]], sources: Iterable[Mapping[str, Any]]
) -> list[LicensedOrigin]:
    """Return what a model was made from, with the licenses that are stated.

    Args:
        origins: The model that the run started from, then the one which that model started from
            ..., as `describe_origins` returns them.
        sources: The sources of the training text, as `describe_sources` returns them.
    """
    chain = []
    for origin in origins:
        chain.append(LicensedOrigin(origin["name"], "model", origin.get("license")))
    for source in sources:
        chain.append(LicensedOrigin(source["name"], "data", source.get("license")))
    return chain


def inherited_license(chain: Sequence[LicensedOrigin]) -> str | None:
    """Return the license that a model must have if it is shared; None if it is free to choose."""
    for origin in chain:
        rule = origin.rule
        if rule is not None and rule.allowed != _NOTHING and origin.is_demanding:
            return str(origin.license).lower()
    return None


def contradictions(license: str | None, chain: Sequence[LicensedOrigin]) -> list[LicensedOrigin]:
    """Return the origins whose licenses do not allow the license of a model.

    Args:
        license: The license of the model; None, for a model whose license is not stated,
            contradicts only what may not be shared at all.
        chain: What the model was made from, as `license_chain` returns it.
    """
    refused = []
    for origin in chain:
        stated = origin.license if license is None else license
        if stated is not None and not origin.allows(stated):
            refused.append(origin)
    return refused


def check_license(
    license: str | None, chain: Sequence[LicensedOrigin], reason: str | None = None
) -> None:
    """Refuse a license that the licenses of a model's origins do not allow.

    Args:
        license: The license of the model; None if it is not stated.
        chain: What the model was made from, as `license_chain` returns it.
        reason: Why the license is right nevertheless; the card repeats it.

    Raises:
        TmdeError: The license contradicts one of an origin, and no reason is stated.
    """
    refused = contradictions(license, chain)
    if not refused or reason:
        return
    origin = refused[0]
    raise TmdeError(
        f"license: found {license or 'none'}, but {describe_demand(origin)}. State a license "
        'that it allows, or say with --license-override "REASON" why this one is right; the card '
        "repeats the reason"
    )


def describe_demand(origin: LicensedOrigin) -> str:
    """Return what an origin's license asks, as a clause.

    Args:
        origin: An origin whose license is known.
    """
    rule = origin.rule
    assert rule is not None  # Only known licenses demand anything.
    verb = "was begun with" if origin.kind == "model" else "was trained on"
    clause = f"the model {verb} {origin.name}, which is under {origin.license} ({rule.meaning})"
    if rule.allowed == _NOTHING:
        return f"{clause}: a model made from it may not be shared"
    if rule.is_bound:
        return f"{clause}: it may be shared under {origin.license} only"
    if rule.allowed is not None:
        return f"{clause}: it may be shared under a non-commercial license only"
    return f"{clause}: name it where you share the model"


def describe_start(chain: Sequence[LicensedOrigin]) -> list[str]:
    """Return the sentences that a run says of the licenses of its origins when it begins.

    Data without a stated license are the user's own, so they get no sentence; permissive licenses
    get none either. What a license asks that is not known here, the user has to read.

    Args:
        chain: What the model will be made from, as `license_chain` returns it.
    """
    sentences = []
    for origin in chain:
        rule = origin.rule
        if rule is None:
            if origin.kind == "model":
                sentences.append(_describe_unknown(origin))
            elif origin.license is not None:
                sentences.append(
                    f"License of the training text {origin.name}: {origin.license}. Read what it "
                    "asks of you before you share what you train"
                )
        elif origin.is_demanding:
            clause = describe_demand(origin)
            sentences.append(f"License: {clause}")
    return sentences


def _describe_unknown(origin: LicensedOrigin) -> str:
    if origin.license is None:
        return (
            f"License: the model begins with {origin.name}, whose card states no license; ask its "
            "owner before you share what you train"
        )
    return (
        f"License: the model begins with {origin.name}, which is under {origin.license}; read what "
        "that asks of you before you share what you train"
    )


def describe_teachers(teachers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each teacher whose license is not permissive.

    A teacher is no part of the chain: no weights come from it, and whether its license covers a
    model that learned its vectors is for the user to find out.

    Args:
        teachers: Models, or files of vectors, with `name` and `license`, as `describe_origins`
            returns them.
    """
    sentences = []
    for teacher in teachers:
        origin = LicensedOrigin(teacher["name"], "model", teacher.get("license"))
        clause = f"License: the model learns the vectors of {origin.name}"
        rule = origin.rule
        if origin.license is None and teacher.get("file"):
            sentences.append(
                f"{clause}, and the metadata of {teacher['file']} state no license; find out that "
                "of the model which made them before you share yours"
            )
        elif origin.license is None:
            sentences.append(
                f"{clause}, whose card states no license; ask its owner before you share the model"
            )
        elif rule is None or origin.is_demanding:
            meaning = "" if rule is None else f" ({rule.meaning})"
            sentences.append(
                f"{clause}, which is under {origin.license}{meaning}; read whether that covers "
                "models that learn from it before you share this one"
            )
    return sentences
