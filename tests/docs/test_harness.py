"""The harness that runs the documentation fails where a reader would."""

import textwrap

import pytest

from tests.docs.fixtures import make_files
from tests.docs.page_run import BlockFailed, PageRun
from tests.docs.pages import PageError, read_page, shell_commands


@pytest.fixture
def page_of(tmp_path):
    def make(text: str):
        path = tmp_path / "page.md"
        path.write_text(textwrap.dedent(text))
        return read_page(path)

    return make


@pytest.fixture
def run_of(page_of, tmp_path):
    def make(text: str, **environment: str) -> PageRun:
        folder = tmp_path / "work"
        folder.mkdir()
        return PageRun(page_of(text), folder, environment)

    return make


def test_blocks_run_in_order_and_see_each_others_files(run_of):
    run = run_of(
        """
        # Page
        ```bash
        echo one > file.txt
        ```
        Text.
        ```python
        with open("file.txt", "a") as file:
            file.write("two\\n")
        ```
        ```json
        {"no": "code"}
        ```
          ```bash
          cat file.txt
          ```
        """
    )
    assert [block.line for block in run.page.blocks] == [4, 8, 15]
    assert run.run(run.page.blocks[2]) == "one\ntwo\n"  # the blocks before it ran too, once
    assert run.run(run.page.blocks[1]) == ""
    assert (run.folder / "file.txt").read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("```bash\necho fine\ncat missing.txt\necho never\n```", "page.md:4: ended with status 1"),
        ("```bash\ncat missing.txt | head -1\n```", "page.md:3: ended with status 1"),
        ("```bash\necho $UNKNOWN_NAME\n```", "line 3: UNKNOWN_NAME"),
        ("```bash\npip uninstall tmde\n```", "page.md:3: ended with status 1"),
        ("```python\nx = 1\nassert x == 2\n```", 'File "page.md", line 4'),
    ],
)
def test_failing_command_fails_with_page_and_line(run_of, code, place):
    run = run_of("\n" + code + "\n\n```bash\necho after\n```\n")
    with pytest.raises(BlockFailed) as failure:
        run.run(run.page.blocks[0])
    assert place in str(failure.value) and str(failure.value).startswith("page.md:3: status ")
    with pytest.raises(BlockFailed, match="not run, because page.md:3 failed"):
        run.run(run.page.blocks[1])


def test_commands_are_real_and_appended_words_reach_only_trainings(run_of):
    run = run_of(
        """
        <!-- test: append max_steps=10 'a b' -->
        ```bash
        pip install tmde && tmde train small \\
            -o runs/mine
        tmde embed x.txt
        ```
        """
    )
    (run.folder.parent / "bin").mkdir()
    program = run.folder.parent / "bin" / "tmde"
    program.write_text('#!/usr/bin/env bash\nprintf "<%s>" "$@"; echo\n')
    program.chmod(0o755)
    run.environment["PATH"] = f"{program.parent}:{run.environment['PATH']}"
    printed = run.run(run.page.blocks[0])
    assert printed == "<train><small><-o><runs/mine><max_steps=10><a b>\n<embed><x.txt>\n"


def test_skipped_block_does_not_run(run_of):
    run = run_of(
        """
        <!-- test: skip needs four GPUs -->
        <!-- command: other tools' comments may stand between -->
        ```bash
        nvidia-smi && cat missing.txt
        ```
        ```bash
        echo after
        ```
        """
    )
    assert run.page.blocks[0].skip == "needs four GPUs"
    assert run.run(run.page.blocks[1]) == "after\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- test: skip -->\n```bash\nls\n```", "page.md:1: `test: skip` needs a reason"),
        ("<!-- test: append -->\n```bash\nls\n```", "page.md:1: `test: append` needs words"),
        ("<!-- test: append x=1 -->\n```bash\nls\n```", "page.md:3: `test: append` without a `tmde train`"),
        ("<!-- test: ignore it -->", "page.md:1: found `test: ignore it`, expected `skip"),
        ("<!-- test: skip why -->\nText.", "page.md:2: expected a block of code after"),
        ("<!-- test: skip why -->\n```json\n{}\n```", "page.md:2: a test comment stands before"),
        ("<!-- test: skip why -->", "no block follows"),
        ("```bash\nls", "page.md:1: the block never ends"),
        ("```bash\nls\nsudo rm -rf x\n```", "page.md:3: found the command 'sudo'"),
        ("```bash\nls && x=1 ruff check\n```", "page.md:2: found the command 'ruff'"),
        ("```bash\necho 'open\n```", "page.md:2: a quote or a backslash"),
    ],
)
def test_pages_that_cannot_be_run_are_refused(page_of, text, message):
    with pytest.raises(PageError) as error:
        page_of(text)
    assert message in str(error.value)


def test_commands_of_a_block(page_of):
    (block,) = page_of(
        "```bash\nHF_TOKEN=x tmde push a \\\n  b  # why\n# nothing\ncat x | tmde embed - 'a;b &\nc' && ls\n"
        "cat > x <<'END'\nno: command\nEND\n```"
    ).blocks
    assert list(shell_commands(block)) == [
        (2, ["tmde", "push", "a", "b"]),
        (5, ["cat", "x"]),
        (5, ["tmde", "embed", "-", "a;b &\nc"]),
        (5, ["ls"]),
        (7, ["cat", ">", "x", "<<", "END"]),
    ]


def test_fixtures_are_made_by_name(tmp_path):
    make_files(tmp_path, ["dev.jsonl", "news.jsonl", "my_corpus", "de.txt", "my_data"], trained=None)
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == 5
    with pytest.raises(ValueError, match="no fixture 'other.jsonl'"):
        make_files(tmp_path, ["other.jsonl"], trained=None)
