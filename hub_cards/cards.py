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
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import yaml
from huggingface_hub import DatasetCard, DatasetCardData, EvalResult, ModelCard, ModelCardData
from huggingface_hub.repocard import RepoCard
from safetensors import SafetensorError, safe_open
from tabulate import tabulate

from .provenance import FIRST_STAGE, check_licenses, public_recipe, read_json

TAGS = ["sentence-transformers", "feature-extraction", "sentence-similarity", "multilingual", "tmde"]
DECODER_PREFIXES = ("decoder.", "lm_head.")
NO_LIMIT = 10**6  # a tokenizer's `model_max_length` above it means that there is none
SIZES = {3: "n<1K", 4: "1K<n<10K", 5: "10K<n<100K", 6: "100K<n<1M", 7: "1M<n<10M", 8: "10M<n<100M", 9: "100M<n<1B"}
_MARKER = re.compile(r"\n*<!-- tmde:card ([0-9a-f]{16})[^>]*-->\s*\Z")


def model_card(
    folder: str | os.PathLike,
    repo_id: str | None = None,
    license: str | None = None,
    data_licenses: Mapping[str, str] | None = None,
    description: str | None = None,
    results: Sequence[str | os.PathLike] = (),
) -> ModelCard:
    """The card of a trained model. It holds no path of this machine, and needs no network.

    Args:
        folder: Of a run of `tmde train`, or of any saved model of this package. What is not recorded is not claimed.
        repo_id: `user/name` on the Hub, for the code in the card. Default: the name of the folder.
        license: Of the model, an identifier of the Hub such as `apache-2.0`. Default: that of the recipe's section
            `card`; otherwise the card says that it is not stated.
        data_licenses: By source of the training text (file name or Hub id). Default: those of `card`, then those that
            the dataset cards of the sources state.
        description: Markdown at the top. Default: that of `card`.
        results: Folders of `tmde eval -o`, each `FOLDER` or `FOLDER#SYSTEM`. Their numbers become `model-index`.
            Without any, those on dev rows do, marked as such.

    Raises:
        ValueError: No model of this package, damaged files, licenses of unknown sources, results of other systems.
    """
    folder = Path(folder).expanduser()
    config = read_json(folder / "config.json")
    kind = str(config.get("model_type"))
    if not kind.startswith("tmde"):
        raise ValueError(f"{folder}: found model_type {kind!r} in config.json, expected a model of this package")
    languages, recipe, run = config["languages"], public_recipe(folder), read_json(folder / "run.json")
    found, first_stage = read_json(folder / "results.json"), read_json(folder / FIRST_STAGE / "results.json")
    first_run = read_json(folder / FIRST_STAGE / "run.json")
    begun = run.get("begun_with") or first_run.get("begun_with") or []
    stated = recipe.pop("card", None) or {}
    license = license or stated.get("license")
    sources = run.get("sources") or []
    licenses = check_licenses(sources, stated.get("data_licenses")) | check_licenses(sources, data_licenses)
    sources = [{**source, "license": licenses.get(source["name"], source.get("license"))} for source in sources]
    resolved = folder.resolve()
    name = (repo_id or (resolved.parent if resolved.name == "model" else resolved).name).rpartition("/")[2]
    dev_table, evaluated = _dev_results(languages, found)
    own, tfidf = [], []
    for given in map(os.fspath, results):
        of_model, of_tfidf = _evaluation(given, name)
        own, tfidf = own + of_model, tfidf + of_tfidf
    summary_table, cell_table = _evaluation_tables(own, tfidf)
    opens_elsewhere = bool(repo_id) or (folder / "modules.json").is_file()
    data = ModelCardData(
        language=hub_languages(languages),
        license=license,
        library_name="transformers",
        pipeline_tag="feature-extraction",
        tags=TAGS if opens_elsewhere else TAGS[1:],
        datasets=_hub_datasets([*sources, *(one for model in begun for one in model.get("sources") or ())]),
        base_model=begun[0]["name"] if begun and begun[0]["hub"] else None,
        model_name=name,
        eval_results=[EvalResult(**entry) for record in own for entry in record["model_index"]] or evaluated or None,
    )
    facts = {
        "name": name,
        "where": repo_id or resolved.name,
        "kind": kind,
        "config": config,
        "languages": languages,
        "license": license,
        "description": description or stated.get("description"),
        "recipe": recipe,
        "recipe_yaml": yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True, width=100).strip(),
        "objectives": list(recipe.get("objectives") or {}),
        "run": run,
        "results": found,
        "first_stage": first_stage,
        "report": read_json(folder / "languages.json"),
        "sources": sources,
        "begun_with": begun,
        "teachers": [one["teacher"] for one in (run, first_run) if one.get("teacher")],
        "held_out": bool(recipe.get("data")) and not recipe["data"].get("dev"),
        "dev_table": dev_table,
        "perplexity": _perplexity(recipe, found),
        "summary_table": summary_table,
        "cell_table": cell_table,
        "has_curves": (folder / "curves.png").is_file(),
        "sentence_transformers": opens_elsewhere,
        "parameters": _parameters(folder),
        **_reading(folder, config),
    }
    return _fill("model_card.md.jinja", ModelCard, data, **facts)


