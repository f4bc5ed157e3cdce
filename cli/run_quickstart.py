"""The work of `tmde quickstart`: five steps from a search to a trained and evaluated model."""

import json
import shlex
import shutil
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import typer
from datasets import Dataset
from rich.console import Console
from transformers import AutoModel, AutoTokenizer

from modeling_tmde import TmdeError
from tmde.cli.errors import install_command
from tmde.data.io import write_atomically
from tmde.data.sample import sample_documents, sample_parallel
from tmde.embedding import DocumentEmbedder, split_sentences
from tmde.eval import CharacterTfidf, EmbeddingSystem, EvaluationOptions, evaluate, plan_tasks
from tmde.eval.figures import draw_embedding_space
from tmde.eval.report import print_report
from tmde.eval.results import TaskResult
from tmde.eval.systems import System
from tmde.training.recipe import load_recipe
from tmde.training.run import train_recipe

console = Console()

QUERY = "people protest in the streets"
LABELED = "en"  # The language of the labels.
TRAINED = "cT-MDE"
BASELINE = "TF-IDF"
DURATION = "two to three minutes on two CPU cores"
TEST_DOCUMENTS = 200
EXAMPLE_ROWS = 5000
RELOADED_TEXTS = 50  # texts that the reloaded model embeds too
MAX_DIFFERENCE = 1e-5


