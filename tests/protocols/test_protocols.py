"""Protocols: their figures beside scikit-learn's and plain loops, their intervals by simulation, their errors."""

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV
from sklearn.metrics import (
    average_precision_score,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    roc_curve,
    root_mean_squared_error,
)
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cml import distances, protocols
from cml.array_types import Float32, Float64, Int64
from cml.distances import LabelDistance, Labels
from cml.errors import UserError
from cml.protocols import CompactCodes, EmbeddedItems, FewShot, Regression, ReIdentification, Verification
from cml.protocols.figures import jackknife
from cml.retrieval.label_regression import ALPHAS


def draw_numbers(rng: np.random.Generator, items: int, width: int) -> tuple[Float32, Float64]:
    """Embeddings (N, 4) and labels (N, width) that they tell of."""
    labels: Float64 = rng.normal(size=(items, width))
    mix = np.random.default_rng(5).normal(size=(width, 4))
    return (labels @ mix + 0.3 * rng.normal(size=(items, 4))).astype(np.float32), labels


@pytest.mark.parametrize("width", [1, 3])
def test_errors_are_those_of_scikit_learn(width: int) -> None:
    rng = np.random.default_rng(0)
    distance = distances.get("euclidean")
    (known, known_labels), (asked, labels) = draw_numbers(rng, 150, width), draw_numbers(rng, 80, width)
    result = Regression(k=7).measure(
        distance, EmbeddedItems(asked, distance.encode(labels)), EmbeddedItems(known, distance.encode(known_labels))
    )
    probe = make_pipeline(StandardScaler(), RidgeCV(alphas=ALPHAS))
    expected = {
        "knn": KNeighborsRegressor(7).fit(known, known_labels).predict(asked),
        "probe": probe.fit(known.astype(float), known_labels).predict(asked.astype(float)),
    }
    for row, predicted in expected.items():
        predicted = predicted.reshape(labels.shape)
        figures = result.figures[row]
        assert figures["mae"].value == pytest.approx(mean_absolute_error(labels, predicted), abs=1e-12)
        assert figures["rmse"].value == pytest.approx(root_mean_squared_error(labels, predicted), abs=1e-12)
        assert figures["r2"].value == pytest.approx(r2_score(labels, predicted), abs=1e-12)
        assert ("spearman" in figures) == (width == 1)
        assert figures["mae"].low < figures["mae"].value < figures["mae"].high


