r"""Make the model `accurate` that comes with the package.

    python docs/accurate_model.py WORK --data DATA

`DATA` has the folders `general` and `parallel` with parquet files of parallel rows (columns
`translation` and `doc_id`). embedding/accurate/README.md lists the sources of the model that ships.
`WORK` gets a file or folder for each step, and a step whose result is there is left out:

1. `encoder`: multilingual-e5-small, cut to the tokens of the five languages.
2. `rows.parquet`: sentences, and passages of several sentences, that have English.
3. `NAME.parquet` of each teacher: its vectors of the English texts.
4. `run-SEED`, three times: the encoder, trained by the recipe `adapted` with these teachers.

The mean of the three runs' weights and those before training is written to `--output` in 8 bits.
The model of a single run is written by `--seed`. With `--whole-vocabulary`, the model keeps all
tokens of multilingual-e5-small, and so its other languages: see docs/results/languages.md.
"""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import typer
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

import modeling_tmde  # noqa: F401  It registers its classes with the Auto classes.
from tmde.data.io import replacing
from tmde.training.starts.hub_encoders import open_encoder, prompt_settings

LANGUAGES = ("de", "en", "es", "fr", "it")
PROMPT = "query: "
VOCABULARY = 42_000  # Tokens. With more, the model would be larger than 40 MB.
SHORTEST_SENTENCE = 4  # Words, in Tatoeba, which has many sentences such as "Tom smiled."
LONGEST_SENTENCE = 70  # Words. Longer texts take most of the time, and passages are there.
SHORTEST_PASSAGE = 40  # Words.
LONGEST_PASSAGE = 100  # Words.
LONGEST_GOAL = 80  # Words, after which a passage ends with the sentence.
TEACHER_BATCH = 256  # Texts.
SEEDS = (42, 43, 44)
TRAINED_SHARE = 0.6  # The share of the weights after training; the rest are those before.


@dataclass(frozen=True)
class Source:
    """A file of parallel rows, and how many texts are taken from it."""

    name: str
    sentences: int
    passages: int


SOURCES = (
    Source("general/tatoeba", 30_000, 0),
    Source("general/bible", 1_500, 200),
    Source("general/wiktionary", 2_000, 0),
    Source("parallel/msdocs_operations", 1_500, 200),
    Source("parallel/msdocs_business_central", 1_500, 200),
    Source("parallel/msdocs_skype", 1_500, 200),
    Source("parallel/php_manual", 1_500, 200),
    Source("parallel/python_docs", 1_500, 200),
    Source("parallel/divinum_officium", 800, 200),
    Source("parallel/small_docs", 2_000, 200),
)


@dataclass(frozen=True)
class Teacher:
    """A model whose vectors of English texts are learned.

    Attributes:
        name: The name of its file of vectors.
        model: Its Hub id, and the folder name that `--models` looks for.
        prompt: What it expects before every text.
        license: Its license.
    """

    name: str
    model: str
    prompt: str
    license: str


E5 = Teacher("e5", "intfloat/multilingual-e5-small", PROMPT, "mit")
# The first teacher is the one that the student begins as: see `training.teachers.combination`.
TEACHERS = (E5, Teacher("minilm", "sentence-transformers/all-MiniLM-L6-v2", "", "apache-2.0"))


# ---- Rows


def is_sentence(text: str | None, source: Source) -> bool:
    """Return whether the English text of a row is taken as a sentence."""
    if not text:
        return False
    words = len(text.split())
    if source.name == "general/tatoeba" and words < SHORTEST_SENTENCE:
        return False
    return words <= LONGEST_SENTENCE


def choose_sentences(
    rows: list[dict[str, str | None]], order: list[int], source: Source
) -> Iterator[dict[str, str | None]]:
    """Yield rows with different English texts, in an order."""
    seen: set[str | None] = set()
    for row in order:
        if len(seen) == source.sentences:
            return
        text = rows[row]["en"]
        if text in seen or not is_sentence(text, source):
            continue
        seen.add(text)
        yield rows[row]


def choose_passages(
    rows: list[dict[str, str | None]],
    documents: list[str],
    order: list[int],
    source: Source,
    generator: random.Random,
) -> Iterator[dict[str, str | None]]:
    """Yield consecutive rows of a document that share English and another language, as one text."""
    used: set[int] = set()
    passages = 0
    for begin in order:
        if passages == source.passages:
            return
        goal = generator.randint(SHORTEST_PASSAGE, LONGEST_GOAL)
        languages = set(LANGUAGES)
        words = 0
        end = begin
        while end < len(rows) and documents[end] == documents[begin] and words < goal:
            shared = {language for language in languages if rows[end][language]}
            if end in used or "en" not in shared or len(shared) < 2:
                break
            languages = shared
            words += len((rows[end]["en"] or "").split())
            end += 1
        if not SHORTEST_PASSAGE <= words <= LONGEST_PASSAGE:
            continue
        used.update(range(begin, end))
        passages += 1
        passage: dict[str, str | None] = dict.fromkeys(LANGUAGES)
        for language in languages:
            texts = [row[language] or "" for row in rows[begin:end]]
            passage[language] = " ".join(texts)
        yield passage


