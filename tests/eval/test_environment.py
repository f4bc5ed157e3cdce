"""The code and the versions on which cached results depend."""

from importlib import metadata
from pathlib import Path

from tmde.eval import environment, runner
from tmde.eval.environment import CODE_OF_RESULTS, CODE_OF_VECTORS, code_digest, folder_digest


def test_the_digest_depends_on_every_file_and_its_name(tmp_path: Path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "one.py").write_text("a = 1")
    (tmp_path / "inner" / "two.py").write_text("b = 2")
    digests = [folder_digest(tmp_path)]
    (tmp_path / "note.txt").write_text("no code")
    assert folder_digest(tmp_path) == digests[0]
    (tmp_path / "inner" / "two.py").write_text("b = 3")
    digests.append(folder_digest(tmp_path))
    (tmp_path / "inner" / "two.py").rename(tmp_path / "inner" / "three.py")
    digests.append(folder_digest(tmp_path))
    (tmp_path / "four.py").touch()
    digests.append(folder_digest(tmp_path))
    assert len(set(digests)) == 4


def test_vectors_depend_on_the_package_of_the_embedder_alone():
    assert code_digest(CODE_OF_VECTORS) != code_digest(CODE_OF_RESULTS)
    assert code_digest(CODE_OF_VECTORS) != code_digest(CODE_OF_VECTORS[:1])


def test_another_version_of_the_sentence_splitter_makes_other_results(monkeypatch):
    before = runner._code_fingerprint()
    real_version = metadata.Distribution.version.fget

    def changed_version(distribution: metadata.Distribution) -> str:
        return "0.0.1" if distribution.name == "sentencex" else real_version(distribution)

    monkeypatch.setattr(metadata.Distribution, "version", property(changed_version))
    assert runner._code_fingerprint() != before


def test_other_code_makes_other_results(monkeypatch):
    before = runner._code_fingerprint()
    monkeypatch.setattr(environment, "folder_digest", lambda folder: str(folder).encode())
    code_digest.cache_clear()
    after = runner._code_fingerprint()
    code_digest.cache_clear()
    assert after != before
