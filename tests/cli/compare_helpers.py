"""A tiny comparison and made-up evaluations, for the tests of `tmde compare`."""

from pathlib import Path

import numpy as np
import yaml

from modeling_tmde.cli.compare_file import Comparison, load_comparison
from modeling_tmde.cli.compare_folder import ComparisonFolder
from modeling_tmde.eval.results import Cell, TaskResult

TINY = {"vocab_size": 400, "max_characters": 20000, "d_model": 16, "micro_batch_rows": 64}
HEADS = {
    "d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "objectives.translation.sampled_vocabulary": None,
}  # fmt: skip
SHARED = {
    "max_rows": 300, "eval_pairs": ["de-en"], "eval_pool": 50, "eval_loss_rows": 20, "eval_minutes": None,
    "bf16": False, "max_steps": 3, "warmup_steps": 1, "cooldown": 0, "max_minutes": None, "max_cpu_minutes": 5,
    "token_cache_dir": None,
}  # fmt: skip


def content(**changes) -> dict:
    """A comparison of three tiny systems on the built-in sample; `KEY=None` leaves a key out."""
    whole = {
        "description": "tiny",
        "shared": {"all": dict(SHARED), "tmde": {"decoder_layers": 1}},
        "start": {"base": {"recipe": "bag", "overrides": dict(TINY)}},
        "systems": {
            "bag": {"recipe": "bag", "overrides": dict(TINY)},
            "warm": {"recipe": "small", "start": "base", "seeds": [1, 2], "overrides": dict(HEADS)},
        },
        "reference": "bag",
        "tasks": ["sample"],
        "task_options": {"sample.sizes": [40, 20, 20]},
        "contrasts": [["warm", "bag"]],
    } | changes
    return {key: value for key, value in whole.items() if value is not None}


def write(path: Path, values: dict) -> str:
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return str(path)


def load(folder: Path, values: dict | None = None, **options) -> Comparison:
    file = write(folder / "file.yaml", content() if values is None else values)
    return load_comparison(file, folder / "out", **({"train": ["sample"], "dev": {"sample": "sample"}} | options))


def change(path: str, value):
    """The tiny comparison with one value changed, by its dotted path."""
    values = content()
    *parents, last = path.split("/")
    place = values
    for key in parents:
        place = place[key]
    place[last] = value
    return values


def opened(tmp_path: Path, values: dict | None = None, overwrite: bool = False) -> tuple[Comparison, ComparisonFolder]:
    comparison, folder = load(tmp_path, values), ComparisonFolder(tmp_path / "out")
    folder.open(comparison, overwrite)
    return comparison, folder


def classified(system: str, values: dict[tuple[str, str], np.ndarray], task: str = "sib200") -> TaskResult:
    cells = [
        Cell(
            source, target, "accuracy", float(outcomes.mean()), [str(i) for i in range(len(outcomes))], outcomes, 0.25
        )
        for (source, target), outcomes in values.items()
    ]
    return TaskResult(task, system, "zero-shot", cells, data={"fingerprint": "f"}, truncated=(1, 1000))


def outcomes_of(*shares: float, seed: int = 0) -> dict[tuple[str, str], np.ndarray]:
    """Of de-de, de-en, en-de and en-en, 100 items each, exactly so many of them right."""
    rng = np.random.default_rng(seed)
    pairs = [("de", "de"), ("de", "en"), ("en", "de"), ("en", "en")]
    return {
        pair: rng.permutation(np.arange(100) < 100 * share).astype(float)
        for pair, share in zip(pairs, shares, strict=True)
    }


def staged(folder: Path) -> dict:
    """The tiny comparison with one more system, `staged`, that begins with 2 minutes of a first stage of its own."""
    recipe = yaml.safe_load(load(folder).trainings[2].recipe.to_yaml())
    recipe = {key: recipe[key] for key in ("data", "model", "objectives", "training")} | {"tokenizer": {}}
    first = write(folder / "first.yaml", recipe)
    recipe["warm_start"] = {"recipe": first, "overrides": {"max_cpu_minutes": 2}}
    values = content()
    values["systems"]["staged"] = {"recipe": write(folder / "second.yaml", recipe), "start": "base"}
    return values
