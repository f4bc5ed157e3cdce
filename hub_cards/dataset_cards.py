"""The card of a dataset of parallel rows."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

import datasets
import pyarrow as pa
import pyarrow.compute as pc
import yaml
from huggingface_hub import DatasetCard, DatasetCardData

from tmde.hub_cards.markdown import table
from tmde.hub_cards.templates import fill_template, hub_languages


def dataset_card(rows: datasets.Dataset, repo_id: str, license: str | None = None) -> DatasetCard:
    """Return the card of parallel rows.

    Args:
        rows: Checked rows with the column `translation`, and with those that `tmde mine` and
            `tmde align` write.
        repo_id: `user/name` on the Hub.
        license: An identifier of the Hub. Without one the card says that it is not stated.
    """
    languages = sorted(rows.features["translation"].languages)
    content = rows.with_format("arrow")[:]
    columns = {field.name: str(field.type) for field in content.schema}
    rows_of_pair = _count_pairs(content, languages)
    pair_rows = [[pair, f"{count:,}"] for pair, count in rows_of_pair.items() if count]
    scores = _numeric_scores(rows)
    origin = _origin(columns) if scores else ""
    title = repo_id.rpartition("/")[2]
    tags = ["parallel-corpus", "tmde"]
    if origin:
        tags.append(origin)
    data = DatasetCardData(
        language=hub_languages(languages),
        license=license,
        multilinguality="translation" if len(languages) == 2 else "multilingual",
        task_categories=["translation", "sentence-similarity"],
        pretty_name=title,
        tags=tags,
    )
    return fill_template(
        "dataset_card.md.jinja",
        DatasetCard,
        data,
        title=title,
        repo_id=repo_id,
        num_rows=len(rows),
        languages=languages,
        pivots=_pivots(languages),
        complete=all(count == len(rows) for count in rows_of_pair.values()),
        pairs=table(["pair", "rows"], pair_rows),
        columns=columns,
        scores=(min(scores), statistics.median(scores), max(scores)) if scores else None,
        origin=origin,
        yaml_list=_yaml_list,
    )


def _count_pairs(content: pa.Table, languages: Sequence[str]) -> dict[str, int]:
    """Return the number of rows that have both languages, by pair of languages."""
    has_language = {}
    for language in languages:
        texts = pc.struct_field(content["translation"], language)
        has_language[language] = pc.is_valid(texts)
    counts = {}
    for first, second in itertools.combinations(languages, 2):
        has_both = pc.and_(has_language[first], has_language[second])
        counts[f"{first}-{second}"] = pc.sum(has_both).as_py()
    return counts


def _numeric_scores(rows: datasets.Dataset) -> list[float]:
    """Return the scores of the rows; none if there are none, or if they are no numbers."""
    if "score" not in rows.column_names:
        return []
    scores = [score for score in rows["score"] if score is not None]
    if not scores or not isinstance(scores[0], int | float):
        return []
    return scores


def _origin(columns: dict[str, str]) -> str:
    """Return how scored rows were made, by the columns that the commands write."""
    if "ids" in columns:
        return "mined"
    if "segment" in columns:
        return "aligned"
    return ""


def _pivots(languages: Sequence[str]) -> list[str]:
    """Return the pivot languages of the example, English and Spanish if the rows have them."""
    preferred = [language for language in ("en", "es") if language in languages]
    return preferred or list(languages[:1])


def _yaml_list(languages: Sequence[str]) -> str:
    """Return a YAML list on one line. Norwegian, `no`, comes in quotes."""
    return yaml.safe_dump(list(languages), default_flow_style=True, width=10**6).strip()