def write_model_card(folder: str | os.PathLike, **options: Any) -> bool:
    """Writes `README.md` into `folder`. If a person wrote or edited the text there, only the metadata change.

    Args:
        options: Of `model_card`. The default of `license` is the one in the metadata of the existing file.

    Returns:
        Whether the text was written.

    Raises:
        ValueError: As `model_card`; or the metadata of the existing file are damaged.
    """
    path = Path(folder).expanduser() / "README.md"
    card = model_card(folder, **options)
    if card.data.license is None and (license := card_license(path)):
        card = model_card(folder, **{**options, "license": license})
    return save_card(card, path)


def short_card(repo_id: str, languages: Sequence[str], license: str | None = None) -> ModelCard:
    """A card that is true of any weights, for the time of a training run."""
    data = ModelCardData(
        language=hub_languages(languages), license=license, library_name="transformers", tags=TAGS[1:]
    )
    code = f'AutoModel.from_pretrained("{repo_id}", trust_remote_code=True)'
    text = f"# {repo_id}\n\nEmbeds texts of several languages in one space: `{code}`. It is in training."
    return ModelCard(f"---\n{data}\n---\n{_marked(text)}")


def dataset_card(rows: datasets.Dataset, repo_id: str, license: str | None = None) -> DatasetCard:
    """The card of parallel rows.

    Args:
        rows: Checked rows with the column `translation`, and those that `tmde mine` and `tmde align` write.
        repo_id: `user/name` on the Hub.
        license: An identifier of the Hub; without one the card says that it is not stated.
    """
    languages = sorted(rows.features["translation"].languages)
    pairs = _count_pairs(rows, languages)
    columns = {name: _type_name(feature) for name, feature in rows.features.items()}
    scores = [score for score in rows["score"] if score is not None] if "score" in columns else []
    scored = bool(scores) and isinstance(scores[0], int | float)
    origin = ("mined" if "ids" in columns else "aligned" if "segment" in columns else "") if scored else ""
    title = repo_id.rpartition("/")[2]
    data = DatasetCardData(
        language=hub_languages(languages),
        license=license,
        multilinguality="translation" if len(languages) == 2 else "multilingual",
        size_categories=SIZES.get(max(3, len(str(len(rows)))), "n>1B"),
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
        pairs=_table(["pair", "rows"], [[pair, f"{count:,}"] for pair, count in pairs.items() if count]),
        columns=columns,
        scores=(min(scores), statistics.median(scores), max(scores)) if scored else None,
        origin=origin,
        license=license,
        # Flow style; quotes where YAML would read a boolean, such as `no`.
        yaml_list=lambda codes: yaml.safe_dump(codes, default_flow_style=True, width=10**6).strip(),
    )


# ---- A card on disk


def is_edited(text: str) -> bool:
    """Whether a person wrote or edited the text of a card; metadata do not count."""
    body = ModelCard(text, ignore_metadata_errors=True).text
    mark = _MARKER.search(body)
    return mark is None or _digest(body[: mark.start()]) != mark[1]


def save_card(card: RepoCard, path: Path, drop: Sequence[str] = ()) -> bool:
    """Writes a card; if a person wrote or edited the text at `path`, only its metadata are updated.

    Metadata that `card` does not have are kept, except for the keys `drop`, and tags are joined.

    Returns:
        Whether the text was written.
    """
    ours = not path.is_file() or not is_edited(path.read_text(encoding="utf-8-sig"))
    if path.is_file():
        found = _load(path)
        metadata = {**found.data.to_dict(), **card.data.to_dict()}
        for key in drop:
            metadata.pop(key, None)
        if ours and "model-index" not in card.data.to_dict():  # results belong to the text that is replaced
            metadata.pop("model-index", None)
        metadata["tags"] = list(dict.fromkeys([*(found.data.get("tags") or ()), *(card.data.get("tags") or ())]))
        text = card.text if ours else found.text
        card = RepoCard(f"---\n{yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)}---\n{text}")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(str(card), encoding="utf-8")
    temporary.replace(path)
    return ours


