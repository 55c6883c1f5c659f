"""``cml train TASK --data DIR --out RUN``: train an embedding and keep everything about it in a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cml import tasks
from cml.command_line.options import parse, pick, print_json, say
from cml.errors import UserError
from cml.runs.train import train_task
from cml.training.config import TrainConfig

if TYPE_CHECKING:
    from cml.training.run_config import RunConfig


@dataclass(frozen=True)
class Train:
    """Train an embedding on a prepared dataset."""

    data: Path
    """Folder of the prepared dataset; with --resume the run's own unless given."""
    out: Path
    """Run folder to make, or to continue with --resume."""
    config: TrainConfig
    resume: bool = False
    """Continue the run in --out from its last checkpoint, with the options it began with."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Sequence[str]) -> None:
    """Train and say what to do next."""
    import tyro

    from cml.data.prepared import PreparedDataset

    known = {name: tasks.get(name).summary for name in tasks.names()}
    name, rest = pick(arguments, "task", known, "cml train")
    task = tasks.get(name)
    begun = _begun(rest)
    if begun is None:
        defaults = Train(tyro.MISSING, tyro.MISSING, recipe_for(task, rest))
    else:
        defaults = Train(Path(begun.dataset) if begun.dataset else tyro.MISSING, tyro.MISSING, begun.train)
    options = parse(Train, rest, prog=f"cml train {name}", description=f"Train on {task.summary}.", default=defaults)
    if options.resume and not (options.out / "config.json").exists():
        raise UserError(f"{options.out} holds no run to resume. Give its folder, or leave --resume out to start one.")
    from cml.processes.join import joined
    from cml.training.run_folder import check_unused

    if not options.resume:
        check_unused(options.out)  # a dataset may take long to open
    try:
        with joined(options.config.device) as ranks:
            dataset = PreparedDataset.open(options.data)
            if dataset.info.task != name:
                say(
                    f"{options.data} was prepared for the task {dataset.info.task!r}: its labels need not fit {name!r}."
                )
            trained = train_task(task, dataset, options.config, options.out, resume=options.resume, ranks=ranks)
    except KeyboardInterrupt as stop:
        again = "with --resume" if (options.out / "config.json").exists() else "again"
        raise KeyboardInterrupt(str(stop) or f"the same command {again} goes on from the last checkpoint") from None
    if not ranks.first:
        return
    last = [record["loss"] for record in trained.metrics if "loss" in record][-1]
    if options.json:
        print_json({"run": str(options.out), "steps": options.config.steps, "loss": last})
        return
    print(f"{options.out}: {options.config.steps} steps, last loss {last:.4f}, curve in {options.out}/loss.png")
    print(f"next: cml evaluate {options.out} && cml gallery {options.out}")


def _begun(arguments: Sequence[str]) -> RunConfig | None:
    """What the run began with that a command line asks to resume; None if it does not, or there is no such run."""
    words = [part for word in arguments for part in word.split("=", 1)]
    if "--resume" not in words or "--out" not in words[:-1]:
        return None
    from cml.training.run_config import RunConfig

    run = Path(words[words.index("--out") + 1])
    return RunConfig.load(run) if (run / "config.json").exists() else None


def recipe_for(task: tasks.Task, arguments: Sequence[str]) -> TrainConfig:
    """The task's recipe as the defaults of a command line.

    A frozen backbone sees every image once, as it is: with ``--freeze-backbone`` the recipe's mirroring does not apply.
    A ``--flip`` among ``arguments`` is the user's own word, which the options then check.
    """
    flags = {word.partition("=")[0].replace("_", "-") for word in arguments}
    if "--freeze-backbone" not in flags or "--flip" in flags or task.recipe.flip == "none":
        return task.recipe
    say("The backbone is frozen and sees every image once, as it is: the recipe's mirroring is off.")
    return replace(task.recipe, flip="none")
