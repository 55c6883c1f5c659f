"""Tar archives from strangers: read from start to end in memory, with limits, never unpacked under names of theirs."""

import bz2
import gzip
import io
import lzma
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from cml.errors import DataError
from cml.storage.regular_file import open_regular

MOST_MEMBERS = 2_000_000
LARGEST = 64 << 20  # bytes of one member
MOST_BYTES = 64 << 30  # unpacked, whatever they belong to: members that nobody asked for, headers, holes
RATIO, FREE = 100, 256 << 20  # bytes unpacked for one packed, beyond what is free; annotations pack to a tenth at best
_CHUNK = 1 << 20
_PACKERS = ((gzip.open, b"\x1f\x8b"), (bz2.open, b"BZh"), (lzma.open, (b"\xfd7zXZ\x00", b"\x5d\x00")))


class _Fault(ValueError):
    """What is wrong with an archive, to be read after its name, without a full stop."""


def members(path: Path, wanted: re.Pattern[str]) -> Iterator[tuple[re.Match[str], bytes]]:
    """The regular files of a tar archive (plain, gzip, bzip2 or xz) whose whole name ``wanted`` matches, in order."""
    try:
        with open_regular(path) as packed:
            limit = min(MOST_BYTES, FREE + RATIO * packed.seek(0, io.SEEK_END))
            packed.seek(0)
            unpacked = _LimitedReader(_unpack(packed), limit)
            with tarfile.open(fileobj=cast("IO[bytes]", unpacked), mode="r:") as archive:
                for number, member in enumerate(archive, start=1):
                    if number > MOST_MEMBERS:
                        raise _Fault(f"has over {MOST_MEMBERS:,} members; that is the limit")
                    archive.members = []  # type: ignore[attr-defined]  # it would keep all it has seen
                    if (match := wanted.fullmatch(member.name)) is None or not member.isreg():
                        continue
                    if member.size > LARGEST:
                        raise _Fault(f"{member.name} has {member.size:,} bytes; the limit is {LARGEST:,}")
                    content = archive.extractfile(member)
                    assert content is not None  # it is a regular file
                    yield match, content.read()
    except (DataError, GeneratorExit):
        raise
    except _Fault as fault:
        raise DataError(f"{path}: {fault}.") from None
    except Exception as error:  # on broken bytes tarfile and the unpackers raise whatever that leads them to
        reason = str(error) or type(error).__name__
        raise DataError(f"{path} is not a complete tar archive: {reason}. Fetch it again.") from None


def _unpack(packed: io.BufferedReader) -> IO[bytes]:
    start = packed.peek(6)
    return cast("IO[bytes]", next((unpack(packed) for unpack, marks in _PACKERS if start.startswith(marks)), packed))


class _LimitedReader:
    """A file that is read forwards only, a part at a time, and not forever."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file, self._limit, self._at = file, limit, 0

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= LARGEST:  # a header of a header may ask for any size
            raise _Fault(f"asks for {size:,} bytes at once; the limit is {LARGEST:,}")
        content = self._file.read(size)
        self._at += len(content)
        if self._at > self._limit:
            raise _Fault(f"unpacks to over {self._limit:,} bytes; that is the limit for an archive of its size")
        return content

    def tell(self) -> int:
        return self._at

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or place < self._at:
            raise _Fault("points back to what was read before")
        while self._at < place and self.read(min(_CHUNK, place - self._at)):
            pass
        return self._at
