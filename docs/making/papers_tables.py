"""Tables of the page on the papers' claims: what records and the benchmark show, and whether that confirms a claim."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from scipy.special import stdtrit

from cml.retrieval.comparison import APART, interval_text
from cml.retrieval.mean_interval import LEVEL
from making.records import Cells
from making.result_tables import DISTANCE, cell, load
from making.suite_tables import describe_set, list_sets

PHOTOGRAPHS = [  # title of the row, record, column
    ("[sports poses](photographs.md), px", "sports", DISTANCE),
    ("[rooms of one home](photographs.md), 1 - mIoU", "rooms", DISTANCE),
    ("[COCO captions](photographs.md), WMD", "captions", DISTANCE),
]
DRAWN = [
    ("[drawn people](drawn.md), px", "drawn", "people: px@10"),
    ("[drawn rooms](drawn.md), 1 - mIoU", "drawn", "rooms: 1 - mIoU@10"),
    ("[drawn scenes](drawn.md), WMD", "drawn", "scenes: WMD@10"),
]
OVERLAP = "intervals overlap"


def default_loss() -> Cells:
    """Compare the default log-ratio loss with binary triplets by threshold: header and rows."""
    rows = []
    for title, name, column in [*DRAWN, *PHOTOGRAPHS]:
        ours, theirs = (cell(name, method, column) for method in ("log-ratio", "binary triplet, threshold"))
        confirmed = "yes" if are_apart(ours, theirs) and mean(ours) < mean(theirs) else OVERLAP
        rows.append([title, ours.rstrip("*"), theirs.rstrip("*"), confirmed])
    return [["data", "log-ratio", "binary triplet, threshold", "confirmed"], *rows]


def published_loss() -> Cells:
    """Compare the published loss on the published lists with both triplet losses: header and rows."""
    methods = ["log-ratio, the paper's", "dense triplet", "binary triplet, nearest"]
    rows = []
    for title, name, column in [("[steering angles](photographs.md)", "steering", DISTANCE), *PHOTOGRAPHS]:
        cells = [cell(name, method, column) if has_row(name, method) else "" for method in methods]
        ours, *others = cells
        ahead = [bool(other) and are_apart(ours, other) and mean(ours) < mean(other) for other in others]
        behind = [bool(other) and are_apart(ours, other) and mean(ours) > mean(other) for other in others]
        confirmed = OVERLAP
        if any(behind):
            names = ("dense triplets", "binary triplets")
            confirmed = "no: behind " + " and ".join(
                name for name, is_behind in zip(names, behind, strict=True) if is_behind
            )
        elif ahead[1]:
            confirmed = "yes"
        rows.append([title, *(text.rstrip("*") for text in cells), confirmed])
    return [["data", *methods, "confirmed"], *rows]


def equal_tuning() -> Cells:
    """Subtract the scores of both triplet losses from those of log-ratio on the sets of the benchmark."""
    baselines = {"dense triplets": "dense-triplet", "triplets by a threshold": "binary-threshold"}
    rows = []
    for board, name in list_sets():
        texts = {}
        for title, method in baselines.items():
            header, *lines = board.against(method)[0]
            texts[title] = next(line for line in lines if line[0] == "log-ratio")[header.index(name)]
        ahead = [title for title, text in texts.items() if text.endswith("*") and mean(text) > 0]
        behind = [title for title, text in texts.items() if text.endswith("*") and mean(text) < 0]
        confirmed = "no difference shown"
        if behind:
            confirmed = f"no: behind {' and '.join(behind)}"
        elif ahead:
            confirmed = "yes" if len(ahead) == len(texts) else f"over {ahead[0]}"
        rows.append([describe_set(name), *(text.rstrip("*").lstrip("+") for text in texts.values()), confirmed])
    return [["set", *(f"minus {title}" for title in baselines), "confirmed"], *rows]


DIMENSION_RECORDS = {"drawn people, px": "dimension_people"}


def leads_by_dimension() -> Cells:
    """Subtract the label distances of log-ratio from those of binary triplets at each dimension: header and rows."""
    header, *legacy = load("papers_dimension").table
    sizes = header[2:]
    rows = []
    for rule in ("threshold", "nearest"):
        for title, name in DIMENSION_RECORDS.items():
            leads = [lead(name, f"binary triplet, {rule}", size) for size in sizes]
            rows.append([rule, title, *(interval_mark(interval) for interval in leads)])
        rows += [row for row in legacy if row[0] == rule]
    return [header, *rows]


def lead(name: str, baseline: str, size: str) -> tuple[float, float, float]:
    """Compute how much closer log-ratio retrieves than a baseline, with the interval of a two-sample t.

    Args:
        name: The record of a comparison over dimensions.
        baseline: The method to compare with.
        size: The dimension, as the record names it.

    Returns:
        The mean difference of label distance@10 and the ends of its 95 % interval.
    """
    record = load(name)
    seeds = int(record.settings["seeds"])
    methods = record.values["dimensions"][size]
    ours, theirs = methods["log-ratio"][DISTANCE], methods[baseline][DISTANCE]
    of_one = float(stdtrit(seeds - 1, (1 + LEVEL) / 2))
    squares = sum(((side["high"] - side["low"]) / 2 / of_one) ** 2 for side in (ours, theirs))
    half = float(stdtrit(2 * seeds - 2, (1 + LEVEL) / 2)) * math.sqrt(squares)
    difference = theirs["mean"] - ours["mean"]
    return difference, difference - half, difference + half


def interval_mark(interval: tuple[float, float, float]) -> str:
    """Write an interval with the digits of label distances, and mark it where it does not contain 0."""
    _, low, high = interval
    return interval_text(interval) + APART * (low > 0 or high < 0)


def captioners() -> Cells:
    """Subtract the CIDEr-D of captioners on ImageNet features from that on caption-trained features."""
    few = load("captioning").table
    column = few[0].index("CIDEr-D")
    scenes = [next(row[column] for row in few if row[0] == f"Cap - Img {training}") for training in ("XE", "RL")]
    rows = [["2,000 drawn scenes", *scenes]]
    rows += [
        [{"8,000 scenes": "8,000 drawn scenes", "80 photographs": "80 COCO photographs"}[row[0]], *row[2:]]
        for row in load("captioning_more").table
        if row[1] == "Cap - Img"
    ]
    for row in rows:
        shown = [mean(text) > half(text) for text in row[1:]]
        row.append("yes" if all(shown) else "after cross-entropy" if shown[0] else "no difference shown")
    return [["data", "after cross-entropy", "after self-critical training", "confirmed"], *rows]


def has_row(name: str, method: str) -> bool:
    """Whether a record has a row of a method."""
    record = load(name)
    rows = [row[0] for row in record.table] or [*record.values["trained"], *record.values["references"]]
    return method in rows


def mean(text: str) -> float:
    """Read the mean of a cell such as "0.25 ± 0.03*"."""
    return _numbers(text)[0]


def half(text: str) -> float:
    """Read half of the interval of a cell."""
    return _numbers(text)[1]


def are_apart(first: str, second: str) -> bool:
    """Whether the intervals of two cells do not overlap."""
    return abs(mean(first) - mean(second)) > half(first) + half(second)


def _numbers(text: str) -> Sequence[float]:
    return [*(float(number) for number in re.findall(r"[-+]?\d[\d.]*", text)), 0.0]
