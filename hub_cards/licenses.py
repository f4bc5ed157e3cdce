"""What the licenses of a model's origins allow for its own license. This is not legal advice.

Licenses are SPDX expressions, such as `cc-by-sa-4.0` or `MIT OR GPL-3.0-only`. `OR` counts as its
less demanding side; with `AND`, every license counts. A license that is not in `FAMILIES` is
reported as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

from license_expression import (
    ExpressionError,
    LicenseSymbol,
    LicenseWithExceptionSymbol,
    Licensing,
    get_spdx_licensing,
)

from modeling_tmde import TmdeError


class Terms(IntEnum):
    """What a license requires of a derived model, in order of strictness."""

    ATTRIBUTION = 0
    UNKNOWN = 1
    NON_COMMERCIAL = 2
    SHARE_ALIKE = 3
    SHARE_ALIKE_NON_COMMERCIAL = 4
    NO_DERIVATIVES = 5


MEANINGS = {
    Terms.ATTRIBUTION: "attribution",
    Terms.UNKNOWN: "tmde does not know its terms",
    Terms.NON_COMMERCIAL: "non-commercial",
    Terms.SHARE_ALIKE: "share-alike",
    Terms.SHARE_ALIKE_NON_COMMERCIAL: "share-alike and non-commercial",
    Terms.NO_DERIVATIVES: "no derivatives",
}

DEMANDS = {
    Terms.ATTRIBUTION: "give credit wherever you share the model",
    Terms.UNKNOWN: "read its terms before you share the model",
    Terms.NON_COMMERCIAL: "it may only be shared under a non-commercial license",
    Terms.SHARE_ALIKE: "it may only be shared under {license}",
    Terms.SHARE_ALIKE_NON_COMMERCIAL: "it may only be shared under {license}",
    Terms.NO_DERIVATIVES: "a model made from it may not be shared",
}

# The terms of SPDX licenses by identifier prefix, without a version.
FAMILIES = {
    "0BSD": Terms.ATTRIBUTION,
    "AGPL": Terms.SHARE_ALIKE,
    "Apache": Terms.ATTRIBUTION,
    "BSD": Terms.ATTRIBUTION,
    "CC-BY": Terms.ATTRIBUTION,
    "CC-BY-NC": Terms.NON_COMMERCIAL,
    "CC-BY-NC-ND": Terms.NO_DERIVATIVES,
    "CC-BY-NC-SA": Terms.SHARE_ALIKE_NON_COMMERCIAL,
    "CC-BY-ND": Terms.NO_DERIVATIVES,
    "CC-BY-SA": Terms.SHARE_ALIKE,
    "CC0": Terms.ATTRIBUTION,
    "CDLA-Permissive": Terms.ATTRIBUTION,
    "CDLA-Sharing": Terms.SHARE_ALIKE,
    "GFDL": Terms.SHARE_ALIKE,
    "GPL": Terms.SHARE_ALIKE,
    "ISC": Terms.ATTRIBUTION,
    "LGPL": Terms.SHARE_ALIKE,
    "MIT": Terms.ATTRIBUTION,
    "ODC-By": Terms.ATTRIBUTION,
    "ODbL": Terms.SHARE_ALIKE,
    "PDDL": Terms.ATTRIBUTION,
    "PSF": Terms.ATTRIBUTION,
    "Unlicense": Terms.ATTRIBUTION,
    "WTFPL": Terms.ATTRIBUTION,
    "Zlib": Terms.ATTRIBUTION,
}


@dataclass(frozen=True)
class License:
    """A license in an SPDX expression.

    Attributes:
        key: Its SPDX identifier, or the stated text if it is not one.
        terms: What it requires.
        family: The key of `FAMILIES`; "" if its terms are unknown.
    """

    key: str
    terms: Terms = Terms.UNKNOWN
    family: str = ""

    @property
    def version(self) -> list[int]:
        """The numbers of its version; empty without one."""
        version = self.key[len(self.family) :].strip("-").partition("-")[0]
        return [int(number) for number in version.split(".") if number.isdigit()]

    @property
    def hub_id(self) -> str:
        """Its identifier on the Hub."""
        return self.key.lower().removesuffix("-only").removesuffix("-or-later")

    def allows(self, other: License) -> bool:
        """Return whether a derived model may have another license."""
        if self.terms <= Terms.UNKNOWN:
            return True
        if self.terms == Terms.NO_DERIVATIVES:
            return False
        if self.terms == Terms.NON_COMMERCIAL:
            return other.terms in (Terms.NON_COMMERCIAL, Terms.SHARE_ALIKE_NON_COMMERCIAL)
        if self.family != other.family:
            return False
        if self.key.endswith("-only"):
            return self.version == other.version
        return other.version >= self.version


def parse_license(expression: str) -> list[License]:
    """Return the licenses of an SPDX expression that apply together."""
    try:
        parsed = _licensing().parse(expression)
    except ExpressionError:
        return [License(expression)]
    if parsed is None:
        return [License(expression)]
    return _licenses_of(parsed)


@lru_cache
def _licensing() -> Licensing:
    return get_spdx_licensing()


def _licenses_of(parsed: Any) -> list[License]:
    if isinstance(parsed, LicenseWithExceptionSymbol):
        return _licenses_of(parsed.license_symbol)
    if isinstance(parsed, LicenseSymbol):
        return [_license_of(parsed.key)]
    sides = [_licenses_of(side) for side in parsed.args]
    if isinstance(parsed, _licensing().OR):
        return min(sides, key=lambda licenses: max(license.terms for license in licenses))
    licenses = []
    for side in sides:
        licenses.extend(side)
    return licenses


def _license_of(key: str) -> License:
    families = []
    for family in FAMILIES:
        is_version = key.startswith(f"{family}-") and key in _licensing().known_symbols
        if is_version or key.lower() == family.lower():
            families.append(family)
    if not families:
        return License(key)
    family = max(families, key=len)  # CC-BY-SA-4.0 is of CC-BY-SA, not of CC-BY.
    return License(key, FAMILIES[family], family)


VERBS = {
    "model": "was initialized from",
    "data": "was trained on",
    "teacher": "learns the vectors of",
}


@dataclass(frozen=True)
class LicensedOrigin:
    """Something that a model was made from, with one of its licenses.

    Attributes:
        name: The public name of the base model, teacher or source of training text.
        kind: A key of `VERBS`.
        stated: The license as stated, or one of several stated; None if none is.
        license: The parsed license; unknown if none is stated.
    """

    name: str
    kind: str
    stated: str | None
    license: License

    @property
    def is_demanding(self) -> bool:
        """Whether its license restricts the license of a derived model."""
        return self.license.terms > Terms.UNKNOWN

    @property
    def is_unknown(self) -> bool:
        """Whether tmde doesn't know the terms of the stated license."""
        return self.stated is not None and self.license.terms == Terms.UNKNOWN

    def allows(self, license: str) -> bool:
        """Return whether a derived model may have a license, as far as is known."""
        return any(map(self.license.allows, parse_license(license)))

    @property
    def demand(self) -> str:
        """What its license requires, as a clause."""
        clause = f"the model {VERBS[self.kind]} {self.name}"
        if self.stated is None:
            return f"{clause}, which states no license: ask its owner before you share the model"
        terms = self.license.terms
        clause = f"{clause}, which is under {self.stated} ({MEANINGS[terms]})"
        if self.kind == "teacher":
            return f"{clause}: check whether that license covers models trained on its vectors"
        return f"{clause}: {DEMANDS[terms].format(license=self.stated)}"


