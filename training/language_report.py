"""What adding languages did: retrieval of every pair before and after, the tokens, and the rows of the run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from tabulate import tabulate

from modeling_tmde.data.io import write_atomically
from modeling_tmde.training.evaluation import language_pairs

MEASURES = {"p1_": "sentences", "doc_p1_": "documents"}

Retrieval = dict[str, dict[str, float]]  # precision at 1 by dev set and `[doc_]p1_<a>-<b>`


@dataclass
class LanguageReport:
    """
    What `languages.json` holds, and `languages.md` in words; precisions lie between 0 and 1, falls are in points.

    Args:
        checkpoint: What the run began with.
        old_languages, new_languages: Codes.
        tokenizer: `new_tokens`, `left_out`, `vocab_size`; by language `tokens_per_word` (before, after); by old
            language `changed_texts`, the share of dev texts whose tokens are others now.
        data: Training rows of `old` and `new` pairs.
        before, start, after: Retrieval on the dev rows of the checkpoint, of the model before its first step, with the
            new tokens, and of the result.
        max_drop: The fall that was allowed, in points; None for any.
        trained_share: The result is so much of the trained weights and else of those before the first step.
    """

    checkpoint: str
    old_languages: list[str]
    new_languages: list[str]
    tokenizer: dict[str, Any]
    data: dict[str, dict[str, int]]
    before: Retrieval = field(default_factory=dict)
    start: Retrieval = field(default_factory=dict)
    after: Retrieval = field(default_factory=dict)
    max_drop: float | None = None
    trained_share: float = 1.0

    def cells(self, kind: str) -> Iterator[tuple[str, str, str]]:
        """Dev set, measure (`p1_` or `doc_p1_`) and pair of all that was measured of the `"old"` or `"new"` pairs."""
        pairs = language_pairs([*self.old_languages, *self.new_languages])
        wanted = [name for name, codes in pairs.items() if bool({*codes} & {*self.new_languages}) == (kind == "new")]
        for measure in MEASURES:
            for name, found in self.before.items():
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

    def falls_too_far(self) -> bool:
        """Whether the result lost more than `max_drop`."""
        return self.max_drop is not None and (self.fall(self.after) or 0) > self.max_drop + 1e-9

    def means(self) -> dict[str, dict[str, float]]:
        """`before`, `start` and `after`, by `old_sentences`, `new_documents` and so on."""
        states = {"before": self.before, "start": self.start, "after": self.after}
        return {
            f"{kind}_{text}": {name: self.mean(retrieval, kind, of) for name, retrieval in states.items()}
            for kind in ("old", "new")
            for of, text in MEASURES.items()
            if any(measure == of for _, measure, _ in self.cells(kind))
        }

    def write(self, folder: Path) -> None:
        """Writes `languages.json` and `languages.md`."""
        content = asdict(self) | {"means": self.means(), "fall": self.fall(self.after)}
        write_atomically(folder / "languages.json", json.dumps(content, indent=2, ensure_ascii=False))
        write_atomically(folder / "languages.md", self.markdown())

    def markdown(self) -> str:
        rows = []
        for kind in ("old", "new"):
            for name, measure, pair in self.cells(kind):
                both = [retrieval[name][measure + pair] for retrieval in (self.before, self.after)]
                rows.append([kind, name, MEASURES[measure], pair, *both])
        for name, values in self.means().items():
            rows.append([*name.split("_")[:1], "all", name.split("_")[1], "mean", values["before"], values["after"]])
        cells = [
            [*row[:4], *(f"{100 * value:.1f}" for value in row[4:]), f"{100 * (row[5] - row[4]):+.1f}"] for row in rows
        ]
        header = ["pairs", "dev set", "texts", "pair", "before", "after", "change"]
        fall = self.fall(self.after)
        allowed = "no limit was asked for" if self.max_drop is None else f"{self.max_drop:g} were allowed"
        found = "was not measured" if fall is None else f"fell by {fall:.1f} points" if fall else "did not fall"
        lines = [
            f"# {', '.join(self.new_languages)} added to {', '.join(self.old_languages)}",
            "Retrieval P@1 (%) of the dev rows, both directions, before and after.",
            tabulate(cells, header, "github", disable_numparse=True, colalign=["left"] * 4 + ["right"] * 3),
            f"The old languages' mean {found} ({allowed}).",
        ]
        if self.trained_share < 1:
            lines.append(
                f"To stay within what was allowed, the weights are {self.trained_share:.0%} of the trained ones and "
                f"{1 - self.trained_share:.0%} of those before the first step."
            )
        vocabulary = f"{self.tokenizer['new_tokens']:,} tokens were added to make {self.tokenizer['vocab_size']:,}."
        lines.append(vocabulary if self.tokenizer["new_tokens"] else "The vocabulary keeps its tokens.")
        changed = self.tokenizer["changed_texts"]
        words = [
            [
                language,
                f"{before:.2f}",
                f"{after:.2f}",
                f"{100 * changed[language]:.1f}" if language in changed else "–",
            ]
            for language, (before, after) in self.tokenizer["tokens_per_word"].items()
        ]
        header = ["language", "tokens a word before", "after", "texts changed (%)"]
        lines.append(tabulate(words, header, "github", disable_numparse=True, colalign=["left"] + ["right"] * 3))
        new, old = self.data["new"]["rows"], self.data["old"]["rows"]
        lines.append(f"Training rows: {new:,} of new pairs, {old:,} of old ones ({old / max(new + old, 1):.1%}).")
        return "\n\n".join(lines) + "\n"
