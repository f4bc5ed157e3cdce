"""`tmde align-words`: word vectors of two languages brought into one space, and made a bag."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from tmde.cli.declaration import command, keywords
from tmde.cli.errors import OptionError
from tmde.cli.options import check_new

Fit = Literal["rotation", "cca"]
Start = Literal["similarities", "adversarial"]


@dataclass(kw_only=True)
class AlignWordsOptions:
    """The options of `tmde align-words`."""

    source: Annotated[
        Path,
        Argument(metavar="SOURCE", help="Vectors of language A, in fastText's text format (.vec)."),
    ]
    target: Annotated[
        Path, Argument(metavar="TARGET", help="Vectors of language B, which stay unchanged.")
    ]
    output: Annotated[Path, Option("--output", "-o", metavar="FOLDER", help="Folder to create.")]
    language_a: Annotated[str, Option(help="Language code of SOURCE.")]
    language_b: Annotated[str, Option(help="Language code of TARGET.")]
    dictionary: Annotated[
        str | None,
        Option(
            help="File with two words per line, or `identical` for words that both languages share."
        ),
    ] = None
    test: Annotated[Path | None, Option(help="Dictionary for evaluating word translation.")] = None
    similarity: Annotated[
        tuple[Path, Path] | None,
        Option(
            metavar="PAIRS SCORES",
            help="Word pairs of A and B, and their similarity ratings, as in SemEval-2017 Task 2.",
        ),
    ] = None
    sentences: Annotated[
        str | None,
        Option(help="Parallel text as for `tmde train`, for idf and for evaluating retrieval."),
    ] = None
    also: Annotated[
        list[str] | None,
        Option(
            metavar="CODE=FILE",
            help="Vectors of a further language in TARGET's space, to add to the bag. Repeatable.",
        ),
    ] = None
    fit: Annotated[
        Fit, Option(help="rotation (MUSE), or cca (multiCCA, which requires --dictionary).")
    ] = "rotation"
    refinements: Annotated[
        int, Option(min=0, help="Maximum number of refinement rounds with mutual CSLS neighbors.")
    ] = 5
    start: Annotated[
        Start | None,
        Option(help="How to learn without --dictionary. Default: similarities."),
    ] = None
    epochs: Annotated[
        int | None,
        Option(min=1, help="Epochs of --start adversarial, 31,250 steps each. Default: 5."),
    ] = None
    restarts: Annotated[
        int | None,
        Option(min=0, help="Runs of --start adversarial after the first. Default: 1."),
    ] = None
    seed: Annotated[int, Option(help="Seed for learning without --dictionary.")] = 42
    max_words: Annotated[
        int, Option(min=1, help="Number of most frequent words to keep per language.")
    ] = 200_000


@command(AlignWordsOptions)
def align_words(options: AlignWordsOptions) -> None:
    """Align word vectors of two languages (MUSE, multiCCA) and store them as a bag.

    FOLDER will contain the bag (a normal checkpoint), the mapped SOURCE as CODE.vec, and
    results.json. Words are lowercased.

        tmde align-words wiki.de.vec wiki.en.vec -o runs/words --language-a de --language-b en
        --dictionary de-en.0-5000.txt

    Evaluate precision at 1, 5 and 10 before and after alignment, for words and sentences. The
    sentences also determine the idf of words:

        tmde align-words ... --test de-en.5000-6500.txt --sentences europarl.jsonl

    Correlate cosines with word-similarity ratings (Pearson):

        tmde align-words ... --similarity de-en.test.data.txt de-en.test.gold.txt

    Without --dictionary, the mapping is learned from word similarities within each language. This
    works for similar languages and corpora; check the result with --test.

    Map several languages into one space with multiCCA and English as the pivot:

        tmde align-words de.vec en.vec -o runs/de --language-a de --language-b en
        --dictionary de-en.txt --fit cca --refinements 0

        tmde align-words es.vec en.vec -o runs/words --language-a es --language-b en
        --dictionary es-en.txt --fit cca --refinements 0 --also de=runs/de/de.vec
    """
    check_new(options.output)
    also = _also_paths(options.also or [])
    from tmde.documents.word_file_alignment import align_word_files
    from tmde.eval.markdown import markdown_table, percent

    # The log of the epochs of adversarial training goes to stderr.
    logging.basicConfig(format="%(message)s")
    logging.getLogger("tmde.documents.word_mapping").setLevel(logging.INFO)
    report = align_word_files(**keywords(options, AlignWordsOptions, without=("also",)), also=also)
    table = []
    for name, measures in report.after.items():
        for state, values in (("before", report.before[name]), ("after", measures)):
            table.append([f"{name}, {state}", *map(percent, values.values())])
    typer.echo("\n".join(markdown_table(["%", "P@1", "P@5", "P@10"], table)))
    if report.similarity is not None:
        similarity = report.similarity
        typer.echo(
            f"word similarity: Pearson {similarity['before']:.3f} before, "
            f"{similarity['after']:.3f} after, over {similarity['pairs']:,} pairs "
            f"({similarity['left_out']:,} pairs without two vectors omitted)"
        )


def _also_paths(items: Sequence[str]) -> dict[str, Path]:
    """Return the file of each language of `--also`.

    Raises:
        OptionError: A value is not CODE=FILE, or a code occurs twice.
    """
    paths: dict[str, Path] = {}
    for item in items:
        code, separator, path = item.partition("=")
        if not separator or not path:
            raise OptionError(f"--also {item}: expected CODE=FILE, such as es=es.vec")
        if code in paths:
            raise OptionError(f"--also {item}: found a second file for {code}, expected one")
        paths[code] = Path(path)
    return paths
