"""The command `tmde push`; what it does is imported when it runs, so that its help need not wait for torch."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from modeling_tmde.cli.embedding_job import stderr_is_terminal

if TYPE_CHECKING:
    from modeling_tmde.training.publishing import Publication


class RepoType(str, Enum):
    model = "model"
    dataset = "dataset"


PathArgument = Annotated[
    str, typer.Argument(metavar="PATH", help="Folder of a model; or parallel rows, see --repo-type.")
]
RepoIdArgument = Annotated[str, typer.Argument(metavar="USER/NAME", help="Repository; created if it is not there.")]
RepoTypeOption = Annotated[
    RepoType, typer.Option(help="'dataset' pushes parallel rows: all that `tmde train --train` reads from files.")
]
PrivateOption = Annotated[bool, typer.Option("--private", help="Only for you and your organisation.")]
LicenseOption = Annotated[str | None, typer.Option(help="Its licence, an id of the Hub such as apache-2.0.")]
DataLicenseOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=LICENCE", help="Licence of training data, by their name in the card. Repeatable."),
]
ResultsOption = Annotated[
    list[str] | None,
    typer.Option(metavar="FOLDER[#SYSTEM]", help="What `tmde eval -o` wrote, for the card. Repeatable."),
]
RevisionOption = Annotated[str | None, typer.Option(help="Branch; created if it is not there.")]
CreatePrOption = Annotated[bool, typer.Option("--create-pr", help="Open a pull request, without committing.")]
MessageOption = Annotated[str | None, typer.Option("-m", "--message", help="Of the commit.")]
TokenOption = Annotated[str | None, typer.Option(help="Of the Hub. Default: HF_TOKEN, or that of `hf auth login`.")]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace all that the repository holds, even another kind of thing.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only list the files; nothing is sent.")]


def push(
    path: PathArgument,
    repo_id: RepoIdArgument,
    repo_type: RepoTypeOption = RepoType.model,
    private: PrivateOption = False,
    license: LicenseOption = None,
    data_license: DataLicenseOption = None,
    results: ResultsOption = None,
    revision: RevisionOption = None,
    create_pr: CreatePrOption = False,
    message: MessageOption = None,
    token: TokenOption = None,
    overwrite: OverwriteOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Share a trained model or a parallel corpus on the Hugging Face Hub.

        tmde push runs/mine USER/NAME --license apache-2.0

        tmde push rows.jsonl USER/CORPUS --repo-type dataset

    A model goes there with weights, configuration, code, tokenizer, a filled-in card and recipe; no checkpoints, logs
    or paths of this machine. Then `AutoModel.from_pretrained("USER/NAME", trust_remote_code=True)` opens it anywhere.
    A corpus goes there as parquet with a card; `tmde train --train USER/NAME` reads it.

    Everything is checked first, and all files go in one commit: a push that fails publishes nothing, and running the
    same again does not send twice what has arrived.
    """
    from huggingface_hub.utils import enable_progress_bars
    from transformers.utils.logging import disable_progress_bar

    from modeling_tmde.training.publishing import push_model

    disable_progress_bar()  # all of them, also that of reading a model to describe it
    if stderr_is_terminal():
        enable_progress_bars()  # of the uploads
    place = {"private": private or None, "revision": revision, "create_pr": create_pr, "token": token}
    place |= {"license": license, "message": message, "overwrite": overwrite, "dry_run": dry_run}
    try:
        if repo_type is RepoType.model:
            licenses = _named_licenses(data_license or [])
            publication = push_model(path, repo_id, data_licenses=licenses, results=results or (), **place)
        elif data_license or results:
            raise ValueError("--data-license and --results are of models; the licence of a corpus is --license")
        else:
            import datasets

            from modeling_tmde.training.publishing_corpus import push_corpus

            if not stderr_is_terminal():
                datasets.disable_progress_bars()
            publication = push_corpus(path, repo_id, **place)
    except (ValueError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("Interrupted. Nothing was published; run the same again to go on.", err=True)
        raise typer.Exit(130) from None
    _report(publication, dry_run)


def _named_licenses(values: list[str]) -> dict[str, str]:
    licenses = {}
    for value in values:
        name, equals, license = value.rpartition("=")
        if not equals or not name or not license:
            raise ValueError(f"--data-license: found {value!r}, expected NAME=LICENCE, such as 'europarl=cc0-1.0'")
        licenses[name] = license
    return licenses


def _report(publication: Publication, dry_run: bool) -> None:
    total = sum(publication.sizes.values())
    if dry_run:
        for path, size in publication.sizes.items():
            typer.echo(f"{_readable(size):>9}  {path}")
        typer.echo(
            f"{_readable(total):>9}  in {len(publication.sizes)} files for {publication.repo_id}; nothing was sent"
        )
        return
    url = publication.commit.pr_url or publication.commit.repo_url
    if publication.unchanged:
        typer.echo(f"{url} holds these {len(publication.sizes)} files already; nothing was sent")
        return
    typer.echo(f"Pushed {len(publication.sizes)} files ({_readable(total)}): {url}")


def _readable(size: int) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
