"""What of a run's folder goes to the Hub, checked before anything is sent."""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from huggingface_hub import CommitInfo
from huggingface_hub.utils import HFValidationError, validate_repo_id
from safetensors import SafetensorError, safe_open
from transformers import AutoModel

from modeling_tmde import hub_cards
from modeling_tmde.card_text import is_untouched
from modeling_tmde.data.io import replacing
from modeling_tmde.hub_cards.readme import found_license, write_card
from modeling_tmde.hub_upload import (
    CARD,
    COMPANIONS,
    PICTURE,
    RESULTS,
    STALE_WEIGHTS,
    WEIGHTS,
    HubRepository,
    HubUploadError,
    repository_files,
    weight_names,
)
from modeling_tmde.loading import check_vocabulary, load_tokenizer, local_or_hub
from modeling_tmde.sentence_transformers_files import write_sentence_transformers_files
from modeling_tmde.training.licenses import HUB_LICENSES

logger = logging.getLogger("modeling_tmde.training")

# What any repository may hold, whatever its kind: tokenizer, card, licence.
NEUTRAL = (*COMPANIONS, PICTURE, "modules.json", "sentence_bert_config.json", ".gitignore", "*.md")
NEUTRAL += ("*.model", "LICENSE*", "LICENCE*", "NOTICE*")
PUSHED_CARDS = ".pushed_cards.json"  # SHA-256 of the cards that were pushed from a folder, by their place on the Hub


class PublishError(ValueError):
    """What is to be pushed is not complete, or its place on the Hub is not one; the message says what to do."""


@dataclass
class Publication:
    """What was pushed, or would be.

    sizes: of the files, in bytes, by path in the repository; commit: None after a dry run;
    unchanged: the repository held the same already.
    """

    repo_id: str
    sizes: dict[str, int]
    commit: CommitInfo | None = None
    unchanged: bool = False


def push_model(
    folder: str | os.PathLike,
    repo_id: str,
    private: bool | None = None,
    license: str | None = None,
    data_licenses: Mapping[str, str] | None = None,
    results: Sequence[str | os.PathLike] = (),
    revision: str | None = None,
    create_pr: bool = False,
    message: str | None = None,
    token: str | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
) -> Publication:
    """Uploads a trained model in one commit: weights, configuration, remote code, tokenizer, files of
    sentence-transformers, its card and recipe. Everything that can be is checked first.

    Args:
        folder: Of `tmde train`, or any that `save_pretrained` wrote, with a tokenizer.
        repo_id: `user/name`; created if it is not there.
        private: Create it as a private one; one that is there must be.
        license: Of the model, an id of the Hub such as "apache-2.0".
        data_licenses: Of the training data, by their names in the card.
        results: Folders that `tmde eval` wrote; see `model_card`.
        revision: Branch; created if it is not there.
        create_pr: Open a pull request.
        message: Of the commit.
        token: None takes HF_TOKEN or that of `hf auth login`.
        overwrite: Replace all that the repository holds, even if it is something else.
        dry_run: Say what would be uploaded; nothing is written or sent.

    A card that was edited on the Hub keeps its text, and the folder gets it too.

    Raises:
        PublishError: The folder is not complete, or `repo_id` is not one.
        HubUploadError: No token, no permission, a connection that was cut, a repository that holds something else, or
            a card that was edited both there and here. Nothing is half-published.
    """
    folder = Path(folder).expanduser()
    check_repo_id(repo_id)
    config = check_checkpoint(folder)
    check_license(license)
    described = {"license": license, "data_licenses": data_licenses, "results": results}
    files = model_files(folder, repo_id, **described)
    if dry_run:
        return Publication(repo_id, sizes_of(files))
    repository = HubRepository(repo_id, "model", private, token, revision, create_pr)
    if not overwrite:
        check_kind(repository, config["model_type"])
        if (edited := _edited_on_the_hub(repository, folder)) is not None:
            files[CARD] = card_for_hub(folder, repo_id, edited, **described)
    stale = ("**",) if overwrite else (*STALE_WEIGHTS, *RESULTS)
    commit = repository.commit(files, message or f"Upload {folder.resolve().name}", stale=stale)
    try:
        with replacing(folder / CARD) as readme:
            readme.write_bytes(files[CARD])
        pushed = _pushed_cards(folder) | {_place(repository): hashlib.sha256(files[CARD]).hexdigest()}
        with replacing(folder / PUSHED_CARDS) as record:
            record.write_text(json.dumps(pushed, indent=2) + "\n", encoding="utf-8")
    except OSError as error:  # a folder that may not be written, a full disk: the push was made all the same
        logger.warning(f"{folder / CARD} was not brought up to date ({error}); the card is on the Hub")
    return Publication(repository.repo_id, sizes_of(files), commit, commit.oid == repository.sha)