def write_rows(data: Path, target: Path) -> None:
    """Choose the rows to train on."""
    generator = random.Random(0)
    chosen: list[dict[str, str | None]] = []
    for source in SOURCES:
        table = pq.read_table(data / f"{source.name}.parquet", columns=["translation", "doc_id"])
        rows = table["translation"].to_pylist()
        documents = table["doc_id"].to_pylist()
        order = list(range(len(rows)))
        generator.shuffle(order)
        chosen += choose_sentences(rows, order, source)
        chosen += choose_passages(rows, documents, order, source, generator)
    generator.shuffle(chosen)
    row_type = pa.struct([(language, pa.string()) for language in LANGUAGES])
    with replacing(target) as temporary:
        pq.write_table(pa.table({"translation": pa.array(chosen, row_type)}), temporary)
    typer.echo(f"{target}: {len(chosen):,} rows")


# ---- The encoder and the teachers


def run_command(*command: object) -> None:
    """Run a command of tmde, and stop if it fails."""
    subprocess.run([sys.executable, "-m", "tmde", *map(str, command)], check=True)


def cut_vocabulary(model: str, data: Path, target: Path) -> None:
    """Cut the vocabulary of the encoder, and turn its dropout off."""
    temporary = target.with_name(f".{target.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    sources: list[object] = ["--train", data / "general", "--train", data / "parallel"]
    limit = ["--max-tokens", VOCABULARY]
    run_command(
        "export", "vocabulary", model, "-o", temporary, *sources, *limit, "--prompt", PROMPT
    )
    # A student that begins close to its teacher only loses by noise.
    settings = json.loads((temporary / "config.json").read_text())
    settings["hidden_dropout_prob"] = 0.0
    settings["attention_probs_dropout_prob"] = 0.0
    (temporary / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    temporary.rename(target)


def write_vectors(teacher: Teacher, model: str, rows: Path, target: Path) -> None:
    """Write a teacher's vectors of the English texts, with its name and license."""
    texts = {row["en"] for row in pq.read_table(rows)["translation"].to_pylist()}
    # Texts of similar lengths waste no time on padding.
    ordered = sorted(texts, key=lambda text: (len(text), text))
    encoder = SentenceTransformer(model, device="cpu")
    blocks = []
    for begin in range(0, len(ordered), TEACHER_BATCH):
        batch = ordered[begin : begin + TEACHER_BATCH]
        vectors = encoder.encode(batch, prompt=teacher.prompt, show_progress_bar=False)
        blocks.append(np.asarray(vectors, np.float16))
        typer.echo(f"{teacher.name}: {begin + len(batch):,} of {len(ordered):,} texts")
    stacked = np.concatenate(blocks)
    vector_column = pa.FixedSizeListArray.from_arrays(
        pa.array(stacked.reshape(-1)), stacked.shape[1]
    )
    table = pa.table({"text": ordered, "vector": vector_column})
    origin = {"model": teacher.model, "license": teacher.license}
    with replacing(target) as temporary:
        pq.write_table(table.replace_schema_metadata(origin), temporary)


def model_path(teacher: Teacher, models: Path | None) -> str:
    """Return the Hub id of a model, or its folder among those that are in place of the Hub."""
    if models is None:
        return teacher.model
    return str(models / teacher.model.split("/")[1])


def prepare_teaching(work: Path, data: Path, models: Path | None) -> tuple[Path, list[Path]]:
    """Write the rows to train on and the teachers' vectors, unless they are there.

    Returns:
        Their files.
    """
    rows = work / "rows.parquet"
    if not rows.exists():
        write_rows(data, rows)
    vectors = []
    for teacher in TEACHERS:
        file = work / f"{teacher.name}.parquet"
        if not file.exists():
            write_vectors(teacher, model_path(teacher, models), rows, file)
        vectors.append(file)
    return rows, vectors


# ---- Training and packing


def train(encoder: Path, rows: Path, vectors: list[Path], dev: Path, run: Path, seed: int) -> None:
    """Train the encoder by the recipe `adapted`."""
    teachers = ", ".join(str(path) for path in vectors)
    run_command(
        "train",
        "adapted",
        *["--encoder", encoder, "--train", rows, "--dev", dev, "-o", run, "--overwrite"],
        f"languages=[{', '.join(LANGUAGES)}]",
        "pivot_languages=[en, es]",
        f"objectives.distillation.teacher=[{teachers}]",
        "objectives.distillation.teacher_languages=[en]",
        "objectives.distillation.teacher_share=1.0",
        "train_max_length=160",
        "per_device_train_batch_size=128",
        "micro_batch_tokens=8192",  # 16,384 would need 13 GB of memory.
        "max_minutes=null",
        "max_cpu_minutes=45",
        "eval_minutes=1000",
        "eval_on_start=false",
        f"seed={seed}",
    )


def stored_weight(weight: torch.Tensor) -> torch.Tensor:
    """Return a weight as it is stored: a matrix in 8 bits, a vector in 16.

    Opening the checkpoint turns both into float32, because its configuration says so.
    """
    if weight.ndim == 1:
        return weight.half()
    return weight.to(torch.float8_e4m3fn)


def copy_files(run: Path, target: Path) -> None:
    """Copy the tokenizer and the files of sentence-transformers."""
    (target / "1_Pooling").mkdir(parents=True, exist_ok=True)
    for name in [
        "tokenizer_config.json",
        "modules.json",
        "1_Pooling/config.json",
        "config_sentence_transformers.json",
        "sentence_bert_config.json",
    ]:
        shutil.copyfile(run / name, target / name)
    tokenizer = json.loads((run / "tokenizer.json").read_text())
    compact = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))
    (target / "tokenizer.json").write_text(compact + "\n")


