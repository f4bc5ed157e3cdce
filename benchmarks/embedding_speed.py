"""Documents per second of `DocumentEmbedder` beside `SentenceTransformer.encode` on the same weights, and its modes.

    python benchmarks/embedding_speed.py                                  # made-up documents, random weights
    python benchmarks/embedding_speed.py --model FOLDER --pairs dev.parquet --languages de-en

Documents are of mixed length: log-normal, 60 tokens in the median, up to 512. sentence-transformers opens the same
folder, each library with its own defaults. The modes are compared on the last model that is measured, or on --model;
what they cost in retrieval is the share of texts of one language whose nearest text of the other is their translation
(P@1), and with random weights that of texts whose nearest is a noisy copy of themselves.
"""

import random
import tempfile
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import torch
import typer
from common import interleaved, markdown, median_ratio, summary, write_json
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, PreTrainedTokenizerBase

from modeling_tmde import BagConfig, BagModel, DocumentEmbedder, TmdeConfig, TmdeModel, train_tokenizer
from modeling_tmde.data import load_parallel
from modeling_tmde.eval.retrieval import precision_at_1, retrieval_pool
from modeling_tmde.export import export_static_embedding

MAX_LENGTH = 512
MODES: dict[str, dict[str, Any]] = {
    "fp32": {"dtype": "float32"},
    "bf16": {"dtype": "bfloat16"},
    "int8": {"dtype": "float32", "quantization": "int8"},
    "ONNX fp32": {"backend": "onnx"},
    "ONNX int8": {"backend": "onnx", "quantization": "int8"},
    "torch.compile": {"dtype": "float32", "compile": True},
}


