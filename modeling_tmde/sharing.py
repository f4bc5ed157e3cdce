"""What every model of this package does when it is saved for others to use."""

import importlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from huggingface_hub import CommitInfo, ModelCard, ModelCardData, constants, snapshot_download
from huggingface_hub.errors import HTTPError

from .card_text import is_untouched, marked
from .export import write_sentence_transformers_files
from .hub_upload import (
    CARD,
    COMPANIONS,
    GRAPHS,
    PICTURE,
    RESULTS,
    STALE_WEIGHTS,
    HubRepository,
    HubUploadError,
    named_files,
    repository_files,
    weight_names,
)
from .onnx_files import commit_of, sha256_of

_HUB_OPTIONS = ("commit_message", "commit_description", "private", "token", "revision", "create_pr", "tags")


class SharedModel:
    """Mixin of every model of this package: `class XPreTrainedModel(SharedModel, PreTrainedModel)`.

    Attributes:
        _auto_map: Of each Auto class, the module and the class that open a folder of this family.
    """

    _auto_map: Mapping[str, str]
    _hub_revision: str | None = None

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike | None, *model_args, revision: str = "main", **kwargs
    ):
        """As `PreTrainedModel.from_pretrained`; what `push_to_hub` takes along is of the same revision."""
        found = super().from_pretrained(pretrained_model_name_or_path, *model_args, revision=revision, **kwargs)
        model = found[0] if isinstance(found, tuple) else found  # with output_loading_info
        if pretrained_model_name_or_path and not os.path.exists(pretrained_model_name_or_path):
            # The commit: by the time of the push, the branch may be at another model.
            hub = {"revision": revision, "cache_dir": kwargs.get("cache_dir")}
            model._hub_revision = commit_of(str(pretrained_model_name_or_path), model.config, hub) or revision
        return found

    def save_pretrained(
        self,
        save_directory: str | os.PathLike,
        is_main_process: bool = True,
        state_dict: Mapping[str, torch.Tensor] | None = None,
        push_to_hub: bool = False,
        **kwargs,
    ) -> None:
        """As `PreTrainedModel.save_pretrained`, with the code beside the weights for `trust_remote_code=True`, all
        Auto classes in `auto_map`, whichever model of the family is saved, and the files by which the folder also
        opens with `SentenceTransformer(save_directory, trust_remote_code=True)`.

        Args:
            push_to_hub: Push it as well, with the arguments of `push_to_hub`; `repo_id` is by default the name of the
                folder.
        """
        hub = {name: kwargs.pop(name) for name in _HUB_OPTIONS if name in kwargs}
        repo_id = kwargs.pop("repo_id", None) or Path(save_directory).absolute().name
        self.config.auto_map = dict(self._auto_map)
        super().save_pretrained(save_directory, is_main_process, _copied(state_dict), **kwargs)
        if is_main_process:
            write_sentence_transformers_files(self, save_directory)
            if push_to_hub:
                size = {name: kwargs[name] for name in ("max_shard_size",) if name in kwargs}
                self._push(repo_id, state_dict=state_dict, **hub, **size)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        commit_message: str | None = None,
        commit_description: str | None = None,
        private: bool | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        create_pr: bool = False,
        max_shard_size: int | str | None = "50GB",
        tags: list[str] | str | None = None,
    ) -> CommitInfo:
        """As `PreTrainedModel.push_to_hub`, in one commit that makes a repository that opens anywhere: with the remote
        code, the files of sentence-transformers and, of a model that was loaded from a folder or the Hub, its
        tokenizer. Weights that the repository held before are replaced.

        A card that a person has written in the repository stays. The card of the folder that the model was loaded from
        goes along if the weights are still those of the folder; of others, it would state the wrong results. So would
        a card that this package made of weights that the repository held before: it is replaced by a short one, and
        the results and the recipe that `tmde push` brought with them go.

        Args:
            repo_id: `user/name`.
            private: None creates a public repository, or takes one as it is.
            token: None takes HF_TOKEN or that of `hf auth login`.
            revision: Branch; None for `main`.
            tags: Added to the card, with those of `add_model_tags`.

        Raises:
            HubUploadError: No token, no permission, a connection that was cut, or the folder that the model was loaded
                from is gone; nothing is half-published.
        """
        options = {"commit_message": commit_message, "commit_description": commit_description, "private": private}
        options |= {"token": token, "revision": revision, "create_pr": create_pr, "tags": tags}
        return self._push(repo_id, max_shard_size=max_shard_size, **options)

    def _push(
        self,
        repo_id: str,
        *,
        state_dict: Mapping[str, torch.Tensor] | None = None,
        max_shard_size: int | str | None = "50GB",
        commit_message: str | None = None,
        commit_description: str | None = None,
        tags: list[str] | str | None = None,
        token: str | bool | None = None,
        **place,
    ) -> CommitInfo:
        source = _source(self, token)  # before a repository is made that nothing would come into
        repository = HubRepository(repo_id, token=token, **place)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for path, file in named_files(source, COMPANIONS).items() if source else ():
                shutil.copyfile(file, folder / path)
            self.save_pretrained(folder, state_dict=state_dict, max_shard_size=max_shard_size)
            weights = weight_hashes(folder)
            local = source is not None and os.path.isdir(self.name_or_path)
            own = source if local and weights and weight_hashes(source) == weights else None
            is_there = repository.holds(weights)
            card = _card(self, repository, own, is_there)
            if tags := [*([tags] if isinstance(tags, str) else tags or ()), *(self.model_tags or ())]:
                card.data.tags = list(dict.fromkeys([*(card.data.tags or ()), *tags]))
            card.save(folder / CARD)
            for path, file in named_files(own, [PICTURE]).items() if own else ():
                shutil.copyfile(file, folder / path)
            stale = [pattern for pattern in STALE_WEIGHTS if not (is_there and pattern == GRAPHS)]
            if not is_there:
                stale += RESULTS  # of the weights that are replaced
            if is_untouched(str(card)) and f"({PICTURE})" not in card.text:
                stale.append(PICTURE)  # of a card that is replaced
            message = commit_message or f"Upload {type(self).__name__}"
            return repository.commit(repository_files(folder), message, commit_description, stale)


