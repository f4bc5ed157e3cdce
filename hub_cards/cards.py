"""Model and dataset cards: the facts of a run or of a corpus, filled into the templates of this folder."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pyarrow.compute as pc
import yaml
from huggingface_hub import (
    DatasetCard,
    DatasetCardData,
    EvalResult,
    ModelCard,
    ModelCardData,
    RepoCard,
)
from tabulate import tabulate

from modeling_tmde import TmdeError

from .provenance import FIRST_STAGE, check_licenses, public_recipe, read_json, stated_license

TAGS = [
    "sentence-transformers",
    "feature-extraction",
    "sentence-similarity",
    "multilingual",
    "tmde",
]
NO_LIMIT = 10**6  # a tokenizer's `model_max_length` above it means that there is none
_MARKER = re.compile(r"\n*<!-- tmde:card ([0-9a-f]{16})[^>]*-->\s*\Z")


def model_card(
    folder: str | os.PathLike,
    repo_id: str | None = None,
    license: str | None = None,
    data_licenses: Mapping[str, str] | None = None,
    results: Sequence[str | os.PathLike] = (),
) -> ModelCard:
    """The card of a trained model. It holds no path of this machine, and needs no network.

    Args:
        folder: Of a run of `tmde train`, or of any saved model of this package. What is not recorded is not claimed.
        repo_id: `user/name` on the Hub, for the code in the card. Default: the name of the folder.
        license: Of the model, an identifier of the Hub such as `apache-2.0`. Default: that of the recipe's section
            `card`, then that of the folder's `README.md`; otherwise the card says that it is not stated.
        data_licenses: By source of the training text (file name or Hub id). Default: those of `card`, then those that
            the dataset cards of the sources state.
        results: Folders of `tmde eval -o`, each `FOLDER` or `FOLDER#SYSTEM`. Their numbers become `model-index`.
            Without any, those on dev rows do, marked as such.

    Raises:
        ValueError: No model of this package, damaged files, licenses of unknown sources, results of other systems.
    """
    folder = Path(folder).expanduser()
    config = read_json(folder / "config.json")
    kind = str(config.get("model_type"))
    if not kind.startswith("tmde"):
        raise TmdeError(
            f"{folder}: found model_type {kind!r} in config.json, expected a model of this package"
        )
    languages, recipe, run = (
        config["languages"],
        public_recipe(folder),
        read_json(folder / "run.json"),
    )
    found, first_stage = (
        read_json(folder / "results.json"),
        read_json(folder / FIRST_STAGE / "results.json"),
    )
    first_run = read_json(folder / FIRST_STAGE / "run.json")
    begun = run.get("begun_with") or first_run.get("begun_with") or []
    stated = recipe.pop("card", None) or {}
    license = license or stated.get("license") or stated_license(folder)
    sources = run.get("sources") or []
    licenses = check_licenses(sources, stated.get("data_licenses")) | check_licenses(
        sources, data_licenses
    )
    sources = [
        {**source, "license": licenses.get(source["name"], source.get("license"))}
        for source in sources
    ]
    trained_on = [*sources, *(source for model in begun for source in model["sources"] or ())]
    resolved = folder.resolve()
    name = (repo_id or (resolved.parent if resolved.name == "model" else resolved).name).rpartition(
        "/"
    )[2]
    dev_table, evaluated = _dev_results(languages, found)
    evaluations = [record for given in results for record in _evaluation(os.fspath(given), name)]
    summary_table, cell_table = _evaluation_tables(evaluations)
    data = ModelCardData(
        language=hub_languages(languages),
        license=license,
        library_name="transformers",
        pipeline_tag="feature-extraction",
        tags=TAGS,
        datasets=list(
            dict.fromkeys(source["name"] for source in trained_on if source["kind"] == "hub")
        )
        or None,
        base_model=begun[0]["name"] if begun and begun[0]["hub"] else None,
        model_name=name,
        eval_results=[EvalResult(**entry) for one in evaluations for entry in one["model_index"]]
        or evaluated
        or None,
    )
    return _fill(
        "model_card.md.jinja",
        ModelCard,
        data,
        name=name,
        where=repo_id or resolved.name,
        config=config,
        description=stated.get("description"),
        recipe=recipe,
        recipe_yaml=yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True, width=100).strip(),
        run=run,
        results=found,
        first_stage=first_stage,
        report=read_json(folder / "languages.json"),
        sources=sources,
        begun_with=begun,
        teachers=[one["teacher"] for one in (run, first_run) if one.get("teacher")],
        dev_table=dev_table,
        perplexity=_perplexity(recipe, found),
        summary_table=summary_table,
        cell_table=cell_table,
        has_curves=(folder / "curves.png").is_file(),
        parameters=_parameters(folder),
        **_reading(folder, config),
    )


def write_model_card(folder: str | os.PathLike, **options: Any) -> None:
    """Writes `README.md` into `folder`. If a person wrote or edited the text there, only the metadata change.

    Args:
        options: Of `model_card`.

    Raises:
        ValueError: As `model_card`; or the metadata of the existing file are damaged.
    """
    path = Path(folder).expanduser() / "README.md"
    existing = path.read_text("utf-8-sig") if path.is_file() else ""
    temporary = path.with_name(
        f".README.{os.getpid()}.tmp.md"
    )  # an interrupted write must not lose edited text
    temporary.write_text(str(merge_card(model_card(folder, **options), existing)), "utf-8")
    os.replace(temporary, path)


def dataset_card(rows: datasets.Dataset, repo_id: str, license: str | None = None) -> DatasetCard:
    """The card of parallel rows.

    Args:
        rows: Checked rows with the column `translation`, and those that `tmde mine` and `tmde align` write.
        repo_id: `user/name` on the Hub.
        license: An identifier of the Hub; without one the card says that it is not stated.
    """
    languages = sorted(rows.features["translation"].languages)
    table = rows.with_format("arrow")[:]
    valid = {code: pc.is_valid(pc.struct_field(table["translation"], code)) for code in languages}
    pairs = {
        f"{first}-{second}": pc.sum(pc.and_(valid[first], valid[second])).as_py()
        for first, second in itertools.combinations(languages, 2)
    }
    columns = {field.name: str(field.type) for field in table.schema}
    scores = [score for score in rows["score"] if score is not None] if "score" in columns else []
    scored = bool(scores) and isinstance(scores[0], int | float)
    origin = (
        ("mined" if "ids" in columns else "aligned" if "segment" in columns else "")
        if scored
        else ""
    )
    title = repo_id.rpartition("/")[2]
    data = DatasetCardData(
        language=hub_languages(languages),
        license=license,
        multilinguality="translation" if len(languages) == 2 else "multilingual",
        task_categories=["translation", "sentence-similarity"],
        pretty_name=title,
        tags=["parallel-corpus", "tmde", *filter(None, [origin])],
    )
    return _fill(
        "dataset_card.md.jinja",
        DatasetCard,
        data,
        title=title,
        repo_id=repo_id,
        num_rows=len(rows),
        languages=languages,
        pivots=[code for code in ("en", "es") if code in languages] or languages[:1],
        complete=all(count == len(rows) for count in pairs.values()),
        pairs=_table(
            ["pair", "rows"], [[pair, f"{count:,}"] for pair, count in pairs.items() if count]
        ),
        columns=columns,
        scores=(min(scores), statistics.median(scores), max(scores)) if scored else None,
        origin=origin,
        yaml_list=lambda codes: yaml.safe_dump(
            codes, default_flow_style=True, width=10**6
        ).strip(),  # quotes `no`
    )


# ---- Text that a person edited


def is_edited(text: str) -> bool:
    """Whether a person wrote or edited the text of a card; metadata do not count."""
    body = ModelCard(text, ignore_metadata_errors=True).text
    mark = _MARKER.search(body)
    return mark is None or _digest(body[: mark.start()]) != mark[1]


def merge_card(card: RepoCard, existing: str) -> RepoCard:
    """`card` with the text of an existing card if a person edited it; metadata that only that one has are kept.

    Args:
        existing: The whole file; empty if there is none.

    Raises:
        ValueError: Its metadata are damaged.
    """
    if not existing:
        return card
    try:
        found = RepoCard(existing)
    except (
        Exception
    ) as error:  # YAML errors have no common base with that of a block that is no mapping
        raise TmdeError(
            f"README.md: its metadata (between the lines ---) are no YAML mapping ({error}); correct or delete them"
        ) from error
    old, new, edited = found.data.to_dict(), card.data.to_dict(), is_edited(existing)
    tags = list(dict.fromkeys([*(old.get("tags") or ()), *(new.get("tags") or ())]))
    left_out = {"dataset_info", "configs"}  # the Hub reads them from the files
    if not edited:
        left_out.add("model-index")  # results belong to the text that is replaced
    kept = {key: value for key, value in old.items() if key not in left_out}
    metadata = yaml.safe_dump({**kept, **new, "tags": tags}, sort_keys=False, allow_unicode=True)
    return RepoCard(f"---\n{metadata}---\n{found.text if edited else card.text}")


def _fill(template: str, card_class: type[RepoCard], data: Any, **values: Any) -> RepoCard:
    """A card with the mark by which `is_edited` knows its text."""
    functions = {"quote": lambda value: json.dumps(value, ensure_ascii=False), "shell": shlex.quote}
    path = str(Path(__file__).with_name(template))
    card = card_class.from_template(
        data, template_path=path, percent=percent, **functions, **values
    )
    text = re.sub(r"\n{3,}", "\n\n", card.text).strip()
    note = "delete this line to keep the text as it is; edited text is kept anyway"
    card.text = f"\n{text}\n\n<!-- tmde:card {_digest(text)} ({note}) -->\n"
    return card


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip().replace("\r\n", "\n").encode()).hexdigest()[:16]


# ---- Facts of a model


def hub_languages(codes: Sequence[str]) -> list[str]:
    """ISO 639 codes of two or three letters, as the Hub knows them, without script or country."""
    bare = (re.split(r"[-_]", code)[0].lower() for code in codes)
    return list(dict.fromkeys(code for code in bare if re.fullmatch("[a-z]{2,3}", code)))


def _reading(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes and limits of the model, and the languages of the examples."""
    kind, inner = config["model_type"], config.get("encoder_config") or {}
    tokenizer = read_json(folder / "tokenizer_config.json")
    limits = [config.get("max_position_embeddings"), tokenizer.get("model_max_length")]
    longest = min((int(limit) for limit in limits if limit and limit < NO_LIMIT), default=None)
    architecture = (config.get("architectures") or [""])[0]
    decodes = architecture.endswith("ForConditionalGeneration") and kind != "tmde_ntdv"
    known = [code for code in ("de", "en") if code in config["languages"]]
    codes = [*known, *(code for code in config["languages"] if code not in known)] * 2
    normalizer = json.dumps(read_json(folder / "tokenizer.json").get("normalizer"))
    return {
        "dim": read_json(folder / "1_Pooling" / "config.json")["word_embedding_dimension"],
        "vocab_size": config.get("vocab_size") or inner.get("vocab_size"),
        "max_length": longest if limits[0] else None,  # a model without positions takes any length
        "lowercases": '"Lowercase"' in normalizer or bool(tokenizer.get("do_lower_case")),
        "needs_language": kind in ("tmde_ntdv", "tmde_aligned"),
        "decodes": decodes and config.get("bottleneck") != "full",
        "codes": codes[:2],
    }


