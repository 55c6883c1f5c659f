"""``cml evaluate RUN``: how well a trained embedding retrieves, beside oracle, random and frozen features."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cml.command_line.options import others, parse, show
from cml.command_line.shared import AsJson, Data, Device, Run


@dataclass(frozen=True)
class Evaluate:
    """Measure a trained embedding."""

    run: Run
    data: Data = None
    gain: str = "reciprocal"
    """Gain of nDCG: reciprocal is 1 / (1 + d)."""
    seed: int = 0
    """Seed of the random ranking, the bootstrap and the order of tied items."""
    count_lone: bool = False
    """Count a query that is alone in its class as a miss of Recall@K, as published code does. Default: leave it out."""
    recall_within: float = 0.0
    """Also measure Recall@K: the share of queries with an item at most this far, in the unit of the table, among the
    first K. 0 for what the dataset says, if anything."""
    pairs: Path | None = None
    """Also measure Spearman's correlation with how similar people find pairs: a CSV or JSONL file with the columns
    item, other (item_id of two images among queries and gallery) and similarity. By default the dataset's pairs.csv."""
    dimensions: tuple[int, ...] = ()
    """Also measure the embedding cut to its first numbers, as in 16 32 64: one row per size."""
    device: Device = "auto"
    tracker: str = ""
    """Experiment tracker whose run of this folder gets the figures; see cml train."""
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Evaluate, write evaluation.json, print the table."""
    options = parse(Evaluate, arguments, prog="cml evaluate")
    from cml.processes.join import joined
    from cml.runs.run import Run

    with joined(options.device) as ranks:
        run = Run.open(options.run, data=options.data, device=options.device, ranks=ranks)
        evaluation = run.evaluate(**others(options, "run", "data", "device", "json"))
    if not ranks.first:
        return
    figures = f"all figures: {options.run}/evaluation.json"
    show(evaluation.to_json(), evaluation.table(), figures, as_json=options.json)
