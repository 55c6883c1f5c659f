"""``cml compare TASK --data DIR --out DIR``: several losses, one network, one budget, several seeds; table and figures.

Every run is kept; a comparison cut off and started again trains and evaluates only what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cml import tasks
from cml.command_line.options import parse, pick, print_json
from cml.commands.train import recipe_for
from cml.errors import UserError
from cml.runs.compare import quoted, run_comparison, with_losses
from cml.training.config import TrainConfig


@dataclass(frozen=True)
class Compare:
    """Train several losses with one budget and compare what they retrieve."""

    data: Path
    """Folder of the prepared dataset."""
    out: Path
    """Folder for the runs, the table and the figures."""
    config: TrainConfig
    variants: tuple[str, ...] = ()
    """Names of the task's variants to train, each in quotes; all when neither they nor losses are given."""
    losses: tuple[str, ...] = ()
    """Losses to compare, each as --loss takes it: a row each, after the variants that are named."""
    seeds: int = 3
    """Runs a variant, with seeds 0, 1, ..; intervals over seeds need at least 2."""
    dimensions: tuple[int, ...] = ()
    """Further sizes of the embedding to train every variant at, as in 16 32 64, for the figure over the dimension."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Sequence[str]) -> None:
    """Compare, write table and figures, print the table."""
    import tyro

    from cml.data.prepared import PreparedDataset

    others = tasks.comparisons
    known = {name: tasks.get(name).summary for name in tasks.names()}
    known |= {name: (others.entry(name).__doc__ or "").partition("\n")[0] for name in others.names()}
    name, rest = pick(arguments, "task", known, "cml compare")
    if name in others.names():
        others.entry(name)(rest)
        return
    task = tasks.get(name)
    recipe = recipe_for(task, rest)
    defaults = Compare(tyro.MISSING, tyro.MISSING, recipe)
    description = f"Compare losses on {task.summary}. Variants: {quoted(task.variants)}."
    options = parse(Compare, rest, prog=f"cml compare {name}", description=description, default=defaults)
    if options.config.loss != task.recipe.loss:
        raise UserError(
            "In a comparison the rows set the loss: leave --loss out and choose with --variants and --losses."
        )
    dataset = PreparedDataset.open(options.data)
    task = with_losses(task, options.losses)
    variants = (*options.variants, *(loss for loss in options.losses if loss not in options.variants))
    comparison = run_comparison(
        task,
        dataset,
        options.config,
        options.out,
        variants=variants or None,
        seeds=options.seeds,
        dimensions=options.dimensions,
    ).comparison
    if options.json:
        print_json(comparison.to_json())
        return
    print(comparison.markdown())
    print(f"\n{comparison.notes()}")
    pictures = ", ".join(sorted(path.name for path in options.out.glob("*.png")))
    print(f"In {options.out}: comparison.json with all figures, table.md, {pictures}")
