"""The explorer's figures: maps, neighbours, ranks and pairs, against slow oracles; its files and command."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cml
from cml.array_types import Float64, Floating
from cml.cli import main
from cml.distances import as_label_distance
from cml.errors import UserError
from cml.explore import label_side
from cml.explore.label_side import MOST_PAIRS, LabelSide, build_label_side
from cml.explore.maps import MAPS, align_map, check_maps, landmark_mds, principal
from cml.explore.page import Items, curve_order, draw_sheets, write_explorer
from cml.explore.picture_grid import frame_colours, place_on_grid
from cml.explore.sequence_curves import find_sequence_curves
from cml.explore.views import build_embedding_view, build_oracle_view
from cml.items.shown_columns import further_columns, label_columns


def classical_mds(distances: Float64, dimensions: int) -> Float64:
    """The textbook's: double centring of the whole matrix, all eigenvectors."""
    n = len(distances)
    centring = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-0.5 * centring @ distances**2 @ centring)
    chosen = np.argsort(-values)[:dimensions]
    return vectors[:, chosen] * np.sqrt(np.maximum(values[chosen], 0))


def between(points: Floating) -> Float64:
    return np.sqrt(np.square(points[:, None].astype(np.float64) - points[None]).sum(axis=2))


def test_landmark_mds_gives_back_points_from_their_distances() -> None:
    points = np.random.default_rng(0).normal(size=(60, 3))
    distances = between(points).astype(np.float32)
    for landmarks in (np.arange(60), np.arange(0, 60, 4)):
        made_points = landmark_mds(distances[:, landmarks], landmarks, 5)
        np.testing.assert_allclose(between(made_points), distances, atol=2e-3)
        assert not made_points[:, 3:].any() or np.abs(made_points[:, 3:]).max() < 0.05


@pytest.mark.slow
def test_500_landmarks_say_what_classical_mds_says_of_2000_items() -> None:
    rng = np.random.default_rng(1)
    poses = np.concatenate([rng.normal(size=(2000, 12, 2)).cumsum(axis=1) * 8 + 60, np.ones((2000, 12, 1))], axis=2)
    distance = as_label_distance("keypoints(squared=False)")
    labels = distance.encode(poses.tolist())
    landmarks = np.sort(rng.choice(2000, 500, replace=False))
    ours = landmark_mds(distance.pairwise(labels, labels[landmarks]), landmarks, 2)
    exact = classical_mds(distance.pairwise(labels, labels).astype(np.float64), 2)
    pairs = rng.integers(0, 2000, (20000, 2))
    a, b = (np.linalg.norm(points[pairs[:, 0]] - points[pairs[:, 1]], axis=1) for points in (ours, exact))
    assert np.corrcoef(a, b)[0, 1] >= 0.99


def test_pairs_that_cannot_be_compared_do_not_spoil_the_map() -> None:
    distances = between(np.random.default_rng(0).normal(size=(30, 2))).astype(np.float32)
    distances[3, 9] = distances[9, 3] = np.inf
    assert np.isfinite(landmark_mds(distances, np.arange(30), 2)).all()
    assert not landmark_mds(np.zeros((5, 5), np.float32), np.arange(5), 2).any()


def test_a_map_is_turned_to_another() -> None:
    target = np.random.default_rng(0).normal(size=(50, 2))
    target -= target.mean(axis=0)
    mirrored = 3 * target @ np.array([[0.6, 0.8], [0.8, -0.6]]) + 7
    np.testing.assert_allclose(align_map(mirrored, target), target, atol=1e-5)
    assert not align_map(np.ones((50, 2)), target).any()
    np.testing.assert_allclose(np.abs(principal(target, 3)[:, 2]), 0)


def circle(n: int, seed: int = 0) -> tuple[Float64, LabelSide]:
    angles = np.random.default_rng(seed).uniform(0, 360, n)
    distance = as_label_distance("circular")
    return angles, build_label_side(distance, distance.encode(angles.tolist()))


