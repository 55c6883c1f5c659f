"""A run folder (docs/reference/formats.md): one with ``model.safetensors`` is finished; who trains holds ``lock``."""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cml.errors import DataError, UserError
from cml.models import Backbone
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.storage.atomic import (
    atomic_file,
    check_vacant,
    delete,
    exclusive_lock,
    make_folder,
    read_json,
    text_path,
    write_json,
)
from cml.storage.provenance import as_json, difference
from cml.storage.safe_paths import check_no_link
from cml.training.checkpoint import CHECKPOINT
from cml.training.config import TrainConfig
from cml.training.metrics_log import METRICS
from cml.training.run_config import RunConfig

MODEL = "model.safetensors"
KEPT = "checkpoints/step-{}.safetensors"  # the models that keep_models keeps
LOSS = "loss.safetensors"
CURVE = "loss.png"
EVALUATION = "evaluation.json"
LOCK = "lock"
_CHECKSUM = "sha256"  # in the metadata of a safetensors file, whose format has no checksum


@contextlib.contextmanager
def begun(run: Path, config: RunConfig, *, resume: bool) -> Iterator[None]:
    """Make a run folder, or continue one with ``config``, and keep other processes out while the block runs."""
    # made by a run, which may have been killed before it wrote its config
    is_run = (run / "config.json").exists() or (
        run.is_dir() and all(path.name == LOCK or path.name.startswith(".config.json") for path in run.iterdir())
    )
    if not is_run:
        check_vacant(run)  # before anything is written to it
    check_no_link(run, "checkpoints")
    with make_folder(run), exclusive_lock(run / LOCK, f"the run {run}"):
        new = not (run / "config.json").exists()
        try:
            _start(run, config, resume=resume)
            yield
        except Exception:
            if new and not _has_model(run) and not ((run / METRICS).exists() and (run / METRICS).stat().st_size):
                for name in ("config.json", METRICS, "checkpoints", LOCK):  # no step was done
                    delete(run / name)
            raise


def _has_model(run: Path) -> bool:
    return any((run / name).exists() for name in (CHECKPOINT, MODEL))


def _start(run: Path, config: RunConfig, *, resume: bool) -> None:
    if not resume:
        check_unused(run)
    if not _has_model(run):
        # nothing to lose: a run that failed before its first checkpoint leaves only a config
        (run / EVALUATION).unlink(missing_ok=True)  # of an earlier run, whose model was deleted
        (run / "checkpoints").mkdir(parents=True, exist_ok=True)
        config.save(run)
        return
    saved = check_same(run, config.train, config.dataset_fingerprint, config.made_of)
    # the folder of the dataset is not compared, since it may have moved
    then, now = (
        {"task": one.task, "label_distance": one.label_distance, **asdict(one.model)} for one in (saved, config)
    )
    if why := difference(as_json(then), as_json(now)):
        raise UserError(f"{run} was started with different settings ({why}); choose another folder.")


def check_unused(run: Path) -> None:
    """Check that ``run`` holds no run, so that one can begin there."""
    if (run / MODEL).exists():
        raise UserError(f"{run} holds a finished run. Choose another folder, or delete this one to train it again.")
    if (run / CHECKPOINT).exists():
        raise UserError(f"{run} already holds a run. Add --resume to continue it, or choose another folder.")


def check_same(run: Path, options: TrainConfig, dataset_fingerprint: str, made_of: Mapping[str, Any]) -> RunConfig:
    """Check that the run in ``run`` was started with these options on this dataset; returns its config."""
    saved = RunConfig.load(run)
    if why := saved.other_data(dataset_fingerprint, made_of):
        place = saved.dataset or "arrays"
        raise UserError(f"{run} was trained on another dataset, {place} ({why}); choose another folder.")
    for name, (now, then) in options.difference(saved.train).items():
        raise UserError(f"{run} was started with {name}={then}, now {name}={now}. Resume with the same options.")
    return saved


def save_loss_constants(run: Path | None, constants: Mapping[str, float]) -> None:
    """Add the constants that the loss fitted to the training set to config.json."""
    if run is not None:
        path = run / "config.json"
        write_json(path, {**read_json(path, "the run's config"), "loss_constants": dict(constants)})


def finish(run: Path | None, model: EmbeddingModel, loss: nn.Module, metrics: Sequence[Mapping[str, Any]]) -> None:
    """Finish a run: write the curve, the trained parameters of the loss, if it has any, and the model."""
    if run is None:
        return
    from cml.reporting.curves import write_curves

    if metrics:
        write_curves(run / CURVE, metrics)
    if state := {**dict(loss.named_parameters()), **dict(loss.named_buffers())}:
        _save_tensors(run / LOSS, state)
    save_model(run / MODEL, model)


def kept_models(run: Path) -> dict[int, str]:
    """The models that were kept during training: step to file name below the run folder, in order."""
    steps = (path.stem.removeprefix("step-") for path in run.glob(KEPT.format("*")))
    return {step: KEPT.format(step) for step in sorted(int(step) for step in steps if step.isdecimal())}


def save_model(path: Path, model: EmbeddingModel) -> None:
    """Write the model's weights as safetensors, atomically."""
    _save_tensors(path, model.state_dict())


def _save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    from safetensors.torch import save

    # copies: safetensors refuses tensors that share memory
    state = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    with atomic_file(path) as temporary:
        temporary.write_bytes(save(state, {_CHECKSUM: _checksum(state)}))


def _checksum(state: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


_ANEW = "Delete it and write it again from the last checkpoint: cml train TASK --out {run} --resume."


def load_model(
    run: Path,
    config: ModelConfig,
    device: torch.device,
    backbone: nn.Module | Backbone | None = None,
    *,
    which: str = MODEL,
) -> EmbeddingModel:
    """The trained model of a run, or ``which`` other of its files, in evaluation mode; ``backbone``: the user's own."""
    from safetensors import SafetensorError, safe_open

    if not (path := run / which).is_file():
        raise DataError(
            f"{path} is missing: the run is not finished. Continue it: cml train TASK --out {run} --resume."
        )
    try:
        with text_path(path) as name, safe_open(name, "pt") as file:
            checksum = (file.metadata() or {}).get(_CHECKSUM)
            # checked before a network of the size in the config is made
            head = file.get_slice("head.weight").get_shape() if "head.weight" in file.keys() else []  # noqa: SIM118
            if head[:1] != [config.dimension]:
                raise RuntimeError(f"head.weight has the shape {head}, the config the dimension {config.dimension}.")
            weights: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except RuntimeError as error:
        raise DataError(f"{path} does not fit the run's config: {error}") from None
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} is damaged ({error}). {_ANEW.format(run=run)}") from None
    if checksum is not None and checksum != _checksum(weights):
        raise DataError(f"{path} is damaged: its checksum is wrong. {_ANEW.format(run=run)}")
    try:
        model = EmbeddingModel(config, pretrained=False, backbone=backbone)
        model.load_state_dict(weights)
    except RuntimeError as error:
        lines = str(error).splitlines()
        raise DataError(f"{path} does not fit the run's config: {' '.join(lines[:2])[:300]}") from None
    return model.to(device).eval()
