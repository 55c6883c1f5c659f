"""The retrieval report: one HTML page, without a script, of what an embedding retrieves, in any order."""

import bisect
import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageColor

from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.errors import UserError
from cml.reporting.picture_rules import STEPS, PictureRules, write_page
from cml.reporting.visible_text import visible_text

_MOST_TICKS = 160  # of the overview
_PARTS, _FEWEST = 5, 10  # parts of the range of labels that a reader can choose, and queries needed for that
_LISTED = 8  # up to this many different labels can be chosen one by one


@dataclass(frozen=True)
class Picture:
    """One picture of the report; equal functions make equal pictures, when they are written, one in memory."""

    image: Image.Image | Callable[[], Image.Image]  # with its label drawn on it
    caption: str  # any text: the label in words
    distance: float | None = None  # to the query; None for the query itself; infinite = cannot be compared
    name: str = ""  # the item's id, for the tooltip


@dataclass(frozen=True)
class ReportRow:
    """A query and the results of each method for it."""

    query: Picture
    retrieved: Mapping[str, Sequence[Picture]]  # title of the method to its top pictures, nearest first
    score: float  # larger is worse; NaN = nothing could be compared; such rows come last
    gain: float = math.nan  # improvement over a baseline; NaN = there is none, or nothing could be compared
    value: float = math.nan  # its label, if that is a number, for choosing a range


