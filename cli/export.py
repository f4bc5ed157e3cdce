"""`tmde export`: a model written in another form, for other software to run."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modeling_tmde.cli.embedder_options import RevisionOption, TrustRemoteCodeOption
from modeling_tmde.cli.embedding_job import load_model, stderr_is_terminal
from modeling_tmde.data.documents import EmbedError

# torch and transformers are imported where they are used: `tmde --help` must not wait for them.
if TYPE_CHECKING:
    from modeling_tmde.embedding import DocumentEmbedder

# What an export is compared on: article 1 of the Universal Declaration of Human Rights, in twelve languages.
ARTICLES = (
    "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience and "
    "should act towards one another in a spirit of brotherhood.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt und "
    "sollen einander im Geist der Brüderlichkeit begegnen.",
    "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de razón y "
    "conciencia, deben comportarse fraternalmente los unos con los otros.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de "
    "conscience et doivent agir les uns envers les autres dans un esprit de fraternité.",
    "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di ragione e di coscienza "
    "e devono agire gli uni verso gli altri in spirito di fratellanza.",
    "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Dotados de razão e de consciência, "
    "devem agir uns para com os outros em espírito de fraternidade.",
    "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler ve birbirlerine "
    "karşı kardeşlik zihniyeti ile hareket etmelidirler.",
    "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью и должны "
    "поступать в отношении друг друга в духе братства.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. Είναι προικισμένοι με λογική "
    "και συνείδηση, και οφείλουν να συμπεριφέρονται μεταξύ τους με πνεύμα αδελφοσύνης.",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميرًا وعليهم أن يعامل بعضهم بعضًا بروح الإخاء.",
    "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。人間は、理性と良心とを授けられて"
    "おり、互いに同胞の精神をもって行動しなければならない。",
)
TEXTS = (*ARTICLES, " ".join(ARTICLES), " ".join(ARTICLES * 3), "")

app = typer.Typer(no_args_is_help=True, help="Write a model in another form, for other software to run.")
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="Folder of a saved model, or a Hub id.")]


class Quantization(str, Enum):
    int8 = "int8"


@app.command()
def onnx(
    model: ModelArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Default: MODEL, if it is a folder.")
    ] = None,
    quantization: Annotated[
        Quantization | None,
        typer.Option(help="int8: weights of 8 bits, about a third of the size."),
    ] = None,
    trust_remote_code: TrustRemoteCodeOption = False,
    revision: RevisionOption = None,
) -> None:
    """Write a model as an ONNX graph: FOLDER/onnx/model.onnx, or model_int8.onnx.

    The graph takes batches of any size and length. It is checked and compared with the model on texts in twelve
    languages: in float32, outputs that differ by more than a ten-thousandth are an error; in int8, a vector whose
    cosine with the model's is below 0.9.

        tmde export onnx runs/tmde

        tmde embed news.txt -o news.npy -m runs/tmde --backend onnx

    A folder of its own gets config and tokenizer as well, and opens without the weights:

        tmde export onnx runs/tmde -o served --quantization int8

    It needs tmde's extra "onnx". A bag is written by `tmde export static`.
    """
    with _told():
        from modeling_tmde.onnx_export import export_and_measure
        from modeling_tmde.onnx_session import require

        require("onnx", "onnxscript", "onnxruntime")
        kind = quantization and quantization.value
        folder = _graph_folder(model, output, kind)
        embedder = _open(model, trust_remote_code=trust_remote_code, revision=revision)
        sources = _sources(model, embedder, revision)
        if folder != Path(model).expanduser():
            _check_same_model(folder, sources)
        if stderr_is_terminal():
            typer.echo("Writing the graph and comparing it with the model ...", err=True)
        graph = export_and_measure(embedder.model, embedder.tokenizer, folder, kind, TEXTS, sources)
    parity = graph.parity
    typer.echo(f"{graph.path}: {graph.size / 1e6:.1f} MB, opset {graph.opset}, valid by onnx.checker")
    inputs = f"on {parity.inputs} inputs of {parity.shortest:,} to {parity.longest:,} tokens in twelve languages"
    if kind is None:
        typer.echo(
            f"against torch, {inputs}: outputs up to {parity.largest:.2f} differ by at most {parity.difference:.1e}; "
            f"cosine of the vectors at least {parity.cosine:.6f}"
        )
    else:
        typer.echo(
            f"against torch in float32, {inputs}: cosine of the vectors at least {parity.cosine:.4f}, on average "
            f"{parity.mean_cosine:.4f}"
        )
    given = ', backend="onnx"' + ("" if kind is None else f', quantization="{kind}"')
    typer.echo(f'DocumentEmbedder.from_pretrained("{folder}"{given}) runs it')


@app.command()
def static(
    model: ModelArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to make.")],
) -> None:
    """Write a bag as a table of vectors, which sentence-transformers opens without any code of this package.

        tmde export static runs/bag -o static

        python -c "from sentence_transformers import SentenceTransformer as S; print(S('static').encode('Guten Tag'))"

    Every model of this package also opens as it is: SentenceTransformer(MODEL, trust_remote_code=True).
    """
    with _told():
        import numpy as np

        from modeling_tmde.onnx_export import TOLERANCE
        from modeling_tmde.static_embedding import export_static_embedding

        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise EmbedError(f"--output {output} is there already; give the name of a new folder")
        embedder = _open(model)
        output.absolute().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output.absolute().parent, prefix=".export-") as temporary:
            written = export_static_embedding(embedder.model, embedder.tokenizer, folder=Path(temporary) / "static")
            from sentence_transformers import SentenceTransformer

            texts = TEXTS[:-1]
            found = SentenceTransformer(str(written), device="cpu").encode(list(texts), show_progress_bar=False)
            difference = np.abs(found - embedder.encode(texts, show_progress_bar=False)).max()
            if not difference <= TOLERANCE:
                raise EmbedError(
                    f"the table of {model} gives vectors that differ from those of the model by {difference:.1e}, "
                    f"expected at most {TOLERANCE:.0e} (both are of length 1); nothing was written"
                )
            os.replace(written, output)
        size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    typer.echo(f"{output}: {size / 1e6:.1f} MB; on {len(texts)} texts its vectors differ by at most {difference:.1e}")
    typer.echo(f'SentenceTransformer("{output}") opens it')


@contextmanager
def _told() -> Iterator[None]:
    """What the user can set right ends in one line."""
    try:
        yield
    except (EmbedError, ImportError, ValueError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None


def _open(model: str, **loading) -> DocumentEmbedder:
    """Model and tokenizer, in float32 on the CPU, where the export is made.

    Raises:
        EmbedError: For all that can be wrong with MODEL.
    """
    try:
        return load_model(model, "cpu", stderr_is_terminal(), {"dtype": "float32", **loading})
    except EmbedError as error:
        raise EmbedError(str(error).removeprefix("--model ")) from None


def _graph_folder(model: str, output: Path | None, quantization: str | None) -> Path:
    """
    Raises:
        EmbedError: None is named, or a file, or a graph is there that this package has not written.
    """
    from modeling_tmde.onnx_files import FILES, record_file

    folder = Path(model).expanduser() if output is None else output.expanduser()
    if output is None and not folder.is_dir():
        raise EmbedError(f"--output: {model} is no folder; give the folder to write to")
    if folder.exists() and not folder.is_dir():
        raise EmbedError(f"--output {folder} is a file, expected a folder")
    if Path(model).expanduser().exists() and folder.exists() and folder.samefile(Path(model).expanduser()):
        folder = Path(model).expanduser()
    graph = folder / FILES[quantization]
    if graph.exists() and not record_file(graph).exists():
        raise EmbedError(f"{graph} is there, and was not written by tmde; move it away, or give another --output")
    return folder


def _sources(model: str, embedder: DocumentEmbedder, revision: str | None) -> dict[str, str]:
    """What the graph is written from, for its record."""
    from modeling_tmde.onnx_files import commit_of, read_sources

    folder = Path(model).expanduser()
    if folder.is_dir():
        return read_sources(folder)
    return {"repository": model, "commit": commit_of(model, embedder.model.config, {"revision": revision}) or ""}


def _check_same_model(folder: Path, sources: dict[str, str]) -> None:
    """
    Raises:
        EmbedError: The folder has a model, or the graph of another one, whose config and tokenizer would be beside
            this one's graph.
    """
    from modeling_tmde.onnx_files import FILES, read_sources, record_file

    records = [record_file(folder / file) for file in FILES.values()]
    records = [json.loads(path.read_text(encoding="utf-8")) for path in records if path.is_file()]
    mixed = read_sources(folder) or any(record != sources for record in records)
    if mixed or ((folder / "config.json").exists() and not records):
        raise EmbedError(f"--output {folder} holds another model; give the name of a new folder")
