"""What a decoder predicts: translations, the text itself, the next row, or a column of the row."""

import json
import math
import random
from pathlib import Path

import datasets
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.conftest import LANGUAGES, make_dataset, make_rows, tiny_model
from tests.training.batches import parallel_batches
from tests.training.logs import assert_equal_weights, read_log
from tests.training.models import laser, ntdv
from tests.training.trainers import interrupt
from tmde.data import CorpusReport, load_parallel
from tmde.training.objectives import InfoNCE, TranslationObjective
from tmde.training.objectives.targets import Direction, decoder_directions
from tmde.training.parallel_model import ParallelModel
from tmde.training.recipe import load_recipe
from tmde.training.run import train_recipe

TINY = [
    "model.d_model=16",
    "model.embedding_dim=12",
    "model.decoder_hidden_size=16",
    "tokenizer.vocab_size=300",
    "data.dev_rows=20",
    "micro_batch_tokens=200",
    "eval_steps=4",
    "dataloader_num_workers=0",
    "bf16=false",
    "disable_tqdm=true",
]
MODELS = {
    "first": tiny_model,
    "full": lambda: tiny_model(bottleneck="full"),
    "laser": laser,
    "ntdv": lambda: ntdv(pivot_languages=["de", "en", "es"]),
}
TARGETS = ["pivots", "self", "next", "tree", ["pivots", "self"], ["self", "next", "tree"]]


def parsed_rows(num_rows: int, languages: tuple[str, ...] = LANGUAGES) -> list[dict]:
    """Return rows that end in their number, each with a `tree` of another length than its texts."""
    rows = make_rows(num_rows, seed=3, languages=languages)
    for number, row in enumerate(rows):
        for language in languages:
            row[language] += f" {number}"
        row["tree"] = " ".join(["tree"] * (number % 4)) + f" night {number}"
    return rows


def as_documents(rows: list[dict], length: int) -> datasets.Dataset:
    """Return rows of which every `length` are a document."""
    names = [f"d{number // length}" for number in range(len(rows))]
    return make_dataset(rows).add_column("doc_id", names, feature=datasets.Value("string"))


def number_of(text: str) -> int:
    return int(text.split()[-1])


def assert_are_texts(token_ids: torch.Tensor, lengths, texts: list[str], tokenizer) -> None:
    """Check texts token by token: `<s> tokens </s>`, then padding, no longer than needed."""
    expected = [tokenizer.encode(text) for text in texts]
    assert lengths.tolist() == [len(ids) for ids in expected]
    for ids, expected_ids in zip(token_ids.tolist(), expected, strict=True):
        padding = [tokenizer.pad_token_id] * (len(ids) - len(expected_ids))
        assert ids == expected_ids + padding


def row_numbers_of(batch, tokenizer) -> list[int]:
    texts = tokenizer.batch_decode(batch.input_ids[0].tolist(), skip_special_tokens=True)
    return [number_of(text) for text in texts]


# ---- Directions


PIVOT_DIRECTIONS = [Direction(1, None, 0, 0), Direction(0, None, 1, 1)]


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (["pivots"], PIVOT_DIRECTIONS),
        (["self"], [Direction(0, None, 0, 0), Direction(1, None, 1, 1)]),
        (["next"], [Direction(0, "next", 0, 0), Direction(1, "next", 1, 1)]),
        (["tree"], [Direction(0, "tree", 0, 0), Direction(1, "tree", 0, 1)]),
        # The curriculum of Li (2021), footnote 11.
        (
            ["pivots", "self"],
            [*PIVOT_DIRECTIONS, Direction(0, None, 0, 0), Direction(1, None, 1, 1)],
        ),
    ],
    ids=str,
)
def test_directions(targets, expected):
    assert decoder_directions(targets, ["en", "es"], ["en", "es"]) == expected


def test_the_text_itself_needs_no_pivot():
    directions = decoder_directions(["self"], ["de"], ["en"])
    assert directions == [Direction(source=0, target=None, text=0, language=0)]


