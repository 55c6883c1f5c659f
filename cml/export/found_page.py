"""The results of a search in an index as one self-contained HTML page, in the style and by the rules of the gallery."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.data.images import read_image
from cml.errors import DataError, UserError
from cml.export.index import Hit
from cml.reporting import gallery_style
from cml.reporting.gallery_style import STEPS, Drawable, PictureRules
from cml.reporting.visible_text import visible_text

_GONE = Image.new("RGB", (4, 3), "#808080")


@dataclass(frozen=True)
class Found:
    """A picture of the page, None if it cannot be read; ``distance`` is None for the query itself."""

    image: Drawable | None
    caption: str
    distance: float | None = None
    label: str = ""


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
    """Write a page of the hits ``found`` for each query image in an index of ``items`` images."""
    rows = [
        (
            Found(_Picture(image), image.name, label=own_label(image, hits)),
            [Found(_Picture(hit.path), hit.item_id, hit.distance, hit.label) for hit in hits],
        )
        for image, hits in zip(images, found, strict=True)
    ]
    write_search_page(path, rows, title=f"Nearest in {index.name}", summary=f"An index of {items} images.")


def write_search_page(
    path: Path, rows: Sequence[tuple[Found, Sequence[Found]]], *, title: str, summary: str = "", thumbnail: int = 128
) -> None:
    """Write the page of each query and what was found for it, nearest first."""
    if not rows:
        raise UserError("A page of search results needs at least one query. Got none.")
    if not 16 <= thumbnail <= 1024:
        raise UserError(f"'thumbnail' must be 16 to 1024 CSS pixels. Got {thumbnail} instead.")
    images = PictureRules(thumbnail)
    farthest = max((found.distance or 0.0 for _, hits in rows for found in hits), default=0.0)

    def view(found: Found) -> dict[str, str | None]:
        step = round(STEPS * (found.distance or 0.0) / farthest) if farthest > 0 else 0
        image = images.name(found.image)
        return {
            "image": image or images.name(_GONE),
            "caption": visible_text(found.caption) + ("" if image else " (cannot be read)"),
            "label": visible_text(found.label),
            "number": "" if found.distance is None else f"{found.distance:.4f}",
            "bar": "" if found.distance is None else f"s{step}",
        }

    bar = ProgressBar(rows, "page", unit="query", delay=BAR_DELAY)
    shown = [(view(query), list(map(view, hits))) for query, hits in bar]
    shown_title, shown_summary = visible_text(title) or "Search", visible_text(summary, 2000)
    gallery_style.write_page(path, "search.html.j2", images, title=shown_title, summary=shown_summary, rows=shown)
