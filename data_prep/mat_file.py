"""Variables of MATLAB files (.mat, versions 5 to 7, not 7.3): looked through before scipy unpacks them.

scipy believes what a file claims: a few hundred bytes can ask for all memory, or nest until the process dies. So the
variables asked for are unpacked up to a limit, and every array in them must have as many bytes as it says, before
scipy sees them. ``tests/hostile/test_hostile_files.py`` has such files.

scipy in a child process with limits of memory and time is no substitute. 50 masks
like LSUN's take 27 ms here, 0.5 s in one child for all and 17 s in a child each. For a file in MPII's form with 2,000
images a child takes 0.9 s, this reader 1.9 s, but the child has read structs that only pickle would hand over. Neither
Windows nor macOS enforces a limit on a process's memory.
"""

import io
import itertools
import math
import struct
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cml.errors import DataError
from cml.storage.regular_file import open_regular

MOST_BYTES = 64 << 20  # of a file; MPII's, the largest, has 13 MB
MOST_UNPACKED = 512 << 20  # bytes of the variables asked for
_DEEPEST = 64  # structs in structs; MPII's has 6
_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15  # types of elements
_CELL, _STRUCT, _CHAR, _NUMBERS = 1, 2, 4, range(6, 16)  # classes of arrays


class _Fault(ValueError):
    """What is wrong with a file, to be read after its name."""


class _Array(NamedTuple):
    kind: int
    is_complex: bool
    values: int
    name: bytes
    content: int  # where the content begins


def read_variable(
    path: Path,
    name: str,
    **options: bool | int,  # options of ``read_variables``
) -> Any:  # noqa: ANN401 - whatever the file holds
    """Read one variable of a .mat file."""
    variables = read_variables(path, (name,), **options)
    if name not in variables:
        others = f", but has {', '.join(variables['__others__'])}" if variables["__others__"] else ""
        raise DataError(f"{path} should hold a variable {name!r}{others}.")
    return variables[name]


def read_variables(
    path: Path,
    names: Collection[str],
    *,
    most_bytes: int = MOST_BYTES,  # most bytes that the file may have
    **options: bool | int,  # options of ``scipy.io.loadmat``
) -> dict[str, Any]:
    """Read some variables of a .mat file.

    Returns names to contents of the variables that the file has; under ``__others__``, the names of its other
    variables.
    """
    from scipy.io import loadmat

    try:
        with open_regular(path) as file:
            raw = file.read(most_bytes + 1)
        if len(raw) > most_bytes:
            raise DataError(f"{path} has over {most_bytes:,} bytes, more than such a file has.")
        kept, others = _select_variables(raw, {name.encode() for name in names})
        variables: dict[str, Any] = loadmat(io.BytesIO(kept), **options)
    except OSError as error:
        raise DataError(f"{path} cannot be read as a .mat file: {error.strerror}.") from None
    except DataError:
        raise
    except Exception as error:  # on broken bytes scipy raises whatever they lead it to
        raise DataError(f"{path} cannot be read as a .mat file: {error}. Fetch it again.") from None
    return {name: variables[name] for name in names if name in variables} | {"__others__": others}


def _select_variables(raw: bytes, names: Collection[bytes]) -> tuple[bytes, list[str]]:
    """The file unpacked, with the variables of these names alone, and the names of the others."""
    order = {b"IM": "<", b"MI": ">"}.get(raw[_HEADER - 2 : _HEADER])
    if order is None or raw[_HEADER - 4 : _HEADER - 2] != struct.pack(f"{order}H", 0x0100):
        raise _Fault("it does not begin as a file of version 5 to 7 does")
    parts, others, room = [raw[:_HEADER]], [], MOST_UNPACKED
    seen: set[bytes] = set()
    for kind, start, end in _elements(raw, _HEADER, len(raw), order):
        element = raw[start - 8 : end]
        if kind == _COMPRESSED:
            unpacker = zlib.decompressobj()
            element = unpacker.decompress(raw[start:end], room + 1)
            kind = struct.unpack_from(f"{order}I", element)[0] if len(element) >= 8 else 0
        room -= len(element)
        if room < 0:
            raise _Fault(f"unpacked it has over {MOST_UNPACKED:,} bytes, more than such a file has")
        if kind != _MATRIX or struct.unpack_from(f"{order}I", element, 4)[0] > len(element) - 8:
            raise _Fault("a variable is not whole")
        name = _array(element, 8, len(element), order).name
        if name not in names:
            others.append(name.decode("latin1"))
        elif name in seen:
            raise _Fault(f"it holds the variable {name.decode('latin1')!r} twice")
        else:
            _check(element, order)
            parts.append(element)
            seen.add(name)
    return b"".join(part + bytes(-len(part) % 8) for part in parts), others


