"""The three figures of a comparison: metrics over K, metrics over the dimension, and a sheet of what is retrieved.

Not for: how they are drawn (cml.reporting), the figures in them (cml.retrieval.comparison).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cml.reporting.metric_curves import Curves, Panel, write_metric_curves
from cml.retrieval.comparison import CUT, Comparison
from cml.retrieval.evaluation import ORACLE
from cml.runs.retrieved import retrieve, shown_row
from cml.runs.trained_run import TrainedRun

_QUERIES, _K, _SIDE = 6, 4, 144  # of the sheet: rows, pictures per method, pixels per picture


def write_pictures(comparison: Comparison, opened: Mapping[str, TrainedRun], out: Path) -> None:
    """Write retrieval.png, sheet.png and, where there are several dimensions, dimension.png into ``out``.

    Curves lie there as SVG and PDF too.

    Args:
        comparison: The figures.
        opened: Variants that the sheet shows, to a run of each.
        out: Folder.
    """
    quiet = comparison.reference_names
    labels = {kind: label for kind, label in _labels(comparison).items() if any(_over_k(comparison, kind).values())}
    panels = [Panel(_over_k(comparison, kind), f"{label[0]}@K{label[1]}") for kind, label in labels.items()]
    write_metric_curves(out / "retrieval.png", panels, quiet=quiet)
    if comparison.at:
        panels = [
            Panel(_over_dimension(comparison, name), label, "dimension of the embedding")
            for name, label in figure_metrics(comparison)
        ]
        write_metric_curves(out / "dimension.png", panels, quiet=quiet)
    write_run_sheet(out / "sheet.png", opened)


def sheet_variants(variants: Sequence[str]) -> list[str]:
    """The variants that the sheet shows: the first, and beside it the first binary triplets, or else the second."""
    ours, *others = variants
    binary = [name for name in others if name.startswith("binary")]
    return [ours, *(binary or others)[:1]]


def sheet_note(variants: Sequence[str]) -> str:
    """What the sheet and the gallery leave out, in a sentence; "" where they show all variants."""
    shown = sheet_variants(variants)
    if len(shown) == len(variants):
        return ""
    return f"The sheet and the gallery show {' and '.join(shown)}, of {len(variants)} trained methods in the table."


def write_run_sheet(path: Path, opened: Mapping[str, TrainedRun]) -> None:
    """Write a sheet of what runs on one dataset retrieve, beside frozen ImageNet features and the oracle.

    The queries are evenly spaced by how far the methods, taken together, stay behind the oracle: from the worst row to
    the best, whoever does well in it.

    Args:
        path: The PNG.
        opened: Title to run.
    """
    from cml.reporting.sheet import write_sheet

    trained = next(iter(opened.values()))
    methods = {name: run.embeddings for name, run in opened.items()}
    if trained.frozen is not None:
        methods[trained.frozen[0]] = trained.frozen[1]
    retrieved = retrieve(trained, methods, min(_K, len(trained.gallery_labels)))
    behind = np.mean([retrieved.mean(name) - retrieved.mean(ORACLE) for name in methods], axis=0)
    order = np.argsort(-behind, kind="stable")  # queries without a comparable item come last
    order = order[: max(1, int(np.isfinite(behind).sum()))]
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(_QUERIES, len(order))).round().astype(int))]
    dataset, every = (trained.task, trained.dataset), [*methods, ORACLE]
    rows = [shown_row(*dataset, retrieved, int(row), every, size=_SIDE, ids=False) for row in shown]
    legend = trained.task.legend(trained.dataset.info)
    write_sheet(path, rows, unit=trained.report[1], side=_SIDE, legend=legend)


def _over_k(comparison: Comparison, kind: str) -> Curves:
    return {
        method: {int(name.partition("@")[2]): value for name, value in row.items() if name.startswith(f"{kind}@")}
        for method, row in comparison.rows().items()
    }


def _over_dimension(comparison: Comparison, metric: str) -> Curves:
    rows = {dimension: comparison.rows(dimension) for dimension in sorted({comparison.dimension, *comparison.at})}
    methods = dict.fromkeys(name for row in rows.values() for name in row)
    # what is cut at the other dimensions is whole at that of the table
    return {
        name: {dimension: (row.get(name) or row[name.removesuffix(CUT)])[metric] for dimension, row in rows.items()}
        for name in methods
    }


def figure_metrics(comparison: Comparison) -> list[tuple[str, str]]:
    """The metrics that figures over an option show, with the names of their axes: Recall@1, or at the largest K."""
    found = []
    for kind, (name, unit) in _labels(comparison).items():
        ks = [
            int(key.partition("@")[2])
            for key in comparison.references.rows[comparison.row]
            if key.startswith(f"{kind}@")
        ]
        if ks:
            k = min(ks) if kind == "recall" else max(ks)  # the paper's largest K: 10 and 100
            found.append((f"{kind}@{k}", f"{name}@{k}{unit}"))
    return found


def _labels(comparison: Comparison) -> dict[str, tuple[str, str]]:
    """The kinds of metric that figures show: name and unit for their axes."""
    kinds = {name.partition("@")[0] for name in comparison.references.rows[comparison.row]}
    if "map" in kinds:  # labels are classes: their distance is 0 or 1
        return {"recall": ("Recall", "")}
    return {"label_distance": ("mean label distance", f" ({comparison.unit})"), "ndcg": ("nDCG", "")}
