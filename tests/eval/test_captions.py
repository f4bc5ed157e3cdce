"""Image-caption retrieval: ranks and loss by hand, and planted features."""

import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.eval.fake_system import FakeSystem
from tests.eval.numbered import numbered
from tmde.eval import captions
from tmde.eval.captions import (
    RankingSettings,
    evaluate_captions,
    first_right_ranks,
    ranking_loss,
)
from tmde.eval.planning import LoadedTask
from tmde.eval.report import markdown_report
from tmde.eval.results import read_results, write_results
from tmde.eval.runner import EvaluationOptions, evaluate
from tmde.eval.systems import CharacterTfidf
from tmde.eval.tasks import TASKS, CaptionData, CaptionedImages, Provenance, data_fingerprint

SETTINGS = RankingSettings(dimensions=32, batch_size=32)
PROVENANCE = Provenance("a test", "none")


def test_the_rank_is_that_of_the_first_right_candidate():
    scores = np.array([[0.9, 0.8, 0.7, 0.6], [0.9, 0.8, 0.7, 0.6], [0.1, 0.2, 0.3, 0.4]])
    is_right = np.array([[1, 0, 0, 1], [0, 0, 1, 1], [1, 1, 0, 0]], dtype=bool)
    assert first_right_ranks(scores, is_right).tolist() == [1, 3, 3]


def test_a_wrong_candidate_that_ties_is_before_the_right_one():
    """Other right candidates that tie are not."""
    scores = np.array([[0.5, 0.5, 0.5, 0.1]])
    is_right = np.array([[True, True, False, False]])
    assert first_right_ranks(scores, is_right).tolist() == [2]


def test_the_loss_by_hand():
    """Captions 0 and 1 are of image 7: neither is a negative of the other."""
    texts = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    images = torch.tensor([[0.8, 0.6], [0.8, 0.6], [0.0, 1.0]])
    numbers = torch.tensor([7, 7, 9])
    # Scores, with captions in rows:  0.8   0.8   0
    #                                 0.6   0.6   1
    #                                 0.96  0.96  0.8
    # Captions against other images: caption 0 loses nothing (0.2 - 0.8 + 0), caption 1 loses
    # 0.2 - 0.6 + 1 = 0.6, caption 2 loses 0.2 - 0.8 + 0.96 = 0.36 twice.
    # Images against other captions: image of row 0 loses 0.2 - 0.8 + 0.96 = 0.36, that of row 1
    # 0.2 - 0.6 + 0.96 = 0.56, that of row 2 nothing against 0 and 0.2 - 0.8 + 1 = 0.4 against 1.
    loss = ranking_loss(texts, images, numbers, margin=0.2)
    assert float(loss) == pytest.approx(0.6 + 2 * 0.36 + 0.36 + 0.56 + 0.4)


def test_the_loss_is_that_of_a_plain_loop():
    generator = torch.Generator().manual_seed(0)
    texts = torch.nn.functional.normalize(torch.randn(9, 4, generator=generator), dim=1)
    images = torch.nn.functional.normalize(torch.randn(9, 4, generator=generator), dim=1)
    numbers = [0, 0, 1, 2, 3, 3, 3, 4, 5]
    expected = 0.0
    for i, number in enumerate(numbers):
        right = float(texts[i] @ images[i])
        for j, other in enumerate(numbers):
            if number != other:
                expected += max(0.0, 0.3 - right + float(texts[i] @ images[j]))
                expected += max(0.0, 0.3 - right + float(texts[j] @ images[i]))
    loss = ranking_loss(texts, images, torch.tensor(numbers), margin=0.3)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


# ---- Planted features


def split_of(first_image: int, count: int, captions_per_image: int = 5) -> CaptionedImages:
    image_numbers = np.repeat(np.arange(count), captions_per_image)
    texts = [
        f"image {first_image + number} caption {row}" for row, number in enumerate(image_numbers)
    ]
    feature_rows = np.arange(first_image, first_image + count)
    return CaptionedImages(numbered("i", feature_rows), feature_rows, texts, image_numbers)


