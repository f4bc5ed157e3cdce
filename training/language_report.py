"""What adding languages did: retrieval of every pair before and after, the tokens, and the rows of the run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import datasets
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde.data.io import write_atomically
from modeling_tmde.eval.report import markdown_table, percent
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.evaluation import dev_retrieval, language_pairs
from modeling_tmde.training.objectives import Objective
from modeling_tmde.training.parallel_model import ParallelModel

REPORT_NAME = "languages"  # .md and .json
MEASURES = {"p1_": "sentences", "doc_p1_": "documents"}

Retrieval = dict[str, dict[str, float]]  # precision at 1 by dev set and `[doc_]p1_<a>-<b>`


def measure_retrieval(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dev: Mapping[str, datasets.Dataset],
    languages: list[str],
    objectives: dict[str, Objective],
    args: TmdeTrainingArguments,
) -> Retrieval:
    """`dev_retrieval` of every dev set, in `languages`, which a checkpoint need not have been trained on."""
    model = model.to(args.device).eval()
    known, model.config.languages = model.config.languages, list(languages)
    try:
        parallel = ParallelModel(model, objectives)
        return {name: dev_retrieval(parallel, tokenizer, rows, args) for name, rows in dev.items()}
    finally:
        model.config.languages = known


@dataclass
class LanguageReport:
    """
    What `languages.json` holds, and `languages.md` in words; precisions lie between 0 and 1, falls are in points.

    checkpoint: What the run began with.
    old_languages, new_languages: Codes.
    tokenizer: `new_tokens`, `left_out`, `vocab_size`; by language `tokens_per_word` (before, after); by old language
        `changed_texts`, the share of dev texts whose tokens are others now.
    data: `rows` and `words` of `old` and `new` pairs in the first rows drawn, and `replayed`, whether any old is.
    before, start, after: Retrieval on the dev rows of the checkpoint, of the model before its first step, with the new
        tokens, and of the result.
    max_drop: The fall that was allowed, in points; None for any.
    trained_share: The result is so much of the trained weights and else of those before the first step.
    """

    checkpoint: str
    old_languages: list[str]
    new_languages: list[str]
    tokenizer: dict[str, Any]
    before: Retrieval
    start: Retrieval
    data: dict[str, Any] = field(default_factory=dict)
    after: Retrieval = field(default_factory=dict)
    max_drop: float | None = None
    trained_share: float = 1.0

    def cells(self, kind: str) -> Iterator[tuple[str, str, str]]:
        """Dev set, measure (`p1_` or `doc_p1_`) and pair of all that was measured of the `"old"` or `"new"` pairs."""
        pairs = language_pairs([*self.old_languages, *self.new_languages])
        new = set(self.new_languages)
        wanted = [name for name, codes in pairs.items() if new.isdisjoint(codes) == (kind == "old")]
        for measure, (name, found) in itertools.product(MEASURES, self.before.items()):
            yield from ((name, measure, pair) for pair in wanted if measure + pair in found)

    def mean(self, retrieval: Retrieval, kind: str, measure: str) -> float | None:
        values = [retrieval[name][measure + pair] for name, of, pair in self.cells(kind) if of == measure]
        return fmean(values) if values else None

    def fall(self, retrieval: Retrieval) -> float | None:
        """By how many points the mean over the old pairs is lower than before, of sentences or of documents, whichever
        fell more; 0 if both rose, None if no old pair was measured."""
        means = [(self.mean(self.before, "old", of), self.mean(retrieval, "old", of)) for of in MEASURES]
        falls = [100 * (before - after) for before, after in means if before is not None]
        return max([0.0, *falls]) if falls else None

    def largest_fall(self) -> dict[str, Any] | None:
        """The old pair that lost most: `pair`, `set`, `texts` and `points`, negative if even it rose."""
        found = [
            {
                "pair": pair,
                "set": name,
                "texts": MEASURES[measure],
                "points": 100 * (self.before[name][measure + pair] - self.after[name][measure + pair]),
            }
            for name, measure, pair in self.cells("old")
        ]
        return max(found, key=lambda cell: cell["points"]) if found else None

    def means(self) -> dict[str, dict[str, float]]:
        """`before`, `start` and `after`, by `old_sentences`, `new_documents` and so on."""
        states = {"before": self.before, "start": self.start, "after": self.after}
        found = {
            f"{kind}_{text}": {name: self.mean(retrieval, kind, of) for name, retrieval in states.items()}
            for kind in ("old", "new")
            for of, text in MEASURES.items()
        }
        return {name: values for name, values in found.items() if values["before"] is not None}

    def write(self, folder: Path) -> None:
        """`languages.json` and `languages.md`."""
        content = asdict(self) | {"means": self.means(), "fall": self.fall(self.after)}
        content["largest_fall"] = self.largest_fall()
        write_atomically(folder / f"{REPORT_NAME}.json", json.dumps(content, indent=2, ensure_ascii=False))
        write_atomically(folder / f"{REPORT_NAME}.md", self.markdown())

    def markdown(self) -> str:
        new, old = ", ".join(self.new_languages), ", ".join(self.old_languages)
        lines = [f"# {new} added to {old}", "", *self._retrieval_lines(), "", *self._token_lines(), ""]
        return "\n".join([*lines, *self._data_lines(), ""])

    def _retrieval_lines(self) -> list[str]:
        header = ["pairs", "dev set", "texts", "pair", "before", "after", "change"]
        rows = []
        for kind in ("old", "new"):
            for name, measure, pair in self.cells(kind):
                values = [retrieval[name][measure + pair] for retrieval in (self.before, self.after)]
                rows.append([kind, name, MEASURES[measure], pair, *map(percent, values), _change(*values)])
        for name, values in self.means().items():
            kind, text = name.split("_")
            both = values["before"], values["after"]
            rows.append([kind, "all", text, "mean", *map(percent, both), _change(*both)])
        worst = self.largest_fall()
        words = ["Retrieval P@1 (%) of the dev rows, both directions, before and after.", ""]
        words += markdown_table(header, rows, left=4) + [""]
        fall = self.fall(self.after)
        found = f"fell by {fall:.1f} points at most, of sentences or documents" if fall else "did not fall"
        if fall is None:
            found = "was not measured: no dev set has two rows of a pair of them"
        words += [f"The old languages' mean {found} ({self._allowed()})."]
        if worst:
            words += [
                f"Of the old pairs, {worst['pair']} ({worst['texts']} of {worst['set']}) changed worst: "
                f"{-worst['points']:+.1f} points."
            ]
        if self.trained_share < 1:
            words += [
                f"To stay within what was allowed, the weights are {self.trained_share:.0%} of the trained ones and "
                f"{1 - self.trained_share:.0%} of those before the first step."
            ]
        return words

    def _allowed(self) -> str:
        return "no limit was asked for" if self.max_drop is None else f"{self.max_drop:g} were allowed"

    def _token_lines(self) -> list[str]:
        tokenizer = self.tokenizer
        changed = tokenizer["changed_texts"]
        if not tokenizer["new_tokens"]:
            return [f"The vocabulary keeps its {tokenizer['vocab_size']:,} tokens."]
        rows = [
            [language, *(f"{value:.2f}" for value in values), percent(changed.get(language))]
            for language, values in tokenizer["tokens_per_word"].items()
        ]
        header = ["language", "tokens a word before", "after", "texts changed (%)"]
        text = f"{tokenizer['new_tokens']:,} tokens were added to make {tokenizer['vocab_size']:,}. In the dev texts:"
        return [text, "", *markdown_table(header, rows)]

    def _data_lines(self) -> list[str]:
        new, old = self.data["new"], self.data["old"]
        share = old["rows"] / max(new["rows"] + old["rows"], 1)
        text = (
            f"The first {new['rows'] + old['rows']:,} rows drawn in training: {new['rows']:,} of new pairs "
            f"({new['words']:,} words), {old['rows']:,} of old ones ({old['words']:,} words), {share:.1%} of the rows."
        )
        return [text] if old["rows"] else [text, "", "No rows of the old languages were replayed."]


def _change(before: float, after: float) -> str:
    return f"{100 * (after - before):+.1f}"
