"""config.json of a run folder: data, options and model of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from cml.errors import DataError
from cml.models.embedding import ModelConfig
from cml.storage.atomic import read_json, write_json
from cml.storage.made_with import as_json, difference
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
    """The content of config.json.

    Attributes:
        task: Name of the task, "" for a run on arrays.
        dataset: Folder of the prepared dataset, "" for a run on arrays.
        dataset_fingerprint: Its fingerprint, or that of the labels for a run on arrays.
        train: The options.
        model: Shape of the model.
        label_distance: The label distance with the settings that depend on the dataset.
        made_of: What ``dataset_fingerprint`` depends on, to describe how other data differ.
        plugins: Name and SHA-256 of each plugin that the run needs; none is imported when a run is opened.
    """

    task: str
    dataset: str
    dataset_fingerprint: str
    train: TrainConfig
    model: ModelConfig
    label_distance: str
    made_of: dict[str, Any] = field(default_factory=dict)
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
    def load(cls, run: Path) -> RunConfig:
        """Read config.json.

        Raises:
            DataError: it is missing or invalid.
        """
        path = run / "config.json"
        if not run.is_dir():
            raise DataError(f"{run} is not a folder; give a run folder that 'cml train' made.")
        other = next((what for name, what in _OTHERS.items() if (run / name).exists()), None)
        if other is not None and not path.exists():
            raise DataError(_not_a_run(run, other))
        value = read_json(path, "the run's config")
        if isinstance(value, dict):  # drop cml's version and the loss's constants, which are only informative
            value = {one.name: value[one.name] for one in fields(cls) if one.name in value}
        try:
            return saved_options(cls, value, str(path), "a run's config")
        except DataError:
            if other is not None:  # it has another kind of config.json
                raise DataError(_not_a_run(run, other)) from None
            raise


def _not_a_run(folder: Path, what: str) -> str:
    return f"{folder} is {what}, not a run; give a run folder that 'cml train' made."
