"""The name of the row of frozen features: with the image size, unless it is the one that the weights are for."""

from __future__ import annotations

import pytest

from cml.models.weights import name_frozen


@pytest.mark.parametrize(
    ("backbone", "size", "name"),
    [
        ("efficientnet-lite0", (224, 224), "frozen efficientnet-lite0"),
        ("efficientnet-lite1", (224, 224), "frozen efficientnet-lite1 at 224 x 224 pixels"),
        ("efficientnet-lite0", (64, 48), "frozen efficientnet-lite0 at 64 x 48 pixels"),
        ("resnet34", (224, 224), "frozen resnet34"),
        ("timm/vit_small_patch14_dinov2.lvd142m", (518, 518), "frozen timm/vit_small_patch14_dinov2.lvd142m"),
        ("custom", (224, 224), "frozen custom at 224 x 224 pixels"),
    ],
)
def test_row_carries_its_image_size_unless_it_is_the_published_one(
    backbone: str, size: tuple[int, int], name: str
) -> None:
    if backbone.startswith("timm/"):
        pytest.importorskip("timm")
    assert name_frozen(backbone, size) == name
