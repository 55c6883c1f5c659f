"""Tuning: the splits, the error and the average against slow forms, and what it chooses where that is known."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import cml
from cml import PairJudgements
from cml.array_types import Float32
from cml.cli import main
from cml.data.input_form import InputForm
from cml.distances import Labels, as_label_distance
from cml.distances.judged_pairs import JudgedPairs
from cml.distances.nearest import KnownPairs
from cml.doors.evaluate_items import own_rows
from cml.errors import UserError
from cml.export.onnx_graph import export_onnx
from cml.models.embedding import ModelConfig
from cml.models.heads import JoinedHead
from cml.option_types import check_options
from cml.retrieval.near_in_order import near_in_order, share_of_near_neighbors
from cml.retrieval.results import Evaluation
from cml.training.config import TrainConfig
from cml.training.linear_map import LinearMap, average_maps, fit_rotation
from cml.training.train_options import complete_options
from cml.tuning import heads, splits
from cml.tuning import tune as tune_module
from cml.tuning.candidates import FROZEN, RIDGE, fit_label_ridge
from cml.tuning.scores import FirstItemsScore, KnownPairsScore, make_split_score
from cml.tuning.splits import Gain, count_splits, make_splits, measure_gain
from cml.tuning.tune import Tuning, keep_best_steps, tune

Rows = Float32


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train heads for few steps on few splits."""
    monkeypatch.setattr(heads, "STOPS", (10, 30))
    monkeypatch.setattr(splits, "MOST_SPLITS", 5)


