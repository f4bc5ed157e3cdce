"""What `tmde quickstart` does: the whole pipeline on the built-in sample, in about a minute."""

import json
import shutil
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

from modeling_tmde.data.io import write_atomically
from modeling_tmde.data.sample import LANGUAGES, sample_documents
from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval.classification import evaluate_classification
from modeling_tmde.eval.figures import draw_embedding_space
from modeling_tmde.eval.systems import CharacterTfidf, EmbeddingSystem
from modeling_tmde.eval.tasks import ClassificationData
from modeling_tmde.eval.tasks.sample import Sample
from modeling_tmde.training.recipe import load_recipe
from modeling_tmde.training.train import train_recipe

console = Console()


def run_quickstart(output: Path, seed: int) -> None:
    """Trains, classifies, reloads and draws; the model, the picture and `results.json` go into `output`.

    Raises:
        typer.BadParameter: matplotlib is missing, or `output` holds something else.
        typer.Exit: The reloaded model gives other vectors.
    """
    begin = time.perf_counter()
    if find_spec("matplotlib") is None:
        raise typer.BadParameter("the picture needs matplotlib: pip install 'tmde[figures]'")
    if output.exists() and not output.is_dir():
        raise typer.BadParameter(f"{output} is a file; -o takes a folder")
    if output.exists() and any(output.iterdir()):
        if not (output / "model" / "recipe.yaml").exists():
            raise typer.BadParameter(f"{output} is not empty and not an earlier quickstart; choose another -o folder")
        shutil.rmtree(output / "model")
    console.print("[bold]1. Training[/] a tiny cT-MDE on parallel sentences of the built-in sample")
    recipe = load_recipe("quickstart", [f"training.seed={seed}"])
    train_recipe(recipe, output / "model")

    console.print("[bold]2. Embedding[/] documents and classifying them, labels in English only")
    data = Sample().load(seed=seed)
    embedder = DocumentEmbedder.from_pretrained(str(output / "model"))
    scores = _classify(data, embedder)
    _print_scores(scores)
    test = sample_documents(200, "test", seed=seed)
    test_vectors = embedder.encode(test["text"][:])
    _print_translations(output / "model", test["text"][:])

    console.print("[bold]3. Reloading[/] the checkpoint with AutoModel")
    difference = _reload_difference(output / "model", test["text"][:50], test_vectors[:50])
    console.print(f"   largest difference between the vectors: {difference:.1e}")

    console.print("[bold]4. Drawing[/] the embedding space")
    picture = output / "embedding_space.png"
    title = "Test documents of the built-in sample"
    draw_embedding_space(picture, test_vectors, test["label"], test["language"], test["doc_id"], title, seed)
    seconds = time.perf_counter() - begin
    results = {"accuracy": scores, "reload_difference": difference, "seconds": round(seconds, 1), "seed": seed}
    write_atomically(output / "results.json", json.dumps(results, indent=2))
    console.print(f"   {picture}\nDone in {seconds:.0f} s; everything is in {output}/")
    if difference > 1e-5:
        console.print("[red]The reloaded model gives other vectors: please report this.[/]")
        raise typer.Exit(1)


def _classify(data: ClassificationData, embedder: DocumentEmbedder) -> dict[str, dict[str, float]]:
    """Accuracy by system and test language, labels in English only (Evaluation I of the thesis)."""
    scores = {}
    for system in (EmbeddingSystem("cT-MDE", embedder), CharacterTfidf()):
        cells = evaluate_classification(data, system, train_languages=["en"])
        scores[system.name] = {cell.target: cell.value for cell in cells}
    return scores | {"chance": {cell.target: cell.chance for cell in cells}}


def _print_scores(scores: dict[str, dict[str, float]]) -> None:
    table = Table(title="Accuracy (%) on unseen documents; the classifier saw English only")
    table.add_column("")
    for language in LANGUAGES:
        table.add_column(language, justify="right")
    for name, row in scores.items():
        table.add_row(name, *(f"{100 * row[language]:.1f}" for language in LANGUAGES))
    console.print(table)


def _print_translations(folder: Path, texts: list[str]) -> None:
    """Shows that a vector alone can be read back as text."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    sentence = texts[0].split(". ")[0].rstrip(".") + "."
    embedding = model.get_encoder()(**tokenizer([sentence], return_tensors="pt")).pooler_output
    decoded = model.generate(encoder_outputs=embedding, target_language="en", max_new_tokens=60, num_beams=4)
    console.print(f"   read:                        {sentence}")
    console.print(f"   decoded from its one vector: {tokenizer.batch_decode(decoded, skip_special_tokens=True)[0]}")


def _reload_difference(folder: Path, texts: list[str], expected: np.ndarray) -> float:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    model.eval()
    with torch.no_grad():
        vectors = model(**tokenizer(texts, padding=True, return_tensors="pt")).pooler_output
    return float(np.abs(vectors.numpy() - expected).max())
