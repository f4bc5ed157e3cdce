"""Across tasks: default languages that a caller sets, and what is claimed of where data come from."""

import datasets
import pytest

from modeling_tmde.eval.tasks import TASKS

TEXT = {"text": "a", "title": "a", "doc_id": "a", "label": "CCAT", "index_id": 0, "category": "x"}
PAIR = {"premise": "a", "hypothesis": "b", "label": 0}
SPLITS = ("train", "validation", "test")


def text_configs(names, row):
    return {name: {split: [row | {"language": name}] for split in SPLITS} for name in names}


def pair_configs(*pairs):
    """Return three sentences in pairs of languages, with the same English ones in each pair, as Europarl has them."""

    def rows(pair):
        return [{"translation": {code: f"{code} {number}" for code in pair}} for number in range(3)]

    return {"-".join(pair): {"train": rows(pair)} for pair in pairs}


def tatoeba_configs(*codes):
    return {f"{code}-eng": {"test": [{"sentence1": f"{code} a", "sentence2": f"{code} b"}]} for code in codes}


# Of each task: data in de, en, pl and ast, of which pl and ast are not among its default languages; options of load.
CASES = {
    "sib200": (text_configs(("deu_Latn", "eng_Latn", "pol_Latn", "ast_Latn"), TEXT), {}),
    "xnli": (text_configs(("de", "en", "pl", "ast"), PAIR), {}),
    "mldoc": (text_configs(("de", "en", "pl", "ast"), TEXT), {}),
    "topic_documents": (text_configs(("de", "en", "pl", "ast"), TEXT), {}),
    "document_retrieval": (text_configs(("de", "en", "pl", "ast"), TEXT), {}),
    "tatoeba": (tatoeba_configs("deu", "pol", "ast"), {}),
    "europarl_matrix": (pair_configs(("de", "en"), ("en", "pl"), ("en", "ast")), {"rows": 3}),
    "xsr": (pair_configs(("de", "en"), ("en", "pl"), ("en", "ast")), {"queries": 2, "candidates": 3}),
}


@pytest.fixture
def local_hub(monkeypatch):
    """`local_hub(id, folder)`: requests for a dataset of the Hub are answered from a folder."""

    def answer(hub_id, folder):
        for name in ("load_dataset", "get_dataset_config_names", "get_dataset_split_names"):
            original = getattr(datasets, name)

            def replaced(path, *args, original=original, **options):
                return original(folder if path == hub_id else path, *args, **options)

            monkeypatch.setattr(datasets, name, replaced)

    return answer


STS_CONFIGS = {"en-de": {"test": [{"sentence1": "a", "sentence2": "b", "score": 1.0}]}}
GENERIC = CASES | {"sts": (STS_CONFIGS, {}), "sentence_retrieval": (CASES["xsr"][0], {})}
FIXED = {"sib200", "xnli", "mldoc"}
SPLIT = {"europarl_matrix": "train", "xsr": "train", "sentence_retrieval": "train"}


@pytest.mark.parametrize("name", GENERIC)
def test_provenance(name, dataset_folder, local_hub):
    configs, options = GENERIC[name]
    folder, task = dataset_folder(configs, name=name), TASKS[name]()
    copy = task.load(folder, **options).provenance
    assert (copy.source, copy.hub_id, copy.split) == (folder, None, SPLIT.get(name, "test"))
    local_hub("someone/else", folder)
    other = task.load("someone/else", **options).provenance
    assert (other.source, other.hub_id, other.split) == ("someone/else", "someone/else", SPLIT.get(name, "test"))
    for provenance in (copy, other):
        assert (provenance.citation == provenance.licence == "as given by the source") == (name not in FIXED)
        assert (provenance.url is None) == (name not in FIXED)
    if task.default_source is not None:
        local_hub(task.default_source, folder)
        default = task.load(**options).provenance
        assert default.hub_id == default.source == task.default_source
        assert default.url and "as given" not in default.citation + default.licence


def test_provenance_of_files(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"de": "a", "en": "b"}\n')
    pairs = tmp_path / "en-de.tsv"
    pairs.write_text("sentence1\tsentence2\tscore\na\tb\t1\n")
    laser = tmp_path / "laser"
    laser.mkdir()
    for code in ("deu", "eng"):
        (laser / f"tatoeba.deu-eng.{code}").write_text("a\n")
    sources = {"sentence_retrieval": rows, "europarl_matrix": rows, "xsr": rows, "sts": pairs, "tatoeba": laser}
    for name, source in sources.items():
        options = {"europarl_matrix": {"rows": 1}, "xsr": {"queries": 1, "candidates": 1}}.get(name, {})
        provenance = TASKS[name]().load(source, **options).provenance
        assert (provenance.citation, provenance.licence) == ("as given by the source",) * 2
        assert (provenance.hub_id, provenance.url, provenance.split) == (None, None, None)
        assert provenance.source == str(source)
