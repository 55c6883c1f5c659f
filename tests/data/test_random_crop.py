"""Random crops: the published distribution of boxes, their pixels beside Pillow's, and what cannot be combined."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import cml
from cml import distances, sampling
from cml.data.augmentation import AREA, ASPECT, Jitter, center_box, cut_crops, draw_crops, jitter_boxes
from cml.data.images import Images
from cml.errors import UserError
from cml.items import LabelledItems
from cml.option_types import check_options
from cml.processes.ranks import Ranks
from cml.training.batches import BatchSource
from cml.training.config import TrainConfig
from cml.training.training_targets import TrainingTargets

LEVELS = np.linspace(0, 255, 24)
CONFIG = TrainConfig(
    backbone="small-cnn",
    weights="none",
    image_size=(16, 16),
    dimension=8,
    sampler="random(batch_size=10)",
    steps=4,
    workers=0,
    crop=0.8,
)


def photographs(count: int, height: int, width: int) -> np.ndarray:
    """Pictures in which no two pixels in a row or a column are alike."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (count, 6, 6, 3), dtype=np.uint8)
    return np.stack(
        [np.asarray(Image.fromarray(one).resize((width, height), Image.Resampling.BICUBIC)) for one in coarse]
    )


def test_crops_at_random_places_are_whole_pixels_of_the_stored_image() -> None:
    images = photographs(5, 20, 24)
    jitter = Jitter(crop=0.8, random_crop="place")
    boxes = jitter_boxes(images, (16, 16), jitter, np.random.default_rng(1))
    assert boxes.shape == (5, 3, 16, 16)
    for image, box in zip(images, boxes.permute(0, 2, 3, 1).numpy(), strict=True):
        places = [
            (top, left)
            for top in range(20 - 16 + 1)
            for left in range(24 - 16 + 1)
            if np.array_equal(image[top : top + 16, left : left + 16], box)
        ]
        assert len(places) == 1
    corners = draw_crops("place", 2000, (20, 24), (16, 16), np.random.default_rng(0))[:, :2]
    assert {*corners[:, 0].tolist()} == {*range(5)}
    assert {*corners[:, 1].tolist()} == {*range(9)}


def test_crops_of_random_areas_have_the_published_distribution() -> None:
    stored = (256, 256)
    crops = draw_crops("area", 20_000, stored, (224, 224), np.random.default_rng(0))
    top, left, height, width = crops.T
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= 256).all()
    assert (left + width <= 256).all()
    areas, aspects = height * width / 256**2, width / height
    assert areas.min() > AREA[0] - 0.01
    assert ASPECT[0] - 0.02 < aspects.min() < 0.8
    assert 1.25 < aspects.max() < ASPECT[1] + 0.03
    slow = np.array([slowly_drawn(stored, rng) for rng in [np.random.default_rng(9)] for _ in range(20_000)])
    for ours, theirs in ((areas, slow.prod(axis=1) / 256**2), (np.log(aspects), np.log(slow[:, 1] / slow[:, 0]))):
        assert ours.mean() == pytest.approx(theirs.mean(), abs=0.01)
        assert ours.std() == pytest.approx(theirs.std(), abs=0.01)


def slowly_drawn(stored: tuple[int, int], rng: np.random.Generator) -> tuple[int, int]:
    """Height and width of a box, drawn one by one as torchvision's ``RandomResizedCrop`` does."""
    for _ in range(10):
        area = stored[0] * stored[1] * rng.uniform(0.08, 1)
        aspect = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        width, height = round(np.sqrt(area * aspect)), round(np.sqrt(area / aspect))
        if 0 < height <= stored[0] and 0 < width <= stored[1]:
            return height, width
    return stored


def test_where_no_shape_fits_the_whole_image_is_taken() -> None:
    crops = draw_crops("area", 200, (4, 400), (16, 16), np.random.default_rng(0))
    assert [0, 0, 4, 400] in crops.tolist()


def test_boxes_are_resized_as_pillow_resizes_them() -> None:
    images = photographs(6, 40, 40)
    crops = np.array([[3, 5, 30, 20], [0, 0, 40, 40], [10, 0, 8, 12], [24, 24, 16, 16], [0, 7, 33, 33], [1, 1, 2, 3]])
    for image, box, cut in zip(images, crops.tolist(), cut_crops(images, crops, (16, 16)), strict=True):
        top, left, height, width = box
        piece = Image.fromarray(image[top : top + height, left : left + width])
        wanted = np.asarray(piece.resize((16, 16), Image.Resampling.BILINEAR)).astype(int)
        assert np.abs(cut.permute(1, 2, 0).numpy().astype(int) - wanted).max() <= 1
    floats = cut_crops(images.astype(np.float32), crops, (16, 16))
    assert floats.dtype == torch.float32
    assert (floats - cut_crops(images, crops, (16, 16))).abs().max() <= 1


def batches(ranks: Ranks, **options: object) -> BatchSource:
    distance = distances.get("euclidean")
    labels = distance.encode(LEVELS.tolist())
    data = LabelledItems(Images(photographs(24, 20, 20), (20, 20)), labels, distance)
    sampler = sampling.get(CONFIG.sampler)
    state = sampler.sampler_state(TrainingTargets(distance, labels))
    return BatchSource(data, sampler, state, replace(CONFIG, **options), ranks=ranks)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["place", "area"])
def test_processes_cut_the_crops_of_one_process(kind: str) -> None:
    for options in ({"random_crop": kind}, {"random_crop": kind, "brightness_jitter": 0.2, "views": 2}):
        whole, *_ = batches(Ranks(), **options)[1]
        parts = [batches(Ranks(rank, 3), **options)[1][0] for rank in range(3)]
        assert torch.equal(torch.cat(parts), whole)
        assert torch.equal(batches(Ranks(), **options)[1][0], whole)
        assert not torch.equal(batches(Ranks(), **options)[2][0], whole)


def test_the_centre_is_seen_after_training() -> None:
    images = photographs(24, 20, 20)
    model = cml.fit(images, LEVELS, replace(CONFIG, random_crop="area"), quiet=True)
    centre = center_box(images, (16, 16))
    with torch.no_grad():
        np.testing.assert_allclose(model.embed(images), model.network(centre).numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"random_crop": "place", "crop": 1.0}, "must be larger than the crop: set 'crop' below 1"),
        ({"random_crop": "area", "shift_jitter": 0.1}, "Both 'random_crop' and 'shift_jitter' place the crop"),
        ({"random_crop": "place", "scale_jitter": 0.1}, "Both 'random_crop' and 'scale_jitter' place the crop"),
        ({"random_crop": "area", "freeze_backbone": True}, "set 'random_crop' to none. Got random_crop=area"),
    ],
)
def test_what_cannot_be_combined_is_said(change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_options(replace(CONFIG, **change))  # type: ignore[arg-type]


def test_vectors_are_not_cropped() -> None:
    with pytest.raises(UserError, match="'random_crop' changes images, but the inputs are 3 numbers"):
        cml.fit(np.zeros((24, 3)), LEVELS, random_crop="area", steps=1, quiet=True)
