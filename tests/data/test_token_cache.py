"""The token cache: the same tokens as without it, made once, never half there, and made anew when it is damaged."""

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import datasets
import numpy as np
import pytest
import typer
from torch.utils.data import DataLoader
from typer.testing import CliRunner

from modeling_tmde import train_tokenizer
from modeling_tmde.data import token_cache
from modeling_tmde.data.token_cache import ARRAYS, TokenCache, open_token_cache
from modeling_tmde.data.token_store import ArrowSource, TextEncoder, TokenStore
from modeling_tmde.training.batching import ParallelBatches
from modeling_tmde.training.building import stage_recipe
from modeling_tmde.training.train import train
from tests.conftest import LANGUAGES, make_dataset, make_rows
from tests.data.worker_token_cache import data
from tests.training.test_stages import two_stages

ROOT = Path(__file__).parents[2]


def holey_dataset(number: int, seed: int = 0) -> datasets.Dataset:
    """Rows with some texts None or empty, in documents of one to five rows."""
    rng = random.Random(seed)
    rows = [
        {code: rng.choice([None, "", text, text]) for code, text in row.items()} for row in make_rows(number, seed)
    ]
    names = [f"d{number // 5}" if rng.random() < 0.8 else None for number in range(number)]
    ids = datasets.Dataset.from_dict(
        {"doc_id": names}, features=datasets.Features({"doc_id": datasets.Value("string")})
    )
    return datasets.concatenate_datasets([make_dataset(rows), ids], axis=1)


@pytest.fixture(scope="module")
def spaced_tokenizer():
    texts = {code: [row[code] for row in make_rows(300)] for code in LANGUAGES}
    return train_tokenizer(texts, vocab_size=400, add_prefix_space=True)


def arrays_of(cache: TokenCache) -> dict[str, list]:
    return {name: getattr(cache, name).tolist() for name in ARRAYS}


def contents(batches) -> list[tuple]:
    return [
        (batch.languages, batch.input_ids.tolist(), batch.attention_mask.tolist(), batch.lengths.tolist(), batch.sizes)
        + (batch.words, batch.counts, batch.position, batch.next_position, batch.chunk_done)
        for batch in batches
    ]


def never(*arguments, **options):
    raise AssertionError("tokenised again")


# ---- What is in it


