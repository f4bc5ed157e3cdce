"""The command `tmde push`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from tmde.cli.declaration import command, keywords
from tmde.cli.errors import OptionError


@dataclass(kw_only=True)
class RepositoryOptions:
    """Options shared by models and parallel rows."""

    private: Annotated[bool, Option("--private", help="Make the repository private.")] = False
    license: Annotated[
        str | None,
        Option(
            help="License id of the Hub, such as apache-2.0. Default for a model: the one that "
            "its training data and base models require, if any."
        ),
    ] = None
    revision: Annotated[str | None, Option(help="Branch, created if it does not exist.")] = None
    create_pr: Annotated[
        bool, Option("--create-pr", help="Open a pull request instead of committing.")
    ] = False
    message: Annotated[str | None, Option("-m", "--message", help="Commit message.")] = None
    token: Annotated[
        str | None, Option(help="Hub token. Default: HF_TOKEN, or the `hf auth login` token.")
    ] = None
    overwrite: Annotated[
        bool, Option("--overwrite", help="Delete the existing content of the repository.")
    ] = False
    dry_run: Annotated[bool, Option("--dry-run", help="Only list the files; send nothing.")] = False


@dataclass(kw_only=True)
class PushOptions(RepositoryOptions):
    """The options of `tmde push`."""

    path: Annotated[
        str, Argument(metavar="PATH", help="Folder of a model, or parallel text, see --repo-type.")
    ]
    repo_id: Annotated[
        str, Argument(metavar="USER/NAME", help="Repository, created if it does not exist.")
    ]
    repo_type: Annotated[
        Literal["model", "dataset"],
        Option(help="'dataset' pushes parallel text as `tmde train` reads it."),
    ] = "model"
    license_override: Annotated[
        str | None,
        Option(
            metavar="REASON",
            help="Why --license is right although it contradicts the licenses of data or base "
            "models; the card repeats it.",
        ),
    ] = None
    data_license: Annotated[
        list[str] | None,
        Option(metavar="NAME=LICENSE", help="License of a data source. Repeatable."),
    ] = None
    results: Annotated[
        list[str] | None,
        Option(
            metavar="FOLDER[#SYSTEM]", help="Folder of `tmde eval -o`, for the card. Repeatable."
        ),
    ] = None


@command(PushOptions)
def push(options: PushOptions) -> None:
    """Share a trained model or a parallel corpus on the Hugging Face Hub.

        tmde push runs/mine USER/NAME

        tmde push rows.jsonl USER/CORPUS --repo-type dataset

    A model is uploaded with weights, configuration, code, tokenizer, a filled-in card and its
    recipe, but no checkpoints, logs or local paths. `AutoModel.from_pretrained("USER/NAME",
    trust_remote_code=True)` loads it. A corpus is uploaded as parquet with a card; `tmde train
    --train USER/NAME` reads it.

    All files go into one commit: a failed push publishes nothing, and repeating it does not resend
    files that were uploaded.
    """
    _check_repo_id(options.repo_id)
    names_model = options.data_license or options.results or options.license_override
    if options.repo_type == "dataset" and names_model:
        raise OptionError(
            "--data-license, --license-override and --results are for models; set the "
            "license of a corpus with --license"
        )
    data_licenses = _parse_data_licenses(options.data_license or [])
    from tmde.training.publishing import push_corpus, push_model

    choices = keywords(options, RepositoryOptions)
    with _refused_metadata():
        if options.repo_type == "dataset":
            sizes, commit = push_corpus(options.path, options.repo_id, **choices)
        else:
            sizes, commit = push_model(
                options.path,
                options.repo_id,
                data_licenses=data_licenses,
                results=options.results or (),
                license_override=options.license_override,
                **choices,
            )
    megabytes = sum(sizes.values()) / 1e6
    total = f"{len(sizes)} files ({megabytes:.1f} MB)"
    if commit is not None:
        typer.echo(f"Pushed {total}: {commit.pr_url or commit.repo_url}")
        return
    for name, size in sizes.items():
        typer.echo(f"{size:>13,}  {name}")
    typer.echo(f"{total} for {options.repo_id}; nothing was sent")


def _check_repo_id(repo_id: str) -> None:
    """Raise `OptionError` if the Hub would reject the name of the repository."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise OptionError(str(error)) from error


@contextmanager
def _refused_metadata() -> Iterator[None]:
    """Report what the Hub rejects in a card's metadata as one line."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("Invalid metadata"):
            raise
        raise OptionError(" ".join(str(error).split())) from error


def _parse_data_licenses(values: list[str]) -> dict[str, str]:
    """Return the license of each data set.

    Args:
        values: `NAME=LICENSE` each; a name may hold an equals sign.
    """
    licenses = {}
    for value in values:
        name, _, license = value.rpartition("=")
        if not name:
            raise OptionError(f"--data-license: found {value!r}, expected NAME=LICENSE")
        licenses[name] = license
    return licenses
