"""The results of a search in an index as one self-contained HTML page, in the style of the retrieval report.

Items of which there are no pictures, such as vectors, are shown by their names, labels and columns as text.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.data.encode_image import read_picture
from cml.errors import DataError, UserError
from cml.reporting import picture_rules
from cml.reporting.picture_rules import STEPS, Drawable, PictureRules
from cml.reporting.visible_text import visible_text
from cml.retrieval.calibration import Calibration
from cml.searching.hit import Hit
from cml.searching.index_novelty import MEANING
from cml.storage.safe_paths import is_inside

_UNREADABLE = Image.new("RGB", (4, 3), "#808080")


@dataclass(frozen=True)
class SearchPicture:
    """An item of the page: a picture with text below it, or the text alone."""

    image: Drawable | None  # the picture; None if it cannot be read, or if the page shows no pictures
    caption: str  # the text below it
    distance: float | None = None  # embedding distance to the query; None for the query itself
    label: str = ""  # its label in words; "" for none
    expected: str = ""  # the label distance to expect to the query, in words; "" if that is not known
    columns: Mapping[str, str] = field(default_factory=dict)  # further columns of the item, as texts


@dataclass(frozen=True)
class _Picture:
    """The picture of a file, made when it is called; None of one that is not below any of the folders, if given."""

    path: Path
    roots: tuple[Path, ...] | None = None

    def __call__(self) -> Image.Image | None:
        roots = self.roots
        if roots is not None and not any(is_inside(self.path, Path(os.path.realpath(root))) for root in roots):
            return None
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


def describe_expectation(
    calibration: Calibration, distance: float
) -> str:  # such as "4.2, 1.1 to 7.9", in the unit of the calibration
    """Say what label distance to expect at an embedding distance, with its interval."""
    expected, low, high = (float(value) for value in calibration.expect(np.array(distance)))
    return f"{expected:.3g}, {low:.3g} to {high:.3g}"


def write_index_page(
    path: Path,
    queries: Sequence[Path | Hit],
    hits: Sequence[Sequence[Hit]],
    index: Path,
    items: int,
    calibration: Calibration | None = None,  # what embedding distances mean as label distances
    images: Sequence[Path] = (),  # further folders whose pictures may be shown
    novelty: Sequence[float] | None = None,  # that of each query
) -> None:
    """Write a page of a search in an index.

    An index may be a stranger's and name any file as the picture of an item. So the page shows those below folders that
    the user has named alone: the working directory, those of the queries, and ``images``.
    """
    queried = dict.fromkeys(query.parent for query in queries if isinstance(query, Path))
    roots = (Path(), *images, *queried)

    def show_query(number: int, query: Path | Hit) -> SearchPicture:
        known = {} if novelty is None else {"novelty": f"{novelty[number]:.3f}"}
        if isinstance(query, Hit):
            return SearchPicture(None, query.item_id, label=query.shown_label, columns=known | query.shown_columns)
        return SearchPicture(_Picture(query), query.name, label=own_label(query, hits[number]), columns=known)

    def show_hit(hit: Hit) -> SearchPicture:
        expected = "" if calibration is None else describe_expectation(calibration, hit.distance)
        image = _Picture(hit.path, roots) if hit.path else None
        return SearchPicture(image, hit.item_id, hit.distance, hit.shown_label, expected, hit.shown_columns)

    rows = [
        (show_query(number, query), [show_hit(hit) for hit in its_hits])
        for number, (query, its_hits) in enumerate(zip(queries, hits, strict=True))
    ]
    has_pictures = not queries or isinstance(queries[0], Path)
    note = ""
    if calibration is not None:
        note = f" Expected label distances are in {calibration.unit}, with an interval of {calibration.level:.0%}."
        note += f" {calibration.caution_of(items)}".rstrip()
    if novelty is not None:
        note += f" {MEANING}"
    noun = "images" if has_pictures else "items"
    write_search_page(
        path,
        rows,
        title=f"Nearest in {index.name}",
        summary=f"An index of {items} {noun}.{note}",
        has_pictures=has_pictures,
    )


def write_search_page(
    path: Path,
    rows: Sequence[tuple[SearchPicture, Sequence[SearchPicture]]],
    *,
    title: str,
    summary: str = "",  # a sentence below it
    thumbnail: int = 128,  # size of a picture on the page, in CSS pixels
    has_pictures: bool = True,
) -> None:
    """Write a page of queries and the items found for each."""
    if not rows:
        raise UserError("A page of search results needs at least one query. Got none.")
    if not 16 <= thumbnail <= 1024:
        raise UserError(f"'thumbnail' must be 16 to 1024 CSS pixels. Got {thumbnail} instead.")
    images = PictureRules(thumbnail)
    farthest = max((hit.distance or 0.0 for _, hits in rows for hit in hits), default=0.0)

    def view(picture: SearchPicture) -> dict[str, Any]:
        step = round(STEPS * (picture.distance or 0.0) / farthest) if farthest > 0 else 0
        image = images.name(picture.image)
        is_unreadable = has_pictures and image is None
        return {
            "image": images.name(_UNREADABLE) if is_unreadable else image,
            "caption": visible_text(picture.caption) + (" (cannot be read)" if is_unreadable else ""),
            "label": visible_text(picture.label),
            "expected": visible_text(picture.expected),
            "columns": [(visible_text(name), visible_text(text)) for name, text in picture.columns.items()],
            "number": "" if picture.distance is None else f"{picture.distance:.4f}",
            "bar": "" if picture.distance is None else f"s{step}",
        }

    bar = ProgressBar(rows, "page", unit="query", delay=BAR_DELAY)
    shown = [(view(query), list(map(view, hits))) for query, hits in bar]
    shown_title, shown_summary = visible_text(title) or "Search", visible_text(summary, 2000)
    values = {"title": shown_title, "summary": shown_summary, "rows": shown, "has_pictures": has_pictures}
    picture_rules.write_page(path, "search.html.j2", images, values)
