"""The command `tmde push`."""

from typing import Annotated, Literal

import typer
from huggingface_hub.utils import validate_repo_id
from typer import Argument, Option

from modeling_tmde import TmdeError
from tmde.training.publishing import push_corpus, push_model


def push(
    path: Annotated[
        str, Argument(metavar="PATH", help="Folder of a model; or parallel rows, see --repo-type.")
    ],
    repo_id: Annotated[str, Argument(metavar="USER/NAME", help="Created if it does not exist.")],
    repo_type: Annotated[
        Literal["model", "dataset"],
        Option(
            help="'dataset' pushes parallel rows: all that `tmde train --train` reads from files."
        ),
    ] = "model",
    private: Annotated[
        bool, Option("--private", help="Only for you and your organization.")
    ] = False,
    license: Annotated[
        str | None, Option(help="A license id of the Hub, such as apache-2.0.")
    ] = None,
    data_license: Annotated[
        list[str] | None, Option(metavar="NAME=LICENSE", help="Of the data. Repeatable.")
    ] = None,
    results: Annotated[
        list[str] | None, Option(metavar="FOLDER[#SYSTEM]", help="By `tmde eval`. Repeatable.")
    ] = None,
    revision: Annotated[str | None, Option(help="Branch; created if it does not exist.")] = None,
    create_pr: Annotated[
        bool, Option("--create-pr", help="Open a pull request, without committing.")
    ] = False,
    message: Annotated[str | None, Option("-m", "--message", help="Commit message.")] = None,
    token: Annotated[
        str | None, Option(help="Default: HF_TOKEN, or that of `hf auth login`.")
    ] = None,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Delete what the repository holds.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only list the files; nothing is sent.")
    ] = False,
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
    validate_repo_id(repo_id)
    options = {
        "private": private or None,
        "revision": revision,
        "create_pr": create_pr,
        "token": token,
    }
    options |= {"license": license, "message": message, "overwrite": overwrite, "dry_run": dry_run}
    if repo_type == "dataset":
        if data_license or results:
            raise TmdeError(
                "--data-license and --results are for models; the license of a corpus is --license"
            )
        sizes, commit = push_corpus(path, repo_id, **options)
    else:
        licenses = dict(value.rpartition("=")[::2] for value in data_license or [])
        if "" in licenses:
            raise TmdeError(f"--data-license: found {licenses['']!r}, expected NAME=LICENSE")
        sizes, commit = push_model(
            path, repo_id, data_licenses=licenses, results=results or (), **options
        )
    total = f"{len(sizes)} files ({sum(sizes.values()) / 1e6:.1f} MB)"
    if commit is not None:
        typer.echo(f"Pushed {total}: {commit.pr_url or commit.repo_url}")
        return
    for name, size in sizes.items():
        typer.echo(f"{size:>13,}  {name}")
    typer.echo(f"{total} for {repo_id}; nothing was sent")