def test_neighbours_distances_and_ranks_are_those_of_loops() -> None:
    angles, side = circle(40)
    embeddings = np.random.default_rng(5).normal(size=(40, 3)).astype(np.float32)
    view = build_embedding_view("ours", embeddings, side, ["pca"])
    way = np.abs(angles[:, None] - angles[None])
    labels, embedded = np.minimum(way, 360 - way), between(embeddings)
    for item in range(40):
        others = [other for other in range(40) if other != item]
        by_embedding = sorted(others, key=lambda other: embedded[item, other])
        by_label = sorted(others, key=lambda other: labels[item, other])
        assert view.ids[item].tolist() == by_embedding[:10]
        assert side.nearest.ids[item, :10].tolist() == by_label[:10]
        assert view.near_ranks[item].tolist() == [by_label.index(other) + 1 for other in by_embedding[:10]]
        assert view.label_ranks[item].tolist() == [by_embedding.index(other) + 1 for other in by_label[:10]]
        np.testing.assert_allclose(view.near_labels[item], labels[item, by_embedding[:10]], rtol=1e-5)
        np.testing.assert_allclose(view.label_near[item], embedded[item, by_label[:10]], rtol=1e-4)
        error = labels[item, by_embedding[:10]].mean() - labels[item, by_label[:10]].mean()
        assert view.error(side)[item] == pytest.approx(error, abs=1e-3)
    assert (side.pairs[:, 0] != side.pairs[:, 1]).all()
    assert len({frozenset(pair) for pair in side.pairs.tolist()}) == len(side.pairs) > 300
    np.testing.assert_allclose(side.between, labels[tuple(side.pairs.T)], rtol=1e-5)
    apart, _ = view.worst(side)
    assert (
        view.near_ranks[apart[0, 0], view.ids[apart[0, 0]].tolist().index(apart[0, 1])] == view.near_ranks[:, :5].max()
    )
    assert np.unique(apart, return_counts=True)[1].max() <= 2


def test_the_oracle_ranks_as_the_labels_do() -> None:
    _, side = circle(40)
    view = build_oracle_view(side, ["pca"])
    assert (view.near_ranks == np.arange(1, 11)).all()
    assert not view.error(side).any()
    assert view.agreement == 1


def test_with_few_landmarks_near_ranks_are_exact_and_far_ones_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_side, "ALL_LANDMARKS", 100)
    monkeypatch.setattr(label_side, "LANDMARKS", 150)
    angles, side = circle(600)
    view = build_embedding_view(
        "ours", np.random.default_rng(5).normal(size=(600, 3)).astype(np.float32), side, ["pca"]
    )
    way = np.abs(angles[:, None] - angles[None])
    labels = np.minimum(way, 360 - way)
    truth = np.array([[1 + (labels[i] < labels[i, j]).sum() - 1 for j in view.ids[i]] for i in range(600)])
    near = truth <= label_side.DEPTH
    assert (view.near_ranks[near] == truth[near]).all()
    assert (view.near_ranks[~near] > label_side.DEPTH).all()
    assert np.abs(view.near_ranks - truth).mean() < 20
    np.testing.assert_allclose(view.near_labels, np.take_along_axis(labels, view.ids, 1), rtol=1e-4)


@pytest.mark.parametrize(("count", "landmarks"), [(300, 300), (300, 40), (30, 300), (3, 300), (2, 10)])
def test_pairs_are_of_held_out_items_alone(monkeypatch: pytest.MonkeyPatch, count: int, landmarks: int) -> None:
    monkeypatch.setattr(label_side, "ALL_LANDMARKS", landmarks)
    monkeypatch.setattr(label_side, "LANDMARKS", landmarks)
    angles = np.random.default_rng(0).uniform(0, 360, 400)
    distance = as_label_distance("circular")
    held_out = np.arange(400) >= 400 - count
    side = build_label_side(distance, distance.encode(angles.tolist()), held_out=held_out)
    assert held_out[side.pairs].all()
    distinct = {frozenset(pair) for pair in side.pairs.tolist()}
    assert len(distinct) == len(side.pairs) == min(MOST_PAIRS, math.comb(count, 2))
    way = np.abs(angles[side.pairs[:, 0]] - angles[side.pairs[:, 1]])
    np.testing.assert_allclose(side.between, np.minimum(way, 360 - way), rtol=1e-4, atol=1e-4)


