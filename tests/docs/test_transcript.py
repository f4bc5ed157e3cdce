"""The check that docs/share.md prints what docs/hub_walkthrough.sh prints."""

import pytest

from tests.docs import transcript

MADE = "== step\n$ tmde push x\nPushed 17 files (5.2 MB): it\n> 1. en, cosine 0.93: a hit\n"


def page_of(text: str) -> str:
    return f"# Share\n{transcript.BEGIN}\n```text\n{text}```\n\n```bash\nls\n```\n"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    def check(printed: str, *options: str) -> tuple[int, str]:
        (tmp_path / "page.md").write_text(printed)
        (tmp_path / "made.txt").write_text(MADE)
        words = ["transcript.py", str(tmp_path / "made.txt"), str(tmp_path / "page.md"), *options]
        monkeypatch.setattr("sys.argv", words)
        return transcript.main(), capsys.readouterr().err

    return check


def test_numbers_and_hits_may_differ(run):
    printed = MADE.replace("17", "9").replace("5.2 MB", "10,001.25 MB").replace("a hit", "another")
    assert run(page_of(printed)) == (0, "")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [("push x", "push y", "-$ tmde push y"), ("== step\n", "", "+== step"), ("Pushed", "Sent", "-Sent N files")],
)
def test_other_words_are_told(run, old, new, told):
    code, error = run(page_of(MADE.replace(old, new)))
    assert code == 1 and told in error and "--write" in error


def test_page_without_transcript_is_told(run):
    code, error = run("# Share\n```text\nno\n```\n")
    assert code == 1 and "found 0 blocks" in error


def test_transcript_is_written(run, tmp_path):
    assert run(page_of("old\n"), "--write")[0] == 0
    assert (tmp_path / "page.md").read_text() == page_of(MADE)
