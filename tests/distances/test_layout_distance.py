from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cml.array_types import Int64
from cml.distances.labels import LabelError
from cml.distances.layout.distance import Layout
from cml.errors import UserError

Map = Int64


def slow_iou(a: Map, b: Map, m: int, n: int) -> float:
    both = sum(p == m and q == n for p, q in zip(a.flat, b.flat, strict=True))
    either = sum(p == m or q == n for p, q in zip(a.flat, b.flat, strict=True))
    return both / either if either else 0.0


def slow_fixed(a: Map, b: Map, ignore: int) -> float:
    kept = (a != ignore) & (b != ignore)
    a, b = a[kept], b[kept]
    present = sorted(set(a.tolist()) | set(b.tolist()))
    return 1 - sum(slow_iou(a, b, c, c) for c in present) / len(present) if present else float("inf")


def slow_hungarian(a: Map, b: Map, ignore: int) -> float:
    kept = (a != ignore) & (b != ignore)
    a, b = a[kept], b[kept]
    few, many = sorted([sorted(set(a.tolist())), sorted(set(b.tolist()))], key=len)
    if set(few) != set(a.tolist()):
        a, b = b, a
    best = (-1, 0.0)
    for chosen in itertools.permutations(many, len(few)):
        pairs = list(zip(few, chosen, strict=True))
        agreeing = sum(int(((a == m) & (b == n)).sum()) for m, n in pairs)
        best = max(best, (agreeing, sum(slow_iou(a, b, m, n) for m, n in pairs)))
    return 1 - best[1] / len(many) if many else float("inf")


@settings(deadline=None, max_examples=50)
@given(st.data(), st.sampled_from(["fixed", "hungarian"]), st.integers(1, 3), st.integers(1, 5))
def test_equals_the_slow_formula(data: st.DataObject, matching: Any, height: int, width: int) -> None:  # noqa: ANN401
    size = height * width
    cells = data.draw(st.lists(st.lists(st.integers(0, 4), min_size=size, max_size=size), min_size=2, max_size=5))
    maps = [np.array(cell).reshape(height, width) for cell in cells if any(cell)]
    if not maps:
        return
    distance = Layout(resolution=None, matching=matching)
    labels = distance.encode(maps)
    slow = slow_fixed if matching == "fixed" else slow_hungarian
    expected = [[slow(a, b, 0) for b in maps] for a in maps]
    found = distance.pairwise(labels, labels)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    # the half that was mirrored equals the half that was computed
    np.testing.assert_array_equal(found, distance.pairwise(labels, labels[:]))


def test_ids_mean_nothing_when_matched_and_everything_when_fixed() -> None:
    room = np.array([[5, 5, 5], [2, 1, 3], [4, 4, 4]])
    renamed = np.array([0, 7, 6, 2, 1, 3])[room]
    matched = Layout(resolution=None, matching="hungarian")
    labels = matched.encode([room, renamed])
    assert (matched.pairwise(labels, labels) == 0).all()
    assert Layout(resolution=None).pairwise(labels, labels)[0, 1] == 1


def test_ignored_pixels_are_left_out_of_both_and_no_common_pixel_is_no_comparison() -> None:
    a, b, c = [[1, 1, 0, 0]], [[0, 1, 1, 4]], [[0, 0, 2, 2]]
    distance = Layout(resolution=None)
    labels = distance.encode([a, b, c])
    np.testing.assert_array_equal(distance.pairwise(labels, labels), [[0, 0, np.inf], [0, 0, 1], [np.inf, 1, 0]])
    kept = Layout(resolution=None, ignore=None)
    assert kept.pairwise(kept.encode([a]), kept.encode([c])).tolist() == [[1]]


def test_blocks_of_many_maps_equal_single_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cml.distances.layout.distance._TILE", 7)
    monkeypatch.setattr("cml.distances.layout.distance._PACKED_PIXELS", 6 * 64)
    maps = np.random.default_rng(0).integers(0, 6, (20, 8, 8))
    for matching in ("fixed", "hungarian"):
        distance = Layout(resolution=None, matching=matching)
        labels = distance.encode(list(maps))
        whole = distance.pairwise(labels, labels)
        alone = [distance.encode([mask]) for mask in maps]
        single = [[distance.pairwise(a, b)[0, 0] for b in alone] for a in alone]
        np.testing.assert_array_equal(whole, single)
        np.testing.assert_array_equal(whole, whole.T)