def hidden_label(count: int = 120, seed: int = 0) -> tuple[Rows, list[float]]:
    """Vectors of which two columns of small spread, among twenty, hold the label."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, 20)) * np.linspace(0.3, 3, 20)
    labels = rows[:, 0] * 3 + rows[:, 1] + rng.normal(0, 0.3, count)
    return rows.astype(np.float32), labels.tolist()


def test_error_of_a_gain_is_that_of_splits_and_of_items_corrected_for_shared_items() -> None:
    rng = np.random.default_rng(0)
    ours = [rng.normal(0.3, 0.2, count) for count in (20, 25, 20, 22)]
    others = [rng.normal(0.1, 0.2, len(split)) for split in ours]
    means, of_items = [], 0.0
    for one, other in zip(ours, others, strict=True):
        gains = [float(a - b) for a, b in zip(one, other, strict=True)]
        means.append(sum(gains) / len(gains))
        of_items += sum((gain - means[-1]) ** 2 for gain in gains) / (len(gains) - 1) / len(gains) / 4
    between = sum((mean - sum(means) / 4) ** 2 for mean in means) / 3
    gain = measure_gain(ours, others)
    assert gain.mean == pytest.approx(sum(means) / 4)
    assert gain.error == pytest.approx(((between + of_items) / 2 * (1 / 4 + 0.2 / 0.8)) ** 0.5)
    assert gain.is_clear
    of_two = measure_gain(ours, others, counted=2)
    assert of_two == Gain(gain.mean, pytest.approx(gain.error * (3 / 2) ** 0.5))
    assert measure_gain(ours, others, counted=9) == gain
    assert not measure_gain(others, ours).is_clear
    assert not measure_gain(ours, ours).is_clear
    assert not Gain(0.029, 0.02).is_clear


def test_average_adds_squared_distances_of_equal_mean() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 6)).astype(np.float32)
    maps = [
        LinearMap(rng.normal(size=(size, 6)).astype(np.float32) * scale, rng.normal(size=size).astype(np.float32), unit)
        for size, scale, unit in ((3, 1.0, True), (2, 50.0, False), (4, 1e-3, True))
    ]
    wanted = np.zeros((40, 40))
    for part in maps:
        rows = part.embed(features).astype(np.float64)
        squared = np.array([[((a - b) ** 2).sum() for b in rows] for a in rows])
        wanted += squared / squared.mean()  # over all pairs, an item with itself among them
    average = average_maps(maps, features, 64).embed(features).astype(np.float64)
    squared = np.array([[((a - b) ** 2).sum() for b in average] for a in average])
    np.testing.assert_allclose(squared / squared.mean(), wanted / 3, atol=1e-4)  # of float32
    assert average_maps(maps, features, 2).embed(features).shape == (40, 2)


@pytest.mark.parametrize("normalize", [True, False])
def test_joined_head_is_the_average(normalize: bool) -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(30, 5)).astype(np.float32)
    maps = [LinearMap(rng.normal(size=(3, 5)).astype(np.float32), np.ones(3, np.float32), normalize) for _ in range(2)]
    joined = average_maps(maps, features, 4)
    head = JoinedHead(5, [3, 3], 4)
    state = {
        "parts.weight": np.concatenate([part.weight for part in maps]),
        "parts.bias": np.concatenate([part.bias for part in maps]),
        "weight": joined.weight,
        "bias": joined.bias,
        "is_unit": np.array([normalize] * 2),
    }
    head.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    with torch.inference_mode():
        found = head(torch.from_numpy(features)).numpy()
    np.testing.assert_allclose(found, joined.embed(features), atol=1e-5)


@pytest.mark.parametrize("reach", [0, 3])
def test_score_counts_the_labels_of_the_first_items_that_are_not_near_in_the_order(reach: int) -> None:
    rng = np.random.default_rng(2)
    labels, rows = rng.normal(size=37), rng.normal(size=(37, 2)).astype(np.float32)
    apart = np.abs(labels[:, None] - labels).astype(np.float32)
    found, best, chance = [], [], []
    for item in range(37):
        others = [other for other in range(37) if abs(other - item) > reach]
        near = sorted(others, key=lambda other: float(((rows[item] - rows[other]) ** 2).sum()))
        found += [apart[item, other] for other in near[:10]]
        best += sorted(apart[item, other] for other in others)[:10]
        chance += [apart[item, other] for other in others]
    wanted = 1 - (np.mean(found) - np.mean(best)) / (np.mean(chance) - np.mean(best))
    score = FirstItemsScore(apart, near_in_order(np.arange(37), round(reach / 0.02)) if reach else None)
    assert score(rows) == pytest.approx(wanted, abs=1e-5)
    assert score.score_items(rows)[0] == pytest.approx(
        1 - (np.mean(found[:10]) - np.mean(best)) / (np.mean(chance) - np.mean(best)), abs=1e-5
    )
    assert score(labels[:, None].astype(np.float32)) == pytest.approx(1)


def judged_pairs(distances: np.ndarray, share: float) -> tuple[JudgedPairs, Labels]:
    """Some pairs of all, as judged."""
    first, second = np.triu_indices(len(distances), 1)
    chosen = np.random.default_rng(1).random(len(first)) < share
    table = np.column_stack([first, second, distances[first, second]])[chosen]
    distance = JudgedPairs()
    return distance, distance.encode(list(PairJudgements(table, items=len(distances))))


def test_the_score_of_known_pairs_is_their_rank_correlation_with_the_jackknife_of_items() -> None:
    rng = np.random.default_rng(2)
    places, rows = rng.normal(size=(40, 2)), rng.normal(size=(40, 3)).astype(np.float32)
    rows[:, :2] += places
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    distance, labels = judged_pairs(apart, 0.4)
    pairs = distance.known_pairs(labels)
    found = np.linalg.norm(rows[pairs.first] - rows[pairs.second], axis=1)
    score = KnownPairsScore(pairs, 40)
    scores = score.score_items(rows)
    assert scores.mean() == pytest.approx(spearmanr(found, pairs.distances)[0])
    left_out = []
    for item in range(40):
        kept = (pairs.first != item) & (pairs.second != item)
        left_out.append(spearmanr(found[kept], pairs.distances[kept])[0])
    jackknife = np.sqrt(39 / 40 * np.square(left_out - np.mean(left_out)).sum())
    assert scores.std(ddof=1) / np.sqrt(40) == pytest.approx(jackknife, rel=0.25)
    assert score.score_items(np.zeros((40, 3), np.float32)).mean() == 0
    assert score.tells
    few = KnownPairs(*(array[:9] for array in pairs[:3]))
    alike = pairs._replace(distances=np.ones_like(pairs.distances))
    assert not KnownPairsScore(few, 40).tells
    assert not KnownPairsScore(alike, 40).tells


def test_items_of_one_group_are_not_scored_with_each_other() -> None:
    rng = np.random.default_rng(3)
    values, groups = rng.normal(size=60), np.repeat(np.arange(12), 5)
    distance = as_label_distance("euclidean")
    labels, held_out = distance.encode(values), np.arange(10, 60)
    rows = rng.normal(size=(60, 3)).astype(np.float32)
    score = make_split_score(held_out, labels, distance, "groups", groups)
    assert isinstance(score.score, FirstItemsScore)
    apart = np.abs(values[held_out][:, None] - values[held_out])
    others = groups[held_out][:, None] != groups[held_out]
    found, best = [], []
    for row, item in enumerate(held_out):
        near = sorted(np.flatnonzero(others[row]), key=lambda other: np.linalg.norm(rows[item] - rows[held_out[other]]))
        found.append(apart[row, near[: score.score.neighbors]].mean())
        best.append(np.sort(apart[row, others[row]])[: score.score.neighbors].mean())
    chance = apart[others].mean()
    wanted = 1 - (np.mean(found) - np.mean(best)) / (chance - np.mean(best))
    identity = LinearMap(np.eye(3, dtype=np.float32), np.zeros(3, np.float32))
    assert score.score_map(identity, rows).mean() == pytest.approx(wanted)
    whole = make_split_score(held_out, labels, distance, "groups", np.zeros(60, int))  # one group leaves no others
    assert whole.score_map(identity, rows).shape == (50,)


def test_pairs_that_are_near_in_the_order_are_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    places, rows = rng.normal(size=(100, 2)), rng.normal(size=(100, 2)).astype(np.float32)
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    distance, labels = judged_pairs(apart, 0.5)
    held_out = np.arange(20, 60)
    near = make_split_score(held_out, labels, distance, "blocks")
    pairs = distance.known_pairs(labels)
    is_kept = np.isin(pairs.first, held_out) & np.isin(pairs.second, held_out) & (pairs.second - pairs.first > 2)
    found = np.linalg.norm(rows[pairs.first] - rows[pairs.second], axis=1)
    wanted = spearmanr(found[is_kept], pairs.distances[is_kept])[0]
    identity = LinearMap(np.eye(2, dtype=np.float32), np.zeros(2, np.float32))
    assert near.score_map(identity, rows).mean() == pytest.approx(wanted)
    monkeypatch.setattr(JudgedPairs, "known_pairs", lambda *_: None)  # as of a distance made of others
    unlisted = make_split_score(held_out, labels, distance, "blocks")
    assert unlisted.score_map(identity, rows).mean() == pytest.approx(wanted)


@pytest.mark.slow
def test_judged_pairs_are_tuned_by_known_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judged directions are the weakest of the features, and no sphere has their distances."""
    monkeypatch.setattr(heads, "STOPS", (100,))
    monkeypatch.setattr(splits, "MOST_SPLITS", 4)
    rng = np.random.default_rng(4)
    places = rng.normal(size=(150, 3))
    rows = np.concatenate([places * 0.5, 3 * rng.normal(size=(150, 5))], axis=1).astype(np.float32)
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    first, second = np.triu_indices(120, 1)
    is_judged = rng.random(len(first)) < 0.2
    table = np.column_stack([first, second, apart[first, second]])[is_judged]
    model = cml.fit(rows[:120], PairJudgements(table, items=120), tune=True, dimension=8, quiet=True)
    assert model.tuning is not None
    assert all(name.startswith("pair-log-ratio") for name in model.tuning.chosen)
    assert RIDGE not in model.tuning.scores
    new = np.triu_indices(30, 1)

    def correlation(embeddings: np.ndarray) -> float:
        found = np.linalg.norm(embeddings[new[0]] - embeddings[new[1]], axis=1)
        return float(spearmanr(found, apart[120:, 120:][new])[0])

    assert correlation(rows[120:]) < 0.3
    assert correlation(model.embed(rows[120:])) > 0.9
    chosen = {"tune": True, "tune_losses": ("cosent",)}
    assert complete_options(TrainConfig(), chosen, InputForm("vectors", (8,)), JudgedPairs()).tune_losses == ("cosent",)