# ---- Batches


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_next_row_of_the_document(tokenizer, streaming, shuffle):
    rows = parsed_rows(30)
    # A stream knows no documents: every row is followed by the next one of its chunk.
    last_rows = {14, 29} if streaming else {4, 9, 14, 19, 24, 29}
    source = as_documents(rows, 5)
    if streaming:
        source = source.to_iterable_dataset()
    batches = parallel_batches(
        source,
        tokenizer,
        list(LANGUAGES),
        ["en"],
        targets=["next"],
        buffer_rows=15,
        micro_batch_tokens=100,
        shuffle=shuffle,
    )

    seen = []
    counts = {}
    for batch in batches:
        numbers = row_numbers_of(batch, tokenizer)
        seen += numbers
        counts[batch.position.chunk] = batch.counts
        targets = batch.targets["next"]
        assert len(targets.input_ids) == len(batch.languages) == 2
        for place, language in enumerate(batch.languages):
            expected = [rows[number + 1][language] for number in numbers]
            ids = targets.input_ids[place]
            assert_are_texts(ids, targets.lengths[place], expected, tokenizer)
        assert batch.sizes.directions == 2
        assert batch.sizes.target_tokens == (targets.lengths - 1).sum()

    assert sorted(seen) == sorted(set(range(30)) - last_rows)
    assert sum(count["rows"] for count in counts.values()) == 30
    assert sum(count["rows_without_next"] for count in counts.values()) == len(last_rows)


def test_a_next_row_has_the_languages_of_the_row(tokenizer):
    rows = parsed_rows(4, ("de", "en"))
    rows[2]["de"] = None
    (batch,) = parallel_batches(
        as_documents(rows, 4), tokenizer, ["de", "en"], ["en"], targets=["next"], fewest_languages=2
    )
    # Row 1 has no German next row, row 2 is no pair, and row 3 is the last one.
    assert row_numbers_of(batch, tokenizer) == [0]
    assert batch.counts["rows_without_next"] == 2
    assert batch.counts["rows_without_pair"] == 1


def test_joined_rows_predict_the_row_behind_them(spaced_tokenizer):
    rows = parsed_rows(12, ("de", "en"))
    batches = parallel_batches(
        as_documents(rows, 12),
        spaced_tokenizer,
        ["de", "en"],
        ["en"],
        targets=["next", "tree"],
        max_joined_rows=3,
    )
    read = 0
    for batch in batches:
        texts = spaced_tokenizer.batch_decode(batch.input_ids[0].tolist(), skip_special_tokens=True)
        for place, text in enumerate(texts):
            numbers = [int(word) for word in text.split() if word.isdigit()]
            read += len(numbers)
            next_ids = batch.targets["next"].input_ids[0, place].tolist()
            next_text = spaced_tokenizer.decode(next_ids, skip_special_tokens=True)
            assert next_text == rows[numbers[-1] + 1]["de"]
            tree_ids = batch.targets["tree"].input_ids[0, place].tolist()
            tree = spaced_tokenizer.decode(tree_ids, skip_special_tokens=True)
            assert tree.split() == " ".join(rows[number]["tree"] for number in numbers).split()
    assert read > 12  # Some rows were joined.


@pytest.mark.parametrize("streaming", [False, True])
def test_a_column_of_the_row(tokenizer, streaming):
    rows = parsed_rows(20)
    for number in (3, 7):
        rows[number]["tree"] = None
    source = make_dataset(rows)
    if streaming:
        source = source.to_iterable_dataset()
    options = {"targets": ["tree"], "micro_batch_tokens": 100, "fewest_languages": 1}
    batches = list(parallel_batches(source, tokenizer, list(LANGUAGES), ["en"], **options))

    seen = []
    for batch in batches:
        numbers = row_numbers_of(batch, tokenizer)
        seen += numbers
        targets = batch.targets["tree"]
        assert len(targets.input_ids) == 1
        expected = [rows[number]["tree"] for number in numbers]
        assert_are_texts(targets.input_ids[0], targets.lengths[0], expected, tokenizer)
        # The encoder never reads the column.
        assert "tree" not in batch.languages
        assert batch.sizes.target_tokens == 2 * (targets.lengths - 1).sum()
    assert sorted(seen) == sorted(set(range(20)) - {3, 7})
    assert batches[0].counts["rows_without_column"] == 2


def test_long_targets_are_truncated_and_fill_the_budget(tokenizer):
    rows = [{"en": f"house {number}", "tree": "tree " * 50 + "night"} for number in range(6)]
    (length,) = {len(tokenizer.encode(row["tree"])) for row in rows}
    assert length > 20
    options = {"targets": ["tree"], "max_length": 20, "micro_batch_tokens": 40}
    batches = parallel_batches(
        make_dataset(rows), tokenizer, ["en"], ["en"], fewest_languages=1, **options
    )
    for batch in batches:
        assert batch.targets["tree"].input_ids.shape == (1, 2, 20)
        assert batch.counts["truncated_texts"] == 6


