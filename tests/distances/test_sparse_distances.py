from __future__ import annotations

import csv
import io
import math
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cml.distances
from cml.distances import Labels, SparseDistances, as_label_distance
from cml.distances.jobs.stored_lists import stored_neighbors
from cml.distances.jobs.summary import summarize
from cml.distances.label_distance import LabelDistance
from cml.distances.precomputed import Precomputed
from cml.distances.sets import Sets
from cml.errors import DataError, UserError

Triple = tuple[int, int, float]


def slow(triples: list[Triple], a: int, b: int, *, symmetric: bool = True) -> float:
    """The distance from item a to b, by a look at each triple."""
    if a == b:
        return 0.0
    for i, j, distance in triples:
        if (i, j) == (a, b) or (symmetric and (j, i) == (a, b)):
            return distance
    return math.inf


def make(triples: list[Triple], **options: Any) -> SparseDistances:  # noqa: ANN401 - of from_triples
    i, j, distance = zip(*triples, strict=True)
    return SparseDistances.from_triples(i, j, distance, **options)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Triple], list[int], bool]:
    """Triples of up to 8 items, each pair at most once, labels of some of the items, some of them twice; the way."""
    symmetric = draw(st.booleans())
    pairs = draw(st.lists(st.tuples(*[st.integers(0, 7)] * 2), min_size=1, max_size=25))
    values = st.sampled_from([0.0, 1.0, 1.0, 2.5, 3.0, math.inf])
    triples: list[Triple] = []
    for i, j in pairs:
        if i != j and (i, j) not in [t[:2] for t in triples] and not (symmetric and (j, i) in [t[:2] for t in triples]):
            triples.append((i, j, draw(values)))
    triples.append((3, 3, 0.0))
    return triples, draw(st.lists(st.integers(0, 7), min_size=3, max_size=12)), symmetric


@given(world=worlds(), k=st.integers(1, 2))
@settings(deadline=None, max_examples=200)
def test_equals_a_look_at_each_triple(world: tuple[list[Triple], list[int], bool], k: int) -> None:
    triples, items, symmetric = world
    distance = as_label_distance(make(triples, items=8, symmetric=symmetric), unit="h")
    labels = distance.encode(items)
    block = distance.pairwise(labels, labels)
    true = [[slow(triples, a, b, symmetric=symmetric) for b in items] for a in items]
    assert block.tolist() == true
    assert distance.pairwise(labels[1:3], labels[::-1]).tolist() == [row[::-1] for row in true[1:3]]
    assert (distance.is_symmetric, distance.is_partial, distance.is_metric, distance.unit) == (
        symmetric,
        True,
        False,
        "h",
    )

    by_pairs = LabelDistance.searcher(distance, labels, k)(0, len(items))  # of all pairs
    searched = distance.searcher(labels, k)
    for lists in (distance.neighbors(labels, k), searched(0, len(items)), stored_neighbors(distance, labels, k)):
        np.testing.assert_array_equal(lists.ids, by_pairs.ids)
        np.testing.assert_array_equal(lists.distances, by_pairs.distances)
    np.testing.assert_array_equal(searched(1, 3).ids, by_pairs.ids[1:3])

    known = distance.known_pairs(labels)
    assert known is not None
    count = len(items)
    expected = {
        (a, b): true[a][b]
        for a in range(count)
        for b in range(count)
        if a != b and true[a][b] < math.inf and (a < b or not symmetric)
    }
    assert len(known.distances) == len(expected)
    assert (
        dict(zip(zip(known.first.tolist(), known.second.tolist(), strict=True), known.distances.tolist(), strict=True))
        == expected
    )


def test_few_labels_of_far_apart_items() -> None:
    triples = [(5, 2_000_000_000, 2.0), (2_000_000_000, 1, 1.5), (7, 1, 3.0)]
    sparse = make(triples)
    assert sparse.items == 2_000_000_001
    distance = as_label_distance(sparse)
    items = [2_000_000_000, 7, 1, 5]
    labels = distance.encode(items)
    assert distance.pairwise(labels, labels).tolist() == [[slow(triples, a, b) for b in items] for a in items]
    assert distance.neighbors(labels, 2).ids.tolist() == [[2, 3], [2, -1], [0, 1], [0, -1]]