def test_rotation_keeps_distances() -> None:
    features = np.random.default_rng(3).normal(size=(50, 8)).astype(np.float32)
    for rows in (features, features[:6]):  # more items than features, and fewer
        coordinates = fit_rotation(rows, standardize=False).rotate(rows)
        wanted = ((rows[:, None] - rows) ** 2).sum(axis=2)
        np.testing.assert_allclose(((coordinates[:, None] - coordinates) ** 2).sum(axis=2), wanted, atol=1e-3)
        assert coordinates[:, 0].var() == coordinates.var(axis=0).max()


def test_ridge_of_labels_that_are_vectors_is_the_regression() -> None:
    rows, labels = hidden_label()
    distance = as_label_distance("euclidean").fit(labels)
    found = fit_label_ridge(rows, distance.encode(labels), distance)
    assert np.corrcoef(found.embed(rows)[:, 0], labels)[0, 1] > 0.95
    assert not found.normalize


def test_splits_hold_out_whole_groups_blocks_or_random_items() -> None:
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(100, 5)).astype(np.float32)
    assert share_of_near_neighbors(rows) < 0.2
    splits, how = make_splits(rows)
    assert how == "random"
    assert len(splits) == 10
    assert all(len(held) == 20 and {*train} | {*held} == {*range(100)} for train, held in splits)
    groups = np.arange(100) % 10
    splits, how = make_splits(rows, groups)
    assert how == "groups"
    assert len(splits) == 4
    assert all(not {*groups[train]} & {*groups[held]} for train, held in splits)
    assert all(len(held) == 20 for _, held in splits)
    uneven = np.where(np.arange(100) < 55, 0, np.arange(100))  # one group of more than half, and single items
    assert all(len(held) == 20 and 0 not in uneven[held] for _, held in make_splits(rows, uneven)[0])
    halves = np.arange(100) % 2  # too large, but there are no others
    assert all(len(held) == 50 for _, held in make_splits(rows, halves)[0])
    film = np.cumsum(rng.normal(size=(100, 5)), axis=0).astype(np.float32)
    splits, how = make_splits(film)
    assert how == "blocks"
    assert len(splits) == 4
    assert all(np.diff(held).max() == 1 for _, held in splits)
    assert all(not {*one} & {*other} for (_, one), (_, other) in pairwise(splits))


