"""What the datasets of class labels share: their label column, the protocol that dataset.json states, their pictures.

A published protocol is three things: which classes train, whether every test image is searched among all the others or
queries have a gallery of their own, and the K of Recall@K. Not for: the files of any one dataset.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cml.data.prepared import DatasetInfo, PreparedDataset
from cml.data.prepared_writer import Item, write_dataset
from cml.data_prep.shrink import Shrink
from cml.errors import DataError, UserError
from cml.storage.safe_paths import file_inside


@dataclass(frozen=True)
class Protocol:
    """How a dataset of classes is evaluated.

    Attributes:
        recall_ks: The published K of Recall@K.
        own_gallery: True if queries have a gallery of their own; False if every test image is a query that is searched
            among all other test images.
    """

    recall_ks: Sequence[int]
    own_gallery: bool = False

    def details(self) -> dict[str, Any]:
        """What dataset.json says of it."""
        itself = {} if self.own_gallery else {"gallery": "queries"}
        return {"recall_ks": list(self.recall_ks), **itself}


def check_image_size(image_size: int | None) -> None:
    """Raise ``UserError`` if images would be shrunk to less than 16 pixels."""
    if image_size is not None and image_size < 16:
        raise UserError(f"The image_size should be at least 16 pixels. Got {image_size} instead.")


def write_classes(
    out: Path,
    items: Sequence[Item | DataError],
    protocol: Protocol,
    *,
    name: str,
    source: str,
    licence: str,
    made_with: Mapping[str, Any],
    skip_bad: bool,
    within: Iterable[Path] = (),
) -> PreparedDataset:
    """Write a dataset of classes; see ``write_dataset``."""
    info = DatasetInfo(
        name=name,
        task="classes",
        label_column="class",
        label_unit="",
        frame="",
        source=source,
        licence=licence,
        details=protocol.details(),
        made_with=made_with,
    )
    return write_dataset(out, info, items, skip_bad=skip_bad, within=within)


def image_item(
    folder: Path, name: str, label: str, role: str, where: str, *, image_size: int | None, seen: dict[str, str]
) -> Item:
    """An item whose image lies at ``folder / name``.

    Args:
        folder: The folder that names are relative to.
        name: The image's path; the item's id too.
        label: Its class.
        role: Its role.
        where: "FILE:LINE" that names it.
        image_size: Pixels of the shorter side to shrink to, or None to keep the file.
        seen: Names so far and where they stood.

    Raises:
        DataError: the name leads out of the folder, stands twice, or there is no such file.
    """
    path = file_inside(folder, name, where)
    if (first := seen.setdefault(name, where)) is not where:
        raise DataError(f"{where}: {name!r} stands already in {first}; an image has one line.")
    picture = Shrink(image_size, sys.maxsize).picture(path)
    return Item(item_id=name, role=role, image=picture, label=label, where=where)


def text_lines(path: Path) -> list[tuple[str, list[str]]]:
    """The lines of a UTF-8 text file that are not empty, each with "FILE:LINE", cut at white space.

    Raises:
        DataError: the file is missing, empty or not UTF-8.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} should be UTF-8 text, but is not: {error.reason} at byte {error.start + 1}.") from None
    found = [(f"{path}:{number}", line.split()) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise DataError(f"{path} is empty.")
    return found


def check_roles(items: Iterable[Item | DataError], roles: Sequence[str], what: str) -> None:
    """Raise ``DataError`` unless there is an item of every role; ``what`` names the files that list them."""
    present = {item.role for item in items if isinstance(item, Item)}
    missing = [role for role in roles if role not in present]
    if missing:
        raise DataError(f"{what} list no {missing[0]} images.")
