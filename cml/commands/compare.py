"""``cml compare TASK --data DIR --out DIR``: several losses, one network, one budget, several seeds; table, figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from cml import tasks
from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AsJson, AsMarkdown, pick, print_json, print_text
from cml.commands.train import check_dataset, recipe_for
from cml.errors import UserError, quoted_list
from cml.training.config import TrainConfig

_REFUSED = ("loss", "tune", *TrainConfig.HELP_GROUPS["tuning"])  # options of cml train: the rows set them


@dataclass(frozen=True)
class Compare:
    """Train several losses with one budget and compare what they retrieve."""

    data: Path
    """Folder of the prepared dataset."""
    out: Path
    """Folder for the runs, the table and the figures."""
    training: TrainConfig
    config: Path | None = None
    """Options from a file, as for cml train. Its loss is ignored, and options given here override it."""
    variants: tuple[str, ...] = ()
    """Names of the task's variants to train, each in quotes. By default those that suit the labels, or all for classes,
    unless --losses is given."""
    losses: tuple[str, ...] = ()
    """Losses to compare, in the syntax of --loss. Each is a row below the named variants."""
    seeds: int = 3
    """Number of runs per row, with seeds 0, 1, ...; intervals over seeds need at least 2."""
    dimensions: tuple[int, ...] = ()
    """Additional embedding dimensions to train every row with, such as 16 32 64, for a plot over the dimension."""
    cut: bool = False
    """Also truncate the embedding of --dimension to the sizes in --dimensions, for example with --losses
    "matryoshka(loss=cosent)"."""
    recall_within: float = 0.0
    """Also measure Recall@K, as cml evaluate does."""
    protocol: str = ""
    """Also measure every row by an evaluation protocol, as cml evaluate does: regression prints the errors of labels
    predicted by neighbours and by a linear probe."""
    search_space: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Option to vary, in quotes, such as "dimension=16,32,64". "loss.alpha=16,32" varies a setting of a loss, sampler
    or backbone. With --trials, a value can be a range, such as "learning_rate=1e-5..1e-2:log". If the option is
    repeated, all combinations are trained."""
    trials: int = 0
    """Number of settings sampled from the search space for each loss; 0 trains all combinations."""
    study: bool = False
    """Evaluate all combinations on the test set, not only the one that is best on held-out items."""
    tracker: str = ""
    """Experiment tracker of every run; see cml train."""
    markdown: AsMarkdown = False
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Compare, write table and figures, print the table."""
    name, rest = pick(arguments, "task", tasks.names(), lambda name: tasks.get(name).summary, "cml compare")
    task, prog = tasks.get(name), f"cml compare {name}"
    description = f"Compare losses on {task.summary}. Variants: {quoted_list(task.variants)}."
    recipe = recipe_for(task, task.recipe, rest, prog, ignored=("loss",))
    default = Compare(tyro.MISSING, tyro.MISSING, recipe)
    options = parse(Compare, rest, prog=prog, description=description, default=default, hidden=_REFUSED)
    if options.training.loss != recipe.loss:
        advice = "leave --loss out and choose with --variants and --losses"
        raise UserError(f"In a comparison the rows set the loss: {advice}.")
    check_dataset(options.data)
    from cml.comparing.compare import compare  # which imports torch
    from cml.comparing.report import REPORT
    from cml.doors.retrieved import RETRIEVAL_REPORT

    comparison = compare(
        task,
        options.data,
        options.out,
        config=options.training,
        variants=options.variants,
        losses=options.losses,
        seeds=options.seeds,
        dimensions=options.dimensions,
        cut=options.cut,
        recall_within=options.recall_within,
        protocol=options.protocol,
        search_space=options.search_space,
        trials=options.trials,
        study=options.study,
        tracker=options.tracker,
    )
    if options.json:
        print_json(comparison.to_json())
        return
    print_text(f"{comparison.markdown()}\n\n{comparison.notes()}" if options.markdown else comparison)
    pictures = ", ".join(sorted(path.name for path in options.out.glob("*.png")))
    print_text(f"In {options.out}: comparison.json with all figures, table.md, {pictures}")
    print_text(f"report: {options.out / REPORT}")
    print_text(f"retrieval report: {options.out / RETRIEVAL_REPORT}")
