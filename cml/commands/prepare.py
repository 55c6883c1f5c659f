"""``cml prepare SOURCE --out DIR``: raw files to a prepared dataset."""

from __future__ import annotations

import itertools
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from cml import data_prep, plugins
from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AsJson, pick, print_json, print_text
from cml.errors import UserError

if TYPE_CHECKING:
    from cml.data.prepared import PreparedDataset

_SMALL = 1000  # training items; with fewer, a whole network overfits, and held-out items choose a head in a minute
_LABELS = 20_000  # of so many labels, all are checked: it takes a moment
SKIP_BAD = "Skip and count items whose image or label is invalid. By default, the first such item is an error."


def run(
    # the arguments after ``cml prepare``: the name of a source, or ``hf:USER/NAME``, and its options
    arguments: Sequence[str],
) -> None:
    """Prepare a dataset; print its size and the commands that check it and train on it."""
    if arguments and arguments[0].startswith("hf:"):
        arguments = ["hf", "--dataset", arguments[0][3:], *arguments[1:]]
    name, rest = pick(arguments, "source", data_prep.names(), summary, "cml prepare")
    source: Any = data_prep.registry.entry(name)
    own: list[Any] = [
        ("out", Annotated[Path, arg(help="Dataset folder to create. Rerun the command to resume.")]),
        ("source", source),
        ("skip_bad", Annotated[bool, arg(help=SKIP_BAD)], False),
        ("json", AsJson, False),
    ]
    command: Any = make_dataclass("Prepare", own, namespace={"__doc__": source.__doc__})
    options = parse(command, rest, prog=f"cml prepare {name}", description="")
    if isinstance(raw := getattr(options.source, "source", None), Path) and not raw.exists():
        raise UserError(f"There is no {raw}. Give the folder or file of the raw data with --source.")
    from cml.doors.prepare import prepare_source  # which imports much

    try:
        dataset = prepare_source(options.source, options.out, skip_bad=options.skip_bad)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(str(stop) or "no item was finished yet") from None
    skipped = dataset.info.details.get("skipped", {"count": 0, "first": []})
    if options.json:
        print_json({"folder": str(dataset.folder), "counts": dict(dataset.info.counts), "skipped": skipped})
        return
    counts = ", ".join(f"{count} {role}" for role, count in dataset.info.counts.items() if count)
    print_text(f"{dataset.folder}: {counts} items of task {dataset.info.task!r}")
    for reason, count in dataset.info.details.get("left_out", {}).items():
        print_text(f"left out: {count} ({reason})")
    if skipped["count"]:
        print_text(f"skipped as bad: {skipped['count']}. {dataset.folder}/dataset.json names the first ones.")
    print_text(*next_steps(dataset))


def next_steps(dataset: PreparedDataset) -> list[str]:
    """Write the commands that check a dataset and train on it."""
    from cml import tasks
    from cml.distances import LabelError
    from cml.distances import registry as distances
    from cml.doors.dataset_options import complete_dataset_options
    from cml.models import has_published_weights
    from cml.sampling import registry as samplers
    from cml.sampling.sampler import suggest_batch_size
    from cml.training.train_options import complete_options
    from cml.tuning.tune import FEWEST_ITEMS

    name, items = dataset.info.task, dataset.info.counts["train"]
    command = ["cml", "train", name, "--data", str(dataset.folder), "--out", _free(Path("runs") / dataset.folder.name)]
    obstacles = []
    if name in tasks.names():  # a task of another package may not be installed here
        task, labels = tasks.get(name), dataset.split("train").labels
        try:
            some = labels if len(labels) <= _LABELS else labels[:1]
            with warnings.catch_warnings(action="ignore"):  # training warns of labels that are left out
                distances.make(task.label_distance(task.recipe, dataset.info)).fit(labels).encode(some)
        except LabelError:
            obstacles.append(f"first: {shlex.join(['cml', 'check', str(dataset.folder)])} lists labels to mend")
        except UserError as error:
            obstacles.append(f"first: {error}")
        recipe = complete_options(task.recipe, {}, dataset.info.inputs)
        is_frozen = items < _SMALL and has_published_weights(recipe.backbone)
        suited = complete_dataset_options(task, {"freeze_backbone": is_frozen}, dataset.info)
        if is_frozen:
            command += ["--freeze-backbone"]
        if (
            FEWEST_ITEMS <= items < _SMALL
            and "tune" in task.compared
            and (is_frozen or dataset.info.inputs.kind == "vectors")
        ):
            command += ["--tune"]
        elif is_frozen and suited.steps == recipe.steps:
            command += ["--steps", "300"]
        if (
            "--tune" not in command
            and 2 <= items < samplers.make(suited.sampler).batch_size
            and suited.sampler == recipe.sampler
        ):
            command += ["--sampler", f"random(batch_size={suggest_batch_size(items)})"]
    check = shlex.join(["cml", "check", str(dataset.folder)])
    return [*obstacles, f"next: {check}{plugins.flags()} && {shlex.join(command)}{plugins.flags()}"]


def _free(run: Path) -> str:
    numbered = (run.with_name(f"{run.name}-{number}") for number in itertools.count(2))
    return str(next(folder for folder in itertools.chain([run], numbered) if not folder.exists()))


def summary(name: str) -> str:
    """Return the line of a source in the list of all sources."""
    return (data_prep.registry.entry(name).__doc__ or "").strip().partition("\n")[0]
