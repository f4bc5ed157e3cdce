"""The card of a trained model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, ModelCardData

from tmde.hub_cards.edited_text import merge_card
from tmde.hub_cards.licenses import (
    Terms,
    check_license,
    describe_start,
    describe_teachers,
    inherited_license,
    license_chain,
)
from tmde.hub_cards.measured_results import dev_results, read_evaluations
from tmde.hub_cards.model_facts import decoder_perplexity, read_model_facts
from tmde.hub_cards.provenance import licensed_sources, stated_license
from tmde.hub_cards.run_records import RunRecords
from tmde.hub_cards.templates import fill_template, hub_languages

TAGS = [
    "sentence-transformers",
    "feature-extraction",
    "sentence-similarity",
    "multilingual",
    "tmde",
]


def model_card(
    folder: str | os.PathLike,
    repo_id: str | None = None,
    license: str | None = None,
    data_licenses: Mapping[str, str] | None = None,
    results: Sequence[str | os.PathLike] = (),
    license_override: str | None = None,
) -> ModelCard:
    """Return the card of a trained model. It holds no path of this machine, and needs no network.

    Args:
        folder: The folder of a run of `tmde train`, or of any saved model of this package. What is
            not recorded is not claimed.
        repo_id: `user/name` on the Hub, for the code in the card. By default it is the name of the
            folder.
        license: The license of the model, an identifier of the Hub such as `apache-2.0`. By default
            it is that of the recipe's section `card`, then that of the folder's `README.md`, then
            the one that the licenses of what it was made from demand. Otherwise the card says that
            it is not stated.
        data_licenses: Licenses by source of the training text (file name or Hub id). By default
            they are those of `card`, then those that the dataset cards of the sources state.
        results: Folders of `tmde eval -o`, each `FOLDER` or `FOLDER#SYSTEM`. Their numbers become
            `model-index`. Without any, those on dev rows do, marked as such.
        license_override: Why `license` is right although the license of a model or of training text
            that it was made from does not allow it. The card repeats the reason. By default it is
            that of the recipe's section `card`, unless `license` is given.

    Raises:
        TmdeError: The folder holds no model of this package, files are damaged, licenses are of
            unknown sources, or results are of other systems.
    """
    folder = Path(folder).expanduser()
    records = RunRecords.read(folder)
    sources = _licensed_sources(records, data_licenses)
    chain = license_chain(records.origins, sources)
    license_override = _reason(records, license, license_override)
    license = license or stated_model_license(records) or inherited_license(chain)
    name = _model_name(folder, repo_id)
    dev_table, dev_entries = dev_results(records)
    evaluations = read_evaluations(results, name)
    data = ModelCardData(
        language=hub_languages(records.config["languages"]),
        license=license,
        library_name="transformers",
        pipeline_tag="feature-extraction",
        tags=TAGS,
        datasets=_hub_datasets(sources, records.origins) or None,
        base_model=_base_model(records.origins),
        model_name=name,
        eval_results=evaluations.model_index or dev_entries or None,
    )
    if license_override is not None:
        # In the metadata as well as in the text, which may be edited.
        data["license_override"] = license_override
    return fill_template(
        "model_card.md.jinja",
        ModelCard,
        data,
        name=name,
        where=repo_id or folder.resolve().name,
        config=records.config,
        description=records.card.get("description"),
        recipe=records.recipe,
        recipe_yaml=_recipe_yaml(records.recipe),
        run=records.run,
        results=records.results,
        report=records.languages,
        sources=sources,
        begun_with=records.origins,
        teachers=records.teachers,
        license_demands=[origin.demand for origin in chain if origin.is_demanding],
        unknown_licenses=[
            origin.demand
            for origin in chain
            if origin.license is not None and origin.parsed.terms == Terms.UNKNOWN
        ],
        license_override=license_override,
        dev_table=dev_table,
        perplexity=decoder_perplexity(records),
        summary_table=evaluations.summary,
        cell_table=evaluations.cells,
        has_curves=(folder / "curves.png").is_file(),
        **vars(read_model_facts(folder, records.config)),
    )


def check_model_license(
    folder: str | os.PathLike,
    license: str | None = None,
    data_licenses: Mapping[str, str] | None = None,
    license_override: str | None = None,
) -> str | None:
    """Return the license that the card of a model will state, after a check of it.

    Args:
        folder: See `model_card`.
        license: See `model_card`.
        data_licenses: See `model_card`.
        license_override: See `model_card`.

    Raises:
        TmdeError: The license is not one that the licenses of what the model was made from allow,
            and no reason is stated; or see `model_card`.
    """
    records = RunRecords.read(Path(folder).expanduser())
    chain = license_chain(records.origins, _licensed_sources(records, data_licenses))
    reason = _reason(records, license, license_override)
    license = license or stated_model_license(records) or inherited_license(chain)
    check_license(license, chain, reason)
    return license


def _reason(records: RunRecords, license: str | None, license_override: str | None) -> str | None:
    """Return why a license is right that the chain does not allow.

    The reason in a recipe is one for the license in it, so it stands for no other one.
    """
    stated = records.card.get("license")
    if license_override is None and license in (None, stated):
        return records.card.get("license_override")
    return license_override


def describe_recorded_licenses(folder: str | os.PathLike) -> list[str]:
    """Return what a push says of the licenses that do not simply ask for attribution.

    Args:
        folder: See `model_card`.

    Raises:
        TmdeError: See `model_card`.
    """
    records = RunRecords.read(Path(folder).expanduser())
    chain = license_chain(records.origins, _licensed_sources(records, None))
    return [*describe_start(chain), *describe_teachers(records.teachers)]


def stated_model_license(records: RunRecords) -> str | None:
    """Return the license that the recipe states for its model, or the card in its folder."""
    return records.card.get("license") or stated_license(records.folder)


def write_model_card(folder: str | os.PathLike, **options: Any) -> None:
    """Write `README.md` into a folder.

    If a person wrote or edited the text there, only the metadata change.

    Args:
        folder: See `model_card`.
        **options: The other arguments of `model_card`.

    Raises:
        TmdeError: See `model_card`; or the metadata of the existing file are damaged.
    """
    path = Path(folder).expanduser() / "README.md"
    existing = path.read_text("utf-8-sig") if path.is_file() else ""
    card = merge_card(model_card(folder, **options), existing)
    # An interrupted write must not lose edited text.
    temporary = path.with_name(f".README.{os.getpid()}.tmp.md")
    temporary.write_text(str(card), "utf-8")
    os.replace(temporary, path)


def _model_name(folder: Path, repo_id: str | None) -> str:
    """Return the name of the repository, or that of the run's folder."""
    if repo_id is not None:
        return repo_id.rpartition("/")[2]
    folder = folder.resolve()
    # The model of a run may be in the subfolder `model`.
    if folder.name == "model":
        folder = folder.parent
    return folder.name


def _licensed_sources(
    records: RunRecords, data_licenses: Mapping[str, str] | None
) -> list[dict[str, Any]]:
    """Return the sources of the training text with the licenses that were stated for them."""
    sources = records.run.get("sources") or []
    return licensed_sources(sources, records.card.get("data_licenses"), data_licenses)


def _hub_datasets(
    sources: Sequence[Mapping[str, Any]], origins: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the datasets of the Hub that the model, or one it started from, was trained on."""
    all_sources = list(sources)
    for origin in origins:
        all_sources.extend(origin["sources"] or ())
    names = [source["name"] for source in all_sources if source["kind"] == "hub"]
    return list(dict.fromkeys(names))


def _base_model(origins: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the Hub id of the model that the run started from."""
    if origins and origins[0]["hub"]:
        return origins[0]["name"]
    return None


def _recipe_yaml(recipe: Mapping[str, Any]) -> str:
    text = yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True, width=100)
    return text.strip()
