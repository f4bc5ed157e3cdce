"""What every model of this package does when it is saved for others to use."""

import os
import shutil
import tempfile
from pathlib import Path

from huggingface_hub import CommitInfo, ModelCard, ModelCardData, snapshot_download

from .hub_upload import COMPANIONS, HubRepository, matching_files, repository_files
from .sentence_transformers_files import write_sentence_transformers_files


class SharedModel:
    """Mixin of every model of this package: `class XPreTrainedModel(SharedModel, PreTrainedModel)`."""

    def save_pretrained(self, save_directory: str | os.PathLike, is_main_process: bool = True, **kwargs) -> None:
        """As `PreTrainedModel.save_pretrained`, with the files by which the folder also opens with
        `SentenceTransformer(save_directory, trust_remote_code=True)`."""
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        if is_main_process:
            write_sentence_transformers_files(self, save_directory)

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
        tags: list[str] | None = None,
    ) -> CommitInfo:
        """As `PreTrainedModel.push_to_hub`, in one commit that makes a repository that opens anywhere: with the remote
        code, the files of sentence-transformers and, of a model that was loaded from a folder or the Hub, its
        tokenizer and card. Weights that the repository held before are replaced.

        Args:
            repo_id: `user/name`.
            private: None creates a public repository, or takes one as it is.
            token: None takes HF_TOKEN or that of `hf auth login`.
            revision: Branch; None for `main`.
            tags: Added to the card.

        Raises:
            HubUploadError: No token, no permission, or a connection that was cut; nothing is half-published.
        """
        repository = HubRepository(repo_id, private=private, token=token, revision=revision, create_pr=create_pr)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for path, file in _companions(self, token).items():
                (folder / path).parent.mkdir(exist_ok=True)
                shutil.copyfile(file, folder / path)
            self.save_pretrained(folder, max_shard_size=max_shard_size)
            _card(self, folder, repository, tags).save(folder / "README.md")
            message = commit_message or f"Upload {type(self).__name__}"
            return repository.commit(repository_files(folder), message, commit_description)


def _companions(model: SharedModel, token: str | bool | None) -> dict[str, Path]:
    """What lay beside the weights where the model was loaded from."""
    source = model.name_or_path
    if source and not os.path.isdir(source):
        revision = getattr(model.config, "_commit_hash", None)
        source = snapshot_download(source, revision=revision, allow_patterns=list(COMPANIONS), token=token)
    return matching_files(source, COMPANIONS) if source else {}


def _card(model: SharedModel, folder: Path, repository: HubRepository, tags: list[str] | None) -> ModelCard:
    """The model's own card, that of the repository, or a short one."""
    if (folder / "README.md").exists():
        card = ModelCard.load(folder / "README.md")
    elif "README.md" in repository.files:
        card = ModelCard.load(repository.download("README.md"))
    else:
        metadata = ModelCardData(
            language=list(model.config.languages), library_name="transformers", pipeline_tag="sentence-similarity"
        )
        code = f'AutoModel.from_pretrained("{repository.repo_id}", trust_remote_code=True)'
        text = f"# {repository.repo_id}\n\nEmbeds texts of several languages in one space: `{code}`.\n"
        card = ModelCard(f"---\n{metadata}\n---\n\n{text}")
    if tags:
        card.data.tags = list(dict.fromkeys([*(card.data.tags or []), *tags]))
    return card
