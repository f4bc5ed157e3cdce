"""The card of a trained model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from transformers.utils import logging

from tmde.hub_cards.card_text import fill_template, hub_languages, merge_card
from tmde.hub_cards.licenses import (
    check_license,
    describe_licenses,
    inherited_license,
    license_chain,
)
from tmde.hub_cards.measured_results import (
    dev_measures,
    dev_model_index,
    model_index,
    read_evaluations,
)
from tmde.hub_cards.model_facts import decoder_perplexity, read_model_facts
from tmde.hub_cards.provenance import licensed_sources, stated_license
from tmde.hub_cards.run_records import public_recipe, read_json, read_model_config

logger = logging.get_logger("tmde.hub_cards")

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
    is_shared: bool = False,
) -> ModelCard:
    """Return the card of a trained model, without local paths. It requires no network.

    Args:
        folder: The folder of a `tmde train` run, or of any saved model of this package. The card
            claims only what is recorded there.
        repo_id: `user/name` on the Hub, for the code in the card. Default: the folder name.
        license: The license of the model, an identifier of the Hub such as `apache-2.0`. Default:
            the license in the recipe's `card` section, then in the folder's `README.md`, then the
            one that the licenses of its base models and data require. Otherwise, the card says
            that it is not stated.
        data_licenses: Licenses by source of the training text (file name or Hub id). Default: those
            in the `card` section, then those stated by the dataset cards of the sources.
        results: Folders of `tmde eval -o`, each `FOLDER` or `FOLDER#SYSTEM`, for the `model-index`.
            Without any, it contains the results on dev rows, marked as such.
        license_override: Why `license` is right although the licenses of base models or training
            text don't allow it. The card repeats the reason. Default: the reason in the recipe's
            `card` section, unless `license` is set.
        is_shared: Whether the model is about to be shared. If so, its license is checked, and a
            warning is logged for each base model, data source or teacher that requires more than
            attribution.

    Raises:
        TmdeError: The folder contains no model of this package; files are damaged; licenses are
            stated for unknown sources; results are of other systems; or the licenses of base models
            or data do not allow that of a shared model, and no reason is stated.
    """
    folder = Path(folder).expanduser()
    config = read_model_config(folder)
    recipe = public_recipe(folder)
    stated = recipe.pop("card", {})
    run = read_json(folder / "run.json")
    origins = run.get("begun_with", [])
    teachers = run.get("teachers", [])
    sources = licensed_sources(run.get("sources") or [], stated.get("data_licenses"), data_licenses)
    chain = license_chain(origins, sources)
    if license_override is None and license in (None, stated.get("license")):
        # The reason in a recipe applies only to the license in it.
        license_override = stated.get("license_override")
    choices = [license, stated.get("license"), stated_license(folder), inherited_license(chain)]
    license = next(filter(None, choices), None)
    if is_shared:
        check_license(license, chain, license_override)
        for sentence in describe_licenses(chain, teachers):
            logger.warning(sentence)

    name = _model_name(folder, repo_id)
    run_results = read_json(folder / "results.json")
    evaluations = read_evaluations(results, name)
    entries = model_index(evaluations) or dev_model_index(run_results)
    data = ModelCardData(
        language=hub_languages(config["languages"]),
        license=license,
        library_name="transformers",
        pipeline_tag="feature-extraction",
        tags=TAGS,
        datasets=_hub_datasets(sources, origins) or None,
        base_model=_base_model(origins),
        model_name=name,
        eval_results=entries or None,
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
        config=config,
        description=stated.get("description"),
        recipe=recipe,
        run=run,
        results=run_results,
        report=read_json(folder / "languages.json"),
        sources=sources,
        begun_with=origins,
        teachers=teachers,
        chain=chain,
        license_override=license_override,
        dev_measures=dev_measures(run_results),
        perplexity=decoder_perplexity(recipe, run_results),
        evaluations=evaluations,
        has_curves=(folder / "curves.png").is_file(),
        **read_model_facts(folder, config),
    )


def write_model_card(folder: str | os.PathLike, **options: Any) -> None:
    """Write `README.md` into a folder.

    If a person wrote or edited the text there, only the metadata changes.

    Args:
        folder: See `model_card`.
        **options: The other arguments of `model_card`.

    Raises:
        TmdeError: See `model_card`; or the metadata of the existing file is damaged.
    """
    path = Path(folder).expanduser() / "README.md"
    existing = path.read_text("utf-8-sig") if path.is_file() else ""
    card = merge_card(model_card(folder, **options), existing)
    # An interrupted write must not lose edited text.
    temporary = path.with_name(f".README.{os.getpid()}.tmp.md")
    temporary.write_text(str(card), "utf-8")
    os.replace(temporary, path)


def _model_name(folder: Path, repo_id: str | None) -> str:
    """Return the name of the repository or the run's folder."""
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
    """Return the Hub datasets on which the model or one of its base models was trained."""
    all_sources = list(sources)
    for origin in origins:
        all_sources.extend(origin["sources"] or ())
    names = [source["name"] for source in all_sources if source["kind"] == "hub"]
    return list(dict.fromkeys(names))


def _base_model(origins: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the Hub id of the nearest base model that is on the Hub."""
    for origin in origins:
        if origin["hub"]:
            name: str = origin["name"]
            return name
    return None
