"""Results that take hours: made in pieces in a work folder, moved to their place at the end, a manifest last."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cml.console.messages import say
from cml.errors import UserError
from cml.storage.atomic import PARTIAL, delete
from cml.storage.checksums import sign
from cml.storage.json_file import check_format, read_json, with_format, write_json
from cml.storage.saved_options import as_json, difference
from cml.storage.work_folder import WorkFolder, work_folder

_FINISHED = "finished"


class DifferentSettingsError(UserError):
    """Existing results, complete or not, were made with other settings than the wanted ones."""


class ResumableOutput:
    """Results that are being made, or that were complete already. Made by ``resumable_output``."""

    def __init__(
        self,
        out: Path,
        name: str,
        parts: Sequence[str],
        manifest: dict[str, Any] | None,  # the manifest of complete results; None while they are being made
    ) -> None:
        self.out, self.work = out, work_path(out, name)
        self.manifest = manifest
        self.records: list[dict[str, Any]] = []  # the records so far, oldest first
        self._name, self._parts = name, parts
        self._folder: WorkFolder  # set if the results are not complete

    def record(self, entry: Mapping[str, Any]) -> None:
        """Record a piece that is complete and on the disk; several threads may call it."""
        self._folder.record(entry)
        self.records.append(dict(entry))

    def start_over(self) -> None:
        """Delete everything so far, when a part of it is lost or damaged."""
        self._folder.start_over()
        self.records.clear()

    def finish(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Move the parts to their place, then write the manifest; the next process completes a killed call."""
        self.record({_FINISHED: dict(manifest)})
        return self._publish()

    def _begin(self, folder: WorkFolder, parse: Callable[[dict[str, Any]], object]) -> None:
        def check(entry: dict[str, Any]) -> dict[str, Any]:
            if _FINISHED in dict(entry):
                dict(entry[_FINISHED])  # fails if it is no object
            else:
                parse(entry)
            return entry

        self._folder = folder
        if folder.difference is None:
            folder.start_over()
        elif folder.difference:
            raise DifferentSettingsError(
                f"{self.out} was begun with different settings ({folder.difference}). Give the same command, choose "
                f"another folder, or delete {self.work} to start over."
            )
        self.records = folder.records(check)
        if self.records and _FINISHED in self.records[-1]:
            self._publish()
        elif taken := [path for path in (self.out / part for part in self._parts) if os.path.lexists(path)]:
            folder.discard()
            raise UserError(f"{taken[0]} already exists, but this command did not make it. Choose another folder.")

    def _publish(self) -> dict[str, Any]:
        manifest, provenance = self.records[-1][_FINISHED], self._folder.provenance
        has_provenance = provenance.items() <= manifest.items()
        self.manifest = sign(with_format(manifest if has_provenance else {**manifest, "made_with": provenance}))
        for part in self._parts:
            if (self.work / part).exists():
                os.replace(self.work / part, self.out / part)
        write_json(self.out / self._name, self.manifest)
        self._folder.discard()
        return self.manifest


def work_path(out: Path, manifest: str = "manifest.json") -> Path:
    """Name the hidden folder in which results grow."""
    return out / f".{manifest.removesuffix('.json')}{PARTIAL}work"


@contextlib.contextmanager
def resumable_output(
    out: Path,
    provenance: Mapping[str, Any],
    parts: Sequence[str],
    manifest: str = "manifest.json",
    *,
    about: Mapping[str, Any] | None = None,
    is_intact: Callable[[], bool] = lambda: True,
    parse: Callable[[dict[str, Any]], object] = dict,
    wait: bool = False,
) -> Iterator[ResumableOutput]:
    """Begin or continue results whose manifest is written last: if it exists, they are complete."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; give a folder.")
    output = ResumableOutput(out, manifest, parts, read_complete(out / manifest, provenance, about))
    if output.manifest is None and (out / "config.json").exists():
        raise UserError(f"{out} holds a run or a model (config.json). Choose another folder.")
    if output.manifest is not None and is_intact():
        delete(output.work)  # left by a process that was killed just after its last step
        yield output
        return
    with work_folder(output.work, provenance, str(out), about=about, wait=wait) as folder:
        output.manifest = read_complete(out / manifest, provenance, about)
        if output.manifest is not None and is_intact():  # another process has just finished it
            folder.discard()
            yield output
            return
        if output.manifest is not None:
            say(f"{out} is damaged; starting over.")
            for name in (manifest, *parts):
                delete(out / name)
            output.manifest = None
        output._begin(folder, parse)
        try:
            yield output
        except BaseException as error:
            if not output.records:  # nothing to continue
                folder.discard()
            elif isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt("the same command continues from its last record") from None
            raise


def read_complete(
    manifest: Path, provenance: Mapping[str, Any], about: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:  # the manifest; None if there is none
    """Read the manifest of complete results."""
    if not manifest.exists():
        return None
    wanted, value = as_json(provenance), read_json(manifest, "what was made here")
    content: dict[str, Any] = value if isinstance(value, dict) else {}
    check_format(content, manifest, f"Choose another folder or delete {manifest.parent}, and run the command again.")
    there = content.get("made_with") or {key: content[key] for key in wanted if key in content}
    if there != wanted:
        raise DifferentSettingsError(
            f"{manifest.parent} holds results of different settings ({difference(there, wanted, content, about)}). "
            "Choose another folder or delete this one."
        )
    return content