def test_neighbours_among_each_other_leave_the_query_and_its_group_out() -> None:
    distance = distances.get("euclidean")
    rows = np.arange(40, dtype=np.float32)[:, None]
    labels = np.arange(40.0)
    alone = Regression(k=1).measure(distance, EmbeddedItems(rows, distance.encode(labels)))
    assert alone.figures["knn"]["mae"].value == pytest.approx(1)
    pairs = EmbeddedItems(rows, distance.encode(labels), np.arange(40) // 2)
    errors = [2.0 if number in (0, 39) else 1.0 for number in range(40)]
    assert Regression(k=1).measure(distance, pairs).figures["knn"]["mae"].value == pytest.approx(np.mean(errors))


def test_angles_are_compared_on_their_circle() -> None:
    rng = np.random.default_rng(1)
    angles = rng.uniform(0, 360, 200)
    turned = np.radians(angles)
    rows = np.stack([np.cos(turned), np.sin(turned)], axis=1).astype(np.float32)
    distance = distances.get("circular")
    items = EmbeddedItems(rows, distance.encode(angles))
    result = Regression(k=3).measure(distance, items)
    apart = np.square(rows[:, None] - rows).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    nearest = np.argsort(apart, axis=1, kind="stable")[:, :3]
    mean = np.angle(np.exp(1j * turned[nearest]).mean(axis=1))
    errors = np.degrees(np.abs(np.angle(np.exp(1j * (mean - turned)))))
    assert result.figures["knn"]["mae"].value == pytest.approx(errors.mean(), rel=1e-5)
    assert result.figures["probe"]["mae"].value < 0.1  # the embedding is the circle
    assert "spearman" not in result.figures["knn"]


def test_errors_by_region_of_the_label() -> None:
    labels = np.concatenate([np.full(150, 0.5), np.full(50, 1.5), np.full(10, 2.5)])
    distance = distances.get("euclidean")
    gallery = EmbeddedItems(labels[:, None].astype(np.float32), distance.encode(labels))
    asked = np.array([0.5, 0.5, 1.5, 1.5, 2.5, 3.5])
    queries = EmbeddedItems(asked[:, None].astype(np.float32), distance.encode(asked))
    figures = Regression(k=5, bin_width=1.0).measure(distance, queries, gallery).figures["knn"]
    assert figures["mae_many"].value == figures["mae_medium"].value == 0
    assert figures["mae_few"].value == pytest.approx(0.5)  # 2.5 is found, 3.5 has no item in its bin


def draw_classes(
    rng: np.random.Generator, classes: int, size: int, noise: float
) -> tuple[LabelDistance, Float32, Int64, Labels]:
    centres = rng.normal(size=(classes, 6))
    numbers = np.repeat(np.arange(classes), size)
    rows = centres[numbers] + noise * rng.normal(size=(len(numbers), 6))
    distance = distances.get("classes")
    return distance, rows.astype(np.float32), numbers, distance.encode([f"c{number:03}" for number in numbers])


def test_verification_is_scikit_learns_curve() -> None:
    distance, rows, numbers, labels = draw_classes(np.random.default_rng(2), 30, 5, 1.0)
    result = Verification(false_accepts=(0.1, 0.01), folds=5).measure(distance, EmbeddedItems(rows, labels))
    figures = result.figures["embedding"]
    first, second = np.triu_indices(len(rows), 1)
    apart = np.linalg.norm(rows[first].astype(float) - rows[second], axis=1)
    is_same = numbers[first] == numbers[second]
    false, true, _ = roc_curve(is_same, -apart, drop_intermediate=False)
    assert figures["auc"].value == pytest.approx(roc_auc_score(is_same, -apart), abs=1e-12)
    assert figures["tar@0.1"].value == pytest.approx(true[false <= 0.1][-1], abs=1e-12)
    assert figures["tar@0.01"].value == pytest.approx(true[false <= 0.01][-1], abs=1e-12)
    at = np.argmin(np.abs(false - (1 - true)))
    assert figures["eer"].value == pytest.approx(false[at], abs=0.01)
    assert figures["eer"].value < figures["accuracy"].value <= 1
    drawn = Verification(most_pairs=200, folds=5).measure(distance, EmbeddedItems(rows, labels))
    assert drawn.figures["embedding"]["auc"].value == pytest.approx(figures["auc"].value, abs=0.08)
    assert "200 pairs of the same class and 200 of different ones" in drawn.note


def test_re_identification_leaves_out_the_query_s_own_camera() -> None:
    rng = np.random.default_rng(3)
    distance, rows, numbers, labels = draw_classes(rng, 12, 8, 1.5)
    cameras = rng.integers(0, 3, len(rows))
    is_query = rng.random(len(rows)) < 0.3
    where = np.flatnonzero(is_query), np.flatnonzero(~is_query)
    sides = [EmbeddedItems(rows[some], labels[some], cameras[some]) for some in where]
    figures = ReIdentification(ranks=(1, 3)).measure(distance, *sides).figures["embedding"]
    first, third, precision, penalty = [], [], [], []
    for query in where[0]:
        ranked = [
            item for item in where[1] if not (numbers[item] == numbers[query] and cameras[item] == cameras[query])
        ]
        apart = np.linalg.norm(rows[ranked].astype(float) - rows[query], axis=1)
        hits = numbers[np.array(ranked)][np.argsort(apart)] == numbers[query]
        if hits.any():
            first.append(hits[0])
            third.append(hits[:3].any())
            precision.append(average_precision_score(numbers[np.array(ranked)] == numbers[query], -apart))
            penalty.append(hits.sum() / (np.flatnonzero(hits)[-1] + 1))
    expected = {"cmc@1": first, "cmc@3": third, "map": precision, "minp": penalty}
    for name, values in expected.items():
        assert figures[name].value == pytest.approx(np.mean(values), abs=1e-12)


def test_few_shot_tells_classes_by_their_means() -> None:
    distance, rows, _, labels = draw_classes(np.random.default_rng(4), 20, 12, 1.0)
    figures = (
        FewShot(shots=(1, 5, 20), episodes=100).measure(distance, EmbeddedItems(rows, labels)).figures["embedding"]
    )
    assert 0.2 < figures["accuracy@1"].value < figures["accuracy@5"].value < 1
    assert np.isnan(figures["accuracy@20"].value)  # of 12 items
    noise = EmbeddedItems(np.random.default_rng(0).normal(size=rows.shape).astype(np.float32), labels)
    chance = FewShot(shots=(5,), episodes=300).measure(distance, noise).figures["embedding"]["accuracy@5"]
    assert chance.value == pytest.approx(0.2, abs=0.06)


def test_codes_lose_what_their_decoded_neighbours_lose() -> None:
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(400, 16)).astype(np.float32)
    labels = rows[:, 0].astype(float)
    distance = distances.get("euclidean")
    sides = [EmbeddedItems(rows[some], distance.encode(labels[some])) for some in (slice(0, 50), slice(50, 400))]
    forms = ("float32", "float16", "int8", "binary", "pq")
    figures = CompactCodes(forms=forms, k=5, part=4).measure(distance, *sides).figures
    assert [figures[form]["bytes"].value for form in forms] == [64, 32, 16, 2, 4]
    query, gallery = rows[:50].astype(float), rows[50:].astype(float)

    def nearest(left: Float64, right: Float64) -> list[list[int]]:
        return [np.argsort(np.square(right - one).sum(axis=1), kind="stable")[:5].tolist() for one in left]

    exact = nearest(query, gallery)
    far = np.mean([abs(labels[:50][row] - labels[50:][found]) for row, found in enumerate(exact)])
    assert figures["float32"]["label_distance"].value == pytest.approx(far, rel=1e-6)
    assert figures["float32"]["recall"].value == 1
    middle = np.median(rows[50:], axis=0)
    signs = nearest((rows[:50] > middle).astype(float), (rows[50:] > middle).astype(float))
    share = np.mean([len({*ours} & {*theirs}) / 5 for ours, theirs in zip(exact, signs, strict=True)])
    assert figures["binary"]["recall"].value == pytest.approx(share)
    recalls = [figures[form]["recall"].value for form in ("float16", "int8", "pq", "binary")]
    assert recalls == sorted(recalls, reverse=True)
    assert figures["int8"]["recall"].value > 0.95
    alone = CompactCodes(forms=("float32",), k=5).measure(distance, sides[1]).figures["float32"]["label_distance"]
    assert alone.value > 0  # the query itself is at distance 0


