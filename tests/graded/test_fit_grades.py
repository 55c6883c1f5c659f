"""Training on grades: one network or two, from arrays, mappings and images, saved and loaded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import cml
from cml import UserError
from cml.doors.search_model import SearchModel
from cml.graded.distance import GradedDistance
from cml.sampling import QueriesSampler
from cml.sampling.training_labels import TrainingLabels

Array = NDArray[Any]


def draw(seed: int = 0, queries: int = 60, documents: int = 160) -> tuple[Array, Array, Array]:
    """Vectors of queries and documents, and all grades, which follow a few directions of many."""
    rng = np.random.default_rng(seed)
    directions = np.random.default_rng(99).normal(size=(12, 3))
    query, document = (rng.normal(size=(count, 12)).astype(np.float32) for count in (queries, documents))
    scores = (query @ directions) @ (document @ directions).T
    return query, document, np.digitize(scores, np.quantile(scores, [0.5, 0.75, 0.9])).astype(float)


def some(grades: Array, share: float = 0.3) -> Array:
    """Keep some of the grades."""
    return np.where(np.random.default_rng(5).random(grades.shape) < share, grades, np.nan)


def ndcg(model: SearchModel, query: Array, document: Array, grades: Array) -> float:
    """The mean nDCG@10 by all grades."""
    return model.rank(query, document).evaluate(cml.Grades.from_matrix(grades), ["ndcg@10"]).means["ndcg@10"]


OPTIONS: dict[str, Any] = {"steps": 120, "dimension": 16, "quiet": True}


@pytest.mark.parametrize("backbone", [None, ("none", "mlp(16)")], ids=["one", "two"])
def test_training_ranks_new_queries_better(tmp_path: Path, backbone: Any) -> None:  # noqa: ANN401
    query, document, grades = draw()
    judged = cml.Grades.from_matrix(some(grades), unjudged="incomparable")
    model = cml.fit((query, document), judged, backbone=backbone, **OPTIONS)
    assert isinstance(model, SearchModel)
    new, _, _ = draw(1)
    truth = np.digitize(*_scores_of(new, document)).astype(float)
    before = cml.Ranking.of_embeddings(new, document).evaluate(cml.Grades.from_matrix(truth), ["ndcg@10"])
    assert ndcg(model, new, document, truth) > before.means["ndcg@10"] + 0.01
    again = cml.load(model.save(tmp_path / "model"))
    assert isinstance(again, SearchModel)
    for side, inputs in (("queries", query), ("documents", document)):
        np.testing.assert_allclose(again.embed(inputs, side=side), model.embed(inputs, side=side), rtol=1e-5, atol=1e-6)
    found, distances = model.search(query[:3], document, k=4)
    ranked = model.rank(query[:3], document, k=4)
    np.testing.assert_array_equal(np.sort(found), np.sort(ranked.documents))
    assert found.shape == distances.shape == (3, 4)


def _scores_of(query: Array, document: Array) -> tuple[Array, Array]:
    directions = np.random.default_rng(99).normal(size=(12, 3))
    scores = (query @ directions) @ (document @ directions).T
    return scores, np.quantile(scores, [0.5, 0.75, 0.9])


@pytest.mark.parametrize("loss", ["log-ratio", "lambda-ndcg", "cosent", "generalised-contrastive"])
def test_losses_over_label_distances_learn_from_grades(loss: str) -> None:
    query, document, grades = draw()
    judged = cml.Grades.from_matrix(some(grades), unjudged="zero")
    model = cml.fit((query, document), judged, loss=loss, **{**OPTIONS, "steps": 3})
    assert np.isfinite(model.embed(query, side="queries")).all()
    assert np.isfinite(model.history.losses).all()


@pytest.mark.filterwarnings("ignore:No anchor of the batch")  # all of its grades are 0
def test_cut_grades_train_with_queries_that_have_no_relevant_document() -> None:
    query, document, grades = draw()
    grades[8:] = np.minimum(grades[8:], 2)  # at most 8 of 60 queries have a relevant document
    cut = cml.Grades.from_matrix(some(grades)).at_least(3)
    for loss in ("lambda-ndcg(temperature=0.2)", "generalised-contrastive"):
        model = cml.fit((query, document), cut, loss=loss, **{**OPTIONS, "steps": 5})
        assert np.isfinite(model.history.losses).all()


def test_sides_may_be_of_different_kinds(tmp_path: Path) -> None:
    query, _, grades = draw(queries=12, documents=24)
    pictures = np.random.default_rng(3).integers(0, 255, (24, 16, 16, 3)).astype(np.uint8)
    names = {"queries": list("abcdefghijkl"), "documents": [f"d{number}" for number in range(24)]}
    judged = cml.Grades.from_matrix(grades, **names)
    sides = dict(zip(names["queries"], query, strict=True)), dict(zip(names["documents"], pictures, strict=True))
    own = torch.nn.Linear(12, 6)
    options = {**OPTIONS, "steps": 2, "image_size": (16, 16), "workers": 0}
    model = cml.fit(sides, judged, backbone=(own, "small-cnn"), weights="none", **options)
    ranking = model.rank(*sides)
    assert ranking.query_names[:2] == ["a", "b"]
    model.save(tmp_path / "model")
    again = cml.load(tmp_path / "model", backbone=(torch.nn.Linear(12, 6), None))
    np.testing.assert_allclose(again.embed(pictures), model.embed(pictures), rtol=1e-4, atol=1e-5)
    with pytest.raises(UserError, match=r"own module, of which only the weights were saved"):
        cml.load(tmp_path / "model")


def test_batches_are_queries_with_documents_of_each_grade() -> None:
    judged = np.full((30, 200), np.nan)
    judged[:, :100] = 0
    judged[:, 3] = 1
    judged[:, 5] = 2
    sampler = QueriesSampler(batch_size=44, documents=10)
    for unjudged in ("incomparable", "zero"):
        distance = GradedDistance(cml.Grades.from_matrix(judged, unjudged=unjudged))  # type: ignore[arg-type]
        state = sampler.sampler_state(TrainingLabels(distance, distance.encode(range(230))))
        seen = []
        for step in range(8):
            batch = sampler.batch(state, seed=1, step=step)
            queries, documents = batch.items[: batch.anchors], batch.items[batch.anchors :]
            assert batch.anchors == 4
            assert (queries < 30).all()
            assert (documents >= 30).all()
            assert len(set(batch.items.tolist())) == len(batch.items) <= 44
            assert {33, 35} <= set(documents.tolist())  # the two that are no 0, of every query
            assert len(batch.items) == 44 or unjudged == "incomparable"
            seen += queries.tolist()
        assert set(seen[:30]) == set(range(30))  # an epoch


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label_distance": "euclidean"}, "takes no 'label_distance': grades say how near"),
        ({"sample_weight": [1] * 4}, "takes no 'sample_weight'"),
        ({"evaluate_every": 5}, "4 queries are too few to hold 8 of them out for validation"),
        ({"groups": [0] * 3}, "'groups' must name a group for each input. Got 3 names and 4 inputs"),
        ({"backbone": ("none",)}, r"takes one network, or two: .queries, documents.. Got 1"),
        ({"backbone": ("none", "none"), "freeze_backbone": True}, "A frozen network for each side"),
    ],
)
def test_options_that_grades_leave_no_room_for_are_named(change: dict[str, Any], message: str) -> None:
    query, document, grades = draw(queries=4, documents=6)
    with pytest.raises(UserError, match=message):
        cml.fit((query, document), cml.Grades.from_matrix(grades), **{**OPTIONS, **change})


def test_sides_that_do_not_fit_are_named() -> None:
    query, document, grades = draw(queries=4, documents=6)
    judged = cml.Grades.from_matrix(grades)
    with pytest.raises(UserError, match=r"one shape. Got \(12,\) and \(5,\) instead; give a network for each"):
        cml.fit((query, document[:, :5]), judged, **OPTIONS)
    with pytest.raises(UserError, match=r"Grades are of two sides"):
        cml.fit(query, judged, **OPTIONS)
    with pytest.raises(UserError, match=r"A network for each of two sides is for graded search"):
        cml.fit(query, [1, 2, 3, 4], backbone=("none", "none"), **OPTIONS)
    model = cml.fit((query, document), judged, **{**OPTIONS, "steps": 1})
    with pytest.raises(UserError, match=r"'side' should be queries or documents. Got 'query'"):
        model.embed(query, side="query")
    with pytest.raises(UserError, match=r"no labels to predict: rank documents by model.rank"):
        model.predict(query)


def test_an_interrupted_training_leaves_a_search_model() -> None:
    def interrupt(state: Any) -> None:  # noqa: ANN401
        if state.step == 2:
            raise KeyboardInterrupt

    query, document, grades = draw()
    with pytest.raises(cml.Interrupted) as stop:
        cml.fit(
            (query, document),
            cml.Grades.from_matrix(grades),
            backbone=("none", "none"),
            callbacks=[cml.Callback(on_step=interrupt)],
            **OPTIONS,
        )
    assert stop.value.model.embed(query, side="queries").shape == (60, 16)