def test_rows_of_one_language_are_used_where_nothing_needs_two(tokenizer):
    rows = [{"de": f"haus {number}", "en": None} for number in range(5)]
    rows += [{"de": f"hund {number}", "en": f"dog {number}"} for number in range(5, 9)]
    batches = parallel_batches(
        make_dataset(rows),
        tokenizer,
        ["de", "en"],
        [],
        targets=["self"],
        fewest_languages=1,
        pivots_only=False,
    )
    numbers = {}
    for batch in batches:
        numbers[batch.languages] = sorted(row_numbers_of(batch, tokenizer))
    assert numbers == {("de",): [0, 1, 2, 3, 4], ("de", "en"): [5, 6, 7, 8]}


def test_a_batch_takes_its_targets_to_the_device(tokenizer):
    (batch,) = parallel_batches(
        as_documents(parsed_rows(4), 4), tokenizer, ["de", "en"], ["en"], targets=["next", "tree"]
    )
    moved = batch.to(torch.device("meta"))
    assert {texts.input_ids.device.type for texts in moved.targets.values()} == {"meta"}
    assert moved.targets.keys() == {"next", "tree"}


@pytest.mark.parametrize("streaming", [False, True])
def test_a_run_resumes_at_any_batch(tokenizer, streaming):
    source = as_documents(parsed_rows(40), 7)
    if streaming:
        source = source.to_iterable_dataset(num_shards=2)
    options = {"targets": ["next", "tree"], "epochs": 2, "buffer_rows": 16}

    def contents(**start) -> list:
        batches = parallel_batches(
            source, tokenizer, list(LANGUAGES), ["en"], micro_batch_tokens=80, **options, **start
        )
        contents = []
        for batch in batches:
            targets = {name: texts.input_ids.tolist() for name, texts in batch.targets.items()}
            contents.append((batch.next_position, batch.input_ids.tolist(), targets))
        return contents

    whole = contents()
    assert len(whole) > 10
    for index, (position, *_) in enumerate(whole):
        assert contents(start=position) == whole[index + 1 :]


# ---- Losses


def predicted_texts(
    target: str, rows: list[dict], number: int, source: str, pivots: list[str]
) -> list[tuple[str, str]]:
    """Return the language and the text of all that a text must predict."""
    row = rows[number]
    if target == "pivots":
        return [(language, row[language]) for language in pivots if language != source]
    if target == "self":
        return [(source, row[source])]
    if target == "next":
        return [(source, rows[number + 1][source])]
    return [(source, row[target])]


def reference_loss(model, batch, targets: list[str], rows: list[dict], tokenizer) -> torch.Tensor:
    """Return the cross-entropy of all targets, one text at a time, from the texts themselves."""
    total = torch.zeros(())
    for number in row_numbers_of(batch, tokenizer):
        for source in batch.languages:
            source_ids = torch.tensor([tokenizer.encode(rows[number][source])])
            options = {}
            if getattr(model.model, "needs_language_ids", False):
                options["language_ids"] = torch.tensor([model.config.languages.index(source)])
            encoded = model.model(source_ids, **options)
            texts = []
            for target in targets:
                texts += predicted_texts(target, rows, number, source, model.config.pivot_languages)
            for language, text in texts:
                ids = torch.tensor([tokenizer.encode(text)])
                logits = model(
                    attention_mask=torch.ones_like(source_ids),
                    encoder_outputs=encoded,
                    decoder_input_ids=ids[:, :-1],
                    target_language=language,
                    use_cache=False,
                ).logits[0]
                total = total + nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum")
    return total


def documented_batch(tokenizer, rows: list[dict], objective: TranslationObjective):
    (batch,) = parallel_batches(
        as_documents(rows, 4),
        tokenizer,
        ["de", "en", "es"],
        ["en", "es"],
        micro_batch_tokens=100_000,
        languages_per_row=None,
        targets=objective.targets,
    )
    return batch


@pytest.mark.parametrize("targets", TARGETS, ids=str)
@pytest.mark.parametrize("kind", MODELS)
def test_the_loss_equals_that_of_one_text_at_a_time(kind, targets, tokenizer):
    rows = parsed_rows(8, ("de", "en", "es"))
    objective = TranslationObjective(label_smoothing=0.0, targets=targets)
    batch = documented_batch(tokenizer, rows, objective)
    model = MODELS[kind]()
    output = ParallelModel(model, {"translation": objective})(batch)["translation"]
    expected = reference_loss(model, batch, list(objective.targets), rows, tokenizer)
    torch.testing.assert_close(output["total"], expected, rtol=1e-5, atol=0)
    output["total"].backward()
    assert model.decoder.embed_tokens.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("targets", TARGETS, ids=str)