def test_all_ways_in_are_one(tmp_path: Path) -> None:
    i, j, values = np.array([0, 2, 3, 2]), np.array([1, 1, 0, 2]), np.array([2.5, 0.0, np.inf, 0])
    upper = scipy.sparse.coo_array((values[:2], (i[:2], j[:2])), shape=(5, 5))
    np.savez(tmp_path / "own.npz", i=i.astype(np.uint16), j=j, distance=values, items=5)
    np.savez_compressed(tmp_path / "packed.npz", i=i, j=j, distance=values.astype(np.float16), items=np.int16(5))
    sparse = SparseDistances.from_triples(
        torch.tensor(i), j.tolist(), torch.tensor(values, requires_grad=True), items=5
    )
    sparse.save(tmp_path / "saved.npz")
    ways: list[Any] = [sparse, upper, upper.tocsr(), upper.tocsc().T, scipy.sparse.csr_matrix(upper)]
    distances = [as_label_distance(way) for way in ways]
    distances += [Precomputed(upper), Precomputed(sparse)]
    files = [Precomputed(str(tmp_path / name)) for name in ("own.npz", "packed.npz", "saved.npz")]
    assert as_label_distance(f"precomputed(path='{tmp_path / 'own.npz'}')") == files[0]
    want = [[0, 2.5, np.inf], [2.5, 0, 0], [np.inf, 0, 0]]
    for distance in (*distances, *files):
        labels = distance.encode([0, 1, 2])
        assert distance.pairwise(labels, labels).tolist() == want
        with pytest.raises(UserError, match="Label 0 should be a row number from 0 to 4 of"):
            distance.encode([5])
    assert len({distance.fingerprint() for distance in files}) == 1
    assert distances[0].fingerprint() == distances[1].fingerprint()
    assert distances[0] == distances[1] != as_label_distance(make([(0, 1, 2.0)], items=5))
    assert len(pickle.dumps(files[0])) < 300


@pytest.mark.parametrize("name", ["judged.csv", "judged.parquet", "quoted.CSV"])
def test_tables_of_triples_are_read(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    i, j = np.nonzero(np.triu(rng.random((40, 40)) < 0.2, 1))
    table = pandas.DataFrame({"note": "x", "distance": rng.random(len(i)).round(3), "j": j, "i": i})
    table.loc[3, "distance"] = np.inf
    path = tmp_path / name
    if name.endswith("parquet"):
        table.to_parquet(path)
    else:
        quoting = csv.QUOTE_ALL if name.startswith("quoted") else csv.QUOTE_MINIMAL
        table.to_csv(path, index=False, quoting=quoting, encoding="utf-8-sig")
    own = SparseDistances.from_triples(i, j, table["distance"])
    read = as_label_distance(f"precomputed(path='{path}')")
    assert read.fingerprint() == Precomputed(own).fingerprint()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "i,j,value\n0,1,2\n", "there is no column 'distance'. There are: i, j, value"),
        ("a.csv", "", "there is no column 'i'"),
        ("a.csv", "i,j,distance\n", "There are no triples in"),
        ("a.csv", "i,j,distance\n0,1,2\n0,x,2\n", "line 3: could not convert string 'x'"),
        ("a.csv", "i,j,distance\n0,1,2\n0,1\n", "invalid column index"),
        ("a.csv", "i,j,distance\n0,1.5,2\n", r"'j' of .*a.csv should be \(T,\) whole numbers"),
        ("a.csv", "i,j,distance\n0,-1,2\n", "Triple 0 of .*a.csv has j=-1"),
        ("a.csv", "i,j,distance\n0,1,nan\n", "Triple 0 of .*a.csv, of the items 0 and 1, has the distance nan"),
        ("a.csv", "i,j,distance\n0,1,\xff\n", "cannot be read as triples of label distances"),
        ("a.parquet", "PAR1 nothing", r"cannot be read as triples of label distances: it is damaged \("),
    ],
)  # fmt: skip
def test_broken_tables_of_triples(name: str, text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=message) as caught:
        Precomputed(str(path))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_broken_columns_of_a_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for column, message in [
        (["a", "b"], "the column 'j' must hold numbers. Got"),
        ([1, None], "the column 'j' has 1 missing numbers"),
        ([1, 2], "unpack to more than 100 times its size"),
    ]:
        rows = 1 if "unpack" not in message else 500_000
        values = pyarrow.array(column * rows, type=pyarrow.string() if column[0] == "a" else pyarrow.int64())
        table = pyarrow.table(
            {"i": pyarrow.array([0, 0] * rows), "j": values, "distance": pyarrow.array([1.0, 1.0] * rows)}
        )
        pyarrow.parquet.write_table(table, path)
        with pytest.raises(DataError, match=message):
            Precomputed(str(path))