def test_few_items_are_split_more_often() -> None:
    assert [count_splits(count) for count in (30, 83, 84, 124, 249, 250, 10_000)] == [12, 12, 12, 9, 5, 4, 4]
    rows = np.random.default_rng(4).normal(size=(124, 5)).astype(np.float32)
    few, many = make_splits(rows)[0], make_splits(np.tile(rows, (3, 1)))[0]
    assert (len(few), len(many)) == (9, 4)
    assert len({tuple(held) for _, held in few}) == 9


@pytest.mark.slow
def test_splits_beyond_four_are_left_out_where_all_held_out_labels_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "STOPS", (5, 10))
    rows = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    splits, _ = make_splits(rows)
    rare = {int(held[0]) for _, held in splits[:4]}
    labels = ["b" if item in rare else "a" for item in range(40)]
    telling = sum(bool(rare & {*held.tolist()}) for _, held in splits)
    assert 4 < telling < len(splits) == 12
    distance = as_label_distance("classes").fit(labels)
    _, tuning = tune(rows, distance.encode(labels), distance, 4)
    assert tuning.split_count == telling
    assert tuning.lines()[0].startswith(f"tune: {telling} splits held out items at random.")


@pytest.mark.usefixtures("short")
def test_frames_of_the_same_moment_do_not_count_for_the_features_of_a_film() -> None:
    rng = np.random.default_rng(8)
    angle = np.cumsum(rng.normal(size=400))  # of the wheel: it changes little from frame to frame, and comes back
    light = np.cumsum(rng.normal(size=(400, 30)), axis=0)  # tells the moment, and hides the angle
    rows = (2 * light + np.outer(angle, rng.normal(size=30))).astype(np.float32)
    distance = as_label_distance("euclidean").fit(angle.tolist())
    _, tuning = tune(rows, distance.encode(angle.tolist()), distance, 8)
    assert tuning.splits == "blocks"
    assert not tuning.keeps_features
    assert tuning.score > tuning.scores[tuning.frozen] + 0.1


