"""The figures of a comparison, and its report: one page with table, verdict, figures and links to the runs."""

import base64
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import numpy as np
from PIL import Image

from cml.doors.retrieved import RETRIEVAL_REPORT, RetrievalRows, retrieve
from cml.doors.trained_run import Embeddings, TrainedRun
from cml.reporting.metric_curves import Curves, Panel, write_metric_curves
from cml.reporting.sheet import write_sheet
from cml.reporting.visible_text import visible_text, write_html
from cml.retrieval.comparison import CUT, Comparison
from cml.retrieval.feature_forms import VECTOR_ROWS, find_best_form
from cml.retrieval.reference_rows import ORACLE
from cml.retrieval.verdict import main_metric
from cml.storage.atomic import write_csv

REPORT = "report.html"
_FIGURES: Mapping[str, tuple[str, str]] = {  # name to heading and caption
    "retrieval": (
        "The metrics over K",
        "Whiskers are 95 % intervals over seeds; one that reaches the edge goes on beyond it. The table shows the "
        "intervals of the grey references.",
    ),
    "dimension": ("The metrics over the dimension of the embedding", "Whiskers are 95 % intervals over seeds."),
    "search_space": ("Scores over the options that varied", "Whiskers are 95 % intervals over seeds."),
    "convergence": (
        "Convergence",
        "The rank correlation on held-out training items over the budget: steps, and seconds of training.",
    ),
    "sheet": ("What queries retrieve", "From the worst query to the best; numbers are label distances to the query."),
}
_FILES = ("config.json", "metrics.jsonl", "evaluation.json", "loss.png")  # of a run, as far as they are there
_WIDEST = 2200  # pixels of a picture
_QUERIES, _K, _SIDE = 6, 4, 144  # of the sheet: rows, pictures per method, pixels per picture


def write_pictures(comparison: Comparison, opened: Mapping[str, TrainedRun], out: Path) -> None:
    """Write the figures of a comparison.

    They are retrieval.png, if there are metrics over K, then also dimension.png, if there are several dimensions, and
    sheet.png. Of the forms of vectors, they show the best alone.
    """
    comparison = _keep_best_form(comparison)
    quiet = comparison.reference_names
    labels, curves = _labels(comparison), _curves_over_k(comparison)
    drawn = _of_several_k(curves) or curves  # a panel of a single K is nearly empty: the table shows its points
    panels = [Panel(curve, f"{labels[kind][0]}@K{labels[kind][1]}") for kind, curve in drawn.items()]
    if panels:  # triplets have no metric over K
        write_metric_curves(out / "retrieval.png", panels, quiet=quiet)
    if comparison.at and panels:
        panels = [
            Panel(_over_dimension(comparison, name), label, "dimension of the embedding")
            for name, label in list_figure_metrics(comparison)
        ]
        write_metric_curves(out / "dimension.png", panels, quiet=quiet)
    _write_run_sheet(out / "sheet.png", opened)


def sheet_variants(variants: Sequence[str]) -> list[str]:
    """The variants that the sheet shows: the first, and beside it the first binary triplets, or else the second."""
    ours, *others = variants
    return [ours, *([name for name in others if name.startswith("binary")] or others)[:1]]


def sheet_note(variants: Sequence[str]) -> str:
    """What the sheet and the retrieval report leave out, in a sentence; "" where they show all variants."""
    shown = sheet_variants(variants)
    if len(shown) == len(variants):
        return ""
    names = " and ".join(shown)
    return f"The sheet and the retrieval report show {names}, of {len(variants)} trained methods in the table."


def _write_run_sheet(path: Path, opened: Mapping[str, TrainedRun]) -> None:
    """Write a sheet of what runs on one dataset retrieve, beside frozen features and the oracle.

    Rows are evenly spaced from the query with the largest mean gap between all methods and the oracle to the best one.
    """
    trained = next(iter(opened.values()))
    methods: dict[str, Embeddings] = {name: run.embeddings for name, run in opened.items()}
    retrieved = retrieve(trained, {**methods, **trained.frozen}, min(_K, len(trained.gallery_labels)))
    methods |= retrieved.select_best(trained.frozen)
    oracle_gap = np.mean([retrieved.mean(name) - retrieved.mean(ORACLE) for name in methods], axis=0)
    order = np.argsort(-oracle_gap, kind="stable")  # queries without a comparable item come last
    order = order[: max(1, int(np.isfinite(oracle_gap).sum()))]
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(_QUERIES, len(order))).round().astype(int))]
    task, dataset = trained.task, trained.dataset
    channels = trained.model.config.inputs.channels
    rows = RetrievalRows(task, dataset, retrieved, [*methods, ORACLE], _SIDE, ids=False, channels=channels)
    sheet = [rows.build(row) for row in shown.tolist()]
    write_sheet(path, sheet, unit=trained.report.unit, side=_SIDE, legend=task.legend(dataset.info))


