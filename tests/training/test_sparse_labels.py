"""Training by label distances of some pairs: from the triples to the evaluation, and what cannot be trained so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml import sampling
from cml.distances import SparseDistances, as_label_distance
from cml.errors import UserError
from cml.training.config import TrainConfig

ITEMS = 80
CONFIG = TrainConfig(
    backbone="small-cnn",
    weights="none",
    image_size=(16, 16),
    dimension=8,
    sampler="grouped(batch_size=16, groups=3, drawn=2, pool=4)",
    steps=60,
    learning_rate=3e-3,
    workers=0,
)


def judged(share: float = 0.2) -> tuple[np.ndarray, SparseDistances]:
    """Pictures of a bright bar, and the distances of the places of some of them."""
    rng = np.random.default_rng(0)
    places = rng.uniform(2, 14, ITEMS)
    pictures = 255 * np.exp(-((np.arange(16)[None, :] - places[:, None]) ** 2) / 4)
    i, j = np.nonzero(np.triu(rng.random((ITEMS, ITEMS)) < share, 1))
    sparse = SparseDistances.from_triples(i, j, np.abs(places[i] - places[j]), items=ITEMS)
    return np.tile(pictures[:, None, :, None], (1, 16, 1, 3)).astype(np.uint8), sparse


@pytest.mark.slow
def test_a_model_of_triples(tmp_path: Path) -> None:
    images, sparse = judged()
    model = cml.fit(images, config=CONFIG, label_distance=sparse, out=tmp_path / "run", quiet=True)
    found = model.evaluate(images, range(ITEMS))
    assert found.known_items is not None
    assert found.rows["embedding"]["spearman_rho"].mean > 0.6
    assert abs(found.rows["random"]["spearman_rho"].mean) < 0.2
    with pytest.raises(UserError, match=r"is sparse of shape \[80, 80\], which was given in Python; give it again"):
        cml.load(tmp_path / "run").evaluate(images, range(ITEMS))
    again = cml.load(tmp_path / "run", label_distance=sparse)
    np.testing.assert_array_equal(again.embed(images[:4]), model.embed(images[:4]))

    sparse.save(tmp_path / "judged.npz")
    named = f"precomputed(path='{tmp_path / 'judged.npz'}', unit='label units')"
    of_file = cml.fit(images, config=CONFIG, label_distance=named, out=tmp_path / "named", quiet=True)
    np.testing.assert_array_equal(of_file.embed(images), model.embed(images))
    assert str(cml.load(tmp_path / "named").evaluate(images, range(ITEMS))) == str(found)


@pytest.mark.parametrize(
    "sampler",
    [
        "random(batch_size=16)",
        "dense(batch_size=16)",
        "binary(batch_size=16, positives=2, pool=4)",
        "grouped(batch_size=16, groups=3, drawn=2, pool=4)",
    ],
)
def test_every_sampler_of_label_distances(sampler: str) -> None:
    images, sparse = judged()
    distance = as_label_distance(sparse)
    model = cml.fit(images, label_distance=sparse, sampler=sampler, config=CONFIG, steps=3, quiet=True)
    assert np.isfinite(model.embed(images)).all()
    drawn = sampling.get(sampler)
    lists = distance.neighbors(distance.encode(range(ITEMS)), max(1, drawn.neighbors)).ids
    for batch in sampling.get(sampler).batches(sparse, range(ITEMS), seed=3):
        near = lists[batch[0]]
        expected = set(near[near >= 0].tolist()) if drawn.neighbors else set()
        picked = expected & set(batch)
        least = {"dense": drawn.neighbors, "binary": 2, "grouped": 2}.get(sampler.partition("(")[0], 0)
        assert len(picked) >= min(least, len(expected))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "proxy-anchor"}, "The label distance 'precomputed' has no classes"),
        ({"loss": "regression"}, "The label distance 'precomputed' has no label vectors"),
        ({"sampler": "per-class(batch_size=16)"}, "The label distance 'precomputed' has no classes"),
    ],
)
def test_what_needs_all_labels_says_so_before_the_first_step(options: dict[str, Any], message: str) -> None:
    images, sparse = judged()
    steps: list[int] = []

    class Counted(cml.Callback):
        def on_step(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
            steps.append(1)

    with pytest.raises(UserError, match=message):
        cml.fit(images, config=CONFIG, label_distance=sparse, callbacks=[Counted()], quiet=True, **options)
    assert not steps


def test_no_known_pair_at_all() -> None:
    images, _ = judged()
    lonely = SparseDistances.from_triples([0], [1], [np.inf], items=ITEMS)
    with pytest.raises(UserError, match="fit needs label distances of pairs that can be compared"):
        cml.fit(images, config=CONFIG, label_distance=lonely, quiet=True)
    few = SparseDistances.from_triples([0, 1], [1, 2], [1.0, 2.0], items=ITEMS)
    with pytest.warns(RuntimeWarning, match="No anchor of the batch has two items of a usable label distance"):
        model = cml.fit(images, config=CONFIG, label_distance=few, steps=3, quiet=True)
    assert np.isfinite(model.embed(images)).all()


def test_row_numbers_of_a_table_of_numbers() -> None:
    _, sparse = judged()
    distance = as_label_distance(sparse)
    rows = distance.encode(np.array([3.0, 5.0]))
    assert rows.arrays["rows"].tolist() == distance.encode([3, np.float32(5)]).arrays["rows"].tolist() == [3, 5]
    for wrong in (3.5, np.nan, np.inf, True, -1.0):
        with pytest.raises(UserError, match="should be a row number from 0 to 79"):
            distance.encode([0, wrong])
