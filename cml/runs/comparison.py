"""Several losses, one network, one budget, several seeds: the runs, which are kept, the table and the figures."""

import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cml import distances, losses, plugins
from cml.console.messages import say
from cml.console.resume_hint import resume_hint
from cml.data.prepared import PreparedDataset
from cml.errors import DataError, UserError
from cml.registry import Choice
from cml.reporting.visible_text import visible_text
from cml.retrieval.comparison import CUT, Comparison
from cml.retrieval.embeddings import EMBEDDING, cut_row
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.results import Evaluation
from cml.runs.report import sheet_note, sheet_variants, write_pictures, write_report
from cml.runs.retrieved import GALLERY, write_run_gallery
from cml.runs.run import Run
from cml.runs.train import train_task
from cml.storage.atomic import atomic_file, read_json, write_json
from cml.storage.safe_paths import check_no_link
from cml.task import Task
from cml.trackers import Tracker
from cml.training import checkpoint, run_folder
from cml.training.callbacks import with_tracker
from cml.training.config import TrainConfig

_LONGEST = 120  # letters of a folder's name


@dataclass(frozen=True)
class Planned:
    """One run of a comparison; variant, dimension and seed are among its options."""

    variant: str
    dimension: int
    seed: int
    options: TrainConfig
    folder: Path


@dataclass(frozen=True)
class Compared:
    """A finished comparison: its figures, the page of what the variants of its sheet retrieve, title to run folder."""

    comparison: Comparison
    gallery: Path
    runs: Mapping[str, Path]


def check_labels(task: Task, dataset: PreparedDataset, runs: Iterable[TrainConfig]) -> None:
    """Refuse a loss whose labels the dataset does not have before another loss is trained."""
    labels = dataset.split("train").labels
    for options in {(one.loss, one.label_distance): one for one in runs}.values():
        distance = distances.get(task.label_distance(options, dataset.info)).fit(labels)
        some, kind = distance.encode(labels[:2]), losses.get(options.loss).labels
        found = {"classes": distance.class_names, "vectors": distance.label_vectors}
        if kind in found and found[kind](some) is None:
            advice = "Leave it out, or take it through a rule, as in binary(loss=triplet, rule=nearest, k=5)."
            said = f"The loss {options.loss!r} is over {kind}, which the label distance {distance.name!r}"
            raise UserError(f"{said} does not give. {advice}")


@resume_hint()
def run_comparison(
    task: Task,
    dataset: PreparedDataset,
    config: TrainConfig,
    out: Path,
    *,
    variants: Sequence[str] | None = None,
    seeds: int = 3,
    dimensions: Sequence[int] = (),
    cut: bool = False,
    recall_within: float = 0.0,
    tracker: str | Tracker | None = None,
) -> Compared:
    """Train, evaluate and compare; ``config`` is what all variants share. The others are as for ``cml.compare``."""
    check_variants(task, variants or ())
    chosen = [name for name in task.variants if variants is None or name in variants]
    if not chosen:
        raise UserError(f"The task {task.name!r} names no variants to compare.")
    if seeds < 1:
        raise UserError(f"'seeds' must be at least 1. Got {seeds} instead.")
    sizes = [config.dimension, *(one for one in dict.fromkeys(dimensions) if one != config.dimension)]
    if cut and (len(sizes) < 2 or max(sizes) > sizes[0]):
        got = f"Got {sizes[0]} and {list(sizes[1:]) or 'none'} instead."
        raise UserError(f"What is cut is the embedding of 'dimension', at smaller 'dimensions'. {got}")

    found: dict[int, dict[str, list[Evaluation]]] = {size: {name: [] for name in chosen} for size in sizes}
    shown: dict[str, Run] = {}
    references: Evaluation | None = None
    plan = planned(task, config, out, chosen, seeds, sizes)
    check_labels(task, dataset, [one.options for one in plan if not finished(one, dataset)])
    for number, one in enumerate(plan, 1):
        check_no_link(out, *one.folder.relative_to(out).parts)
        if not finished(one, dataset):
            words = f", {one.dimension} dimensions" if len(sizes) > 1 else ""
            say(f"{number}/{len(plan)} {one.variant}, seed {one.seed}{words}")
            train_task(task, dataset, one.options, one.folder, resume=True, callbacks=with_tracker((), tracker))
        smaller = sizes[1:] if cut and one.dimension == sizes[0] else []
        rows = [cut_row(size) for size in smaller]
        evaluation = None if references is None else kept_evaluation(one.folder, references, rows)
        wanted = one.variant in sheet_variants(chosen) and one.variant not in shown
        if evaluation is None or wanted:
            run = Run.open(one.folder, data=dataset.folder, device=config.device)
            shown |= {one.variant: run} if wanted else {}
            evaluation = evaluation or run.evaluate(
                EvaluateOptions(recall_within=recall_within),
                dimensions=smaller,
                references=references is None,
                tracker=tracker,
            )
        for size in smaller:
            part = replace(evaluation, rows={EMBEDDING: evaluation.rows[cut_row(size)]})
            found[size].setdefault(f"{one.variant}{CUT}", []).append(part)
        whole = {name: row for name, row in evaluation.rows.items() if name not in rows}
        references = references or replace(evaluation, rows=whole)
        found[one.dimension][one.variant].append(evaluation)
    assert references is not None

    main, *others = sizes
    comparison = Comparison(found[main], references, EMBEDDING, main, {size: found[size] for size in others})
    write_tables(comparison, out)
    write_pictures(comparison, shown, out)
    (_, ours), *rest = shown.items()
    beside = [(name.partition(",")[0], run.embeddings) for name, run in rest]
    baseline = beside[0] if beside else ours.frozen
    page = write_run_gallery(ours, baseline, table=comparison.table(), note=sheet_note(chosen), path=out / GALLERY)
    runs = {f"{visible_text(one.variant)}, {one.dimension} dimensions, seed {one.seed}": one.folder for one in plan}
    write_report(comparison, runs, out, title=f"{dataset.info.name}: {len(chosen)} losses, {seeds} runs each")
    return Compared(comparison, page, runs)


