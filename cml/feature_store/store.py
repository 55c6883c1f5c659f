"""A finished feature store: opened, checked, and asked for the features of items."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from cml.array_types import Int64
from cml.data.vectors import Vectors
from cml.errors import DataError, UserError
from cml.feature_store.manifest import ITEMS, MANIFEST, Manifest, ShardedRows, StoredItem, digest_network, name_network
from cml.feature_store.stored_items import FileItems, StoredItems, ValueItems, decode_item
from cml.models.backbone import CUSTOM
from cml.storage.json_file import check_format, read_json
from cml.storage.regular_file import digest_file, map_array, open_regular
from cml.storage.safe_paths import check_inside
from cml.storage.saved_options import record

_LONGEST_LINE = 1 << 20  # bytes of an item
_NAMED = 3  # missing items that a message names
_BLOCK = 4096  # rows that are looked at together
_LARGEST = 1e15  # of a number, whose square float32 holds many times


class FeatureStore:
    """Features (N, F) on disk, float32 or float16, memory-mapped. Made by ``open``.

    It is an array of rows: ``len``, ``shape``, slices and ``np.asarray`` read it. The checksum of a shard is compared
    when rows of it are asked for the first time.
    """

    def __init__(self, folder: Path, manifest: Manifest, rows: ShardedRows) -> None:
        self.folder, self.manifest, self.rows = folder, manifest, rows
        self._checked: set[int] = set()

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open a store that ``cml features`` wrote."""
        folder = Path(folder)
        if not (folder / MANIFEST).is_file():
            raise DataError(f"{folder} is no finished feature store: it has no {MANIFEST}. Run 'cml features' (again).")
        path, subject = folder / MANIFEST, "what 'cml features' wrote"
        content = read_json(path, subject)
        if isinstance(content, dict) and "cml" in content:
            check_format(content, path, _again(folder))
        manifest = record(content, Manifest, str(path), subject, "Compute the features again.")
        if len(manifest["made_by"]["image_size"]) not in (0, 2) or not manifest["items"] or not manifest["features"]:
            raise DataError(f"{path} has an image_size, items or features of no store. {_again(folder)}")
        width, dtype = manifest["features"], np.dtype(manifest["dtype"])
        shards = []
        for shard in manifest["shards"]:
            path = folder / Path(shard["file"]).name
            try:
                rows = map_array(check_inside(path, folder))
            except (OSError, ValueError) as error:
                raise DataError(f"{path} cannot be read ({error}). {_again(folder)}") from None
            if rows.shape[1:] != (width,) or len(rows) != shard["rows"] or rows.dtype != dtype:
                got = f"{rows.dtype} {rows.shape}"
                raise DataError(f"{path} should hold {dtype} {(shard['rows'], width)}. Got {got}. {_again(folder)}")
            shards.append(rows)
        if not shards or sum(map(len, shards)) != manifest["items"]:
            raise DataError(f"The shards of {folder} do not hold {manifest['items']} rows. {_again(folder)}")
        return cls(folder, manifest, ShardedRows(shards))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, F)."""
        return self.rows.shape

    def __getitem__(self, items: Any) -> Any:  # noqa: ANN401 - as of an array
        """Read rows: one, those of a slice, or those of an array of positions or of truth values."""
        positions = np.arange(len(self))[items]
        rows = np.atleast_1d(positions)
        self._check_shards(np.unique(self.rows.shard_of(rows)).tolist())
        return self.rows[rows] if positions.ndim else self.rows[rows][0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:  # noqa: ANN401 - NumPy's
        """Read all rows."""
        self._check_shards(range(len(self.rows.shards)))
        return self.rows.__array__(dtype, copy)

    def __repr__(self) -> str:
        shape = f"{len(self)} x {self.manifest['features']} {self.manifest['dtype']}"
        return f"FeatureStore({str(self.folder)!r}, {name_network(self.manifest['made_by'])}, {shape})"

    @functools.cached_property
    def items(self) -> list[StoredItem]:
        """The items in the order of the rows."""
        items = list(self._read_items())
        if len(items) != len(self):
            path = self.folder / ITEMS
            raise DataError(f"{path} lists {len(items)} items, but there are {len(self)} rows. {_again(self.folder)}")
        return items

    @property
    def item_ids(self) -> list[str]:
        """The ids of the items."""
        return [item.item_id for item in self.items]

    @property
    def is_of_backbone(self) -> bool:
        """Whether the features are those of images by a backbone with a name, which a model can have below its head.

        Others, such as those of a sentence model, are inputs of a model themselves.
        """
        made_by = self.manifest["made_by"]
        return made_by["kind"] == "images" and bool(made_by["image_size"]) and made_by["backbone"] != CUSTOM

    def select(
        self,
        positions: Int64 | None = None,  # the positions of the rows, (B,); None for all
    ) -> Vectors:
        """Select features as inputs of a model; they stay in the files."""
        chosen = np.arange(len(self)) if positions is None else positions
        self._check_shards(np.unique(self.rows.shard_of(chosen)).tolist())
        rows: Any = self.rows
        return Vectors(rows, items=chosen)

    def find(
        self,
        inputs: Any,  # noqa: ANN401 - N files, texts, arrays or other items that the store may hold
    ) -> Int64:  # (N,) the positions of their rows
        """Find items by their content."""
        is_files = all(isinstance(item, Path) for item in inputs)
        items: StoredItems = FileItems(inputs) if is_files else ValueItems(inputs)
        positions = np.empty(len(items), np.int64)
        missing: dict[str, str] = {}
        for number in range(len(items)):
            position, fault = self._find_file(inputs[number]) if is_files else self._find_value(items, number)
            positions[number] = position
            if fault:
                missing[str(inputs[number]) if is_files else f"item {number}"] = fault
        if missing:
            named = "; ".join(f"{name} ({fault})" for name, fault in list(missing.items())[:_NAMED])
            more = "; ..." if len(missing) > _NAMED else ""
            raise DataError(
                f"The feature store {self.folder} lacks {len(missing)} of {len(items)} items: {named}{more}. Compute "
                "features of these items, or leave the store out."
            )
        return positions

    def is_made_by(self, made_by: Mapping[str, Any]) -> bool:
        """Tell whether a network made the features."""
        return digest_network(self.manifest["made_by"]) == digest_network(made_by)

    def check_made_by(self, made_by: Mapping[str, Any], subject: str = "") -> None:
        """Check that a network made the features."""
        if self.is_made_by(made_by):
            return
        there, wanted = name_network(self.manifest["made_by"]), name_network(made_by)
        if there == wanted:
            there, wanted = "other weights, code or preprocessing of the same name", wanted
        raise UserError(
            f"The feature store {self.folder} was made by {there}, but {subject or 'these features'} need {wanted}. "
            "Compute them into another folder, or leave the store out."
        )

    def check_items(self, items: StoredItems) -> None:
        """Check that the store holds just these items in this order."""
        mend = "Choose another folder, or delete this one."
        if len(items) != len(self):
            raise UserError(f"{self.folder} holds features of {len(self)} items, not of {len(items)}. {mend}")
        for position, stored in enumerate(self._read_items()):  # one at a time: there may be millions
            if items.has_changed(position, stored):
                name = stored.file_name or stored.item_id
                raise UserError(f"{self.folder} holds features of other items: item {position}, {name!r}. {mend}")

    def _check_shards(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if number in self._checked:
                continue
            shard = self.manifest["shards"][number]
            path = self.folder / Path(shard["file"]).name
            if digest_file(path) != shard["sha256"]:
                raise DataError(f"{path} is damaged: its checksum is wrong. {_again(self.folder)}")
            self._check_numbers(number, path)
            self._checked.add(number)

    def _check_numbers(self, number: int, path: Path) -> None:
        """Features that no distance can be computed from would be noticed in training, as if its options were wrong."""
        shard = self.rows.shards[number]
        for start in range(0, len(shard), _BLOCK):
            rows = np.abs(np.asarray(shard[start : start + _BLOCK], np.float32))
            if rows.max(initial=0) < _LARGEST:  # not so for NaN
                continue
            row, column = (int(place[0]) for place in np.nonzero(~(rows < _LARGEST)))
            raise DataError(
                f"{path} has {shard[start + row, column]} at row {start + row}, column {column}. Features must be "
                f"finite and below {_LARGEST:g}; mend the input or the network that made it, and compute them again."
            )

    def _read_items(self) -> Iterator[StoredItem]:
        path = check_inside(self.folder / ITEMS, self.folder)
        try:
            if digest_file(path) != self.manifest["items_sha256"]:
                raise DataError(f"{path} is damaged: its checksum is wrong. {_again(self.folder)}")
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror or error}). {_again(self.folder)}") from None
        with open_regular(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
                try:
                    yield decode_item(line)
                except (ValueError, RecursionError):
                    raise DataError(f"{path}:{number} is not an item: {line[:80]!r}.") from None

    @functools.cached_property
    def _by_file(self) -> dict[str, int]:
        root = self.manifest["root"]
        return {str(Path(root, item.file_name)): position for position, item in enumerate(self.items) if item.file_name}

    @functools.cached_property
    def _by_content(self) -> dict[str, int]:
        positions: dict[str, int] = {}
        for position, item in enumerate(self.items):
            positions.setdefault(item.sha256, position)
        return positions

    def _find_file(self, path: Path) -> tuple[int, str]:
        """The position of a file's row, or what lacks; the file is read only if it moved or changed."""
        try:
            status = path.stat()
        except OSError:
            return -1, "the file is missing"
        position = self._by_file.get(str(path.absolute()), -1)
        if position >= 0:
            stored = self.items[position]
            if (status.st_size, status.st_mtime_ns) == (stored.size, stored.mtime_ns):
                return position, ""
        items = FileItems([path])
        found = self._by_content.get(items.item(0).sha256, -1)
        if found >= 0:
            return found, ""
        return -1, "another image than the stored one" if position >= 0 else "not among the stored items"

    def _find_value(self, items: StoredItems, number: int) -> tuple[int, str]:
        position = self._by_content.get(items.item(number).sha256, -1)
        return position, "" if position >= 0 else "not among the stored items"


def _again(folder: Path) -> str:
    return f"Delete {folder} and compute the features again."
