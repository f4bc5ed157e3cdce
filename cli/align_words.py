"""`tmde align-words`: word vectors of two languages brought into one space, and made a bag."""

import functools
import json
import logging
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from tmde.cli.errors import OptionError
from tmde.cli.options import check_new

Fit = Literal["rotation", "cca"]
Start = Literal["similarities", "adversarial"]


def align_words(
    source: Annotated[
        Path, Argument(help="Vectors of language A, in fastText's text format (.vec).")
    ],
    target: Annotated[Path, Argument(help="Vectors of language B, which stay as they are.")],
    output: Annotated[Path, Option("--output", "-o", metavar="FOLDER", help="Folder to make.")],
    language_a: Annotated[str, Option(help="Code of SOURCE's language.")],
    language_b: Annotated[str, Option(help="Code of TARGET's language.")],
    dictionary: Annotated[
        str | None, Option(help="Two words a line; identical: the words of both.")
    ] = None,
    test: Annotated[
        Path | None, Option(help="Dictionary to measure the translation of words with.")
    ] = None,
    similarity: Annotated[
        tuple[Path, Path] | None,
        Option(
            metavar="PAIRS SCORES",
            help="Judged pairs of words of A and B, and their scores, as in SemEval-2017 Task 2.",
        ),
    ] = None,
    sentences: Annotated[
        str | None, Option(help="Parallel rows, as of `tmde train`: idf, retrieval.")
    ] = None,
    also: Annotated[
        list[str] | None,
        Option(
            metavar="CODE=FILE",
            help="Vectors of a further language, in TARGET's space: join the bag. Repeatable.",
        ),
    ] = None,
    fit: Annotated[
        Fit, Option(help="rotation: MUSE. cca: multiCCA, which needs --dictionary.")
    ] = "rotation",
    refinements: Annotated[int, Option(min=0, help="Most rounds of mutual CSLS neighbors.")] = 5,
    start: Annotated[
        Start | None,
        Option(help="How to learn without --dictionary. Default: similarities."),
    ] = None,
    epochs: Annotated[
        int | None,
        Option(min=1, help="Of --start adversarial, 31,250 steps each. Default: 5."),
    ] = None,
    restarts: Annotated[
        int | None,
        Option(min=0, help="Of --start adversarial, runs after the first. Default: 1."),
    ] = None,
    seed: Annotated[int, Option(help="Of learning without --dictionary.")] = 42,
    max_words: Annotated[
        int, Option(min=1, help="Most words of each language, the first.")
    ] = 200_000,
) -> None:
    """Align word vectors of two languages (MUSE, multiCCA), and make them a bag.

    FOLDER gets the bag, a checkpoint as any other; SOURCE mapped, as CODE.vec; and results.json.
    Words are lowercased.

        tmde align-words wiki.de.vec wiki.en.vec -o runs/words --language-a de --language-b en
        --dictionary de-en.0-5000.txt

    Precision at 1, 5 and 10 before and after, of the translations of words and of sentences, which
    also give each word its idf:

        tmde align-words ... --test de-en.5000-6500.txt --sentences europarl.jsonl

    Pearson's correlation of cosines with judged similarities of words:

        tmde align-words ... --similarity de-en.test.data.txt de-en.test.gold.txt

    Without --dictionary, the mapping is learned from the similarities of words within each
    language. That works for languages and corpora that are alike; check the result with --test.

    One space for several languages, by multiCCA with English as the pivot:

        tmde align-words de.vec en.vec -o runs/de --language-a de --language-b en
        --dictionary de-en.txt --fit cca --refinements 0

        tmde align-words es.vec en.vec -o runs/words --language-a es --language-b en
        --dictionary es-en.txt --fit cca --refinements 0 --also de=runs/de/de.vec
    """
    check_new(output)
    settings = _start_settings(dictionary, fit, start, epochs, restarts, seed)
    from tmde.data import load_parallel
    from tmde.data.io import write_atomically
    from tmde.documents import word_vectors

    also_paths = _also_paths(also or [])
    word_vectors.check_codes(language_a, language_b, *also_paths)
    read = functools.partial(word_vectors.read_word_vectors, max_words=max_words)
    source_words = read(source)
    if fit == "cca":
        source_words = source_words.centered()
    target_words = read(target)
    also_words = {code: read(path) for code, path in also_paths.items()}
    pairs = tested_pairs = None
    if dictionary is not None:
        pairs = word_vectors.read_dictionary(dictionary, source_words, target_words)
    if test is not None:
        tested_pairs = word_vectors.read_dictionary(test, source_words, target_words)
    judged = None
    if similarity is not None:
        judged = word_vectors.read_similarities(*similarity, source_words, target_words)
    rows = []
    if sentences is not None:
        codes = [language_a, language_b, *also_words]
        rows = load_parallel(sentences, codes, [])["translation"]

    _show_epochs()
    mapping = word_vectors.align_words(
        source_words, target_words, pairs, refinements, fit=fit, **settings
    )
    mapped_words = source_words.mapped(mapping)
    results = {}
    correlations = {}
    for state, words in (("before", source_words), ("after", mapped_words)):
        languages = {language_a: words, language_b: target_words, **also_words}
        bag = word_vectors.word_bag(languages, rows)
        results[state] = word_vectors.measure(words, target_words, tested_pairs, bag, rows)
        if judged is not None:
            correlations[state] = word_vectors.similarity_correlation(words, target_words, judged)

    # The bag of the mapped words was made last.
    for part in bag:
        part.save_pretrained(output)
    word_vectors.write_word_vectors(output / f"{language_a}.vec", mapped_words)
    content: dict[str, Any] = dict(results)
    if judged is not None:
        pairs_used = len(judged.scores)
        content["similarity"] = correlations | {"pairs": pairs_used, "left_out": judged.left_out}
    write_atomically(output / "results.json", json.dumps(content, indent=2))
    _show(content)


