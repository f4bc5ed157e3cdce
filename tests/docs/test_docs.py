"""The bash and python blocks of README.md and docs/*.md run as they stand there.

Commands, options and links that the pages name exist.

The blocks of a page run in order in one folder, each `tmde` command and Python block in a fork of
a process that has imported the package. Comments in the page steer them:

    <!-- files: my_corpus dev.jsonl -->   the page presupposes these; conftest.py makes them
    <!-- hub: user OWNER/NAME ... -->     a Hub of tests/hub_server.py knows the token of `user`,
                                          and holds stand-ins (hub_content.py) for repositories
    <!-- skip: next "needs four GPUs" --> the next block does not run
    <!-- append: max_steps=10 -->         words added to each `tmde train` of the next block

`<!-- skip: next if(missing("faiss"), reason="...") -->` skips where a package is not installed.
"""

import importlib.util
import os
import re
import subprocess
import sys
import unittest
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from sybil import Document, Example, Region, Sybil
from sybil.parsers.markdown import CodeBlockParser, SkipParser
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer

from tests.conftest import nightly_except
from tests.docs.conftest import make_file
from tests.docs.hub_content import add_repository
from tests.forking import ForkServer
from tests.hub_server import Account, HubServer
from tmde.cli.main import app
from tmde.embedding.packaged_models import DEFAULT_MODEL, PACKAGED_FOLDERS
from tmde.hub_cards.licenses import license_chain
from tmde.hub_cards.provenance import stated_license
from tmde.training.objectives import OBJECTIVES
from tmde.training.recipe import load_recipe, packaged_names

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKDOWN = [
    *PAGES,
    *sorted(ROOT.glob("benchmarks/*.md")),
    *sorted(ROOT.glob("examples/*.md")),
    ROOT / "embedding" / "default" / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CODE_OF_CONDUCT.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
]
# Runs are as short as they can be, and evaluations as small.
BASH = """
pip() { [ "$1" = install ]; }
tmde() {
    case "${1-} ${2-}" in
        train*|add-language*)
            set -- "$@" max_steps=3 max_rows=600 batch_tokens=2048 micro_batch_tokens=2048%s;;
        "eval "*=*) set -- "$@" --languages de,en --no-tfidf --no-figures;;
    esac
    command tmde "$@"
}
"""


def run_block(example: Example) -> None:
    """Runs a block of code in the folder of its page."""
    space = example.namespace
    block = example.parsed
    if "server" not in space:  # The page has a Hub of its own, see `use_hub`.
        server = ForkServer(space["environment"], space["folder"].parent / "bin")
        space["server"] = space["stack"].enter_context(server)
    executable = space["server"].executable
    # The README's script trains in full every night, see tests/examples/test_train_tmde.py.
    command = [executable, "-c", block.replace("max_steps=400", "max_steps=20")]
    if example.region.lexemes["arguments"] == "bash":
        command = ["bash", "-euo", "pipefail", "-c", BASH % space.pop("append", "") + block]
    done = subprocess.run(
        command,
        cwd=space["folder"],
        env=space["environment"]
        | {"PATH": f"{executable.parent}{os.pathsep}{space['environment']['PATH']}"},
        text=True,
        timeout=600,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, (
        f"{example.path}:{example.line}:\n{block}\n--- printed:\n{done.stdout[-4000:]}"
    )


def directive(
    name: str, evaluate: Callable[[Example], None]
) -> Callable[[Document], Iterator[Region]]:
    lexer = DirectiveInHTMLCommentLexer(name)

    def parse(document: Document) -> Iterator[Region]:
        for region in lexer(document):
            region.parsed = region.lexemes["arguments"].strip()
            region.evaluator = evaluate
            yield region

    return parse


def files(example: Example) -> None:
    for name in example.parsed.split():
        make_file(
            example.namespace["folder"] / name, name.rstrip("/"), example.namespace["trained"]
        )


def is_missing(module: str) -> bool:
    """Whether a page that skips a block without an optional package has to skip it here."""
    try:
        return importlib.util.find_spec(module) is None
    except ModuleNotFoundError:  # The package around the module is missing.
        return True


def use_hub(example: Example) -> None:
    space = example.namespace
    user, *repositories = example.parsed.split()
    space["hub"].accounts = {"hf_docs": Account(user)}
    for repository in repositories:
        add_repository(space["hub"], repository)
    ours = space["hub"].environment(space["folder"].parent / "home", "hf_docs")
    space["environment"] |= {name: value for name, value in ours.items() if name.startswith("HF_")}
    space["environment"]["HF_HUB_OFFLINE"] = "0"
    space.pop("server", None)  # the variables of the Hub are read on import


PARSERS = [CodeBlockParser(language, run_block) for language in ("bash", "python")]
PARSERS += [
    SkipParser(),
    directive("append", lambda example: example.namespace.update(append=example.parsed)),
    directive("files", files),
    directive("hub", use_hub),
]


# The pages whose blocks run for every change; those of the others run every night.
DAILY_PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "get-started.md",
    ROOT / "docs" / "guides" / "train.md",
]

