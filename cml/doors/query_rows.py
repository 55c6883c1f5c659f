"""What is known of the queries of a search that are the rows of a .npy file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cml.data.dataset_info import FOLDERS, INFO, METADATA, VECTORS, parse_object
from cml.data.image_list import COLUMNS, ImageList
from cml.searching.hit import Hit
from cml.storage.regular_file import open_regular


def describe_query_rows(
    file: Path, count: int
) -> Sequence[Hit]:  # Q items: of the vectors of a prepared dataset their ids, labels and further columns
    """Describe the rows of a file of query vectors."""
    folder = file.absolute().parent
    rows = [Hit(f"row {row}", None, 0.0) for row in range(count)]
    is_of_dataset = file.name == VECTORS and folder.name in FOLDERS.values() and (folder.parent / INFO).is_file()
    if not is_of_dataset:
        return rows
    listed = ImageList.open(folder.parent)
    known = dict(zip(listed.item_ids, listed.columns, strict=True))
    with open_regular(folder / METADATA) as lines:
        ids = [str(parse_object(line)["item_id"]) for line in lines]
    return [_describe_item(item_id, row, known[item_id]) for row, item_id in enumerate(ids)]


def _describe_item(item_id: str, row: int, columns: Mapping[str, Any]) -> Hit:
    label = next((value for name, value in columns.items() if name not in ("role", COLUMNS)), None)
    return Hit(f"{item_id} (row {row})", None, 0.0, label, columns.get(COLUMNS, {}))
