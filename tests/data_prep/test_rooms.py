"""The embedded rooms: reproducible, masks that follow from the geometry and fit the picture, all layout types."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cml.array_types import Int64, UInt8
from cml.data.prepared import PreparedDataset
from cml.data_prep.layout_masks import CEILING, FLOOR, FRONT, LEFT, RIGHT
from cml.data_prep.layout_types import LAYOUT_TYPES, layout_type
from cml.data_prep.synthetic.rooms import rooms as drawing
from cml.data_prep.synthetic.rooms.furniture import ROOMS, furnish
from cml.data_prep.synthetic.rooms.materials import (
    Material,
    hash_cell,
    sample_cloth,
    sample_noise,
    sample_paint,
    sample_tiles,
    sample_wood,
)
from cml.data_prep.synthetic.rooms.ray_tracing import Light, Part, Piece, trace
from cml.data_prep.synthetic.rooms.rooms import Rooms, draw_rooms
from cml.data_prep.synthetic.rooms.source import Rooms as Source
from cml.data_prep.synthetic.rooms.surfaces import Patch, Surface
from cml.data_prep.synthetic.rooms.view import CLOCKWISE, LEAST_SHARE, View, mask_of, sample_view
from cml.errors import UserError

SEEDS = st.integers(0, 2**32 - 1)
NOTHING = Light(np.ones(3, np.float32), np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), 0.0)


@pytest.fixture(scope="module")
def rooms() -> Rooms:
    return draw_rooms(40, seed=5)


def view_of(item: int, seed: int = 5) -> View:
    return sample_view(np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(item,))))


def mask_at(view: View, side: int) -> UInt8:
    return mask_of(view, view.leave(view.rays(side))[1])


def test_shapes_and_types(rooms: Rooms) -> None:
    assert rooms.images.shape == (40, 64, 64, 3)
    assert rooms.masks.shape == (40, 64, 64)
    assert rooms.images.dtype == rooms.masks.dtype == np.uint8
    assert set(np.unique(rooms.masks).tolist()) <= {FRONT, LEFT, RIGHT, FLOOR, CEILING}
    assert rooms.images.std(axis=(1, 2, 3)).min() > 5  # no picture is all of one colour
    assert 50 < rooms.images.mean() < 200


def test_an_item_depends_on_seed_and_position_alone(rooms: Rooms) -> None:
    again = draw_rooms(7, seed=5)
    np.testing.assert_array_equal(again.images, rooms.images[:7])
    np.testing.assert_array_equal(again.masks, rooms.masks[:7])


def test_seeds_and_items_differ(rooms: Rooms) -> None:
    other = draw_rooms(10, seed=6)
    known = {image.tobytes() for image in rooms.images}
    assert len(known) == 40
    assert not known & {image.tobytes() for image in other.images}
    assert len({mask.tobytes() for mask in rooms.masks}) > 35


def test_another_size_shows_the_same_rooms(rooms: Rooms) -> None:
    large = draw_rooms(6, size=128, seed=5)
    halved = large.images.reshape(6, 64, 2, 64, 2, 3).mean(axis=(2, 4))
    assert np.abs(halved - rooms.images[:6]).mean() < 12  # but for noise and edges
    assert (large.masks[:, ::2, ::2] == rooms.masks[:6]).mean() > 0.97


@pytest.mark.slow
def test_workers_change_nothing() -> None:
    alone, together = draw_rooms(101, size=16, seed=3), draw_rooms(101, size=16, seed=3, workers=2)
    np.testing.assert_array_equal(alone.images, together.images)
    np.testing.assert_array_equal(alone.masks, together.masks)


def slow_mask(view: View, side: int) -> Int64:
    """Pixel by pixel: follow the ray to each plane, take the nearest, name the walls by the order of their columns."""
    right, up, forward = view.frame
    faces = np.zeros((side, side), int)
    for row in range(side):
        for column in range(side):
            x, y = (column + 0.5) / side - 0.5, 0.5 - (row + 0.5) / side
            ray = x * right + y * up + view.focal * forward
            best = math.inf
            for axis in range(3):
                for far in (0, 1):
                    away = (far * view.room[axis] - view.eye[axis]) / ray[axis]
                    if 0 < away < best:
                        best, faces[row, column] = away, 2 * axis + far
    columns = {wall: np.nonzero(faces == wall)[1].mean() for wall in (0, 1, 4, 5) if (faces == wall).any()}
    ordered = sorted(columns, key=lambda wall: columns[wall])
    names = {1: [FRONT], 2: [LEFT, RIGHT], 3: [LEFT, FRONT, RIGHT]}[len(ordered)]
    ids = {2: FLOOR, 3: CEILING, **dict(zip(ordered, names, strict=True))}
    return np.array([[ids[face] for face in row] for row in faces.tolist()])


@pytest.mark.parametrize("item", range(12))
def test_mask_equals_the_slow_rays(item: int) -> None:
    view = view_of(item)
    fast, slow = mask_at(view, 24), slow_mask(view, 24)
    assert (fast != slow).sum() <= 2  # a ray through an edge, in 32 bits and in 64


@settings(deadline=None, max_examples=30)
@given(SEEDS)
def test_points_of_a_surface_are_seen_where_they_project(seed: int) -> None:
    view = sample_view(np.random.default_rng(seed))
    mask = mask_at(view, 96)
    rng = np.random.default_rng(1)
    for face in range(6):
        points = rng.uniform(0, 1, (200, 3)) * view.room
        points[:, face // 2] = (face % 2) * view.room[face // 2]
        places = view.project(points)
        seen = (places[:, 2] > 0) & (np.abs(places[:, :2]) < 0.49).all(axis=1)
        columns = ((places[seen, 0] + 0.5) * 96).astype(int)
        rows = ((0.5 - places[seen, 1]) * 96).astype(int)
        wanted = mask_of(view, np.array([face], np.uint8))[0]
        around = [mask[(rows + i).clip(0, 95), (columns + j).clip(0, 95)] for i in (-1, 0, 1) for j in (-1, 0, 1)]
        assert (np.stack(around) == wanted).any(axis=0).all()


@settings(deadline=None, max_examples=40)
@given(SEEDS)
def test_views_are_possible(seed: int) -> None:
    view = sample_view(np.random.default_rng(seed))
    assert ((view.eye > 0) & (view.eye < view.room)).all()
    np.testing.assert_allclose(view.frame @ view.frame.T, np.eye(3), atol=1e-9)
    assert np.linalg.det(view.frame) == pytest.approx(1)
    assert abs(view.frame[0, 1]) < math.sin(math.radians(3.01))  # all but level
    mask = mask_at(view, 64)
    assert layout_type(mask) is not None
    present, counts = np.unique(mask, return_counts=True)
    assert counts.min() / mask.size > LEAST_SHARE / 2
    middles = {
        number: np.argwhere(mask == number).mean(axis=0) for number in present.tolist()
    }  # each surface lies where its name says
    if FLOOR in middles and CEILING in middles:
        assert middles[FLOOR][0] > middles[CEILING][0]
    if LEFT in middles:
        assert middles[LEFT][1] < middles[RIGHT][1]
        assert middles[LEFT][1] < middles.get(FRONT, middles[RIGHT])[1] < middles[RIGHT][1] + 1e-9


def test_a_larger_sample_has_every_layout_type() -> None:
    found = {layout_type(mask_at(view_of(item, seed=0), 32)) for item in range(1100)}
    assert found == set(range(11))


def test_layout_types_are_told_by_the_surfaces_in_view() -> None:
    assert len(set(LAYOUT_TYPES)) == 11
    assert layout_type(np.array([[2, 3], [4, 4]], np.uint8)) == 4
    assert layout_type(np.array([[5, 5], [2, 3]], np.uint8)) == 3
    assert layout_type(np.array([[1, 1], [4, 4]], np.uint8)) == 9
    assert layout_type(np.array([[1, 1]], np.uint8)) is None  # one wall alone
    assert layout_type(np.array([[1, 2]], np.uint8)) is None  # LSUN calls two walls left and right
    for surfaces in LAYOUT_TYPES:  # walls: one, two or three of them, named by how many they are
        assert surfaces & {FRONT, LEFT, RIGHT} in ({FRONT}, {LEFT, RIGHT}, {LEFT, FRONT, RIGHT})


def test_walls_are_numbered_clockwise() -> None:
    ahead = {4: (0, -1), 0: (-1, 0), 5: (0, 1), 1: (1, 0)}  # where the wall lies from the middle: x, z
    turns = [math.atan2(*ahead[wall]) for wall in CLOCKWISE]
    assert [round((b - a) / (math.pi / 2)) % 4 for a, b in itertools.pairwise(turns)] == [1, 1, 1]


@pytest.mark.parametrize("item", range(6))
def test_the_picture_shows_each_surface_where_the_mask_says(item: int) -> None:
    view = view_of(item)
    surfaces = [Surface(Material((0.1 * face, 1.0, 0.0), uneven=0)) for face in range(6)]
    red, green, _ = trace(view, view.rays(32), surfaces, [], NOTHING)
    np.testing.assert_array_equal(mask_of(view, np.round(10 * red / green).astype(np.uint8)), mask_at(view, 32))


def test_furniture_changes_the_picture_and_not_the_mask(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "furnish", lambda *arguments: [])
    empty = draw_rooms(40, seed=5)
    np.testing.assert_array_equal(empty.masks, rooms.masks)
    covered = (np.abs(empty.images.astype(int) - rooms.images).max(axis=-1) > 25).mean(axis=(1, 2))
    assert (covered > 0.02).mean() > 0.4  # in many rooms something stands in view
    borders = np.zeros(rooms.masks.shape, bool)
    borders[:, :, 1:] |= rooms.masks[:, :, 1:] != rooms.masks[:, :, :-1]
    borders[:, 1:] |= rooms.masks[:, 1:] != rooms.masks[:, :-1]
    hidden = np.abs(empty.images.astype(int) - rooms.images).max(axis=-1)[borders] > 25
    assert 0.05 < hidden.mean() < 0.6  # and hides a part of the borders


def slow_box(start: NDArray[Any], ray: NDArray[Any], half: NDArray[Any]) -> float:
    """Nearest point of a box around the origin along a ray, by looking at its six faces."""
    best = math.inf
    for axis in range(3):
        for side in (-1, 1):
            away = (side * half[axis] - start[axis]) / ray[axis]
            hit = start + away * ray
            others = [other for other in range(3) if other != axis]
            if away > 0 and all(abs(hit[other]) <= half[other] + 1e-9 for other in others):
                best = min(best, away)
    return best


@pytest.mark.parametrize("shape", ["box", "ball"])
def test_rays_meet_furniture_where_the_slow_formula_says(shape: Any) -> None:  # noqa: ANN401
    view = View(np.array([4.0, 2.5, 5.0]), np.array([2.0, 1.3, 0.5]), np.eye(3), 0.6)
    part = Part((0.1, 0.5, -0.05), (0.4, 0.5, 0.3), Material((1.0, 0.0, 0.0), uneven=0), shape)
    piece = Piece((part,), (2.3, 0.0, 3.0), 0.7)
    plain = [Surface(Material((0.0, 1.0, 0.0), uneven=0))] * 6
    shown = trace(view, view.rays(24), plain, [piece], NOTHING)
    c, s = math.cos(0.7), math.sin(0.7)
    into = np.array([[c, 0, -s], [0, 1, 0], [s, 0, c]])  # from the room to the piece
    expected = np.zeros((24, 24), bool)
    for row in range(24):
        for column in range(24):
            ray = np.array([(column + 0.5) / 24 - 0.5, 0.5 - (row + 0.5) / 24, 0.6])
            start, local = into @ (view.eye - piece.place) - part.centre, into @ ray
            if shape == "box":
                expected[row, column] = math.isfinite(slow_box(start, local, np.array(part.half)))
            else:
                scaled, along = start / part.half, local / part.half
                nearest = scaled - (scaled @ along) / (along @ along) * along
                expected[row, column] = nearest @ nearest < 1
    assert expected.sum() > 20
    assert ((shown[0] > shown[1]) != expected).sum() <= 1


def test_what_is_nearer_hides_what_is_behind() -> None:
    view = View(np.array([4.0, 2.5, 5.0]), np.array([2.0, 1.3, 0.5]), np.eye(3), 0.6)
    near = Piece((Part((0, 1.3, 0), (0.2, 0.2, 0.2), Material((1.0, 0.0, 0.0), uneven=0)),), (2.0, 0.0, 2.0), 0.0)
    far = Piece((Part((0, 1.3, 0), (1.2, 0.6, 0.2), Material((0.0, 0.0, 1.0), uneven=0)),), (2.0, 0.0, 4.0), 0.0)
    plain = [Surface(Material((0.0, 1.0, 0.0), uneven=0))] * 6
    for order in ([near, far], [far, near]):
        shown = trace(view, view.rays(48), plain, order, NOTHING)
        assert shown[:, 24, 24].argmax() == 0
        assert shown[:, 24, 17].argmax() == 2
        assert shown[:, 2, 2].argmax() == 1


def test_light_falls_off_and_does_not_reach_the_back() -> None:
    light = Light(np.zeros(3, np.float32), np.array([[0, 2, 0]], np.float32), np.ones((1, 3), np.float32), 0.0)
    below = np.array([[0, 0, 0, 0], [1, 0, -1, 1.9], [0, 0, 0, 0]], np.float32)
    up = np.array([[0], [1], [0]], np.float32)
    lit = light.on(below, up)[0]
    assert lit[3] > lit[0] > lit[1] > lit[2] > 0
    assert lit[0] == pytest.approx(1 / (1 + 0.7), rel=1e-5)
    assert (light.on(below, -up) == 0).all()


@settings(deadline=None, max_examples=25)
@given(SEEDS, st.sampled_from(sorted(ROOMS)))
def test_furniture_stands_in_the_room_apart_and_not_in_the_camera(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    room = np.array([rng.uniform(2, 6), rng.uniform(2.3, 3.3), rng.uniform(2, 7)])
    eye = room * [0.5, 0.5, 0.2]
    boxes: list[tuple[float, float, float, float]] = []
    for piece in furnish(rng, kind, room, eye):
        corners = np.concatenate([piece.corners(part) for part in piece.parts])
        assert corners[:, 1].min() > -0.01
        assert corners[:, 1].max() < room[1] + 0.5
        middle, reach = np.array(piece.place), piece.shadow
        assert (middle[[0, 2]] >= 0).all()
        assert (middle[[0, 2]] <= room[[0, 2]]).all()
        turned = abs(math.cos(piece.angle)), abs(math.sin(piece.angle))
        wide = turned[0] * reach[0] + turned[1] * reach[1]
        deep = turned[1] * reach[0] + turned[0] * reach[1]
        box = (middle[0] - wide, middle[0] + wide, middle[2] - deep, middle[2] + deep)
        assert not (box[0] < eye[0] < box[1] and box[2] < eye[2] < box[3])
        for other in boxes:
            assert (
                box[0] >= other[1] - 1e-6
                or box[1] <= other[0] + 1e-6
                or box[2] >= other[3] - 1e-6
                or box[3] <= other[2] + 1e-6
            )
        boxes.append(box)


@settings(deadline=None, max_examples=40)
@given(SEEDS)
def test_materials_are_colours_anywhere_and_fade_to_their_mean(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for sample in (sample_wood, sample_tiles, sample_cloth, sample_paint):
        material = sample(rng)
        u, v = rng.uniform(-5, 5, (2, 4000)).astype(np.float32)
        sharp = material.at(u, v, np.full(4000, 1e-4, np.float32))
        blurred = material.at(u, v, np.full(4000, 10, np.float32))
        assert sharp.shape == (3, 4000)
        assert sharp.dtype == np.float32
        assert (sharp >= -1e-6).all()
        assert (sharp < 1.7).all()
        np.testing.assert_allclose(blurred.mean(axis=1), sharp.mean(axis=1), rtol=0.25, atol=0.03)
        assert (blurred.std(axis=1) <= sharp.std(axis=1) + 1e-3).all()


def test_noise_is_spread_evenly_and_smooth_noise_is_smooth() -> None:
    a, b = (grid.ravel().astype(np.float32) for grid in np.meshgrid(np.arange(-40, 40), np.arange(-40, 40)))
    values = hash_cell(a, b, 7)
    assert abs(values.mean() - 0.5) < 0.03
    assert values.std() == pytest.approx(1 / math.sqrt(12), abs=0.02)
    grid = values.reshape(80, 80)
    assert abs(np.corrcoef(grid[1:].ravel(), grid[:-1].ravel())[0, 1]) < 0.06
    line = np.linspace(-3, 3, 601, dtype=np.float32)
    soft = sample_noise(line, np.full_like(line, 0.3), 7)
    assert np.abs(np.diff(soft)).max() < 0.03
    np.testing.assert_allclose(soft[[0, 100, 600]], sample_noise(line[[0, 100, 600]], np.full(3, 0.3, np.float32), 7))


def test_patches_cover_what_is_below_them() -> None:
    red, blue = Material((1.0, 0.0, 0.0), uneven=0), Material((0.0, 0.0, 1.0), uneven=0)
    view = np.zeros((2, 2, 3), np.float32)
    view[0] = 1
    wall = Surface(
        red,
        ((blue, 0.0, 0.5),),
        (Patch("round", (0, 1, 1, 2), blue), Patch("photo", (2, 3, 1, 2), blue, view, glow=2.0)),
    )
    u, v = np.array([0.5, 0.5, 0.05, 2.5, 2.5, 5], np.float32), np.array([0.2, 1.5, 1.05, 1.9, 1.1, 2], np.float32)
    colours, glow = wall.at(u, v, np.full(6, 1e-3, np.float32))
    assert glow is not None
    assert colours.T.round(3).tolist() == [[0, 0, 1], [0, 0, 1], [1, 0, 0], [1, 1, 1], [0, 0, 0], [1, 0, 0]]
    assert glow.tolist() == [0, 0, 0, 2, 2, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "draw_rooms: count must be a whole number of at least 1, got 0"),
        ({"count": 1, "size": 15}, "size must be a whole number of at least 16, got 15"),
        ({"count": 1, "seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"count": 1, "workers": 0}, "workers must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        draw_rooms(**arguments)


def test_prepared_rooms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Source(count=24, size=32).prepare(tmp_path / "rooms")
    assert {role: len(made.split(role)) for role in ("train", "query", "gallery")} == {
        "train": 16,
        "query": 2,
        "gallery": 6,
    }
    from cml.data.masks import read_mask

    drawn = draw_rooms(24, size=32)
    np.testing.assert_array_equal(read_mask(made.split("train").labels[3]), drawn.masks[3])
    np.testing.assert_array_equal(read_mask(made.split("gallery").labels[0]), drawn.masks[18])
    again = Source(count=24, size=32, workers=2).prepare(tmp_path / "rooms")
    assert "already prepared" in capsys.readouterr().err
    assert isinstance(again, PreparedDataset)
    with pytest.raises(UserError, match="at least 12"):
        Source(count=11)