def card_license(path: Path) -> str | None:
    """The license in the metadata of the card at `path`, if there is one."""
    return _load(path).data.get("license") if path.is_file() else None


def _load(path: Path) -> RepoCard:
    try:
        return RepoCard(path.read_text(encoding="utf-8-sig"))
    except Exception as error:  # YAML errors have no common base with that of a block that is no mapping
        raise ValueError(
            f"{path}: its metadata (between the lines ---) are no YAML mapping ({error}); correct or delete them"
        ) from error


def _fill(template: str, card_class: type[RepoCard], data: Any, **values: Any) -> RepoCard:
    """A card with the mark by which `is_edited` knows its text."""
    functions = {"quote": _quote, "shell": shlex.quote, "percent": percent}
    path = str(Path(__file__).with_name(template))
    card = card_class.from_template(data, template_path=path, **functions, **values)
    card.text = _marked(re.sub(r"\n{3,}", "\n\n", card.text).strip())
    return card


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _marked(text: str) -> str:
    note = "delete this line to keep the text as it is; edited text is kept anyway"
    return f"\n{text}\n\n<!-- tmde:card {_digest(text)} ({note}) -->\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip().replace("\r\n", "\n").encode()).hexdigest()[:16]


# ---- Facts of a model


def hub_languages(codes: Sequence[str]) -> list[str]:
    """ISO 639 codes of two or three letters, as the Hub knows them, without script or country."""
    bare = (re.split(r"[-_]", code)[0].lower() for code in codes)
    return list(dict.fromkeys(code for code in bare if re.fullmatch("[a-z]{2,3}", code)))


def _hub_datasets(sources: Sequence[Mapping[str, Any]]) -> list[str] | None:
    return list(dict.fromkeys(source["name"] for source in sources if source["kind"] == "hub")) or None