def test_best_step_of_each_head_is_left() -> None:
    scores = {"PCA": 0.1, "a from b, 50 steps": 0.2, "a from b, 100 steps": 0.3, "c from b, 50 steps": 0.25}
    assert keep_best_steps(scores) == {"PCA": 0.1, "a from b, 100 steps": 0.3, "c from b, 50 steps": 0.25}


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_gains_are_taken_and_the_model_is_one_like_any_other(tmp_path: Path) -> None:
    rows, labels = hidden_label(160)
    model = cml.fit(rows[:120], labels[:120], tune=True, dimension=16, quiet=True)
    assert isinstance(model.tuning, Tuning)
    assert not model.tuning.keeps_features
    score = model.evaluate(rows[120:], labels[120:]).rows
    assert score["embedding"]["spearman_rho"].mean > score["vectors"]["spearman_rho"].mean + 0.2
    loaded = cml.load(model.save(tmp_path / "model"))
    np.testing.assert_allclose(loaded.embed(rows), model.embed(rows), atol=1e-6)
    assert export_onnx(loaded.network, tmp_path / "graph").error < 1e-4
    assert len(model.predict(rows[:3], k=5)) == 3
    again = cml.fit(rows[:120], labels[:120], tune=True, dimension=16, quiet=True)
    np.testing.assert_array_equal(again.embed(rows), model.embed(rows))


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_shuffled_labels_keep_the_features() -> None:
    rows, labels = hidden_label(90)
    kept = 0
    for seed in range(3):
        shuffled = np.random.default_rng(seed).permutation(labels).tolist()
        distance = as_label_distance("euclidean").fit(shuffled)
        embedding, tuning = tune(rows, distance.encode(shuffled), distance, 16, seed=seed)
        kept += tuning.keeps_features
        if tuning.keeps_features:
            assert tuning.chosen[0] in FROZEN
            assert embedding.dimension == 20
    assert kept >= 2


def test_an_evaluation_says_which_reference_tune_took() -> None:
    tuning = Tuning((FROZEN[1],), FROZEN[1], (FROZEN[1],), {FROZEN[1]: 0.5}, 0.5, 0.0, 0.1, "random")
    evaluation = Evaluation({}, "px", "reciprocal", 3, 30, verdict="Verdict: better than random.")
    said = evaluation.extend_verdict(tuning.describe_reference()).verdict
    assert said == (
        "Verdict: better than random. The model is the frozen features, L2-normalised: tune kept them, and nothing was "
        "trained."
    )
    is_ridge = "The model is a ridge regression: of what tune compared, nothing scored higher."
    said = evaluation.extend_verdict(replace(tuning, chosen=("ridge",)).describe_reference()).verdict
    assert said == f"Verdict: better than random. {is_ridge}"
    assert replace(tuning, chosen=("ridge", "PCA")).describe_reference() == ""
    advised = replace(evaluation, verdict="Verdict: worse than frozen. Train more. Next: cml train --steps 9")
    said = advised.extend_verdict(replace(tuning, chosen=("ridge",)).describe_reference()).verdict
    assert said.endswith(f"Train more. {is_ridge} Next: cml train --steps 9")


def test_a_model_is_not_compared_with_the_row_that_it_is() -> None:
    tuning = Tuning(("PCA",), FROZEN[1], ("PCA",), {FROZEN[1]: 0.5}, 0.5, 0.0, 0.1, "random")
    assert own_rows(None) == own_rows(tuning) == ()
    assert own_rows(replace(tuning, chosen=(FROZEN[1],))) == ("vectors, L2-normalised",)
    assert own_rows(replace(tuning, chosen=(FROZEN[0],), frozen=FROZEN[0])) == ("vectors",)
    assert own_rows(replace(tuning, chosen=("ridge",))) == ("ridge", "ridge on label MDS")


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_a_model_of_kept_features_says_so() -> None:
    rows = np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32)
    labels = rows[:, 0].tolist()
    rows = rows[:, :1]  # the label itself: nothing is better
    model = cml.fit(rows, labels, tune=True, dimension=1, quiet=True)
    assert model.tuning is not None
    assert model.tuning.keeps_features
    assert model.evaluate(rows, labels).verdict.endswith("tune kept them, and nothing was trained.")


