"""What validation holds out: groups, blocks of an order in which neighbours are alike, or any items; equal weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cml
from cml.data.images import Images
from cml.data.vectors import Vectors
from cml.distances import as_label_distance
from cml.errors import UserError
from cml.items import LabelledItems
from cml.training.config import TrainConfig
from cml.training.stages import HoldOut, describe_held_out

CONFIG = TrainConfig(evaluate_every=5, validation_fraction=0.1)
RNG = np.random.default_rng(0)
WALK = np.cumsum(RNG.normal(size=(400, 4)), axis=0).astype(np.float32)
LOOSE = RNG.normal(size=(400, 4)).astype(np.float32)


def items(rows: Any, **more: Any) -> LabelledItems:  # noqa: ANN401
    distance = as_label_distance("euclidean")
    labels = list(range(len(rows)))
    return LabelledItems(rows, distance.encode(labels), distance, **more)


def pictures(rows: np.ndarray) -> Images:
    spread = (rows - rows.min(axis=0)) / np.ptp(rows, axis=0)
    pixels = np.zeros((len(rows), 16, 16, 3), np.uint8)
    for place, column in enumerate(spread.T):
        pixels[:, 8 * (place // 2) : 8 * (place // 2) + 8, 8 * (place % 2) : 8 * (place % 2) + 8] = (
            255 * column[:, None, None, None]
        ).astype(np.uint8)
    return Images(pixels, (16, 16))


@pytest.mark.parametrize("kind", [Vectors, pictures])
def test_blocks_are_held_out_only_where_neighbours_are_alike(kind: Any) -> None:  # noqa: ANN401
    rule = HoldOut(CONFIG)
    film, loose = items(kind(WALK)), items(kind(LOOSE))
    assert film.split(rule)[1].origin == range(360, 400)
    assert describe_held_out(film, rule(film)) == (
        "validation holds out 40 of 400 items: the last ones, as neighbours in their order are alike."
    )
    rows = np.asarray(loose.split(rule)[1].origin)
    assert len(rows) == 40
    assert rows.min() < 40
    assert (np.diff(rows) > 0).all()
    assert describe_held_out(loose, rule(loose)) == "validation holds out 40 of 400 items: drawn at random."
    np.testing.assert_array_equal(rule(loose), rows)
    grouped = items(kind(LOOSE), groups=np.arange(400) // 8)
    assert describe_held_out(grouped, rule(grouped)) == "validation holds out 40 of 400 items: whole groups."


def test_rows_sorted_by_their_labels_are_held_out_over_all_labels() -> None:
    """The last tenth of sorted labels would leave a tenth of them untrained, and say little of the others."""
    order = np.argsort(LOOSE[:, 0])
    rows = np.asarray(items(Vectors(LOOSE[order])).split(HoldOut(CONFIG))[1].origin)
    assert rows.min() < 60
    assert rows.max() > 340


def test_the_start_of_training_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"steps": 4, "evaluate_every": 2, "sampler": "random(batch_size=50)"}
    cml.fit(LOOSE, LOOSE[:, 0], **options)
    assert "validation holds out 40 of 400 items: drawn at random." in capsys.readouterr().err
    cml.fit(LOOSE, LOOSE[:, 0], groups=np.arange(400) // 4, **options)
    assert "validation holds out 40 of 400 items: whole groups." in capsys.readouterr().err
    near = np.cumsum(LOOSE, axis=0)
    cml.fit(near, near[:, 0], **options)
    assert "40 of 400 items: the last ones, as neighbours in their order are alike." in capsys.readouterr().err
    cml.fit(LOOSE[50:], LOOSE[50:, 0], validation=(LOOSE[:50], LOOSE[:50, 0]), **options)
    assert "validation on the 50 items that were given for it." in capsys.readouterr().err
    cml.fit(LOOSE, LOOSE[:, 0], **options | {"evaluate_every": 0})
    assert "validation holds out" not in capsys.readouterr().err


def test_equal_weights_draw_as_none() -> None:
    options: dict[str, Any] = {"steps": 6, "sampler": "random(batch_size=50)", "quiet": True}
    plain = cml.fit(LOOSE, LOOSE[:, 0], **options).embed(LOOSE)
    for weight in (1.0, 7.5):
        weighted = cml.fit(LOOSE, LOOSE[:, 0], sample_weight=np.full(400, weight), **options)
        np.testing.assert_array_equal(weighted.embed(LOOSE), plain)
    half = cml.fit(LOOSE[:200], LOOSE[:200, 0], **options).embed(LOOSE)
    weighted = cml.fit(LOOSE, LOOSE[:, 0], sample_weight=np.r_[np.ones(200), np.zeros(200)], **options)
    np.testing.assert_array_equal(weighted.embed(LOOSE), half)


def test_two_classes_are_held_out_where_the_class_is_the_group() -> None:
    """One class alone cannot be ranked, as its items are all equally far from each other."""
    names = [f"class {item // 100}" for item in range(400)]
    rows = np.repeat(np.eye(4, dtype=np.float32), 100, axis=0) + LOOSE / 4
    scores: list[float] = []
    watch = cml.Callback(on_validate=lambda state: scores.append(state.validation or np.inf))
    options: dict[str, Any] = {"label_distance": "classes", "steps": 4, "evaluate_every": 2, "quiet": True}
    options |= {"loss": "multi-similarity", "sampler": "per-class(batch_size=40, per_class=20)"}
    cml.fit(rows, names, groups=names, callbacks=[watch], **options)
    assert len(scores) == 2
    assert all(0 < score < 0.5 for score in scores)
    distance = as_label_distance("classes")
    of_classes = LabelledItems(Vectors(rows), distance.encode(names), distance, groups=np.arange(400) // 100)
    np.testing.assert_array_equal(HoldOut(CONFIG)(of_classes), np.arange(200, 400))
    numbered = items(Vectors(rows), groups=np.arange(400) // 100)  # whose labels are no classes
    np.testing.assert_array_equal(HoldOut(CONFIG)(numbered), np.arange(300, 400))
    with pytest.raises(UserError) as caught:
        cml.fit(rows[:300], names[:300], groups=names[:300], **options)
    assert str(caught.value) == (
        "'groups' are the classes here: validation holds out at least 2 of them and trains on 2 others. Got 3. Leave "
        "'groups' out (of a dataset: group_column=none), or set evaluate_every to 0."
    )