def save_weights(weights: dict[str, torch.Tensor], folder: Path) -> None:
    """Write the weights of a model, for everybody to read."""
    file = folder / "model.safetensors"
    save_file(weights, file, {"format": "pt"})
    file.chmod(0o644)  # safetensors lets nobody else read it.


def mixed_weights(runs: list[Path], start: Path) -> dict[str, torch.Tensor]:
    """Return a weighted mean of the encoder's weights after and before training.

    The runs are averaged as in model soups (Wortsman et al. 2022a).
    The weights before training keep more of what the encoder knew, and translations are found as
    often (WiSE-FT, Wortsman et al. 2022b).

    Args:
        runs: The folders of the runs. Their weights have equal shares.
        start: The folder of the encoder before training.
    """
    before = AutoModel.from_pretrained(start, dtype=torch.float32).state_dict()
    weights: dict[str, torch.Tensor] = {}
    for run in runs:
        trained = AutoModel.from_pretrained(run, dtype=torch.float32).state_dict()
        for name, weight in trained.items():
            if name not in weights:
                weights[name] = (1 - TRAINED_SHARE) * before[name.removeprefix("encoder.")]
            weights[name] = weights[name] + TRAINED_SHARE / len(runs) * weight
    return weights


def pack(runs: list[Path], start: Path, target: Path) -> None:
    """Write the mean of the runs' encoders, without their decoders and code, in 8 bits."""
    run = runs[0]  # All of them have the same settings and the same tokenizer.
    copy_files(run, target)
    weights = {}
    for name, weight in mixed_weights(runs, start).items():
        weights[name] = stored_weight(weight)
    save_weights(weights, target)
    settings: dict[str, Any] = json.loads((run / "config.json").read_text())
    del settings["auto_map"]
    settings["architectures"] = ["AdaptedModel"]
    settings["normalize"] = True
    settings["encoder_config"]["_name_or_path"] = E5.model
    (target / "config.json").write_text(json.dumps(settings, indent=2) + "\n")


def use_whole_vocabulary(folder: Path, model: str) -> None:
    """Give a packed model all tokens of the encoder.

    Training leaves the vectors of tokens as they were. So those of the other tokens fit to the
    trained layers as they fitted before, and no training is needed.

    Args:
        folder: The folder of the packed model, whose files are replaced.
        model: The encoder before its vocabulary was cut.
    """
    tokenizer = AutoTokenizer.from_pretrained(model)
    table = open_encoder(model).get_input_embeddings().weight.detach()
    weights = load_file(folder / "model.safetensors")
    weights["encoder.embeddings.word_embeddings.weight"] = stored_weight(table)
    save_weights(weights, folder)
    settings: dict[str, Any] = json.loads((folder / "config.json").read_text())
    settings["encoder_config"]["vocab_size"] = len(table)
    settings |= prompt_settings(PROMPT, tokenizer)
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    # The prompt takes a part of the positions.
    tokenizer.model_max_length = settings["max_position_embeddings"]
    tokenizer.save_pretrained(folder)


def main(
    work: Annotated[Path, typer.Argument(help="Folder to make.")],
    data: Annotated[Path, typer.Option(help="Folder with general/ and parallel/.")],
    dev: Annotated[Path | None, typer.Option(help="Rows for the loss on unseen text.")] = None,
    models: Annotated[
        Path | None, typer.Option(help="Folder with the models, in place of the Hub.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder of the result.")] = Path(
        "embedding/accurate"
    ),
    seed: Annotated[
        int | None, typer.Option(help="Write the model of this seed alone; otherwise their mean.")
    ] = None,
    whole_vocabulary: Annotated[
        bool, typer.Option("--whole-vocabulary", help="Keep all tokens of the encoder.")
    ] = False,
) -> None:
    """Make the model, from the first step whose result is not there."""
    work.mkdir(parents=True, exist_ok=True)
    encoder = work / "encoder"
    if not encoder.exists():
        cut_vocabulary(model_path(E5, models), data, encoder)
    rows, vectors = prepare_teaching(work, data, models)
    runs = []
    for run_seed in SEEDS if seed is None else (seed,):
        run = work / f"run-{run_seed}"
        if not (run / "model.safetensors").exists():
            train(encoder, rows, vectors, dev or data / "general_dev.parquet", run, run_seed)
        runs.append(run)
    pack(runs, encoder, output)
    if whole_vocabulary:
        use_whole_vocabulary(output, model_path(E5, models))


if __name__ == "__main__":
    typer.run(main)
