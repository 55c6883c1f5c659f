"""``cml train TASK --data DIR --out RUN``: train an embedding and keep everything about it in a run folder."""

import shlex
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cml import plugins, tasks
from cml.command_line.parse_options import parse, parse_known
from cml.command_line.shared_options import AllowDownload, AsJson, pick, show
from cml.console.messages import say
from cml.data.dataset_info import read_dataset_info
from cml.data.input_form import InputForm
from cml.doors.dataset_options import make_label_distance, take_group_column
from cml.errors import DataError, UserError
from cml.storage.downloads import names_of_a_run
from cml.task import Task
from cml.training.config import TrainConfig, add_implied_options, read_options
from cml.training.train_options import complete_options, suit_options

if TYPE_CHECKING:
    from cml.training.learner import Learned
    from cml.training.saved_model import RunConfig


@dataclass(frozen=True)
class Train:
    """Train an embedding on a prepared dataset."""

    data: Path
    """Folder of the prepared dataset; with --resume, by default the one of the run."""
    out: Path
    """Run folder to create, or to resume with --resume."""
    training: TrainConfig
    config: Path | None = None
    """Options from a file: a run's config.json, or JSON or YAML with some of them. Options given here override it."""
    start: Path | None = None
    """Run folder of a trained model to continue, with its backbone, head and standardisation."""
    resume: bool = False
    """Resume the run in --out from its last checkpoint, with its original options."""
    tracker: str = ""
    """Experiment tracker of the run: tensorboard | wandb | mlflow | trackio, or name(setting=value, ...)."""
    allow_download: AllowDownload = False
    json: AsJson = False


@dataclass(frozen=True)
class DecidingOptions:
    """The options on which the defaults of the others depend."""

    data: Path | None = None
    out: Path | None = None
    config: Path | None = None
    resume: bool = False
    freeze_backbone: bool = False
    features: str = ""
    flip: str = ""
    steps: int = 0
    epochs: int = 0
    tune: bool = False
    backbone: str = ""
    label_distance: str = ""


_GIVEN = ("freeze_backbone", "features", "steps", "epochs", "tune", "backbone", "label_distance")  # of training


def run(arguments: Sequence[str]) -> None:
    """Train, and print which command to run next."""
    import tyro

    name, rest = pick(arguments, "task", tasks.names(), lambda name: tasks.get(name).summary, "cml train")
    task, prog = tasks.get(name), f"cml train {name}"
    deciding, _ = parse_known(DecidingOptions, rest, prog=prog)
    data, recipe = tyro.MISSING, task.recipe
    if deciding.resume and deciding.out is not None:
        saved = _read_run(deciding.out)
        recipe = saved.started_with
        if saved.dataset:
            data = Path(saved.dataset)
    default = Train(data, tyro.MISSING, recipe_for(task, recipe, rest, prog))
    options = parse(Train, rest, prog=prog, description=f"Train on {task.summary}.", default=default)
    check_dataset(options.data)
    from cml.data.prepared import PreparedDataset
    from cml.doors.load import load
    from cml.doors.train import train_task
    from cml.doors.training_run import with_tracker
    from cml.processes.init_processes import init_processes
    from cml.training.learner import Place
    from cml.training.run_folder import check_unused

    if not options.resume:
        check_unused(options.out)  # a dataset may take long to open
    try:
        are_own_names = not options.resume  # those of a run to resume are in its config.json
        with (
            names_of_a_run(allow_download=are_own_names or options.allow_download),
            init_processes(options.training.device) as ranks,
        ):
            dataset = PreparedDataset.open(options.data)
            if dataset.info.task != name:
                say(f"{options.data} was prepared for the task {dataset.info.task!r}: its labels may not fit {name!r}.")
            training = take_group_column(options.training, dataset.info)
            place = Place(options.out, options.resume, with_tracker((), options.tracker), ranks=ranks)
            start = None if options.start is None else load(options.start, device="cpu").network
            learned = train_task(task, dataset, training, place, start=start)
    except KeyboardInterrupt as stop:
        if not (options.out / "config.json").exists():
            raise KeyboardInterrupt(str(stop) or "nothing was trained yet") from None
        again = "the same command with --resume continues from"
        raise KeyboardInterrupt(f"{stop}; {again} there" if str(stop) else f"{again} the last checkpoint") from None
    if ranks.first:
        _show(learned, options)