def test_resolution_takes_the_nearest_pixel(tmp_path: Path) -> None:
    mask = np.random.default_rng(0).integers(1, 6, (7, 11)).astype(np.uint8)
    Image.fromarray(mask).save(tmp_path / "mask.png")
    labels = Layout(resolution=5).encode([tmp_path / "mask.png", str(tmp_path / "mask.png"), mask])
    expected = [[mask[int((i + 0.5) * 7 / 5), int((j + 0.5) * 11 / 5)] for j in range(5)] for i in range(5)]
    same = Layout(resolution=None).encode([expected] * 3)
    assert labels.fingerprint() == same.fingerprint()


def test_palette_masks_give_their_ids(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[1, 4], [4, 4]], np.uint8)).convert("P")
    image.putpalette([0, 0, 0, 200, 0, 0] * 3)
    image.putdata([1, 4, 4, 4])
    image.save(tmp_path / "mask.png")
    distance = Layout(resolution=None)
    same = distance.encode([[[1, 4], [4, 4]]])
    assert distance.encode([tmp_path / "mask.png"]).fingerprint() == same.fingerprint()


def test_bad_masks_are_named(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "colour.png")
    (tmp_path / "broken.png").write_bytes((tmp_path / "colour.png").read_bytes()[:40])
    (tmp_path / "text.png").write_text("no image")
    good = np.ones((4, 4), np.uint8)
    for bad, message in (
        (tmp_path / "colour.png", r"Label 1 is the mask .*colour\.png, which is of mode RGB"),
        (tmp_path / "broken.png", r"Label 1 is the mask .*broken\.png, which cannot be read"),
        (tmp_path / "text.png", r"Label 1 is the mask .*text\.png, which cannot be read"),
        (tmp_path / "none.png", r"Label 1 is the mask .*none\.png, which is missing"),
        (np.zeros((4, 4), int), r"Label 1 has only ignored pixels \(id 0\)"),
        (np.ones((4, 4)), "Label 1 should be a mask's path or a 2-D array of class ids"),
        ([[1, 2], [3]], "Label 1 should be a mask's path or a 2-D array"),
        (np.full((4, 4), 300), "Label 1 holds the class ids 300 to 300"),
        (np.ones((4, 5), int), "Label 1 is 5x4 pixels, the first is 4x4; masks of different sizes need a resolution"),
    ):
        with pytest.raises(LabelError, match=message):
            Layout(resolution=None).encode([good, bad])
    one, other = (Layout(resolution=side).encode([good]) for side in (2, 4))
    with pytest.raises(UserError, match="2x2 and 4x4"):
        Layout(resolution=None).pairwise(one, other)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [({"ignore": -1}, "ignore"), ({"resolution": 0}, "resolution"), ({"matching": "best"}, "fixed or hungarian")],
)
def test_bad_settings(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Layout(**chosen)


def test_too_many_classes_to_match() -> None:
    labels = Layout(resolution=None).encode([np.arange(1, 13).reshape(3, 4)])
    with pytest.raises(UserError, match=r"at most 10 classes per mask\. Got 12"):
        Layout(resolution=None, matching="hungarian").pairwise(labels, labels)


def test_real_rooms(real_data: Callable[[str], Path]) -> None:
    paths = sorted((real_data("zind_layouts") / "masks").glob("*.png"))[::8]
    small, full = Layout(), Layout(resolution=None)
    labels, whole = small.encode(paths), full.encode(paths)
    near, exact = small.pairwise(labels, labels), full.pairwise(whole, whole)
    masks = [np.asarray(Image.open(path)) for path in paths]
    for i, j in ((0, 1), (3, 20), (7, 30)):
        present = sorted(set(np.unique(masks[i])) | set(np.unique(masks[j])))
        ious = [((masks[i] == c) & (masks[j] == c)).sum() / ((masks[i] == c) | (masks[j] == c)).sum() for c in present]
        assert exact[i, j] == pytest.approx(1 - np.mean(ious), abs=1e-6)
    assert np.abs(near - exact).max() < 0.02
    assert np.abs(near - exact).mean() < 0.003
