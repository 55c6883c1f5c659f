"""Captions: images that are alike when people say the same of them, whatever class they belong to.

Command: cml train caption --data DIR --out RUN
Time: about an hour on 2 cores, and the label distances once: 75,000 pairs of images a second and core. With
``--freeze-backbone --steps 300``, seconds beside that once the images have been embedded.
Expected score: that of such heads on captions of photographs in docs/results/photographs.md, of small networks on drawn
scenes in docs/results/drawn.md. The recipe has not been run on COCO.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from cml.data.dataset_info import DatasetInfo
from cml.errors import DataError
from cml.registry import Choice
from cml.tasks import main
from cml.tasks.baselines import COMPARED, variants
from cml.tasks.value import TASK as VALUE
from cml.training.config import TrainConfig

RECIPE = TrainConfig(
    label_distance="captions",
    # Stored 256 px high or wide; the network sees a 224 px box, its side +-12 px and its place +-8 px.
    crop=224 / 256,
    scale_jitter=12 / 256,
    shift_jitter=8 / 256,
    # What stands left in a picture stands right in its mirror image. "image" mirrors the words as well, see mirror();
    # but text, clocks and cars on the right side of the road are no longer true of a mirrored photograph.
    flip="none",
)
VECTORS = "glove-6b-50d"
_KNOWN = (VECTORS, "scene-words")  # a dataset may name vectors that come with a package, not a file
_SIDE = re.compile(r"\b(?:left|right)\b", re.IGNORECASE)


def label_distance(
    recipe: TrainConfig,
    info: DatasetInfo,  # the dataset's info, which may name word vectors under ``details.word_vectors``
) -> str:
    """Complete the recipe's label distance with the dataset's word vectors, or else GloVe.

    Captions without a known word are left out.
    """
    choice = Choice.parse(recipe.label_distance)
    if choice.name != "captions" or "vectors" in choice.settings:
        return recipe.label_distance
    vectors = info.details.get("word_vectors", VECTORS)
    if vectors not in _KNOWN:
        raise DataError(
            f"dataset.json of {info.name!r} should name under details.word_vectors one of {', '.join(_KNOWN)}. "
            f"Got {vectors!r} instead; take vectors of your own with --label-distance 'captions(vectors=PATH)'."
        )
    return str(Choice(choice.name, {"vectors": vectors, "empty_caption": "drop", **choice.settings}))


def mirror(label: Sequence[str], info: DatasetInfo) -> list[str]:
    """Mirror captions: left and right exchanged wherever they stand, be it "has left" or not."""
    return [_SIDE.sub(_other_side, text) for text in label]


def _other_side(match: re.Match[str]) -> str:
    word = match[0]
    other = "right" if word.lower() == "left" else "left"
    if word.isupper():
        return other.upper()
    return other.capitalize() if word[0].isupper() else other


TASK = replace(
    VALUE,
    name="caption",
    summary="captions: one or more sentences that describe an image",
    recipe=RECIPE,
    describe=lambda label, info: " / ".join(text.strip() for text in label),
    variants=variants(paper_exponent=1.0),  # the published loss takes the sum of Word Mover's Distances as it is
    compared=COMPARED,
    label_distance=label_distance,
    mirror=mirror,
    sample="scenes",
)

if __name__ == "__main__":
    main("caption")