def _elements(raw: bytes, start: int, end: int, order: str) -> Iterator[tuple[int, int, int]]:
    """Type, begin and end of the content of the elements that follow each other."""
    tag, short = struct.Struct(f"{order}II"), struct.Struct(f"{order}HH")
    while start < end:
        if start + 8 > end:
            raise _Fault("it ends within a tag")
        kind, size = tag.unpack_from(raw, start)
        if kind > 0xFFFF:  # up to four bytes stand in the tag itself
            kind, size = short.unpack_from(raw, start)[:: 1 if order == "<" else -1]
            begin, stop, following = start + 4, start + 4 + size, start + 8
            if size > 4:
                raise _Fault("a short element claims more than four bytes")
        else:
            begin, stop = start + 8, start + 8 + size
            following = stop if kind == _COMPRESSED else stop + -size % 8
        if stop > end:
            raise _Fault(f"an element claims {size:,} bytes, but {end - begin:,} are left")
        yield kind, begin, stop
        start = following


def _array(raw: bytes, start: int, end: int, order: str) -> _Array:
    """Read flags, shape and name of an array."""
    elements = _elements(raw, start, end, order)
    head = list(itertools.islice(elements, 3))
    if len(head) < 3 or head[0][1:] != (start + 8, start + 16):
        raise _Fault("an array has no flags, shape and name")
    (_, flags, _), (_, first, last), (_, begin, stop) = head
    shape = struct.unpack(f"{order}{(last - first) // 4}i", raw[first : first + (last - first) // 4 * 4])
    if min(shape, default=-1) < 0:
        raise _Fault(f"an array has the shape {shape}")
    about: int = struct.unpack_from(f"{order}I", raw, flags)[0]
    return _Array(about & 0xFF, bool(about & 0x800), math.prod(shape), raw[begin:stop], stop + -(stop - start) % 8)


def _check(element: bytes, order: str) -> None:
    """Check that an array and all in it have the bytes they claim: scipy reads on where their content ends."""
    arrays = [(8, len(element), 0)]
    while arrays:
        start, end, depth = arrays.pop()
        if start == end:  # an empty array, for which nothing is written
            continue
        array = _array(element, start, end, order)
        inner = list(_elements(element, array.content, end, order))
        if array.kind in (_CELL, _STRUCT):
            claimed = array.values
            if array.kind == _STRUCT:
                (_, at, _), (_, first, last) = inner[:2]
                claimed *= (last - first) // max(1, struct.unpack_from(f"{order}i", element, at)[0])
                inner = inner[2:]
            if len(inner) != claimed or array.values > len(inner) + 1:
                raise _Fault(f"a cell or struct array claims {max(claimed, array.values):,} values, has {len(inner):,}")
            if depth == _DEEPEST:
                raise _Fault(f"it is nested deeper than {_DEEPEST} arrays")
            if any(kind != _MATRIX for kind, _, _ in inner):
                raise _Fault("a cell or struct array holds something else than arrays")
            arrays += [(begin, stop, depth + 1) for _, begin, stop in inner]
        elif array.kind == _CHAR or array.kind in _NUMBERS:
            held = min((stop - begin for _, begin, stop in inner), default=0)
            if array.values > held or len(inner) != 1 + array.is_complex:
                raise _Fault(f"an array claims {array.values:,} values, but has {held:,} bytes")
        else:
            raise _Fault(f"it holds an array of class {array.kind}; read are numbers, texts, cells and structs")
