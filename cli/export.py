"""`tmde export`: a model written in another form, for other software to run."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Option

from modeling_tmde.cli.options import MODEL_OPTIONS, ModelArgument, load_embedder, with_options
from modeling_tmde.export import export_onnx, export_static_embedding

app = typer.Typer(no_args_is_help=True, help="Write a model in another form, for other software to run.")


@app.command()
@with_options(**{name: MODEL_OPTIONS[name] for name in ("trust_remote_code", "revision")})
def onnx(
    model: ModelArgument,
    output: Annotated[Path | None, Option("--output", "-o", metavar="FOLDER", help="Default: MODEL.")] = None,
    quantization: Annotated[Literal["int8"] | None, Option(help="int8: weights of 8 bits.")] = None,
    loading: dict[str, Any] = ...,
) -> None:
    """Write a model as an ONNX graph: FOLDER/onnx/model.onnx, or model_int8.onnx.

    The graph takes batches of any size and length, and runs without torch. It is checked and compared with the model
    on texts in six languages: in float32, outputs that differ by more than a ten-thousandth are an error; in int8, a
    vector whose cosine with the model's is below 0.9.

        tmde export onnx runs/tmde

    A folder of its own gets config and tokenizer as well:

        tmde export onnx runs/tmde -o served --quantization int8

    It needs tmde's extra "onnx". A bag is written by `tmde export static`.
    """
    source = Path(model).expanduser()
    if output is None and not source.is_dir():
        raise ValueError(f"--output: {model} is no folder; give the folder to write to")
    if output is not None and (output / "config.json").exists() and output.resolve() != source.resolve():
        raise ValueError(f"--output {output} holds another model; give the name of a new folder")
    embedder = load_embedder(model, device="cpu", dtype="float32", **loading)
    path, difference, cosine = export_onnx(embedder.model, embedder.tokenizer, output or source, quantization)
    typer.echo(
        f"{path}: its outputs differ from the model's by {difference:.1e} of the largest, the cosine of the vectors "
        f"is at least {cosine:.6f}"
    )


@app.command()
def static(
    model: ModelArgument,
    output: Annotated[Path, Option("--output", "-o", metavar="FOLDER", help="Folder to make.")],
) -> None:
    """Write a bag as a table of vectors, which sentence-transformers opens without any code of this package.

        tmde export static runs/bag -o static

        python -c "from sentence_transformers import SentenceTransformer as S; print(S('static').encode('Guten Tag'))"

    Every model of this package also opens as it is: SentenceTransformer(MODEL, trust_remote_code=True).
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"--output {output} exists already; give the name of a new folder")
    embedder = load_embedder(model, device="cpu", dtype="float32")
    difference = export_static_embedding(embedder.model, embedder.tokenizer, output)
    typer.echo(f"{output}: its vectors differ from the model's by {difference:.1e} at most")
