"""config.json of a run folder: data, options and model of the run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from cml.errors import DataError
from cml.models.embedding import ModelConfig
from cml.storage.json_file import check_format, read_json, with_format, write_json
from cml.storage.saved_options import as_json, difference, saved_options
from cml.training.config import RUN_AGAIN, TrainConfig

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

    def with_learned(self, train: TrainConfig, model: ModelConfig) -> Self:
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
        advice = "give a run folder that 'cml train' made."
        if not run.is_dir():
            raise DataError(f"{run} is not a folder; {advice}")
        other = next((kind for name, kind in _OTHERS.items() if (run / name).exists()), None)
        other_error = DataError(f"{run} is {other}, not a run; {advice}")
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
