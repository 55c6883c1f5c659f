"""The model and the options of a run, as its folder holds them."""

import contextlib
import hashlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from cml import plugins
from cml.errors import DataError, UserError
from cml.models import Backbone
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.models.weights import load_plain_state, plain_state
from cml.processes.memory import is_out_of_memory
from cml.storage.atomic import atomic_file, delete
from cml.storage.downloads import MADE_BY, check_run_folder
from cml.storage.json_file import check_format, read_json, with_format, write_json
from cml.storage.regular_file import text_path
from cml.storage.saved_options import as_json, difference, saved_options
from cml.training.config import RUN_AGAIN, TrainConfig

MODEL = "model.safetensors"
BACKBONE = "backbone"  # the folder of a backbone that saves itself, such as one of texts with its tokenizer
_OF_BACKBONE = "backbone."  # begins the names of its weights
KEPT = "checkpoints/step-{}.safetensors"  # the models that keep_models keeps
_CHECKSUM = "sha256"  # in the metadata of a safetensors file, whose format has no checksum
_RENEW = "Delete it and write it again from the last checkpoint: cml train TASK --out {run} --resume."


def save_model(path: Path, model: EmbeddingModel) -> None:
    """Write the weights of a model, atomically."""
    save_tensors(path, plain_state(model))


def save_finished(folder: Path, model: EmbeddingModel) -> None:
    """Write a trained model: a backbone that saves itself into a folder of its own, everything else beside it."""
    state, backbone = plain_state(model), model.backbone
    if not hasattr(backbone, "saved_as"):
        save_tensors(folder / MODEL, state)
        return
    delete(folder / BACKBONE)
    backbone.save(folder / BACKBONE)  # type: ignore[operator]
    save_tensors(folder / MODEL, state, leave_out=_OF_BACKBONE)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], *, leave_out: str = "") -> None:
    """Write tensors by their names as safetensors, atomically; the checksum is also over those that are left out."""
    from safetensors.torch import save

    # copies: safetensors refuses tensors that share memory
    state = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    written = {name: value for name, value in state.items() if not leave_out or not name.startswith(leave_out)}
    with atomic_file(path) as temporary:
        temporary.write_bytes(save(written, {_CHECKSUM: _checksum(state)}))


def kept_models(run: Path) -> dict[int, str]:
    """List the models that were kept during training."""
    steps = (path.stem.removeprefix("step-") for path in run.glob(KEPT.format("*")))
    return {step: KEPT.format(step) for step in sorted(int(step) for step in steps if step.isdecimal())}


def load_model(
    run: Path,
    config: ModelConfig,
    device: torch.device,
    backbone: nn.Module | Backbone | None = None,
    *,
    file_name: str = MODEL,
) -> EmbeddingModel:
    """Load a trained model of a run."""
    from safetensors import SafetensorError, safe_open

    path, own_folder = run / file_name, run / BACKBONE if (run / BACKBONE).is_dir() else None
    if not path.is_file():
        raise DataError(
            f"{path} is missing: the run is not finished. Continue it: cml train TASK --out {run} --resume, or a run "
            "of cml.fit by the same call with resume=True."
        )
    try:
        with text_path(path) as name, safe_open(name, "pt") as file:
            checksum = (file.metadata() or {}).get(_CHECKSUM)
            # checked before a network of the size in the config is made
            head = file.get_slice("head.weight").get_shape() if "head.weight" in file.keys() else []  # noqa: SIM118
            if head[:1] != [config.dimension]:
                raise RuntimeError(f"head.weight has the shape {head}, the config the dimension {config.dimension}.")
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
            if backbone is None and own_folder is None:
                _check_shapes(config, shapes)
            weights: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (RuntimeError, SafetensorError, OSError) as error:
        if is_out_of_memory(error):
            raise
        if isinstance(error, RuntimeError):
            raise DataError(f"{path} does not fit the run's config: {error}") from None
        raise DataError(f"{path} is damaged ({error}). {_RENEW.format(run=run)}") from None
    try:
        first = "head.parts.weight" if config.parts else "head.weight"
        features = None if config.inputs.has_shape else shapes[first][1]
        model = EmbeddingModel(config, pretrained=False, backbone=backbone, features=features, folder=own_folder)
        if own_folder is not None and not any(name.startswith(_OF_BACKBONE) for name in weights):
            weights |= {name: value for name, value in plain_state(model).items() if name.startswith(_OF_BACKBONE)}
        if checksum is not None and checksum != _checksum(weights):
            raise DataError(f"{path} is damaged: its checksum is wrong. {_RENEW.format(run=run)}")
        load_plain_state(model, weights)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        lines = str(error).splitlines()
        raise DataError(f"{path} does not fit the run's config: {' '.join(lines[:2])[:300]}") from None
    return model.to(device).eval()