def test_a_direction_is_kept(tmp_path: Path) -> None:
    triples = [(0, 1, 2.0), (1, 0, 5.0), (2, 0, 1.0)]
    sparse = make(triples, symmetric=False)
    sparse.save(tmp_path / "ways.npz")
    matrix = scipy.sparse.coo_array(([2.0, 5.0, 1.0], ([0, 1, 2], [1, 0, 0])), shape=(3, 3))
    for distance in (
        as_label_distance(sparse),
        Precomputed(str(tmp_path / "ways.npz")),
        as_label_distance(matrix, symmetric=False),
        pickle.loads(pickle.dumps(as_label_distance(sparse))),
    ):
        labels = distance.encode([0, 1, 2])
        assert not distance.is_symmetric
        assert distance.pairwise(labels, labels).tolist() == [[0, 2, np.inf], [5, 0, np.inf], [1, np.inf, 0]]
        assert distance.neighbors(labels, 2).ids.tolist() == [[1, -1], [0, -1], [0, -1]]


def test_what_a_run_keeps_of_it() -> None:
    distance = as_label_distance(make([(0, 1, 2.0), (4, 1, 3.0)]))
    settings = distance.settings()
    assert settings["path"]["shape"] == [5, 5]
    with pytest.raises(UserError, match=r"is sparse of shape \[5, 5\], which was given in Python"):
        cml.distances.get("precomputed", **settings)
    assert repr(distance).startswith("Precomputed(SparseDistances(2 pairs of 5 items)")
    assert Sets(distance).is_partial
    assert Sets(distance).known_pairs(Sets(distance).encode([[0], [1, 4]])) is None


def test_no_pair_at_all() -> None:
    distance = as_label_distance(make([(0, 1, math.inf), (2, 2, 0.0)]))
    labels = distance.encode([0, 1, 2])
    assert distance.neighbors(labels, 1).ids.tolist() == [[-1], [-1], [-1]]
    assert np.isinf(distance.pairwise(labels[:1], labels[1:])).all()


