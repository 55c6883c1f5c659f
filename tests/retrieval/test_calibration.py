"""Calibration: monotone, covers what it should on new items, and says what it cannot do."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.array_types import Float32, Float64
from cml.cli import main
from cml.errors import DataError, UserError
from cml.retrieval.calibration import Calibration, ExpectedDistance, calibrate_embeddings
from cml.retrieval.search import nearest_embeddings
from cml.storage.checksums import sign

EUCLIDEAN = cml.distances.get("euclidean")
Side = tuple[Float32, Float64]


def draw(count: int, seed: int) -> Side:
    """Embeddings that follow their labels with noise that grows with the label."""
    rng = np.random.default_rng(seed)
    labels = rng.uniform(0, 100, count)
    noisy = labels + rng.normal(0, 2 + labels / 10)
    return np.stack([noisy / 50, rng.normal(0, 0.2, count)], axis=1).astype(np.float32), labels


def calibrate(side: Side, gallery: Side | None = None, **options: float) -> Calibration:
    encoded = None if gallery is None else (gallery[0], EUCLIDEAN.encode(gallery[1]))
    return calibrate_embeddings(
        side[0],
        EUCLIDEAN.encode(side[1]),
        EUCLIDEAN,
        *(encoded or ()),
        **options,  # type: ignore[arg-type]
    )


def pair_up(side: Side) -> tuple[Float64, Float64]:
    upper = np.triu_indices(len(side[0]), 1)
    return np.linalg.norm(side[0][upper[0]] - side[0][upper[1]], axis=1), np.abs(side[1][upper[0]] - side[1][upper[1]])


def test_beyond_the_hits_no_less_is_expected_than_of_the_farthest_of_them() -> None:
    hits = ExpectedDistance((0.0, 1.0), (1.0, 5.0), (0.0, 4.0), (2.0, 6.0), (0.3, 0.6), (0.0, 0.0, 0.0))
    far, low, high = (0.0, 2.0, 8.0), (0.0, 1.0, 6.0), (1.0, 3.0, 9.0)
    pairs = ExpectedDistance((0.0, 2.0, 4.0), far, low, high, (1.0, 2.0), (0.0, 0.0, 0.0))
    calibration = Calibration(pairs, hits, 0.9, "years", 200, 0, 100, 1.0, 1.0, 2.0)
    found = calibration.expect(np.array([0.5, 1, 1.5, 2, 3.9]))
    np.testing.assert_allclose(found.expected, [3, 5, 5, 5, 7.7])
    np.testing.assert_allclose(found.low, [2, 4, 0.75, 1, 5.75])
    np.testing.assert_allclose(found.high, [4, 6, 5, 5, 8.7])
    assert [calibration.radius(value) for value in (4, 5, 6.5)] == pytest.approx([0.75, 3, 3.5])


def test_intervals_hold_what_they_should_of_new_pairs_thirds_and_hits() -> None:
    held: dict[str, list[float]] = {"pairs": [], "hits": [], "gallery": []}
    thirds = []
    gallery = draw(400, 99)
    for seed in range(8):
        side, new = draw(150, seed), draw(200, 1000 + seed)
        calibration = calibrate(side)
        near, apart = pair_up(new)
        _, low, high = calibration.pairs(near)
        is_held = (low <= apart) & (apart <= high)
        held["pairs"].append(is_held.mean())
        third = np.searchsorted(calibration.pairs.edges, near)
        thirds.append([is_held[third == number].mean() for number in range(3)])
        distances, positions = nearest_embeddings(new[0], new[0], 6)
        searched = calibrate(side, gallery)
        among = nearest_embeddings(new[0], gallery[0], 5)
        for name, fitted, (by, at), labels in (
            ("hits", calibration, (distances[:, 1:], positions[:, 1:]), new[1]),
            ("gallery", searched, among, gallery[1]),
        ):
            _, low, high = fitted.expect(by)
            apart = np.abs(new[1][:, None] - labels[at])
            held[name].append(((low <= apart) & (apart <= high)).mean())
    means = {name: np.mean(values) for name, values in held.items()}
    assert 0.88 <= means["pairs"] <= 0.93, means
    assert all(0.85 <= means[name] <= 0.95 for name in ("hits", "gallery")), means
    assert ((np.mean(thirds, axis=0) >= 0.85) & (np.mean(thirds, axis=0) <= 0.95)).all()


def test_quantiles_are_fitted_to_one_half_and_widened_by_the_other_alone() -> None:
    embeddings, labels = draw(150, 0)
    order = np.random.default_rng(0).permutation(150)  # the halves of seed 0
    before = calibrate((embeddings, labels)).pairs
    for half, is_fitted in ((order[:75], True), (order[75:], False)):
        changed = labels.copy()
        changed[half] = np.random.default_rng(1).permutation(changed[half])
        after = calibrate((embeddings, changed)).pairs
        assert (after.low != before.low and after.high != before.high) == is_fitted
        assert after.margins != before.margins


def test_expectations_never_fall_and_lie_within_their_intervals() -> None:
    calibration = calibrate(draw(200, 0))
    distances = np.linspace(0, 10, 2000)
    for expected, low, high in (
        calibration.pairs(distances),
        calibration.hits(distances),
        calibration.expect(distances),
    ):
        assert (np.diff(expected) >= 0).all()
        assert ((low >= 0) & (low <= expected) & (expected <= high)).all()
    assert calibration.width < calibration.marginal_width


def test_the_radius_is_where_the_expectation_reaches_a_label_distance() -> None:
    calibration = calibrate(draw(200, 0))
    distances = np.linspace(0, 4, 100_001)
    expected = calibration.expect(distances).expected
    for label_distance in np.linspace(expected[0] + 0.01, expected[-1] - 0.01, 9):
        slow = distances[np.flatnonzero(expected <= label_distance)[-1]]
        assert calibration.radius(label_distance) == pytest.approx(slow, abs=2e-4)
    assert calibration.radius(expected[0] - 0.01) == -1
    assert calibration.radius(1000) == float("inf")


def test_the_unit_scales_everything() -> None:
    side = draw(160, 3)
    plain, scaled = calibrate(side), calibrate(side, factor=10.0)
    for one, other in zip(plain.expect(side[0][:, 0]), scaled.expect(side[0][:, 0]), strict=True):
        np.testing.assert_allclose(10 * one, other, atol=1e-6)


@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (draw(29, 0)[0], draw(29, 0)[1], "at least 30 held-out items, better 150. Got 29"),
        (draw(40, 0)[0], np.full(40, 7.0), "label distances that differ, and all are 0"),
        (np.zeros((40, 2), np.float32), draw(40, 0)[1], "embeddings that differ"),
    ],
)
def test_what_cannot_calibrate_is_refused(embeddings: Float32, labels: Float64, message: str) -> None:
    with pytest.raises(UserError, match=message):
        calibrate((embeddings, labels))
    with pytest.raises(UserError, match=r"'level' must be above 0.5 and below 1. Got 90"):
        calibrate(draw(200, 0), level=90)
    with pytest.raises(UserError, match=r"'level' must be above 0.5 and below 1. Got 'a'"):
        calibrate(draw(200, 0), level="a")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"at least 10 items to search among\. Got 9"):
        calibrate(draw(200, 0), draw(9, 1))


def test_few_items_and_few_label_distances_are_said() -> None:
    with pytest.warns(UserWarning, match="The calibration has 60 items. With fewer than 150, .* 5 % more or less"):
        calibrate(draw(60, 0))
    embeddings, labels = draw(200, 0)
    with pytest.warns(UserWarning, match="only 3 different label distances"):
        calibrate((embeddings, (labels // 34).round()))


def draw_exactly(count: int, seed: int) -> Side:
    """Embeddings that hold their labels without noise, beside dimensions of noise."""
    rng = np.random.default_rng(seed)
    labels = rng.uniform(0, 100, count)
    return np.concatenate([labels[:, None] / 50, rng.normal(0, 0.1, (count, 3))], axis=1).astype(np.float32), labels


@pytest.mark.filterwarnings("ignore:The calibration has")
@pytest.mark.parametrize("embed", [draw, draw_exactly])
def test_the_first_hit_of_a_larger_gallery_has_the_label_distance_that_is_expected(embed: Any) -> None:  # noqa: ANN401
    true, expected = [], []
    for seed in range(6):
        calibration = calibrate(embed(300, seed), embed(100, 50 + seed))
        (query, query_labels), (ranked, labels) = embed(300, 100 + seed), embed(5000, 200 + seed)
        distances, positions = nearest_embeddings(query, ranked, 1)
        true.append(np.abs(query_labels[:, None] - labels[positions]).mean())
        expected.append(calibration.expect(distances).expected.mean())
    # the nearest calibrated pair of all, which had decided, made it 2.2 for the embeddings with noise
    assert 0.8 < np.sum(true) / np.sum(expected) < 1.25


def test_a_larger_gallery_has_a_caution() -> None:
    calibration = calibrate(draw(300, 0), draw(100, 50))
    assert calibration.caution_of(200) == ""
    assert "gallery of 100 items, and this one has 5,000" in calibration.caution_of(5000)


@pytest.fixture(scope="module")
def rows() -> Float64:
    return np.random.default_rng(0).normal(size=(400, 4))


@pytest.fixture(scope="module")
def model(rows: Float64) -> cml.Model:
    return cml.fit(rows[:200], rows[:200, 0], steps=20, sampler="random(batch_size=50)", quiet=True)


def test_a_calibration_is_shown_as_its_table() -> None:
    calibration = calibrate(draw(200, 0))
    assert repr(calibration) == "\n".join([*calibration.lines(), calibration.table()])
    assert len(repr(calibration.pairs)) < 80


def test_items_that_a_model_was_trained_on_are_left_out_and_counted(
    rows: Float64, model: cml.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.save(tmp_path / "model")
    said = (
        "20 of the 200 items are training items, the first is item 0. They are left out, and 180 items are used for "
        "the calibration."
    )
    for some in (model, cml.load(tmp_path / "model")):
        calibration = some.calibrate(rows[180:380], rows[180:380, 0])
        assert capsys.readouterr().err.strip() == said
        assert calibration == some.calibrate(rows[200:380], rows[200:380, 0])
        assert not capsys.readouterr().err


def test_a_model_refuses_to_calibrate_by_what_it_was_trained_on(
    rows: Float64, model: cml.Model, tmp_path: Path
) -> None:
    few = r"at least 30 items that the model was not trained on\. 20 of the 49 items are training items"
    with pytest.raises(UserError, match=few):
        model.calibrate(rows[180:229], rows[180:229, 0])
    with pytest.raises(UserError, match="the labels are those of the training items"):
        model.calibrate(rows[200:], rows[:200, 0])
    folder = tmp_path / "run"
    cml.fit(rows[:200], rows[:200, 0], steps=2, sampler="random(batch_size=50)", quiet=True, out=folder)
    with pytest.raises(UserError, match="200 of the 200 items are training items"):
        cml.load(folder).calibrate(rows[:200], rows[:200, 0])


def test_images_are_recognised_by_their_files_and_pixels(tmp_path: Path) -> None:
    from PIL import Image

    levels = np.linspace(0, 255, 80).round()
    images = np.tile(levels[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
    paths = []
    for number, image in enumerate(images):
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(image).save(paths[-1])
    options = {"backbone": "small-cnn", "weights": "none", "image_size": (16, 16), "steps": 2, "workers": 0}
    for some in (images, paths):
        trained = cml.fit(some[:40], levels[:40], sampler="random(batch_size=20)", quiet=True, **options)  # type: ignore[arg-type]
        with pytest.raises(UserError, match="15 of the 40 items are training items"):
            trained.calibrate(some[25:65], levels[25:65])


def test_a_calibration_is_saved_with_its_model_and_no_other(rows: Float64, model: cml.Model, tmp_path: Path) -> None:
    calibration = model.calibrate(rows[200:], rows[200:, 0])
    model.save(tmp_path / "model")
    assert cml.load(tmp_path / "model").calibration == calibration
    path = tmp_path / "model" / "calibration.json"
    saved = json.loads(path.read_text("utf-8"))
    for name, value, message in (
        ("model", "0" * 64, "belongs to other weights"),
        ("calibration", {**saved["calibration"], "pairs": {**saved["calibration"]["pairs"], "low": [0.0]}}, "as many"),
        ("calibration", {**saved["calibration"], "level": 7}, "level above 0.5 and below 1"),
        ("calibration", {**saved["calibration"], "items": -1}, "numbers of items"),
        ("calibration", {**saved["calibration"], "unit": "\x1b[31m"}, "unit of a calibration must be printable"),
    ):
        path.write_text(json.dumps({**saved, name: value}), "utf-8")
        with pytest.raises(DataError, match="its checksum is wrong"):
            _ = cml.load(tmp_path / "model").calibration
        path.write_text(json.dumps(sign({**saved, name: value})), "utf-8")
        with pytest.raises(DataError, match=message):
            _ = cml.load(tmp_path / "model").calibration


def test_a_calibrated_run_tells_label_distances_in_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset, folder, index = tmp_path / "set", str(tmp_path / "run"), str(tmp_path / "index")
    cml.prepare("diabetes", dataset)
    cml.train("value", dataset, folder, steps=20, sampler="random(batch_size=64)", quiet=True)
    query = str(tmp_path / "query.npy")
    np.save(query, np.load(dataset / "test/vectors.npy")[:2])
    assert main(["index", folder, str(dataset), "--out", index]) == 0
    assert main(["search", index, query, "--within", "25"]) == 2
    assert "cml calibrate" in capsys.readouterr().err
    with warnings.catch_warnings(action="ignore"):
        assert main(["calibrate", folder]) == 0
    assert "embedding distance of a hit" in capsys.readouterr().out
    assert main(["search", index, query, "--k", "3"]) == 0
    shown = capsys.readouterr().out
    assert "expected  interval" in shown
    assert main(["search", index, query, "--within", "60", "--json"]) == 0
    calibration = cml.load(folder).calibration
    assert calibration is not None
    for answer in json.loads(capsys.readouterr().out):
        assert answer["unit"] == calibration.unit
        assert answer["found"]
        assert all(hit["expected"] <= 60 + 1e-6 and hit["low"] <= hit["expected"] for hit in answer["found"])
    assert main(["search", index, query, "--within", "-1"]) == 2
    assert main(["search", index, query, "--within", "0.001"]) == 0
    least = f"{calibration.expect(np.zeros(1)).expected[0]:.3g}"
    assert capsys.readouterr().out.endswith(f"even at embedding distance 0, {least} is expected.\n")
    assert main(["search", index, query, "--within", "1000", "--json"]) == 0
    assert [len(answer["found"]) for answer in json.loads(capsys.readouterr().out)] == [442, 442]
    with warnings.catch_warnings(action="ignore"):
        assert main(["calibrate", folder, "--gallery", "train", "--json"]) == 0
    counts = cml.open_dataset(dataset).info.counts
    assert json.loads(capsys.readouterr().out)["gallery"] == counts["train"]
    assert main(["search", index, query, "--k", "3"]) == 0
    assert "The model was calibrated in a gallery" not in capsys.readouterr().err


@pytest.mark.parametrize("copies", [60, 20])
def test_a_run_leaves_out_queries_that_it_was_trained_on(
    copies: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    rows = np.concatenate([rows, rows[:copies], np.random.default_rng(1).normal(size=(60 - copies, 3))])
    lines = ["a,b,label", *(",".join(map(str, row)) for row in rows.tolist())]
    (tmp_path / "table.csv").write_text("\n".join(lines), "utf-8")
    dataset = tmp_path / "set"
    cml.prepare(
        "table",
        dataset,
        source=tmp_path / "table.csv",
        label_columns=("label",),
        features=("a", "b"),
        test_fraction=0.4,
    )
    run = cml.train("value", dataset, tmp_path / "run", steps=2, sampler="random(batch_size=16)", quiet=True)
    if copies == 60:
        with pytest.raises(UserError, match=r"queries of .* are training items, such as '\d+'\. Hold out others\."):
            run.calibrate()
    else:
        with pytest.warns(UserWarning, match="The calibration has 40 items"):
            run.calibrate()
        assert "8 of the 48 queries of" in (said := capsys.readouterr().err)
        assert "They are left out, and 40 items are used for the calibration." in said
