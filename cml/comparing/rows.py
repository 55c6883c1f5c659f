"""The rows of a comparison: a name and the options that are trained under it."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cml.errors import UserError
from cml.option_types import check_options
from cml.registry import Choice
from cml.task import Task
from cml.training.config import TrainConfig

_LONGEST = 120  # letters of a folder's name


@dataclass(frozen=True)
class Row:
    """One row of a comparison."""

    name: str  # name in the table, in figures and in messages
    options: TrainConfig  # options of training; the comparison sets the seed, and the dimension at further dimensions


def rows_of(
    task: Task,
    config: TrainConfig,
    variants: Sequence[str] | None,  # names of variants, in any order
    losses: Sequence[str],
) -> list[Row]:
    """Build the rows that compare variants of a task and single losses."""
    check_variants(task, variants or ())
    if not variants and not losses:
        variants = list(task.variants)
        if not variants:
            raise UserError(f"The task {task.name!r} names no variants to compare.")
    changes = {name: task.variants[name] for name in task.variants if name in (variants or ())}
    rows = {name: Row(name, with_changes(config, options)) for name, options in changes.items()}
    for loss in losses:
        row = Row(loss, replace(config, loss=loss))
        if rows.setdefault(loss, row) != row:
            raise UserError(
                f"Both a variant of task {task.name!r} and a loss are called {loss!r}, with different options. "
                "Compare one of them, or write a setting of the loss in brackets."
            )
    return list(rows.values())


def check_variants(task: Task, names: Iterable[str]) -> None:
    """Check that the task has variants of these names."""
    for name in names:
        if name not in task.variants:
            raise UserError(f"Unknown variant {name!r} of task {task.name!r}. Known: {quoted_list(task.variants)}.")


def with_changes(
    config: TrainConfig,
    changes: Mapping[str, Any],  # options by name
) -> TrainConfig:
    """Change some options, keeping batches of one size.

    A sampler among the changes takes over the batch size of the shared sampler unless it states one of its own.
    """
    config_changes = dict(changes)
    if "sampler" in changes:
        config_changes["sampler"] = with_batch_size_of(changes["sampler"], config.sampler)
    return check_options(replace(config, **config_changes))


def with_batch_size_of(sampler: str, shared: str) -> str:
    """A sampler with the batch size of the shared one, unless it states one of its own."""
    own, other = Choice.parse(sampler), Choice.parse(shared)
    if "batch_size" in own.settings or "batch_size" not in other.settings:
        return sampler
    return str(Choice(own.name, {**own.settings, "batch_size": other.settings["batch_size"]}))


def row_folders(names: Iterable[str], reserved: Iterable[str] = ()) -> dict[str, str]:
    """Name a folder for each row, no two alike.

    A row whose folder would be that of an earlier row, or of another name in ``reserved``, gets a digest of its name.
    So the loss "dense-triplet" lies beside the variant "dense triplet", whether both are compared or one.
    """
    owners: dict[str, str] = {}
    folders = {}
    for name in [*reserved, *names]:
        folder = slug(name)
        if not folder or owners.setdefault(folder, name) != name:
            folder = f"{folder}-{_digest(name)}".lstrip("-")
        folders[name] = folder
    return {name: folders[name] for name in names}


def slug(name: str) -> str:
    """A row's name as a folder's: lower-case letters and digits joined by "-", "" if there are none."""
    text = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}-{_digest(name)}"


def quoted_list(names: Iterable[str]) -> str:
    """Names in double quotes, as messages list them."""
    return ", ".join(f'"{name}"' for name in names)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:8]
