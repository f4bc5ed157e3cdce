"""The parts of the page of claims that are made from `claims.json`: lists, sections and tables."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.tables import count, fixed, markdown_table, rounded_count, share, signed
from tmde.papers.verdicts import (
    CANNOT_BE_TOLD,
    DOES_NOT_HOLD,
    HOLDS,
    NOT_TESTED,
    SeedDifference,
    smallest_told,
)

Claim = Mapping[str, Any]
Results = Mapping[str, Any]
PAPERS = {
    "Li, 2021": "Li (2021): multilingual document embedding with sequential neural network models",
    "Yu et al., 2018": "Yu et al. (2018): multilingual seq2seq training with similarity loss",
    "Mao et al., 2021": "Mao et al. (2021): lightweight cross-lingual sentence representations",
    "Gong et al., 2021": "Gong et al. (2021): language-agnostic weighted document representations",
    "Conneau, 2019": "Conneau (2019): learning distributed representations of sentences",
}
VERDICTS = (HOLDS, DOES_NOT_HOLD, CANNOT_BE_TOLD, NOT_TESTED)
ON_CPU = "on one core of a CPU"
# What both systems of a claim had in equal measure.
EQUAL_TRAINING = {
    "the model": "the same models.",
    "nothing": "after unequal training.",
    "rows": "which were offered the same rows.",
    "CPU minutes": "with equal CPU minutes.",
}
# The units of the measures of claims; others are counts.
SHARE = "share"
RATIO = "ratio"
LARGEST_TABLE = 12  # rows
QUARTERS = 4  # points of a learning curve


# ---- Numbers


def p_text(p: float) -> str:
    """Return a p-value with two digits that count, and a very small one as a bound."""
    return "< 0.0001" if p < 0.0001 else f"{p:.2g}"


def seed_values(values: Mapping[str, float], unit: str) -> str:
    """Return the mean of the values of all seeds, and their number.

    Args:
        values: The values by seed.
        unit: `share`, which becomes %, `count` or `ratio`.
    """
    mean = fmean(values.values())
    seeds = "1 seed" if len(values) == 1 else f"{len(values)} seeds"
    if unit == SHARE:
        number = share(mean)
    elif mean < 100:
        number = f"{mean:.3g}"
    else:
        number = rounded_count(mean, 3)
    return f"{number} ({seeds})"


def seed_difference(measure: Mapping[str, Any]) -> str:
    """Return the difference of a measure of a claim with its 95 % interval, in its unit.

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


def detectable_difference(measure: Mapping[str, Any], claims: int) -> str:
    """Return a sentence on the smallest difference of a measure of a claim that could be told.

    Args:
        measure: The measure with its difference.
        claims: The number of claims that are corrected together.
    """
    smallest = smallest_told(SeedDifference(**measure["difference"]), claims)
    if measure["unit"] == SHARE and smallest >= 1:
        return "With seeds that differ so much, no difference could be told."
    if measure["unit"] == SHARE:
        text = f"{fixed(100 * smallest, 1)} points"
    elif measure["unit"] == RATIO:
        text = f"a factor of {math.exp(smallest):.2f}"
    else:
        text = fixed(smallest, 1)
    return f"A difference of {text} could be told."


def early_checkpoints(system: str, results: Results) -> str:
    """Return a sentence on the reported checkpoints of a system; "" if they are the last ones."""
    seeds = results["systems"][system]["seeds"].values()
    if all(seed["best_step"] == seed["steps"] for seed in seeds):
        return ""
    checkpoints = [f"{seed['best_step']} of {seed['steps']}" for seed in seeds]
    title = title_of(system, results)
    if len(set(checkpoints)) == 1:
        return f"Of {title}, the checkpoint after {checkpoints[0]} steps is reported."
    listed = ", ".join(checkpoints[:-1])
    return f"Of {title}, the checkpoints after {listed} and {checkpoints[-1]} steps are reported."


def title_of(system: str, results: Results) -> str:
    """Return the title of a system."""
    return results["titles"].get(system, system)


# ---- Lists of claims


def tested_claims(results: Results) -> list[Claim]:
    """Return the claims that are tested."""
    return [claim for claim in results["claims"] if claim["verdict"] != NOT_TESTED]


