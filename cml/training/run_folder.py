"""A run folder: config.json, metrics.jsonl, checkpoints/, loss.png, model.safetensors (docs/reference/formats.md).

loss.safetensors holds the trained parameters of a loss (proxies), if it has any. A run with ``tune`` has no steps: it
keeps its fits in tune/ until it is finished, and says in tuning.json what was chosen. The process that trains holds
``lock``. ``model.safetensors`` is written last: a run that has it is finished.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from cml.errors import UserError
from cml.models.embedding import EmbeddingModel
from cml.storage.atomic import check_vacant, delete, make_folder
from cml.storage.exclusive_lock import exclusive_lock
from cml.storage.json_file import read_json, write_json
from cml.storage.provenance import as_json, difference
from cml.storage.safe_paths import check_no_link
from cml.storage.saved_options import record
from cml.training.checkpoint import CHECKPOINT
from cml.training.config import TrainConfig
from cml.training.metrics_log import METRICS
from cml.training.run_config import RunConfig
from cml.training.saved_model import MODEL, save_model, save_tensors
from cml.training.tune import Tuning
from cml.training.tune_fits import has_fits

LOSS = "loss.safetensors"
CURVE = "loss.png"
EVALUATION = "evaluation.json"
LOCK = "lock"
TUNING = "tuning.json"


@contextlib.contextmanager
def open_run_folder(run: Path, config: RunConfig, *, resume: bool) -> Iterator[None]:
    """Make or continue a run folder, and keep other processes out while the block runs.

    Args:
        run: The folder.
        config: What config.json holds, or has to agree with.
        resume: Whether the folder may hold a run already.

    Raises:
        UserError: The folder is taken, another process works in it, or its run has other options; the message names
            the first.
    """
    if not _is_run(run):
        check_vacant(run)  # before anything is written to it
    check_no_link(run, "checkpoints")
    with make_folder(run), exclusive_lock(run / LOCK, f"the run {run}"):
        is_new = not (run / "config.json").exists()
        try:
            _begin_run(run, config, resume=resume)
            yield
        except Exception:
            if is_new and not _has_model(run) and not _has_metrics(run):
                for name in ("config.json", METRICS, "checkpoints", LOCK):  # no step was done
                    delete(run / name)
            raise


def check_unused(run: Path) -> None:
    """Check that a folder holds no run, so that one can begin there.

    Args:
        run: The folder.

    Raises:
        UserError: It holds a run.
    """
    if (run / MODEL).exists():
        raise UserError(f"{run} holds a finished run. Choose another folder, or delete this one to train it again.")
    if (run / CHECKPOINT).exists() or has_fits(run):
        raise UserError(
            f"{run} already holds a run. Continue it with resume=True (on the command line --resume), or choose "
            "another folder."
        )


def check_same(run: Path, options: TrainConfig, dataset_fingerprint: str, made_of: Mapping[str, Any]) -> RunConfig:
    """Check that a run was started with the same options on the same dataset.

    Args:
        run: The run folder.
        options: The options of training.
        dataset_fingerprint: Digest of the dataset.
        made_of: The parts of that digest, by which a difference is explained.

    Returns:
        The run's config.

    Raises:
        UserError: It was not; the message names the first difference.
    """
    saved = RunConfig.load(run)
    reason = saved.other_data(dataset_fingerprint, made_of)
    if reason:
        place = saved.dataset or "arrays"
        raise UserError(f"{run} was trained on another dataset, {place} ({reason}); choose another folder.")
    for name, (now, then) in options.difference(saved.started_with).items():
        raise UserError(f"{run} was started with {name}={then}, now {name}={now}. Resume with the same options.")
    return saved


def save_loss_constants(run: Path | None, constants: Mapping[str, float]) -> None:
    """Add the constants that the loss fitted to the training set to config.json.

    Args:
        run: The run folder; None writes nothing.
        constants: The constants by name.
    """
    if run is None:
        return
    path = run / "config.json"
    write_json(path, {**read_json(path, "the run's config"), "loss_constants": dict(constants)})


def save_tuning(run: Path, tuning: Tuning) -> None:
    """Write what tuning chose and by which scores to tuning.json, and in words.

    Args:
        run: The run folder.
        tuning: What was chosen.
    """
    write_json(run / TUNING, {**asdict(tuning), "lines": tuning.lines()})


def load_tuning(run: Path) -> Tuning:
    """Read what tuning chose.

    Args:
        run: The run folder.

    Returns:
        What was chosen.

    Raises:
        DataError: tuning.json is missing or damaged.
    """
    path, subject = run / TUNING, "what 'tune' chose"
    content = read_json(path, subject)
    if isinstance(content, dict):
        content.pop("lines", None)  # the same in words
    return record(content, Tuning, str(path), subject, "Tune again, in another folder.")


def finish(run: Path | None, model: EmbeddingModel, loss: nn.Module, metrics: Sequence[Mapping[str, Any]]) -> None:
    """Finish a run: write the curve, the trained parameters of the loss, if it has any, and the model.

    Args:
        run: The run folder; None writes nothing.
        model: The trained model.
        loss: The loss.
        metrics: The records of metrics.jsonl.
    """
    if run is None:
        return
    from cml.reporting.curves import write_curves

    if metrics:
        write_curves(run / CURVE, metrics)
    parameters = {**dict(loss.named_parameters()), **dict(loss.named_buffers())}
    if parameters:
        save_tensors(run / LOSS, parameters)
    save_model(run / MODEL, model)


def _is_run(run: Path) -> bool:
    """Whether a run made the folder; it may have been killed before it wrote its config."""
    if (run / "config.json").exists():
        return True
    return run.is_dir() and all(path.name == LOCK or path.name.startswith(".config.json") for path in run.iterdir())


def _has_model(run: Path) -> bool:
    return (run / CHECKPOINT).exists() or (run / MODEL).exists() or has_fits(run)


def _has_metrics(run: Path) -> bool:
    return (run / METRICS).exists() and (run / METRICS).stat().st_size > 0


def _begin_run(run: Path, config: RunConfig, *, resume: bool) -> None:
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
    reason = difference(as_json(_comparable(saved)), as_json(_comparable(config)))
    if reason:
        raise UserError(f"{run} was started with different settings ({reason}); choose another folder.")


def _comparable(config: RunConfig) -> dict[str, Any]:
    # the folder of the dataset is not compared, since it may have moved; the model of a tuned run is what was chosen
    model = {} if config.train.tune else asdict(config.model)
    return {"task": config.task, "label_distance": config.label_distance, **model}