@pytest.mark.parametrize("row_share", [1.0, 0.4])
def test_the_loss_of_a_decoder_that_knows_nothing(targets, row_share, tokenizer):
    """Every token costs log 400 if all logits are 0, also if some rows stand for all."""
    rows = parsed_rows(12, ("de", "en", "es"))
    objective = TranslationObjective(targets=targets, row_share=row_share)
    batch = documented_batch(tokenizer, rows, objective)
    model = tiny_model()
    nn.init.zeros_(model.lm_head.weight)
    parallel = ParallelModel(model, {"translation": objective}).train()
    output = parallel(batch)["translation"]

    tokens = 0
    for number in row_numbers_of(batch, tokenizer):
        for source in batch.languages:
            for target in objective.targets:
                for _, text in predicted_texts(target, rows, number, source, ["en", "es"]):
                    tokens += len(tokenizer.encode(text)) - 1
    assert objective.count(batch.sizes) == tokens
    assert float(output["nll"]) == pytest.approx(tokens * math.log(400), rel=1e-5)


def test_the_sum_over_a_text_counts_every_predicted_text(tokenizer):
    rows = parsed_rows(8, ("de", "en", "es"))
    objective = TranslationObjective(reduction="sum", targets=["pivots", "self"])
    batch = documented_batch(tokenizer, rows, objective)
    # Two languages into each of two pivots, and each language into itself.
    assert objective.count(batch.sizes) == 8 * (2 * 2 + 3)


# ---- What an objective asks of rows and models


def test_requirements():
    assert TranslationObjective().requirements.pivot
    for targets in ("self", "next", "tree"):
        parallel = ParallelModel(laser(), {"translation": TranslationObjective(targets=targets)})
        assert not parallel.needs_pivot
        assert not parallel.needs_several_languages
        assert parallel.targets == (targets,)
    both = {"translation": TranslationObjective(targets="tree"), "infonce": InfoNCE()}
    parallel = ParallelModel(laser(), both)
    assert parallel.needs_several_languages
    assert parallel.read_texts == ["de", "en", "es", "tree"]


def test_a_model_with_a_decoder_for_each_pivot_is_refused():
    objective = TranslationObjective(targets="self")
    with pytest.raises(ValueError, match=r"has a decoder for each pivot language alone: found"):
        ParallelModel(ntdv(), {"translation": objective})


@pytest.mark.parametrize("targets", [[], ["self", "self"]])
def test_targets_that_are_no_list_of_names_are_refused(targets):
    with pytest.raises(ValueError, match="expected one or more of pivots, self, next"):
        TranslationObjective(targets=targets)


def test_replaced_texts_have_no_next_row(spaced_tokenizer):
    rows = as_documents(parsed_rows(8), 4)
    with pytest.raises(ValueError, match="neighbor_share=0.5.*a replaced text"):
        parallel_batches(
            rows, spaced_tokenizer, ["de", "en"], ["en"], targets=["next"], neighbor_share=0.5
        )


def test_documents_of_one_row_are_an_error(tokenizer):
    rows = as_documents(parsed_rows(5), 1)
    batches = parallel_batches(rows, tokenizer, ["de", "en"], ["en"], targets=["next"])
    with pytest.raises(ValueError, match="No row of the training data has .*targets next"):
        list(batches)


def test_a_column_that_no_row_fills_is_an_error(tokenizer):
    rows = [{"de": "haus", "en": "house", "tree": None} for _ in range(3)]
    batches = parallel_batches(
        make_dataset(rows), tokenizer, ["de", "en"], ["en"], targets=["tree"]
    )
    with pytest.raises(ValueError, match="No row of the training data has .*targets tree"):
        list(batches)


# ---- Data