# Every block that does not run, by page, with the reason that the page gives. A new one needs a
# reason that no stand-in (hub_content.py, conftest.py) can remove.
SKIPS = {
    "README.md": [
        "clones the repository",
        "CI runs it by itself",
        "CI runs it by itself",
    ],
    "docs/guides/adapt.md": [
        "takes minutes; tests/cli/test_add_language.py adds a language to `default`",
        "needs a script of transformers",
        "needs treebanks; tests/examples/test_scripts.py runs it on a small one",
    ],
    "docs/guides/evaluate.md": [
        "needs features of images; tests/eval/test_captions.py plants some",
        "downloads datasets from the Hub; tests/eval/test_mteb_adapter.py runs a task without",
    ],
    "docs/guides/integrations.md": [
        "needs a PostgreSQL server with pgvector; tests/integrations/test_vector_stores.py checks "
        "the vectors on their way",
        "needs Docker and the image; the files are checked in "
        "tests/embedding/test_serving_files.py",
    ],
    "docs/guides/scale-out.md": [
        "needs four GPUs; tests/training/test_distributed.py trains on two processes, with DDP "
        "and FSDP",
        "needs two machines with four GPUs each",
    ],
    "docs/guides/search.md": [
        "serves a page until Ctrl-C; tests/cli/test_demo_page.py opens it in a browser",
    ],
    "docs/hub-data.md": ["needs the Hub and MLDoc"],
    "docs/index.md": ["is the script of README.md, which runs there"],
    "docs/guides/train.md": ["needs the network"],
    "docs/guides/train-t-mde.md": [
        "streams Europarl and needs GPUs",
        "needs four GPUs; tests/training/test_distributed.py trains on two processes",
    ],
}
# The packages without which a block is skipped, by page. CI installs all but fastembed every night.
OPTIONAL_PACKAGES = {
    "docs/guides/integrations.md": [
        "model2vec",
        "langchain_huggingface",
        "llama_index.embeddings.huggingface",
        "haystack_integrations.components.embedders.sentence_transformers",
        "qdrant_client",
        "fastembed",
    ],
    "docs/guides/scale-out.md": ["ray", "ray"],
}


def by_page(pattern: str) -> dict[str, list[str]]:
    """Return what a pattern captures in each page, by the path of the page."""
    matches = {}
    for path in PAGES:
        captured = re.findall(pattern, path.read_text("utf-8"))
        if captured:
            matches[path.relative_to(ROOT).as_posix()] = captured
    return matches


def test_only_blocks_of_this_list_are_skipped():
    assert by_page(r'<!-- skip: next "(.*)" -->') == SKIPS
    packages = by_page(r'<!-- skip: next if\(missing\("(.*?)"\), reason=".+"\) -->')
    assert packages == OPTIONAL_PACKAGES
    directives = sum(len(found) for found in by_page("<!-- skip").values())
    assert directives == sum(map(len, [*SKIPS.values(), *OPTIONAL_PACKAGES.values()]))


def test_four_of_five_blocks_run():
    blocks = sum(len(found) for found in by_page(r"(?m)^```(?:bash|python)$").values())
    skipped = sum(map(len, SKIPS.values()))
    assert skipped * 5 < blocks, f"{skipped} of {blocks} blocks never run"


@pytest.fixture(scope="session")
def offline_server(tmp_path_factory):
    """The process that runs the blocks of all pages that need no Hub."""
    folder = tmp_path_factory.mktemp("offline")
    environment = {**os.environ, "HF_HOME": str(folder / "huggingface"), "HF_HUB_OFFLINE": "1"}
    with ForkServer(environment, folder / "bin") as server:
        yield server