def check_dataset(folder: Path) -> None:
    """Refuse what is no prepared dataset, before anything is imported that takes long."""
    if read_dataset_info(folder) is None:
        from cml.data.prepared import PreparedDataset

        PreparedDataset.open(folder)  # which says what is wrong


def _read_run(out: Path) -> "RunConfig":
    """The config of the run to resume."""
    from cml.training.saved_model import RunConfig

    if not (out / "config.json").exists():
        raise UserError(f"{out} holds no run to resume. Give its folder, or leave --resume out to start one.")
    return RunConfig.load(out)


def _show(learned: "Learned", options: Train) -> None:
    """Print what was made, and the next command."""
    again = f"{shlex.quote(str(options.out))}{plugins.flags()}"
    following = f"next: cml evaluate {again} && cml report {again}"
    if learned.selection is not None:
        result = {"run": str(options.out), "chosen": list(learned.selection.chosen), "gain": learned.selection.gain}
        show(result, f"{options.out}: {' + '.join(learned.selection.chosen)}", following, as_json=options.json)
        return
    last = next((record for record in reversed(learned.metrics) if "loss" in record), None)
    if last is None:
        from cml.training.metrics_log import METRICS

        raise DataError(f"{options.out} is finished, but its {METRICS} is missing or holds no loss.")
    summary = f"{options.out}: {last['step']} steps, last loss {last['loss']:.4f}, curve in {options.out}/loss.png"
    result = {"run": str(options.out), "steps": last["step"], "loss": last["loss"]}
    show(result, summary, following, as_json=options.json)


def recipe_for(
    task: Task, recipe: TrainConfig, arguments: Sequence[str], prog: str, *, ignored: Container[str] = ()
) -> TrainConfig:
    """Find the defaults: the file of ``--config``, then what suits the dataset, then the recipe."""
    deciding, _ = parse_known(DecidingOptions, arguments, prog=prog)
    if deciding.steps and deciding.epochs:
        raise UserError(
            "--steps and --epochs both say how long to train: leave out one of them. "
            f"Got {deciding.steps} steps and {deciding.epochs} epochs instead."
        )
    info = None if deciding.data is None or deciding.resume else read_dataset_info(deciding.data)
    form = InputForm() if info is None else info.inputs
    in_file = _read_file(deciding, recipe, form, ignored)
    start = DecidingOptions(**{name: in_file[name] for name in ("freeze_backbone", "tune") if name in in_file})
    deciding, _ = parse_known(DecidingOptions, arguments, prog=prog, default=start)
    given = {name: getattr(deciding, name) for name in _GIVEN if getattr(deciding, name) != getattr(start, name)}
    if deciding.resume:  # which has the store of the run
        given.pop("features", None)
    chosen = {**in_file, **add_implied_options(given)}
    distance = None if info is None else make_label_distance(task, chosen, info)
    suited = suit_options(recipe, chosen, form, distance)
    loses_mirroring = form.kind == "images" and suited.get("flip") == "none" != recipe.flip
    if deciding.freeze_backbone and loses_mirroring and not deciding.flip:
        say("The backbone is frozen and sees every image once, as it is: the recipe's mirroring is off.")
    # options that are given are set when all are read, since one may need another; those that suit 'tune' need it now
    needed = {name: value for name, value in chosen.items() if name not in given or name == "tune"}
    return replace(recipe, **suited, **needed)


def _read_file(
    deciding: DecidingOptions, recipe: TrainConfig, form: InputForm, ignored: Container[str]
) -> dict[str, Any]:
    """The options in the file of ``--config``, which may freeze the backbone of a recipe that mirrors images."""
    if deciding.config is None:
        return {}
    of_store = {} if deciding.resume else add_implied_options({"features": deciding.features})
    options = read_options(deciding.config, complete_options(recipe, {**of_store, "flip": "none"}, form))
    return {name: value for name, value in options.items() if name not in ignored}