def run_quickstart(output: Path, seed: int) -> None:
    """Run all steps, and write `results.json`.

    Args:
        output: The folder to make, or that of an earlier quickstart.
        seed: The seed of the sample, the model and its training.

    Raises:
        TmdeError: The folder contains something else.
        RuntimeError: The reloaded model computes different vectors.
    """
    import matplotlib  # noqa: F401 - if it is missing, say so before the training

    start = time.perf_counter()
    model_folder = output / "model"
    _clear(output, model_folder)
    try:
        _run_steps(output, model_folder, seed, start)
    except KeyboardInterrupt as interruption:
        message = _describe_interruption(output, seed)
        console.print(message, style="yellow", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(getattr(interruption, "exit_code", 130)) from None


def _run_steps(output: Path, model_folder: Path, seed: int, start: float) -> None:
    """Run the five steps, which began at `start` on the performance counter.

    Raises:
        RuntimeError: The reloaded model computes different vectors.
    """
    console.print(f"Five steps, {DURATION}; everything goes into {output}/", highlight=False)
    test = sample_documents(TEST_DOCUMENTS, "test", seed=seed)
    console.print(
        f'[bold]1. Searching[/] {len(test):,} documents for "{QUERY}" with the model that comes '
        "with tmde"
    )
    _search(test)

    console.print(
        "[bold]2. Training[/] a tiny cT-MDE on parallel sentences of the built-in sample, the "
        "longest step"
    )
    train_recipe(load_recipe("quickstart", [f"training.seed={seed}"]), model_folder)

    console.print("[bold]3. Embedding[/] documents and classifying them, labels in English only")
    embedder = DocumentEmbedder.from_pretrained(str(model_folder))
    results = _classify(embedder, seed)
    print_report(results, console)
    texts = test["text"][:]
    vectors = np.asarray(embedder.encode(texts))  # (texts, d)
    _decode(embedder, texts[0])

    console.print("[bold]4. Reloading[/] the checkpoint with AutoModel")
    difference = _reload_difference(model_folder, texts[:RELOADED_TEXTS], vectors[:RELOADED_TEXTS])
    console.print(f"   largest difference between the vectors: {difference:.1e}")

    console.print("[bold]5. Drawing[/] the embedding space")
    picture = output / "embedding_space.png"
    title = "Test documents of the built-in sample"
    draw_embedding_space(
        picture, vectors, test["label"], test["language"], test["doc_id"], title, seed
    )

    seconds = time.perf_counter() - start
    accuracies = _accuracies(results)
    summary = {
        "accuracy": accuracies,
        "reload_difference": difference,
        "seconds": round(seconds, 1),
        "seed": seed,
    }
    write_atomically(output / "results.json", json.dumps(summary, indent=2))
    console.print(f"   {picture}\nDone in {seconds:.0f} s; everything is in {output}/")
    if difference > MAX_DIFFERENCE:
        raise RuntimeError("The reloaded model computes different vectors; please report this.")
    _print_next_steps(output, model_folder, accuracies, seed)


def _describe_interruption(output: Path, seed: int) -> str:
    """Return how to repeat an interrupted quickstart."""
    command = shlex.join(["tmde", "quickstart", "-o", str(output), "--seed", str(seed)])
    return (
        "Interrupted. The last printed step and those after it are not complete. The same command "
        f"starts over and takes {DURATION}: {command}"
    )


def _print_next_steps(
    output: Path, model_folder: Path, accuracies: dict[str, dict[str, float]], seed: int
) -> None:
    """Print what was learned, and commands that continue with it."""
    trained = _mean_of_others(accuracies[TRAINED])
    baseline = _mean_of_others(accuracies[BASELINE])
    console.print(
        f"\n[bold]Result:[/] trained on English labels only, the classifier is right on "
        f"{trained:.0%} of the documents in other languages with the tiny model, and on "
        f"{baseline:.0%} with character TF-IDF.",
        highlight=False,
    )
    documents = output / "documents.jsonl"
    rows = output / "rows.jsonl"
    _write_lines(documents, sample_documents(TEST_DOCUMENTS, "test", seed=seed))
    _write_lines(rows, sample_parallel(EXAMPLE_ROWS, seed=seed))
    index = output / "documents.index"
    vectors = output / "documents.npy"
    needs = "" if find_spec("lancedb") else f" (first: {install_command('search')})"
    console.print("\n[bold]Next[/], with files like these or your own:")
    _print_command(
        f"search documents, with the model that comes with tmde{needs}",
        f"tmde index {_quoted(documents)} -o {_quoted(index)}",
        f"tmde search {shlex.quote(QUERY)} {_quoted(index)}",
    )
    _print_command(
        "train on your translations, here for a minute",
        f"tmde train bag --train {_quoted(rows)} -o {_quoted(output / 'mine')} --minutes 1",
    )
    _print_command(
        "turn documents into vectors, with the model trained above",
        f"tmde embed {_quoted(documents)} -o {_quoted(vectors)} -m {_quoted(model_folder)}",
    )


def _print_command(purpose: str, *commands: str) -> None:
    """Print the purpose of commands, then the commands, each on one line that can be copied."""
    console.print(f"   # {purpose}", highlight=False, markup=False, soft_wrap=True)
    for command in commands:
        console.print(f"   {command}", highlight=False, markup=False, soft_wrap=True)


def _quoted(path: Path) -> str:
    """Return a path as a word of the shell."""
    return shlex.quote(str(path))


def _write_lines(path: Path, rows: Dataset) -> None:
    """Write rows as JSONL, one a line."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    write_atomically(path, "".join(lines))


def _mean_of_others(accuracies: dict[str, float]) -> float:
    """Return the mean accuracy over the languages that had no labels."""
    values = [value for language, value in accuracies.items() if language != LABELED]
    return float(np.mean(values))


def _clear(output: Path, model_folder: Path) -> None:
    """Make the folder, or delete the model of an earlier quickstart in it."""
    output.mkdir(parents=True, exist_ok=True)
    is_earlier_quickstart = (model_folder / "recipe.yaml").exists()
    if any(output.iterdir()) and not is_earlier_quickstart:
        raise TmdeError(
            f"{output} is not empty and not from an earlier quickstart; choose another folder (-o)"
        )
    shutil.rmtree(model_folder, ignore_errors=True)


def _search(documents: Dataset) -> None:
    """Print the sentence of each language that is nearest to the query."""
    languages = []
    sentences = []
    for row in documents:
        for sentence in split_sentences(row["text"], row["language"]):
            languages.append(row["language"])
            sentences.append(sentence)
    embedder = DocumentEmbedder.from_pretrained()
    vectors = embedder.encode(sentences, normalize=True, show_progress_bar=False)
    scores = vectors @ embedder.encode(QUERY, normalize=True)  # (sentences,)
    for language in sorted(set(languages)):
        is_of_language = np.array([code == language for code in languages])
        best = int(np.where(is_of_language, scores, -np.inf).argmax())
        console.print(f"   {language}  {scores[best]:.2f}  {sentences[best]}", highlight=False)


def _classify(embedder: DocumentEmbedder, seed: int) -> list[TaskResult]:
    """Classify the sample with labels in English alone (Evaluation I of the thesis)."""
    (planned,) = plan_tasks(["sample"], options={"sample": {"seed": seed}})
    systems: list[System] = [EmbeddingSystem(TRAINED, embedder), CharacterTfidf(BASELINE)]
    options = EvaluationOptions(train_languages=(LABELED,))
    return list(evaluate([planned.load()], systems, options))


def _decode(embedder: DocumentEmbedder, text: str) -> None:
    """Embed the first sentence of a text, and print what the decoder recovers from its vector."""
    sentence = text.split(". ")[0].rstrip(".") + "."
    (decoded,) = embedder.decode(embedder.encode(sentence), "en", max_new_tokens=60)
    console.print(f"   read:                        {sentence}")
    console.print(f"   decoded from its one vector: {decoded}")


def _reload_difference(model_folder: Path, texts: list[str], vectors: np.ndarray) -> float:
    """Return the largest difference between vectors, (texts, d), and those of `AutoModel`."""
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModel.from_pretrained(model_folder).eval()
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    reloaded = model(**batch).pooler_output.detach().numpy()
    return float(np.abs(reloaded - vectors).max())


def _accuracies(results: list[TaskResult]) -> dict[str, dict[str, float]]:
    """Return the accuracy of each system by the language of the test documents."""
    accuracies = {}
    for result in results:
        accuracies[result.system] = {cell.target: cell.value for cell in result.cells}
    return accuracies
