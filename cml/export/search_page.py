"""The results of a search in an index as one self-contained HTML page, in the style of the retrieval report."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.data.band_picture import read_picture
from cml.errors import DataError, UserError
from cml.export.hit import Hit
from cml.reporting import picture_rules
from cml.reporting.picture_rules import STEPS, Drawable, PictureRules
from cml.reporting.visible_text import visible_text

_UNREADABLE = Image.new("RGB", (4, 3), "#808080")


@dataclass(frozen=True)
class SearchPicture:
    """A picture of the page.

    Attributes:
        image: The picture; None if it cannot be read.
        caption: The text below it.
        distance: Embedding distance to the query; None for the query itself.
        label: Its label in words; "" for none.
    """

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
            image = read_picture(self.path)
        except DataError:  # the file may have moved since it was indexed
            return None
        image.thumbnail((512, 512))
        return image


def own_label(image: Path, hits: Sequence[Hit]) -> str:
    """The label of a query image that is itself among its hits; "" for any other.

    Only names are compared, and no file is opened, because an index may hold any text as a path.
    """
    own = (hit for hit in hits if hit.path is not None and os.path.abspath(hit.path) == os.path.abspath(image))
    return next((hit.shown_label for hit in own), "")


def write_index_page(
    path: Path, images: Sequence[Path], hits: Sequence[Sequence[Hit]], index: Path, items: int
) -> None:
    """Write a page of a search in an index.

    Args:
        path: The page.
        images: The query images.
        hits: The hits of each.
        index: Folder of the index.
        items: Number of items that it holds.
    """
    rows = [
        (
            SearchPicture(_Picture(image), image.name, label=own_label(image, image_hits)),
            [
                SearchPicture(_Picture(hit.path) if hit.path else None, hit.item_id, hit.distance, hit.shown_label)
                for hit in image_hits
            ],
        )
        for image, image_hits in zip(images, hits, strict=True)
    ]
    write_search_page(path, rows, title=f"Nearest in {index.name}", summary=f"An index of {items} images.")


def write_search_page(
    path: Path,
    rows: Sequence[tuple[SearchPicture, Sequence[SearchPicture]]],
    *,
    title: str,
    summary: str = "",
    thumbnail: int = 128,
) -> None:
    """Write a page of queries and the pictures found for each.

    Args:
        path: The page.
        rows: Each query, and what was found for it, nearest first.
        title: Title of the page.
        summary: A sentence below it.
        thumbnail: Size of a picture on the page, in CSS pixels.

    Raises:
        UserError: There is no query, or ``thumbnail`` is out of range.
    """
    if not rows:
        raise UserError("A page of search results needs at least one query. Got none.")
    if not 16 <= thumbnail <= 1024:
        raise UserError(f"'thumbnail' must be 16 to 1024 CSS pixels. Got {thumbnail} instead.")
    images = PictureRules(thumbnail)
    farthest = max((hit.distance or 0.0 for _, hits in rows for hit in hits), default=0.0)

    def view(picture: SearchPicture) -> dict[str, str | None]:
        step = round(STEPS * (picture.distance or 0.0) / farthest) if farthest > 0 else 0
        image = images.name(picture.image)
        return {
            "image": image or images.name(_UNREADABLE),
            "caption": visible_text(picture.caption) + ("" if image else " (cannot be read)"),
            "label": visible_text(picture.label),
            "number": "" if picture.distance is None else f"{picture.distance:.4f}",
            "bar": "" if picture.distance is None else f"s{step}",
        }

    bar = ProgressBar(rows, "page", unit="query", delay=BAR_DELAY)
    shown = [(view(query), list(map(view, hits))) for query, hits in bar]
    shown_title, shown_summary = visible_text(title) or "Search", visible_text(summary, 2000)
    values = {"title": shown_title, "summary": shown_summary, "rows": shown}
    picture_rules.write_page(path, "search.html.j2", images, values)
