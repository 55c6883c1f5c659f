"""What a search of an index found, as a page with the pictures."""

from __future__ import annotations

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
    """Makes the picture of a file; equal for equal files."""

    path: Path

    def __call__(self) -> Image.Image | None:
        try:
            image = Image.fromarray(read_image(self.path))
        except DataError:  # an item whose file was moved since it was indexed is still an answer
            return None
        image.thumbnail((512, 512))
        return image


def write_page(path: Path, images: Sequence[Path], found: Sequence[Sequence[Hit]], index: Path, items: int) -> None:
    """Write what was found for each image as a page.

    Args:
        path: The HTML file.
        images: The images that were looked for.
        found: What was found for each, nearest first.
        index: Folder of the index.
        items: How many images it holds.

    Raises:
        UserError: there are no images.
    """
    rows = [
        (
            Found(_Picture(image), image.name),
            [Found(_Picture(hit.path), hit.item_id, hit.distance, hit.label) for hit in hits],
        )
        for image, hits in zip(images, found, strict=True)
    ]
    write_search_page(path, rows, title=f"Nearest in {index.name}", summary=f"An index of {items} images.")