@pytest.mark.parametrize(
    ("i", "j", "distance", "options", "message"),
    [
        ([0, 1], [1, 2], [1.0], {}, "'i', 'j' and 'distance' of .* should have one length. Got 2, 2 and 1 instead"),
        ([], [], [], {}, "There are no triples"),
        ([0, 5], [1, 2], [1.0, 2.0], {"items": 5}, "Triple 1 of .* has i=5; it should be an item from 0 to 4"),
        ([0, 1], [1, -2], [1.0, 2.0], {}, r"Triple 1 of .* has j=-2; it should be an item from 0 to 2,147,483,646"),
        ([0, 2**31], [1, 2], [1.0, 2.0], {}, "Triple 1 of .* has i=2147483648"),
        (np.array([0, 2**64 - 1], np.uint64), [1, 2], [1.0, 2.0], {}, "Triple 1 of .* has i=18446744073709551615"),
        ([0, 2**70], [1, 2], [1.0, 2.0], {}, r"'i' of .* should be \(T,\) whole numbers.*Got \[0, 118"),
        ([0.0, 1.5], [1, 2], [1.0, 2.0], {}, r"'i' of .* should be \(T,\) whole numbers.*Got float64 of shape \(2,\)"),
        ([True], [False], [1.0], {}, "'i' of .*Got bool"),
        (["a"], [1], [1.0], {}, r"'i' of .*Got <U1 of shape \(1,\)"),
        ([[0, 1]], [1, 2], [1.0, 2.0], {}, r"'i' of .*Got int64 of shape \(1, 2\)"),
        ([[0], [1, 2]], [1, 2], [1.0, 2.0], {}, r"'i' of .*Got \[\[0\], \[1, 2\]\]"),
        ([0], [1], [None], {}, r"'distance' of .* should be \(T,\) numbers. Got \[None\]"),
        ([0], [1], [1j], {}, "'distance' of .*Got complex128"),
        ([0, 3], [1, 2], [1.0, math.nan], {}, "Triple 1 of .*, of the items 3 and 2, has the distance nan"),
        ([0, 3], [1, 2], [-0.5, 1], {}, "Triple 0 .* has the distance -0.5; it should be a number >= 0, or infinity"),
        ([0], [1], [1e39], {}, r"Triple 0 of .* has the distance 1e\+39"),
        ([0, 3], [1, 3], [1.0, 0.9], {}, "Triple 1 of .* has the distance 0.9 of item 3 from itself.*similarities"),
        ([0, 2, 1], [1, 1, 0], [2.0, 3.0, 2.5], {},
         "Triple 0 of .* gives the distance 2 from item 0 to 1, but triple 2 gives 2.5 from 1 to 0. Correct one of "
         "them, or give symmetric=False"),
        ([4, 0, 2, 0], [4, 1, 1, 1], [0, 3.0, 3.0, math.inf], {},
         r"Triple 1 of .* gives the distance 3 from item 0 to 1, but triple 3 gives inf from 0 to 1. Correct one of "
         r"them\.$"),
        ([0, 1, 0], [1, 0, 1], [2.0, 3.0, 2.5], {"symmetric": False}, "Triple 0 .* triple 2 gives 2.5 from 0 to 1"),
        ([0], [1], [1], {"items": 0}, "'items' of .* from 1 to 2,147,483,647. Got 0"),
        ([0], [1], [1], {"items": "9"}, "'items' of .* should be a whole number .* Got '9'"),
        ([0], [1], [1], {"items": True}, "Got True"),
    ],
)  # fmt: skip
def test_broken_triples(i: Any, j: Any, distance: Any, options: dict[str, Any], message: str) -> None:  # noqa: ANN401
    with pytest.raises(UserError, match=message) as caught:
        SparseDistances.from_triples(i, j, distance, **options)
    assert "\n" not in str(caught.value)


def test_repeated_triples_that_agree_are_one() -> None:
    rounded = np.nextafter(np.float32(0.1), np.float32(1))
    distance = as_label_distance(make([(0, 1, 0.1), (1, 0, float(rounded)), (0, 1, 0.1), (2, 1, 7.0)]))
    labels = distance.encode([0, 1])
    block = distance.pairwise(labels, labels)
    assert block[0, 1] == block[1, 0] == np.float32(0.1)
    assert len(distance.known_pairs(labels).distances) == 1  # type: ignore[union-attr]


def test_a_matrix_that_is_not_square() -> None:
    with pytest.raises(UserError, match=r"should be square \(N, N\). Got \(2, 3\)"):
        as_label_distance(scipy.sparse.coo_array((2, 3)))


