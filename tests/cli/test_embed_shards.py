"""`tmde embed` in shards: two real processes, a kill, another start, and the same file in the end."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import typer
from typer.testing import CliRunner

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.cli.embed import embed
from modeling_tmde.cli.embed_shards import ShardFolder, _load, share_of
from modeling_tmde.cli.processes import Processes
from modeling_tmde.cli.vector_files import replacing
from modeling_tmde.data.documents import EmbedError
from modeling_tmde.embedding import DocumentEmbedder
from tests.conftest import make_rows

app = typer.Typer()
app.command()(embed)
MODULE = "modeling_tmde.cli.main"
ENVIRONMENT = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--standalone", "--nproc_per_node=2"],
    "accelerate": ["accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--main_process_port=0"],
}


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("bag")
    torch.manual_seed(0)
    BagModel(BagConfig(vocab_size=len(tokenizer), d_model=8)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def write_documents(folder, number):
    texts = [row["en"] for row in make_rows(number, languages=("en",))]
    texts[3] = ""
    folder.mkdir(exist_ok=True)
    (folder / "in.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    rows = [json.dumps({"id": i, "text": text}) for i, text in enumerate(texts)]
    (folder / "in.jsonl").write_text("\n\n".join(rows) + "\n", encoding="utf-8")
    table = pa.table({"id": range(number), "text": texts})
    pq.write_table(table, folder / "in.parquet", row_group_size=5)  # chunks do not end where row groups end
    return texts


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def start(rank, port, *arguments):
    """One of two processes, as a launcher would start it."""
    addresses = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    command = [sys.executable, "-m", MODULE, "embed", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT | addresses | ranks)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize("kind", ["txt", "jsonl", "parquet"])
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_shards_give_the_file_of_one_pass(model, tmp_path, kind, suffix):
    texts = write_documents(tmp_path, 23)
    whole, joined = tmp_path / f"whole{suffix}", tmp_path / f"joined{suffix}"
    options = ["-m", model, "--device", "cpu", "--shard-size", 4]
    assert run(tmp_path / f"in.{kind}", "-o", whole, *options).exit_code == 0
    result = run(tmp_path / f"in.{kind}", "-o", joined, *options, "--resume")
    assert result.exit_code == 0 and "23 texts" in result.stderr and "done before" not in result.stderr
    assert joined.read_bytes() == whole.read_bytes()
    assert not (tmp_path / f"joined{suffix}.shards").exists()
    if suffix == ".npy":
        found = np.load(joined)
    else:
        found = np.stack(pq.read_table(joined)["embedding"].to_numpy())
    expected = DocumentEmbedder.from_pretrained(model, device="cpu").encode(texts)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.skipif(os.name != "posix", reason="sends SIGKILL")
@pytest.mark.slow
def test_killed_process_then_the_same_command_again(model, tmp_path):
    documents, out, whole = 12_000, tmp_path / "out.parquet", tmp_path / "whole.parquet"
    write_documents(tmp_path, documents)
    options = ["-m", model, "--device", "cpu", "--shard-size", 4]
    command = [tmp_path / "in.jsonl", "-o", out, *options]
    port = free_port()
    processes = [start(rank, port, *command) for rank in (0, 1)]
    folder = tmp_path / "out.parquet.shards"
    end = time.monotonic() + 120
    while not any(int(path.stem) % 2 for path in folder.glob("*.npy")) and time.monotonic() < end:
        time.sleep(0.002)
    processes[1].send_signal(signal.SIGKILL)
    _, stderr = processes[0].communicate(timeout=120)
    processes[1].communicate(timeout=60)
    assert processes[0].returncode == 1 and "run the same command again" in stderr.splitlines()[-1], stderr
    shards = {int(path.stem): path.stat().st_mtime_ns for path in folder.glob("*.npy")}
    # Process 0 has finished its share, the even ones; process 1 some of its own.
    assert {number for number in shards if number % 2 == 0} == set(range(0, documents // 4, 2))
    assert 0 < len(shards) - documents // 8 < documents // 8 and not out.exists()

    # Neither another setting nor another input goes on with them.
    result = run(*command, "--resume", "--normalize")
    assert result.exit_code == 1 and "its normalize is False, now it is True" in result.stderr
    result = run(*command)
    assert result.exit_code == 1 and "holds shards of an unfinished run; give --resume" in result.stderr

    port = free_port()
    processes = [start(rank, port, *command) for rank in (0, 1)]
    ends = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    stderr = ends[0][1]
    assert f"{documents - 4 * len(shards):,} texts (" in stderr and f"{4 * len(shards):,} were done before" in stderr
    assert f"{len(shards)} of them are there already" in stderr and not folder.exists()
    assert run(tmp_path / "in.jsonl", "-o", whole, *options).exit_code == 0
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_launchers(model, tmp_path, launcher):
    write_documents(tmp_path, 23)
    options = ["-m", model, "--device", "cpu", "--shard-size", 4]
    command = [sys.executable, "-m", *LAUNCHERS[launcher], "-m", MODULE, "embed"]

    def launch(*arguments):
        line = [*command, *map(str, arguments), *map(str, options)]
        return subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=170)

    result = launch(tmp_path / "in.txt", "-o", tmp_path / "out.npy")
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stderr.count("23 texts (") == 1  # one process speaks, of all texts
    assert run(tmp_path / "in.txt", "-o", tmp_path / "whole.npy", *options).exit_code == 0
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    if launcher == "torchrun":
        with (tmp_path / "in.txt").open("ab") as file:
            file.write(b"fine\n\xff\n")  # row 24, of shard 6
        result = launch(tmp_path / "in.txt", "-o", tmp_path / "bad.npy")
        assert (
            result.returncode != 0
            and "line 25: found 0xff at byte 1, expected UTF-8 (process 0 of 2)" in result.stderr
        )
        assert "run the same command again" in result.stderr and (tmp_path / "bad.npy.shards").exists()


def test_missing_shards_go_round():
    done = {0, 1, 4}
    shares = [share_of(done, Processes(rank, rank, 2)) for rank in (0, 1)]
    found = [[number for number in range(9) if share(number)] for share in shares]
    assert found == [[2, 5, 7], [3, 6, 8]]


@pytest.fixture
def interrupted(model, tmp_path):
    """The command of a run that ended at line 18, and its folder with shards 0 to 3."""
    texts = write_documents(tmp_path, 23)
    good = (tmp_path / "in.txt").read_bytes()
    source = tmp_path / "in.txt"
    source.write_bytes("\n".join(texts[:17]).encode() + b"\n\xff\n" + "\n".join(texts[18:]).encode() + b"\n")
    command = [source, "-o", tmp_path / "out.npy", "-m", model, "--device", "cpu", "--shard-size", 4, "--resume"]
    result = run(*command)
    assert result.exit_code == 1 and "line 18: found 0xff" in result.stderr
    folder = tmp_path / "out.npy.shards"
    assert sorted(path.name for path in folder.iterdir()) == [*(f"{i:08d}.npy" for i in range(4)), "manifest.json"]
    return command, folder, good


def test_changed_input_is_refused_and_overwrite_starts_again(interrupted, tmp_path):
    command, folder, good = interrupted
    command[0].write_bytes(good)
    result = run(*command)
    assert result.exit_code == 1 and "holds shards of another run: its input" in result.stderr
    assert "give --overwrite" in result.stderr and len(list(folder.glob("*.npy"))) == 4
    result = run(*command, "--overwrite")
    assert result.exit_code == 0 and "done before" not in result.stderr and not folder.exists()
    assert np.load(tmp_path / "out.npy").shape == (23, 8)


def test_one_process_goes_on(interrupted, model, tmp_path):
    command, folder, good = interrupted
    command[0].write_bytes(good)
    manifest = json.loads((folder / "manifest.json").read_text())  # as if the input had always been the good one
    manifest["input size"], manifest["input's last change"] = len(good), command[0].stat().st_mtime_ns
    (folder / "manifest.json").write_text(json.dumps(manifest))
    marked = np.load(folder / "00000002.npy")
    marked[0] = 7
    np.save(folder / "00000002.npy", marked)
    (folder / "00000001.npy").unlink()
    result = run(*command)
    assert result.exit_code == 0 and "11 texts (" in result.stderr and "12 were done before" in result.stderr
    whole = tmp_path / "whole.npy"
    assert run(command[0], "-o", whole, "-m", model, "--device", "cpu", "--shard-size", 4).exit_code == 0
    expected = np.load(whole)
    expected[8] = 7  # shard 2 was taken as it was found
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


def test_mistakes_with_shards(model, tmp_path):
    write_documents(tmp_path, 5)
    source, out = tmp_path / "in.txt", tmp_path / "out.npy"
    result = run("-", "-o", out, "-m", model, "--resume")
    assert result.exit_code == 1 and "stdin can be read once, by one process" in result.stderr
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        result = run(tmp_path / "pipe", "-o", out, "-m", model, "--resume")
        assert result.exit_code == 1 and "pipe can be read once" in result.stderr
    folder = tmp_path / "out.npy.shards"
    folder.mkdir()
    (folder / "mine").touch()
    for options in ([], ["--overwrite"]):
        result = run(source, "-o", out, "-m", model, "--resume", *options)
        assert result.exit_code == 1 and "is no folder of shards" in result.stderr and (folder / "mine").exists()


def test_of_two_runs_into_one_folder_the_second_is_refused(model, tmp_path):
    write_documents(tmp_path, 5)
    out = tmp_path / "out.npy"
    command = [tmp_path / "in.txt", "-o", out, "-m", model, "--device", "cpu", "--resume"]
    holder = (
        "import sys; from pathlib import Path; from modeling_tmde.cli.embed_shards import ShardFolder\n"
        "with ShardFolder(Path(sys.argv[1])).locked(): print('locked', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", holder, out], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "locked\n"
        result = run(*command)
        assert result.exit_code == 1 and not out.exists()
        assert f"another run is writing shards into {out}.shards; wait until it ends, or" in result.stderr
    finally:
        other.kill()  # and its lock goes with it
        other.communicate()
    assert run(*command).exit_code == 0 and np.load(out).shape == (5, 8)


def test_an_unfinished_file_of_the_same_process_id_is_written_over(tmp_path):
    """In a container, a process that was killed and the next one often have the same id."""
    out = tmp_path / "out.npy"
    out.with_name(f".out.npy.{os.getpid()}.tmp").write_bytes(b"longer than the new content")
    with replacing(out) as file:
        file.write(b"new")
    assert out.read_bytes() == b"new" and list(tmp_path.iterdir()) == [out]


def test_the_first_process_writes_the_graph_for_all(monkeypatch):
    """Two processes as threads, which exchange values through a barrier."""
    barrier, values, order = threading.Barrier(2), [None, None], []

    def exchange(processes, value):
        values[processes.rank] = value
        barrier.wait(60)
        found = list(values)
        barrier.wait(60)
        return found

    def load(job, device, bar):
        name = threading.current_thread().name
        order.append(f"{name} begins")
        time.sleep(0.05)
        order.append(f"{name} ends")
        return name

    monkeypatch.setattr(Processes, "_exchange", exchange)
    monkeypatch.setattr("modeling_tmde.cli.embed_shards.load_embedder", load)
    job = SimpleNamespace(device="cpu", loading={"backend": "onnx"})
    threads = [
        threading.Thread(target=_load, args=(job, Processes(rank, rank, 2), False), name=f"{rank}") for rank in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert order == ["0 begins", "0 ends", "1 begins", "1 ends"]


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01", None])
def test_damaged_shards_are_named(tmp_path, content):
    folder = ShardFolder(tmp_path / "out.npy")
    folder.start({}, overwrite=False)
    folder.write(0, np.zeros((2, 3), dtype=np.float32))
    assert folder.read(0, 2, 3).shape == (2, 3)
    if content is None:
        expected = r"00000000.npy: found \(2, 3\), expected \(4, 3\); delete it and run again"
    else:
        folder.file(0).write_bytes(content)
        expected = "00000000.npy is damaged .*; delete it and run again"
    with pytest.raises(EmbedError, match=expected):
        folder.read(0, 4 if content is None else 2, 3)
