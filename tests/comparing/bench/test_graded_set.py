"""The set of graded search: drawn queries and documents with grades, whose label distances have a direction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_suite import TINY

from cml.array_types import Float32
from cml.comparing.bench import graded_sets, run, scores, sets, suite, trials
from cml.comparing.bench.bench_set import BenchSet
from cml.comparing.bench.result import read_result, results_in
from cml.training.config import TrainConfig
from cml.tuning.tune import check_tuned_labels

SET = "search"
SMALL = replace(TINY, train=180, validation=80, queries=20, gallery=60)
ROWS = ("oracle", "random", "frozen", "label-mds", "ridge", "log-ratio", "cosent", "regression")


def read_words(model: str, texts: Sequence[str]) -> Float32:
    """Vectors of what sentences name, in place of those of a sentence model."""
    rows = []
    for text in texts:
        number, colour = re.findall(r"(\d+) (\w+)", text)[0]
        place = graded_sets._COLOURS.index(colour)
        rows.append([int(number) / 10, *np.eye(len(graded_sets._COLOURS))[place], float("photo" in text)])
    return np.array(rows, np.float32)


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> BenchSet:
    monkeypatch.setattr(graded_sets, "sentence_vectors", read_words)
    return graded_sets.deal_queries(SET, suite.SETS[SET], SMALL, tmp_path)


def test_queries_are_dealt_and_documents_are_shared(data: BenchSet) -> None:
    query, gallery = data.test(1, 1)
    assert [len(part) for part in (data.train, data.validation, query, gallery)] == [180, 80, 20, 60]
    ids = [{one for one in part.item_ids if "query" in one} for part in (data.train, data.validation, query)]
    assert [len(one) for one in ids] == [120, 32, 20]
    assert len(set.union(*ids)) == 172
    assert {*gallery.item_ids} < {*data.train.item_ids}
    assert data.split != graded_sets.deal_queries(SET, data.spec, replace(SMALL, queries=19), data.cache).split


def test_only_pairs_of_a_query_and_a_document_have_a_distance(data: BenchSet) -> None:
    assert np.isfinite(data.test_distances).all()
    assert {*np.unique(data.test_distances).tolist()} == {0.0, 1.0, 2.0, 3.0, 4.0}
    is_query = np.array(["query" in one for one in data.validation.item_ids])
    expected = is_query[:, None] & ~is_query
    np.testing.assert_array_equal(np.isfinite(data.validation_distances), expected)
    known = data.distance.known_pairs(data.train.labels)
    assert known is not None
    judged = np.bincount(known.first, minlength=120)
    assert 10 < judged.min() <= judged.max() <= 20


def test_grades_follow_the_distances_of_pairs() -> None:
    texts, distances = graded_sets.draw_texts(300, 200)
    assert re.fullmatch(r"\d+ \w+ \w+s", texts[0])
    assert re.fullmatch(r"a photo of \d+ \w+ \w+s in a field", texts[300])
    grades = graded_sets.grade_pairs(distances)
    for grade, share in zip((1, 2, 3, 4), (0.12, 0.04, 0.01, 0.002), strict=True):
        assert (grades >= grade).mean() == pytest.approx(share, abs=1e-4)
        assert distances[grades >= grade].max() <= distances[grades < grade].min()
    judged = graded_sets.judge_some(grades, distances, 100)
    assert np.isnan(judged[:100]).mean() == pytest.approx(0.9, abs=0.01)
    np.testing.assert_array_equal(judged[100:], grades[100:])
    known = ~np.isnan(judged)
    np.testing.assert_array_equal(judged[known], grades[known])


def test_a_validation_score_ranks_documents_alone(data: BenchSet) -> None:
    embeddings = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    distances = data.validation_distances
    ours, best, chance = [], [], []
    for row in range(32):
        apart = np.linalg.norm(embeddings[32:] - embeddings[row], axis=1)
        ours.append(distances[row, 32:][np.argsort(apart)[:10]].mean())
        best.append(np.sort(distances[row, 32:])[:10].mean())
        chance.append(distances[row, 32:].mean())
    expected = (np.mean(chance) - np.mean(ours)) / (np.mean(chance) - np.mean(best))
    assert scores.score_validation(embeddings, distances) == pytest.approx(expected, abs=1e-5)


@pytest.mark.filterwarnings("ignore:(Some|No) anchors? .*:RuntimeWarning")
def test_rows_that_take_such_distances_are_run(data: BenchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "open_set", lambda name, version: data)
    learn, samplers = trials._learn, []

    def note(data: BenchSet, config: TrainConfig) -> object:
        samplers.append(config.sampler)
        return learn(data, replace(config, steps=30, learning_rate=0.01))

    monkeypatch.setattr(trials, "_learn", note)
    plan = run.Plan(SMALL, "A", [SET], ROWS, tmp_path / "out", suite.NO_BACKBONE)
    assert run.run(plan) == []
    found = {saved.method: saved for saved in map(read_result, results_in(tmp_path / "out"))}
    assert found.keys() == {"oracle", "random", "frozen", "log-ratio", "cosent"}
    assert not any(saved.failed for saved in found.values())
    assert {*samplers} == {suite.SETS[SET].sampler}
    means = {method: saved.mean() or 0 for method, saved in found.items()}
    assert means["oracle"] == 1
    assert abs(means["random"]) < 0.2
    assert min(means["frozen"], means["log-ratio"], means["cosent"]) > 0.3
    assert {saved.unit for saved in found.values()} == {"grade"}


def test_tune_sees_known_distances_whatever_comes_first(data: BenchSet) -> None:
    order = np.argsort(data.train.item_ids)  # documents before queries, whose distances are those of the queries' rows
    check_tuned_labels(data.train.labels[order], data.distance)
    check_tuned_labels(data.train.labels[order[::-1]], data.distance)


def test_the_set_is_one_of_vectors_that_are_drawn() -> None:
    spec = suite.SETS[SET]
    assert (spec.tier, spec.input_kind, spec.drawn, spec.graded) == ("vectors", "vectors", True, True)
    assert sets.look_up("set", SET, suite.SETS) is spec
    assert [name for name, one in suite.SETS.items() if one.graded or one.sampler] == [SET]