def _parameters(folder: Path) -> tuple[int, int]:
    """Numbers in the weights, and those of them that embed."""
    files = huggingface_hub.get_local_safetensors_metadata(folder).files_metadata.values()
    sizes = {
        name: tensor.parameter_count for file in files for name, tensor in file.tensors.items()
    }
    encoder = [
        size for name, size in sizes.items() if not name.startswith(("decoder.", "lm_head."))
    ]
    return sum(sizes.values()), sum(encoder)


def _perplexity(recipe: Mapping[str, Any], results: Mapping[str, Any]) -> float | None:
    """Perplexity of the decoder on the worst of the dev sets; None without a loss per token."""
    options = (recipe.get("objectives") or {}).get("translation") or {}
    losses = [
        value
        for key, value in (results.get("best") or {}).items()
        if key.endswith("_translation_nll")
    ]
    return math.exp(max(losses)) if losses and options.get("reduction", "mean") == "mean" else None


# ---- Measured results


def percent(value: float | str | None) -> str:
    """A share as `83.1`; `–` for None."""
    return "–" if value is None else f"{100 * float(value):.1f}"


def _evaluation(given: str, name: str) -> list[dict[str, Any]]:
    """The model's results in `eval.json`, of `FOLDER` or `FOLDER#SYSTEM`.

    Raises:
        ValueError: No evaluation, or several systems of which none is chosen.
    """
    folder, _, system = (
        (given, "", "") if Path(given, "eval.json").is_file() else given.rpartition("#")
    )
    records = read_json(Path(folder or given, "eval.json")).get("results") or []
    systems = list(dict.fromkeys(record["system"] for record in records if not record["baseline"]))
    chosen = system or (systems[0] if len(systems) == 1 else name)
    if chosen not in systems:
        raise TmdeError(
            f"{folder or given}: found results of {', '.join(systems) or 'no system'}, expected some of {chosen!r}; "
            f"give FOLDER#SYSTEM, such as {folder or given}#{(systems or ['NAME'])[0]}"
        )
    return [record for record in records if record["system"] == chosen]