def _zip(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def _npy(array: Any) -> bytes:  # noqa: ANN401 - what an array is made of
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


GOOD = {"i": _npy([0, 1]), "j": _npy([1, 2]), "distance": _npy([0.5, 2])}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_zip(**GOOD)[:-40], "is damaged"),
        (b"", "is damaged"),
        (GOOD["i"], "is damaged"),
        (_zip(i=GOOD["i"], j=GOOD["j"]), "hold the arrays i, j, distance and may hold items, symmetric. Got 'i', 'j'"),
        (_zip(**GOOD, weight=GOOD["i"]), "it must hold the arrays"),
        (_zip(**{**GOOD, "i": _npy([[0, 1]])}), r"i must be a vector of numbers. Got \(1, 2\), int64"),
        (_zip(**{**GOOD, "i": _npy(["a", "b"])}), "i must be a vector of numbers"),
        (_zip(**{**GOOD, "i": _npy(np.array([None, 1]))}), "is damaged .Object arrays cannot be loaded"),
        (_zip(**GOOD, items=_npy([5])), "items must be a single number"),
        (_zip(**GOOD, items=_npy(2)), "Triple 1 of .*broken.npz has j=2; it should be an item from 0 to 1"),
        (_zip(**GOOD, symmetric=_npy(2)), "'symmetric' in .* should be 0 or 1. Got 2"),
        (_zip(**GOOD, symmetric=_npy(np.nan)), "'symmetric' in .* should be 0 or 1. Got nan"),
        (_zip(**GOOD, items=_npy(np.nan)), "'items' of .* should be a whole number from 1 to .* Got nan"),
        (_zip(**GOOD, items=_npy(2.5)), "'items' of .* should be a whole number from 1 to .* Got 2.5"),
        (_zip(**{**GOOD, "j": _npy([1])}), "should have one length. Got 2, 1 and 2"),
        (_zip(**{**GOOD, "i": GOOD["i"][:-3]}), "is damaged .*expected 16 bytes got 13"),
        (_zip(**{name: _npy(np.zeros(10**6, int)) for name in GOOD}), "unpack to 24,000,[0-9]+, more than 100 times"),
    ],
)  # fmt: skip
def test_broken_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        Precomputed(str(path))
    assert "broken.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file() -> None:
    with pytest.raises(
        DataError, match=r"no\.npz is missing: triples of label distances are a \.npz, CSV or Parquet file"
    ):
        Precomputed("no.npz")


def test_a_sample_is_of_known_pairs() -> None:
    from cml.losses.label_distance_loss import sample_label_distances

    items = 3000
    rng = np.random.default_rng(0)
    i, j = rng.permutation(items), rng.permutation(items)
    sparse = SparseDistances.from_triples(i, j, np.where(i == j, 0, 1 + np.abs(i - j) % 7), items=items)
    distance = as_label_distance(sparse)
    labels: Labels = distance.encode(range(items))
    sample = sample_label_distances(distance, labels, 0)  # of 130,816 random pairs some 90 would be known
    assert len(sample) > 2900
    assert set(sample.tolist()) == {1, 2, 3, 4, 5, 6, 7}
    many = SparseDistances.from_triples(
        np.repeat(np.arange(500), 500), np.tile(500 + np.arange(500), 500), np.arange(250_000)
    )
    distance = as_label_distance(many)
    sample = sample_label_distances(distance, distance.encode(range(1000)), 0)
    assert len(sample) == len(set(sample.tolist())) == 512 * 511 // 2


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_summary_is_that_of_the_matrix(symmetric: bool) -> None:
    rng = np.random.default_rng(1)
    known = rng.random((60, 60)) < 0.3
    known[7] = known[:, 7] = False  # an item without a known pair
    i, j = np.nonzero(np.triu(known, 1) if symmetric else known & ~np.eye(60, dtype=bool))
    sparse = SparseDistances.from_triples(i, j, rng.integers(0, 9, len(i)), items=60, symmetric=symmetric)
    matrix = sparse.block(np.arange(60), np.arange(60))
    ours, true = (
        summarize(distance, distance.encode(range(60)), unit="px").to_json()
        for distance in (as_label_distance(sparse), as_label_distance(matrix, symmetric=symmetric))
    )
    assert ours.keys() == true.keys()
    for name, value in true.items():
        assert ours[name] == (value if isinstance(value, str) else pytest.approx(value)), name


def test_a_summary_of_few_known_pairs_of_many_items() -> None:
    i = np.arange(0, 100_000, 2)
    distance = as_label_distance(SparseDistances.from_triples(i, i + 1, 1 + i % 3, items=100_001))
    found = summarize(distance, distance.encode(range(100_001)))
    assert (found.pairs, found.items) == (100_001 * 50_000, 100_001)
    assert found.infinities == pytest.approx(1 - 1e-5)
    assert found.alone == pytest.approx(1e-5, rel=1e-3)
    assert found.mean == pytest.approx(2, rel=1e-3)
    lonely = as_label_distance(make([(0, 1, 0.0)], items=9))
    with pytest.raises(UserError, match="Among 36 pairs none has a label distance above 0 and finite"):
        summarize(lonely, lonely.encode(range(9)))
