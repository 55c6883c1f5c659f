"""config.json of a run folder: what was trained on what, and how. Not for: its other files (run_folder.py)."""

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
    """What config.json holds.

    Attributes:
        task: Name of the task, "" for a run on arrays.
        dataset: Folder of the prepared dataset, "" for a run on arrays.
        dataset_fingerprint: Its fingerprint, or that of the labels for a run on arrays.
        train: The options.
        model: Shape of the model.
        label_distance: The label distance with every setting that the dataset decided.
        made_of: What ``dataset_fingerprint`` is of, in which data that differ are told apart.
        plugins: Name and SHA-256 of each plugin that was loaded; none of them is ever imported because a run says so.
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
        """In what other data differ from those that the run was trained on, in words; "" if in nothing."""
        if fingerprint == self.dataset_fingerprint:
            return ""
        return difference(self.made_of, as_json(made_of)) or "dataset.json is written otherwise"

    def save(self, run: Path) -> None:
        """Write config.json."""
        write_json(run / "config.json", {"cml": __version__, **asdict(self)})

    @classmethod
    def load(cls, run: Path) -> RunConfig:
        """Read config.json.

        Raises:
            DataError: it is missing or does not say what it should.
        """
        path = run / "config.json"
        if not run.is_dir():
            raise DataError(f"{run} is not a folder; give a run folder that 'cml train' made.")
        other = next((what for name, what in _OTHERS.items() if (run / name).exists()), None)
        if other is not None and not path.exists():
            raise DataError(_not_a_run(run, other))
        value = read_json(path, "the run's config")
        if isinstance(value, dict):  # beside cml's version and the loss's constants, which are for people to read
            value = {one.name: value[one.name] for one in fields(cls) if one.name in value}
        try:
            return saved_options(cls, value, str(path), "a run's config")
        except DataError:
            if other is not None:  # which has a config.json of its own kind
                raise DataError(_not_a_run(run, other)) from None
            raise


def _not_a_run(folder: Path, what: str) -> str:
    return f"{folder} is {what}, not a run; give a run folder that 'cml train' made."
