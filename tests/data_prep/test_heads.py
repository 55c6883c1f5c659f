"""Drawn heads: the pictures show the rotations that their labels state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from cml import data_prep, distances
from cml.array_types import Float64
from cml.data_prep.synthetic.heads import heads
from cml.data_prep.synthetic.heads.heads import draw_heads

LINE = (np.arange(160) + 0.5) / 40 - 2
LOOKS = heads._Looks(
    skin=np.array([200.0, 150, 120]),
    hair=np.array([60.0, 40, 20]),
    shirt=np.array([20.0, 60, 200]),
    eyes=np.array([30.0, 60, 90]),
    hairline=0.3,
    wide=0.76,
    long=1.0,
    glasses=False,
)


def drawn(turn: Float64, light: tuple[float, float, float] = (0, 0, -1), **changes: object) -> NDArray:  # type: ignore[type-arg]
    pixels = np.zeros((160, 160, 3))
    heads._render(pixels, LINE, LINE, turn, LOOKS._replace(**changes), np.array(light))  # type: ignore[arg-type]
    return pixels


def turned(*angles: float) -> Float64:
    return np.asarray(Rotation.from_euler("YXZ", angles, degrees=True).as_matrix())


def test_an_item_depends_on_its_number_alone() -> None:
    few, more = draw_heads(4, seed=3, size=32), draw_heads(7, seed=3, size=32)
    assert np.array_equal(few[0], more[0][:4])
    assert np.array_equal(few[1], more[1][:4])
    assert not np.array_equal(few[0], draw_heads(4, seed=4, size=32)[0])
    assert more[0].shape == (7, 32, 32, 3)


def test_rotations_are_unit_quaternions_of_any_yaw() -> None:
    rotations = draw_heads(300, size=16)[1]
    assert np.linalg.norm(rotations, axis=1) == pytest.approx(1)
    assert (rotations[:, 3] >= 0).all()
    facing = Rotation.from_quat(rotations).apply([0, 0, -1])
    yaws = np.degrees(np.arctan2(facing[:, 0], -facing[:, 2]))
    assert np.histogram(yaws, 8, (-180, 180))[0].min() > 15


@pytest.mark.parametrize("angles", [(0, 0, 0), (30, 0, 0), (-40, 20, 0), (25, -20, 15), (50, 10, -20)])
def test_glasses_are_where_the_rotation_puts_them(angles: tuple[float, float, float]) -> None:
    turn = turned(*angles)
    other = np.abs(drawn(turn) - drawn(turn, glasses=True)).sum(axis=2) > 1
    point = np.array([0.4, -0.12, -np.sqrt(1 - 0.4**2 - 0.12**2)])
    places = []
    for side in (-1, 1):
        place = turn @ (point * (side, 1, 1) * (LOOKS.wide, LOOKS.long, 0.9))
        normal = turn @ (point * (side, 1, 1) / (LOOKS.wide, LOOKS.long, 0.9))
        if normal[2] < -0.3:  # it faces the camera
            places.append(place[:2])
            rows, columns = np.nonzero(other)
            away = np.hypot(LINE[columns] - place[0], LINE[rows] - place[1])
            assert ((away < 0.3) & (away > 0.05)).sum() > 40
    assert places


def test_the_face_is_not_seen_from_behind() -> None:
    turn = turned(180, 0, 0)
    assert np.array_equal(drawn(turn), drawn(turn, glasses=True, eyes=np.zeros(3)))


@pytest.mark.parametrize("angles", [(20, 10, 5), (100, -15, 20), (-150, 5, -10)])
def test_the_mirrored_rotation_gives_the_mirrored_picture(angles: tuple[float, float, float]) -> None:
    mirror = np.diag([-1.0, 1, 1])
    turn = turned(*angles)
    mirrored = drawn(mirror @ turn @ mirror, light=(-0.5, -0.4, -1))
    assert mirrored[:, ::-1] == pytest.approx(drawn(turn, light=(0.5, -0.4, -1)))


def test_heads_as_a_dataset_are_compared_by_their_rotation(tmp_path: Path) -> None:
    from cml import tasks

    dataset = data_prep.get("heads", count=24, size=16).prepare(tmp_path / "heads")
    task = tasks.get("value")
    chosen = task.label_distance(task.recipe, dataset.info)
    assert chosen == "rotation"
    labels = distances.get(chosen).encode(dataset.split("train").labels)
    assert labels.arrays["quaternions"] == pytest.approx(draw_heads(16, size=16)[1], abs=1e-5)