def test_pairs_are_of_all_items_where_none_is_held_out() -> None:
    distance = as_label_distance("circular")
    labels = distance.encode(np.random.default_rng(0).uniform(0, 360, 60).tolist())
    for held_out in (None, np.zeros(60, bool), np.arange(60) == 7):
        side = build_label_side(distance, labels, held_out=held_out)
        assert len(side.pairs) == math.comb(60, 2)
    with pytest.raises(UserError, match="at least 4 items"):
        build_label_side(distance, distance.encode([1, 2, 3]))


def test_columns_of_labels() -> None:
    circular = as_label_distance("circular(period=24)")
    assert label_columns("hour", [1, 2.5], circular)["hour"][1] == 24
    assert list(label_columns("at", [[1, 2], [3, 4]], as_label_distance("euclidean"))) == ["at 1", "at 2"]
    assert label_columns("kind", ["a", "b"], as_label_distance("classes"))["kind"][0].tolist() == ["a", "b"]
    assert label_columns("pose", [[[1, 2, 1]], [[3, 4, 1]]], as_label_distance("keypoints")) == {}
    assert label_columns("text", [["a", "b"], ["c"]], as_label_distance("jaccard")) == {}
    both = as_label_distance("combined(parts={'hour': 'circular(period=24)', 'age': 'euclidean'})")
    found = label_columns("label", [{"hour": 3, "age": 30}, {"hour": 4, "age": 31}], both)
    assert {name: period for name, (_, period) in found.items()} == {"label hour": 24, "label age": None}


def test_further_columns_are_numbers_or_few_texts_to_colour_by() -> None:
    entries: list[dict[str, Any]] = [
        {"age": n, "site": f"site {n % 3}", "name": f"name {n}", "checked": n % 2 == 0, "box": [n], "mixed": "a"}
        for n in range(50)
    ]
    entries[4]["age"], entries[5]["name"], entries[6]["mixed"] = None, None, 3
    del entries[7]["site"]
    columns, texts = further_columns(entries)
    assert list(columns) == ["age", "site", "checked"]
    ages = columns["age"][0]
    assert np.isnan(ages[4])
    assert ages[5] == 5
    assert columns["site"][0].tolist()[6:9] == ["site 0", "", "site 2"]
    assert set(columns["checked"][0]) == {"True", "False"}
    assert texts == {"name": [f"name {n}" if n != 5 else "" for n in range(50)]}
    many = [{f"column {n}": n for n in range(60)}]
    assert len(further_columns(many)[0]) == 24


