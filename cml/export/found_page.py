"""The results of a search in an index, as a page with pictures."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from cml.data.images import read_image
from cml.errors import DataError
from cml.export.index import Hit
from cml.reporting.search_page import Found, write_search_page


@dataclass(frozen=True)
class _Picture:
    """The picture of a file, made when it is called."""

    path: Path

    def __call__(self) -> Image.Image | None:
        try:
            image = Image.fromarray(read_image(self.path))
        except DataError:  # the file may have moved since it was indexed
            return None
        image.thumbnail((512, 512))
        return image


def own_label(image: Path, hits: Sequence[Hit]) -> str:
    """The label of an image that found itself in the index; "" for any other."""
    # of names alone: an index may hold any text as a path
    return next((hit.label for hit in hits if os.path.abspath(hit.path) == os.path.abspath(image)), "")


def write_page(path: Path, images: Sequence[Path], found: Sequence[Sequence[Hit]], index: Path, items: int) -> None:
    """Write an HTML page of the hits ``found`` for each query image in an index of ``items`` images.

    Raises:
        UserError: there are no images.
    """
    rows = [
        (
            Found(_Picture(image), image.name, label=own_label(image, hits)),
            [Found(_Picture(hit.path), hit.item_id, hit.distance, hit.label) for hit in hits],
        )
        for image, hits in zip(images, found, strict=True)
    ]
    write_search_page(path, rows, title=f"Nearest in {index.name}", summary=f"An index of {items} images.")