@pytest.mark.slow
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("is_run", [False, True])
def test_a_chosen_ridge_regression_is_not_compared_with_itself(is_run: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(300, 12)).astype(np.float32)
    labels = (rows @ rng.normal(size=12)).tolist()  # which a regression finds, and no head does better
    if is_run:
        np.save(tmp_path / "rows.npy", rows)
        lines = ["id,label", *(f"{number},{label}" for number, label in enumerate(labels))]
        (tmp_path / "labels.csv").write_text("\n".join(lines))
        table = {"source": tmp_path / "labels.csv", "vectors": tmp_path / "rows.npy", "label_columns": ("label",)}
        dataset = cml.prepare("table", tmp_path / "set", **table)
        run = cml.train("value", dataset, tmp_path / "run", tune=True, dimension=8, quiet=True)
        verdict = run.evaluate().verdict
        assert Tuning.load(tmp_path / "run").chosen == ("ridge",)
    else:
        model = cml.fit(rows[:200], labels[:200], tune=True, dimension=8, quiet=True)
        assert model.tuning is not None
        assert model.tuning.chosen == ("ridge",)
        verdict = model.evaluate(rows[200:], labels[200:]).verdict
    assert verdict.endswith("The model is a ridge regression: of what tune compared, nothing scored higher.")
    assert "than ridge" not in verdict
    assert "More training items" not in verdict


REFUSED = {
    "few": "at least 30 items to choose by. Got 20 instead. These show only that the frozen features.* score",
    "equal labels": "labels that differ. The labels of all 60 items checked are equal",
    "one class": "at least 2 classes. All 60 items are of the class 'a'",
    "equal distances": "All distances among the 60 items checked are 1, so no item",
    "constant features": "the features of all items are equal",
    "groups": "'groups' leaves a split with .* items to train on",
    "groups of one label": "all equally far from each other. Make the groups smaller",
    "loss": "leave out 'loss'",
    "steps": "leave out 'steps'",
    "network": "leave out backbone=mlp",
    "images": "add freeze_backbone=True",
    "unknown loss": "Unknown loss 'cosine'",
    "loss of classes": "'tune_losses' takes losses of label distances. Got 'proxy-nca', which takes classes",
    "no losses": "need at least one value each",
    "rate": "'tune_rates' must be above 0",
}