# ---- The chain of a run


def license_chain(
    origins: Iterable[Mapping[str, Any]], sources: Iterable[Mapping[str, Any]]
) -> list[LicensedOrigin]:
    """Return what a model was made from, once for each license that applies to it.

    Args:
        origins: The run's base model, then that model's own base model and so on, as
            `describe_origins` returns them.
        sources: The sources of the training text, as `describe_sources` returns them.
    """
    return [*_licensed("model", origins), *_licensed("data", sources)]


def _licensed(kind: str, records: Iterable[Mapping[str, Any]]) -> list[LicensedOrigin]:
    origins = []
    for record in records:
        stated = record.get("license")
        licenses = parse_license(stated or "")
        for license in licenses:
            # Several licenses are named one by one.
            name = stated if len(licenses) == 1 else license.key
            origins.append(LicensedOrigin(record["name"], kind, name, license))
    return origins


def inherited_license(chain: Sequence[LicensedOrigin]) -> str | None:
    """Return the license that a shared model must have; None if any license will do.

    If the whole chain allows no license, return the first one that an origin requires, which
    `check_license` rejects.
    """
    demanded = []
    for origin in chain:
        if origin.is_demanding and origin.license.terms != Terms.NO_DERIVATIVES:
            demanded.append(origin.license.hub_id)
    for license in demanded:
        if all(origin.allows(license) for origin in chain):
            return license
    return demanded[0] if demanded else None


def check_license(
    license: str | None, chain: Sequence[LicensedOrigin], reason: str | None = None
) -> None:
    """Reject a license that the licenses of a model's origins do not allow.

    Args:
        license: The license of the model; None if it is not stated, which contradicts only origins
            that may not be shared at all.
        chain: What the model was made from, as `license_chain` returns it.
        reason: Why the license is right nevertheless; the card repeats it.

    Raises:
        TmdeError: The license contradicts that of an origin, and no reason is stated.
    """
    if reason:
        return
    for origin in chain:
        chosen = license or origin.stated
        if chosen is not None and not origin.allows(chosen):
            raise TmdeError(
                f"license: found {license or 'none'}, but {origin.demand}. Choose a license that "
                'it allows, or explain with --license-override "REASON" why this one is right; the '
                "card repeats the reason"
            )


def describe_licenses(
    chain: Sequence[LicensedOrigin], teachers: Iterable[Mapping[str, Any]] = ()
) -> list[str]:
    """Return sentences on the licenses of a run's origins, printed at its start and by a push.

    Data without a stated license is assumed to be the user's own and is skipped, as are licenses
    that require attribution at most.

    A teacher isn't part of the chain because no weights come from it. The user must check whether
    its license covers a model that learned its vectors.

    Args:
        chain: What the model is made from, as `license_chain` returns it.
        teachers: Models, or files of vectors, with `name` and `license`, as `describe_origins`
            returns them.
    """
    sentences = []
    for origin in [*chain, *_licensed("teacher", teachers)]:
        is_own_data = origin.kind == "data" and origin.stated is None
        if origin.license.terms != Terms.ATTRIBUTION and not is_own_data:
            sentences.append(f"License: {origin.demand}")
    return sentences
