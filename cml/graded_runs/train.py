"""``cml train grades --data DIR --out RUN``: a model of graded search, with one network or two."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from cml.command_line.parse_options import parse, parse_known
from cml.command_line.shared_options import AllowDownload, AsJson, show
from cml.data.input_form import InputForm
from cml.doors.fit import fit
from cml.doors.search_model import SearchModel
from cml.errors import UserError
from cml.graded.search_folder import WHOLE, SearchFolder, SearchSide, SideKind
from cml.graded.search_options import search_options
from cml.graded_runs.run_data import NoteData, read_note
from cml.storage.downloads import check_run_folder, names_of_a_run
from cml.training.config import TrainConfig, add_implied_options, read_options
from cml.training.saved_model import RunConfig
from cml.training.train_options import complete_options
from cml.training.vector_options import TEXT_BACKBONE

Gains = Literal["linear", "exponential"]
_ARGUMENTS = ("label_distance", "features", "loss", "backbone")  # of cml.fit, which are no further options of it


@dataclass(frozen=True)
class TrainGrades:
    """Train a model of graded search."""

    data: Path
    """Folder that cml prepare grades made, or one of BEIR or mteb; with --resume, by default the one of the run."""
    out: Path
    """Run folder to create, or to resume with --resume."""
    training: TrainConfig
    query_backbone: str = ""
    """Network of the queries, where it is another one than that of the documents, which is --backbone."""
    gains: Gains = "linear"
    """What a grade g is worth in training: linear, g, or exponential, 2^g, so that the best grades count most."""
    split: str = "train"
    """Split to learn from; a folder with one file of judged pairs has the split all."""
    validation_split: str = ""
    """Split whose queries validate, such as dev: the best weights by them are kept. By default, queries are held out of
    --split if --evaluate-every is given."""
    config: Path | None = None
    """Options from a file, as for cml train. Options given here override it."""
    resume: bool = False
    """Resume the run in --out from its last checkpoint, with its original options."""
    tracker: str = ""
    """Experiment tracker of the run: tensorboard | wandb | mlflow | trackio, or name(setting=value, ...)."""
    allow_download: AllowDownload = False
    json: AsJson = False


@dataclass(frozen=True)
class Deciding:
    """The options on which the defaults of the others depend."""

    data: Path | None = None
    out: Path | None = None
    config: Path | None = None
    resume: bool = False
    backbone: str = ""
    query_backbone: str = ""
    freeze_backbone: bool = False
    tune: bool = False


def run(arguments: Sequence[str]) -> None:
    """Graded search: queries, documents, and grades of some pairs."""
    prog = "cml train grades"
    deciding, _ = parse_known(Deciding, arguments, prog=prog)
    data, default = deciding.data or tyro.MISSING, TrainConfig()
    folder: SearchFolder | None = None
    note: dict[str, Any] = {}
    if deciding.resume and deciding.out is not None:
        check_run_folder(deciding.out)
        default = RunConfig.load(deciding.out).started_with
        note = read_note(deciding.out)
        data = deciding.data or Path(note.get("data", ""))
    else:
        folder = None if deciding.data is None else SearchFolder(deciding.data)
        default = suit_recipe(folder, arguments, prog, default)
    about = describe_defaults("Train a model of graded search.", folder)
    default_options = TrainGrades(
        data, tyro.MISSING, default, split=note.get("split", "train"), validation_split=note.get("validation_split", "")
    )
    options = parse(TrainGrades, arguments, prog=prog, description=about, default=default_options)
    folder = SearchFolder(options.data) if folder is None else folder
    try:
        with names_of_a_run(allow_download=not options.resume or options.allow_download):
            model = train_grades(
                folder,
                options.out,
                options.training,
                split=options.split,
                validation_split=options.validation_split,
                query_backbone=options.query_backbone,
                gains=options.gains,
                resume=options.resume,
                tracker=options.tracker,
            )
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(f"{stop}; --resume continues from the last checkpoint, if there is one") from None
    last = model.history.losses[-1]
    out = shlex.quote(str(options.out))
    show(
        {"run": str(options.out), "steps": options.training.steps, "loss": float(last)},
        f"{options.out}: {options.training.steps} steps, last loss {last:.4f}",
        f"next: cml evaluate {out} && cml index {out} {shlex.quote(str(folder.folder))} --out index",
        as_json=options.json,
    )


def describe_defaults(what: str, folder: SearchFolder | None) -> str:
    """What a command does, and whose defaults its help lists."""
    if folder is not None:
        return f"{what}\n\nThe defaults are those for the {folder.documents.kind} in {folder.folder}."
    return (
        f"{what}\n\nThe data decide some defaults. Those listed here are for texts; --data DIR --help lists those for "
        "other data. Vectors: no backbone, dimension 128. Images: the backbone efficientnet-lite0, trained as a whole "
        "in 1000 steps. With a frozen backbone or none: 200 steps at the rate 0.001 from head-start pca."
    )


def suit_recipe(
    folder: SearchFolder | None,  # None for texts
    arguments: Sequence[str],
    prog: str,
    recipe: TrainConfig,
) -> TrainConfig:
    """Find the defaults: the file of ``--config``, then what suits both sides."""
    deciding, _ = parse_known(Deciding, arguments, prog=prog)
    otherwise, _ = parse_known(Deciding, arguments, prog=prog, default=Deciding(freeze_backbone=True))
    given: dict[str, Any] = {name: getattr(deciding, name) for name in ("backbone", "tune") if getattr(deciding, name)}
    if deciding.freeze_backbone == otherwise.freeze_backbone:  # given, not a default
        given["freeze_backbone"] = deciding.freeze_backbone
    queries, documents = (InputForm("texts"),) * 2 if folder is None else map(_form, (folder.queries, folder.documents))
    in_file: Mapping[str, Any] = {}
    if deciding.config is not None:
        in_file = read_options(deciding.config, complete_options(recipe, given, documents))
    given = add_implied_options({**in_file, **given})
    has_two = bool(deciding.query_backbone) or queries.kind != documents.kind
    return replace(recipe, **given, **search_options(recipe, given, queries, documents, has_two=has_two))


def _form(side: SearchSide) -> InputForm:
    return InputForm(side.kind, (side.inputs.shape[1],) if isinstance(side.inputs, np.ndarray) else ())


def train_grades(
    folder: SearchFolder,
    out: Path,
    config: TrainConfig,
    *,
    split: str = "train",
    validation_split: str = "",
    query_backbone: str = "",
    gains: Gains = "linear",
    resume: bool = False,
    tracker: str = "",
    quiet: bool = False,
    binary_from: float | None = None,  # learn from grades that are 1 from this one on, and 0 below it; None for all
) -> SearchModel:
    """Train on a split of a folder into a run folder."""
    if split == "train" and split not in folder.splits and folder.splits == (WHOLE,):
        raise UserError(
            f"{folder.folder} has one file of judged pairs: split it by 'cml prepare grades --source {folder.folder}', "
            "or learn from all with '--split all'."
        )
    rule: Any = "exponential" if gains == "exponential" else None
    queries, documents, grades = folder.split(split, rule)
    validation = None
    if validation_split:
        others, _, judged = folder.split(validation_split, rule)
        validation = others, judged
    if binary_from is not None:
        grades = grades.at_least(binary_from)
    kinds: set[SideKind] = {folder.queries.kind, folder.documents.kind}
    query_backbone = query_backbone or _default_of_queries(kinds, folder.queries.kind)
    backbone: Any = (query_backbone, config.backbone) if query_backbone else config.backbone
    # all options, as those that equal a default of TrainConfig were chosen too
    chosen: Any = {name: value for name, value in vars(config).items() if name not in _ARGUMENTS}
    if config.epochs:
        chosen.pop("steps")
    model = fit(
        (queries, documents),
        grades,
        config,
        backbone=backbone,
        loss=config.loss,
        out=out,
        resume=resume,
        validation=validation,
        tracker=tracker or None,
        callbacks=[NoteData(folder, split, validation_split)],
        quiet=quiet,
        **chosen,
    )
    assert isinstance(model, SearchModel)
    return model


def _default_of_queries(kinds: set[SideKind], queries: SideKind) -> str:
    """The network of the queries, where both sides are of different kinds; "" for that of the documents."""
    if len(kinds) == 1:
        return ""
    if queries == "texts":
        return TEXT_BACKBONE
    if queries == "vectors":
        return "none"
    raise UserError("Queries are images and documents are not: name the network of the queries by --query-backbone.")