def write_retrieval_page(
    path: Path,
    rows: Sequence[ReportRow],
    *,
    title: str,
    unit: str,
    summary: str = "",  # lines below the title
    table: Sequence[Sequence[str]] = (),  # cells of a table below the summary; the first row and column are headings
    legend: Mapping[str, str] | None = None,
    thumbnail: int = 96,  # largest side of a picture in CSS pixels until it is clicked
    measure: str = "score",
    baseline: str = "the baseline",
    seed: int = 0,
) -> None:
    """Write the page. The reader can sort the queries by median, worst, best or gain."""
    _check(rows, table, thumbnail)
    legend = legend or {}
    ordered = [rows[number] for number in _falling([row.score for row in rows])]
    compared = sum(not math.isnan(row.score) for row in rows)
    from_middle = [-abs(place - compared // 2) if place < compared else math.nan for place in range(len(rows))]
    orders = {
        "median": _falling(from_middle),
        "worst": range(len(rows)),
        "best": _falling([-row.score for row in ordered]),
    }
    if any(math.isfinite(row.gain) for row in rows):
        orders["gain"] = _falling([row.gain for row in ordered])
    views = _Views(rows, thumbnail, visible_text(unit))
    heights = _heights([row.score for row in ordered])
    parts, part_of = _parts([row.value for row in ordered])
    bar = ProgressBar(ordered, "report", unit="query", delay=BAR_DELAY)
    view = [{"part": part_of[place - 1], "place": place, **views.row(row)} for place, row in enumerate(bar, start=1)]
    colours = ("#{:02x}{:02x}{:02x}".format(*ImageColor.getrgb(colour)[:3]) for colour in legend.values())
    rules = [f"body:has(#by-{name}:checked) .row{{order:var(--{name})}}" for name in orders]
    for name, places in orders.items():  # the rows have the ids q1, q2, ...
        rules += [f"#q{place + 1}{{--{name}:{number}}}" for number, place in enumerate(places)]
    rules += [f"body:has(#part{part}:checked) .row:not(.p{part}){{display:none}}" for part in range(len(parts))]
    rules += [f".k{place}{{--color:{colour}}}" for place, colour in enumerate(colours)]
    stride = -(-len(view) // _MOST_TICKS)
    values = {
        "title": visible_text(title) or "Retrieval report",
        "unit": views.unit,
        "has_distances": views.has_distances,
        "measure": visible_text(measure),
        "baseline": visible_text(baseline),
        "paragraphs": [visible_text(line, 2000) for line in summary.splitlines() if line.strip()],
        "table": [[_cell(text) for text in cells] for cells in table],
        "rows": random.Random(seed).sample(view, len(view)),
        "orders": list(orders),
        "parts": parts,
        "legend": [(visible_text(word, 40), f"k{place}") for place, word in enumerate(legend)],
        "abreast": min(len(views.methods), 2 if len(views.methods) == 4 else 3),
        "ticks": [(row["place"], heights[row["place"] - 1], row["score"]) for row in view[::stride]],
        "median": (len(view) + 1) // 2,
    }
    write_page(path, "retrieval_report.html.j2", views.images, values, rules="\n".join(rules))


def _falling(values: Sequence[float]) -> list[int]:
    """Indices of the values from the largest to the least, NaN last."""
    numbers = [-math.inf if math.isnan(value) else value for value in values]
    return sorted(range(len(values)), key=lambda place: (math.isnan(values[place]), -numbers[place]))


def _parts(values: Sequence[float]) -> tuple[list[str], list[str]]:
    """A few labels, or parts of their range with about as many rows, in words, and each row's class of style."""
    known = sorted(value for value in values if math.isfinite(value))
    few = sorted(set(known))
    starts = few if len(few) <= _LISTED else [known[len(known) * part // _PARTS] for part in range(1, _PARTS)]
    cuts = sorted({*starts} - {known[0]}) if known else []
    if len(known) < _FEWEST or not cuts or len(known) < len(values):
        return [], [""] * len(values)
    show = number_text(known)
    ends = [0, *(bisect.bisect_left(known, cut) for cut in cuts), len(known)]
    spans = [(show(known[start]), show(known[end - 1])) for start, end in itertools.pairwise(ends)]
    words = [low if low == high else f"{low} to {high}" for low, high in spans]
    return words, [f" p{bisect.bisect_right(cuts, value)}" for value in values]


def _check(rows: Sequence[ReportRow], table: Sequence[Sequence[str]], thumbnail: int) -> None:
    if not rows:
        raise UserError("A retrieval report needs at least one query. Got none.")
    if not 16 <= thumbnail <= 1024:
        raise UserError(f"thumbnail must be 16 to 1024 CSS pixels. Got {thumbnail} instead.")
    lengths = sorted({len(cells) for cells in table})
    if len(lengths) > 1:
        raise UserError(f"The rows of table must have equally many cells. Got rows of {lengths} cells.")
    methods = list(rows[0].retrieved)
    if not methods:
        raise UserError("A retrieval report needs at least one method. Got rows without retrieved pictures.")
    for number, row in enumerate(rows):
        if set(row.retrieved) != set(methods):
            has = f"Row 0 has {methods}, row {number} has {list(row.retrieved)}."
            raise UserError(f"All rows of a retrieval report need the same methods. {has}")
        for method in methods:
            for place, picture in enumerate(row.retrieved[method], start=1):
                distance = picture.distance
                if distance is not None and not distance >= 0:
                    where = f"Row {number}, {method!r}, picture {place}"
                    raise UserError(f"Label distances are >= 0 or infinite. {where} has {distance}.")


class _Views:
    """The values of rows for the template, and the pictures that they name."""

    def __init__(self, rows: Sequence[ReportRow], thumbnail: int, unit: str) -> None:
        self.images, self.unit, self.methods = PictureRules(thumbnail), unit, list(rows[0].retrieved)
        finite = finite_distances(p for row in rows for top in row.retrieved.values() for p in top)
        self._show = number_text(finite)
        self.has_distances = any(p.distance is not None for row in rows for top in row.retrieved.values() for p in top)
        self._least_span = 0.1 * (max(finite, default=0.0) - min(finite, default=0.0))  # for almost equal distances
        self._scores = number_text([row.score for row in rows if math.isfinite(row.score)])

    def row(self, row: ReportRow) -> dict[str, Any]:
        """Those of a row."""
        finite = finite_distances(picture for top in row.retrieved.values() for picture in top)
        low = min(finite, default=0.0)
        span = max(max(finite, default=0.0) - low, self._least_span)
        groups = []
        for method in self.methods:
            top, compared = row.retrieved[method], finite_distances(row.retrieved[method])
            mean = self._show(statistics.fmean(compared)) if compared else None
            left_out = sum(p.distance is not None for p in top) - len(compared) if compared else 0
            pictures = [self._picture(picture, low, span) for picture in top]
            groups.append({"title": visible_text(method), "mean": mean, "left_out": left_out, "pictures": pictures})
        score = "not comparable" if math.isnan(row.score) else self._scores(row.score)
        return {"query": self._picture(row.query, low, span), "score": score, "groups": groups}

    def _picture(self, picture: Picture, low: float, span: float) -> dict[str, Any]:
        distance = picture.distance
        caption, name = visible_text(picture.caption), visible_text(picture.name)
        if distance is None:
            number, words, bar = "", "", None
        elif math.isinf(distance):
            number, words, bar = "not comparable", "not comparable with the query", "none"
        else:
            step = round(STEPS * min(1.0, (distance - low) / span)) if span > 0 else 0
            number, bar = self._show(distance), f"s{step}"
            words = f"label distance {number} {self.unit}".strip()
        words = " · ".join(part for part in (name, caption, words) if part)
        image = self.images.name(picture.image)
        return {"image": image, "caption": caption, "name": name, "number": number, "bar": bar, "words": words}


def finite_distances(pictures: Iterable[Picture]) -> list[float]:
    """The distances of pictures that can be compared with the query."""
    return [p.distance for p in pictures if p.distance is not None and math.isfinite(p.distance)]


def number_text(values: Sequence[float]) -> Callable[[float], str]:
    """Writes numbers of one column, all with the decimals that give the middle one about three digits."""
    sizes = [abs(value) for value in values if value]
    decimals = min(4, max(0, 2 - math.floor(math.log10(statistics.median(sizes) if sizes else 1.0))))

    def text(value: float) -> str:
        if math.isinf(value):
            shown = "∞" if value > 0 else "-∞"
        elif abs(value) >= 1e6 or 0 < abs(value) < 0.5 * 10**-decimals:
            shown = f"{value:.2g}"
        else:
            shown = f"{value:,.{decimals}f}"
        return shown.replace("-", "\u2212")  # a true minus sign

    return text


def _cell(text: str) -> dict[str, Any]:
    shown = visible_text(text)
    return {"text": shown, "number": any(c.isdigit() for c in shown) and not any(c.isalpha() for c in shown)}


def _heights(scores: Sequence[float]) -> list[str]:
    """Height of each score in the overview, as a style class: s1 .. s20, or none for NaN."""
    finite = [score for score in scores if math.isfinite(score)]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    shares = ((min(max(score, low), high) - low) / ((high - low) or 1.0) for score in scores)
    return [
        "none" if math.isnan(score) else f"s{max(1, round(STEPS * share))}"
        for score, share in zip(scores, shares, strict=True)
    ]
