"""The images, vectors or texts of an export and their ids: of a folder, a prepared dataset, or a .npy file."""

import hashlib
import itertools
import json
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Self

import numpy as np

from cml.array_types import Float32
from cml.data.dataset_info import FOLDERS, INFO, METADATA, ROLES, TEST_ID, VECTORS
from cml.data.input_form import InputForm
from cml.data.input_sources import open_vector_file
from cml.data.prepared import PreparedDataset, Split
from cml.data.texts import Texts
from cml.data.vector_files import number_fault
from cml.data.vectors import Vectors
from cml.errors import DataError, UserError
from cml.storage.json_file import read_json
from cml.storage.listed_names import read_names

COLUMNS = "columns"  # of an item: the further columns of its dataset
_CHECKED = 1 << 22  # numbers of a file that are checked at a time
# names of COCO's own files: 391895, 000000391895 and COCO_val2014_000000391895
_MOST_COLUMNS, _LONGEST_TEXT = 24, 4096  # further columns of an item, and characters of a text among them
_ID = re.compile(r"\d{1,18}", re.ASCII)
_COCO_NAME = re.compile(r"(?:COCO_[a-z]+\d{4}_)?(\d{1,18})", re.ASCII | re.IGNORECASE)


def _select_columns(further: Mapping[str, Any]) -> dict[str, Any]:
    """The first numbers and short texts among the further columns of an item."""
    kept = {
        name: value
        for name, value in further.items()
        if value is None or isinstance(value, int | float) or (isinstance(value, str) and len(value) <= _LONGEST_TEXT)
    }
    return dict(itertools.islice(kept.items(), _MOST_COLUMNS))


