"""The parts of the pages of claims that are made from `claims.json`: counts, tables and notes."""

import math
from collections.abc import Mapping
from typing import Any

from benchmarks.tables import fixed, markdown_table, signed
from tmde.papers.verdicts import (
    DOES_NOT_REPLICATE,
    INCONCLUSIVE,
    NOT_TESTED,
    REPLICATES,
    SeedDifference,
    detectable_difference,
)

Claim = Mapping[str, Any]
Results = Mapping[str, Any]
# The page of each paper.
PAGES = {
    "Li, 2021": "claims-li-2021.md",
    "Yu et al., 2018": "claims-yu-2018.md",
    "Mao et al., 2021": "claims-mao-2021.md",
    "Gong et al., 2021": "claims-gong-2021.md",
    "Conneau, 2019": "claims-conneau-2019.md",
}
VERDICTS = (REPLICATES, DOES_NOT_REPLICATE, INCONCLUSIVE, NOT_TESTED)
# The units of the measures of claims; others are counts.
SHARE = "share"
RATIO = "ratio"


# ---- Numbers


def seed_difference(measure: Mapping[str, Any]) -> str:
    """Return the difference of a measure of a claim with its 95% interval, in its unit.

    Shares are in points. A ratio is stored as the difference of logarithms.
    """
    difference = measure["difference"]
    if difference is None:  # Too few seeds have a value.
        return ""
    numbers = [difference["mean"], difference["low"], difference["high"]]
    if measure["unit"] == SHARE:
        mean, low, high = [signed(100 * number) for number in numbers]
    elif measure["unit"] == RATIO:
        mean, low, high = [f"× {math.exp(number):.2f}" for number in numbers]
    else:
        mean, low, high = [signed(number) for number in numbers]
    return f"{mean} ({low} to {high})"


def detectable(claim: Claim, results: Results) -> str:
    """Return the smallest difference of a claim that could have been detected, in its unit."""
    measure = claim["measures"][0]
    claims = len(tested_claims(results))
    smallest = detectable_difference(SeedDifference(**measure["difference"]), claims)
    if measure["unit"] == RATIO:
        return f"a factor of {math.exp(smallest):.2f}"
    if measure["unit"] != SHARE:
        return fixed(smallest, 1)
    if smallest >= 1:
        return "more than 100 points"
    return f"{fixed(100 * smallest, 1)} points"


# ---- Claims


def tested_claims(results: Results) -> list[Claim]:
    """Return the claims that are tested."""
    return [claim for claim in results["claims"] if claim["verdict"] != NOT_TESTED]


def verdict_counts(results: Results) -> str:
    """Return the table of the number of claims of each paper and verdict."""
    rows = []
    for paper, page in PAGES.items():
        claims = [claim for claim in results["claims"] if claim["paper"] == paper]
        verdicts = [claim["verdict"] for claim in claims]
        rows.append([f"[{paper}]({page})", *map(verdicts.count, VERDICTS)])
    return markdown_table(["paper", *VERDICTS], rows)


def decided_claims(results: Results) -> str:
    """Return the table of the claims that replicate or do not."""
    rows = []
    for verdict in (REPLICATES, DOES_NOT_REPLICATE):
        for claim in results["claims"]:
            if claim["verdict"] == verdict:
                measure = claim["measures"][0]
                link = f"[{claim['id']}]({PAGES[claim['paper']]}#{claim['id']})"
                rows.append([link, claim["sentence"], seed_difference(measure), verdict])
    return markdown_table(["claim", "what the paper says", "our difference", "verdict"], rows)


def paper_table(results: Results, paper: str) -> str:
    """Return the table of the claims of a paper."""
    rows = []
    for claim in results["claims"]:
        if claim["paper"] != paper:
            continue
        # Other pages link to a claim.
        name = f'<span id="{claim["id"]}">{claim["id"]}</span>'
        sentence = f"“{claim['sentence']}”" if claim["verbatim"] else claim["sentence"]
        source = claim["place"]
        if claim["figure"]:
            source = f"{source}: {claim['figure']}"
        rows.append([name, f"{sentence} ({source})", *_outcome(claim, results)])
    return markdown_table(["claim", "what the paper says", "our difference", "verdict"], rows)


def _outcome(claim: Claim, results: Results) -> tuple[str, str]:
    """Return the measured difference of a claim, and its verdict."""
    verdict = claim["verdict"]
    if verdict == NOT_TESTED:
        return "", f"{verdict}: {claim['why_not']}"
    measure = claim["measures"][0]
    is_open = verdict == INCONCLUSIVE and claim["margin"] is None
    if is_open and measure["difference"]["standard_error"] > 0:
        verdict = f"{verdict} (detectable: {detectable(claim, results)})"
    return f"{measure['title']}: {seed_difference(measure)}", verdict


def notes(results: Results, paper: str) -> str:
    """Return a list of how the claims of a paper were tested, where the table does not say it."""
    lines = []
    for claim in results["claims"]:
        if claim["paper"] == paper and claim["experiment"]:
            lines.append(f"- **{claim['id']}**: {claim['experiment']}")
    return "\n".join(lines)
