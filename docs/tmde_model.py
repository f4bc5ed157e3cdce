r"""Make `tmde`, a T-MDE with its decoder for the package.

    python docs/tmde_model.py WORK --data DATA

`DATA` has the folders `general` and `parallel` with parquet files of parallel rows (columns
`translation` and `doc_id`), and the files `general_dev.parquet` and `parallel_dev.parquet`. Each
step writes a file or folder to `WORK`. A step is skipped if its result exists:

1. `rows.parquet`: rows, and passages of several rows.
2. `accurate.parquet`: the teacher's vectors, of one text of each row.
3. `encoder`: the teacher's encoder, without the prompt.
4. `run-42` (`--run`): four of its layers with a decoder behind the bottleneck, trained by the
   recipe `adapted` to translate, to keep the distance constraint, and to predict the teacher's
   vectors.
5. `run-42-decoder`: the decoder alone, trained further to translate the vectors.

Encoder and decoder are written to `--output` in 8 bits. Training takes four CPU hours. Run the
same command again after an interruption, and it resumes.
"""

import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import typer
from accurate_model import (
    E5,
    LANGUAGES,
    copy_files,
    run_command,
    save_weights,
    stored_weight,
)
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from tmde import DocumentEmbedder
from tmde.data.io import replacing
from tmde.embedding.packaged_models import packaged_folder

TEACHER = "accurate"
# The language of a row that the teacher reads: the first of these that the row has.
TEACHER_LANGUAGES = ("en", "es", "fr", "de", "it")
TEACHER_BATCH = 512  # Tokens. On a CPU, larger batches are slower.
SHARD_TEXTS = 10_000
ROWS = 400_000  # Training reads each of them once or twice.
LONGEST_SENTENCE = 100  # Words.
SHORTEST_PASSAGE = 40  # Words.
LONGEST_PASSAGE = 160  # Words.
NORM_TEXTS = 1_000
LONGEST_GOAL = 130  # Words, after which a passage ends with the sentence.

Row = dict[str, str | None]


# ---- Rows


def read_sources(data: Path) -> Iterator[tuple[list[Row], list[str]]]:
    """Yield the rows of every file, and the documents that they are from."""
    for folder in ("general", "parallel"):
        for path in sorted((data / folder).glob("*.parquet")):
            table = pq.read_table(path, columns=["translation", "doc_id"])
            yield table["translation"].to_pylist(), table["doc_id"].to_pylist()


def make_passages(rows: list[Row], documents: list[str], generator: random.Random) -> Iterator[Row]:
    """Yield rows of a document that follow one another, joined in the languages they share."""
    begin = 0
    while begin < len(rows):
        goal = generator.randint(SHORTEST_PASSAGE, LONGEST_GOAL)
        languages = set(LANGUAGES)
        end = begin
        words = 0
        while end < len(rows) and documents[end] == documents[begin] and words < goal:
            shared = {language for language in languages if rows[end][language]}
            if len(shared) < 2:
                break
            languages = shared
            text = rows[end][taught_language(languages)] or ""
            words += len(text.split())
            end += 1
        if end - begin > 1 and SHORTEST_PASSAGE <= words <= LONGEST_PASSAGE:
            passage: Row = dict.fromkeys(LANGUAGES)
            for language in languages:
                texts = [row[language] or "" for row in rows[begin:end]]
                passage[language] = " ".join(texts)
            yield passage
        begin = max(end, begin + 1)


def taught_language(languages: set[str]) -> str:
    """Return the language that the teacher reads."""
    return next(language for language in TEACHER_LANGUAGES if language in languages)


def taught_text(row: Row) -> str:
    """Return the text of a row that the teacher reads."""
    text = row[taught_language({language for language in LANGUAGES if row[language]})]
    assert text is not None  # The language is one that the row has.
    return text


