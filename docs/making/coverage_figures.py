"""How often intervals of simulations in tests/benchmarks cover: interval_coverage, item_intervals and audit_count."""

from __future__ import annotations

import re
from typing import Any

from making.records import Cells
from making.result_tables import load

BEST = "interval_coverage_best"  # the file of the part "best", which needs many more steps and has fewer repetitions
GOOD = (93, 97)  # percent: what a coverage should be
ROWS = [  # title of the row, part of the simulation, interval, file
    ("of a mean over queries", "mean", "cml", "interval_coverage"),
    ("the same by Student's t", "mean", "Student's t", "interval_coverage"),
    ("the same by a percentile bootstrap", "mean", "percentile bootstrap", "interval_coverage"),
    ("of a mean over seeds and queries", "seeds", "cml", "interval_coverage"),
    ("of a ratio", "ratio", "cml", "interval_coverage"),
    ("the same with the denominator held fixed", "ratio", "denominator held fixed", "interval_coverage"),
    ("the best method is marked", "best", "cml", BEST),
    ("the same with 95 % intervals of single differences", "best", "each on its own", BEST),
]


def coverages(part: str, interval: str = "cml", file: str = "interval_coverage") -> dict[str, float]:
    """List how often intervals cover.

    Args:
        part: "mean", "seeds", "ratio" or "best".
        interval: Whose intervals.
        file: Which file of the record.

    Returns:
        Percentages, keyed by the case: the number of values, their distribution and the seeds.
    """
    return {
        f"{queries} {distribution} values, {title}": 100 * shares[interval]
        for distribution, by_queries in load("interval_coverage").values[file][part].items()
        for queries, cases in by_queries.items()
        for title, shares in cases.items()
    }


def lowest_coverage(part: str, interval: str = "cml", case: str = "", file: str = "interval_coverage") -> float:
    """Find the lowest coverage of the cases whose names contain a text, in percent."""
    return min(share for title, share in coverages(part, interval, file).items() if case in title)


def highest_coverage(part: str, interval: str = "cml", case: str = "", file: str = "interval_coverage") -> float:
    """Find the highest coverage of the cases whose names contain a text, in percent."""
    return max(share for title, share in coverages(part, interval, file).items() if case in title)


def coverage_table() -> Cells:
    """Make the table of the lowest and the highest coverage of each kind of interval: header and rows."""
    rows = []
    for title, part, interval, file in ROWS:
        shares = coverages(part, interval, file)
        low, high = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
        good = sum(GOOD[0] <= share <= GOOD[1] for share in shares.values())
        ends = [f"{shares[low]:.1f}", low, f"{shares[high]:.1f}", high]
        rows.append([title, *ends, f"{good} of {len(shares)}"])
    header = ["interval", "lowest, %", "where", "highest, %", "where", f"cases from {GOOD[0]} to {GOOD[1]} %"]
    return [header, *rows]


ITEMS = "item_intervals"  # the record of tests/benchmarks/item_intervals.py, which was run in several parts
POWER = "item_power"  # that of its part "power"
POWER_NOISE = ("0.72", "0.78", "0.84")
COLUMNS = {  # heading to the families of metrics in it
    "label distance": ("label_distance",),
    "score": ("score",),
    "nDCG, MAP@R": ("ndcg", "map@r"),
    "tau": ("kendall_tau",),
    "rho": ("spearman_rho",),
    "hit, recall": ("hit", "recall"),
}
COUNTS = ("hit", "recall", "r_precision")  # of which few values are possible


def of_items(figure: str, metric: str = "", case: str = "") -> dict[str, float]:
    """List what was measured of two equal embeddings.

    Args:
        figure: "told apart", "told apart over queries" or "coverage", in percent; or "variance of differences" or
            "variance of means", the mean of the estimated over the true one.
        metric: A regular expression that the metric begins with; by default all but those of ``COUNTS``.
        case: A regular expression that the case contains.

    Returns:
        Values, keyed by case and metric.
    """
    values: dict[str, float] = {}
    for file in load(ITEMS).values.values():
        for name, metrics in file.get("equal", {}).items():
            for column, shares in metrics.items():
                is_meant = re.match(metric, column) if metric else not column.startswith(COUNTS)
                if is_meant and re.search(case, name):
                    shares = {**shares, "told apart": shares["better"] + shares["worse"]}
                    values[f"{name}: {column}"] = shares[figure] * (1 if figure.startswith("variance") else 100)
    return values


def power_of_items(noise: str, figure: str = "share", *, hits: bool = False) -> dict[str, float]:
    """How often two unequal embeddings are told apart, by metric, in percent.

    Args:
        noise: That of the second embedding: 0.72, 0.78 or 0.84.
        figure: "told apart" or "known variance"; or "share", the first over the second.
        hits: Whether of hits, or of all other metrics.

    Returns:
        Values by metric.
    """
    [file] = load(POWER).values.values()
    values: dict[str, float] = {}
    for name, shares in file["power"].items():
        metric, _, of_noise = name.partition(", ")
        if of_noise == noise and metric.startswith(COUNTS) == hits:
            value = shares["told apart"] / shares["known variance"] if figure == "share" else shares[figure]
            values[metric] = 100 * value
    return values


def power_of_hits() -> dict[str, float]:
    """The shares of ``power_of_items`` of hits, by the noise of the second embedding."""
    return {noise: value for noise in POWER_NOISE for value in power_of_items(noise, hits=True).values()}


def item_table(figure: str) -> Cells:
    """Make the table of one figure of all cases: header and rows."""
    found = of_items(figure, ".")
    cases = list(dict.fromkeys(name.partition(": ")[0] for name in found))
    rows = []
    for case in cases:
        cells = [case]
        for families in COLUMNS.values():
            values = [found[name] for name in found if name.startswith(tuple(f"{case}: {kind}" for kind in families))]
            cells.append(" ".join(f"{value:.1f}" for value in values[:1]))
        rows.append(cells)
    return [["case", *COLUMNS], *rows]


COUNT = "audit_count"  # the record of tests/benchmarks/audit_count.py
SETS = {"steering": "steering angles", "ages": "drawn ages", "elpv": "solar cells (elpv)", "heads": "drawn heads"}
SETS["diabetes"] = "diabetes"


def count_table() -> Cells:
    """Make the table of the numbers of wrong labels that audits state: means over draws."""
    figures = {name: rows for file in load(COUNT).values.values() for name, rows in file.items()}
    rows = []
    for name, title in {"correct": "correct labels", **SETS}.items():
        for case, values in figures[name].items():
            ends = [f"{values[key]:.0f}" for key in ("planted", "estimate", "low", "high")]
            rows.append([f"{title}: {case}", *ends, *(f"{100 * values[key]:.0f}" for key in ("covered", "claimed"))])
    return [["labels", "planted", "estimate", "from", "to", "interval holds, %", "above 0, %"], *rows]


NAMES: dict[str, Any] = {
    "lowest_coverage": lowest_coverage,
    "highest_coverage": highest_coverage,
    "of_items": of_items,
    "power_of_items": power_of_items,
    "power_of_hits": power_of_hits,
}