def _place(repository: HubRepository) -> str:
    return f"{repository.repo_id}@{repository.revision or 'main'}"


def _pushed_cards(folder: Path) -> dict[str, str]:
    return _read_json(folder / PUSHED_CARDS) if (folder / PUSHED_CARDS).is_file() else {}


def _edited_on_the_hub(repository: HubRepository, folder: Path) -> Path | None:
    """The repository's card, if a person has written or edited it since the folder was last pushed there.

    Raises:
        HubUploadError: The folder's card has been edited too, differently.
    """
    if CARD not in repository.files:
        return None
    there, here = repository.download(CARD), folder / CARD
    digest = hashlib.sha256(there.read_bytes()).hexdigest()
    pushed = _pushed_cards(folder).get(_place(repository))
    if digest == pushed or is_untouched(there.read_text(encoding="utf-8-sig")):
        return None
    if here.is_file() and not is_untouched(here.read_text(encoding="utf-8-sig")):
        if hashlib.sha256(here.read_bytes()).hexdigest() not in (digest, pushed):
            raise HubUploadError(
                f"{repository.repo_id}: its {CARD} was edited on the Hub, and {here} here, differently; write what "
                f"both should say into the one on the Hub and delete {here}, which then gets it, or replace all that "
                "is there with --overwrite (overwrite=True). Nothing was published"
            )
    return there


def sizes_of(files: Mapping[str, Path | bytes]) -> dict[str, int]:
    return {
        path: len(file) if isinstance(file, bytes) else file.stat().st_size for path, file in sorted(files.items())
    }


def check_repo_id(repo_id: str) -> None:
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise PublishError(f"{repo_id!r} cannot be the name of a repository: {error}") from None
    if "/" not in repo_id:
        raise PublishError(f"found {repo_id!r}, expected USER/NAME, such as 'user/{repo_id}'")


def check_checkpoint(folder: Path) -> dict:
    """The configuration of a folder that has all that `from_pretrained` needs.

    Raises:
        PublishError: A file is missing or damaged.
    """
    if folder.is_file():
        raise PublishError(
            f"{folder} is a file, expected the folder of a trained model; parallel rows go with --repo-type dataset "
            "(push_corpus)"
        )
    try:
        local_or_hub(folder)
    except OSError as error:
        raise PublishError(str(error)) from None
    if not folder.is_dir():
        raise PublishError(f"found no folder {folder}, expected that of a trained model")
    config = _read_json(folder / "config.json")
    if not isinstance(config.get("model_type"), str):
        raise PublishError(f"{folder / 'config.json'}: found no model_type, expected that of a model")
    _check_weights(folder)
    for reference in (config.get("auto_map") or {}).values():
        code = folder / f"{reference.split('--')[-1].split('.')[0]}.py"
        if not code.is_file():
            raise PublishError(
                f"{folder}: found no {code.name}, which config.json names as the model's code; save the model again "
                "with save_pretrained"
            )
    try:
        tokenizer = load_tokenizer(str(folder), {"local_files_only": True})
        check_vocabulary(tokenizer)
    except (OSError, ValueError) as error:
        raise PublishError(
            f"{folder}: the tokenizer that belongs to the model is missing or damaged ({error}); save it there with "
            "tokenizer.save_pretrained"
        ) from None
    size = config.get("vocab_size")
    if isinstance(size, int) and len(tokenizer) > size:
        raise PublishError(
            f"{folder}: the tokenizer has {len(tokenizer):,} tokens and the model {size:,}; it is another model's"
        )
    return config