def write_rows(data: Path, target: Path) -> None:
    """Write rows that are not too long and passages, chosen by chance, in random order."""
    generator = random.Random(0)
    chosen: list[Row] = []
    for rows, documents in read_sources(data):
        sentences = [row for row in rows if len(taught_text(row).split()) <= LONGEST_SENTENCE]
        passages = list(make_passages(rows, documents, generator))
        chosen += sentences + passages
    generator.shuffle(chosen)
    del chosen[ROWS:]
    row_type = pa.struct([(language, pa.string()) for language in LANGUAGES])
    with replacing(target) as temporary:
        pq.write_table(pa.table({"translation": pa.array(chosen, row_type)}), temporary)
    typer.echo(f"{target}: {len(chosen):,} rows")


# ---- The teacher


def write_vectors(rows: Path, target: Path) -> None:
    """Write the teacher's vectors, with its name and license.

    They are made in shards, so that an interrupted run goes on with the next of them.
    """
    texts = sorted({taught_text(row) for row in pq.read_table(rows)["translation"].to_pylist()})
    # In random order, the time of all shards is alike.
    random.Random(0).shuffle(texts)
    shards = target.with_suffix("")
    shards.mkdir(exist_ok=True)
    teacher = DocumentEmbedder.from_pretrained(TEACHER, dtype="bfloat16")
    paths = []
    for begin in range(0, len(texts), SHARD_TEXTS):
        path = shards / f"{begin:08d}.npy"
        if not path.exists():
            batch = texts[begin : begin + SHARD_TEXTS]
            vectors = teacher.encode(batch, batch_tokens=TEACHER_BATCH, show_progress_bar=False)
            with replacing(path) as temporary, open(temporary, "wb") as file:
                np.save(file, vectors.astype(np.float16))
            typer.echo(f"{TEACHER}: {begin + len(batch):,} of {len(texts):,} texts")
        paths.append(path)
    stacked = np.concatenate([np.load(path) for path in paths])
    vector_column = pa.FixedSizeListArray.from_arrays(
        pa.array(stacked.reshape(-1)), stacked.shape[1]
    )
    table = pa.table({"text": texts, "vector": vector_column})
    origin = {"model": f"tmde/{TEACHER}", "license": "cc-by-sa-4.0"}
    with replacing(target) as temporary:
        pq.write_table(table.replace_schema_metadata(origin), temporary)
    shutil.rmtree(shards)


# ---- Training


def write_encoder(target: Path) -> None:
    """Write the encoder of the teacher, which reads no prompt here, and its tokenizer."""
    teacher = packaged_folder(TEACHER)
    temporary = target.with_name(f".{target.name}")
    encoder = AutoModel.from_pretrained(teacher, dtype=torch.float32).encoder
    encoder.save_pretrained(temporary)
    AutoTokenizer.from_pretrained(teacher).save_pretrained(temporary)
    temporary.rename(target)


def train_adapted(work: Path, data: Path, run: Path, settings: Sequence[str | Path]) -> None:
    """Train a model by the recipe `adapted`, or resume its training."""
    is_begun = (run / "recipe.yaml").exists()
    run_command(
        "train",
        "adapted",
        *["--train", work / "rows.parquet"],
        *["--dev", data / "general_dev.parquet", "--dev", data / "parallel_dev.parquet"],
        *["-o", run, "--resume" if is_begun else "--overwrite"],
        f"languages=[{', '.join(LANGUAGES)}]",
        "pivot_languages=[en, es]",
        "model.dropout=0.0",
        "model.pooling=cls",
        "micro_batch_tokens=4096",
        "max_minutes=null",
        "eval_on_start=false",
        "logging_steps=50",
        "keep_checkpoints=true",
        *settings,
    )


