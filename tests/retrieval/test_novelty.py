"""Novelty: shares of known items that are as far away; and models of the first dimensions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.retrieval.novelty import Novelty

RNG = np.random.default_rng(0)
OPTIONS: dict[str, Any] = {"steps": 3, "sampler": "random(batch_size=30)", "quiet": True, "device": "cpu"}


def test_false_alarms_are_as_many_as_said_and_foreign_items_are_found() -> None:
    mixing = RNG.normal(size=(4, 12))

    def draw(count: int) -> np.ndarray:
        return (RNG.normal(size=(count, 4)) @ mixing + 0.1 * RNG.normal(size=(count, 12))).astype(np.float32)

    rates = []
    for _ in range(5):
        novelty = Novelty(draw(1000))
        rates.append((novelty.score(draw(1000)) <= 0.05).mean())
    assert 0.03 <= np.mean(rates) <= 0.07
    new = draw(500)
    permuted = np.stack([RNG.permutation(column) for column in new.T], axis=1)
    known, foreign = novelty.score(new), novelty.score(permuted)
    assert (known[:, None] > foreign).mean() + 0.5 * (known[:, None] == foreign).mean() > 0.95  # AUROC


def test_small_sets_raise_no_more_false_alarms_than_said_whatever_the_order() -> None:
    rates = []
    for _ in range(200):
        rows = RNG.standard_t(3, size=(90, 3)).astype(np.float32)
        novelty, turned = Novelty(rows[:45]), Novelty(rows[44::-1])
        scores = novelty.score(rows[45:])
        np.testing.assert_array_equal(turned.score(rows[45:]), scores)
        rates.append([(scores <= bound).mean() for bound in (0.05, 0.2, 0.5)])
    rate, error = np.mean(rates, axis=0), np.std(rates, axis=0) / 200**0.5
    assert (rate < [0.05, 0.2, 0.5] + 3 * error).all()
    assert (rate > [0.02, 0.12, 0.35]).all()  # and not by far fewer


def test_known_items_are_compared_with_other_groups_and_few_items_are_refused() -> None:
    rows = np.repeat(RNG.normal(size=(60, 5)), 10, axis=0).astype(np.float32)
    rows += 1e-3 * RNG.normal(size=rows.shape).astype(np.float32)
    new = RNG.normal(size=(200, 5)).astype(np.float32)
    by_item, by_group = Novelty(rows), Novelty(rows, np.repeat(np.arange(60), 10))
    assert (by_item.score(new) <= 0.05).mean() > 0.5  # near copies make all new items look foreign
    assert (by_group.score(new) <= 0.05).mean() < 0.2
    sizes = np.repeat(np.arange(8), [3, 200, 1, 31, 30, 150, 90, 95])  # some are compared all at once
    scores = Novelty(rows, sizes).score(new)
    apart = np.linalg.norm(rows[:, None] - rows, axis=2)
    apart[sizes[:, None] == sizes] = np.inf
    own = np.sort(apart, axis=1)[:, :5].mean(axis=1)
    theirs = np.sort(np.linalg.norm(new[:, None] - rows, axis=2), axis=1)[:, :5].mean(axis=1)
    wanted = (1 + (own >= theirs[:, None] - 1e-5).sum(axis=1)) / 601
    np.testing.assert_allclose(scores, wanted, atol=3 / 601)
    with pytest.raises(cml.UserError, match="at least two groups"):
        Novelty(rows, np.zeros(600, np.int64))
    with pytest.raises(cml.UserError, match=r"at least 40 known items\. Got 12"):
        Novelty(rows[:12])


def test_a_model_scores_by_its_training_items_or_given_ones(tmp_path: Path) -> None:
    rows = RNG.normal(size=(200, 6)).astype(np.float32)
    model = cml.fit(rows, rows[:, 0].astype(float), **OPTIONS)
    new = RNG.normal(size=(100, 6)).astype(np.float32)
    assert model.novelty(new + 20).max() < 0.02
    assert model.novelty(new).mean() > 0.3
    loaded = cml.load(model.save(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(loaded.novelty(new, known=rows), model.novelty(new), atol=0.02)
    with pytest.raises(cml.UserError, match="give 'known' inputs"):
        loaded.novelty(new)


@pytest.mark.parametrize("loss", ["matryoshka(dimensions=(2, 8))", "log-ratio(normalize=false)"])
def test_a_model_of_the_first_dimensions(loss: str, tmp_path: Path) -> None:
    rows = RNG.normal(size=(80, 6)).astype(np.float32)
    model = cml.fit(rows, rows[:, 0].astype(float), loss=loss, dimension=8, **OPTIONS)
    short = model.shorten(2)
    whole = model.embed(rows)
    wanted = whole[:, :2]
    if model.config.normalize:
        wanted = wanted / np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(short.embed(rows), wanted, atol=1e-5)
    np.testing.assert_array_equal(model.embed(rows), whole)
    assert cml.load(short.save(tmp_path / "model"), device="cpu").digest == short.digest != model.digest
    assert short.search(rows[:3], rows, k=1)[0].ravel().tolist() == [0, 1, 2]
    with pytest.raises(cml.UserError, match=r"from 1 to 8\. Got 9"):
        model.shorten(9)


def test_images_are_compared_by_the_published_backbone_where_it_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    ramp = np.linspace(0, 200, 24)
    photos = (ramp[None, :, None, None] + rng.uniform(0, 50, (90, 1, 1, 3)) + 0 * ramp[:, None, None]).astype(np.uint8)
    noise = rng.integers(0, 256, (10, 24, 24, 3)).astype(np.uint8)
    own = {"backbone": "small-cnn", "weights": "none", "image_size": (24, 24)}
    model = cml.fit(photos[:80], photos[:80].mean((1, 2, 3)), **own, **OPTIONS)
    published = model.novelty(noise)
    assert published.max() < 0.05 < np.median(model.novelty(photos[80:]))

    def refuse(self: cml.Model) -> None:
        raise cml.UserError("not here")

    monkeypatch.setattr(cml.Model, "load_published", refuse)
    assert not np.array_equal(model.novelty(photos[80:]), published)
    assert model.novelty(noise).shape == (10,)