def test_intervals_of_a_mean_cover_it() -> None:
    rng, hits = np.random.default_rng(6), 0
    for _ in range(400):
        values = rng.exponential(size=60)
        figure = jackknife(lambda kept, of=values: {"mean": float(of[kept].mean())}, 60, seed=0)["mean"]
        hits += figure.low <= 1 <= figure.high
    assert 0.9 <= hits / 400 <= 0.985


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol", [Regression(k=5), CompactCodes(forms=("binary",), k=5), ReIdentification(ranks=(1,))]
)
def test_intervals_among_each_other_count_items_on_both_sides(protocol: protocols.Protocol) -> None:
    """Of queries that search each other: given the lists, .50 to .91 of the intervals cover."""
    found: dict[str, list[protocols.Figure]] = {}
    for seed in range(100):
        rng = np.random.default_rng(seed)
        if isinstance(protocol, ReIdentification):
            distance, rows, _, labels = draw_classes(rng, 12, 6, 0.7)
            items = EmbeddedItems(rows, labels, rng.integers(0, 3, len(rows)))
        else:
            distance = distances.get("euclidean")
            rows, numbers = draw_numbers(rng, 60, 1)
            items = EmbeddedItems(rows, distance.encode(numbers))
        figures = next(iter(protocol.measure(distance, items).figures.values()))
        for name, figure in figures.items():
            found.setdefault(name, []).append(figure)
    for name, drawn in found.items():
        truth = np.mean([figure.value for figure in drawn])
        covered = [figure.low <= truth <= figure.high for figure in drawn if name != "bytes"]
        assert not covered or np.mean(covered) >= 0.88, name


@pytest.mark.parametrize("name", ["few-shot", "re-identification", "verification"])
def test_labels_that_are_no_classes_are_refused(name: str) -> None:
    distance = distances.get("euclidean")
    items = EmbeddedItems(np.eye(6, dtype=np.float32), distance.encode(np.arange(6.0)))
    with pytest.raises(
        UserError, match=f"protocol '{name}' needs labels that are classes. Got the label distance 'eucl"
    ):
        protocols.get(name).measure(distance, items)


def test_what_cannot_be_measured_is_refused() -> None:
    classes = distances.get("classes")
    items = EmbeddedItems(np.eye(6, dtype=np.float32), classes.encode(list("abcdef")))
    with pytest.raises(UserError, match="needs labels that are numbers, vectors, angles or places"):
        Regression().measure(classes, items)
    with pytest.raises(UserError, match=r"Got 0 and 15 instead"):
        Verification().measure(classes, items)
    with pytest.raises(UserError, match="No query has a gallery item of its class"):
        ReIdentification().measure(classes, items)
    with pytest.raises(UserError, match="needs at least 5 classes with 2 items each"):
        FewShot().measure(classes, items)
    with pytest.raises(UserError, match=r"Lists of k=10 need as many items to search. Got 6 instead"):
        CompactCodes().measure(classes, items)
    with pytest.raises(
        UserError, match=r"'forms' must be one of float32, float16, int8, binary, pq\. Got 'int4' instead"
    ):
        CompactCodes(forms=("int4",))
    with pytest.raises(UserError, match="'false_accepts'"):
        Verification(false_accepts=(1.5,))
    with pytest.raises(UserError, match=r"Unknown protocol .verificatoin.\. Did you mean 'verification'"):
        protocols.get("verificatoin")
