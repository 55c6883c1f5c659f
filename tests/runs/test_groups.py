"""Groups in every verb: what belongs to the query is neither found nor praised, and near copies are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import cml
from cml.distances import as_label_distance
from cml.errors import UserError
from cml.retrieval import EvaluateOptions, evaluate_embeddings
from cml.retrieval.near_copies import NearLists
from cml.retrieval.other_groups import find_other_groups

OPTIONS: dict[str, Any] = {"steps": 30, "quiet": True, "sampler": "random(batch_size=60)"}
FIRST = EvaluateOptions(distance_ks=(3,), ndcg_ks=(), hit_ks=(), whole_ranking=False)
PATIENTS, FRAMES = 60, 5
WHO = np.repeat(np.arange(PATIENTS), FRAMES)
HALF = PATIENTS * FRAMES // 2


def patients(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Frames of patients whose age has nothing to do with the features."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(PATIENTS, 30))[WHO] + 0.05 * rng.normal(size=(len(WHO), 30))
    return rows.astype(np.float32), rng.uniform(20, 80, PATIENTS)[WHO] + rng.normal(0, 0.2, len(WHO))


@pytest.fixture(scope="module")
def model() -> cml.Model:
    rows, ages = patients(0)
    return cml.fit(rows[:HALF], ages[:HALF], groups=WHO[:HALF], **OPTIONS)


def slow_other_groups(model: cml.Model, rows: Any, ages: Any, who: Any, k: int) -> float:  # noqa: ANN401
    """The mean label distance of the first k items of other groups."""
    found = model.embed(rows).astype(np.float64)
    means = []
    for query in range(len(rows)):
        others = [item for item in range(len(rows)) if who[item] != who[query]]
        nearest = sorted(others, key=lambda item: float(((found[item] - found[query]) ** 2).sum()))[:k]
        means.append(np.mean([abs(ages[item] - ages[query]) for item in nearest]))
    return float(np.mean(means))


def test_with_groups_the_verdict_says_chance_and_without_it_names_copies(model: cml.Model) -> None:
    rows, ages = patients(0)
    test, who = rows[HALF:], WHO[HALF:]
    options = EvaluateOptions(distance_ks=(3,), whole_ranking=False)
    praised = model.evaluate(test, ages[HALF:], options=options)
    assert "have near copies in the gallery" in praised.verdict
    assert "groups=..." in praised.verdict
    honest = model.evaluate(test, ages[HALF:], groups=who, options=options)
    assert "near copies" not in honest.verdict
    assert "better than random" not in honest.verdict.partition(".")[0].replace("not better than random", "")
    measured = honest.rows["embedding"]["label_distance@3"].mean
    assert measured == pytest.approx(slow_other_groups(model, test, ages[HALF:], who, 3), rel=1e-5)
    assert praised.rows["embedding"]["label_distance@3"].mean < measured / 5
    oracle = honest.rows["oracle"]["label_distance@3"].mean
    apart = np.abs(ages[HALF:, None] - ages[HALF:])
    apart[who[:, None] == who] = np.inf
    assert oracle == pytest.approx(np.sort(apart, axis=1)[:, :3].mean(), rel=1e-5)


def test_a_gallery_of_its_own_leaves_out_the_querys_group(model: cml.Model) -> None:
    rows, ages = patients(0)
    options = EvaluateOptions(distance_ks=(1,), whole_ranking=False)
    names = [f"patient {number}" for number in WHO[HALF:]]
    query, gallery = slice(HALF, None, 2), slice(HALF + 1, None, 2)
    found = model.evaluate(
        rows[query],
        ages[query],
        rows[gallery],
        ages[gallery],
        groups=names[::2],
        gallery_groups=names[1::2],
        options=options,
    )
    assert found.rows["embedding"]["label_distance@1"].mean > 5
    with pytest.raises(UserError, match="'groups' and 'gallery_groups' are given together"):
        model.evaluate(rows[query], ages[query], rows[gallery], ages[gallery], groups=names[::2])
    with pytest.raises(UserError, match="of one group with a query"):
        model.evaluate(rows[HALF:], ages[HALF:], groups=[0] * HALF)


@pytest.mark.parametrize("seed", range(20))
def test_data_without_copies_is_not_said_to_have_some(seed: int) -> None:
    rng = np.random.default_rng(seed)
    width = [1, 2, 3, 5, 30][seed % 5]
    rows = rng.normal(size=(300, width)).astype(np.float32)
    rows = rng.lognormal(size=(300, width)).astype(np.float32) if seed % 2 else rows
    assert share_of_copies(rows, None, gaps=True) < 0.5
    assert share_of_copies(rows[:100], rows[100:], gaps=True) < 0.5


def share_of_copies(query: np.ndarray, gallery: np.ndarray | None, *, gaps: bool) -> float:
    lists = NearLists.search(query, gallery)
    return 0.0 if lists is None else lists.share_of_copies(gaps=gaps)


def few_values(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    values = rng.integers(0, [3, 10, 60][rng.integers(3)], 150).astype(float)
    return values[:, None] + rng.choice([0, 0.02]) * rng.normal(size=(150, 1)), values


def frames_told_apart(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    ages = rng.uniform(20, 80, PATIENTS)[WHO] + rng.normal(0, 0.2, len(WHO))
    return ages[:, None] + 0.05 * rng.normal(size=(len(WHO), 1)), ages


def unrelated(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(150, [1, 2, 30][rng.integers(3)])), rng.uniform(size=150)


@pytest.mark.parametrize("draw", [few_values, frames_told_apart, unrelated])
def test_embeddings_that_follow_labels_or_nothing_are_no_copies(draw: Any) -> None:  # noqa: ANN401 - a function
    for seed in range(20):
        rows, labels = draw(np.random.default_rng(seed))
        assert "near copies" not in evaluate_embeddings(rows, labels, options=FIRST).verdict


def test_embeddings_that_find_copies_alone_are_cautioned() -> None:
    for seed in range(20):
        rows, ages = patients(seed)
        same = evaluate_embeddings(rows[HALF:], ages[HALF:], options=FIRST)
        assert "near chance. If these are near copies" in same.verdict
        assert "near copies" in same.headline
        own = evaluate_embeddings(rows[::2], ages[::2], rows[1::2], ages[1::2], options=FIRST)
        assert "near copies" in own.verdict
        apart = evaluate_embeddings(
            rows[HALF:], ages[HALF:], groups=WHO[HALF:].tolist(), other_groups=True, options=FIRST
        )
        assert "near copies" not in apart.verdict


def test_what_lies_behind_copies_is_scored_as_a_slow_loop_does() -> None:
    rng = np.random.default_rng(4)
    rows, ages = patients(4)
    rows[:, 0] += ages / 20
    distance, chosen = as_label_distance("euclidean"), rng.permutation(len(rows))
    rows, ages = rows[chosen], ages[chosen]
    lists = NearLists.search(rows, None)
    assert lists is not None
    labels = distance.encode(ages.tolist())
    found, best, chance = [], [], []
    for query in lists.queries.tolist():
        apart = np.linalg.norm(rows - rows[query], axis=1)
        order = [item for item in np.argsort(apart) if item != query][:21]
        gaps = [k for k in range(20) if apart[order[k + 1]] > 4 * apart[order[k]] and apart[order[k]] < lists.usual / 5]
        if gaps:
            copies, behind = order[: gaps[-1] + 1], order[gaps[-1] + 1 :]
            rest = sorted(abs(ages[item] - ages[query]) for item in range(len(rows)) if item not in [*copies, query])
            found.append(np.mean([abs(ages[item] - ages[query]) for item in behind]))
            best.append(np.mean(rest[: len(behind)]))
            chance.append(np.mean(rest))
    wanted = (np.sum(chance) - np.sum(found)) / (np.sum(chance) - np.sum(best))
    assert 0 < wanted < 1
    assert lists.score_behind_copies(distance, labels, labels) == pytest.approx(wanted, rel=1e-5)


def test_copies_are_seen_in_both_galleries() -> None:
    rows, _ = patients(3)
    assert share_of_copies(rows, None, gaps=True) > 0.9
    assert share_of_copies(rows[::2], rows[1::2], gaps=True) > 0.9
    twice = np.concatenate([rows[::FRAMES], rows[::FRAMES]])
    assert share_of_copies(twice, None, gaps=False) == 1


def test_neighbours_of_other_groups_are_those_of_a_slow_search() -> None:
    rng = np.random.default_rng(0)
    query, gallery = rng.normal(size=(7, 3)).astype(np.float32), rng.normal(size=(40, 3)).astype(np.float32)
    own, theirs = rng.integers(0, 4, 7), rng.integers(0, 6, 40)
    distances, positions, is_other = find_other_groups(query, gallery, 5, own, theirs)
    assert is_other.all()
    for row in range(7):
        apart = np.linalg.norm(gallery - query[row], axis=1)
        apart[theirs == own[row]] = np.inf
        np.testing.assert_array_equal(positions[row], np.argsort(apart)[:5])
        np.testing.assert_allclose(distances[row], np.sort(apart)[:5], rtol=1e-5)


def test_prediction_and_search_leave_out_what_is_named(model: cml.Model) -> None:
    rows, ages = patients(0)
    test, test_ages, who = rows[HALF:], ages[HALF:], WHO[HALF:]
    own = np.abs(np.array(model.predict(test, test, test_ages, k=3)) - test_ages).mean()
    others = np.abs(np.array(model.predict(test, test, test_ages, k=3, groups=who, gallery_groups=who)) - test_ages)
    assert own < 1 < 8 < others.mean()
    positions, distances = model.search(test, test, 3, exclude=range(len(test)))
    assert not (positions == np.arange(len(test))[:, None]).any()
    whole, far = model.search(test, test, 4)
    np.testing.assert_array_equal(distances, far[:, 1:])
    np.testing.assert_array_equal(positions, whole[:, 1:])
    groups = [np.flatnonzero(who == name) for name in who]
    positions, _ = model.search(test, test, 3, exclude=groups)
    assert (who[positions] != who[:, None]).all()
    with pytest.raises(UserError, match="'exclude' must name positions for each of 150 queries"):
        model.search(test, test, 3, exclude=[0])
    twice = [[0, 0, 1]] * 5  # of a gallery of 5 items
    positions, _ = model.search(test[:5], test[:5], 3, exclude=twice)
    assert (positions > 1).all()
    for wrong, message in (
        ([[-1]] * 5, "whole numbers from 0 to 4. Got -1 for query 0"),
        ([[], [5], [], [], []], "Got 5 for query 1"),
        ([[0.5]] * 5, "Got 0.5 for query 0"),
        ([["a"]] * 5, "Got a for query 0"),
        ([[0, 1, 2]] * 5, "'k' must be at most the 2 items that 'exclude' leaves for query 0. Got 3"),
    ):
        with pytest.raises(UserError, match=message):
            model.search(test[:5], test[:5], 3, exclude=wrong)


def test_calibration_by_groups_does_not_promise_what_copies_keep(model: cml.Model) -> None:
    rows, ages = patients(0)
    cheerful = model.calibrate(rows[HALF:], ages[HALF:])
    honest = model.calibrate(rows[HALF:], ages[HALF:], groups=WHO[HALF:])
    assert honest.hits.expected[0] > 5 > cheerful.hits.expected[0]


def test_proposals_are_never_labelled_and_one_a_group(model: cml.Model) -> None:
    rows, _ = patients(0)
    pool = np.concatenate([rows[:5], rows[HALF:]])
    chosen = model.propose(pool, 40, labelled=rows[:HALF])
    assert chosen.min() >= 5
    groups = ["known"] * 5 + WHO[HALF:].tolist()
    chosen = model.propose(pool, PATIENTS // 2, labelled=rows[:HALF], groups=groups)
    assert len(set(WHO[HALF:][chosen - 5].tolist())) == PATIENTS // 2
    assert len(model.propose(pool, PATIENTS // 2 + 1, labelled=rows[:HALF], groups=groups)) == PATIENTS // 2
    assert len(model.propose(rows[:HALF], 1, labelled=rows[:HALF])) == 0


def test_known_distances_of_new_items_are_given_to_the_evaluation() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 6)).astype(np.float32)
    apart = np.abs(rows[:, :1] - rows[:, 0])
    trained = cml.fit(rows[:40], label_distance=apart[:40, :40], **OPTIONS | {"sampler": "random(batch_size=20)"})
    options = EvaluateOptions(distance_ks=(3,), whole_ranking=False)
    wanted = evaluate_embeddings(trained.embed(rows[40:]), rows[40:, 0].astype(float), options=options)
    found = trained.evaluate(rows[40:], label_distance=apart[40:, 40:], options=options)
    column = "label_distance@3"
    assert found.rows["embedding"][column].mean == pytest.approx(wanted.rows["embedding"][column].mean, rel=1e-5)
    wanted = evaluate_embeddings(
        trained.embed(rows[40:50]),
        rows[40:50, 0].astype(float),
        trained.embed(rows[50:]),
        rows[50:, 0].astype(float),
        options=options,
    )
    crossed = trained.evaluate(rows[40:50], gallery=rows[50:], label_distance=apart[40:50, 50:], options=options)
    for row in ("embedding", "oracle"):
        assert crossed.rows[row][column].mean == pytest.approx(wanted.rows[row][column].mean, rel=1e-5)
    with pytest.raises(UserError, match=r"a matrix of shape \(10, 30\)\. Got \(10, 29\) instead"):
        trained.evaluate(rows[40:50], gallery=rows[50:], label_distance=apart[40:50, 51:])
    with pytest.raises(UserError, match="needs no labels"):
        trained.evaluate(rows[40:50], range(10), rows[50:], label_distance=apart[40:50, 50:])
    with pytest.raises(UserError, match="trained on with other inputs than these"):
        trained.evaluate(rows[40:], range(40))
    with pytest.raises(UserError, match="was trained with known label distances"):
        trained.evaluate(rows[40:])
    trained.evaluate(rows[:40], range(40), options=options)


def test_rectangular_distances_are_put_in_order_by_names() -> None:
    rng = np.random.default_rng(0)
    columns = ["a", "b", "c"]
    frame = pd.DataFrame(rng.normal(size=(60, 3)), [f"item {item}" for item in range(60)], columns)
    trained = cml.fit(frame, frame["a"], features=columns, **OPTIONS)
    apart = np.abs(frame[["a"]].to_numpy() - frame["a"].to_numpy())
    apart = pd.DataFrame(apart, frame.index, frame.index)
    options = EvaluateOptions(distance_ks=(3,), whole_ranking=False)
    query, gallery = frame.iloc[:20], frame.iloc[20:]
    wanted = trained.evaluate(query, query["a"], gallery, gallery["a"], options=options)
    mixed = apart.loc[query.index[::-1], gallery.index[rng.permutation(40)]]
    found = trained.evaluate(query, gallery=gallery, label_distance=mixed, options=options)
    for row in ("embedding", "oracle"):
        ours, theirs = (one.rows[row]["label_distance@3"].mean for one in (found, wanted))
        assert ours == pytest.approx(theirs, rel=1e-5)
    with pytest.raises(UserError, match="has no row for 1 of the 20 inputs"):
        trained.evaluate(query, gallery=gallery, label_distance=mixed.iloc[1:], options=options)
    assert trained.audit(frame, frame["a"]).suspects[0].startswith("item ")


def test_embeddings_that_are_all_alike_are_no_copies() -> None:
    assert share_of_copies(np.ones((60, 4), np.float32), None, gaps=False) == 0
    assert share_of_copies(np.ones((20, 4), np.float32), np.ones((60, 4), np.float32), gaps=True) == 0
