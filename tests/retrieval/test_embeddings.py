"""Evaluating embeddings of any network, what evaluations refuse, and blocks and constants that losses are given."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

import cml
from cml import distances, losses
from cml.distances import as_label_distance
from cml.errors import UserError
from cml.retrieval import embedding_ranker, evaluate, evaluate_embeddings, random_ranker

AGES = np.random.default_rng(0).uniform(0, 80, 120)
POINTS = np.stack([np.sin(AGES / 30), np.cos(AGES / 30)], axis=1).astype(np.float32)
EUCLIDEAN = distances.get("euclidean")


def test_embeddings_of_any_network_in_every_form() -> None:
    found = evaluate_embeddings(POINTS, AGES)
    assert list(found.rows) == ["embedding", "random", "oracle"]
    assert (found.queries, found.gallery) == (120, 119)
    assert found.verdict.startswith("Verdict: better than random")
    labels = EUCLIDEAN.encode(AGES)
    rankers = {"embedding": embedding_ranker(POINTS, POINTS), "random": random_ranker(120, 120)}
    by_hand = evaluate(rankers, EUCLIDEAN, labels, labels, same_items=True)
    assert {key: by_hand.to_json()[key] for key in ("rows", "gain")} == {
        key: found.to_json()[key] for key in ("rows", "gain")
    }
    tensor = torch.from_numpy(POINTS).requires_grad_(True)
    matrix = np.abs(np.subtract.outer(AGES, AGES))
    for embeddings, given, distance in (
        (tensor, torch.from_numpy(AGES), "euclidean"),
        (tensor, labels, EUCLIDEAN),
        (POINTS.tolist(), range(120), matrix),
    ):
        again = evaluate_embeddings(embeddings, given, label_distance=distance)
        assert again.rows["embedding"]["score@10"].mean == pytest.approx(found.rows["embedding"]["score@10"].mean, 1e-6)
    apart = evaluate_embeddings(tensor[:40], AGES[:40], tensor[40:].bfloat16(), torch.from_numpy(AGES[40:]))
    assert (apart.queries, apart.gallery) == (40, 80)
    function = evaluate_embeddings(POINTS[:20], AGES[:20], label_distance=lambda a, b: float(abs(a - b)))
    assert function.rows["oracle"]["spearman_rho"].mean == 1
    classes = evaluate_embeddings(POINTS, torch.from_numpy(AGES > 40).long(), label_distance="classes")
    assert "map@r" in classes.rows["embedding"]


def test_what_cannot_be_evaluated_is_named() -> None:
    with pytest.raises(UserError, match=r"Each query needs a label\. Got 120 embeddings and 119 labels"):
        evaluate_embeddings(POINTS, AGES[1:])
    with pytest.raises(UserError, match="Got one without the other"):
        evaluate_embeddings(POINTS, AGES, gallery=POINTS)
    labels, other = EUCLIDEAN.encode(AGES), distances.get("circular").encode(AGES)
    ranker = {"mine": embedding_ranker(torch.from_numpy(POINTS), torch.from_numpy(POINTS))}
    with pytest.raises(UserError, match=r"'euclidean' compares encoded labels: .*encode\(labels\)\. Got ndar"):
        evaluate(ranker, EUCLIDEAN, AGES, labels, same_items=True)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"labels that it encoded itself: .* another one encoded, Labels\(ph"):
        evaluate(ranker, EUCLIDEAN, other, other, same_items=True)
    with pytest.raises(UserError, match=r"ranker 'mine' must be a function, .*embedding_ranker.* Got ndarray instead"):
        evaluate({"mine": POINTS}, EUCLIDEAN, labels, labels, same_items=True)  # type: ignore[dict-item]
    short = {"mine": embedding_ranker(POINTS[:100], POINTS[:100])}
    with pytest.raises(UserError, match=r"for 120 queries and 120 gallery items, \(120, 120\) .*shape \(\d+, 100\)"):
        evaluate(short, EUCLIDEAN, labels, labels, same_items=True)
    with pytest.raises(UserError, match=r"cml.fit and cml.load make it.* Got Linear and NoneType instead"):
        cml.Model(torch.nn.Linear(2, 2), None)  # type: ignore[arg-type]


def test_queries_that_are_the_gallery_and_do_not_say_so() -> None:
    labels, ranker = EUCLIDEAN.encode(AGES), {"mine": embedding_ranker(POINTS, POINTS)}
    with pytest.warns(UserWarning, match="each of them finds itself first"):
        evaluate(ranker, EUCLIDEAN, labels, EUCLIDEAN.encode(AGES))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(ranker, EUCLIDEAN, labels, labels, same_items=True)
        evaluate({"mine": embedding_ranker(POINTS[:9], POINTS)}, EUCLIDEAN, labels[:9], labels)


OVER_DISTANCES = [name for name in losses.names() if losses.registry.entry(name).labels == "label distances"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", OVER_DISTANCES)
def test_a_loss_takes_the_block_that_a_label_distance_gave(name: str) -> None:
    ages = EUCLIDEAN.encode(AGES[:12])
    block = EUCLIDEAN.pairwise(ages, ages)
    block.setflags(write=False)
    loss = losses.get(name, **({"loss": "contrastive"} if name == "binary" else {})).fit(block)
    points = torch.from_numpy(POINTS[:12])
    assert loss(points, block).item() == loss(points, torch.tensor(block)).item()


def test_a_square_of_label_distances_is_fitted_to_without_its_diagonal() -> None:
    block = torch.cdist(torch.from_numpy(AGES[:, None]), torch.from_numpy(AGES[:, None]))
    pairs = block[~torch.eye(120, dtype=torch.bool)]
    expected = losses.LogRatioLoss().fit(pairs).constants()
    assert losses.LogRatioLoss().fit(block).constants() == expected
    assert losses.LogRatioLoss().fit(block.numpy()).constants() == expected


def test_what_a_loss_needs_is_said_where_it_is_asked_for_something_else() -> None:
    with pytest.raises(UserError, match=r"ProxyAnchorLoss .* has no fit: call prepare\(classes, dimension=D\)"):
        losses.ProxyAnchorLoss().fit(EUCLIDEAN, AGES)
    with pytest.raises(UserError, match=r"has no fit: call prepare\(vectors, dimension=D\)"):
        losses.RegressionLoss().fit(EUCLIDEAN, AGES)
    with pytest.raises(UserError, match="has no fit: it needs no training labels"):
        losses.TripletLoss().fit(EUCLIDEAN, AGES)
    with pytest.raises(UserError, match=r"label vectors \(N, V\) .* Got shape \(120,\) instead; .* labels\[:, None\]"):
        losses.RegressionLoss().prepare(torch.from_numpy(AGES), dimension=1)
    state = losses.LogRatioLoss().fit(EUCLIDEAN, AGES).state_dict()
    with pytest.raises(UserError, match=r"CoSENTLoss has 0 fitted constants\. Got 2 of them in the state_dict instead"):
        losses.CoSENTLoss().load_state_dict(state)
    with pytest.raises(UserError, match=r"The 'loss' of binary is a text .* 'Linear\(\.\.\.\)'"):
        losses.BinaryLoss(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"must agree on normalising embeddings: .* Set that of the one"):
        losses.get("sum(rkd-distance, 0.5*cosent)")


@pytest.mark.parametrize("kind", [torch.tensor, list, np.array])
def test_a_matrix_by_name_and_by_itself(kind: Any) -> None:  # noqa: ANN401
    matrix = [[0.0, 2.0], [2.0, 0.0]]
    for distance in (distances.get("precomputed", path=kind(matrix)), as_label_distance(kind(matrix))):
        rows = distance.encode(torch.arange(2))
        assert distance.pairwise(rows, rows).tolist() == matrix
        assert "matrix (2, 2)" in repr(distance)
        assert len(repr(distance)) < 100


def test_labels_are_shown_shortly_and_sliced_by_a_batch() -> None:
    hours = distances.get("circular(period=24)")
    labels = hours.encode(torch.arange(2000) % 24)
    assert repr(labels) == "Labels(phases: float64 (2000, 1))"
    batch = torch.tensor([3, 1, 20])
    assert hours.pairwise(labels[batch], labels[batch])[0].tolist() == [0, 2, 7]
    assert labels[[3, 1]].fingerprint() == labels[np.array([3, 1])].fingerprint()
    assert (hours.unit, distances.get("circular").unit) == ("label units", "degrees")


def test_other_embeddings_are_arrays_or_pairs_with_those_of_the_gallery() -> None:
    rng = np.random.default_rng(5)
    rows, labels = rng.normal(size=(30, 3)), rng.normal(size=30)
    alone = evaluate_embeddings(rows, labels, others={"inputs": rows[:, :2]})
    pair = evaluate_embeddings(rows, labels, others={"inputs": (rows[:, :2], rows[:, :2])})
    assert alone.rows["inputs"]["spearman_rho"].mean == pair.rows["inputs"]["spearman_rho"].mean
    with pytest.raises(UserError, match="'others' maps 'inputs' to the embeddings of the queries and of the gallery"):
        evaluate_embeddings(rows, labels, rows, labels, others={"inputs": rows[:, :2]})