def test_every_picture_lies_on_its_tile() -> None:
    colours = [(40 * i % 256, 90 * i % 256, 150) for i in range(30)]
    pictures = [lambda c=c, i=i: Image.new("RGB", (60, 30 if i % 2 else 40), c) for i, c in enumerate(colours)]
    order = np.random.default_rng(0).permutation(30)
    sheets = draw_sheets(pictures, order, 1 << 20)
    opened = [Image.open(__import__("io").BytesIO(file)).convert("RGB") for file in sheets.files]
    each = sheets.across * sheets.down
    for item, colour in enumerate(colours):
        number, at = divmod(int(sheets.places[item]), each)
        x, y = at % sheets.across * sheets.width, at // sheets.across * sheets.height
        w, h = sheets.sizes[item]
        pixel = opened[number].getpixel((x + int(w) // 2, y + int(h) // 2))
        assert np.abs(np.subtract(pixel, colour)).max() < 12
        assert w / h == pytest.approx(2 if item % 2 else 1.5, rel=0.05)
    assert sheets.sizes.max() <= 64  # small pictures are not enlarged
    assert sum(map(len, draw_sheets(pictures, order, 3000).files)) < 4000
    assert sorted(curve_order(np.random.default_rng(0).normal(size=(50, 2))).tolist()) == list(range(50))


def write(path: Path, n: int, names: Sequence[str] = ()) -> Path:
    angles, side = circle(n)
    embeddings = np.random.default_rng(5).normal(size=(n, 3)).astype(np.float32)
    pictures = [lambda i=i: Image.new("RGB", (16, 16), (i % 256, 0, 0)) for i in range(n)]
    items = Items(names or [f"item {i}" for i in range(n)], [f"{a:.0f}°" for a in angles], ["query"] * n, pictures)
    write_explorer(
        path, items, side, [build_embedding_view("ours", embeddings, side, ["pca"])], title="t", unit="degrees"
    )
    return path


def test_many_items_have_their_pictures_beside_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cml.explore.page.IN_ONE_FILE", 20)
    page = write(tmp_path / "e.html", 30).read_text("utf-8")
    meta = json.loads(re.search(r'id="meta">(.*?)</script>', page, re.S)[1])  # type: ignore[index]
    assert meta["sheet"]["folder"] == "e.pictures"
    assert len(list((tmp_path / "e.pictures").iterdir())) == meta["sheet"]["count"]
    assert 'id="sheet0"' not in page
    write(tmp_path / "small.html", 10)
    assert not (tmp_path / "small.pictures").exists()


def test_pictures_are_not_written_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cml.explore.page.IN_ONE_FILE", 20)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "e.pictures").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"e\.pictures is a link"):
        write(tmp_path / "e.html", 30)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cml.Run:
    folder = tmp_path_factory.mktemp("explore")
    rng = np.random.default_rng(0)
    (folder / "raw").mkdir()
    lines = ["file_name,angle"]
    for number in range(60):
        value = int(rng.integers(0, 255))
        Image.new("RGB", (16, 16), (value, 100, 255 - value)).save(folder / "raw" / f"{number}.png")
        lines.append(f"{number}.png,{value}")
    (folder / "labels.csv").write_text("\n".join(lines))
    cml.prepare("folder", folder / "data", images=folder / "raw", labels=folder / "labels.csv", label_columns=["angle"])
    tiny = {"backbone": "small-cnn", "weights": "none", "image_size": (16, 16), "workers": 0, "steps": 3}
    cml.train(
        "value",
        folder / "data",
        folder / "run",
        sampler="random(batch_size=16)",
        checkpoint_every=1,
        keep_models=True,
        **tiny,
    )
    return cml.open_run(folder / "run")


def test_a_run_is_explored(run: cml.Run, capsys: pytest.CaptureFixture[str]) -> None:
    made_page = run.explore(maps=["pca"], beside=["oracle"])
    assert str(made_page) == str(run.folder / "explorer.html")
    page = made_page.path.read_text("utf-8")
    meta = json.loads(re.search(r'id="meta">(.*?)</script>', page, re.S)[1])  # type: ignore[index]
    assert [view["title"] for view in meta["views"]] == ["log-ratio", "oracle (the labels)"]
    assert len(meta["names"]) == 60
    assert [view["stages"] for view in meta["views"]] == [[1, 2, 3], []]
    assert [column["name"] for column in meta["columns"]] == ["angle"]
    assert "<iframe srcdoc=" in made_page._repr_html_()
    out = run.folder / "held.html"
    arguments = ["explore", str(run.folder), "--out", str(out), "--splits", "query", "gallery", "--maps", "pca"]
    assert main([*arguments, "--beside", "oracle", "--count", "9"]) == 0
    assert str(out) in capsys.readouterr().out
    meta = json.loads(re.search(r'id="meta">(.*?)</script>', out.read_text("utf-8"), re.S)[1])  # type: ignore[index]
    assert len(meta["names"]) == 9
    assert set(meta["roles"]) <= {"query", "gallery"}


def test_the_assignment_to_a_grid_is_the_best_of_all() -> None:
    points = np.random.default_rng(2).normal(size=(6, 2))
    cells = place_on_grid(points, 3, 2)
    low, high = points.min(axis=0), points.max(axis=0)
    x, y = ((points - low) / (high - low) * [3, 2]).T

    def way(order: Sequence[int]) -> float:
        return sum((x[i] - c % 3 - 0.5) ** 2 + (2 - y[i] - c // 3 - 0.5) ** 2 for i, c in enumerate(order))

    assert way(cells.tolist()) == pytest.approx(min(map(way, itertools.permutations(range(6)))))
    assert len(set(place_on_grid(points, 4, 5).tolist())) == 6


def test_a_square_is_drawn(run: cml.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "square.png"
    arguments = ["explore", str(run.folder), "--png", str(out), "--maps", "pca"]
    assert main([*arguments, "--grid", "8x6", "--cell", "20"]) == 0
    with Image.open(out) as image:
        assert image.size == (160, 120)
        assert len(image.getcolors(20000)) > 50
    for wrong, said in (("8 by 6", "60x40"), ("900x900", "6000 cells")):
        assert main([*arguments, "--grid", wrong]) == 2
        assert said in capsys.readouterr().err
    assert main(arguments) == 2
    assert main([*arguments, "--grid", "8x6", "--cell", "2"]) == 2
    assert frame_colours(np.array([0.0, 180.0, 360.0]), 360.0)[0] == frame_colours(np.array([360.0]), 360.0)[0]


@pytest.mark.parametrize("name", ["pca", "tsne", pytest.param("umap", marks=pytest.mark.slow)])  # it compiles
def test_embeddings_of_one_dimension_have_a_map(name: str) -> None:
    points = np.random.default_rng(0).normal(size=(60, 1)).astype(np.float32)
    threads = torch.get_num_threads()
    drawn = MAPS[name].draw(points, 0)
    assert torch.get_num_threads() == threads
    assert drawn.shape == (60, 2)
    along, *_ = np.linalg.lstsq(drawn - drawn.mean(axis=0), points[:, 0] - points.mean(), rcond=None)
    assert np.corrcoef(drawn @ along, points[:, 0])[0, 1] > 0.9  # in some direction, their order is that of the points


def test_what_cannot_be_explored_is_said(run: cml.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="Unknown map 'globe'"):
        run.explore(maps=["globe"])
    with pytest.raises(UserError, match="frozen, oracle"):
        run.explore(beside=["nothing"], maps=["pca"])
    missing: Callable[[str], None] = lambda name: None  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", missing)
    assert check_maps(()) == ("pca",)
    with pytest.raises(UserError, match=r"pip install .*\[explore\]"):
        check_maps(("tsne",))


def test_sequences_are_kept_for_plots_as_far_as_they_have_curves() -> None:
    tracks = [[0.0, 1.0], [2.0], [3.0, 4.0, 5.0], [6.0, 7.0]]
    distance = as_label_distance("frechet(band=2, open_ends=0)")
    curves = find_sequence_curves(distance, distance.encode(tracks))
    assert curves is not None
    assert (curves.steps.ravel().tolist(), curves.ends.tolist()) == ([float(n) for n in range(8)], [2, 3, 6, 8])
    assert (curves.band, curves.open_ends, curves.is_sum, curves.period) == (2, 0, False, 0)
    both = cml.distances.get(
        "combined", parts={"age": "euclidean", "way": "dtw(base='circular(period=24)')"}, missing="skip"
    )
    labels = both.encode([{"age": n, "way": way} for n, way in enumerate([[1, 23], None, [5], [6, 7]])])
    curves = find_sequence_curves(both, labels)
    assert curves is not None
    assert (curves.steps.ravel().tolist(), curves.ends.tolist()) == ([1, 23, 5, 6, 7], [2, 2, 3, 5])
    assert (curves.period, curves.is_sum) == (24, True)
    for other in ("euclidean", "dtw(base=haversine)"):
        distance = as_label_distance(other)
        given = [1.0, 2.0] if other == "euclidean" else [[[1, 2]], [[3, 4]]]
        assert find_sequence_curves(distance, distance.encode(given)) is None
