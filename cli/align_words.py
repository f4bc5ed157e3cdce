"""`tmde align-words`: word vectors of two languages brought into one space, and made a bag."""

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from tmde.cli.options import check_new
from tmde.data import load_parallel
from tmde.data.io import write_atomically
from tmde.documents import word_vectors
from tmde.eval.report import markdown_table, percent


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
    sentences: Annotated[
        str | None, Option(help="Parallel rows, as of `tmde train`: idf, retrieval.")
    ] = None,
    refinements: Annotated[int, Option(min=0, help="Most rounds of mutual CSLS neighbors.")] = 5,
    epochs: Annotated[int, Option(min=1, help="Of adversarial training, 31,250 steps each.")] = 5,
    seed: Annotated[int, Option(help="Of adversarial training.")] = 42,
    max_words: Annotated[
        int, Option(min=1, help="Most words of each language, the first.")
    ] = 200_000,
) -> None:
    """Align word vectors of two languages (MUSE), and make them a bag.

    FOLDER gets the bag, a checkpoint as any other; SOURCE mapped, as CODE.vec; and results.json. Words are lowercased.

        tmde align-words wiki.de.vec wiki.en.vec -o runs/words --language-a de --language-b en
        --dictionary de-en.0-5000.txt

    Precision at 1, 5 and 10 before and after, of the translations of words and of sentences, which also give each word
    its idf:

        tmde align-words ... --test de-en.5000-6500.txt --sentences europarl.jsonl

    Without --dictionary, the mapping is learned against a discriminator. That takes a GPU, and vectors of large and
    similar corpora; look at the result.
    """
    check_new(output)
    word_vectors.check_codes(language_a, language_b)
    first, second = (word_vectors.read_word_vectors(path, max_words) for path in (source, target))
    pairs, tested = (
        path and word_vectors.read_dictionary(path, first, second) for path in (dictionary, test)
    )
    rows = (
        load_parallel(sentences, [language_a, language_b], [])["translation"] if sentences else []
    )
    mapping = word_vectors.align_words(first, second, pairs, refinements, epochs=epochs, seed=seed)
    mapped, results = first.mapped(mapping), {}
    for state, words in (("before", first), ("after", mapped)):
        bag = word_vectors.word_bag({language_a: words, language_b: second}, rows)
        results[state] = word_vectors.measure(words, second, tested, bag, rows)
    for part in bag:  # the last one, of the mapped words
        part.save_pretrained(output)
    word_vectors.write_word_vectors(output / f"{language_a}.vec", mapped)
    write_atomically(output / "results.json", json.dumps(results, indent=2))
    table = [
        [f"{name}, {state}", *map(percent, found[name].values())]
        for name in results["after"]
        for state, found in results.items()
    ]
    typer.echo("\n".join(markdown_table(["%", "P@1", "P@5", "P@10"], table)))
