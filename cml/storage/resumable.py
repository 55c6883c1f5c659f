"""Results that take hours: written in chunks, recorded chunk by chunk, continued after a kill, shown only when whole.

Parts grow in a hidden folder beside their place. A chunk is written whole and forced to the disk, then the record says
so; the next process drops what lies behind the record and goes on. At the end the parts are renamed to where they
belong and the manifest is written last: where it is, everything is. Not for: what the parts hold.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from cml.errors import DataError, UserError
from cml.storage.atomic import PARTIAL, locked, read_json, write_json

_RECORD = "record.json"
_LOCK = "lock"


@dataclass
class Building:
    """Results in the making, or found whole.

    Attributes:
        out: Folder where the results belong.
        work: Hidden folder in which they grow.
        state: What the last ``record`` said, {} at the start.
        manifest: The manifest, if everything is there already.
    """

    out: Path
    work: Path
    state: dict[str, Any] = field(default_factory=dict)
    manifest: dict[str, Any] | None = None
    _made_with: dict[str, Any] = field(default_factory=dict)
    _parts: tuple[str, ...] = ()
    _manifest_name: str = ""

    def record(self, state: Mapping[str, Any]) -> None:
        """Say what is whole, after it was forced to the disk."""
        self.state = dict(state)
        write_json(self.work / _RECORD, {"made_with": self._made_with, "state": self.state})

    def finish(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Put the parts where they belong and write the manifest; returns it. A kill in between is made good later."""
        self.record({**self.state, "finished": dict(manifest)})
        return self._publish()

    def _publish(self) -> dict[str, Any]:
        self.manifest = {**self.state["finished"], "made_with": self._made_with}
        for part in self._parts:
            if (self.work / part).exists():
                os.replace(self.work / part, self.out / part)
        write_json(self.out / self._manifest_name, self.manifest)
        shutil.rmtree(self.work)
        return self.manifest


@contextlib.contextmanager
def building(
    out: Path, made_with: Mapping[str, Any], parts: Sequence[str], manifest: str = "manifest.json"
) -> Iterator[Building]:
    """Begin or continue results, alone; whoever comes second is refused.

    Args:
        out: Folder where the results belong; made if it is missing, and it may hold other things.
        made_with: What the content depends on, fit for JSON. Results made with anything else are never continued.
        parts: Names below ``out`` that the results will have, those that may be left out too.
        manifest: Name of the file that says that everything is there.

    Yields:
        The results; with ``manifest`` if they are whole already.

    Raises:
        UserError: another process is at work there, or something else has one of the names.
    """
    wanted: dict[str, Any] = json.loads(json.dumps(dict(made_with)))
    work = out / f".{manifest.removesuffix('.json')}{PARTIAL}work"
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; give a folder.")
    if (found := _whole(out / manifest, wanted)) is not None:
        yield Building(out, work, manifest=found)
        return
    if (out / "config.json").exists():
        raise UserError(f"{out} holds a run or a model (config.json). Choose another folder.")
    work.mkdir(parents=True, exist_ok=True)
    with locked(work / _LOCK, str(out)):
        if not work.exists() and (found := _whole(out / manifest, wanted)) is not None:  # somebody just finished
            yield Building(out, work, manifest=found)
            return
        state = _continued(work, wanted)
        made = Building(out, work, state, None, wanted, tuple(parts), manifest)
        if "finished" in state:
            made._publish()
        elif taken := [part for part in parts if (out / part).exists()]:
            shutil.rmtree(work)
            raise UserError(f"{out / taken[0]} exists already and is of another origin. Choose another folder or name.")
        try:
            yield made
        except BaseException as error:
            if not (work / _RECORD).exists():  # nothing to go on from
                shutil.rmtree(work, ignore_errors=True)
                with contextlib.suppress(OSError):
                    out.rmdir()  # unless it holds something
            elif isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt("the same command goes on from its last record") from None
            if isinstance(error, OSError) and error.errno is not None and error.filename is None:
                raise OSError(error.errno, error.strerror, str(out)) from None  # a full disk should have a name
            raise


def _whole(manifest: Path, made_with: Mapping[str, Any]) -> dict[str, Any] | None:
    if not manifest.exists():
        return None
    found: dict[str, Any] = read_json(manifest, "what was made here")
    there = found.get("made_with") if isinstance(found, dict) else None
    if there != made_with:
        raise UserError(
            f"{manifest.parent} holds results that were made otherwise ({difference(there, made_with)}). "
            "Choose another folder or delete this one."
        )
    return found


def _continued(work: Path, made_with: Mapping[str, Any]) -> dict[str, Any]:
    """The recorded state, {} where nothing was recorded yet."""
    if not (work / _RECORD).exists():
        for path in work.iterdir():  # begun, but not as far as a record
            if path.name != _LOCK:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return {}
    found = read_json(work / _RECORD, "how far this got")
    try:
        there, state = found["made_with"], dict(found["state"])
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{work / _RECORD} is not a record of cml; delete {work} to start over.") from None
    if there != made_with:
        raise UserError(
            f"{work.parent} was begun otherwise ({difference(there, made_with)}). "
            f"Give the command it was begun with, choose another folder, or delete {work} to start over."
        )
    return state


def difference(there: object, wanted: Mapping[str, Any]) -> str:
    """In what results that are there differ from what is wanted: the first setting, with both values."""
    if not isinstance(there, dict) or not there:
        return "it does not say how"
    for key in {**wanted, **there}:
        if there.get(key) != wanted.get(key):
            if all(_is_digest(values.get(key)) for values in (there, wanted)):
                return f"not with the same {key}"
            then, now = (str(values.get(key, "nothing"))[:60] for values in (there, wanted))
            return f"{key} was {then}, now {now}"
    return "with other settings"


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{16,}", value) is not None


class GrowingFile:
    """A file of a building that only grows; what an earlier process wrote behind the record is dropped.

    Args:
        path: The file.
        size: Bytes of it that the record knows.

    Raises:
        DataError: the file is shorter than the record says.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.size = size
        found = path.stat().st_size if path.exists() else 0
        if found < size:
            raise DataError(f"{path} has {found} bytes, but {size} were recorded; delete {path.parent} to start over.")
        self._file = path.open("r+b" if path.exists() else "w+b")
        self._file.truncate(size)
        self._file.seek(size)

    def append(self, content: bytes) -> None:
        """Write behind what is there."""
        self._file.write(content)
        self.size += len(content)

    def sync(self) -> int:
        """Force everything to the disk; returns the size to record."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self.size

    def __enter__(self) -> GrowingFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # what could not be written is behind the record anyway; the first error is the one to see
        with contextlib.suppress(OSError) if error is not None else contextlib.nullcontext():
            self._file.close()
