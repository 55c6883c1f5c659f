"""Tables of the pages Speed and Scale, from ``speed``, ``loss_times`` and ``scale``. Figures are rounded here.

The record ``speed`` holds the figures of each script of tests/benchmarks that the table names, ``loss_times`` those of
``losses.py``, and ``scale`` those of ``scale.py``: sizes with the seconds that steps take. ``limits`` extrapolates
these points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from making.records import Cells, read_record

Values = Mapping[str, Any]
LIST_LENGTH = 100  # neighbours in a list of the table of limits, 4 bytes for an index and 4 for a distance
DIMENSION = 128  # of the embeddings in the table of limits, 4 bytes a number
MATRIX_BYTES = 4  # a label distance
DATASETS = (4, 5, 6, 8)  # images in the table of limits: powers of ten


def significant(value: float, digits: int = 2) -> str:
    """Format a number with some significant digits and without an exponent.

    Args:
        value: The number.
        digits: How many digits count.

    Returns:
        Text such as ``0.84``, ``32`` or ``1,100``.
    """
    rounded = float(f"{value:.{digits - 1}e}")
    if not rounded:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}"


def span(values: Iterable[float], digits: int = 2) -> str:
    """Format the least and the largest of some numbers, or one of them where both look the same."""
    numbers = list(values)
    low, high = significant(min(numbers), digits), significant(max(numbers), digits)
    return low if low == high else f"{low} to {high}"


def format_bytes(count: float, digits: int = 2) -> str:
    """Format a size in bytes in the largest unit that leaves at least 1: kB, MB, GB or TB."""
    units = ("bytes", "kB", "MB", "GB", "TB")
    power = min(int(math.log(count, 1000)), len(units) - 1)
    return f"{significant(count / 1000**power, digits)} {units[power]}"


def format_seconds(seconds: float, digits: int = 1) -> str:
    """Format a duration in seconds, minutes, hours or days: ``0.04 s``, ``3 min``."""
    for unit, length, most in (("s", 1, 90), ("min", 60, 5400), ("h", 3600, 129_600)):
        if seconds < most:
            return f"{significant(seconds / length, digits)} {unit}"
    return f"{significant(seconds / 86_400, digits)} days"


def format_percent(share: float, digits: int = 2) -> str:
    """Format a share as a percentage."""
    return f"{significant(100 * share, digits)} %"


def speed() -> Cells:
    """Make the table of the page Speed: header and rows."""
    values = read_record("speed").values
    return [["script", "measured"], *([f"`{name}.py`", describe(values)] for name, describe in SPEED.items())]


def _captions(values: Values) -> str:
    figures = values["captions"]
    words, content = figures["stop_words"]["none"], figures["stop_words"]["english"]
    error = max(words["pot_difference"], content["pot_difference"])
    return (
        f"exact caption distances: {significant(words['ratio'], 3)} times as fast as a loop over gensim's "
        f"`wmdistance`, {significant(content['ratio'], 3)} times without stop words; within {error:.0e} of POT"
    )


def _layout(values: Values) -> str:
    figures = values["layout"]
    few, many = figures["few"], figures["many"]
    return (
        f"1 - mIoU of all pairs of {few['maps']:,} maps of 60 x 60: {significant(figures['ratio'])} times as fast as a "
        f"NumPy loop over pairs; {many['maps']:,} maps: {format_seconds(many['processor_seconds'], 2)} of CPU "
        f"time, {format_bytes(many['peak_bytes'])}"
    )


def _log_ratio(values: Values) -> str:
    figures = values["log_ratio"]
    few, many = figures["items"]
    cost = {weights: significant(entry["processor"]) for weights, entry in figures["over_distances"].items()}
    paper = ("by selection", "anchor by anchor")
    gains = {way: [entry["processor"] for entry in by.values()] for way, by in figures["enumerated"].items()}
    as_paper = span(gain for way in paper for gain in gains[way])
    faster = span(gain for way in gains if way not in paper for gain in gains[way])
    return (
        f"all triplets of {many:,} items: {cost['uniform']} times the time of the pairwise squared distances alone "
        f"({cost['rank']} times with rank weights); all triplets of {few} items: {as_paper} times as fast as "
        f"enumerating them as the paper does, {faster} times as fast as three faster alternatives"
    )


def _evaluation(values: Values) -> str:
    figures = values["evaluation"]
    return (
        f"{figures['queries']:,} queries, {figures['gallery']:,} gallery items, K up to 100: "
        f"{span(figures['ratios'])} times as fast as a loop over queries ({span(figures['processor_ratios'])} times in "
        f"CPU time), with results that differ by at most {figures['difference']:.0e}"
    )


def _training_step(values: Values) -> str:
    figures = values["training_step"]
    return (
        f"loss and sampling: {format_percent(figures['loss_and_sampling_share'])} of the time of a step with 150 "
        f"images of 64 px; reading images is {significant(figures['reading_ratio'])} times as fast as training"
    )


def _gradient_cache(values: Values) -> str:
    few, many = (side["images"] for side in values["gradient_cache_resnet34"]["sides"])
    ratios = []
    for backbone in ("resnet34", "efficientnet-lite0", "small-cnn"):
        ratio = values[f"gradient_cache_{backbone.replace('-', '_')}"]["ratio"]
        ratios.append(f"{significant(ratio)} times with {backbone}")
    return f"memory for {many:,} images of 64 px in parts of {few}, over that for {few} images: {', '.join(ratios)}"


def _search(values: Values) -> str:
    figures = values["search"]
    kinds = figures["embeddings"]
    random, curves = kinds["random"], [kinds["curve"], kinds["ordered curve"]]
    found = span(100 * entry["plain_right"] for entry in curves)
    found_by_cml = significant(100 * min(entry["right"] for entry in curves), 3)
    return (
        f"{figures['queries']:,} queries in {figures['items']:,} x {figures['dimension']}: "
        f"{significant(random['ratio'])} times the time of a matrix product and `topk`, in "
        f"{format_bytes(figures['peak_bytes'][0])}; {span(entry['ratio'] for entry in curves)} times if embeddings "
        f"lie along a curve (in that case, the float32 product finds {found} % of the true neighbours, and cml finds "
        f"{found_by_cml} %)"
    )


def _heap(values: Values) -> str:
    backbones = values["heap"]["backbones"]
    steps = span(backbones[name]["ratio"] for name in ("small-cnn", "resnet18"))
    more = max(entry["memory_ratio"] for entry in backbones.values()) - 1
    return (
        f"on CPUs, commands keep freed memory for the next batch (in scripts: "
        f"`cml.processes.memory.keep_freed_memory()`): training steps are {steps} times as fast, and forward "
        f"passes of efficientnet-lite0 at 640 px are {significant(backbones['efficientnet-lite0']['ratio'])} times as "
        f"fast, with at most {format_percent(max(more, 0), 1)} more memory"
    )


SPEED: Mapping[str, Callable[[Values], str]] = {
    "captions": _captions,
    "layout": _layout,
    "log_ratio": _log_ratio,
    "evaluation": _evaluation,
    "training_step": _training_step,
    "gradient_cache": _gradient_cache,
    "search": _search,
    "heap": _heap,
}


def loss_times() -> Cells:
    """Make the table of the time of losses over that of log-ratio: header and rows, the fastest first."""
    costs = read_record("loss_times").values["losses"]["losses"]
    ordered = sorted(costs.items(), key=lambda entry: entry[1]["over_log_ratio"])
    return [["loss", "times log-ratio"], *([name, significant(cost["over_log_ratio"])] for name, cost in ordered)]


def vectors() -> Cells:
    """Make the table of what the rows of vectors add to an evaluation: header and rows."""
    header = ["vectors, labels", "one embedding of 128", "one of 1,280", "the model, 3 further rows", "ratio", "added"]
    rows = []
    for name, values in read_record("vectors").values.items():
        label, count = name.split("-")
        seconds = [values[part]["processor_seconds"] for part in ("embedding", "vectors", "evaluate")]
        times = [f"{significant(1000 * part / values['queries'])} ms" for part in seconds]
        times[-1] += f", {format_bytes(values['evaluate']['anonymous_bytes'])}"
        ratios = [significant(values[key]) for key in ("whole_over_vectors", "added_over_vectors")]
        rows.append([f"{int(count):,}, {label}", *times, *ratios])
    return [header, *rows]


def scale() -> Cells:
    """Make the table of the page Scale: header and rows."""
    values = read_record("scale").values["scale"]
    rows = [[step, cost, "; ".join(_points(values, *line) for line in lines)] for step, cost, lines in SCALE]
    largest = values["opened"]["number"]["peak_bytes"][-1]
    rows[0][-1] += f", {format_bytes(largest)} of memory"
    return [["step", "cost", "CPU time"], *rows]


def _points(values: Values, panel: str, step: str, letter: str, prefix: str = "") -> str:
    """Write the measured points of a step: its sizes and milliseconds."""
    line = values["steps"][panel][step][letter]
    sizes = " / ".join(f"{size:,}" for size in line["sizes"])
    times = " / ".join(significant(1000 * seconds) for seconds in line["seconds"])
    return f"{prefix}{letter} = {sizes}: {times} ms"


Line = tuple[str, ...]  # panel, step and letter of the script, and what the cell starts with
SCALE: Sequence[tuple[str, str, Sequence[Line]]] = [
    ("open a dataset, one number per item", "N", [("open", "open a dataset, label number", "N")]),
    ("open a dataset, 16 joints per item", "N", [("open", "open a dataset, label pose", "N")]),
    ("all pairs, keypoints", "N²", [("distances", "all pairs, keypoints", "N")]),
    ("all pairs, layout 60 x 60", "N²", [("distances", "all pairs, layout 60 x 60", "N")]),
    ("all pairs, captions", "N²", [("distances", "all pairs, captions", "N")]),
    ("exact neighbour lists, k = 100, poses", "N²", [("neighbours", "exact k = 100 lists, poses", "N")]),
    ("log-ratio, rank weights, d = 128", "B² log B", [("training", "log-ratio", "B")]),
    (
        "log-ratio, uniform weights",
        "B² d",
        [
            ("training", "log-ratio(weights=uniform)", "B", "d = 128, "),
            ("training", "uniform weights, B = 512", "d", "B = 512, "),
        ],
    ),
    (
        "exact search",
        "Q N d",
        [
            ("search", "200 queries, d = 128", "N", "Q = 200, d = 128, "),
            ("search", "200 queries, 20,000 items", "d", "Q = 200, N = 20,000, "),
        ],
    ),
    (
        "evaluation",
        "Q N log N",
        [
            ("evaluation", "200 queries, K = 100", "N", "Q = 200, K = 100, "),
            ("evaluation", "200 queries, 4,000 items", "K", "Q = 200, N = 4,000, "),
        ],
    ),
    ("training step, small-cnn, 64 px", "B pixels + B² d", [("training", "a step, small-cnn, 64 px", "B")]),
]


def extrapolate(sizes: Sequence[float], values: Sequence[float], size: float, power: float) -> float:
    """Extrapolate measured values to another size, from the point that is nearest to it in logarithm.

    Args:
        sizes: The measured sizes.
        values: The figure at each of them.
        size: The size to extrapolate to.
        power: The exponent of the cost: 1 where it grows with the size, 2 where with its square.

    Returns:
        The value at that size; a measured one where it was measured.
    """
    nearest, value = min(zip(sizes, values, strict=True), key=lambda point: abs(math.log(point[0] / size)))
    return value * (size / nearest) ** power


def interpolate(sizes: Sequence[float], values: Sequence[float], size: float) -> float:
    """Follow the straight line through the first and the last measured point, where a share of the cost is fixed."""
    slope = (values[-1] - values[0]) / (sizes[-1] - sizes[0])
    return values[0] + slope * (size - sizes[0])


def limits() -> Cells:
    """Make the table of how large a dataset can be: header and rows."""
    values = read_record("scale").values["scale"]
    header = [f"10^{power}" for power in DATASETS]
    header[-1] += " (never tried)"
    rows = [
        [title, *(figure(values["steps"], values["opened"], 10**power) + notes.get(power, "") for power in DATASETS)]
        for title, figure, notes in LIMITS
    ]
    engines = ["one machine", "one machine", "Dask for neighbour lists, faiss HNSW for fast search"]
    return [["images", *header], *rows, ["engine", *engines, "torchrun, faiss IVF in shards"]]


def _opening(steps: Values, opened: Values, images: int) -> str:
    line = steps["open"]["open a dataset, label number"]["N"]
    metadata = extrapolate(line["sizes"], opened["number"]["metadata_bytes"], images, 1)
    seconds = extrapolate(line["sizes"], line["seconds"], images, 1)
    memory = interpolate(line["sizes"], opened["number"]["peak_bytes"], images)
    return f"{format_bytes(metadata)}; {format_seconds(seconds)}, {format_bytes(memory)}"


def _lists(steps: Values, opened: Values, images: int) -> str:
    line = steps["neighbours"]["exact k = 100 lists, poses"]["N"]
    seconds = extrapolate(line["sizes"], line["seconds"], images, 2)
    return f"{format_bytes(8 * LIST_LENGTH * images)}; {format_seconds(seconds)}"


def _matrix(steps: Values, opened: Values, images: int) -> str:
    return format_bytes(MATRIX_BYTES * images**2)


def _embeddings(steps: Values, opened: Values, images: int) -> str:
    line = steps["search"]["200 queries, d = 128"]["N"]
    seconds = extrapolate(line["sizes"], line["seconds"], images, 1)
    return f"{format_bytes(4 * DIMENSION * images)}; {format_seconds(seconds)}"


def _epoch(steps: Values, opened: Values, images: int) -> str:
    line = steps["training"]["a step, small-cnn, 64 px"]["B"]
    return format_seconds(line["seconds"][-1] * images / line["sizes"][-1])


LIMITS: Sequence[tuple[str, Callable[[Values, Values, int], str], Mapping[int, str]]] = [  # title, figure, advice
    ("size of metadata; time and memory to open", _opening, {8: ": split it into several datasets"}),
    (
        f"neighbour lists, k = {LIST_LENGTH}: disk space; time for poses",
        _lists,
        {6: ", or Dask", 8: ": not feasible, but the random sampler needs no lists"},
    ),
    ("label distance matrix", _matrix, {6: ": use neighbour lists", 8: ": not feasible"}),
    (f"embeddings, d = {DIMENSION}: size; time for 200 exact queries", _embeddings, {}),
    ("one epoch of the training step above", _epoch, {}),
]
