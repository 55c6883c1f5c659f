"""Tables of texts beside sentence-transformers, and of what follows training: continuing, unfamiliar items."""

from collections.abc import Mapping
from statistics import fmean, stdev
from typing import Any

from making.records import Cells
from making.result_tables import load

TASKS = ("numbers", "captions")
WAYS = {
    "frozen": "MiniLM as it is",
    "cml.fit": "`cml.fit`",
    "LabelDistanceLoss": '`LabelDistanceLoss(model, "log-ratio")` in the trainer',
    "CoSENTLoss": "`CoSENTLoss` on scored pairs",
    "CosineSimilarityLoss": "`CosineSimilarityLoss` on scored pairs",
    "AnglELoss": "`AnglELoss` on scored pairs",
}
KINDS = {"spectra": "spectra", "steering": "steering photographs", "people": "photographs of people"}
KINDS["sentences"] = "captions"


def texts() -> Cells:
    """Make the table of texts: means and standard deviations over seeds, learning rates, seconds."""
    values = _texts()
    rows = [["method", *(f"{task}: {what}" for task in TASKS for what in ("score@10", "rate", "seconds"))]]
    for way, title in WAYS.items():
        rows.append([title, *(cell for task in TASKS for cell in _way_cells(values[task][way]))])
    return rows


def _texts() -> dict[str, Any]:
    """The figures of each task."""
    return {task: found for file in load("texts").values.values() for task, found in file.items()}


def _way_cells(figures: Mapping[str, Any]) -> list[str]:
    if "rate" not in figures:
        return [f"{figures['score']:.3f}", "", ""]
    score = f"{figures['score']:.3f} ± {figures['deviation']:.3f}"
    return [score, f"{figures['rate']:g}", f"{figures['seconds']:.0f}"]


def text_leads() -> Cells:
    """Make the table of how far log-ratio is ahead: means and simultaneous intervals."""
    values = _texts()
    ours = [(task, own) for task in TASKS for own in ("LabelDistanceLoss", "cml.fit")]
    rows = [["ahead of", *(f"{task}: `{own}`" for task, own in ours)]]
    for other in [way for way in WAYS if way not in ("LabelDistanceLoss", "cml.fit")]:
        leads = (values[task][own]["ahead"][other] for task, own in ours)
        rows.append([WAYS[other], *(f"{mean:+.3f} ({low:+.3f} to {high:+.3f})" for mean, low, high in leads)])
    return rows


def continuing() -> Cells:
    """Make the table of training in two halves: means and standard deviations over seeds."""
    values = _after_fit("continue")
    ways = list(next(iter(values.values())))
    rows = [["items", *("another label first" if way == "new distance" else way for way in ways)]]
    for kind, scores in values.items():
        rows.append([KINDS[kind], *(f"{fmean(scores[way]):.3f} ± {stdev(scores[way]):.3f}" for way in ways)])
    return rows


def _after_fit(part: str) -> dict[str, Any]:
    """The figures of each kind of items."""
    return {kind: found for file in load("after_fit").values.values() for kind, found in file.get(part, {}).items()}


def novelty() -> Cells:
    """Make the table of unfamiliar items: AUROC and false alarms."""
    values = _after_fit("novelty")
    rows = [["known items", "others", "AUROC of `novelty`", "of raw numbers", "known items at most 0.05"]]
    for kind, figures in values.items():
        for other, scores in figures["auroc"].items():
            raw, alarms = figures["raw"][other], figures["false alarms"]
            rows.append([KINDS[kind], other, f"{fmean(scores):.3f}", f"{raw:.3f}", f"{fmean(alarms):.3f}"])
    return rows


TABLES = {"text_scores": texts, "text_leads": text_leads, "continuing": continuing, "novelty": novelty}