def _reading(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """What a model reads and writes: sizes, limits, languages of the examples."""
    kind, inner = config["model_type"], config.get("encoder_config") or {}
    tokenizer, pooling = read_json(folder / "tokenizer_config.json"), read_json(folder / "1_Pooling" / "config.json")
    dim = pooling.get("word_embedding_dimension") or config.get("d_model") or inner.get("hidden_size")
    limits = [config.get("max_position_embeddings"), tokenizer.get("model_max_length")]
    longest = min((int(limit) for limit in limits if limit and limit < NO_LIMIT), default=None)
    architecture = (config.get("architectures") or [""])[0]
    decodes = architecture.endswith("ForConditionalGeneration") and kind != "tmde_ntdv"
    known = [code for code in ("de", "en") if code in config["languages"]]
    codes = [*known, *(code for code in config["languages"] if code not in known)] * 2
    pivots = config.get("pivot_languages") or [""]
    normalizer = json.dumps(read_json(folder / "tokenizer.json").get("normalizer"))
    return {
        "dim": dim or inner.get("d_model"),
        "vocab_size": config.get("vocab_size") or inner.get("vocab_size"),
        "max_length": longest if limits[0] else None,  # a model without positions takes any length
        "lowercases": '"Lowercase"' in normalizer or bool(tokenizer.get("do_lower_case")),
        "needs_language": kind in ("tmde_ntdv", "tmde_aligned"),
        "decodes": decodes and config.get("bottleneck") != "full",
        "codes": codes[:2],
        "target": next((code for code in pivots if code != codes[0]), pivots[0]),
    }


def _parameters(folder: Path) -> tuple[int, int] | None:
    """Numbers in the weights, and those of them that embed; None without weights."""
    index = read_json(folder / "model.safetensors.index.json").get("weight_map")
    total = encoder = 0
    for name in sorted(set((index or {}).values())) or ["model.safetensors"]:
        if not (folder / name).is_file():
            return None
        try:
            with safe_open(folder / name, framework="numpy") as file:
                shapes = {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(f"{folder / name}: the weights are damaged ({error}); save the model again") from error
        total += sum(map(math.prod, shapes.values()))
        encoder += sum(math.prod(shape) for key, shape in shapes.items() if not key.startswith(DECODER_PREFIXES))
    return total, encoder


def _perplexity(recipe: Mapping[str, Any], results: Mapping[str, Any]) -> float | None:
    """Of the decoder, on the worst of the dev sets; None without a loss per token."""
    options = (recipe.get("objectives") or {}).get("translation") or {}
    losses = [value for key, value in (results.get("best") or {}).items() if key.endswith("_translation_nll")]
    return math.exp(max(losses)) if losses and options.get("reduction", "mean") == "mean" else None


# ---- Measured results


def percent(value: float | str | None) -> str:
    """A share as `83.1`; `–` for None."""
    return "–" if value is None else f"{100 * float(value):.1f}"


def _evaluation(given: str, name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Records of `FOLDER` or `FOLDER#SYSTEM` in `eval.json`: those of the model, and those of TF-IDF.

    Raises:
        ValueError: No evaluation, or several systems of which none is chosen.
    """
    folder, _, system = (given, "", "") if Path(given, "eval.json").is_file() else given.rpartition("#")
    records = read_json(Path(folder or given, "eval.json")).get("results") or []
    systems = list(dict.fromkeys(record["system"] for record in records if not record["baseline"]))
    chosen = system or (systems[0] if len(systems) == 1 else name)
    if chosen not in systems:
        raise ValueError(
            f"{folder or given}: found results of {', '.join(systems) or 'no system'}, expected some of {chosen!r}; "
            f"give FOLDER#SYSTEM, such as {folder or given}#{(systems or ['NAME'])[0]}"
        )
    own = [record for record in records if record["system"] == chosen]
    return own, [record for record in records if record["baseline"]]


def _evaluation_tables(own: Sequence[Mapping[str, Any]], tfidf: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Columns of each task, and all cells with their intervals."""
    of_tfidf = {
        (record["task"], record["protocol"], column["title"]): column["value"]
        for record in tfidf
        for column in record["columns"]
    }
    columns, cells = [], []
    for record in own:
        task = f"{_escape(record['task'])} ({record['protocol']})"
        for column in record["columns"]:
            row = [task, record["metric_name"], column["title"], percent(column["value"]), _range(column["interval"])]
            row += [percent(column.get("chance")), percent(column.get("majority"))]
            columns.append([*row, percent(of_tfidf.get((record["task"], record["protocol"], column["title"])))])
        for cell in record["cells"]:
            pair, items = f"{cell['source']} → {cell['target']}", f"{cell['items']:,}"
            cells.append([task, pair, percent(cell["value"]), _range(cell["interval"]), items])
    header = ["task", "measure", "languages", "this model", "95% interval", "chance", "majority", "TF-IDF"]
    kept = [place for place in range(len(header)) if any(row[place] != "–" for row in columns)]
    summary = _table([header[place] for place in kept], [[row[place] for place in kept] for row in columns], left=3)
    return summary, _table(["task", "languages", "this model", "95% interval", "items"], cells, left=2)


def _range(interval: Sequence[float] | None) -> str:
    return "–" if interval is None else f"{percent(interval[0])} to {percent(interval[1])}"


def _dev_results(languages: Sequence[str], results: Mapping[str, Any]) -> tuple[str, list[EvalResult]]:
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
        evaluated.append(
            EvalResult(
                task_type="translation-retrieval",
                task_name="Translation retrieval",
                dataset_type=re.sub(r"\W+", "-", name),
                dataset_name=f"{name}, {kind}",
                dataset_config=kind,
                dataset_split="dev",
                metric_type="precision_at_1",
                metric_name="Precision at 1",
                metric_value=round(mean, 6),
                metric_args={"protocol": "retrieval", "pairs": list(values), "checkpoint": "chosen on these rows"},
            )
        )
    return _table(["dev set", *pairs, "mean", "chance"], rows), evaluated


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A Markdown table; empty without rows."""
    if not rows:
        return ""
    align = ["left" if column < left else "right" for column in range(len(header))]
    return tabulate(rows, header, tablefmt="pipe", colalign=align, disable_numparse=True)


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_|\[\]~$<])", r"\\\1", text)


# ---- Facts of a corpus


def _count_pairs(rows: datasets.Dataset, languages: Sequence[str]) -> dict[str, int]:
    """By pair `a-b`, the rows that have a text in both."""
    counts: Counter[str] = Counter()
    for table in rows.select_columns("translation").with_format("arrow").iter(batch_size=10_000):
        texts = table["translation"].combine_chunks()
        present = {code: pa.compute.is_valid(texts.field(code)) for code in languages}
        for first, second in itertools.combinations(languages, 2):
            counts[f"{first}-{second}"] += (
                pa.compute.sum(pa.compute.and_(present[first], present[second])).as_py() or 0
            )
    return dict(counts)


def _type_name(feature: Any) -> str:
    if isinstance(feature, datasets.Translation):
        feature = feature()  # as columns: a mapping
    if isinstance(feature, dict):
        return "{" + ", ".join(f"{name}: {_type_name(part)}" for name, part in feature.items()) + "}"
    return getattr(feature, "dtype", type(feature).__name__)
