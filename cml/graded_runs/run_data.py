"""Which folder of graded search a run learned from, as the run folder notes it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from cml.doors.load import load
from cml.doors.search_model import SearchModel
from cml.errors import DataError, UserError
from cml.graded.search_folder import SearchFolder
from cml.storage.json_file import read_json, write_json
from cml.storage.regular_file import digest_file
from cml.training.callbacks import Callback
from cml.training.config import TrainConfig

NOTE = "search_data.json"


def digest_folder(folder: SearchFolder) -> str:
    """Compute the SHA-256 over the files of a folder, but for its images."""
    return hashlib.sha256(" ".join(map(digest_file, folder.files)).encode()).hexdigest()


class NoteData(Callback):
    """Notes the folder in the run folder, as soon as there is one."""

    def __init__(self, folder: SearchFolder, split: str, validation_split: str) -> None:
        self._note = {
            "data": str(folder.folder.resolve()),
            "split": split,
            "validation_split": validation_split,
            "sha256": digest_folder(folder),
        }

    def on_begin(self, config: TrainConfig, run: Path | None, /) -> None:
        """Write the note."""
        if run is not None:
            write_json(run / NOTE, self._note)


def read_note(run: Path) -> dict[str, Any]:
    """Read what a run notes of its data; nothing of a run of ``cml.fit``."""
    if not (run / NOTE).is_file():
        return {}
    note = read_json(run / NOTE, "which data the run learned from")
    if not isinstance(note, dict) or not isinstance(note.get("data"), str):
        raise DataError(f"{run / NOTE} should name the folder of the data. Give it with --data.")
    return note


def open_data(run: Path, data: Path | None) -> SearchFolder:
    """Open the folder that a run learned from, or another one."""
    note = read_note(run)
    if data is None and not note:
        raise UserError(f"{run} does not say where its queries and documents lie; give their folder with --data.")
    folder = SearchFolder(Path(note["data"]) if data is None else data)
    if data is None and digest_folder(folder) != note.get("sha256"):
        raise DataError(
            f"{folder.folder} changed since {run} was trained on it. Train again, or say --data to take it."
        )
    return folder


def open_search_model(run: Path, device: str, *, allow_download: bool = False) -> SearchModel:
    """Load the model of a run that learned from grades."""
    model = load(run, device=device, allow_download=allow_download)
    if not isinstance(model, SearchModel):
        raise UserError(f"{run} did not learn from grades.")
    return model