def planted(train: int = 100, dev: int = 30, test: int = 40, size: int = 12, seed: int = 0):
    """Images and a hidden vector of each, of which the features are a linear map."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=(train + dev + test, size))
    features = (hidden @ generator.normal(size=(size, 20))).astype(np.float32)
    splits = {
        "train": split_of(0, train),
        "dev": split_of(train, dev),
        "test": split_of(train + dev, test),
    }
    return CaptionData(splits, features, "f", "en", PROVENANCE), hidden


def describing(hidden: np.ndarray) -> FakeSystem:
    """A system that knows the hidden vector of the image of a caption, but for some noise."""
    rotation = np.linalg.qr(np.random.default_rng(5).normal(size=(hidden.shape[1],) * 2))[0]

    def vector(text: str) -> np.ndarray:
        _, image, _, caption = text.split()
        noise = np.random.default_rng(int(caption)).normal(size=hidden.shape[1])
        return (hidden[int(image)] + 0.05 * noise) @ rotation

    return FakeSystem(vector)


def unrelated(hidden: np.ndarray) -> FakeSystem:
    """A system whose vectors say nothing about the images."""

    def vector(text: str) -> np.ndarray:
        return np.random.default_rng(zlib.crc32(text.encode())).normal(size=hidden.shape[1])

    return FakeSystem(vector)


def test_captions_that_are_a_linear_map_of_the_images_find_them():
    data, hidden = planted(train=400)
    cells = evaluate_captions(data, describing(hidden), SETTINGS, seeds=(0, 1))
    assert [cell.pair for cell in cells] == [("captions", "images"), ("images", "captions")]
    for cell in cells:
        assert cell.value > 0.95
        assert cell.extra["recall_at_5"] >= cell.value
        assert cell.extra["median_rank"] == 1
        assert len(cell.seed_values) == 2
        assert cell.value == pytest.approx(cell.outcomes.mean())


def test_unrelated_vectors_are_at_chance():
    data, hidden = planted(test=200)
    cells = evaluate_captions(data, unrelated(hidden), SETTINGS, seeds=(0,))
    for cell in cells:
        assert cell.chance == pytest.approx(1 / 200)
        assert cell.value < 0.03
        # The best of five captions has a smaller median rank than one image: 1,000 / 6 at most.
        assert cell.extra["median_rank"] > 60


def test_cells_describe_their_search():
    data, hidden = planted(test=40)
    by_captions, by_images = evaluate_captions(data, describing(hidden), SETTINGS, seeds=(0,))
    assert list(by_captions.ids[:6]) == ["i130"] * 5 + ["i131"]
    assert (by_captions.extra["size"], by_captions.extra["candidates"]) == (200, 40)
    assert list(by_images.ids[:2]) == ["i130", "i131"]
    assert (by_images.extra["size"], by_images.extra["candidates"]) == (40, 200)
    assert by_captions.metric == by_images.metric == "recall_at_1"
    assert by_captions.std is None


def test_the_same_seed_gives_the_same_numbers():
    data, hidden = planted()
    settings = RankingSettings(dimensions=8, batch_size=64, epochs=2)
    values = []
    for seed in (3, 3, 4):
        torch.manual_seed(len(values))  # The global state must not matter.
        cells = evaluate_captions(data, describing(hidden), settings, seeds=(seed,))
        values.append([cells[0].outcomes.tolist(), cells[1].outcomes.tolist()])
    assert values[0] == values[1]
    assert values[0] != values[2]


def test_images_are_searched_in_folds_of_a_thousand():
    """With 2,000 images, a caption competes with 1,000 of them, whatever the others hold."""
    data, hidden = planted(train=60, dev=20, test=2000)
    cells = evaluate_captions(data, describing(hidden), SETTINGS, seeds=(0,))
    for cell in cells:
        assert cell.chance == pytest.approx(1 / 1000)
    assert cells[0].extra["candidates"] == 1000
    assert cells[1].extra["candidates"] == 5000
    assert len(cells[0].ids) == 10_000


@pytest.mark.parametrize(
    ("image_count", "sizes"),
    [(2, [2]), (999, [999]), (1000, [1000]), (1999, [1000]), (5000, [1000] * 5)],
)
def test_folds_have_exactly_a_thousand_images(image_count, sizes):
    folds = captions.search_folds(image_count)
    assert [len(images) for images in folds] == sizes
    assert np.concatenate(folds).tolist() == list(range(sum(sizes)))


def test_images_behind_the_last_full_fold_are_left_out_and_told():
    data, hidden = planted(train=60, dev=20, test=1999)
    task = LoadedTask("coco_captions", TASKS["coco_captions"](), data, data_fingerprint(data))
    (result,) = evaluate([task], [describing(hidden)], EvaluationOptions(seeds=1, samples=5))
    for cell in result.cells:
        assert cell.chance == pytest.approx(1 / 1000)
        assert cell.extra["images_left_out"] == 999
        assert set(cell.ids) == set(data.splits["test"].image_ids[:1000])
    report = markdown_report([result])
    assert (
        "Left out because they fill no fold of images that are searched together: the last 999"
        in report
    )


def test_median_ranks_are_means_over_folds(monkeypatch):
    """The medians 1.5 and 3 of two folds are rounded down before their mean."""
    folds = iter([[1, 2], [1, 1], [3, 3], [2, 4]])
    monkeypatch.setattr("tmde.eval.captions.FOLD_IMAGES", 2)
    monkeypatch.setattr(
        "tmde.eval.captions.first_right_ranks", lambda scores, is_right: np.array(next(folds))
    )
    data, hidden = planted(test=4)
    settings = RankingSettings(epochs=0)
    cells = evaluate_captions(data, describing(hidden), settings, seeds=(0,))
    # The captions of the folds have the ranks [1, 2] and [3, 3], the images [1, 1] and [2, 4].
    for cell in cells:
        assert cell.extra["median_rank"] == (1 + 3) / 2
    assert cells[0].extra["recall_at_5"] == 1
    assert cells[0].value == 1 / 4
    assert cells[1].value == 2 / 4


def test_the_best_epoch_on_dev_is_tested(monkeypatch):
    """Recalls on dev fall after the second epoch, and the training stops at the fourth fall."""
    tested = []
    dev_ranks = iter([9, 1, 9, 9, 9, 9, 9])

    class Ranks:
        def recall_at(self, count):
            return float(self.rank <= count)

    def search(projections, data, name, vectors):
        weights = projections.caption_map.weight.detach().clone()
        tested.append((name, weights))
        if name == "test":
            return original(projections, data, name, vectors)
        ranks = Ranks()
        ranks.rank = next(dev_ranks)
        return {"captions": ranks, "images": ranks}

    original = captions._search
    monkeypatch.setattr(captions, "_search", search)
    data, hidden = planted()
    cells = evaluate_captions(data, describing(hidden), SETTINGS, seeds=(0,))
    names = [name for name, _ in tested]
    assert names == ["dev"] * 6 + ["test"]
    assert torch.equal(tested[-1][1], tested[1][1])
    assert not torch.equal(tested[-1][1], tested[5][1])
    assert cells[0].extra["dev"] == 1


def test_tfidf_is_reduced_to_dense_vectors():
    """Five kinds of images are named by their captions; those of dev and test differ in kind."""
    kinds = ("a red apple", "the blue sea", "some green grass", "white snow", "one black cat")
    features = np.eye(5, dtype=np.float32)[np.arange(70) % 5]
    splits = {}
    for name, first, count in (("train", 0, 60), ("dev", 60, 5), ("test", 65, 5)):
        split = split_of(first, count)
        texts = [kinds[(first + number) % 5] for number in split.image_numbers]
        splits[name] = replace(split, captions=texts)
    data = CaptionData(splits, features, "f", "en", PROVENANCE)
    for cell in evaluate_captions(data, CharacterTfidf(), SETTINGS, seeds=(0,)):
        assert cell.value == 1


def test_the_result_is_reported_and_stored(tmp_path):
    data, hidden = planted()
    task = LoadedTask("coco_captions", TASKS["coco_captions"](), data, data_fingerprint(data))
    system = describing(hidden)
    (result,) = evaluate([task], [system], EvaluationOptions(seeds=1, samples=20))
    assert result.protocol == "captions"
    assert result.settings["ranking"]["dimensions"] == 1000
    assert result.settings["ranking"]["margin"] == 0.2
    write_results(tmp_path, [result], {})
    (stored,) = read_results(tmp_path)
    assert stored.cells[0].extra == result.cells[0].extra
    report = markdown_report([stored])
    assert "captions → images" in report
    assert "| Median rank" in report
    assert "test images 40, test captions 200 in each of en" in report
    assert "Left out" not in report
