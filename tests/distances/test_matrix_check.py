"""Matrices of label distances: what is no matrix of distances is refused at every door, and rounding never is."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import cml
from cml.array_types import Float64
from cml.distances import matrix_check
from cml.distances.precomputed import Precomputed
from cml.errors import ImplausibleData, UserError
from cml.losses import LogRatioLoss

ITEMS = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ITEMS, 8)).astype(np.float32)
Y = X[:, 0].astype(np.float64)
D = np.abs(Y[:, None] - Y)
NAMES = [f"sample{item}" for item in range(ITEMS)]
ORDER = RNG.permutation(ITEMS)
VECTORS = RNG.normal(size=(ITEMS, 5)).astype(np.float32)
OPTIONS: dict[str, Any] = {"steps": 2, "sampler": "random(batch_size=20)", "quiet": True}


def noisy(scale: float, seed: int = 1) -> Float64:
    """The matrix with an error in each number, relative to the largest; 0 stays on the diagonal."""
    noise = np.random.default_rng(seed).uniform(-1, 1, D.shape) * scale * D.max()
    return np.maximum(D + np.where(np.eye(ITEMS) > 0, 0, noise), 0)


def with_value(value: float, row: int = 3, column: int = 5) -> Float64:
    matrix = D.copy()
    matrix[row, column] = matrix[column, row] = value
    return matrix


def named(matrix: Float64, order: Any = ORDER) -> pd.DataFrame:  # noqa: ANN401
    return pd.DataFrame(matrix, NAMES, NAMES).iloc[order, order]


MISTAKES: dict[str, Any] = {
    "more rows than inputs": np.pad(D, (0, 3), constant_values=2.0) * (1 - np.eye(ITEMS + 3)),
    "fewer rows than inputs": D[:-2, :-2],
    "rectangular": D[:, :-1],
    "pdist": D[np.triu_indices(ITEMS, 1)],
    "upper triangle": np.triu(D),
    "lower triangle": np.tril(D),
    "upper triangle, infinity below": np.where(np.tri(ITEMS, k=-1) > 0, np.inf, D),
    "similarities": np.exp(-D),
    "correlations": np.corrcoef(VECTORS),
    "cosines": VECTORS @ VECTORS.T / np.outer(*[np.linalg.norm(VECTORS, axis=1)] * 2),
    "similarities, zero diagonal": np.exp(-D) * (1 - np.eye(ITEMS)),
    "classes alike, zero diagonal": (np.arange(ITEMS)[:, None] % 4 == np.arange(ITEMS) % 4) * (1 - np.eye(ITEMS)),
    "NaN": with_value(np.nan),
    "-1 for unknown": with_value(-1.0) * np.where(with_value(-1.0) < 0, 1, 1e6),
    "negative": -D,
    "asymmetry of 1e-2": noisy(1e-2),
    "asymmetry of 1e-3": noisy(1e-3),
    "asymmetry of 1e-4": noisy(1e-4),
    "wholly asymmetric": RNG.uniform(0, 2, D.shape) * (1 - np.eye(ITEMS)),
    "one name twice": named(D, ORDER).set_axis([*NAMES[:-1], NAMES[0]]).set_axis([*NAMES[:-1], NAMES[0]], axis=1),
    "names of rows and columns differ": pd.DataFrame(D, NAMES, NAMES[::-1]),
}
SOUND: dict[str, Any] = {
    "float64": D,
    "float32": D.astype(np.float32),
    "float16": np.abs(Y.astype(np.float16)[:, None] - Y.astype(np.float16)),
    "whole numbers": np.abs(np.arange(ITEMS)[:, None] - np.arange(ITEMS)),
    "tiny": 1e-9 * D,
    "huge": 1e9 * D,
    "infinity for no comparison": with_value(np.inf),
    "infinite diagonal": D + np.diag([np.inf] * ITEMS),
    "1 - cosine": 1 - VECTORS @ VECTORS.T / np.outer(*[np.linalg.norm(VECTORS, axis=1)] * 2).astype(np.float32),
    "1 - cosine of like vectors": 1
    - (lambda unit: unit @ unit.T)((VECTORS / 9 + 1) / np.linalg.norm(VECTORS / 9 + 1, axis=1, keepdims=True)),
    "1 - cosine in half precision": 1
    - (lambda unit: unit @ unit.T)((VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)).astype(np.float16)),
    "classes that differ, bool": np.arange(ITEMS)[:, None] % 4 != np.arange(ITEMS) % 4,
    "a frame of objects": pd.DataFrame(D).astype(object),
    "1 - corrcoef": 1 - np.corrcoef(VECTORS),
    "torch.cdist": torch.cdist(torch.tensor(VECTORS), torch.tensor(VECTORS)),
    "torch.cdist of pixels": torch.cdist(*[torch.tensor(128 + 50 * VECTORS)] * 2),
    "rounding of 1e-7": noisy(1e-7),
    "rounding of 1e-7, tiny": 1e-6 * noisy(1e-7),
    "rounding of 1e-6, huge": 1e6 * noisy(1e-6),
    "classes": (np.arange(ITEMS)[:, None] % 4 != np.arange(ITEMS) % 4).astype(float),
    "distances of noise": np.linalg.norm(VECTORS[:, None] - VECTORS, axis=2),
    "named, in another order": named(D),
}


def fit(matrix: Any) -> None:  # noqa: ANN401
    inputs = pd.DataFrame(X, NAMES, [f"f{column}" for column in range(8)])
    cml.fit(inputs, features="f*", label_distance=matrix, **OPTIONS)


def compare(matrix: Any) -> None:  # noqa: ANN401
    distance = cml.distances.as_label_distance(matrix)
    rows = distance.encode(range(ITEMS) if distance.names is None else NAMES)  # type: ignore[attr-defined]
    if distance.items != ITEMS:  # type: ignore[attr-defined]
        raise UserError("the size is seen")
    block = distance.pairwise(rows, rows)
    assert (block >= 0).all()
    finite = np.isfinite(block)
    assert (block[finite & (np.eye(ITEMS) > 0)] == 0).all()
    np.testing.assert_array_equal(block, block.T)


def evaluate(matrix: Any) -> None:  # noqa: ANN401
    MODEL[0].evaluate(pd.DataFrame(X, NAMES, [f"f{column}" for column in range(8)]), label_distance=matrix)


def own_loop(matrix: Any) -> None:  # noqa: ANN401
    block = torch.tensor(np.asarray(matrix, np.float64))
    LogRatioLoss()(torch.randn(ITEMS, 6, dtype=torch.float64, requires_grad=True), block)


MODEL: list[Any] = []


@pytest.fixture(scope="module", autouse=True)
def model() -> None:
    inputs = pd.DataFrame(X, NAMES, [f"f{column}" for column in range(8)])
    MODEL[:] = [cml.fit(inputs, Y, features="f*", **OPTIONS)]


DOORS: dict[str, Callable[[Any], None]] = {"fit": fit, "distances": compare, "evaluate": evaluate, "loss": own_loop}
# a batch has no names, and no size but its own; a symmetric distance of a user's own may be stored in one triangle
OF_DOORS = ("names", "name", "more rows", "fewer rows")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_no_mistake_is_silent(door: str, mistake: str) -> None:
    if door == "loss" and any(word in mistake for word in OF_DOORS):
        return
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            DOORS[door](MISTAKES[mistake])
        except (UserError, ValueError):
            return
    texts = [str(one.message) for one in said if issubclass(one.category, ImplausibleData)]
    assert texts, "accepted without a word"
    assert "zero diagonal" in mistake or door == "loss"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("matrix", SOUND)
def test_no_sound_matrix_is_refused(door: str, matrix: str) -> None:
    given = SOUND[matrix]
    if door == "loss":
        if "named" in matrix:
            return
        given = np.maximum(np.asarray(given, np.float64), 0)  # a loss takes what a label distance gives
    with warnings.catch_warnings():
        warnings.simplefilter("error", ImplausibleData)
        warnings.filterwarnings("ignore", "LogRatioLoss was not fitted")
        DOORS[door](given)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("pdist", "as pdist gives for 40 items: make it a matrix by scipy.spatial.distance.squareform"),
        ("upper triangle", r"has distances above the diagonal alone\. Mirror them, D \+ D.T, or give symmetric=False"),
        ("lower triangle", r"has distances below the diagonal alone\. Mirror them, D \+ D.T"),
        ("upper triangle, infinity below", r"Mirror them, numpy.minimum\(D, D.T\)"),
        ("similarities", r"has 1 at row 0, column 0; .* Is this a matrix of similarities\?"),
        ("correlations", r"Is this a matrix of similarities\?"),
        ("asymmetry of 1e-4", r"at row 0, column \d+, but .* at row \d+, column 0\. Average them"),
        ("one name twice", "two rows of the name 'sample0'"),
        ("names of rows and columns differ", r"Row 0 is 'sample0' and column 0 'sample39'\. Reorder it"),
    ],
)
def test_a_mistake_is_named_with_its_mend(mistake: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        cml.distances.as_label_distance(MISTAKES[mistake])


def test_the_mend_of_pairs_known_in_one_direction_loses_none() -> None:
    half = D.copy()
    half[5, 3] = half[1, 9] = np.inf
    with pytest.raises(UserError, match=r"Take the smaller, numpy\.minimum\(D, D\.T\), or give symmetric=False"):
        Precomputed(half)
    mended = Precomputed(np.minimum(half, half.T))
    rows = mended.encode(range(ITEMS))
    np.testing.assert_allclose(mended.pairwise(rows, rows), D, rtol=1e-6)


def test_what_a_mask_hides_is_no_comparison() -> None:
    masked = Precomputed(np.ma.masked_array(D, D > 2))
    rows = masked.encode(range(ITEMS))
    np.testing.assert_array_equal(masked.pairwise(rows, rows), np.where(D > 2, np.inf, D).astype(np.float32))


def test_more_rows_than_inputs_are_named() -> None:
    with pytest.raises(UserError, match=r"There are 40 inputs, and the label distances have 43 rows\. Say which row"):
        cml.fit(X, label_distance=MISTAKES["more rows than inputs"], **OPTIONS)
    triples = cml.distances.SparseDistances.from_triples([0, 1], [1, 2], [1.0, 2.0], items=43)
    with pytest.raises(UserError, match="the label distances have 43 rows"):
        cml.fit(X, label_distance=triples, **OPTIONS)


def test_names_put_a_matrix_in_order() -> None:
    frame = pd.DataFrame(X, NAMES, [f"f{column}" for column in range(8)])
    options = OPTIONS | {"features": "f*"}
    right = cml.fit(frame, label_distance=D, **options).embed(frame)
    np.testing.assert_array_equal(cml.fit(frame, label_distance=named(D), **options).embed(frame), right)
    by_label = cml.fit(frame, NAMES, label_distance=named(D), **options)
    np.testing.assert_array_equal(by_label.embed(frame), right)
    with pytest.raises(UserError, match="no row of the name 'other', as 1 of 40 inputs have none"):
        cml.fit(frame.rename({NAMES[7]: "other"}), label_distance=named(D), **options)
    with pytest.raises(UserError, match=r"should be one of the 40 names of the matrix .* Got 'other' instead"):
        cml.fit(frame, [*NAMES[:-1], "other"], label_distance=named(D), **options)
    numbers = frame.reset_index(drop=True)
    with pytest.raises(UserError, match="The inputs have the names 0 to 39 in another order"):
        cml.fit(numbers.iloc[ORDER], label_distance=D, **options)


def test_names_of_a_stored_matrix_are_read_from_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", D[np.ix_(ORDER, ORDER)].astype(np.float32))
    (tmp_path / "names.txt").write_text("".join(f"{NAMES[item]}\n" for item in ORDER))
    files = {"path": str(tmp_path / "d.npy"), "names_path": str(tmp_path / "names.txt")}
    made = cml.distances.get("precomputed", **files)
    for distance in (made, pickle.loads(pickle.dumps(made))):
        labels = distance.encode(NAMES)
        np.testing.assert_allclose(distance.pairwise(labels, labels), D, atol=1e-6)
    with pytest.raises(UserError, match="should be one of the 40 names of"):
        made.encode(["sample99"])
    (tmp_path / "names.txt").write_text("one\n" * ITEMS)
    with pytest.raises(UserError, match=r"names\.txt:2: the id 'one' is that of line 1 as well"):
        cml.distances.get("precomputed", **files)
    with pytest.raises(UserError, match=r"'names_path' names the rows of a \.npy file"):
        Precomputed(D, names_path="names.txt")


def test_a_series_of_labels_is_put_in_order() -> None:
    frame = pd.DataFrame(X, NAMES, [f"f{column}" for column in range(8)])
    options = OPTIONS | {"features": "f*"}
    shuffled = frame.iloc[ORDER]
    right = cml.fit(shuffled, Y[ORDER], **options).embed(frame)
    np.testing.assert_array_equal(cml.fit(shuffled, pd.Series(Y, NAMES), **options).embed(frame), right)
    np.testing.assert_array_equal(cml.fit(shuffled, pd.DataFrame({"y": Y}, NAMES), **options).embed(frame), right)
    np.testing.assert_array_equal(cml.fit(shuffled, pd.Series(Y[ORDER]), **options).embed(frame), right)  # no names
    with pytest.raises(UserError, match="'labels' has no row for 1 of the 40 inputs, the first by the name of 'samp"):
        cml.fit(shuffled, pd.Series(Y, NAMES).iloc[1:], **options)
    with pytest.raises(UserError, match="have the numbers 0 to 39 as names, in another order"):
        cml.fit(frame.reset_index(drop=True).iloc[ORDER], pd.Series(Y), **options)


def test_directions_are_taken_where_they_are_declared() -> None:
    directed = np.maximum(Y[:, None] - Y, 0)
    distance = cml.distances.as_label_distance(directed, symmetric=False)
    rows = distance.encode(range(ITEMS))
    assert not distance.is_symmetric
    np.testing.assert_array_equal(distance.pairwise(rows, rows), directed.astype(np.float32))
    cml.fit(X, label_distance=distance, **OPTIONS)


@pytest.mark.parametrize("door", ["array", "file", "memory map"])
def test_rounding_is_mended(door: str, tmp_path: Path) -> None:
    matrix = noisy(1e-7).astype(np.float32)
    matrix[3, 3], matrix[3, 5], matrix[5, 3] = 1e-3 * D.max(), -1e-7, 0
    np.save(tmp_path / "matrix.npy", matrix)
    given: Any = {"array": matrix, "file": str(tmp_path / "matrix.npy")}.get(door)
    distance = Precomputed(np.load(tmp_path / "matrix.npy", mmap_mode="r") if given is None else given)
    assert isinstance(distance._stored.arrays[0], np.memmap) == (door != "array")
    for again in (distance, pickle.loads(pickle.dumps(distance))):
        rows = again.encode(range(ITEMS))
        block = again.pairwise(rows, rows)
        assert (block.diagonal() == 0).all()
        assert block.min() == 0
        np.testing.assert_array_equal(block, block.T)
        np.testing.assert_allclose(block, np.maximum((matrix + matrix.T) / 2, 0) * (1 - np.eye(ITEMS)), rtol=1e-6)
    if door != "array":
        assert len(pickle.dumps(distance)) < 2000


@pytest.mark.parametrize("tile", [7, 16, 40])
def test_tiles_see_what_the_whole_shows(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_check, "_TILE", tile)
    for row, column in ((0, 39), (38, 2), (20, 19), (7, 7)):
        for value in (np.nan, -0.5, 7.0, 1e39):
            matrix = D.copy()
            matrix[row, column] = value
            if row == column and value == 1e39:
                continue
            with pytest.raises(UserError) as caught:
                cml.distances.as_label_distance(matrix)
            assert f"row {row}, column {column}" in str(caught.value)
    for mistake in ("upper triangle", "similarities", "asymmetry of 1e-4"):
        with pytest.raises(UserError):
            cml.distances.as_label_distance(MISTAKES[mistake])
    for sound in SOUND.values():
        cml.distances.as_label_distance(sound)


@pytest.mark.parametrize("seed", range(20))
def test_distances_are_not_taken_for_similarities(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(60, 1 + seed % 10)) if seed % 2 else rng.normal(size=(6, 3))[rng.integers(0, 6, 60)]
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    for matrix in (apart, apart**2, np.sqrt(apart), np.log1p(apart), rng.uniform(1, 2, (60, 60)) * (1 - np.eye(60))):
        assert not matrix_check.has_reversed_order(np.maximum(matrix, matrix.T))
    for similar in (np.exp(-apart), 1 / (1 + apart)):
        assert matrix_check.has_reversed_order(similar * (1 - np.eye(60)))


def test_a_batch_of_two_sides_is_no_similarity() -> None:
    """[queries; documents]: infinity inside the queries."""
    block = torch.tensor(np.abs(Y[:10, None] - Y))
    block[:, :10] = torch.inf
    loss = LogRatioLoss().fit("euclidean", Y)
    assert loss(torch.randn(ITEMS, 6, dtype=torch.float64), block).isfinite()


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_what_roots_leave_on_a_diagonal_is_rounding_and_more_is_not(share: float) -> None:
    matrix, loss = D + share * D.max() * np.eye(ITEMS), LogRatioLoss().fit("euclidean", Y)
    embeddings = torch.randn(ITEMS, 6, dtype=torch.float64)
    if share < matrix_check.DIAGONAL:
        assert loss(embeddings, torch.tensor(matrix)).isfinite()
        compare(matrix)
        return
    with pytest.raises(UserError, match=r"similarities\?"):
        loss(embeddings, torch.tensor(matrix))
    with pytest.raises(UserError, match=r"similarities\?"):
        compare(matrix)
