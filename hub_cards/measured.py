"""Measured results of a model: those of its own run on dev rows, and those of `tmde eval`."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult

from modeling_tmde.eval.markdown import markdown_escape, markdown_table, percent
from modeling_tmde.eval.model_index import eval_results
from modeling_tmde.eval.report import BASELINES, markdown_report
from modeling_tmde.eval.results import TaskResult
from modeling_tmde.eval.sections import METRICS, Section, cells_by_pair, column_value, mean_over, sections
from modeling_tmde.eval.significance import summary_intervals
from modeling_tmde.eval.storage import EVAL_NAME, read_results
from modeling_tmde.hub_cards.run_facts import RunFacts
from modeling_tmde.hub_cards.sources import public_name, public_value


class Measured:
    """
    What `tmde eval` found.

    Args:
        results: Of the model, and beside it of TF-IDF.
        system: The model's name in them.
    """

    def __init__(self, results: Sequence[TaskResult], system: str) -> None:
        self.system = system
        self.results = [_public(result) for result in results]

    @classmethod
    def read(cls, folders: Sequence[str | os.PathLike], name: str) -> Measured | None:
        """
        Args:
            folders: Of `tmde eval -o`, or `FOLDER#SYSTEM` where it holds several systems.
            name: The system to take where there are several and none is named.

        Raises:
            ValueError: No such evaluation or system.
        """
        found: list[TaskResult] = []
        for given in map(os.fspath, folders):
            folder, _, system = (given, "", "") if Path(given, EVAL_NAME).exists() else given.rpartition("#")
            results = read_results(folder or given)
            systems = list(dict.fromkeys(result.system for result in results if not _is_tfidf(result)))
            chosen = system or (systems[0] if len(systems) == 1 else name)
            if chosen not in systems:
                raise ValueError(
                    f"{folder or given}: found the systems {', '.join(systems)}, expected the model's to be called "
                    f"{chosen!r}; name it: {folder or given}#{(systems or ['NAME'])[0]}"
                )
            own = [replace(result, system=name) for result in results if result.system == chosen]
            found += own + [result for result in results if _is_tfidf(result)]
        return cls(found, name) if found else None

    def eval_results(self) -> list[EvalResult]:
        return eval_results([result for result in self.results if result.system == self.system])

    def summary(self) -> list[str]:
        """Markdown: a row for each task and mean (or cell, where there is one alone)."""
        rows = []
        for section in sections(self.results):
            own = next((result for result in section.results if result.system == self.system), None)
            if own is not None:
                rows += _rows(section, own)
        header = ["task", "measure", "languages", "this model", "95% interval", "TF-IDF", *BASELINES]
        kept = [place for place in range(len(header)) if any(row[place] != "–" for row in rows)]
        return markdown_table([header[place] for place in kept], [[row[place] for place in kept] for row in rows], 3)

    @property
    def has_tfidf(self) -> bool:
        return any(_is_tfidf(result) for result in self.results)

    def details(self) -> str:
        """Markdown: every matrix, further measures and how it was measured."""
        report = markdown_report(self.results, published=False).partition("\n")[2].strip()
        return re.sub(r"^(#+ )", r"##\1", report, flags=re.MULTILINE)


def _is_tfidf(result: TaskResult) -> bool:
    return result.system.startswith("TF-IDF")


def _public(result: TaskResult) -> TaskResult:
    data = dict(result.data)
    if data.get("source") and data["source"] != data.get("hub_id"):
        data["source"] = public_name(data["source"])
    return replace(result, data=data, settings=public_value(result.settings))


def _rows(section: Section, own: TaskResult) -> list[list[str]]:
    columns = section.columns()
    if {"Same", "Cross"} & set(columns):  # without single cells, which the details have
        columns = {title: members for title, members in columns.items() if title in ("Same", "Cross")}
    cells = cells_by_pair(own)
    intervals: dict[str, Any] = {}
    if any(cell.interval for cell in own.cells):
        samples, seed = own.settings.get("bootstrap_samples", 2000), own.settings.get("seed", 0)
        intervals = summary_intervals(own.cells, samples=samples, seed=seed)
    tfidf = next((result for result in section.results if _is_tfidf(result)), None)
    metric = METRICS.get(section.metric, section.metric)
    rows = []
    for title, members in columns.items():
        there = [cells[pair] for pair in members if pair in cells]
        if not there:
            continue
        interval = there[0].interval if len(there) == 1 else intervals.get(title)
        row = [markdown_escape(f"{section.task} ({section.protocol})"), metric, title]
        row.append(percent(column_value(own, members)))
        row.append("–" if interval is None else f"{percent(interval[0])} to {percent(interval[1])}")
        row.append("–" if tfidf is None else percent(column_value(tfidf, members)))
        row += [percent(mean_over(section.baseline(name), members)) for name in BASELINES]
        rows.append(row)
    return rows


def dev_table(facts: RunFacts) -> list[str]:
    """Markdown: precision at 1 on the run's dev rows, at the step whose weights were kept; nothing without any."""
    found = _precisions(facts)
    pairs = list(dict.fromkeys(pair for values in found.values() for pair in values))
    if not found:
        return []
    rows = []
    for (name, documents), values in found.items():
        chance = [1 / size for pair in values if (size := _pool(facts, name, documents, pair))]
        row = [f"{markdown_escape(name)}, {'documents' if documents else 'sentences'}"]
        row += [percent(values.get(pair)) for pair in pairs]
        row += [percent(sum(values.values()) / len(values)), percent(sum(chance) / len(chance) if chance else None)]
        rows.append(row)
    return markdown_table(["dev set", *pairs, "mean", "chance"], rows)