def _show_epochs() -> None:
    """Write the log of the epochs of adversarial training to stderr."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("tmde.documents.word_mapping").setLevel(logging.INFO)


def _show(content: dict[str, Any]) -> None:
    """Print what `results.json` has."""
    typer.echo(_results_table({state: content[state] for state in ("before", "after")}))
    if "similarity" in content:
        similarity = content["similarity"]
        typer.echo(
            f"similarity of words: Pearson {similarity['before']:.3f} before, "
            f"{similarity['after']:.3f} after, of {similarity['pairs']:,} pairs "
            f"({similarity['left_out']:,} without two vectors left out)"
        )


def _start_settings(
    dictionary: str | None,
    fit: Fit,
    start: Start | None,
    epochs: int | None,
    restarts: int | None,
    seed: int,
) -> dict[str, Any]:
    """Return the arguments of `align_words` by which it learns without a dictionary.

    Raises:
        OptionError: Options that do not go together.
    """
    if dictionary is None and fit == "cca":
        raise OptionError(
            "--fit cca: found no --dictionary, expected one, or `identical` for the words of both"
        )
    if dictionary is not None and start is not None:
        raise OptionError(
            f"--start {start}: found --dictionary, expected one of the two, because --start says "
            "how to learn without a dictionary"
        )
    if epochs is not None and start != "adversarial":
        raise OptionError(
            f"--epochs {epochs}: expected --start adversarial, which is what has epochs"
        )
    if restarts is not None and start != "adversarial":
        raise OptionError(
            f"--restarts {restarts}: expected --start adversarial, which is what has restarts"
        )
    if dictionary is not None:
        return {}
    settings: dict[str, Any] = {"seed": seed}
    if start == "adversarial":
        settings["start"] = start
    if epochs is not None:
        settings["epochs"] = epochs
    if restarts is not None:
        settings["restarts"] = restarts
    return settings


def _also_paths(options: list[str]) -> dict[str, Path]:
    """Return the file of each language of `--also`.

    Raises:
        OptionError: A value that is not CODE=FILE, or a code that comes twice.
    """
    paths: dict[str, Path] = {}
    for option in options:
        code, separator, path = option.partition("=")
        if not separator or not path:
            raise OptionError(f"--also {option}: expected CODE=FILE, such as es=es.vec")
        if code in paths:
            raise OptionError(f"--also {option}: found a second file of {code}, expected one")
        paths[code] = Path(path)
    return paths


def _results_table(results: dict[str, dict[str, Any]]) -> str:
    """Return the precisions before and after the alignment as a Markdown table."""
    from tmde.eval.markdown import markdown_table, percent

    table = []
    for name in results["after"]:
        for state, measures in results.items():
            precisions = [percent(value) for value in measures[name].values()]
            table.append([f"{name}, {state}", *precisions])
    return "\n".join(markdown_table(["%", "P@1", "P@5", "P@10"], table))
