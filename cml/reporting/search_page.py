"""The results of a search as one self-contained HTML page in the style of the gallery, with the same restrictions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from cml.errors import UserError
from cml.processes.bar import SILENT, Bar
from cml.reporting.gallery_style import STEPS, Drawable, PictureRules, write_page
from cml.reporting.visible_text import visible_text

_GONE = Image.new("RGB", (4, 3), "#808080")


@dataclass(frozen=True)
class Found:
    """A picture of the page.

    Attributes:
        image: The picture, or a function that makes it when it is written; None if it cannot be read.
        caption: Any text, such as the item's id.
        distance: Embedding distance to the query; None for the query itself.
        label: Its label in words; may be empty.
    """

    image: Drawable | None
    caption: str
    distance: float | None = None
    label: str = ""


def write_search_page(
    path: Path, rows: Sequence[tuple[Found, Sequence[Found]]], *, title: str, summary: str = "", thumbnail: int = 128
) -> None:
    """Write the page.

    Args:
        path: The HTML file; it is replaced as a whole or not at all.
        rows: Each query and what was found for it, nearest first, in the order in which they shall stand.
        title: Heading of the page.
        summary: A paragraph below the heading.
        thumbnail: Largest width and height of a picture, in CSS pixels.

    Raises:
        UserError: no rows, or a thumbnail out of range.
    """
    if not rows:
        raise UserError("A page of search results needs at least one query. Got none.")
    if not 16 <= thumbnail <= 1024:
        raise UserError(f"'thumbnail' must be 16 to 1024 CSS pixels. Got {thumbnail} instead.")
    images = PictureRules(thumbnail)
    farthest = max((found.distance or 0.0 for _, hits in rows for found in hits), default=0.0)

    def view(found: Found) -> dict[str, str | None]:
        shown = "" if found.distance is None else f"{found.distance:.4f}"
        step = round(STEPS * (found.distance or 0.0) / farthest) if farthest > 0 else 0
        image = images.name(found.image)
        return {
            "image": image or images.name(_GONE),
            "caption": visible_text(found.caption) + ("" if image else " (cannot be read)"),
            "label": visible_text(found.label),
            "number": shown,
            "bar": "" if found.distance is None else f"s{step}",
        }

    bar = Bar(rows, "page", unit="query", delay=SILENT)
    shown = [(view(query), [view(found) for found in hits]) for query, hits in bar]
    shown_title, shown_summary = visible_text(title) or "Search", visible_text(summary, 2000)
    write_page(path, "search.html.j2", images, title=shown_title, summary=shown_summary, rows=shown)