def dev_eval_results(facts: RunFacts) -> list[EvalResult]:
    """The means of `dev_table` for `model-index`, said to be of the split `dev`."""
    held_out = f" held out from {'this run' if facts.goes_on else 'training'}" if facts.holds_out else ""
    made = []
    for (name, documents), values in _precisions(facts).items():
        kind = "documents" if documents else "sentences"
        made.append(
            EvalResult(
                task_type="translation-retrieval",
                task_name="Translation retrieval",
                dataset_type=re.sub(r"\W+", "-", name),
                dataset_name=f"{name}, {kind}{held_out}",
                dataset_config=kind,
                dataset_split="dev",
                metric_type="precision_at_1",
                metric_name="Precision at 1",
                metric_value=round(sum(values.values()) / len(values), 6),
                metric_args={"protocol": "retrieval", "pairs": list(values), "checkpoint": "chosen on these rows"},
            )
        )
    return made


def _precisions(facts: RunFacts) -> dict[tuple[str, bool], dict[str, float]]:
    """By dev set and whether of documents: by pair of languages."""
    # Of what the model knows: codes and names of sets may hold the very signs between them, as deu_Latn and zh-CN do.
    pairs = {f"{first}-{second}" for first, second in itertools.permutations(facts.languages, 2)}
    found: dict[tuple[str, bool], dict[str, float]] = {}
    for key, value in (facts.results.get("best") or {}).items():
        name, _, pair = key.removeprefix("eval_").rpartition("_p1_")
        if pair in pairs:
            found.setdefault((name.removesuffix("_doc"), name.endswith("_doc")), {})[pair] = value
    return found


def _pool(facts: RunFacts, name: str, documents: bool, pair: str) -> int | None:
    """How many were searched; None where a run did not record it."""
    sizes = (facts.results.get("dev_pools") or {}).get(name) or {}
    return sizes.get(f"{'doc_' if documents else ''}p1_{pair}")


def task_table(facts: RunFacts) -> list[str]:
    """Markdown: Same and Cross of the classification that the run watched; nothing without any."""
    best = facts.results.get("best") or {}
    if "eval_same" not in best:
        return []
    rows = [
        [name, *(percent(best.get(f"eval_{prefix}{name.lower()}")) for prefix in ("", "test_"))]
        for name in ("Same", "Cross")
    ]
    return markdown_table(["languages", "dev", "test"], rows)


def added_languages(facts: RunFacts) -> str:
    """Markdown: which languages a run of `tmde add-language` added, and what that did; empty for any other run."""
    if not facts.added_languages:
        return ""
    report = facts.languages_report
    text = f"Added languages: {', '.join(f'`{code}`' for code in facts.added_languages)}."
    drawn = {kind: counts["rows"] for kind, counts in (report.get("data") or {}).items()}
    if sum(drawn.values()):
        share = percent(drawn["old"] / sum(drawn.values()))
        text += f" Of the first rows that the run drew, {share} % were of the other languages alone."
    if kept := _kept_share(report):
        text += f" To keep the other languages, the weights are {kept}."
    rows = []
    for name, values in (report.get("means") or {}).items():
        kind, _, texts = name.partition("_")
        before, after = values["before"], values["after"]
        pairs = "with an added language" if kind == "new" else "of the other languages"
        rows.append([pairs, texts, percent(before), percent(after), f"{100 * (after - before):+.1f}"])
    if not rows:
        return text
    text += " Retrieval on the dev rows (precision at 1 in %, mean over pairs) before and after:"
    return "\n".join([text, "", *markdown_table(["pairs", "texts", "before", "after", "change"], rows, 2)])


def _kept_share(report: Mapping[str, Any]) -> str:
    share = report.get("trained_share", 1.0)
    return f"{percent(share)} % of the trained ones and else of those before training" if share < 1 else ""
