"""The card of a dataset of parallel rows."""

from __future__ import annotations

import itertools
import statistics

import datasets
import pyarrow.compute as pc
import yaml
from huggingface_hub import DatasetCard, DatasetCardData

from tmde.hub_cards.card_text import fill_template, hub_languages


def dataset_card(rows: datasets.Dataset, repo_id: str, license: str | None = None) -> DatasetCard:
    """Return the card of parallel rows.

    Args:
        rows: Checked rows with a `translation` column, and optionally those that `tmde mine` and
            `tmde align` write.
        repo_id: `user/name` on the Hub.
        license: A license identifier of the Hub. Without one, the card says that it is not stated.
    """
    languages = sorted(rows.features["translation"].languages)
    scores = _numeric_scores(rows)
    origin = _origin(rows.column_names) if scores else ""
    title = repo_id.rpartition("/")[2]
    data = DatasetCardData(
        language=hub_languages(languages),
        license=license,
        multilinguality="translation" if len(languages) == 2 else "multilingual",
        task_categories=["translation", "sentence-similarity"],
        pretty_name=title,
        tags=["parallel-corpus", "tmde", *filter(None, [origin])],
    )
    preferred_pivots = [language for language in ("en", "es") if language in languages]
    return fill_template(
        "dataset_card.md.jinja",
        DatasetCard,
        data,
        title=title,
        repo_id=repo_id,
        num_rows=len(rows),
        languages=languages,
        pivots=preferred_pivots or languages[:1],
        rows_of_pair=_count_pairs(rows),
        columns={field.name: str(field.type) for field in rows.features.arrow_schema},
        scores=(min(scores), statistics.median(scores), max(scores)) if scores else None,
        origin=origin,
        yaml_list=_yaml_list,
    )


def _count_pairs(rows: datasets.Dataset) -> dict[str, int]:
    """Return the number of rows that have both languages, for each language pair."""
    translations = rows.with_format("arrow")[:]["translation"]
    has_language = {}
    for language in sorted(rows.features["translation"].languages):
        has_language[language] = pc.is_valid(pc.struct_field(translations, language))
    counts = {}
    for first, second in itertools.combinations(has_language, 2):
        has_both = pc.and_(has_language[first], has_language[second])
        counts[f"{first}-{second}"] = pc.sum(has_both).as_py()
    return counts


def _numeric_scores(rows: datasets.Dataset) -> list[float]:
    """Return the numeric scores of the rows; empty if there are none."""
    if "score" not in rows.column_names:
        return []
    return [score for score in rows["score"] if isinstance(score, int | float)]


def _origin(columns: list[str]) -> str:
    """Return how scored rows were made, judging by their columns."""
    if "ids" in columns:
        return "mined"
    if "segment" in columns:
        return "aligned"
    return ""


def _yaml_list(languages: list[str]) -> str:
    """Return a YAML list on one line. Norwegian, `no`, is quoted."""
    return yaml.safe_dump(languages, default_flow_style=True, width=10**6).strip()