@dataclass(frozen=True)
class ImageList:
    """N images, vectors or texts, in a fixed order."""

    root: Path  # the folder that they lie in
    # their unique ids; in a plain folder an image's path below it, in a .npy file the number of the row
    item_ids: tuple[str, ...]
    paths: tuple[Path, ...]  # their files; of a vector or text the file that holds it
    # the role of each in a dataset, its label if that is a number or a text, and its further columns of numbers and
    # texts under the name ``COLUMNS``; empty in a plain folder
    columns: tuple[Mapping[str, Any], ...] = field(repr=False)
    # each vector or text as those of its split and its position there; empty for images
    rows: tuple[tuple[Vectors | Texts, int], ...] = field(default=(), repr=False)
    # the backbone features of the images where they come from a feature store
    features: Vectors | None = field(default=None, repr=False)
    file: Path | None = None  # the .npy file that all vectors were read from; None for a folder

    def __len__(self) -> int:
        return len(self.item_ids)

    @classmethod
    def open(
        cls,
        # the folder, or a .npy file of vectors (N, F). A folder with a dataset.json is a prepared dataset
        source: Path | str,
        splits: Sequence[str] = ROLES,
    ) -> Self:  # the images, those of a plain folder sorted by path
        """List the images of a prepared dataset or of a folder and its subfolders, or the rows of a file of vectors."""
        root = Path(source)
        if root.suffix == ".npy" and not root.is_dir():
            return cls._of_file(root)
        if not root.is_dir():
            raise UserError(
                f"{root} is not a folder; give a folder of images, a prepared dataset, or a .npy file of vectors."
            )
        images = cls._of_dataset(root, splits) if (root / INFO).is_file() else cls._of_folder(root)
        if not len(images):
            raise UserError(f"{root} holds no images.")
        return images

    @classmethod
    def _of_dataset(cls, root: Path, names: Sequence[str]) -> Self:
        dataset = PreparedDataset.open(root)
        # queries that are also the gallery are listed once
        repeated = {"gallery"} if dataset.info.queries_are_gallery and "query" in names else set()
        splits = {role: dataset.split(role) for role in names if role not in repeated}
        rows: dict[str, Sequence[int]] = {role: range(len(split)) for role, split in splits.items()}
        if dataset.info.queries_are_known and {"train", "query"} <= splits.keys():
            rows["query"] = _select_new(splits["query"], splits["train"])
        ids = tuple(split.item_ids[item] for role, split in splits.items() for item in rows[role])
        listed: list[tuple[Vectors | Texts, int]] = []
        paths: list[Path] = []
        columns: list[Mapping[str, Any]] = []
        for role, split in splits.items():
            inputs = split.inputs
            if isinstance(inputs, Vectors | Texts):
                file = VECTORS if isinstance(inputs, Vectors) else METADATA
                paths += [(root / FOLDERS[role] / file).absolute()] * len(rows[role])
                listed += [(inputs, item) for item in rows[role]]
            else:
                paths += [inputs[item].absolute() for item in rows[role]]
            further = list(dataset.read_further(role))
            for item in rows[role]:
                label, kept = split.labels[item], _select_columns(further[item])
                shown = {dataset.info.label_column: label} if isinstance(label, int | float | str) else {}
                columns.append({"role": role, **({COLUMNS: kept} if kept else {}), **shown})
        return cls(root.absolute(), ids, tuple(paths), tuple(columns), tuple(listed))

    @classmethod
    def _of_folder(cls, root: Path) -> Self:
        from PIL import Image

        suffixes = Image.registered_extensions()
        places = ((path.relative_to(root), path) for path in root.rglob("*") if path.suffix.lower() in suffixes)
        shown = ((below, path) for below, path in places if not any(part.startswith(".") for part in below.parts))
        files = {below.as_posix(): path.absolute() for below, path in shown if path.is_file()}
        names = tuple(sorted(files))
        return cls(root.absolute(), names, tuple(files[name] for name in names), ({},) * len(names))

    @classmethod
    def _of_file(cls, file: Path) -> Self:
        vectors = open_vector_file(file)
        if not len(vectors):
            raise UserError(f"{file} holds no vectors.")
        rows = range(len(vectors))
        return cls(
            file.absolute().parent,
            tuple(map(str, rows)),
            (file.absolute(),) * len(rows),
            ({},) * len(rows),
            tuple((vectors, row) for row in rows),
            file=file,
        )

    @property
    def source(self) -> Path:
        """What was opened: a .npy file, or else the folder."""
        return self.root if self.file is None else self.file

    def file_name(self, item: int) -> str:  # its path below the root, with slashes
        """Name the file of an image."""
        return self.paths[item].relative_to(self.root).as_posix()

    def select(
        self,
        items: Sequence[int],
        item_ids: Sequence[str] | None = None,  # other ids for them; None keeps their own
    ) -> Self:  # the selected images, in the order of ``items``
        """Select some of the images."""
        ids = tuple(self.item_ids[item] for item in items) if item_ids is None else tuple(item_ids)
        columns = tuple(self.columns[item] for item in items)
        return replace(
            self,
            item_ids=ids,
            paths=tuple(self.paths[item] for item in items),
            columns=columns,
            rows=tuple(self.rows[item] for item in items) if self.rows else (),
            features=None if self.features is None else self.features.subset(np.asarray(items, np.int64)),
        )

    def with_ids(self, listing: Path) -> Self:
        """Give the vectors of a .npy file the ids of a text file."""
        if self.file is None:
            raise UserError(f"Ids (--ids) are for the rows of a .npy file; the items of {self.root} have ids.")
        return replace(self, item_ids=read_names(listing, len(self), str(self.file)))

    def check_kind(self, form: InputForm) -> None:
        """Check that a model takes such items, and every number of a .npy file. Those of datasets were checked."""
        own = self.rows[0][0].form if self.rows else InputForm()
        if own.kind != form.kind or (self.rows and own.shape != form.shape):
            raise UserError(f"The model takes {form}, but {self.source} holds {own}.")
        if self.file is None:
            return
        step = max(1, _CHECKED // own.shape[0])
        for start in range(0, len(self), step):
            rows = np.asarray(self.read(start, start + step))
            fault = number_fault(rows, form, may_miss_numbers=form.missing == "mean")
            if fault is not None:
                row = self.rows[start + fault[0]][1]
                raise UserError(f"{self.file}: row {row}, {fault[1]}. Mend it, or leave the row out.")

    def read(self, start: int, stop: int) -> list[Any]:  # B vectors (F,) float32, or B texts
        """Read some of the vectors or texts."""
        parts = itertools.groupby(self.rows[start:stop], key=lambda place: id(place[0]))
        places = ([*part] for _, part in parts)
        return [row for part in places for row in part[0][0].read(np.array([item for _, item in part]))]

    def inputs(self, start: int, stop: int) -> Vectors | Texts:
        """Take some of the vectors or texts as inputs of a model."""
        rows = self.read(start, stop)
        return Texts(rows) if isinstance(rows[0], str) else Vectors(np.stack(rows))

    def read_features(self, start: int, stop: int) -> Float32:  # (B, F) float32
        """Read the features of some of the images, which a feature store holds."""
        assert self.features is not None
        return self.features.read(np.arange(start, stop))

    def add_prefix(self, prefix: str) -> Self:
        """Put a text before every id."""
        return replace(self, item_ids=tuple(prefix + item_id for item_id in self.item_ids))

    def fingerprint(self) -> str:
        """Digest of ids, names, sizes and modification times; it changes if an image is replaced."""
        digest = hashlib.sha256()
        for item, (item_id, path) in enumerate(zip(self.item_ids, self.paths, strict=True)):
            try:
                stat = path.stat()
            except OSError:
                raise DataError(f"The image {path} is missing.") from None
            entry = json.dumps([item_id, self.file_name(item), stat.st_size, stat.st_mtime_ns])
            digest.update(entry.encode() + b"\n")
        return digest.hexdigest()

    def with_coco_ids(
        self,
        # JSON file with the ids of the images, COCO's or Karpathy's, whose images alone are kept; None takes the ids
        # from the item ids
        listing: Path | None = None,
    ) -> Self:  # the images under their COCO ids
        """Give the images unique COCO ids."""
        if self.rows:
            kind = self.rows[0][0].form.kind
            raise UserError(f"{self.source} holds {kind}, not images: they have no COCO ids and no feature maps.")
        items, ids = (range(len(self)), self._ids_in_names()) if listing is None else self._ids_in_listing(listing)
        first: dict[str, int] = {}
        for item, coco_id in zip(items, ids, strict=True):
            if coco_id in first:
                other, path = self.paths[first[coco_id]], self.paths[item]
                raise DataError(f"The COCO id {coco_id} is not unique: {other} and {path}. Remove one of them.")
            first[coco_id] = item
        return self.select(items, ids)

    def _ids_in_names(self) -> list[str]:
        ids = []
        for item_id, path in zip(self.item_ids, self.paths, strict=True):
            match = _COCO_NAME.fullmatch(PurePosixPath(item_id).name.removesuffix(path.suffix))
            if match is None:
                raise DataError(
                    f"The image {path} has no COCO id: captioning code looks features up by a whole number, and "
                    f"{item_id!r} is none. Name the files by numbers, or list their ids in a JSON file (--ids)."
                )
            ids.append(str(int(match[1])))
        return ids

    def _ids_in_listing(self, listing: Path) -> tuple[list[int], list[str]]:
        listed = _listed_ids(listing)
        items = [item for item, path in enumerate(self.paths) if path.name in listed]
        if not items:
            raise DataError(
                f"None of the {len(self)} images in {self.root} is listed in {listing}: they are called like "
                f"{self.paths[0].name!r}, those of the list like {next(iter(listed), '')!r}. Names that are ids need "
                "no list."
            )
        if missing := sorted(listed.keys() - {self.paths[item].name for item in items}):
            raise DataError(
                f"{len(missing)} of the {len(listed)} images that {listing} lists are not in {self.root}, such as "
                f"{missing[0]!r}. Give the folder that holds all of them, or a shorter list."
            )
        return items, [listed[self.paths[item].name] for item in items]


def _listed_ids(listing: Path) -> dict[str, str]:
    """File name to COCO id."""
    value = read_json(listing, "the ids of the images")
    listed: dict[str, str] = {}
    try:
        for image in value["images"]:
            name = PurePosixPath(str(image["filename"] if "filename" in image else image["file_name"])).name
            coco_id = image["cocoid"] if "cocoid" in image else image["id"]
            if isinstance(coco_id, bool) or not _ID.fullmatch(str(coco_id)):
                got = reprlib.repr(coco_id)
                raise DataError(f"{listing}: the id of {name!r} should be a whole number. Got {got} instead.")
            if listed.setdefault(name, str(int(coco_id))) != str(int(coco_id)):
                raise DataError(f"{listing} gives {name!r} two ids, {listed[name]} and {coco_id}.")
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{listing} should list images with file_name and id, as COCO's files do, or with filename and cocoid "
            f"({type(error).__name__}: {error})."
        ) from None
    return listed


def _select_new(queries: Split, train: Split) -> list[int]:
    """The positions of the queries that are no training items again."""
    known = {item_id + TEST_ID for item_id in train.item_ids}
    return [item for item, item_id in enumerate(queries.item_ids) if item_id not in known]
