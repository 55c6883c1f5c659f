"""``cml evaluate RUN``: how well a trained embedding retrieves, beside oracle, random and frozen features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cml.commands import parse, print_json
from cml.files import write_json

if TYPE_CHECKING:
    from cml.commands.trained_run import TrainedRun
    from cml.retrieval.evaluation import Evaluation

EMBEDDING = "embedding"  # the trained model's row


@dataclass(frozen=True)
class Evaluate:
    """Measure a trained embedding."""

    run: Path
    """Run folder."""
    data: Path | None = None
    """Where the dataset lies now, if not where it was at training."""
    gain: str = "reciprocal"
    """Gain of nDCG: reciprocal is 1 / (1 + d)."""
    seed: int = 0
    """Of the random ranking and the bootstrap."""
    device: str = "auto"
    """auto | cpu | cuda .."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Sequence[str]) -> None:
    """Evaluate, write evaluation.json, print the table."""
    from cml.commands.trained_run import TrainedRun

    options = parse(Evaluate, positional(arguments), prog="cml evaluate", description=Evaluate.__doc__ or "")
    trained = TrainedRun.open(options.run, data=options.data, device=options.device)
    evaluation = evaluate_run(trained, gain=options.gain, seed=options.seed)
    write_json(options.run / "evaluation.json", evaluation.to_json())
    if options.json:
        print_json(evaluation.to_json())
        return
    print(evaluation.table())
    print(f"all figures: {options.run}/evaluation.json")


def positional(arguments: Sequence[str]) -> list[str]:
    """Let the run folder be given without its flag: ``cml evaluate RUN``."""
    if arguments and not arguments[0].startswith("-"):
        return ["--run", *arguments]
    return list(arguments)


def evaluate_run(
    trained: TrainedRun, *, gain: str = "reciprocal", seed: int = 0, references: bool = True
) -> Evaluation:
    """Evaluate a run on its dataset's queries and gallery.

    Args:
        trained: The run.
        gain: Gain of nDCG.
        seed: Of the random ranking and the bootstrap.
        references: Add the rows that do not depend on the training: oracle, random, frozen features.
    """
    from tqdm import tqdm

    from cml.retrieval.evaluation import Ranker, embedding_ranker, evaluate, random_ranker

    rankers: dict[str, Ranker] = {EMBEDDING: embedding_ranker(*trained.embeddings)}
    if references:
        if trained.frozen is not None:
            name, features = trained.frozen
            rankers[name] = embedding_ranker(*features)
        rankers["random"] = random_ranker(len(trained.query), len(trained.gallery), seed)
    with tqdm(total=len(trained.query), desc="evaluate", unit="query") as bar:
        evaluation = evaluate(
            rankers,
            trained.distance,
            trained.query,
            trained.gallery,
            gain=gain,
            seed=seed,
            oracle=references,
            progress=bar.update,
        )
    return replace(evaluation, unit=trained.unit)