def _keep_best_form(comparison: Comparison) -> Comparison:
    """The comparison without the rows of vectors in other forms than the best one."""
    rows = comparison.references.rows
    best = find_best_form(rows, main_metric(list(rows[comparison.row])))
    kept = {name: row for name, row in rows.items() if name == best or name not in VECTOR_ROWS}
    return replace(comparison, references=replace(comparison.references, rows=kept))


def _over_k(comparison: Comparison, kind: str) -> Curves:
    return {
        method: {int(name.partition("@")[2]): value for name, value in row.items() if name.startswith(f"{kind}@")}
        for method, row in comparison.rows().items()
    }


def _curves_over_k(comparison: Comparison) -> dict[str, Curves]:
    """The curves of each kind of metric that has values."""
    curves = {kind: _over_k(comparison, kind) for kind in _labels(comparison)}
    return {kind: curve for kind, curve in curves.items() if any(curve.values())}


def _of_several_k(curves: Mapping[str, Curves]) -> dict[str, Curves]:
    """Those of the kinds that have several K."""
    return {kind: curve for kind, curve in curves.items() if any(len(points) > 1 for points in curve.values())}


def _over_dimension(comparison: Comparison, metric: str) -> Curves:
    rows = {dimension: comparison.rows(dimension) for dimension in sorted({comparison.dimension, *comparison.at})}
    methods = dict.fromkeys(name for row in rows.values() for name in row)
    # what is cut at the other dimensions is whole at that of the table
    return {
        name: {dimension: (row.get(name) or row[name.removesuffix(CUT)])[metric] for dimension, row in rows.items()}
        for name in methods
    }


def list_figure_metrics(comparison: Comparison) -> list[tuple[str, str]]:
    """The metrics that figures over an option show, with the names of their axes: Recall@1, or at the largest K."""
    metrics = []
    for kind, (name, unit) in _labels(comparison).items():
        names = comparison.references.rows[comparison.row]
        ks = [int(key.partition("@")[2]) for key in names if key.startswith(f"{kind}@")]
        if ks:
            k = min(ks) if kind == "recall" else max(ks)  # the paper's largest K: 10 and 100
            metrics.append((f"{kind}@{k}", f"{name}@{k}{unit}"))
    return metrics


def _labels(comparison: Comparison) -> dict[str, tuple[str, str]]:
    """The kinds of metric that figures show: name and unit for their axes."""
    kinds = {name.partition("@")[0] for name in comparison.references.rows[comparison.row]}
    if "map" in kinds:  # labels are classes: their distance is 0 or 1
        return {"recall": ("Recall", "")}
    return {"label_distance": ("mean label distance", f" ({comparison.unit})"), "ndcg": ("nDCG", "")}


def write_report(comparison: Comparison, runs: Mapping[str, Path], out: Path, *, title: str) -> None:
    """Write report.html into the folder of a comparison, beside its figures and the table as table.csv."""
    header, *lines = comparison.table()
    write_csv(out / "table.csv", header, lines)
    *notes, verdict = comparison.notes().splitlines()
    notes.append(sheet_note(list(comparison.trained)))
    listed = []
    for name, folder in runs.items():
        files = [folder / file for file in _FILES if (folder / file).exists()]
        links = [(file.name, quote(file.relative_to(out).as_posix())) for file in files]
        listed.append({"name": visible_text(name), "files": links})
    figures = []
    for name, (heading, text) in _FIGURES.items():
        kinds = [kind for kind in ("png", "svg", "pdf") if (out / f"{name}.{kind}").exists()]
        embedded = next((kind for kind in ("svg", "png") if kind in kinds), None)
        if embedded is None:
            continue
        if name == "retrieval" and not _of_several_k(_curves_over_k(comparison)):
            continue  # one point a method is what the table shows
        file = out / f"{name}.{embedded}"
        figure = {"source": _make_data_uri(file), "heading": heading, "text": text}
        figures.append(figure | {"kinds": kinds, "name": name})
    write_html(
        out / REPORT,
        "cml.reporting",
        "report.html.j2",
        title=visible_text(title),
        header=[visible_text(cell) for cell in header],
        lines=[[visible_text(cell) for cell in line] for line in lines],
        verdict=[visible_text(sentence, 2000) for sentence in _sentences(verdict)],
        notes=[visible_text(line, 2000) for line in notes if line],
        figures=figures,
        runs=listed,
        retrieval_report=RETRIEVAL_REPORT if (out / RETRIEVAL_REPORT).exists() else "",
    )


def _sentences(verdict: str) -> list[str]:
    """The verdict's comparisons, each to be a paragraph, without the word that the heading has."""
    text = verdict.removeprefix("Verdict: ")
    text = text[:1].upper() + text[1:] if text[:4] == "one " else text  # others begin with the name of a method
    return re.split(r"(?<=\.) (?=Against what needs no training:)", text)


def _make_data_uri(path: Path) -> str:
    if path.suffix == ".svg":
        return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"
    with Image.open(path, formats=["PNG", "JPEG"]) as image:
        shown = image.convert("RGB")
    shown.thumbnail((_WIDEST, 4 * _WIDEST))
    file = io.BytesIO()
    shown.save(file, "WEBP", quality=85)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