def _evaluation_tables(evaluations: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Columns of each task, and all cells with their intervals."""
    columns, cells = [], []
    for record in evaluations:
        task = f"{_escape(record['task'])} ({record['protocol']})"
        for column in record["columns"]:
            row = [
                task,
                record["metric_name"],
                column["title"],
                percent(column["value"]),
                _range(column["interval"]),
            ]
            columns.append([*row, percent(column.get("chance")), percent(column.get("majority"))])
        for cell in record["cells"]:
            pair, items = f"{cell['source']} → {cell['target']}", f"{cell['items']:,}"
            cells.append([task, pair, percent(cell["value"]), _range(cell["interval"]), items])
    header = ["task", "measure", "languages", "this model", "95% interval", "chance", "majority"]
    summary = _table(header, columns, left=3)
    return summary, _table(
        ["task", "languages", "this model", "95% interval", "items"], cells, left=2
    )


def _range(interval: Sequence[float] | None) -> str:
    return "–" if interval is None else f"{percent(interval[0])} to {percent(interval[1])}"


def _dev_results(
    languages: Sequence[str], results: Mapping[str, Any]
) -> tuple[str, list[EvalResult]]:
    """Precision at 1 on the dev rows of the run, at the step whose weights were kept: table and `model-index`."""
    known = {f"{first}-{second}" for first, second in itertools.permutations(languages, 2)}
    found: dict[tuple[str, str], dict[str, float]] = {}
    for key, value in (results.get("best") or {}).items():
        name, _, pair = key.removeprefix("eval_").rpartition("_p1_")
        if pair in known:
            kind = "documents" if name.endswith("_doc") else "sentences"
            found.setdefault((name.removesuffix("_doc"), kind), {})[pair] = value
    pairs = list(dict.fromkeys(pair for values in found.values() for pair in values))
    rows, evaluated = [], []
    for (name, kind), values in found.items():
        sizes = (results.get("dev_pools") or {}).get(name) or {}
        pools = [sizes.get(f"{'doc_' if kind == 'documents' else ''}p1_{pair}") for pair in values]
        chance = sum(1 / size for size in pools) / len(pools) if all(pools) else None
        mean = sum(values.values()) / len(values)
        of_pairs = [percent(values.get(pair)) for pair in pairs]
        rows.append([f"{_escape(name)}, {kind}", *of_pairs, percent(mean), percent(chance)])
        dataset = {"dataset_type": re.sub(r"\W+", "-", name), "dataset_name": f"{name}, {kind}"}
        dataset |= {"dataset_config": kind, "dataset_split": "dev"}
        metric = {
            "metric_type": "precision_at_1",
            "metric_name": "Precision at 1",
            "metric_value": round(mean, 6),
        }
        how = {"protocol": "retrieval", "pairs": list(values), "checkpoint": "chosen on these rows"}
        evaluated.append(
            EvalResult(task_type="translation-retrieval", metric_args=how, **dataset, **metric)
        )
    return _table(["dev set", *pairs, "mean", "chance"], rows), evaluated


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A Markdown table; empty without rows."""
    if not rows:
        return ""
    return tabulate(
        rows,
        header,
        "pipe",
        colglobalalign="right",
        colalign=["left"] * left,
        disable_numparse=True,
    )


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_|\[\]~$<])", r"\\\1", text)