def write_rows(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_a_column_that_no_row_has_is_an_error_that_lists_the_columns(tmp_path):
    path = write_rows(
        tmp_path / "rows.jsonl", [{"en": "a house", "tree": "(S a )S", "doc_id": "d"}]
    )
    with pytest.raises(ValueError) as error:
        load_parallel(path, ["en"], target_columns=["parse"])
    message = str(error.value)
    assert "rows.jsonl, field 'parse': found no such text" in message
    assert "one of the columns en, tree, doc_id" in message


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_column_is_read_beside_the_languages(tmp_path, nested, streaming):
    texts = [{"en": "a house", "tree": "(S a )S"}, {"en": "a dog", "tree": " "}]
    rows = [{"translation": row} for row in texts] if nested else texts
    path = write_rows(tmp_path / "rows.jsonl", rows)
    report = CorpusReport()
    loaded = load_parallel(
        path, ["en"], target_columns=["tree"], fewest_texts=1, report=report, streaming=streaming
    )
    expected = [{"en": "a house", "tree": "(S a )S"}, {"en": "a dog", "tree": None}]
    assert [row["translation"] for row in loaded] == expected
    assert report.empty_texts == 1


def test_rows_of_one_text_are_dropped_unless_they_are_asked_for(tmp_path):
    rows = [{"de": "das Haus", "en": "the house"}, {"de": "der Hund"}]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    assert len(load_parallel(path, ["de", "en"])) == 1
    assert len(load_parallel(path, ["de", "en"], fewest_texts=1)) == 2


# ---- Recipes


def write_book(path: Path) -> str:
    """Write 30 documents of 8 sentences in English, with their trees."""
    draw = random.Random(0)
    words = ["house", "dog", "cat", "tree", "river", "town", "light", "night"]
    rows = []
    for number in range(240):
        sentence = draw.sample(words, draw.randint(2, 5))
        tree = " ".join(f"(N {word} )N" for word in sentence)
        row = {"en": " ".join(sentence), "tree": f"(S {tree} )S", "doc_id": f"d{number // 8}"}
        rows.append(row)
    return write_rows(path, rows)


@pytest.mark.parametrize(
    ("name", "left_out"),
    [("autoencoder", None), ("skip_thought", "rows_without_next"), ("seq2tree", None)],
)
def test_recipes_learn_from_one_language(name, left_out, tmp_path, caplog):
    overrides = [f"data.train={write_book(tmp_path / 'book.jsonl')}", "max_steps=12", *TINY]
    with caplog.at_level("WARNING", logger="tmde.training"):
        train_recipe(load_recipe(name, [*overrides, "learning_rate=0.02"]), tmp_path / "run")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    log = read_log(tmp_path / "run", "eval_translation_nll")
    losses = [entry["eval_translation_nll"] for entry in log]
    assert losses[-1] < losses[0] - 0.3
    if left_out is not None:
        assert results["rows"][left_out] > 0
        assert "rows had no text to predict" in caplog.text


WORDS = ["house", "dog", "cat", "tree", "river", "town", "light", "night"]


def write_chain(path: Path) -> str:
    """Write 60 documents of 8 sentences, in which each word is followed by the next of `WORDS`."""
    draw = random.Random(0)
    rows = []
    for document in range(60):
        first = draw.randrange(len(WORDS))
        for place in range(8):
            word = WORDS[(first + place) % len(WORDS)]
            rows.append({"en": word, "doc_id": f"d{document}"})
    return write_rows(path, rows)


def test_skip_thought_learns_which_sentence_follows(tmp_path):
    """Whoever does not read the sentence before predicts eight words with a loss of at least ln 8.

    That is the mean of -ln q(word) over all words, whatever the probabilities q.
    """
    train = f"data.train={write_chain(tmp_path / 'chain.jsonl')}"
    dev = f"data.dev={train.removeprefix('data.train=')}"
    training = ["max_steps=200", "eval_steps=200", "learning_rate=0.03", "model.dropout=0"]
    overrides = [train, dev, *TINY, *training]
    train_recipe(load_recipe("skip_thought", overrides), tmp_path / "run")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run").eval()
    losses = []
    for word, next_word in zip(WORDS, [*WORDS[1:], WORDS[0]], strict=True):
        inputs = tokenizer(word, return_tensors="pt")
        labels = tokenizer(next_word, return_tensors="pt")["input_ids"][:, 1:]
        with torch.inference_mode():
            loss = model(**inputs, labels=labels, target_language="en").loss  # nats a token
        losses.append(float(loss) * labels.shape[1])
    assert sum(losses) / len(losses) < 0.8 * math.log(len(WORDS))


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, monkeypatch):
    train = f"data.train={write_book(tmp_path / 'book.jsonl')}"
    targets = "objectives.translation.targets=[next, tree]"
    recipe = load_recipe("skip_thought", [train, targets, "max_steps=8", *TINY])
    train_recipe(recipe, tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt(patch, tmp_path / "resumed", 6)
        train_recipe(recipe, tmp_path / "resumed")
    train_recipe(recipe, tmp_path / "resumed", resume=True)
    expected = load_file(tmp_path / "whole" / "model.safetensors")
    assert_equal_weights(load_file(tmp_path / "resumed" / "model.safetensors"), expected)