def _check_weights(folder: Path) -> None:
    names = weight_names(folder)
    if names == [WEIGHTS] and not (folder / WEIGHTS).is_file():
        raise PublishError(f"{folder}: found no {WEIGHTS}, expected the folder of a trained model")
    for name in (name for name in names if name.endswith(".safetensors")):
        try:
            with safe_open(folder / name, framework="numpy"):  # reads the header, and compares it with the size
                pass
        except (SafetensorError, OSError) as error:
            raise PublishError(f"{folder / name} is missing or cut off ({error}); save the model again") from None


def _read_json(path: Path) -> dict:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PublishError(f"{path}: cannot be read ({error})") from None
    if not isinstance(content, dict):
        raise PublishError(f"{path}: found {type(content).__name__}, expected a mapping")
    return content


def check_license(license: str | None) -> None:
    if license is not None and license not in HUB_LICENSES:
        near = difflib.get_close_matches(license.lower(), HUB_LICENSES, n=1)
        hint = f"do you mean {near[0]!r}" if near else "'other' is one that it has no id for"
        raise PublishError(f"license={license!r} is no id that the Hub knows; {hint}. Nothing was published")


def is_companion(path: str) -> bool:
    """Whether a file of a repository tells nothing of the kind of thing that it holds."""
    return any(fnmatch(path.rpartition("/")[2], one) for one in NEUTRAL)


def check_kind(repository: HubRepository, model_type: str) -> None:
    """A new version of a model is a new commit, as with `push_to_hub`; another kind of thing is not replaced.

    Raises:
        HubUploadError: The repository holds something else.
    """
    held = [path for path in repository.files if not is_companion(path)]
    if not held:
        return
    if "config.json" not in held:
        found = f"{len(held)} files such as {held[0]!r} and no config.json"
    else:
        try:
            config = json.loads(repository.download("config.json").read_text(encoding="utf-8"))
        except ValueError as error:
            found = f"a config.json that cannot be read ({error})"
        else:
            kind = config.get("model_type") if isinstance(config, dict) else None
            if kind == model_type:
                return
            found = f"a model of type {kind!r}"
    raise HubUploadError(
        f"{repository.repo_id}: the repository holds {found}, and this is a model of type {model_type!r}; push it to "
        "another name, or replace all that is there with --overwrite (overwrite=True). Nothing was published"
    )


def model_files(
    folder: Path,
    repo_id: str,
    license: str | None = None,
    data_licenses: Mapping[str, str] | None = None,
    results: Sequence[str | os.PathLike] = (),
) -> dict[str, Path | bytes]:
    """What `push_model` uploads: files of the folder, and contents that are made of it for the Hub, without paths of
    the machine: card, recipe, results, and the files of sentence-transformers of a model that was saved before it had
    them."""
    files: dict[str, Path | bytes] = dict(repository_files(folder))
    files[CARD] = card_for_hub(folder, repo_id, folder / CARD, license, data_licenses, results)
    with tempfile.TemporaryDirectory() as name:
        if "modules.json" not in files:
            model = AutoModel.from_pretrained(folder, local_files_only=True)
            write_sentence_transformers_files(model, name)
        made = (path for path in Path(name).rglob("*") if path.is_file())
        files |= {path.relative_to(name).as_posix(): path.read_bytes() for path in made}
    if (folder / "recipe.yaml").is_file():
        files["recipe.yaml"] = hub_cards.public_recipe(folder).encode()
    if (folder / "results.json").is_file():
        found = _read_json(folder / "results.json")
        (found.get("corpus") or {}).pop("first_examples", None)  # names of files, and lines of them
        files["results.json"] = (json.dumps(found, indent=2) + "\n").encode()
    return files


def card_for_hub(
    folder: Path,
    repo_id: str,
    written: Path,
    license: str | None = None,
    data_licenses: Mapping[str, str] | None = None,
    results: Sequence[str | os.PathLike] = (),
) -> bytes:
    """The card of the folder's model; what a person has written in the card `written` stays, and so does its licence.

    Raises:
        PublishError: The front matter of `written` is damaged.
    """
    try:
        license = license or found_license(written)  # of an earlier push
    except ValueError as error:
        raise PublishError(str(error)) from None
    card = hub_cards.model_card(folder, repo_id=repo_id, license=license, data_licenses=data_licenses, results=results)
    with tempfile.TemporaryDirectory() as name:
        readme = Path(name) / CARD
        if written.is_file():
            shutil.copyfile(written, readme)
        write_card(card, readme)
        return readme.read_bytes()
