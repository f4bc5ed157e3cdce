"""The card of a trained model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, ModelCardData

from tmde.hub_cards.card_text import fill_template, hub_languages, merge_card
from tmde.hub_cards.licenses import (
    LicensedOrigin,
    check_license,
    describe_licenses,
    inherited_license,
    license_chain,
)
from tmde.hub_cards.measured_results import (
    dev_model_index,
    dev_results,
    model_index,
    read_evaluations,
)
from tmde.hub_cards.model_facts import decoder_perplexity, read_model_facts
from tmde.hub_cards.provenance import licensed_sources, stated_license
from tmde.hub_cards.run_records import RunRecords

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
    records = RunRecords.read(folder)
    license_facts = _LicenseFacts.of(records, license, data_licenses, license_override)
    name = _model_name(records.folder, repo_id)
    evaluations = read_evaluations(results, name)
    entries = model_index(evaluations) or dev_model_index(records.results)
    origins = records.run.get("begun_with", [])
    data = ModelCardData(
        language=hub_languages(records.config["languages"]),
        license=license_facts.license,
        library_name="transformers",
        pipeline_tag="feature-extraction",
        tags=TAGS,
        datasets=_hub_datasets(license_facts.sources, origins) or None,
        base_model=origins[0]["name"] if origins and origins[0]["hub"] else None,
        model_name=name,
        eval_results=entries or None,
    )
    if license_facts.override is not None:
        # In the metadata as well as in the text, which may be edited.
        data["license_override"] = license_facts.override
    recipe_text = yaml.safe_dump(records.recipe, sort_keys=False, allow_unicode=True, width=100)
    return fill_template(
        "model_card.md.jinja",
        ModelCard,
        data,
        name=name,
        where=repo_id or records.folder.resolve().name,
        config=records.config,
        description=records.card.get("description"),
        recipe=records.recipe,
        recipe_yaml=recipe_text.strip(),
        run=records.run,
        results=records.results,
        report=records.languages,
        sources=license_facts.sources,
        begun_with=origins,
        teachers=records.run.get("teachers", []),
        chain=license_facts.chain,
        license_override=license_facts.override,
        dev_results=dev_results(records.results),
        perplexity=decoder_perplexity(records),
        evaluations=evaluations,
        has_curves=(records.folder / "curves.png").is_file(),
        **read_model_facts(records.folder, records.config),
    )


def check_model_license(
    folder: str | os.PathLike,
    license: str | None = None,
    data_licenses: Mapping[str, str] | None = None,
    license_override: str | None = None,
) -> tuple[str | None, list[str]]:
    """Check the license that the card of a model will state.

    Args:
        folder: See `model_card`.
        license: See `model_card`.
        data_licenses: See `model_card`.
        license_override: See `model_card`.

    Returns:
        The license, and a sentence for each license of origins, data and teachers that does not
        simply ask for attribution.

    Raises:
        TmdeError: The license is not one that the licenses of what the model was made from allow,
            and no reason is stated; or see `model_card`.
    """
    records = RunRecords.read(folder)
    facts = _LicenseFacts.of(records, license, data_licenses, license_override)
    check_license(facts.license, facts.chain, facts.override)
    sentences = describe_licenses(facts.chain, records.run.get("teachers", []))
    return facts.license, sentences


@dataclass(frozen=True)
class _LicenseFacts:
    """The license that a card states, and those of what the model was made from.

    Args:
        license: The license of the model; None if it is not stated.
        override: Why it is right although the chain does not allow it.
        sources: The sources of the training text with their licenses.
        chain: What the model was made from.
    """

    license: str | None
    override: str | None
    sources: list[dict[str, Any]]
    chain: list[LicensedOrigin]

    @classmethod
    def of(
        cls,
        records: RunRecords,
        license: str | None,
        data_licenses: Mapping[str, str] | None,
        override: str | None,
    ) -> _LicenseFacts:
        """Return the facts of a folder; the arguments are those of `model_card`."""
        stated = records.card.get("license")
        if override is None and license in (None, stated):
            # The reason in a recipe is one for the license in it, so it stands for no other one.
            override = records.card.get("license_override")
        sources = licensed_sources(
            records.run.get("sources") or [], records.card.get("data_licenses"), data_licenses
        )
        chain = license_chain(records.run.get("begun_with", []), sources)
        for choice in (stated, stated_license(records.folder), inherited_license(chain)):
            license = license or choice
        return cls(license, override, sources, chain)


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


def _hub_datasets(
    sources: Sequence[Mapping[str, Any]], origins: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the datasets of the Hub that the model, or one it started from, was trained on."""
    all_sources = list(sources)
    for origin in origins:
        all_sources.extend(origin["sources"] or ())
    names = [source["name"] for source in all_sources if source["kind"] == "hub"]
    return list(dict.fromkeys(names))
