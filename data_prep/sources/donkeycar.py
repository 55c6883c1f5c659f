"""Donkeycar tubs: camera frames of a model car and the driver's steering angle, split by blocks of time."""

import contextlib
import functools
import itertools
import math
import os
import re
import reprlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np

from cml.array_types import Bools
from cml.data.prepared_writer import Item
from cml.data_prep.archive import members
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.provenance import record_provenance
from cml.data_prep.row_errors import read_each
from cml.errors import DataError, UserError
from cml.storage.json_file import parse_json
from cml.storage.safe_paths import file_inside

# The split of a video into blocks of time, with gaps between them.

ROLE_LETTERS = {"T": "train", "Q": "query", "G": "gallery"}


def deal_roles(
    frames: int,
    *,
    deal: str,  # letters of the blocks in order, T (train), Q (query) or G (gallery); repeated if there are more blocks
    blocks: int,
    gap: int,
) -> list[str | None]:  # the role of each frame; None for a frame that is left out
    """Give each frame of a video a role, block by block."""
    letters = np.array([deal[frame * blocks // frames % len(deal)] for frame in range(frames)])
    query, gallery = letters == "Q", letters == "G"
    gallery &= ~_within(query, gap)
    train = (letters == "T") & ~_within(query | gallery, gap)
    roles = np.select([train, query, gallery], list(ROLE_LETTERS.values()), default="")
    return [str(role) or None for role in roles]


def _within(chosen: Bools, gap: int) -> Bools:
    """Frames that have a chosen one at most ``gap`` frames before or behind: (N,) to (N,)."""
    counts = np.concatenate([[0], np.cumsum(chosen)])
    at = np.arange(len(chosen))
    inside: Bools = counts[np.minimum(at + gap + 1, len(chosen))] > counts[np.maximum(at - gap, 0)]
    return inside


_MEMBER = re.compile(r"(?P<root>(?:.*/)?)(?P<name>catalog_\d+\.catalog|manifest\.json|images/(?!\._)[^/]+\.jpg)")


@dataclass(frozen=True)
class Donkeycar(DatasetSource):
    """Camera frames of a model car with steering angles, from one Donkeycar tub.

    Command: cml prepare donkeycar --source tub.tar.gz --out DIR

    Input: an archive (.tar.gz, .tar, ...) or an unpacked folder with catalog_N.catalog and images/*.jpg. Frames that
    the tub marks as deleted are left out.

    Licence: the tub's own. The tub of the donkeycar project's tests is under the MIT licence.
    """

    source: Path
    """The tub: an archive or a folder."""
    blocks: int = 10
    """Number of equally long blocks of time into which the frames are split."""
    deal: str = "GGTTTTTTTQ"
    """Role of each block: training (T), query (Q) or gallery (G). The pattern is repeated if there are more blocks."""
    gap: int = 30
    """Frames within this many frames of one with a stricter role are left out, because they are near duplicates."""

    task = "value"
    label_unit = "steering angle"
    frame = "-1 is full left, 0 straight on, 1 full right"
    published = "a Donkeycar tub: frames of a model car's camera, recorded while a person drove"
    minimums: ClassVar[Mapping[str, float]] = {"blocks": 3, "gap": 0}
    licence = "the tub's own; MIT for the tub of the donkeycar project's tests"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.deal or set(self.deal) - set(ROLE_LETTERS):
            raise UserError(f"The deal should be letters T, Q and G, e.g. GGTTTTTTTQ. Got {self.deal!r} instead.")

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        if not self.source.is_dir():
            return record_provenance(self, revision=1, files=[self.source])
        texts = [*sorted(self.source.glob("*.catalog")), *self.source.glob("manifest.json")]
        return record_provenance(self, revision=1, files=texts, images=self.source)

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        with contextlib.ExitStack() as after:
            tub = after.enter_context(_open_tub(self.source))
            frames, bad = _frames(self.source, tub)
            roles = deal_roles(len(frames), deal=self.deal, blocks=self.blocks, gap=self.gap)
            pairs = ((frame, role) for frame, role in zip(frames, roles, strict=True) if role is not None)
            items = (frame.item(role, tub) for frame, role in pairs)
            details = {"left_out": {"near another role in time": roles.count(None)}}
            total = len(bad) + len(frames) - roles.count(None)
            return Content(itertools.chain(bad, items), details, total=total, cleanup=after.pop_all())


class _Tub(NamedTuple):
    texts: dict[str, bytes]  # catalogs and the manifest
    images: dict[str, Callable[[], bytes]]  # "images/7_cam_image_array_.jpg" to what reads it


class _Frame(NamedTuple):
    number: int  # in the order of time
    image: str
    angle: float
    where: str

    def item(self, role: str, tub: _Tub) -> Item:
        image, extra = tub.images[self.image](), {"frame": self.number}
        return Item(f"{self.number:06d}", role, image, self.angle, extra=extra, where=f"{self.where}, {self.image}")


@contextlib.contextmanager
def _open_tub(source: Path) -> Iterator[_Tub]:
    """Read what belongs to a tub and nothing else; nothing is unpacked under a name of an archive's choosing."""
    if source.is_dir():
        names = [path.relative_to(source).as_posix() for path in (*source.glob("*/*.jpg"), *source.glob("*"))]
        paths = {name: file_inside(source, name, str(source), "file") for name in names if _MEMBER.fullmatch(name)}
        texts = {name: path.read_bytes() for name, path in paths.items() if "/" not in name}
        yield _Tub(texts, {name: path.read_bytes for name, path in paths.items() if "/" in name})
        return
    # members stand in any order and a compressed archive can only be read from its start: frames wait in one file
    with tempfile.SpooledTemporaryFile(max_size=1 << 28) as spool:
        yield _read_archive(source, spool)


def _read_archive(source: Path, spool: IO[bytes]) -> _Tub:
    tub, roots = _Tub({}, {}), set()
    for match, content in members(source, _MEMBER):
        name = match["name"]
        roots.add(match["root"])
        if "/" not in name:
            tub.texts[name] = content
            continue
        try:
            start = spool.seek(0, os.SEEK_END)
            spool.write(content)
        except OSError as error:
            fault = f"There is no room to unpack {source} in {tempfile.gettempdir()} ({error.strerror})"
            raise UserError(f"{fault}. Free some space or set TMPDIR to another folder.") from error
        tub.images[name] = functools.partial(_part, spool, start, len(content))
    if len(roots) > 1:
        raise DataError(f"{source} holds several tubs ({', '.join(sorted(roots))}); give one at a time.")
    return tub


def _part(file: IO[bytes], start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(size)


def _frames(source: Path, tub: _Tub) -> tuple[list[_Frame], list[DataError]]:
    """All frames that were not deleted, in the order of time, and what is wrong with the others."""
    catalogs = sorted((name for name in tub.texts if name.startswith("catalog_")), key=lambda name: (len(name), name))
    if not catalogs:
        raise DataError(f"{source} holds no catalog_N.catalog: it should be a Donkeycar tub.")
    deleted = _read_deleted(source, tub)
    frames: dict[int, _Frame] = {}

    def read(where: str, line: bytes) -> None:
        entry = _json(line, where)
        number, image, angle = entry.get("_index"), entry.get("cam/image_array"), entry.get("user/angle")
        if type(number) is not int or number < 0:
            raise DataError(f"{where}: _index should be a whole number from 0. Got {number!r} instead.")
        if not isinstance(image, str):
            raise DataError(f"{where}: cam/image_array should be the name of an image. Got {image!r} instead.")
        if isinstance(angle, bool) or not isinstance(angle, int | float) or not math.isfinite(angle):
            raise DataError(f"{where}: user/angle should be a finite number. Got {angle!r} instead.")
        if number in frames:
            raise DataError(f"{where}: _index {number} is already in {frames[number].where}.")
        if number not in deleted:
            if f"images/{image}" not in tub.images:
                raise DataError(f"{where}: the image images/{image} is missing in {source}.")
            frames[number] = _Frame(number, f"images/{image}", float(angle), where)

    numbered = ((name, place) for name in catalogs for place in enumerate(tub.texts[name].splitlines(), start=1))
    lines = ((f"{source}:{name}:{number}", line) for name, (number, line) in numbered)
    bad = [error for error in read_each(lines, read) if error is not None]
    return [frames[number] for number in sorted(frames)], bad


def _read_deleted(source: Path, tub: _Tub) -> set[int]:
    """Frames that the driver struck out: the last line of the manifest names them."""
    lines = tub.texts.get("manifest.json", b"").splitlines()
    last = _json(lines[-1], f"{source}:manifest.json:{len(lines)}") if lines else {}
    indexes = last.get("deleted_indexes")
    return {index for index in indexes if isinstance(index, int)} if isinstance(indexes, list) else set()


def _json(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = parse_json(line, finite=False)
    except ValueError as error:
        raise DataError(f"{where}: {error}.") from None
    if not isinstance(value, dict):
        raise DataError(f"{where}: should be a JSON object {{...}}. Got {reprlib.repr(value)} instead.")
    return value