def _check_shapes(config: ModelConfig, shapes: Mapping[str, list[int]]) -> None:
    """Compare with the network of a config, made without memory: a config of a few bytes may ask for gigabytes."""
    try:
        with torch.device("meta"), warnings.catch_warnings(action="ignore"):
            wanted = EmbeddingModel(config, pretrained=False).state_dict()
    except Exception:  # a network that needs memory to be made: its shapes are compared when it is
        return
    for name, tensor in wanted.items():
        if name not in shapes:
            raise RuntimeError(f"it lacks {name}.")
        if shapes[name] != list(tensor.shape):
            raise RuntimeError(f"{name} has the shape {shapes[name]}, the config's network {list(tensor.shape)}.")
    if more := sorted(shapes.keys() - wanted.keys()):
        raise RuntimeError(f"it also has {more[0]}.")


def _checksum(state: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        if value.numel():  # an empty tensor has no bytes to view
            digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


_OTHERS = {
    "comparison.json": "a comparison, whose runs lie below it",
    "dataset.json": "a prepared dataset",
    "model.onnx": "an ONNX export",
    "manifest.json": "an export or index",
}


@dataclass(frozen=True)
class RunConfig:
    """The content of config.json."""

    task: str  # name of the task; "" for a run on arrays
    dataset: str  # folder of the prepared dataset; "" for a run on arrays
    dataset_fingerprint: str  # digest of the dataset, or of the labels for a run on arrays
    train: TrainConfig  # the options of training
    model: ModelConfig  # the shape of the model
    label_distance: str  # the label distance with the settings that depend on the dataset
    # what ``dataset_fingerprint`` depends on, by which a difference is explained
    made_of: dict[str, Any] = field(default_factory=dict)
    # what was given in Python alone, by argument: the name of a function, or a digest of ``sample_weight``
    own: dict[str, str] = field(default_factory=dict)
    # name and SHA-256 of each plugin that the run needs; none is imported when a run is opened
    plugins: tuple[tuple[str, str], ...] = ()
    # the options that the run was started with, where ``tune`` chose a whole network, whose options are ``train``; None
    # where both are the same
    requested: TrainConfig | None = None

    @property
    def started_with(self) -> TrainConfig:
        """The options that the run was started with, by which it is resumed."""
        return self.train if self.requested is None else self.requested

    def with_learned_model(self, train: TrainConfig, model: ModelConfig) -> Self:
        """Say with which options and of which shape a model was learned, where the learner chose them."""
        requested = self.requested if train == self.train else self.started_with
        return replace(self, train=train, model=model, requested=requested)

    def other_data(
        self, fingerprint: str, made_of: Mapping[str, Any]
    ) -> str:  # the difference in words; "" if there is none
        """Explain how other data differ from those of the run."""
        if fingerprint == self.dataset_fingerprint:
            return ""
        return difference(self.made_of, as_json(made_of)) or "dataset.json is formatted differently"

    def save(self, run: Path) -> None:
        """Write config.json into a run folder."""
        write_json(run / "config.json", with_format(asdict(self)))

    @classmethod
    def load(cls, run: Path) -> Self:
        """Read config.json of a run folder."""
        path = run / "config.json"
        check_run_folder(run)
        other = next((kind for name, kind in _OTHERS.items() if (run / name).exists()), None)
        other_error = DataError(f"{run} is {other}, not a run; {MADE_BY}")
        if other is not None and not path.exists():
            raise other_error
        below = "" if path.exists() else min((config.parent.name for config in run.glob("*/config.json")), default="")
        if below:
            raise DataError(
                f"{run} holds the runs of several seeds, not a run; give one of them, such as {run / below}."
            )
        value = read_json(path, "the run's config")
        if isinstance(value, dict):
            if {"cml", "train"} <= value.keys():
                check_format(value, path, RUN_AGAIN)
            # drop cml's version, the format and the loss's constants
            value = {option.name: value[option.name] for option in fields(cls) if option.name in value}
        try:
            return saved_options(cls, value, str(path), "a run's config")
        except DataError:
            if other is not None:  # it has another kind of config.json
                raise other_error from None
            raise


@contextlib.contextmanager
def explain_missing_plugins(run: RunConfig, folder: Path | None = None, *, advice: str = "") -> Iterator[None]:
    """Name the plugins that are not loaded where something is unknown in the block; warn of those that changed."""
    changed = plugins.explain_changes(run.plugins)
    if changed:
        warnings.warn(f"{folder or 'The run'}: {changed}", stacklevel=3)
    try:
        yield
    except UserError as error:
        remedy = plugins.explain_missing(run.plugins) or advice
        if remedy:
            raise UserError(f"{folder or 'The run'} cannot be opened: {error} {remedy}") from None
        raise
