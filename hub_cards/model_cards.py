"""Model cards: what a run recorded, in the form that the Hub and its readers know."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from modeling_tmde.eval.markdown import markdown_escape
from modeling_tmde.hub_cards.compute import compute_rows
from modeling_tmde.hub_cards.families import OBJECTIVES, Family, family_of
from modeling_tmde.hub_cards.limits import limits, words_seen
from modeling_tmde.hub_cards.measured import Measured, added_languages, dev_eval_results, dev_table, task_table
from modeling_tmde.hub_cards.readme import fill, found_license, write_card
from modeling_tmde.hub_cards.run_facts import RunFacts
from modeling_tmde.hub_cards.snippets import snippets
from modeling_tmde.hub_cards.sources import DataSource, check_licenses

TAGS = ["sentence-transformers", "feature-extraction", "sentence-similarity", "multilingual", "tmde"]


def model_card(
    folder: str | os.PathLike,
    repo_id: str | None = None,
    license: str | None = None,
    data_licenses: Mapping[str, str] | None = None,
    description: str | None = None,
    results: Sequence[str | os.PathLike] = (),
    co2_eq_emissions: Mapping[str, Any] | float | None = None,
) -> ModelCard:
    """The card of a trained model. Nothing in it is a path of this machine, and nothing is asked of the network.

    Args:
        folder: Of a run of `tmde train`, or of any saved model of this package; what is not recorded is not claimed.
        repo_id: `user/name` on the Hub, for the code in the card. Default: the name of the folder.
        license: Of the model, an identifier of the Hub such as `apache-2.0`. Default: that of the recipe's section
            `card`; if there is none either, the card says that it is not stated.
        data_licenses: By source of the training text, by its last component or its Hub id. Default: those of `card`,
            then those that the sources' own dataset cards state.
        description: Markdown at the top. Default: that of `card`.
        results: Folders of `tmde eval -o`, each `FOLDER` or `FOLDER#SYSTEM`; their numbers become `model-index`.
            Without any, those on dev rows do, marked as such.
        co2_eq_emissions: Measured emissions, in grams or in the Hub's form; none are estimated.

    Raises:
        ValueError: No model of this package there, damaged files, licences of unknown sources, results of other
            systems.
    """
    facts = RunFacts.read(folder)
    name = (repo_id or facts.name).rpartition("/")[2]
    license = license or facts.card.get("license")
    sources = _licensed(facts.sources, data_licenses, facts.card.get("data_licenses"))
    measured = Measured.read(results, name)
    evaluated = measured.eval_results() if measured else dev_eval_results(facts)
    tags = [tag for tag in TAGS if tag != TAGS[0] or repo_id or facts.opens_in_sentence_transformers]
    data = _card_data(facts, name, tags, license, sources, evaluated, co2_eq_emissions)
    family = family_of(facts)
    return fill(
        "model_card.md.jinja",
        ModelCard,
        data,
        name=name,
        description=description or facts.card.get("description"),
        facts=facts,
        family=family,
        overview=_overview(facts, family, license),
        snippets=snippets(facts, repo_id),
        sources=sources,
        begun_with=", itself begun with ".join(origin.sentence for origin in facts.begun_with),
        teachers=", ".join(origin.sentence for origin in facts.teachers),
        added=added_languages(facts),
        where=shlex.quote(repo_id or facts.folder.resolve().name),
        objectives=[_objective(name, options) for name, options in (facts.recipe.get("objectives") or {}).items()],
        words=_amount(words_seen(facts)),
        recipe=yaml.safe_dump(facts.recipe, sort_keys=False, allow_unicode=True, width=100).strip(),
        measured=measured,
        dev_table=dev_table(facts),
        task_table=task_table(facts),
        has_curves=(facts.folder / "curves.png").is_file(),
        compute=compute_rows(facts),
        co2=co2_eq_emissions,
        limits=limits(facts),
        license=license,
    )


def write_model_card(folder: str | os.PathLike, **options: Any) -> bool:
    """Writes `README.md` into `folder`. Of one that a person has edited, or written, only the metadata are brought up
    to date, and what they added to these stays.

    Args:
        options: Of `model_card`. Without a licence, here or in the recipe, it is the one in the metadata there.

    Returns:
        Whether the text was written, and not the metadata alone.

    Raises:
        ValueError: As `model_card`; or the front matter of the `README.md` that is there is damaged.
    """
    path = RunFacts.path_of(folder) / "README.md"
    card = model_card(folder, **options)
    if card.data.license is None and (license := found_license(path)):
        card = model_card(folder, **{**options, "license": license})
    return write_card(card, path)


def _card_data(
    facts: RunFacts,
    name: str,
    tags: list[str],
    license: str | None,
    sources: Sequence[DataSource],
    evaluated: list[EvalResult],
    co2: Mapping[str, Any] | float | None,
) -> ModelCardData:
    more = {"co2_eq_emissions": dict(co2) if isinstance(co2, Mapping) else co2} if co2 is not None else {}
    return ModelCardData(
        language=hub_languages(facts.languages),
        license=license,
        library_name="transformers",
        pipeline_tag="feature-extraction",
        tags=tags,
        datasets=_hub_datasets(
            [*sources, *(source for origin in facts.begun_with for source in origin.sources or ())]
        ),
        base_model=facts.base_model,
        model_name=name,
        eval_results=evaluated or None,
        **more,
    )


def _hub_datasets(sources: Sequence[DataSource]) -> list[str] | None:
    return list(dict.fromkeys(source.name for source in sources if source.kind == "hub")) or None


def hub_languages(codes: Sequence[str]) -> list[str]:
    """As the Hub knows them: ISO 639 codes of two or three letters, without script or country."""
    bare = (re.split(r"[-_]", code)[0].lower() for code in codes)
    return list(dict.fromkeys(code for code in bare if re.fullmatch("[a-z]{2,3}", code)))


def _licensed(
    sources: Sequence[DataSource], given: Mapping[str, str] | None, of_recipe: Mapping[str, str] | None
) -> list[DataSource]:
    """With the licences that are given, which count before those that the sources state."""
    known = [source._asdict() for source in sources]
    stated = check_licenses(known, of_recipe) | check_licenses(known, given)
    return [source._replace(license=stated.get(source.name, source.license)) for source in sources]


def _overview(facts: RunFacts, family: Family, license: str | None) -> list[tuple[str, str]]:
    """Rows of the table at the top."""
    languages = ", ".join(f"`{code}`" for code in facts.languages)
    rows = [("Family", family.name), ("Languages", languages)]
    if facts.needs_language:
        rows[-1] = ("Languages", f"{languages}; the model must be told that of a text")
    if facts.parameters is not None:
        total, encoder = facts.parameters
        size = _millions(total)
        rows.append(("Parameters", size if encoder == total else f"{size}; {_millions(encoder)} of them embed"))
    rows.append(("A vector", f"{facts.config.hidden_size} numbers, float32"))
    longest = "no limit" if facts.max_length is None else f"{facts.max_length:,} tokens"
    rows.append(("Longest input", longest))
    case = ", lower case" if facts.lowercases else ""
    rows.append(("Vocabulary", f"{facts.config.vocab_size:,} subwords{case}"))
    if facts.begun_with:
        rows.append(("Begun with", facts.begun_with[0].link))
    if facts.teachers:
        rows.append(("Taught by", ", ".join(origin.link for origin in facts.teachers)))
    return [*rows, ("Licence", license or "not stated")]


def _amount(words: float | None) -> str | None:
    if words is None:
        return None
    return f"{words / 1e6:,.1f} million words" if words >= 1e6 else f"{words:,.0f} words"


def _millions(count: int) -> str:
    return f"{count / 1e6:,.1f} M" if count >= 100_000 else f"{count:,}"


def _objective(name: str, options: Mapping[str, Any] | None) -> str:
    what = OBJECTIVES[name][0] if name in OBJECTIVES else markdown_escape(name.replace("_", " "))
    weight = (options or {}).get("weight")
    return what if weight is None else f"{what}, weight {weight:g}"
