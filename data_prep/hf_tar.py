"""The samples of a tar archive in the form of WebDataset: members that share a name but for what follows its dot.

Names are compared in one Unicode normal form (NFC), for the members may have been written on different systems.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from PIL import Image

from cml.data_prep.archive import members
from cml.errors import DataError
from cml.storage.json_file import parse_json

_MEMBER = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]*)")
Parsers = Mapping[str, Callable[[bytes], Any]]
"""From what follows the dot of a member's name to a function of its content; a ValueError says what is wrong."""
_NO_PARSERS: Parsers = MappingProxyType({})
_TEXTS, _WHOLE = ("txt", "text", "transcript"), ("cls", "cls2", "index", "inx", "id")


def read_samples(
    path: Path,
    further: Parsers = _NO_PARSERS,  # of members of further kinds
    *,
    key_column: str = "",  # the column of the name that the members of a sample share; "" for none
) -> Iterator[dict[str, Any]]:
    """Read the samples of an archive.

    Returns column to value: what follows the dot of a member's name, and an image (as its bytes), a text, a whole
    number or what a JSON member holds. Members of other kinds are passed over.
    """
    key = ""
    sample: dict[str, Any] = {}
    for match, content in members(path, _MEMBER):
        name = unicodedata.normalize("NFC", match[1])
        if name != key:
            if sample:
                yield sample
            key, sample = name, {key_column: name} if key_column else {}
        value = _value(match[2].lower(), content, f"{path}: {match[0]}", further)
        if value is not None:
            sample[match[2].lower()] = value
    if sample:
        yield sample


def _value(column: str, content: bytes, where: str, further: Parsers) -> Any:  # noqa: ANN401 - a number, text or JSON
    kind = column.rpartition(".")[2]
    if f".{kind}" in Image.registered_extensions():
        return {"bytes": content, "path": None}
    try:
        if kind in _TEXTS:
            return content.decode()
        if kind in _WHOLE:
            return int(content)
        if kind in ("json", "jsn"):
            return parse_json(content)
        if kind in further:
            return further[kind](content)
    except ValueError as error:
        raise DataError(f"{where} cannot be read: {error}.") from None
    return None
