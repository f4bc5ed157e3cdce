r"""What `tmde add-language` gains with a few thousand rows, on news that no run has seen.

    python benchmarks/added_language.py WORK --ntrex NTREX --tico TICO --data DATA \
        --json benchmarks/results/added_language.json

`NTREX` is a clone of https://github.com/MicrosoftTranslator/NTREX, and `TICO` has
`all.en-pt-BR.tmx` and `all.en-ru.tmx` of https://tico-19.github.io. Portuguese and Russian are
added to `default` with TICO-19 and the first half of the news, of which the last 250 sentences
choose the checkpoint. Rows of `DATA/general/tatoeba.parquet` are replayed. `WORK` gets the runs.

P@1 is measured on the second half of the news, in both directions: between English and the new
language, and between every two of the old languages.
"""

import itertools
import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from common import LANGUAGES, in_percent, markdown, read_ntrex, write_json

from tmde.embedding import DocumentEmbedder
from tmde.training.added_language import add_languages, extension_recipe

MEMORIES = {"pt": "all.en-pt-BR.tmx", "ru": "all.en-ru.tmx"}
DEV_SENTENCES = 250
News = dict[str, list[str]]  # the sentences of each language

SETTINGS = ["max_minutes=null", "max_cpu_minutes=1.5"]


def write_pairs(path: Path, news: News, language: str, rows: slice) -> str:
    """Write rows of English and a language, and return the path."""
    lines = []
    for english, other in zip(news["en"][rows], news[language][rows], strict=True):
        lines.append(json.dumps({"en": english, language: other}, ensure_ascii=False))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def extend(language: str, news: News, tico: Path, data: Path, work: Path) -> tuple[Path, int]:
    """Add a language to `default`; return the folder of the run and the number of new tokens."""
    half = len(news["en"]) // 2
    last = half - DEV_SENTENCES
    train = write_pairs(work / f"{language}.jsonl", news, language, slice(last))
    dev = write_pairs(work / f"{language}-dev.jsonl", news, language, slice(last, half))
    recipe = extension_recipe(
        "default",
        [language],
        [train, str(tico / MEMORIES[language])],
        replay=str(data / "general" / "tatoeba.parquet"),
        dev={"news": dev},
        overrides=SETTINGS,
    )
    folder = work / language
    report = add_languages(recipe, folder, overwrite=True)
    return folder, report["tokenizer"]["new_tokens"]


def outcomes(first: np.ndarray, second: np.ndarray) -> list[bool]:
    """Return whether each sentence finds its translation, and each translation its sentence."""
    cosines = first @ second.T
    numbers = np.arange(len(cosines))
    forward = cosines.argmax(axis=1) == numbers
    backward = cosines.argmax(axis=0) == numbers
    return [*forward.tolist(), *backward.tolist()]


def measure(model: str, language: str, news: News) -> dict[str, Any]:
    """Return P@1 of a new language with English, and that of the old ones, in % with intervals."""
    embedder = DocumentEmbedder.from_pretrained(model)
    half = len(news["en"]) // 2
    vectors = {}
    for name in (*LANGUAGES, language):
        vectors[name] = embedder.encode(news[name][half:], normalize_embeddings=True)
    found_old = []
    for first, second in itertools.combinations(LANGUAGES, 2):
        found_old += outcomes(vectors[first], vectors[second])
    found_new = outcomes(vectors["en"], vectors[language])
    sentences = list(range(len(news["en"]) - half))
    return {
        "new": in_percent(found_new, 2 * sentences),
        "old": in_percent(found_old, len(found_old) // len(sentences) * sentences),
    }


def main(
    work: Annotated[Path, typer.Argument(help="Folder for the runs.")],
    ntrex: Annotated[Path, typer.Option(help="Clone of NTREX.")],
    tico: Annotated[Path, typer.Option(help="Folder of the memories of TICO-19.")],
    data: Annotated[Path, typer.Option(help="Folder with general/tatoeba.parquet.")],
    json_path: Annotated[Path | None, typer.Option("--json", help="File for results.")] = None,
) -> None:
    """Add each language, measure before and after, and print a table."""
    work.mkdir(parents=True, exist_ok=True)
    news = read_ntrex(ntrex, [*LANGUAGES, *MEMORIES])
    results: dict[str, Any] = {}
    rows = []
    for language in MEMORIES:
        folder, new_tokens = extend(language, news, tico, data, work)
        measured = {"new_tokens": new_tokens}
        for name, model in (
            ("before", "default"),
            ("after", str(folder)),
            ("accurate", "accurate"),
        ):
            measured[name] = measure(model, language, news)
            mean = {part: interval[0] for part, interval in measured[name].items()}
            rows.append({"language": language, "model": name, **mean})
        results[language] = measured
        print(markdown(rows))
    write_json(json_path, "added_language", {"settings": SETTINGS, "dev": DEV_SENTENCES}, results)


if __name__ == "__main__":
    typer.run(main)
