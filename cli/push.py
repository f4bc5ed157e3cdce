"""The command `tmde push`."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import datasets
import typer
from huggingface_hub.utils import disable_progress_bars

from modeling_tmde.training.publishing import Publication, push_corpus, push_model

PathArgument = Annotated[
    str, typer.Argument(metavar="PATH", help="Folder of a model; or parallel rows, see --repo-type.")
]
RepoIdArgument = Annotated[str, typer.Argument(metavar="USER/NAME", help="Created if it does not exist.")]
RepoTypeOption = Annotated[
    Literal["model", "dataset"],
    typer.Option(help="'dataset' pushes parallel rows: all that `tmde train --train` reads from files."),
]
PrivateOption = Annotated[bool, typer.Option("--private", help="Only for you and your organization.")]
LicenseOption = Annotated[str | None, typer.Option(help="A license id of the Hub, such as apache-2.0.")]
DataLicenseOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=LICENSE", help="License of training data, by its name in the card. Repeatable."),
]
ResultsOption = Annotated[
    list[str] | None,
    typer.Option(metavar="FOLDER[#SYSTEM]", help="What `tmde eval -o` wrote, for the card. Repeatable."),
]
RevisionOption = Annotated[str | None, typer.Option(help="Branch; created if it does not exist.")]
CreatePrOption = Annotated[bool, typer.Option("--create-pr", help="Open a pull request, without committing.")]
MessageOption = Annotated[str | None, typer.Option("-m", "--message", help="Commit message.")]
TokenOption = Annotated[str | None, typer.Option(help="Default: HF_TOKEN, or that of `hf auth login`.")]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Delete everything that the repository holds, even another kind of thing.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only list the files; nothing is sent.")]


def push(
    path: PathArgument,
    repo_id: RepoIdArgument,
    repo_type: RepoTypeOption = "model",
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

    A model is uploaded with weights, configuration, code, tokenizer, a filled-in card and its recipe, without
    checkpoints, logs or paths of this machine. `AutoModel.from_pretrained("USER/NAME", trust_remote_code=True)` opens
    it. A corpus is uploaded as parquet with a card; `tmde train --train USER/NAME` reads it.

    All files go in one commit: a push that fails publishes nothing, and running the same again does not send twice
    what has arrived.
    """
    if not sys.stderr.isatty():
        disable_progress_bars()
        datasets.disable_progress_bars()
    options = {"private": private or None, "revision": revision, "create_pr": create_pr, "token": token}
    options |= {"license": license, "message": message, "overwrite": overwrite, "dry_run": dry_run}
    if repo_type == "model":
        licenses = dict(_named_license(value) for value in data_license or [])
        publication = push_model(path, repo_id, data_licenses=licenses, results=results or (), **options)
    elif data_license or results:
        raise ValueError("--data-license and --results are for models; the license of a corpus is --license")
    else:
        publication = push_corpus(path, repo_id, **options)
    _report(publication)


def _named_license(value: str) -> tuple[str, str]:
    name, _, license = value.rpartition("=")
    if not name or not license:
        raise ValueError(f"--data-license: found {value!r}, expected NAME=LICENSE, such as 'europarl=cc0-1.0'")
    return name, license


def _report(publication: Publication) -> None:
    sizes, commit = publication.sizes, publication.commit
    total = f"{len(sizes)} files ({sum(sizes.values()) / 1e6:.1f} MB)"
    if commit is None:
        for path, size in sizes.items():
            typer.echo(f"{size:>13,}  {path}")
        typer.echo(f"{total} for {publication.repo_id}; nothing was sent")
    elif publication.unchanged:
        typer.echo(f"{commit.repo_url} holds these {total} already; nothing was sent")
    else:
        typer.echo(f"Pushed {total}: {commit.pr_url or commit.repo_url}")