def made_up_texts(number: int, seed: int, median_words: float = 42.0) -> list[str]:
    """Texts of log-normal length, whose words are as unevenly frequent as those of a language (Zipf)."""
    rng = random.Random(seed)
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in ("a", "e", "i", "o", "u", "er")]
    words = ["".join(rng.choices(syllables, k=rng.choice((1, 2, 2, 3, 3, 4)))) for _ in range(20_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    lengths = [max(3, min(round(rng.lognormvariate(np.log(median_words), 0.8)), 350)) for _ in range(number)]
    return [" ".join(rng.choices(words, weights, k=length)).capitalize() + "." for length in lengths]


def joined(texts: list[str], number: int, seed: int, median_words: float = 36.0) -> list[str]:
    """Documents of the same lengths, of consecutive texts."""
    rng = random.Random(seed)
    words = list(chain.from_iterable(text.split() for text in texts))
    documents = []
    for _ in range(number):
        length = max(3, min(round(rng.lognormvariate(np.log(median_words), 0.8)), 350))
        start = rng.randrange(max(1, len(words) - length))
        documents.append(" ".join(words[start : start + length]))
    return documents


def noisy(texts: list[str], seed: int) -> list[str]:
    """Texts without every third word or so."""
    rng = random.Random(seed)
    return [" ".join(word for word in text.split() if rng.random() > 0.3) or text for text in texts]


def made_up_models(tokenizer: PreTrainedTokenizerBase, folder: Path) -> dict[str, Path]:
    """Random weights of the sizes that people use."""
    vocab_size = len(tokenizer)
    ids = {"pad_token_id": tokenizer.pad_token_id}
    small = {"d_model": 512, "encoder_attention_heads": 8, "encoder_ffn_dim": 1024, "dropout": 0.0}
    bert = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    torch.manual_seed(0)
    models = {
        "bag": lambda: BagModel(BagConfig(vocab_size=vocab_size)),
        "BERT, 6 layers": lambda: BertModel(BertConfig(vocab_size=vocab_size, **bert, **ids), add_pooling_layer=False),
        "T-MDE, 6 layers": lambda: TmdeModel(TmdeConfig(vocab_size=vocab_size, encoder_layers=6, **small, **ids)),
        "T-MDE small": lambda: TmdeModel(
            TmdeConfig(
                vocab_size=vocab_size, encoder_layers=1, bag_residual=True, sublinear_counts=True, **small, **ids
            )
        ),
    }
    return {name: saved(make(), tokenizer, folder / name) for name, make in models.items()}


def saved(model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def peer(embedder: DocumentEmbedder, folder: Path, scratch: Path) -> SentenceTransformer:
    """The same weights in sentence-transformers."""
    device = str(embedder.device)
    if embedder.model.config.model_type == "tmde_bag":
        path = export_static_embedding(embedder.model, embedder.tokenizer, folder=scratch / f"{folder.name}-static")
        return SentenceTransformer(str(path), device=device)
    trust = {"trust_remote_code": True}
    transformer = Transformer(str(folder), model_kwargs=trust, config_kwargs=trust, processor_kwargs=trust)
    transformer.max_seq_length = embedder.max_length
    pooling = Pooling(embedder.dimension, embedder.pooling)
    return SentenceTransformer(modules=[transformer, pooling], device=device)


def compare(
    models: dict[str, Path], documents: list[str], device: str, repeats: int, scratch: Path, bf16: bool = False
) -> list[dict[str, Any]]:
    """A row for each model: this package's embedder and its peer in turn, both in bfloat16 if asked."""
    rows = []
    for name, folder in models.items():
        dtype = torch.bfloat16 if bf16 else torch.float32
        ours = DocumentEmbedder.from_pretrained(folder, device=device, max_length=MAX_LENGTH, dtype=dtype)
        theirs = peer(ours, folder, scratch).to(dtype)
        seconds = interleaved(
            {"ours": lambda e=ours: e.encode(documents), "theirs": lambda e=theirs: e.encode(documents)},
            repeats,
            synchronize=device == "cuda",
        )
        tokens = ours.last_report.tokens
        rows.append(
            {
                "model": name,
                "texts/s": len(documents) / median(seconds["ours"]),
                "tokens/s": tokens / median(seconds["ours"]),
                "sentence-transformers, texts/s": len(documents) / median(seconds["theirs"]),
                "ratio": median_ratio(seconds["theirs"], seconds["ours"]),
                "largest difference": float(np.abs(ours.encode(documents) - theirs.encode(documents)).max()),
                "seconds": {key: summary(value) for key, value in seconds.items()},
            }
        )
        typer.echo(f"{name}: {rows[-1]['ratio']:.2f} times sentence-transformers", err=True)
    return rows


def megabytes(embedder: DocumentEmbedder) -> float:
    """Of the weights as they are kept: a graph's files, or all tensors."""
    if hasattr(embedder.model, "path"):
        graph: Path = embedder.model.path
        return sum(path.stat().st_size for path in graph.parent.glob(f"{graph.name}*")) / 1e6
    return sum(tensor.numel() * tensor.element_size() for tensor in embedder.model.state_dict().values()) / 1e6


def load_modes(folder: Path, device: str) -> dict[str, DocumentEmbedder]:
    """Every mode that this machine and this model take; the others are named."""
    embedders = {}
    for name, mode in MODES.items():
        try:
            embedders[name] = DocumentEmbedder.from_pretrained(folder, device=device, max_length=MAX_LENGTH, **mode)
        except (ValueError, ImportError) as error:
            typer.echo(f"{name} is not measured: {error}", err=True)
    return embedders


def compare_modes(
    folder: Path,
    documents: list[str],
    sides: tuple[list[str], list[str]],
    device: str,
    repeats: int,
    scratch: Path,
) -> list[dict[str, Any]]:
    """A row for each mode of one model."""
    embedders = load_modes(folder, device)
    theirs = peer(embedders["fp32"], folder, scratch)
    encoders: dict[str, Callable[[], Any]] = {"theirs": lambda: theirs.encode(documents)}
    encoders |= {name: lambda e=embedder: e.encode(documents) for name, embedder in embedders.items()}
    seconds = interleaved(encoders, repeats, synchronize=device == "cuda")
    exact = embedders["fp32"].encode(documents)
    tokens = embedders["fp32"].last_report.tokens
    baseline = precision_at_1(*(embedders["fp32"].encode(side) for side in sides))
    rows = []
    for name in MODES:
        row: dict[str, Any] = {"mode": name}
        if name in embedders:
            embedder = embedders[name]
            vectors = embedder.encode(documents)
            found = precision_at_1(*(embedder.encode(side) for side in sides))
            row |= {
                "texts/s": len(documents) / median(seconds[name]),
                "tokens/s": tokens / median(seconds[name]),
                "x sentence-transformers": median_ratio(seconds["theirs"], seconds[name]),
                "x fp32": median_ratio(seconds["fp32"], seconds[name]),
                "MB": megabytes(embedder),
                "largest difference": float(np.abs(vectors - exact).max()),
                "least cosine": float(cosines(vectors, exact).min()),
                "P@1, %": 100 * found,
                "loss, points": 100 * (baseline - found),
                "seconds": summary(seconds[name]),
            }
        rows.append(row)
    return rows


def cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return (left * right).sum(axis=1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)


def read_pairs(source: str, languages: str, size: int) -> tuple[list[str], list[str]]:
    """Two sides of a parallel file."""
    first, second = languages.split("-")
    rows = load_parallel(source, languages=(first, second), pivot_languages=(second,), bad_rows="report")
    pool = retrieval_pool(list(rows["translation"]), first, second, size)
    return list(pool.sources), list(pool.targets)


def main(
    model: Annotated[Path | None, typer.Option(help="Folder of a trained model; default: random weights.")] = None,
    pairs: Annotated[str | None, typer.Option(help="Parallel text for P@1: a file or a Hub id.")] = None,
    languages: Annotated[str, typer.Option(help="The two languages of --pairs.")] = "de-en",
    number: Annotated[int, typer.Option(min=10, help="Documents.")] = 2000,
    pool: Annotated[int, typer.Option(min=10, help="Texts on either side of the retrieval.")] = 1000,
    repeats: Annotated[int, typer.Option(min=1, help="Measurements of each, in turn.")] = 3,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    bf16: Annotated[bool, typer.Option("--bf16/--fp32", help="Models beside sentence-transformers.")] = False,
    models: Annotated[str, typer.Option(help="Of the random ones: those whose name holds one of these words.")] = "",
    json: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    """Prints two tables: models beside sentence-transformers, and the modes of one model."""
    settings = {key: value for key, value in locals().items() if key != "json"}
    sides = read_pairs(pairs, languages, pool) if pairs else None
    documents = joined(sides[0] + sides[1], number, seed=0) if sides else made_up_texts(number, seed=0)
    if sides is None:
        copied = made_up_texts(pool, seed=1)
        sides = (noisy(copied, seed=2), copied)
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        if model is not None:  # saved anew, with today's code beside it, and the graphs leave no trace
            tokenizer = AutoTokenizer.from_pretrained(model)
            chosen = {model.name: saved(AutoModel.from_pretrained(model), tokenizer, scratch / model.name)}
        else:
            tokenizer = train_tokenizer({"none": documents}, vocab_size=32_000, show_progress=False)
            chosen = made_up_models(tokenizer, scratch)
            wanted = models.split(",")
            chosen = {name: path for name, path in chosen.items() if any(word in name for word in wanted)}
            if not chosen:
                raise typer.BadParameter(f"found {models!r}, expected words of the names", param_hint="--models")
        compared = compare(chosen, documents, device, repeats, scratch, bf16)
        of_modes, folder = list(chosen.items())[-1]
        modes = []
        if AutoModel.from_pretrained(folder).config.model_type != "tmde_bag":
            modes = compare_modes(folder, documents, sides, device, repeats, scratch)
    weights = "random weights, noisy copies" if pairs is None else f"{pairs}, {languages}"
    lengths = [len(ids) for ids in tokenizer(documents, truncation=True, max_length=MAX_LENGTH)["input_ids"]]
    typer.echo(
        f"{number:,} documents of {np.median(lengths):.0f} tokens in the median, {np.mean(lengths):.0f} on average, "
        f"at most {max(lengths)}; {device}, {torch.get_num_threads()} threads; median of {repeats}\n"
    )
    typer.echo(markdown([{key: value for key, value in row.items() if key != "seconds"} for row in compared]))
    if modes:
        typer.echo(f"\nModes of {of_modes}; P@1 of {len(sides[0]):,} texts: {weights}\n")
        typer.echo(markdown([{key: value for key, value in row.items() if key != "seconds"} for row in modes]))
    write_json(json, "embedding_speed", settings, {"models": compared, "modes": modes, "modes_of": of_modes})


if __name__ == "__main__":
    typer.run(main)
