"""config.json of a run folder: what was trained on what, and how. Not for: its other files (run_folder.py)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cml.errors import DataError, UserError
from cml.models.embedding import ModelConfig
from cml.storage.atomic import read_json, write_json
from cml.training.config import TrainConfig
from cml.version import __version__

_OTHERS = {"dataset.json": "a prepared dataset", "model.onnx": "an ONNX export", "manifest.json": "an export or index"}


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
    """

    task: str
    dataset: str
    dataset_fingerprint: str
    train: TrainConfig
    model: ModelConfig
    label_distance: str

    def save(self, run: Path) -> None:
        """Write config.json."""
        value = {
            "cml": __version__,
            "task": self.task,
            "dataset": self.dataset,
            "dataset_fingerprint": self.dataset_fingerprint,
            "label_distance": self.label_distance,
            "train": self.train.to_json(),
            "model": self.model.to_json(),
        }
        write_json(run / "config.json", value)

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
        try:
            texts = {name: value[name] for name in ("task", "dataset", "dataset_fingerprint", "label_distance")}
            if strange := [name for name, text in texts.items() if not isinstance(text, str)]:
                raise TypeError(f"{strange[0]!r} should be a text")
            train = TrainConfig.from_json(value["train"], str(path))
            return cls(train=train, model=ModelConfig.from_json(value["model"]), **texts)
        except UserError as error:
            raise DataError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
        except (KeyError, TypeError, AttributeError) as error:
            if other is not None:  # which has a config.json of its own kind
                raise DataError(_not_a_run(run, other)) from None
            raise DataError(f"{path} is not a run's config: {type(error).__name__} {error}.") from None


def _not_a_run(folder: Path, what: str) -> str:
    return f"{folder} is {what}, not a run; give a run folder that 'cml train' made."
