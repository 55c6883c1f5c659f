"""A run folder: config.json, metrics.jsonl, checkpoints/, loss.png, model.safetensors (docs/reference/formats.md).

loss.safetensors holds the trained parameters of a loss (proxies), if it has any. A learner keeps in checkpoints/ what
it needs to continue, and beside it how it chose the model, if it did. The process that trains holds ``lock``.
``model.safetensors`` is written last: a run that has it is finished.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cml.array_types import UInt64
from cml.data.digest_file import load_digests, save_digests
from cml.errors import UserError
from cml.storage.atomic import check_vacant, delete, make_folder
from cml.storage.json_file import read_json, write_json
from cml.storage.safe_paths import check_no_link
from cml.storage.saved_options import as_json, difference
from cml.storage.work_folder import exclusive_lock
from cml.training.config import TrainConfig
from cml.training.learner import Learned
from cml.training.metrics_log import METRICS
from cml.training.saved_model import MODEL, RunConfig, save_finished, save_tensors

LOSS = "loss.safetensors"
CURVE = "loss.png"
EVALUATION = "evaluation.json"
LOCK = "lock"


@contextlib.contextmanager
def open_run_folder(run: Path, config: RunConfig, *, resume: bool, compare_model: bool = True) -> Iterator[None]:
    """Make or continue a run folder, and keep other processes out while the block runs."""
    if not _is_run(run):
        check_vacant(run)  # before anything is written to it
    check_no_link(run, "checkpoints")
    with make_folder(run), exclusive_lock(run / LOCK, f"the run {run}"):
        is_new = not (run / "config.json").exists()
        try:
            _begin_run(run, config, resume=resume, compare_model=compare_model)
            yield
        except Exception:
            if is_new and not _has_model(run) and not _has_metrics(run):
                for name in ("config.json", METRICS, "checkpoints", LOCK):  # no step was done
                    delete(run / name)
            raise


def check_unused(run: Path) -> None:
    """Check that a folder holds no run, so that one can begin there."""
    if (run / MODEL).exists():
        raise UserError(f"{run} holds a finished run. Choose another folder, or delete this one to train it again.")
    if _has_work(run):
        raise UserError(
            f"{run} already holds a run. Continue it with resume=True (on the command line --resume), or choose "
            "another folder."
        )


def check_same(run: Path, options: TrainConfig, dataset_fingerprint: str, made_of: Mapping[str, Any]) -> RunConfig:
    """Check that a run was started with the same options on the same dataset."""
    saved = RunConfig.load(run)
    reason = saved.other_data(dataset_fingerprint, made_of)
    if reason:
        place = saved.dataset or "arrays"
        raise UserError(f"{run} was trained on another dataset, {place} ({reason}); choose another folder.")
    for name, (now, then) in options.difference(saved.started_with).items():
        raise UserError(f"{run} was started with {name}={then}, now {name}={now}. Resume with the same options.")
    return saved


def save_loss_constants(
    run: Path | None,  # the run folder; None writes nothing
    constants: Mapping[str, float],  # the constants by name
) -> None:
    """Add the constants that the loss fitted to the training set to config.json."""
    if run is None:
        return
    path = run / "config.json"
    write_json(path, {**read_json(path, "the run's config"), "loss_constants": dict(constants)})


def finish(
    run: Path | None,  # the run folder; None writes nothing
    learned: Learned,
    config: RunConfig | None,
) -> None:
    """Finish a run: write the curve, the trained parameters of the loss, if it has any, and the model."""
    if run is None:
        return
    from cml.reporting.curves import write_curves

    if config is not None and (final := config.with_learned_model(learned.config, learned.model.config)) != config:
        final.save(run)
    if learned.selection is not None:
        learned.selection.save(run)
    if learned.metrics:
        write_curves(run / CURVE, learned.metrics)
    loss = learned.loss
    parameters = {**dict(loss.named_parameters()), **dict(loss.named_buffers())}
    if parameters:
        save_tensors(run / LOSS, parameters)
    save_finished(run, learned.model)


def _is_run(run: Path) -> bool:
    """Whether a run made the folder; it may have been killed before it wrote its config."""
    if (run / "config.json").exists():
        return True
    return run.is_dir() and all(path.name == LOCK or path.name.startswith(".config.json") for path in run.iterdir())


def _has_model(run: Path) -> bool:
    return (run / MODEL).exists() or _has_work(run)


def _has_work(run: Path) -> bool:
    """Whether a learner has kept something to continue with; names of unfinished files begin with a dot."""
    return any(not path.name.startswith(".") for path in (run / "checkpoints").glob("*"))


def _has_metrics(run: Path) -> bool:
    return (run / METRICS).exists() and (run / METRICS).stat().st_size > 0


def _begin_run(run: Path, config: RunConfig, *, resume: bool, compare_model: bool) -> None:
    if not resume:
        check_unused(run)
    if not _has_model(run):
        # nothing to lose: a run that failed before its first checkpoint leaves only a config
        (run / EVALUATION).unlink(missing_ok=True)  # of an earlier run, whose model was deleted
        (run / "checkpoints").mkdir(parents=True, exist_ok=True)
        config.save(run)
        return
    saved = check_same(run, config.train, config.dataset_fingerprint, config.made_of)
    for name in {**saved.own, **config.own}:
        then, now = saved.own.get(name, "none"), config.own.get(name, "none")
        if then != now:
            raise UserError(
                f"{run} was started with {name}={then} of your own, now it is {now}: resume it in Python, by "
                "cml.fit or cml.train with the same one."
            )
    both = [as_json(_comparable(it, compare_model=compare_model)) for it in (saved, config)]
    reason = difference(*both)
    if reason:
        raise UserError(f"{run} was started with different settings ({reason}); choose another folder.")


def _comparable(config: RunConfig, *, compare_model: bool) -> dict[str, Any]:
    # the folder of the dataset is not compared, since it may have moved
    model = asdict(config.model) if compare_model else {}
    return {"task": config.task, "label_distance": config.label_distance, **model}


TRAINING_ITEMS = "training_items.npy"
_NOT_KNOWN = "Copy the run again, or delete the file: then no item counts as one that the model was trained on."


def save_training_items(
    folder: Path,
    digests: UInt64,  # (M,) as ``cml.data.item_digests.digest_items`` gives them
) -> None:
    """Write the digests of training items."""
    save_digests(folder / TRAINING_ITEMS, digests)


def load_training_items(folder: Path) -> UInt64:  # (M,) digests; none of a run that does not have them
    """Read the digests of training items."""
    return load_digests(folder / TRAINING_ITEMS, _NOT_KNOWN)
