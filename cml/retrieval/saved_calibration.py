"""calibration.json of a run folder or of a saved model: its calibration, and which weights that belongs to."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from cml.errors import DataError, UserError
from cml.models.embedding import EmbeddingModel
from cml.models.weights_fingerprint import model_fingerprint
from cml.retrieval.calibration import Calibration
from cml.storage.json_file import write_json
from cml.storage.saved_options import read_record
from cml.version import __version__

CALIBRATION = "calibration.json"
_AGAIN = "Calibrate the model again: cml calibrate RUN, or model.calibrate(...)."


@dataclass(frozen=True)
class _Record:
    """The content of calibration.json; ``version`` is that of this format."""

    version: Literal[1]
    model: str
    calibration: Calibration


def save_calibration(folder: Path, calibration: Calibration, model: EmbeddingModel) -> Path:
    """Write a calibration beside its model.

    Args:
        folder: The run folder.
        calibration: The calibration.
        model: The model, whose digest is noted.

    Returns:
        The file.
    """
    record = _Record(1, model_fingerprint(model), calibration)
    write_json(folder / CALIBRATION, {"cml": __version__, "kind": "calibration", **asdict(record)})
    return folder / CALIBRATION


def load_calibration(folder: Path, model: EmbeddingModel) -> Calibration | None:
    """Read the calibration of a model.

    Args:
        folder: The folder that the model was loaded from.
        model: The model.

    Returns:
        The calibration; None if there is none.

    Raises:
        DataError: It is damaged, of another version of cml, or of other weights.
    """
    path = folder / CALIBRATION
    if not path.exists():
        return None
    try:
        saved = read_record(path, _Record, "the calibration of a model", _AGAIN)
    except UserError as error:
        raise error if isinstance(error, DataError) else DataError(f"{path}: {error} {_AGAIN}") from None
    if saved.model != model_fingerprint(model):
        raise DataError(f"{path} belongs to other weights than the model beside it. {_AGAIN}")
    return saved.calibration