@pytest.mark.parametrize("processes", ["1", "3"])
@pytest.mark.parametrize("number", [1, 7, 40])
def test_the_cache_holds_what_a_store_makes(processes, number, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("RAYON_NUM_THREADS", processes)
    monkeypatch.setattr(token_cache, "BLOCK_ROWS", 7)
    dataset = holey_dataset(number)
    cache = open_token_cache(dataset, tokenizer, LANGUAGES, tmp_path)
    source = ArrowSource(dataset, LANGUAGES)
    store = TokenStore(source, TextEncoder(tokenizer))
    assert cache.available(np.arange(number)).tolist() == source.available.tolist()
    assert cache.neighbors.tolist() == source.neighbors.tolist()
    rows, languages = np.nonzero(source.available)
    found, expected = cache.cells(rows, languages), store.cells(rows, languages)
    assert found.lengths.tolist() == expected.lengths.tolist() and found.words.tolist() == expected.words.tolist()
    texts = [dataset[int(row)]["translation"][LANGUAGES[code]] for row, code in zip(rows, languages, strict=True)]
    ids = np.split(cache.gather(found.starts, found.lengths), np.cumsum(found.lengths)[:-1])
    if texts:
        plain = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        assert [part.tolist() for part in ids] == plain
    assert cache.ids.dtype == np.uint16 and not cache.ids.flags.writeable


def test_a_dataset_without_rows_or_texts(tokenizer, tmp_path):
    rows = [{"de": None, "en": "", "es": None, "fr": None, "it": None}]
    for dataset in (make_dataset(rows), make_dataset(make_rows(1)).select([])):
        cache = open_token_cache(dataset, tokenizer, LANGUAGES, tmp_path)
        assert cache.starts.shape == (len(dataset), 5) and (cache.starts == -1).all()
        assert cache.ids.shape == (0,) and cache.neighbors.shape == (len(dataset),)


OPTIONS = {"micro_batch_tokens": 200, "buffer_rows": 32, "max_length": 12, "epochs": 2}


@pytest.mark.parametrize("extra", [{}, {"max_joined_rows": 3, "neighbor_share": 0.3}, {"languages_per_row": None}])
def test_batches_are_the_same_with_and_without_it(extra, spaced_tokenizer, tmp_path):
    """In both epochs, from any batch on, on every process and in DataLoader workers."""
    dataset = holey_dataset(80)
    cache = open_token_cache(dataset, spaced_tokenizer, LANGUAGES, tmp_path)

    def batches(**options):
        return ParallelBatches(dataset, spaced_tokenizer, LANGUAGES, ["en", "es"], **OPTIONS, **extra, **options)

    plain = list(batches())
    assert contents(batches(token_cache=cache)) == contents(plain)
    for batch in plain[::4]:
        rest = batches(token_cache=cache, start=batch.next_position)
        assert contents(rest) == contents(batches(start=batch.next_position))
    for rank in range(2):
        processes = {"rank": rank, "world_size": 2}
        own = batches(token_cache=cache, **processes)
        assert contents(own) == contents(batches(**processes))
        assert contents(DataLoader(own, batch_size=None, num_workers=1)) == contents(own)


def test_a_cache_of_other_languages_is_refused(tokenizer, tmp_path):
    dataset = holey_dataset(5)
    cache = open_token_cache(dataset, tokenizer, ["en", "de"], tmp_path)
    with pytest.raises(ValueError, match=r"holds \['en', 'de'\], expected \['de', 'en'\]"):
        ParallelBatches(dataset, tokenizer, ["de", "en"], ["en"], token_cache=cache)


# ---- When it is made


def test_it_is_made_once_for_the_same_data_and_tokenizer(tokenizer, tmp_path, monkeypatch):
    dataset = holey_dataset(20)
    first = open_token_cache(dataset, tokenizer, LANGUAGES, tmp_path)
    saved = tmp_path / "tokenizer"
    tokenizer(["haus hund katze"], truncation=True, max_length=3, padding=True)  # which the inner tokenizer remembers
    tokenizer.save_pretrained(saved)
    monkeypatch.setattr(token_cache, "_write", never)
    for again in (tokenizer, type(tokenizer).from_pretrained(saved)):
        for rows in (dataset, holey_dataset(20)):  # the same content, made anew
            cache = open_token_cache(rows, again, LANGUAGES, tmp_path)
            assert (cache.folder, arrays_of(cache)) == (first.folder, arrays_of(first))


def test_other_data_languages_and_tokenizers_have_another(tokenizer, spaced_tokenizer, tmp_path):
    dataset = holey_dataset(20)
    calls = [
        (dataset, tokenizer, LANGUAGES),
        (dataset.select(range(19)), tokenizer, LANGUAGES),
        (dataset.shuffle(seed=1), tokenizer, LANGUAGES),
        (holey_dataset(20, seed=1), tokenizer, LANGUAGES),
        (dataset, spaced_tokenizer, LANGUAGES),
        (dataset, tokenizer, LANGUAGES[::-1]),
        (dataset, tokenizer, LANGUAGES[:2]),
    ]
    folders = {open_token_cache(*arguments, tmp_path).folder for arguments in calls}
    assert len(folders) == len(calls)


def test_truncation_asked_of_the_tokenizer_elsewhere_changes_nothing(tokenizer):
    encoder = TextEncoder(tokenizer)
    text = "haus hund katze baum fluss stadt licht nacht brot wasser"
    expected = tokenizer(text, add_special_tokens=False)["input_ids"]
    tokenizer([text], truncation=True, max_length=4, padding="max_length")
    for made in (encoder, TextEncoder(tokenizer)):
        ids, lengths = made([text, "haus"])
        assert ids[: lengths[0]].tolist() == expected and len(expected) > 4


def test_there_is_none_of_a_stream_or_without_a_folder(tokenizer, tmp_path):
    dataset = holey_dataset(5)
    assert open_token_cache(dataset.to_iterable_dataset(), tokenizer, LANGUAGES, tmp_path) is None
    assert open_token_cache(dataset, tokenizer, LANGUAGES, None) is None

    class Slow:
        bos_token_id, eos_token_id = 0, 2

        def __len__(self):
            return 10

        def __call__(self, text, add_special_tokens=True):
            return {"input_ids": [0, 9, 2] if add_special_tokens else [9]}

    assert open_token_cache(dataset, Slow(), LANGUAGES, tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_clear_error(tokenizer, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"token cache can't be written in .*file.caches .*set token_cache_dir"):
        open_token_cache(holey_dataset(5), tokenizer, LANGUAGES, tmp_path / "file" / "caches")


def test_a_pickled_cache_is_its_folder(tokenizer, tmp_path):
    cache = open_token_cache(holey_dataset(200), tokenizer, LANGUAGES, tmp_path)
    content = pickle.dumps(cache)
    assert len(content) < 500 < cache.ids.nbytes
    assert arrays_of(pickle.loads(content)) == arrays_of(cache)


def test_both_stages_of_a_run_read_one_cache(tmp_path, monkeypatch):
    from modeling_tmde.training.train import train_recipe

    made = []
    write = token_cache._write
    monkeypatch.setattr(token_cache, "_write", lambda *arguments: (made.append(arguments), write(*arguments)))
    recipe = two_stages(f"token_cache_dir={tmp_path / 'tokens'}", "max_steps=2")
    assert stage_recipe(recipe).sections["training"]["token_cache_dir"] == str(tmp_path / "tokens")
    monkeypatch.setattr(TokenStore, "_encode", lambda store, *arguments: never() if len(store.neighbors) > 100 else 0)
    train_recipe(recipe, tmp_path / "run")
    assert len(made) == 1
    assert [path.name for path in (tmp_path / "tokens").iterdir() if path.is_dir() and path.name[0] == "."] == []


# ---- Damage, interruption, several processes


def damage_file(folder: Path, kind: str) -> None:
    if kind == "cut":
        path = folder / "ids.bin"
        path.write_bytes(path.read_bytes()[:-2])
    elif kind == "flipped":
        path = folder / "lengths.bin"
        content = bytearray(path.read_bytes())
        content[40] ^= 1
        path.write_bytes(bytes(content))
    elif kind == "missing":
        (folder / "neighbors.bin").unlink()
    elif kind == "no meta":
        (folder / "meta.json").unlink()
    elif kind == "half a meta":
        path = folder / "meta.json"
        path.write_text(path.read_text()[:50])
    else:
        meta = json.loads((folder / "meta.json").read_text())
        del meta["arrays"]["words"]
        (folder / "meta.json").write_text(json.dumps(meta))


@pytest.mark.parametrize("kind", ["cut", "flipped", "missing", "no meta", "half a meta", "no array"])
def test_a_damaged_cache_is_made_anew_with_a_warning(kind, tokenizer, tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setattr(token_cache.logger, "warning", warnings.append)
    dataset = holey_dataset(20)
    cache = open_token_cache(dataset, tokenizer, LANGUAGES, tmp_path)
    expected = arrays_of(cache)
    assert warnings == []
    damage_file(cache.folder, kind)
    monkeypatch.setattr(token_cache, "_whole", {})  # as a process that has not checked it
    assert arrays_of(open_token_cache(dataset, tokenizer, LANGUAGES, tmp_path)) == expected
    assert len(warnings) == 1 and "is damaged" in warnings[0] and str(cache.folder) in warnings[0]
    open_token_cache(dataset, tokenizer, LANGUAGES, tmp_path)
    assert len(warnings) == 1


def test_a_process_checks_a_cache_once_unless_its_files_change(tokenizer, tmp_path, monkeypatch):
    checks = []
    monkeypatch.setattr(token_cache, "find_damage", checks.append)
    dataset = holey_dataset(5)
    folder = open_token_cache(dataset, tokenizer, LANGUAGES, tmp_path).folder
    open_token_cache(dataset, tokenizer, LANGUAGES, tmp_path)
    assert checks == []  # this process has written it
    monkeypatch.setattr(token_cache, "_whole", {})
    for _ in range(2):
        open_token_cache(dataset, tokenizer, LANGUAGES, tmp_path)
    assert checks == [folder]
    os.utime(folder / "ids.bin", (1, 1))
    for _ in range(2):
        open_token_cache(dataset, tokenizer, LANGUAGES, tmp_path)
    assert checks == [folder, folder]


def test_a_folder_that_cannot_be_used_is_one_line_of_tmde_train(tmp_path):
    (tmp_path / "file").write_text("")
    app = typer.Typer()
    app.command()(train)
    overrides = [f"token_cache_dir={tmp_path / 'file' / 'caches'}", "max_steps=1"]
    result = CliRunner().invoke(app, ["quickstart", *overrides, "-o", str(tmp_path / "run")])
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
    assert result.stderr.splitlines()[-1].startswith(f"Error: The token cache can't be written in {tmp_path / 'file'}")


def start(folder: Path, marks: Path, seconds: float) -> subprocess.Popen:
    environment = {**os.environ, "RAYON_NUM_THREADS": "2", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.data.worker_token_cache", str(folder), str(marks), str(seconds)]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def wait_for(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are forked on Linux only")
def test_a_process_that_is_killed_leaves_nothing_half_done(tmp_path):
    folder, marks = tmp_path / "tokens", tmp_path / "marks"
    process = start(folder, marks, seconds=30)
    wait_for(lambda: marks.exists() and marks.read_text().count("block") == 2)
    workers = [int(line.split()[-1]) for line in marks.read_text().splitlines() if line.startswith("block")]
    assert process.pid not in workers and all(map(is_running, workers))
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not any(map(is_running, workers)))  # they do not stay behind, and hold no lock
    assert [path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")] == []
    cache = open_token_cache(*data(), LANGUAGES, folder)
    assert arrays_of(cache) == arrays_of(open_token_cache(*data(), LANGUAGES, tmp_path / "other"))
    assert [path for path in folder.iterdir() if path.is_dir()] == [cache.folder]


@pytest.mark.slow
def test_of_two_processes_at_once_one_makes_the_cache(tmp_path):
    folder, marks = tmp_path / "tokens", tmp_path / "marks"
    processes = [start(folder, marks, seconds=0.3) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert outputs[0] == outputs[1] and len(outputs[0].split()) == 2
    assert sum(not line.startswith("block") for line in marks.read_text().splitlines()) == 1
    cache = open_token_cache(*data(), LANGUAGES, folder)
    assert outputs[0].split() == [cache.folder.name, str(len(cache.ids))]
    assert [path for path in folder.iterdir() if path.is_dir()] == [cache.folder]