def _copied(state_dict: Mapping[str, torch.Tensor] | None) -> dict[str, torch.Tensor] | None:
    """transformers takes the tensors out of the mapping as it writes them."""
    return None if state_dict is None else dict(state_dict)


def _origin(model: SharedModel) -> str | None:
    """Folder or Hub id; None of a new model, which transformers names "None" if its weights were given."""
    name = model.name_or_path
    return name if name and name != "None" else None


def _source(model: SharedModel, token: str | bool | None) -> Path | None:
    """The folder where the model was loaded from, or one with what lay beside its weights on the Hub.

    Raises:
        HubUploadError: It is gone, or the Hub does not give it.
    """
    source = _origin(model)
    if source is None or os.path.isdir(source):
        return Path(source) if source else None
    revision = model._hub_revision
    cache = Path(constants.HF_HUB_CACHE, f"models--{source.replace('/', '--')}")
    # By the name of a folder the Hub may know somebody else's model; one that was loaded from there is in the cache.
    if revision is None and (os.path.isabs(source) or not cache.is_dir()):
        raise HubUploadError(
            f"found no folder {source}, from which the model was loaded and its tokenizer is to be taken; save both "
            "in a folder (save_pretrained) and push that with `tmde push`, or set model.name_or_path to where it is "
            "now. Nothing was published"
        )
    try:
        return Path(snapshot_download(source, revision=revision, allow_patterns=list(COMPANIONS), token=token))
    except (OSError, HTTPError) as error:
        raise HubUploadError(f"{source}: the tokenizer cannot be fetched ({error}). Nothing was published") from error


def weight_hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of the weights, without the index of shards, whose hash the Hub does not tell; empty where one of their
    files is missing."""
    files = {name: folder / name for name in weight_names(folder) if name.endswith(".safetensors")}
    return (
        {name: sha256_of([file]).hex() for name, file in files.items()}
        if all(map(Path.is_file, files.values()))
        else {}
    )


def _card(model: SharedModel, repository: HubRepository, own: Path | None, is_there: bool) -> ModelCard:
    """What a person wrote in the repository, else the card of `own`, else that of the repository, or a short one.

    Args:
        own: The folder that has the same weights.
        is_there: Whether the repository has them; a card that was made of others would state the wrong results.
    """
    there = repository.download(CARD) if CARD in repository.files else None
    edited = there is not None and not is_untouched(there.read_text(encoding="utf-8-sig"))
    if own is not None and (own / CARD).is_file() and not edited:
        return _card_for(own, repository.repo_id)
    if there is not None and (edited or is_there):
        return ModelCard.load(there)
    source = _origin(model)
    base = source if source and not os.path.isdir(source) and source != repository.repo_id else None
    return short_card(repository.repo_id, model.config.languages, there, base)


def short_card(
    repo_id: str, languages: Iterable[str], before: Path | None = None, base_model: str | None = None
) -> ModelCard:
    """A card that is true of any weights.

    Args:
        before: The card that it replaces, whose licence and tags stay.
    """
    held = ModelCard.load(before).data if before else ModelCardData()
    metadata = ModelCardData(
        language=list(languages),
        license=held.license,
        library_name="transformers",
        tags=held.tags,
        pipeline_tag="sentence-similarity",
        base_model=base_model,
    )
    code = f'AutoModel.from_pretrained("{repo_id}", trust_remote_code=True)'
    text = marked(f"# {repo_id}\n\nEmbeds texts of several languages in one space: `{code}`.")
    return ModelCard(f"---\n{metadata}\n---\n{text}")


def _card_for(folder: Path, repo_id: str) -> ModelCard:
    """The card of a folder; where the package is, with code that opens the repository."""
    if __package__ != "modeling_tmde":  # remote code
        return ModelCard.load(folder / CARD)
    readme = importlib.import_module("modeling_tmde.hub_cards.readme")
    cards = importlib.import_module("modeling_tmde.hub_cards.model_cards")
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / CARD
        shutil.copyfile(folder / CARD, path)
        readme.write_card(cards.model_card(folder, repo_id=repo_id, license=readme.found_license(path)), path)
        return ModelCard.load(path)
