"""The report of `tmde add-language`: what added languages did to the old ones.

It is written as `languages.json` and `languages.md`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import fmean
from typing import Any, NamedTuple

from tmde.eval.dev_retrieval import language_pairs
from tmde.eval.markdown import markdown_table, percent

Report = dict[str, Any]  # The content of `languages.json`.


class Measure(NamedTuple):
    """The retrieval of one pair of languages.

    Attributes:
        dev_set: The name of the dev set.
        texts: `sentences` or `documents`.
        pair: The languages, such as `de-en`.
        before: Precision at 1 before training.
        after: Precision at 1 after training; until that is measured, the one before again.
    """

    dev_set: str
    texts: str
    pair: str
    before: float
    after: float


def measures(report: Report) -> Iterator[Measure]:
    """Yield all that was measured."""
    after = report["before"]
    if "after" in report:
        after = report["after"]
    for dev_set, measured in report["before"].items():
        for key, value in measured.items():
            prefix, pair = key.split("p1_", 1)  # Keys are `p1_de-en` or `doc_p1_de-en`.
            texts = "documents" if prefix else "sentences"
            yield Measure(dev_set, texts, pair, value, after[dev_set][key])


def means(report: Report) -> dict[str, dict[str, float]]:
    """Return means over dev sets and pairs, `before` and `after`.

    They are named `old_sentences`, `new_documents` and so on.
    """
    old_pairs = language_pairs(report["old_languages"])
    groups: dict[str, list[Measure]] = defaultdict(list)
    for measure in measures(report):
        side = "old" if measure.pair in old_pairs else "new"
        groups[f"{side}_{measure.texts}"].append(measure)
    group_means = {}
    for name, group in groups.items():
        group_means[name] = {
            "before": fmean(measure.before for measure in group),
            "after": fmean(measure.after for measure in group),
        }
    return group_means


def fall(report: Report) -> float | None:
    """Return by how many points the mean over the old pairs is lower than before.

    Of sentences and documents, the one that fell more counts. It is 0 if both rose, None if no old
    pair was measured.
    """
    falls = []
    for name, mean in means(report).items():
        if name.startswith("old"):
            falls.append(100 * (mean["before"] - mean["after"]))
    if not falls:
        return None
    return max(0.0, *falls)


def describe(report: Report) -> str:
    """Return the report in words and tables, `languages.md`."""
    new_languages = ", ".join(report["new_languages"])
    old_languages = ", ".join(report["old_languages"])
    tokenizer = report["tokenizer"]
    new_rows = report["data"]["new"]["rows"]
    old_rows = report["data"]["old"]["rows"]
    old_share = old_rows / max(new_rows + old_rows, 1)
    parts = [
        f"# {new_languages} added to {old_languages}",
        "Retrieval P@1 (%) of the dev rows, both directions, before and after.",
        _table(report),
        _summary(report),
        f"{tokenizer['new_tokens']:,} tokens were added to make {tokenizer['vocab_size']:,}.",
        f"Training rows: {new_rows:,} of new pairs, {old_rows:,} of old ones ({old_share:.1%}).",
    ]
    return "\n\n".join(parts) + "\n"


def _table(report: Report) -> str:
    rows = list(measures(report))
    for name, mean in report["means"].items():
        side, texts = name.split("_")
        title = f"mean of {side} pairs"
        rows.append(Measure("all", texts, title, mean["before"], mean["after"]))
    lines = []
    for row in rows:
        change = 100 * (row.after - row.before)
        values = [percent(row.before), percent(row.after), f"{change:+.1f}"]
        lines.append([row.dev_set, row.texts, row.pair, *values])
    header = ("dev set", "texts", "pair", "before", "after", "change")
    return "\n".join(markdown_table(header, lines, left=3))


def _summary(report: Report) -> str:
    change = "was not measured"
    if report["fall"] is not None:
        change = f"fell by {report['fall']:.1f} points"
    allowed = "no limit was asked for"
    if report["max_drop"] is not None:
        allowed = f"{report['max_drop']:g} were allowed"
    summary = f"The old languages' mean {change} ({allowed})."
    share = report["trained_share"]
    if share < 1:
        summary += (
            f" The weights are {share:.0%} of the trained ones, the rest those before training."
        )
    return summary
