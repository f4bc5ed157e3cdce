"""Every command of README.md and docs/*.md runs, as it stands there. How comments in a page steer that: pages.py."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tests.docs.fixtures import MAKERS, MODELS, make_files
from tests.docs.page_run import PageRun
from tests.docs.pages import Block, PageError, documentation_pages, read_page
from tests.hub_server import HubServer
from tests.hub_store import Account

PAGES = documentation_pages()
# Of the models that pages presuppose: enough to answer, in a few seconds.
TRAINING = {
    "quickstart": ["max_steps=120", "eval_steps=120", "max_rows=6000", "eval_pool=50"],
    "bag": ["max_steps=60", "eval_steps=60", "max_rows=6000", "model.d_model=64", "tokenizer.vocab_size=3000"],
}


def blocks_of(path: Path) -> list[Block]:
    try:
        return read_page(path).blocks
    except PageError:  # a test below tells it; the other pages can run
        return []


BLOCKS = [(path, block) for path in PAGES for block in blocks_of(path)]


@pytest.mark.parametrize("path", PAGES, ids=[path.name for path in PAGES])
def test_page_can_be_run(path):
    page = read_page(path)
    assert not {name.rstrip("/") for name in page.files} - {*MAKERS, *MODELS}


@pytest.fixture(scope="session")
def run_of_page(tmp_path_factory):
    """Gives the run of a page by its path; its folder gets what the page presupposes when it is first asked for."""
    base, servers = tmp_path_factory.mktemp("docs"), ExitStack()
    environment = {"HF_HOME": str(base / "huggingface"), "TMDE_CACHE": str(base / "cache")}

    @cache
    def trained(recipe: str) -> Path:
        folder = base / "models" / recipe
        program = [sys.executable, "-m", "modeling_tmde.cli.main", "train", recipe, *TRAINING[recipe]]
        command = [*program, "--train", "sample", "--dev", "sample", "-o", str(folder)]
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | environment,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout
        return folder

    @cache
    def run_of(path: Path) -> PageRun:
        page, folder = read_page(path), base / path.stem
        folder.mkdir()
        make_files(folder, page.files, trained)
        if page.hub is None:
            return PageRun(page, folder, environment)
        hub = servers.enter_context(HubServer(base / f"{path.stem}-hub", {"hf_docs": Account(page.hub)}))
        ours = hub.environment(base / f"{path.stem}-home", "hf_docs") | {"HF_HUB_OFFLINE": "0"}
        return PageRun(page, folder, environment | ours)

    with servers:
        yield run_of


@pytest.mark.slow
@pytest.mark.parametrize(("path", "block"), BLOCKS, ids=[block.place for _, block in BLOCKS])
def test_block_runs(path, block, run_of_page):
    if block.skip is not None:
        pytest.skip(block.skip)
    print(run_of_page(path).run(block))  # shown by pytest -rA