@pytest.mark.filterwarnings("ignore::cml.errors.ImplausibleData")  # equal labels
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_tuned_is_one_line(case: str, tmp_path: Path) -> None:
    rows, numbers = hidden_label(60)
    inputs, labels = rows, [*numbers]
    options: dict[str, object] = {}
    if case == "few":
        inputs, labels = rows[:20], labels[:20]
    elif case == "equal labels":
        labels = [1.0] * 60
    elif case == "one class":
        labels, options = ["a"] * 60, {"label_distance": "classes"}  # type: ignore[list-item]
    elif case == "equal distances":
        labels, options = [str(i) for i in range(60)], {"label_distance": "classes"}  # type: ignore[misc]
    elif case == "constant features":
        inputs = np.ones_like(rows)
    elif case == "groups":
        options = {"groups": ["a"] * 58 + ["b"] * 2}
    elif case == "groups of one label":
        labels, options = [float(i // 10) for i in range(60)], {"groups": [i // 10 for i in range(60)]}
    elif case == "loss":
        options = {"loss": "cosent"}
    elif case == "steps":
        options = {"steps": 5}
    elif case == "network":
        options = {"backbone": "mlp(8)"}
    elif case == "images":
        inputs = np.zeros((60, 16, 16, 3), np.uint8)  # type: ignore[assignment]
        options = {"backbone": "small-cnn", "weights": "none", "image_size": (16, 16)}
    elif case == "unknown loss":
        options = {"tune_losses": ["cosine"]}
    elif case == "loss of classes":
        options = {"tune_losses": ["proxy-nca"]}
    elif case == "no losses":
        options = {"tune_losses": []}
    elif case == "rate":
        options = {"tune_rates": [0.01, 0.0]}
    with pytest.raises(UserError, match=REFUSED[case]) as error:
        cml.fit(inputs, labels, tune=True, out=tmp_path / "run", quiet=True, **options)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


# the task, items, labels and vectors of a table, and what tuning says of it
REFUSED_TABLES = {
    "few": (
        "value",
        25,
        lambda n: n,
        lambda n: n % 7,
        "at least 30 items to choose by. Got 25 instead. These show only",
    ),
    "equal labels": ("value", 40, lambda n: 1, lambda n: n % 7, "The labels of all 40 items checked are equal"),
    "one class": ("classes", 40, lambda n: "a", lambda n: n % 7, "All 40 items are of the class 'a'"),
    "equal distances": ("classes", 40, lambda n: f"c{n}", lambda n: n % 7, "among the 40 items checked are 1"),
    "constant vectors": ("value", 40, lambda n: n, lambda n: 5, "the features of all items are equal"),
}


@pytest.mark.filterwarnings("ignore::cml.errors.ImplausibleData")  # equal labels
@pytest.mark.parametrize("case", REFUSED_TABLES)
def test_train_command_says_in_one_line_what_cannot_be_tuned(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, count, label, number, said = REFUSED_TABLES[case]
    lines = [f"{'train' if n < count else 'test'},{label(n)},{number(n)},{2 * number(n)}" for n in range(count + 5)]
    (tmp_path / "table.csv").write_text("\n".join(["split,label,a,b", *lines]) + "\n")
    columns = ["--features", "a", "b", "--label-columns", "label", "--split-column", "split"]
    kind = ["--kind", "classes"] if task == "classes" else []
    prepared = ["prepare", "table", "--source", str(tmp_path / "table.csv"), "--out", str(tmp_path / "data")]
    assert main([*prepared, *columns, *kind]) == 0
    capsys.readouterr()
    run = tmp_path / "run"
    assert main(["train", task, "--data", str(tmp_path / "data"), "--out", str(run), "--tune"]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert said in errors[0]
    assert not run.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_train_command_tunes_a_frozen_backbone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["prepare", "people", "--out", str(tmp_path / "data"), "--count", "80", "--size", "32"])
    network = ["--backbone", "small-cnn", "--weights", "none", "--image-size", "32", "32", "--freeze-backbone"]
    main(["train", "pose", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "run"), "--tune", *network])
    said = capsys.readouterr()
    lines = re.findall(r"^tune: (?!.*fit/s)(.+)", said.err, re.MULTILINE)  # but for the progress bar
    assert lines[0].startswith("5 splits held out items at random.")
    assert all(line.startswith("score ") for line in lines[1:-1])
    assert lines[-1].startswith(("the gain is", "nothing scores higher than these features"))
    assert "next: cml evaluate" in said.out + said.err
    saved = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.json", "model.safetensors", "tuning.json"} <= saved
    main(["evaluate", str(tmp_path / "run")])
    main(["report", str(tmp_path / "run")])
    main(["explore", str(tmp_path / "run"), "--maps", "pca"])
    for page in ("retrieval_report.html", "explorer.html"):
        shown = (tmp_path / "run" / page).read_text("utf-8")
        assert "tuned" in shown
        assert "log-ratio" not in shown


def test_lines_say_what_was_chosen_and_how_sure_that_is() -> None:
    scores = {"ridge": 0.5, "frozen features": 0.4}
    common: dict[str, Any] = {"frozen": "frozen features", "scores": scores, "splits": "random"}
    better = Tuning(chosen=("ridge",), tried=("ridge",), score=0.5, gain=0.1, error=0.02, **common)
    assert better.lines()[1:] == [
        "tune: score 0.500: ridge.",
        "tune: score 0.400: frozen features.",
        "tune: the gain is +0.100. It exceeds 1.5 times its standard error of 0.020, so the model is not the features "
        "alone.",
    ]
    kept = Tuning(chosen=("frozen features",), tried=("ridge",), score=0.5, gain=0.1, error=0.08, **common)
    assert kept.lines()[-1] == (
        "tune: the gain is +0.100. It does not exceed 1.5 times its standard error of 0.080, so the features are kept."
    )
    alone = Tuning(chosen=("frozen features",), tried=("frozen features",), score=0.4, gain=0.0, error=0.0, **common)
    assert alone.lines()[1:] == [
        "tune: score 0.400: frozen features.",
        "tune: nothing scores higher than these features, which are kept as they are.",
    ]


def test_options_of_tune_need_it() -> None:
    rows, labels = hidden_label(40)
    with pytest.raises(UserError, match="'tune_losses' is an option of 'tune': set 'tune' too"):
        cml.fit(rows, labels, tune_losses=("cosent",), quiet=True)


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_losses_and_rates_are_what_was_asked_for() -> None:
    rows, labels = hidden_label(120)
    asked: dict[str, Any] = {"tune_losses": ["cosent(scale=5.0)"], "tune_rates": (1e-3, 3e-3)}
    tuning = cml.fit(rows, labels, tune=True, dimension=8, quiet=True, **asked).tuning
    assert isinstance(tuning, Tuning)
    heads = {name.rpartition(", ")[0] for name in tuning.scores if name.endswith(" steps")}
    starts = ("PCA", "standardised", "uncentred")
    assert heads == {f"cosent(scale=5.0) from {s} features{r}" for s in starts for r in ("", ", rate 0.001")}


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_an_interrupted_run_continues_with_its_finished_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = hidden_label(100)
    options: dict[str, Any] = {"tune": True, "dimension": 8, "quiet": True}
    whole = cml.fit(rows, labels, out=tmp_path / "whole", **options)
    calls: list[int] = []
    fit = tune_module.fit_candidates

    def interrupt_third(*arguments: Any, **named: Any) -> dict[str, LinearMap]:  # noqa: ANN401 - passed on
        calls.append(named["seed"])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return fit(*arguments, **named)

    monkeypatch.setattr(tune_module, "fit_candidates", interrupt_third)
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        cml.fit(rows, labels, out=run, **options)
    kept = sorted(path.name for path in (run / "checkpoints" / "tune").iterdir())
    assert kept == ["split-0.safetensors", "split-1.safetensors"]
    with pytest.raises(UserError, match="already holds a run"):
        cml.fit(rows, labels, out=run, **options)
    with pytest.raises(UserError, match="was started with seed=0, now seed=1"):
        cml.fit(rows, labels, out=run, resume=True, seed=1, **options)
    (run / "checkpoints" / "tune" / "split-1.safetensors").write_bytes(b"damaged")
    resumed = cml.fit(rows, labels, out=run, resume=True, **options)
    assert calls == [0, 1, 2, *range(1, 6)]  # split 0 was kept
    np.testing.assert_array_equal(resumed.embed(rows), whole.embed(rows))
    files, expected = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (run, tmp_path / "whole")
    )
    assert files == expected
    assert not (run / "checkpoints" / "tune").exists()
    (run / "checkpoints" / "tune").mkdir()  # as if the process had been killed before it deleted the fits
    (run / "training_items.npy").unlink()
    again = cml.fit(rows, labels, out=run, resume=True, **options)
    assert calls == [0, 1, 2, *range(1, 6)]  # nothing was fitted anew
    np.testing.assert_array_equal(again.embed(rows), whole.embed(rows))
    assert again.tuning == resumed.tuning
    assert not (run / "checkpoints" / "tune").exists()
    assert (run / "training_items.npy").exists()


def test_items_within_two_percent_of_the_order_are_near() -> None:
    near = near_in_order(np.array([0, 2, 3, 50]), 100)
    assert near.astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]]


def test_parts_of_a_head_are_bounded_together() -> None:
    with pytest.raises(UserError, match=r"'parts' must be at most 262,144 dimensions together\. Got 327,680"):
        check_options(ModelConfig("none", "none", 4, False, (16, 16), parts=(65_536,) * 5))