def verdict_counts(results: Results) -> str:
    """Return the table of the number of claims of each verdict."""
    rows = []
    for verdict in VERDICTS:
        claims = [claim for claim in results["claims"] if claim["verdict"] == verdict]
        rows.append([verdict, len(claims)])
    return markdown_table(["verdict", "claims"], rows)


def claim_lists(results: Results) -> str:
    """Return the tables of the tested claims, by verdict and by the side they lean to."""
    parts = []
    for title, claims in _groups(results).items():
        if not claims:
            continue
        rows = []
        for claim in claims:
            first = claim["measures"][0]
            link = f"[{claim['id']}](#{claim['id']})"
            rows.append([link, first["title"], seed_difference(first), claim["figure"] or ""])
        parts.append(f"{title}:")
        parts.extend(small_tables(["claim", "measure", "difference here", "in the paper"], rows))
    return "\n\n".join(parts)


def _groups(results: Results) -> dict[str, list[Claim]]:
    """Return the tested claims by the title of their table."""
    groups: dict[str, list[Claim]] = {}
    for verdict in (HOLDS, DOES_NOT_HOLD):
        groups[f"**{verdict.capitalize()}**"] = []
        groups[f"**{verdict.capitalize()} {ON_CPU}, where the paper measured a GPU**"] = []
    lean = "**Cannot be told at this size, and leans to {} side** ({})"
    below = "p is below 0.05 before the correction for all claims"
    groups[lean.format("the paper's", below)] = []
    groups[lean.format("the other", below)] = []
    groups[lean.format("neither", "p is 0.05 or more, uncorrected")] = []
    groups[
        "**Cannot be told at this size, and the paper calls the systems equal** (whether they "
        "differ by more than counts as equal cannot be told)"
    ] = []
    titles = list(groups)
    for claim in tested_claims(results):
        groups[titles[_place_of(claim)]].append(claim)
    return groups


def _place_of(claim: Claim) -> int:
    """Return the number of the table of a claim, in the order of `_groups`."""
    difference = claim["measures"][0]["difference"]
    if claim["verdict"] != CANNOT_BE_TOLD:
        place = 2 * (HOLDS, DOES_NOT_HOLD).index(claim["verdict"]) + int(_is_about_cost(claim))
    elif claim["margin"] is not None:
        place = 7
    elif difference["p"] >= 0.05:
        place = 6
    elif difference["mean"] > 0:
        place = 4
    else:
        place = 5
    return place


def _is_about_cost(claim: Claim) -> bool:
    return claim["measures"][0]["unit"] == RATIO


def untested_claims(results: Results) -> str:
    """Return links to the claims that are not tested."""
    ids = [claim["id"] for claim in results["claims"] if claim["verdict"] == NOT_TESTED]
    return ", ".join(f"[{id}](#{id})" for id in ids)


# ---- One claim


def claim_sections(results: Results) -> str:
    """Return a section for each paper, with one for each of its claims."""
    parts = []
    for paper, title in PAPERS.items():
        parts.append(f"## {title}")
        for claim in results["claims"]:
            if claim["paper"] == paper:
                parts.extend(_section(claim, results))
    return "\n\n".join(parts)


def _section(claim: Claim, results: Results) -> Iterator[str]:
    """Yield the paragraphs of the section of a claim."""
    yield f"### {claim['id']}"
    sentence = f"In substance: {claim['sentence']}"
    if claim["verbatim"]:
        sentence = f"“{claim['sentence']}”"
    source = claim["place"]
    if claim["figure"]:
        source = f"{source}: {claim['figure']}"
    yield f"{sentence} ({source})"
    if claim["verdict"] == NOT_TESTED:
        yield f"**Not tested.** {claim['why_not']}"
        return
    yield f"{_verdict(claim, results)} {_systems(claim, results)}"
    if claim["experiment"]:
        yield claim["experiment"]
    if claim["equal"] != "nothing" and not _is_about_cost(claim):
        sentences = []
        for system in dict.fromkeys([claim["better"], claim["worse"]]):
            sentences.append(early_checkpoints(system, results))
        yield " ".join(filter(None, sentences))
    better, worse = _titles(claim, results)
    rows = []
    for measure in claim["measures"]:
        values = [seed_values(measure[side], measure["unit"]) for side in ("better", "worse")]
        rows.append([measure["title"], *values, seed_difference(measure)])
    yield markdown_table(["", better, worse, "difference (95 % interval)"], rows)
    yield f'Repeat it: `tmde compare claims --only {claim["id"]} "${{OPTIONS[@]}}"`'


