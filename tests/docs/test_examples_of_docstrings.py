"""Every public class has an example in its docstring, and the examples run."""

import inspect
import re
import textwrap
from pathlib import Path

import pytest
from transformers import BertConfig

import tmde
from modeling_tmde import (
    AdaptedConfig,
    AdaptedForConditionalGeneration,
    AlignedConfig,
    AlignedModel,
    BagConfig,
    BagModel,
    LaserConfig,
    LaserForConditionalGeneration,
    NtdvConfig,
    NtdvForConditionalGeneration,
    TmdeEncoderConfig,
    TmdeEncoderForMaskedLM,
    TmdeForConditionalGeneration,
)
from tests.conftest import nightly_except, save, tiny_config
from tmde import DocumentEmbedder, TmdeTrainer

LANGUAGES = {"languages": ["de", "en", "es"], "pivot_languages": ["en", "es"], "vocab_size": 400}
# Those that need the Hub, files of users or a licensed corpus.
NOT_RUN = {
    "adapt_encoder",
    "load_mldoc",
    "load_sib200",
    "load_xnli",
    "embed_file",
    "index_files",
    "align_files",
    "mine_files",
    "clean_files",
    "dedupe_files",
    "calibrate_model",
    "align_word_files",
}
METHODS = {
    "DocumentEmbedder": DocumentEmbedder,
    "TmdeTrainer": TmdeTrainer,
}
# Methods that a reader calls first.
NEEDED = {"DocumentEmbedder.from_pretrained", "DocumentEmbedder.encode", "TmdeTrainer.train"}
DAILY = ["DocumentEmbedder", "InfoNCE", "TmdeModel", "TmdeTrainer.train"]


def examples() -> dict[str, str]:
    """Return the examples of the docstrings of all public names, and of their methods."""
    found = {}
    for name in tmde.__all__:
        found[name] = example_of(getattr(tmde, name))
    for class_name, owner in METHODS.items():
        for name in vars(owner):
            if not name.startswith("_"):
                found[f"{class_name}.{name}"] = example_of(getattr(owner, name))
    return {name: code for name, code in found.items() if code}


def example_of(item: object) -> str:
    """Return the code of the docstring of a class or function; "" without one."""
    if not (inspect.isclass(item) or inspect.isroutine(item)):
        return ""
    blocks = re.findall(
        r"^ *```python\n(.*?)^ *```", inspect.getdoc(item) or "", re.MULTILINE | re.DOTALL
    )
    return "\n".join(textwrap.dedent(block) for block in blocks)


EXAMPLES = examples()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, spaced_tokenizer) -> Path:
    """A folder with a tiny model of each family, under the names that the examples use."""
    spaced_tokenizer.add_special_tokens({"mask_token": "<mask>"})
    vocabulary = LANGUAGES | {"vocab_size": len(spaced_tokenizer)}
    bert = BertConfig(
        vocab_size=len(spaced_tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
    )
    small = {"d_model": 16, "embedding_dim": 12}
    models = {
        "tmde": TmdeForConditionalGeneration(
            tiny_config(max_position_embeddings=512, **vocabulary)
        ),
        "bag": BagModel(BagConfig(d_model=16, **vocabulary)),
        "adapted": AdaptedForConditionalGeneration(
            AdaptedConfig(
                encoder_config=bert,
                languages=vocabulary["languages"],
                pivot_languages=vocabulary["pivot_languages"],
            )
        ),
        "encoder": TmdeEncoderForMaskedLM(
            TmdeEncoderConfig(
                d_model=16,
                encoder_layers=2,
                encoder_attention_heads=2,
                encoder_ffn_dim=24,
                mask_token_id=spaced_tokenizer.mask_token_id,
                **vocabulary,
            )
        ),
        "laser": LaserForConditionalGeneration(
            LaserConfig(decoder_hidden_size=20, encoder_layers=2, **small, **vocabulary)
        ),
        "ntdv": NtdvForConditionalGeneration(NtdvConfig(attention_heads=2, **small, **vocabulary)),
        "aligned": AlignedModel(AlignedConfig(encoder_config=small, **vocabulary)),
    }
    folder = tmp_path_factory.mktemp("examples")
    for name, model in models.items():
        save(folder / "runs" / name, model, spaced_tokenizer)
    return folder


def test_every_public_class_has_an_example():
    classes = [name for name in tmde.__all__ if inspect.isclass(getattr(tmde, name))]
    functions = [name for name in tmde.__all__ if inspect.isroutine(getattr(tmde, name))]
    assert [name for name in [*classes, *functions] if name not in EXAMPLES] == []
    assert set(EXAMPLES) >= NEEDED


@pytest.mark.parametrize("name", nightly_except(DAILY, sorted(set(EXAMPLES) - NOT_RUN)))
def test_an_example_runs(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    exec(compile(EXAMPLES[name], f"example of {name}", "exec"), {"__name__": "example"})
