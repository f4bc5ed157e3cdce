"""Small stand-ins for the repositories of the Hub that pages name, so that their blocks run.

Models are random and have the architecture of the original. Datasets have its columns.
"""

import functools
import io
import tempfile
from pathlib import Path

import datasets
import torch
from transformers import XLMRobertaConfig, XLMRobertaModel

from tests.hub_encoders import make_tokenizer, save_encoder
from tests.hub_server import HubServer, Repository
from tmde.data.sample import sample_sentences

XNLI_LANGUAGES = ("en", "de", "fr")
XNLI_SPLITS = ("train", "validation", "test")


def add_repository(hub: HubServer, repo_id: str) -> None:
    """Put the stand-in for a repository on a Hub.

    Raises:
        ValueError: There is no stand-in for it.
    """
    if repo_id not in STAND_INS:
        raise ValueError(
            f"no page may name {repo_id!r}: tests/docs/hub_content.py has no stand-in for it"
        )
    kind, make_files = STAND_INS[repo_id]
    repository = Repository(kind, repo_id, private=False)
    repository.add("main", None, "stand-in", make_files())
    hub.repositories[kind, repo_id] = repository


@functools.cache
def _e5_small() -> dict[str, bytes]:
    """Return an encoder with the layers and the width of multilingual-e5-small.

    The bag that comes with the package is as wide, so that `hybrid` can add both.
    """
    rows = sample_sentences(300)["translation"]
    tokenizer = make_tokenizer("unigram", [text for row in rows for text in row.values()], 1000)
    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=384,
        num_hidden_layers=12,
        num_attention_heads=4,
        intermediate_size=16,
        max_position_embeddings=64,
        type_vocab_size=1,
        pad_token_id=tokenizer.pad_token_id,
    )
    with tempfile.TemporaryDirectory() as folder:
        XLMRobertaModel(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return _files_of(Path(folder))


@functools.cache
def _xlm_roberta() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        save_encoder(Path(folder), "xlm-roberta")
        return _files_of(Path(folder))


def _snli() -> dict[str, bytes]:
    files = {}
    for split in ("train", "validation"):
        files[f"plain_text/{split}-00000-of-00001.parquet"] = _pairs("en")
    files["README.md"] = _card({"plain_text": ("train", "validation")})
    return files


def _xnli() -> dict[str, bytes]:
    files = {}
    for language in XNLI_LANGUAGES:
        for split in XNLI_SPLITS:
            files[f"{language}/{split}-00000-of-00001.parquet"] = _pairs(language)
    files["README.md"] = _card(dict.fromkeys(XNLI_LANGUAGES, XNLI_SPLITS))
    return files


def _pairs(language: str) -> bytes:
    """Return pairs of sentences with labels as a parquet file."""
    rows: dict[str, list] = {"premise": [], "hypothesis": [], "label": []}
    sentences = [row[language] for row in sample_sentences(60)["translation"]]
    for number, sentence in enumerate(sentences):
        rows["premise"].append(sentence)
        rows["hypothesis"].append(sentences[number - number % 3])
        rows["label"].append(number % 3)
    file = io.BytesIO()
    datasets.Dataset.from_dict(rows).to_parquet(file)
    return file.getvalue()


def _card(splits_by_config: dict[str, tuple[str, ...]]) -> bytes:
    """Return a card that names the files of every config and split."""
    lines = ["---", "configs:"]
    for config, splits in splits_by_config.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        for split in splits:
            lines += [f"  - split: {split}", f"    path: {config}/{split}-*"]
    return "\n".join([*lines, "---", ""]).encode()


def _files_of(folder: Path) -> dict[str, bytes]:
    files = {}
    for path in folder.iterdir():
        files[path.name] = path.read_bytes()
    return files


STAND_INS = {
    "intfloat/multilingual-e5-small": ("models", _e5_small),
    "FacebookAI/xlm-roberta-base": ("models", _xlm_roberta),
    "stanfordnlp/snli": ("datasets", _snli),
    "facebook/xnli": ("datasets", _xnli),
}