def check_variants(task: Task, names: Iterable[str]) -> None:
    """Refuse a name that is none of the task's variants."""
    for name in names:
        if name not in task.variants:
            raise UserError(f"Unknown variant {name!r} of task {task.name!r}. Known: {quoted(task.variants)}.")


def write_tables(comparison: Comparison, out: Path) -> None:
    """Write comparison.json and table.md."""
    write_json(out / "comparison.json", comparison.to_json())
    with atomic_file(out / "table.md") as temporary:
        temporary.write_text(f"{comparison.markdown()}\n\n{comparison.notes()}\n", encoding="utf-8")


def quoted(names: Iterable[str]) -> str:
    """Names as a message lists them."""
    return ", ".join(f'"{name}"' for name in names)


def planned(
    task: Task, config: TrainConfig, out: Path, variants: Sequence[str], seeds: int, dimensions: Sequence[int]
) -> list[Planned]:
    """All runs of a comparison; those of the first dimension, which the table needs, come first."""
    _check_folders(task)
    runs = []
    for dimension, variant in itertools.product(dimensions, variants):
        chosen = varied(replace(config, dimension=dimension), task.variants[variant])
        for seed in range(seeds):
            folder = _folder(out / slug(variant), dimension, seed, dimensions, seeds)
            runs.append(Planned(variant, dimension, seed, replace(chosen, seed=seed), folder))
    return runs


def varied(config: TrainConfig, changes: Mapping[str, Any]) -> TrainConfig:
    """The options of a variant; its own sampler has the batch size that all variants share unless it states one."""
    if "sampler" in changes:
        own, shared = Choice.parse(changes["sampler"]), Choice.parse(config.sampler).settings
        if "batch_size" in shared and "batch_size" not in own.settings:
            sampler = Choice(own.name, {**own.settings, "batch_size": shared["batch_size"]})
            changes = {**changes, "sampler": str(sampler)}
    return replace(config, **changes)


def _folder(base: Path, dimension: int, seed: int, dimensions: Sequence[int], seeds: int) -> Path:
    """A run's folder, named by what there are several of, or the one that another comparison began the run in."""
    sizes = [f"dimension-{dimension}", *([""] if dimension == dimensions[0] else [])]
    numbers = [f"seed-{seed}", *([""] if seed == 0 else [])]
    places = [
        base / size / number
        for size in (sizes if len(dimensions) > 1 else sizes[::-1])
        for number in (numbers if seeds > 1 else numbers[::-1])
    ]
    return next((place for place in places if (place / "config.json").exists()), places[0])


def finished(run: Planned, dataset: PreparedDataset) -> bool:
    """Whether the run needs no more training; an error where its folder holds another run."""
    done = (run.folder / run_folder.MODEL).exists()
    if not done and not (run.folder / checkpoint.CHECKPOINT).exists():
        return False
    saved = run_folder.check_same(run.folder, run.options, dataset.fingerprint, dataset.made_of)
    if changed := plugins.changed(saved.plugins):
        raise UserError(f"{run.folder}: {changed} Delete this folder to train it again, or choose another --out.")
    return done


def kept_evaluation(folder: Path, like: Evaluation, rows: Sequence[str] = ()) -> Evaluation | None:
    """The evaluation in a run folder, always of its model, if it measures what ``like`` does, of ``rows``."""
    try:
        kept = Evaluation.from_json(read_json(folder / "evaluation.json", "an evaluation"))
    except (OSError, DataError):
        return None
    names = ("unit", "reported_unit", "gain", "queries", "gallery", "hit_neighbors", "recall_within")
    same = all(getattr(kept, name) == getattr(like, name) for name in names) and kept.rows.keys() >= set(rows)
    return kept if same and set(kept.rows.get(EMBEDDING, ())) == set(like.rows[EMBEDDING]) else None


def _check_folders(task: Task) -> None:
    taken: dict[str, str] = {}
    for variant in task.variants:
        other = taken.setdefault(slug(variant), variant)
        if other != variant or not slug(variant):
            beside = f", as those of {other!r} do" if other != variant else ""
            raise UserError(
                f"The runs of the variant {variant!r} of task {task.name!r} would go into the folder "
                f"{slug(variant)!r}{beside}: only the letters a to z and digits of a name count. Rename one."
            )


def slug(name: str) -> str:
    """A variant's name as a folder's."""
    text = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
