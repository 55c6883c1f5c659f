"""calibration.json of a run folder or of a saved model: its calibration, and which weights that belongs to."""

from dataclasses import asdict, dataclass
from pathlib import Path

from cml.errors import DataError, UserError
from cml.models.embedding import EmbeddingModel
from cml.models.weights import model_fingerprint
from cml.retrieval.calibration import Calibration
from cml.storage.checksums import is_signed, sign
from cml.storage.json_file import check_format, read_json, with_format, write_json
from cml.storage.saved_options import as_json, record

CALIBRATION = "calibration.json"
_SUBJECT = "the calibration of a model"
_AGAIN = "Calibrate the model again: cml calibrate RUN, or model.calibrate(...)."


@dataclass(frozen=True)
class _Record:
    """The content of calibration.json."""

    model: str
    calibration: Calibration


def save_calibration(folder: Path, calibration: Calibration, model: EmbeddingModel) -> Path:
    """Write a calibration beside its model."""
    saved = _Record(model_fingerprint(model), calibration)
    content = as_json({"kind": "calibration", **asdict(saved)})  # the checksum is that of what is read
    write_json(folder / CALIBRATION, sign(with_format(content)))
    return folder / CALIBRATION


def load_calibration(
    folder: Path, model: EmbeddingModel
) -> Calibration | None:  # the calibration; None if there is none
    """Read the calibration of a model."""
    path = folder / CALIBRATION
    if not path.exists():
        return None
    try:
        content = read_json(path, _SUBJECT)
        if isinstance(content, dict) and "cml" in content:
            check_format(content, path, _AGAIN)
            if not is_signed(content):
                raise DataError(f"{path} is damaged: its checksum is wrong. {_AGAIN}")
        saved = record(content, _Record, str(path), _SUBJECT, _AGAIN)
    except UserError as error:
        raise error if isinstance(error, DataError) else DataError(f"{path}: {error} {_AGAIN}") from None
    if saved.model != model_fingerprint(model):
        raise DataError(f"{path} belongs to other weights than the model beside it. {_AGAIN}")
    return saved.calibration
