"""`tmde quickstart`: a search with the default model, and the whole pipeline on the built-in sample."""

import json
import shutil
import time
from pathlib import Path
from typing import Annotated

import typer
from datasets import Dataset
from rich.console import Console
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

from modeling_tmde import TmdeError
from tmde.data.io import write_atomically
from tmde.data.sample import sample_documents
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.long_documents import split_sentences
from tmde.eval import CharacterTfidf, EmbeddingSystem, EvaluationOptions, evaluate, plan_tasks
from tmde.eval.figures import draw_embedding_space
from tmde.eval.report import print_report
from tmde.training.recipe import load_recipe
from tmde.training.run import train_recipe

console = Console()
QUERY = "people protest in the streets"


def quickstart(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to make.")] = Path(
        "tmde-quickstart"
    ),
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the sample, the model and its training.")
    ] = 42,
) -> None:
    """Search documents with the default model, then train a tiny embedder and classify with it across languages.

    Needs no network and no files: the documents are the built-in sample. A classifier that has seen only English
    labels is tested in every language, beside chance and beside the same classifier on TF-IDF.
    """
    import matplotlib  # noqa: F401  # if it is missing, before the training

    begin, folder, picture = time.perf_counter(), output / "model", output / "embedding_space.png"
    output.mkdir(parents=True, exist_ok=True)
    if any(output.iterdir()) and not (folder / "recipe.yaml").exists():
        raise TmdeError(
            f"{output} is not empty and not an earlier quickstart; choose another -o folder"
        )
    shutil.rmtree(folder, ignore_errors=True)
    test = sample_documents(200, "test", seed=seed)
    console.print(
        f'[bold]1. Searching[/] {len(test):,} documents for "{QUERY}" with the model that comes with tmde'
    )
    _search(test)
    console.print("[bold]2. Training[/] a tiny cT-MDE on parallel sentences of the built-in sample")
    train_recipe(load_recipe("quickstart", [f"training.seed={seed}"]), folder)

    console.print("[bold]3. Embedding[/] documents and classifying them, labels in English only")
    (planned,) = plan_tasks(["sample"], options={"sample": {"seed": seed}})
    embedder = DocumentEmbedder.from_pretrained(str(folder))
    systems = [EmbeddingSystem("cT-MDE", embedder), CharacterTfidf()]
    options = EvaluationOptions(train_languages=("en",))  # Evaluation I of the thesis
    results = list(evaluate([planned.load()], systems, options))
    print_report(results, console)

    texts = test["text"][:]
    sentence = texts[0].split(". ")[0].rstrip(".") + "."
    vectors, embedding = embedder.encode(texts), embedder.encode([sentence], convert_to_tensor=True)
    translator = AutoModelForSeq2SeqLM.from_pretrained(folder)
    decoded = translator.generate(
        encoder_outputs=embedding, target_language="en", max_new_tokens=60, num_beams=4
    )
    console.print(f"   read:                        {sentence}")
    console.print(
        f"   decoded from its one vector: {embedder.tokenizer.decode(decoded[0], skip_special_tokens=True)}"
    )

    console.print("[bold]4. Reloading[/] the checkpoint with AutoModel")
    batch = AutoTokenizer.from_pretrained(folder)(texts[:50], padding=True, return_tensors="pt")
    reloaded = AutoModel.from_pretrained(folder).eval()(**batch).pooler_output.detach().numpy()
    difference = float(abs(reloaded - vectors[:50]).max())
    console.print(f"   largest difference between the vectors: {difference:.1e}")

    console.print("[bold]5. Drawing[/] the embedding space")
    columns = test["label"], test["language"], test["doc_id"]
    draw_embedding_space(picture, vectors, *columns, "Test documents of the built-in sample", seed)
    seconds = round(time.perf_counter() - begin, 1)
    accuracy = {
        result.system: {cell.target: cell.value for cell in result.cells} for result in results
    }
    written = {
        "accuracy": accuracy,
        "reload_difference": difference,
        "seconds": seconds,
        "seed": seed,
    }
    write_atomically(output / "results.json", json.dumps(written, indent=2))
    console.print(f"   {picture}\nDone in {seconds:.0f} s; everything is in {output}/")
    if difference > 1e-5:
        raise RuntimeError("The reloaded model gives other vectors: please report this.")


def _search(documents: Dataset) -> None:
    """Prints the sentence of each language that is nearest to the query."""
    embedder = DocumentEmbedder.from_pretrained()
    rows = [
        (row["language"], text)
        for row in documents
        for text in split_sentences(row["text"], row["language"])
    ]
    vectors = embedder.encode([text for _, text in rows], normalize=True, show_progress_bar=False)
    scores = vectors @ embedder.encode(QUERY, normalize=True)
    best = {
        language: (score, text)
        for score, (language, text) in sorted(zip(scores, rows, strict=True))
    }
    for language, (score, text) in sorted(best.items()):
        console.print(f"   {language}  {score:.2f}  {text}", highlight=False)
