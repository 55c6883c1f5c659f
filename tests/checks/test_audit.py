"""The audit: planted errors come first, whatever the labels are, and what cannot be audited is said."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import cml
from cml.array_types import Bools, Float32, Float64
from cml.checks.audit import FROZEN, RIDGE, TRAINED, Audit, audit_labels, deal_folds, weigh_parts
from cml.checks.audit_list import read_scores
from cml.cli import main
from cml.distances.label_distance import listed_distances
from cml.errors import DataError, UserError

COUNT = 240


@pytest.fixture(scope="module")
def rows() -> Float32:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(COUNT, 6)) * [3, 1, 1, 1, 1, 1]).astype(np.float32)


def audit(rows: Float32, labels: object, distance: str = "euclidean", **options: object) -> Audit:
    made = cml.distances.get(distance)
    return audit_labels(rows, made.encode(labels), made, **options)  # type: ignore[arg-type]


def plant(labels: list[object], share: float = 0.05) -> tuple[list[object], Bools]:
    rng = np.random.default_rng(1)
    wrong = rng.choice(len(labels), round(share * len(labels)), replace=False)
    planted = list(labels)
    for item, other in zip(wrong.tolist(), np.roll(wrong, 1).tolist(), strict=True):
        planted[item] = labels[other]
    is_wrong = np.array([one != other for one, other in zip(planted, labels, strict=True)])
    return planted, is_wrong


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["numbers", "angles", "classes", "names"])
def test_planted_errors_come_first(rows: Float32, kind: str) -> None:
    angle = np.degrees(np.arctan2(rows[:, 1], rows[:, 0] / 3)) % 360
    labels: dict[str, tuple[str, list[object]]] = {
        "numbers": ("euclidean", rows[:, 0].tolist()),
        "angles": ("circular(period=360)", angle.tolist()),
        "classes": ("classes", [f"class {round(float(value))}" for value in rows[:, 0].clip(-4, 4) / 3]),
        "names": ("jaccard", [["low" if a < 0 else "high", "left" if b < 0 else "right"] for a, b in rows[:, :2]]),
    }
    distance, true = labels[kind]
    planted, is_wrong = plant(true)
    found = audit(rows, planted, distance)
    assert roc_auc_score(is_wrong, found.scores) > 0.85
    assert found.wrong.low <= is_wrong.sum() <= found.wrong.high
    assert set(found.parts) == {FROZEN, TRAINED, RIDGE}
    weighted = [found.weights[name] * found.parts[name] for name in found.parts]
    np.testing.assert_allclose(found.scores, np.sum(weighted, axis=0))
    assert sum(found.weights.values()) == pytest.approx(1)
    assert found.wrong_among(3) <= 3
    assert found.wrong_among(COUNT) == pytest.approx(found.wrong.estimate, rel=0.02)


@pytest.mark.slow
def test_the_part_that_tells_most_weighs_most(rows: Float32) -> None:
    strong = 5 * np.random.default_rng(3).normal(size=(COUNT, 6)).astype(np.float32)
    planted, is_wrong = plant(rows[:, 1].tolist())
    found = audit(np.concatenate([strong, rows[:, 1:2]], axis=1), planted)  # the label is a weak direction
    assert max(found.weights, key=found.weights.__getitem__) == RIDGE
    assert roc_auc_score(is_wrong, found.scores) > roc_auc_score(is_wrong, np.mean([*found.parts.values()], axis=0))


def test_no_other_weights_tell_exchanged_labels_better() -> None:
    rng = np.random.default_rng(4)
    is_exchanged = np.repeat([0.0, 1.0], COUNT)
    ranks = {f"part {noise}": is_exchanged + rng.normal(0, noise, 2 * COUNT) for noise in (0.5, 1, 3)}
    ranks["misleading"] = rng.normal(size=2 * COUNT) - is_exchanged
    weights = weigh_parts(ranks)
    assert weights["misleading"] == 0
    assert sum(weights.values()) == pytest.approx(1)
    columns = np.stack(list(ranks.values()), axis=1)

    def correlation(given: Float64) -> float:
        return float(np.corrcoef(columns @ given, is_exchanged)[0, 1])

    best = correlation(np.array(list(weights.values())))
    assert all(correlation(drawn) <= best + 1e-9 for drawn in rng.dirichlet(np.full(4, 0.5), 500))
    nothing = {"one": np.tile(rng.random(COUNT), 2), "other": -is_exchanged}
    assert weigh_parts(nothing)["other"] in (0, 0.5)
    assert weigh_parts({"one": -is_exchanged, "other": -is_exchanged}) == {"one": 0.5, "other": 0.5}


def test_neighbours_are_others_and_their_distance_is_the_median(rows: Float32) -> None:
    labels = rows[:, 0]
    found = audit(np.concatenate([rows[:200], np.tile(rows[:1], (40, 1))]), labels, factor=10.0, unit="mm")
    assert found.neighbors.shape == (COUNT, 10)
    for item in range(COUNT):
        assert item not in found.neighbors[item]
        assert len(set(found.neighbors[item].tolist())) == 10
        slow = 10 * np.median(np.abs(labels[item] - labels[found.neighbors[item]]))
        assert found.neighbor_distances[item] == pytest.approx(slow, rel=1e-5)
    assert found.unit == "mm"


def test_listed_distances_are_those_of_the_pairs() -> None:
    rng = np.random.default_rng(2)
    distance = cml.distances.get("circular(period=7)")
    labels, others = (distance.encode(rng.uniform(0, 7, count)) for count in (5, 9))
    positions = rng.integers(0, 9, (5, 3))
    whole = distance.pairwise(labels, others)
    np.testing.assert_array_equal(
        listed_distances(distance, labels, others, positions), np.take_along_axis(whole, positions, axis=1)
    )
    assert listed_distances(distance, labels[:0], others, positions[:0]).shape == (0, 3)


def test_folds_hold_out_each_item_once_and_groups_whole() -> None:
    groups = np.arange(COUNT) % 12
    for given in (None, groups):
        folds = deal_folds(COUNT, given)
        assert len(folds) == 5
        assert sorted(np.concatenate(folds).tolist()) == list(range(COUNT))
        assert min(map(len, folds)) >= COUNT // 6
        if given is not None:
            assert all(not set(given[fold]) & set(np.delete(given, fold)) for fold in folds)
    with pytest.raises(UserError, match=r"'groups' must name at least 5 groups\. Got 2"):
        deal_folds(COUNT, np.arange(COUNT) % 2)


def test_what_cannot_be_audited_is_said(rows: Float32) -> None:
    with pytest.raises(UserError, match=r"An audit needs at least 30 items\. Got 29"):
        audit(rows[:29], rows[:29, 0])
    with pytest.raises(UserError, match=r"that differ\. All distances among the .* items checked are 0\."):
        audit(rows, np.ones(COUNT))
    with pytest.raises(UserError, match="the features of all items are equal"):
        audit(np.ones_like(rows), rows[:, 0])
    with pytest.raises(UserError, match=r"needs finite features\. Those of item 3 are not finite"):
        audit(np.where(np.arange(COUNT)[:, None] == 3, np.nan, rows).astype(np.float32), rows[:, 0])
    noise = audit(rows, np.random.default_rng(5).normal(size=COUNT))
    assert "hardly better than chance" in noise.lines()[-1]


@pytest.mark.slow
def test_a_model_audits_labels_given_in_python(rows: Float32) -> None:
    planted, is_wrong = plant(rows[:, 0].tolist())
    model = cml.fit(rows, planted, steps=2, sampler="random(batch_size=50)", quiet=True)
    names = [f"item {number}" for number in range(COUNT)]
    listed = model.audit(rows, planted, names=names, groups=np.arange(COUNT) // 8)
    first = [names.index(name) for name in listed.suspects[:6]]
    assert is_wrong[first].all()
    with pytest.raises(UserError, match=r"'names' must be as many as the 240 inputs\. Got 1"):
        model.audit(rows, planted, names=["one"])


@pytest.mark.slow
def test_a_list_is_shown_as_its_table(rows: Float32) -> None:
    labels = rows[:, 0].astype(np.float64)
    model = cml.fit(rows, labels, steps=2, sampler="random(batch_size=50)", quiet=True)
    listed = model.audit(rows, labels)
    assert repr(listed) == "\n".join([*listed.audit.lines(), listed.table(10)])
    table = listed.to_pandas()
    assert list(table["item_id"]) == listed.suspects
    assert table["score"].is_monotonic_decreasing
    assert repr(listed.audit) == "\n".join(listed.audit.lines())


@pytest.mark.slow
def test_a_run_lists_suspects_for_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    cml.prepare("diabetes", tmp_path / "set")
    run = cml.train("value", tmp_path / "set", folder, steps=2, sampler="random(batch_size=64)", quiet=True)
    assert main(["audit", str(folder), "--count", "3"]) == 0
    shown = capsys.readouterr().out
    assert "audited 442 labels" in shown
    with (folder / "audit.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 442
    assert [line["rank"] for line in lines] == [str(rank) for rank in range(1, 443)]
    assert lines[0]["item_id"] in shown
    assert main(["audit", str(folder), "--splits", "query", "--count", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [len(result["first"]), result["items"]] == [3, len(run.dataset.split("query"))]
    assert main(["audit", str(folder), "--count", "0"]) == 2
    for content in ("item_id,score\n1,2\n", "role,item_id,score\nquery,1,nan\n", "\0"):
        (folder / "audit.csv").write_text(content, "utf-8")
        with pytest.raises(DataError, match=r"Make it again: cml audit RUN"):
            read_scores(folder / "audit.csv")