def train(work: Path, data: Path, run: Path, settings: list[str]) -> None:
    """Train encoder and decoder."""
    run_settings = [
        *["--encoder", work / "encoder"],
        "model.encoder_layers=[0, 1, 10, 11]",
        "objectives.translation={weight: 0.1, row_share: 0.2, sampled_vocabulary: 2000}",
        "objectives.distance={weight: 0.02, hinge_weight: 20.0}",
        "objectives.infonce={weight: 0.1, temperature: 0.05, center: true}",
        f"objectives.distillation.teacher={work / TEACHER}.parquet",
        f"objectives.distillation.teacher_languages=[{', '.join(TEACHER_LANGUAGES)}]",
        "objectives.distillation.teacher_share=1.0",
        "objectives.distillation.weight=1.0",
        "objectives.distillation.similarity_weight=0.2",
        "encoder_learning_rate=0.0003",
        "embedding_learning_rate=0.0003",
        "warmup_steps=200",
        "train_max_length=224",
        "per_device_train_batch_size=64",
        "max_cpu_minutes=205",
        "eval_minutes=60",
        *settings,
    ]
    train_adapted(work, data, run, run_settings)


def train_decoder(work: Path, data: Path, run: Path, start: Path) -> None:
    """Train the decoder of a run further, with a frozen encoder.

    In `train`, the translation objective uses a fifth of the rows.
    """
    run_settings = [
        *["--warm-start", start],
        "objectives.translation={weight: 1.0, sampled_vocabulary: 2000}",
        "objectives.infonce=null",
        "objectives.distillation=null",
        "encoder_learning_rate=0",
        "embedding_learning_rate=0",
        "warmup_steps=100",
        "train_max_length=64",
        "per_device_train_batch_size=128",
        "max_cpu_minutes=20",
        "eval_minutes=1000",
    ]
    train_adapted(work, data, run, run_settings)


# ---- Packing


def mean_norm(run: Path, rows: Path) -> float:
    """Return the mean length of vectors, over some texts of the rows."""
    embedder = DocumentEmbedder.from_pretrained(run)
    texts = [
        taught_text(row) for row in pq.read_table(rows)["translation"][:NORM_TEXTS].to_pylist()
    ]
    vectors = embedder.encode(texts, normalize=False, show_progress_bar=False)
    return float(np.linalg.norm(vectors, axis=1).mean())


def pack(run: Path, rows: Path, target: Path) -> None:
    """Write the encoder and the decoder in 8 bits, for vectors of length 1.

    In training, all vectors have nearly the same length. The decoder gets vectors of length 1 now,
    so the weights by which it reads them are multiplied by that length.
    """
    copy_files(run, target)
    weights = load_file(run / "model.safetensors")
    settings: dict[str, Any] = json.loads((run / "config.json").read_text())
    norm = mean_norm(run, rows)
    for name, weight in weights.items():
        if name.endswith("slot_attn.v_proj.weight"):
            weight[:, : -settings["language_embedding_dim"]] *= norm
        weights[name] = stored_weight(weight)
    save_weights(weights, target)
    del settings["auto_map"]
    settings["normalize"] = True
    settings["encoder_config"]["_name_or_path"] = E5.model
    (target / "config.json").write_text(json.dumps(settings, indent=2) + "\n")


def main(
    work: Annotated[Path, typer.Argument(help="Folder to make.")],
    data: Annotated[Path, typer.Option(help="Folder with general/ and parallel/.")],
    output: Annotated[Path, typer.Option(help="Folder of the result.")] = Path("embedding/tmde"),
    run: Annotated[str, typer.Option(help="Name of the run.")] = "run-42",
    settings: Annotated[
        list[str] | None, typer.Argument(help="Settings of the recipe, KEY=VALUE.")
    ] = None,
) -> None:
    """Make the model, from the first step whose result is not there."""
    work.mkdir(parents=True, exist_ok=True)
    rows = work / "rows.parquet"
    if not rows.exists():
        write_rows(data, rows)
    vectors = work / f"{TEACHER}.parquet"
    if not vectors.exists():
        write_vectors(rows, vectors)
    if not (work / "encoder").exists():
        write_encoder(work / "encoder")
    if not (work / run / "model.safetensors").exists():
        train(work, data, work / run, settings or [])
    decoder_run = work / f"{run}-decoder"
    if not (decoder_run / "model.safetensors").exists():
        train_decoder(work, data, decoder_run, work / run)
    pack(decoder_run, rows, output)


if __name__ == "__main__":
    typer.run(main)