@pytest.mark.parametrize(
    "path", nightly_except(DAILY_PAGES, PAGES), ids=[path.name for path in PAGES]
)
def test_blocks_run(path, tmp_path, trained, offline_server):
    document = Sybil(parsers=PARSERS).parse(path)
    folder = tmp_path / "work"
    folder.mkdir()
    environment = {**offline_server.environment, "COLUMNS": "120"}
    environment["TMDE_CACHE"] = str(tmp_path / "cache")
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    with HubServer() as hub, ExitStack() as stack:
        space = {
            "folder": folder,
            "environment": environment,
            "server": offline_server,
            "trained": trained,
            "hub": hub,
            "stack": stack,
            "missing": is_missing,
        }
        document.namespace.update(space)
        for example in document.examples():
            try:
                example.evaluate()
            except unittest.SkipTest as reason:
                print(f"{path.name}:{example.line}: skipped, {reason}")


# ---- References


def commands_in(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Commands of `tmde` in code blocks and inline code, with their places."""
    text = path.read_text("utf-8").replace("\\\n", " ").replace("\\|", "|")
    for found in re.finditer(
        r"(?:^|`|\| |-m modeling_tmde\.cli\.main )\$? ?tmde ([^`\n|;&#>]*)", text, re.MULTILINE
    ):
        yield f"{path.name}:{text.count(chr(10), 0, found.start()) + 1}", found[1].split()


COMMANDS = [command for path in MARKDOWN for command in commands_in(path)]


def leaf_of(words: list[str]) -> typer.core.TyperCommand:
    command = typer.main.get_command(app)
    for word in words:
        if not hasattr(command, "commands"):
            break
        if word not in command.commands:  # `tmde eval MODEL` is `tmde eval run MODEL`
            return command.commands.get("run", command)
        command = command.commands[word]
    return command


def settings_in(words):
    """Return the words `key=value` without brackets; that of `--columns` is none of them."""
    settings = []
    for earlier, word in pairwise(["", *words]):
        if earlier != "--columns" and re.match(r"[a-z_.]+=[^\[{\"']+$", word):
            settings.append(word)
    return settings


def test_commands_options_and_recipes_exist():
    assert len(COMMANDS) > 40
    for place, words in COMMANDS:
        leaf = leaf_of(words)
        options = {name for item in leaf.params for name in (*item.opts, *item.secondary_opts)} | {
            "--help"
        }
        given = {word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)}
        assert not given - options, f"{place}: tmde {' '.join(words)} has no {given - options}"
        if words[:1] == ["train"] and words[1:] and re.fullmatch(r"[a-z][a-z_-]*", words[1]):
            assert words[1] in packaged_names(), place
            load_recipe(words[1], settings_in(words[2:]))


def anchors_of(path: Path) -> set[str]:
    """Anchors that GitHub gives the headings, and those of elements with an id."""
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.+?)\s*#*$", text, re.MULTILINE)
    anchors = set(re.findall(r'<span id="([\w-]+)">', text))
    for heading in headings:
        anchors.add(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"))
    return anchors


def test_links_lead_somewhere():
    for path in MARKDOWN:
        check_links(path)


def check_links(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{path.name}: {target}: there is no such file"
        assert not anchor or file.suffix != ".md" or anchor in anchors_of(file), (
            f"{path.name}: {target}"
        )


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md"])
def test_tests_that_a_page_names_exist(name):
    paths = re.findall(r"`(tests/[^`\s]+)", (ROOT / name).read_text("utf-8"))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_pushes_of_runs_state_no_license_that_the_packaged_model_forbids():
    """A run of the guide begins with it by default."""
    license = stated_license(PACKAGED_FOLDERS[DEFAULT_MODEL])
    (start,) = license_chain([{"name": "default", "license": license}], [])
    texts = [path.read_text("utf-8") for path in [*PAGES, ROOT / "cli" / "push.py"]]
    refused = []
    for line in "\n".join(texts).splitlines():
        match = re.search(r"tmde push runs/.* --license (\S+)", line)
        if match and "--license-override" not in line and not start.allows(match[1]):
            refused.append(line)
    assert refused == []


def test_the_start_page_trains_by_the_script_of_the_readme():
    scripts = []
    for path in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        blocks = re.findall(
            r"^```python\n(.*?)^```", path.read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
        scripts.append([block for block in blocks if "trainer.train()" in block])
    assert scripts[0] == scripts[1]
    assert len(scripts[0]) == 1


def test_every_objective_has_a_name_on_model_cards():
    template = (ROOT / "hub_cards" / "model_card.md.jinja").read_text("utf-8")
    for name in OBJECTIVES:
        assert f'"{name}": (' in template