def _verdict(claim: Claim, results: Results) -> str:
    """Return the verdict and the p-values of a claim."""
    verdict = claim["verdict"].capitalize()
    if _is_about_cost(claim) and claim["verdict"] != CANNOT_BE_TOLD:
        verdict = f"{verdict} {ON_CPU}"
    difference = claim["measures"][0]["difference"]
    p = p_text(difference["p"])
    text = f"**{verdict}.** p-value {p}, corrected {p_text(claim['corrected_p'])}."
    is_open = claim["verdict"] == CANNOT_BE_TOLD and claim["margin"] is None
    if is_open and difference["standard_error"] > 0:
        claims = len(tested_claims(results))
        text = f"{text} {detectable_difference(claim['measures'][0], claims)}"
    return text


def _titles(claim: Claim, results: Results) -> tuple[str, str]:
    """Return the titles of both sides of a claim: two systems, or two measures of one."""
    if claim["columns"]:
        first, second = claim["columns"]
        return first, second
    return title_of(claim["better"], results), title_of(claim["worse"], results)


def _systems(claim: Claim, results: Results) -> str:
    """Return what is compared, and after which training."""
    better, worse = _titles(claim, results)
    sides = f"{better} against {worse}"
    if claim["columns"]:
        sides = f"{title_of(claim['better'], results)}, {sides}"
    elif claim["less_is_better"]:
        sides = f"{sides} (less is better, so that ratios are those of the second to the first)"
    return f"{sides}, {EQUAL_TRAINING[claim['equal']]}"


# ---- Tables of systems


def small_tables(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return rows as tables of twelve rows and less."""
    tables = []
    for begin in range(0, len(rows), LARGEST_TABLE):
        tables.append(markdown_table(header, rows[begin : begin + LARGEST_TABLE]))
    return tables


def vector_tables(results: Results) -> str:
    """Return the tables of the geometry of the vectors of every system."""
    rows = []
    for system, measured in results["systems"].items():
        values = measured["geometry"]
        if not values:
            continue
        rows.append(
            [
                title_of(system, results),
                count(values["components_90"]),
                share(values["precision_at_1_cosine"]),
                share(values["precision_at_1_euclidean"]),
                share(values["language_accuracy"]),
                share(values["language_accuracy_debiased"]),
                fixed(values["debiased_rank"]),
                share(values["precision_at_1_debiased"]),
            ]
        )
    header = [
        "",
        "components",
        "P@1, cosine",
        "P@1, Euclidean",
        "language told",
        "debiased",
        "directions removed",
        "P@1, debiased",
    ]
    return "\n\n".join(small_tables(header, rows))


def curve_tables(results: Results) -> str:
    """Return the tables of the learning curves of all systems with four checkpoints."""
    rows = []
    for system, measured in results["systems"].items():
        curve = measured["curve"]
        if len(curve) != QUARTERS:
            continue
        row = [title_of(system, results), count(curve[-1]["rows"])]
        for point in curve:
            row.append(f"{share(point['retrieval'])} ({fixed(point['minutes'])})")
        rows.append(row)
    return "\n\n".join(small_tables(["", "rows at the end", "1", "2", "3", "4"], rows))


def growth_tables(results: Results) -> str:
    """Return the tables of the differences of learning curves, once for each pair of systems."""
    rows = []
    shown_pairs = set()
    for claim in tested_claims(results):
        better, worse = [results["systems"][claim[side]]["curve"] for side in ("better", "worse")]
        pair = frozenset([claim["better"], claim["worse"]])
        has_curves = len(better) == len(worse) == QUARTERS
        if claim["equal"] != "rows" or not has_curves or pair in shown_pairs:
            continue
        shown_pairs.add(pair)
        row = [f"{title_of(claim['better'], results)} − {title_of(claim['worse'], results)}"]
        for first, second in zip(better, worse, strict=True):
            row.append(signed(100 * (first["retrieval"] - second["retrieval"])))
        rows.append(row)
    return "\n\n".join(small_tables(["", "1", "2", "3", "4"], rows))
