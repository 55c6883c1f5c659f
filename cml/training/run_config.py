"""config.json of a run folder: data, options and model of the run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from cml.errors import DataError
from cml.models.embedding import ModelConfig
from cml.storage.atomic import read_json, write_json
from cml.storage.provenance import as_json, difference
from cml.storage.saved_options import saved_options
from cml.training.config import TrainConfig
from cml.version import __version__

_OTHERS = {
    "comparison.json": "a comparison, whose runs lie below it",
    "dataset.json": "a prepared dataset",
    "model.onnx": "an ONNX export",
    "manifest.json": "an export or index",
}


@dataclass(frozen=True)
class RunConfig:
    """The content of config.json."""

    task: str  # name of the task, "" for a run on arrays
    dataset: str  # folder of the prepared dataset, "" for a run on arrays
    dataset_fingerprint: str  # its own, or that of the labels for a run on arrays
    train: TrainConfig
    model: ModelConfig
    label_distance: str  # with the settings that depend on the dataset
    made_of: dict[str, Any] = field(default_factory=dict)  # what dataset_fingerprint depends on: how other data differ
    # name and SHA-256 of each plugin that the run needs; none is imported when a run is opened
    plugins: tuple[tuple[str, str], ...] = ()

    def other_data(self, fingerprint: str, made_of: Mapping[str, Any]) -> str:
        """How other data differ from those of the run, in words; "" if they do not."""
        if fingerprint == self.dataset_fingerprint:
            return ""
        return difference(self.made_of, as_json(made_of)) or "dataset.json is formatted differently"

    def save(self, run: Path) -> None:
        """Write config.json."""
        write_json(run / "config.json", {"cml": __version__, **asdict(self)})

    @classmethod
    def load(cls, run: Path) -> Self:
        """Read config.json."""
        path, made = run / "config.json", "give a run folder that 'cml train' made."
        if not run.is_dir():
            raise DataError(f"{run} is not a folder; {made}")
        other = next((what for name, what in _OTHERS.items() if (run / name).exists()), None)
        another = DataError(f"{run} is {other}, not a run; {made}")
        if other is not None and not path.exists():
            raise another
        value = read_json(path, "the run's config")
        if isinstance(value, dict):  # drop cml's version and the loss's constants, which are only informative
            value = {one.name: value[one.name] for one in fields(cls) if one.name in value}
        try:
            return saved_options(cls, value, str(path), "a run's config")
        except DataError:
            if other is not None:  # it has another kind of config.json
                raise another from None
            raise
