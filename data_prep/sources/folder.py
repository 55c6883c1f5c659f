"""A user's own folder: images, and a CSV or JSONL file with a label each: numbers, captions, a class, a mask ..."""

import functools
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from cml.console.messages import say
from cml.data.dataset_info import FILE_COLUMN, FIXED_COLUMNS
from cml.data.images import native_size
from cml.data.label_form import LabelForm
from cml.data.prepared_writer import Item
from cml.data.vocabulary import split_alias
from cml.data_prep import label_cells
from cml.data_prep.dataset_source import Content, InfoTexts
from cml.data_prep.folder_split import Labelled, read_split
from cml.data_prep.joint_checks import check_joints_inside
from cml.data_prep.kept_columns import read_kept, unify_columns
from cml.data_prep.label_files import SUFFIXES, check_band, read_label_file, refuse_other_widths
from cml.data_prep.label_frame import Reach, name_joints_in, order_box
from cml.data_prep.label_kinds import SHARES, WITH_UNIT, KindName
from cml.data_prep.label_options import READING_OPTIONS, SPLIT_OPTIONS, LabelOptions, describe_first
from cml.data_prep.layout_masks import MASK_FRAME, prepare_mask
from cml.data_prep.mask_ids import find_ids, parse_ids
from cml.data_prep.person_crop import FRAME, person_box
from cml.data_prep.person_items import CROP, person_item
from cml.data_prep.provenance import record_provenance
from cml.data_prep.readers import find_reader, read_labels
from cml.data_prep.readers.image_names import list_images
from cml.data_prep.readers.patterns import NamePattern, fill_pattern
from cml.data_prep.row_errors import refuse_bad_rows
from cml.data_prep.row_files import Misread, MissingColumn, Row, cell, say_once
from cml.data_prep.scale_depth import check_bits
from cml.data_prep.shrink import Shrink
from cml.errors import DataError, UserError
from cml.storage.safe_paths import file_inside

_MOST_LISTED = 100_000  # files among which a missing one is looked for
_CROP_SIDE = 288  # pixels; what the pose task's recipe expects
_FRAMES = {"masks": MASK_FRAME, "keypoints": FRAME, "boxes": SHARES}
_FURTHER = ("captions", "boxes")  # an image's lines give one label together


@dataclass(frozen=True)
class Folder(LabelOptions):
    """Your own images and labels: numbers, angles, directions, places, boxes, captions, classes, masks or keypoints.

    Command: cml prepare folder --images DIR --labels labels.csv --kind captions --out DIR

    Input: images in a folder, and a CSV file with a header or a JSONL file with one object per line. Each image has one
    row, or several rows if the labels are captions or boxes. --kind specifies the kind of label, which also determines
    the task of the dataset:

    numbers (task value): one column for a number, such as an age or a score, or several for a vector.

    angle (task value): degrees, in one column or several, compared by the shorter arc (circular). For radians, use
    --unit radians, or let the name of the column end in _rad. For hours, use --unit h --label-distance
    "circular(period=24)".

    rotation (task value): 4 columns are a quaternion x, y, z, w; 3 are Euler angles in degrees, identified by the names
    yaw, pitch and roll; 9 are a matrix, row by row. Rotations are compared by the angle between them (rotation).

    direction (task value): x, y and z of a vector of length 1, such as a gaze, compared by the angle (direction).

    place (task value): latitude and longitude in degrees, identified by the names of their columns, compared by the
    distance in metres (haversine). With the heading as a third column, places are compared by the overlap of two
    cameras' fields of view (place).

    boxes (task value): one row per box with its class and, identified by the names of their columns, corners x0, y0,
    x1, y1, or x, y, width and height, in pixels of the image, compared by IoU (boxes).

    MEANING=COLUMN in --label-columns assigns a meaning to a column with another name, as in latitude=y longitude=x.
    position.1 is the second number of a list in the column position.

    sequence (task value): an array (T,) or (T, F) in a separate file, .npy, .npz, .csv or .json, in the folder
    --label-files. The label column contains its path. Without a labels file, the file has the name of the image.
    Sequences may differ in length, and are compared by dynamic time warping (dtw).

    captions (task caption): texts, in one column or several, and in one or more rows per image.

    classes (task classes): the name of a class. Without a split column, whole classes are held out, and each of their
    images is a query against all the others.

    masks (task layout): an 8-bit PNG of ids, as large as the image. The label column contains the path of the mask.
    Without it, no labels file is needed: the mask has the name of the image, ending in .png, in the folder --masks.

    keypoints (task pose): one line per person in a JSONL file, with a list of joints [x, y] or [x, y, visible], in
    pixels of the image after its EXIF orientation is applied. Visible is 0, 1 or 2, or a confidence with
    --min-confidence. A joint [null, null] is hidden; so is one at exactly (0, 0) or (-1, -1) without a third
    number. Each person is cropped to a square around the visible joints.

    Licence: yours.
    """

    HELP_GROUPS: ClassVar[Mapping[str, tuple[str, ...]]] = {  # the first is what --help shows without --help-all
        "basic": (
            *("images", "labels", "kind", "file_column", "label_columns", "label_distance", "unit"),
            *SPLIT_OPTIONS,
            *("keep_columns", "image_size"),
        ),
        "reading": ("label_pattern", "file_pattern", *READING_OPTIONS, "bits"),
        "kind": ("label_files", "masks", "mask_names", "ignore_id", "joint_names", "min_confidence", "margin"),
    }

    images: Path
    """Folder of the images."""
    labels: Path | None = None
    """File with the labels: CSV with a header, or JSONL."""
    kind: KindName = "numbers"
    """Kind of label."""
    file_column: str = "file_name"
    """Column with the path of the image, relative to the folder of the images."""
    image_size: int | None = None
    """Shrink larger images so that their shorter side has this many pixels; by default files are copied unchanged. With
    --kind keypoints, the side of the square crops, by default 288."""
    label_pattern: str = ""
    """Pattern that reads labels from the names of the images, instead of a labels file, such as "{age:d}_{}_{}.jpg".
    {age:d} is a whole number for the column age, {age:f} is a number, {name} is a text, and {} is ignored."""
    file_pattern: str = ""
    """Pattern that composes the path of an image from the cells of its row, instead of a file column: with 17 in the
    column id, "{id:06}.png" is 000017.png."""
    label_files: Path | None = None
    """Folder of the files of --kind sequence, each of which contains an array."""
    masks: Path | None = None
    """Folder of the masks; by default that of the images."""
    mask_names: tuple[str, ...] = ()
    """Names of the ids in masks, such as 1=wall 2=floor. By default, all ids that occur are used without names."""
    ignore_id: int | None = None
    """Id in masks that marks pixels to ignore."""
    joint_names: tuple[str, ...] = ()
    """Names of the joints in order. Names such as l_knee and r_knee are recognised as a left-right pair. If the names
    are those of the source lspet, a skeleton is drawn."""
    min_confidence: float | None = None
    """Minimum confidence of a visible joint, if joints are [x, y, confidence]. By default, the third number is a flag:
    0 is hidden, and 1 or 2 is visible."""
    margin: float = 0.25
    """Margin around a person's visible joints on each side, as a fraction of the longer side of their bounding box."""
    bits: int | None = None
    """Number of bits that 16-bit images use, such as 10 or 12. The largest value of that many bits becomes white. By
    default it is 65535, or the maximum that the file specifies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        columns = self._label_columns
        if self.label_pattern:
            if self.labels is not None or self.kind not in (*WITH_UNIT, "classes"):
                raise UserError("A label_pattern reads numbers or classes from names, in place of a labels file.")
            NamePattern(self.label_pattern)
        elif self.labels is None and (
            self.kind not in ("masks", "sequence") or self.label_columns or self.split_column
        ):
            raise UserError(
                "'labels' is missing: name the file with the images' labels, or give a --label-pattern if their names "
                'hold them, as in "{age:d}_{}.jpg".'
            )
        if (self.kind == "sequence") != (self.label_files is not None):
            raise UserError("label_files, a folder, and --kind sequence belong together: give both or neither.")
        if self.labels is None and self.masks is None and self.label_files is None and not self.label_pattern:
            raise UserError("'masks' is missing: name the folder of the masks, or a labels file with their paths.")
        if self.kind == "boxes" and len(columns) != 5:
            lists = "; parts of a list as in class x=bbox.0 y=bbox.1 w=bbox.2 h=bbox.3"
            raise UserError(f"label_columns of boxes should name five columns: the class, x0, y0, x1 and y1{lists}.")
        if self.kind == "boxes":
            _ = self._box_form  # raises where the names of the columns say half of a form
        if self.several and self.kind in (*_FURTHER, "keypoints", "masks", "sequence"):
            raise UserError(f"An image may have several rows of kind {self.kind!r} anyhow: leave 'several' out.")
        for column in self.keep_columns:
            if column in (*FIXED_COLUMNS, CROP) or column.endswith(FILE_COLUMN):
                raise UserError(
                    f"keep_columns should not name {column!r}, a name that datasets use: rename the column."
                )
        if self.kind != "masks" and (self.masks is not None or self.mask_names or self.ignore_id is not None):
            raise UserError("masks, mask_names and ignore_id belong to --kind masks.")
        parse_ids(self.mask_names)
        check_bits(self.bits)
        if self.kind != "keypoints" and (self.joint_names or self.min_confidence is not None):
            raise UserError("joint_names and min_confidence belong to --kind keypoints.")
        if self.min_confidence is not None and not 0 < self.min_confidence <= 1:
            raise UserError(f"The min_confidence should be above 0 and at most 1. Got {self.min_confidence} instead.")
        if len(set(self.joint_names)) < len(self.joint_names):
            raise UserError(f"The joint_names should differ from each other. Got {' '.join(self.joint_names)} instead.")

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        files = [] if self.labels is None else [self.labels]
        if self.labels is not None and self.labels.is_dir():
            files = sorted(path for end in (".txt", ".npy") for path in self.labels.rglob(f"*{end}") if path.is_file())
        if self.label_files is not None:
            files += sorted(path for path in self.label_files.rglob("*") if path.suffix.lower() in SUFFIXES)
        folders = filter(None, [self.images, self.masks])
        revision = 4 if self.kind == "keypoints" else 3  # which came to record the crop
        if self._is_grouped:
            revision = 5  # which came to record the group
        # the default is not recorded, so that datasets of before stay the same
        unset = [
            name for name in ("keep_columns", "label_pattern", "file_pattern", "label_files") if not getattr(self, name)
        ]
        ignored = (*unset, *self.unset_options())
        return record_provenance(self, revision=revision, files=files, images=folders, ignored=ignored)

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        reach, left_out = Reach("joints" if self.kind == "keypoints" else self.kind), Counter[str]()
        rows = list(self._read(reach, left_out))
        reach.check(self.labels, next((row for row in rows if isinstance(row, DataError)), None))
        if self.kind == "sequence":
            rows = refuse_other_widths(rows)
        if not skip_bad:
            refuse_bad_rows(rows)
        if left_out and not rows:
            counts = " and ".join(f"{count} with {what}" for what, count in left_out.items())
            raise DataError(f"{self.labels} has no other rows than {counts}: name another --kind or --label-columns.")
        images = [row for row in rows if isinstance(row, Labelled)]
        if self.labels is not None and len(images) == len(rows) and not left_out:
            self._say_unlisted({row.name for row in images})
        if self.kind == "sequence":
            check_band(images, self.label_distance)
        if images:
            unify_columns(images)
            describe_first(
                self.labels or self.label_files or self.masks or self.images,
                images[0],
                functools.partial(self._describe_with, reach.names),
            )
        roles, details = self._deal(images, self.labels)
        details |= {"frame": reach.details()} if reach.images else {}
        details |= {"left_out": dict(left_out)} if left_out else {}
        if self.kind == "masks":
            ids = parse_ids(self.mask_names) or find_ids((image.label for image in images), self.ignore_id)
            details |= {"ids": ids, "ignore_id": self.ignore_id}
        if self.kind == "keypoints":
            joints = label_cells.name_joints(self.joint_names or reach.names, len(images[0].label) if images else 0)
            details |= {"joints": joints, "image_size": [self.image_size or _CROP_SIDE] * 2}
        texts: InfoTexts = {
            "name": self.images.resolve().name,
            **self._describe_kind(),
            "frame": _FRAMES.get(self.kind, ""),
            "source": f"a user's own images; label: {', '.join(details['label_columns']) or 'masks of the same names'}",
        }
        items = [self._item(row, roles[row.name], details) if isinstance(row, Labelled) else row for row in rows]
        return Content(items, details, texts)

    def _say_unlisted(self, names: set[str]) -> None:
        """Say how many images of the folder have no row."""
        count = len({*list_images(self.images)} - names)
        if count:
            what = "1 image has no row in {} and is" if count == 1 else f"{count:,} images have no row in {{}} and are"
            say(f"{self.images}: {what.format(self.labels)} left out.")

    @property
    def _kind(self) -> KindName:
        return self.kind

    @property
    def _label_columns(self) -> tuple[str, ...]:
        is_of_files = self.label_columns is None and self.kind == "sequence" and self.labels is None
        return () if is_of_files else super()._label_columns

    @functools.cached_property
    def _box_form(self) -> str:
        return order_box([split_alias(column)[0] for column in self._label_columns[1:]])[1]

    def _describe_with(self, joints: Sequence[str], label: Any) -> str:  # noqa: ANN401
        if self.kind == "boxes":
            return f"boxes as {self._box_form}; left, top, right, bottom as shares of the sides: {label[0]}"
        if self.kind == "keypoints":
            names = label_cells.name_joints(self.joint_names or joints, len(label))
            return f"{len(label)} joints in pixels; {names[0]}: x {label[0][0]:g}, y {label[0][1]:g}"
        if self.kind == "masks":
            return f"masks, such as {Path(label).name}"
        if self.kind == "sequence":
            numbers = len(label[0].split())
            return f"sequences, such as one of {len(label)} steps of {numbers} number{'s' if numbers > 1 else ''}"
        return self._describe(label)

    def _read(self, reach: Reach | None = None, left_out: Counter[str] | None = None) -> Iterator[Labelled | DataError]:
        """Every row checked, nothing decoded yet: most mistakes show before the first image is written."""
        form = LabelForm()
        reach, left_out = reach or Reach(self.kind), Counter[str]() if left_out is None else left_out
        printed: set[str] = set()  # how the file was understood
        self._note_reading(self.labels, printed)
        seen: dict[str, Labelled] = {}
        for where, row in self._files() if self.labels is None else self._rows(left_out):
            try:
                if isinstance(row, DataError):
                    raise row
                if self.kind == "keypoints":
                    row = name_joints_in(row, self._cells[0], reach, where)
                if self.missing_value and self._is_missing(row, where):
                    left_out["a missing label"] += 1
                    continue
                labelled = self._read_row(where, row, form, seen, printed, reach)
                if labelled is not None:
                    yield labelled
            except DataError as error:
                if isinstance(error, MissingColumn) and self.labels and self.labels.suffix.lower() != ".jsonl":
                    raise  # no row has it
                if isinstance(error, Misread):
                    raise
                yield error
        for what, count in left_out.items():
            say(f"{self.labels}: {count} rows with {what} are left out.")

    def _rows(self, left_out: Counter[str]) -> Iterator[tuple[str, Row | DataError]]:
        """The rows of the labels; those of a format that may lack this kind of label are left out and counted."""
        assert self.labels is not None
        reader = find_reader(self.labels, self.kind, self.format)
        rows = read_labels(self.labels, self.kind, format=self.format, images=self.images, quote=self.quote)
        for where, row in rows:
            may_lack = reader is not None and reader.is_sparse and self.label_columns is None
            if may_lack and not isinstance(row, DataError) and self._cells[-1] not in row:
                left_out[f"no {self.kind}"] += 1
            else:
                yield where, row

    def _files(self) -> Iterator[tuple[str, Row | DataError]]:
        """The images that have masks beside them, or labels in their names, as the rows of a file would name them."""
        pattern, masks = NamePattern(self.label_pattern) if self.label_pattern else None, self.masks
        for name in list_images(self.images):
            path = self.images / name
            try:
                if pattern is not None:
                    yield str(path), {**pattern.read(name), self.file_column: name}
                elif self.label_files is not None or (
                    masks is not None
                    and (masks.resolve() == self.images.resolve() or not path.resolve().is_relative_to(masks.resolve()))
                ):
                    yield str(path), {self.file_column: name}
            except DataError as error:
                yield str(path), error

    def _read_row(
        self, where: str, row: Row, form: LabelForm, seen: dict[str, Labelled], printed: set[str], reach: Reach
    ) -> Labelled | None:
        """What a row says of an image; None for a further row of captions, which go to the image's first."""
        name = self._file_name(row, where, printed, seen)
        first = seen.get(name)
        if first and self.kind not in (*_FURTHER, "keypoints") and not self.several:
            rule = "each image must have one line. If several people judged it, join them by --several mean or median"
            if self.kind in ("classes", "masks", "rotation", "sequence"):
                rule = "each image must have one line. To take the first of several, give --several first"
            raise Misread(
                f"{where}: {name!r} is already in {first.where}; {rule}; leaving rows out would keep the first."
            )
        group = self._read_group(row, name, len(seen), where)
        split = read_split(row, self.split_column, where, printed)
        label = self._label(row, name, where, lambda sentence: say_once(printed, f"{self.labels}: {sentence}"), reach)
        kept = read_kept(row, self.keep_columns, where)
        listed = str(row.get(self.file_column, name)).strip()
        labelled = self._split_raters(Labelled(name, name, where, split, group, label, kept, listed=listed))
        if first and labelled.split != first.split:
            raise DataError(f"{where}: {name!r} is {labelled.split!r} here, but {first.split!r} in {first.where}.")
        if first and self.kind in _FURTHER:
            first.label += labelled.label
            return None
        if first and self.several:
            first.further = [*first.further, labelled.label, *labelled.further]
            return None
        plain = labelled.label.tolist() if self.kind == "keypoints" else labelled.label
        if self.kind != "masks" and (fault := form.fault(plain)) is not None:
            raise DataError(f"{where}: the label {fault}.")
        if first:  # a further person: no other has its line
            labelled.item_id = f"{name}:{where.rpartition(':')[2]}"
        seen.setdefault(name, labelled)
        return labelled

    def _find_below(self, name: str, where: str, printed: set[str], seen: Mapping[str, Labelled]) -> str:
        """The image of a name; where it is not there, of the end of its path, which tools write with their folders."""
        for end in () if (self.images / name).is_file() else range(1, name.count("/") + 1):
            short = "/".join(name.split("/")[end:])
            if (self.images / short).is_file():
                before = name.removesuffix(short)
                say_once(printed, f"{self.labels}: paths are taken without {before}, which is not in {self.images}.")
                if short in seen and seen[short].listed != name:
                    raise Misread(f"{where}: {name} and {seen[short].listed} would both be {self.images / short}.")
                return short
        try:
            return str(file_inside(self.images, name, where).relative_to(self.images))
        except DataError as error:
            raise DataError(f"{str(error).removesuffix('.')}{self._suggest_file(name)}.") from None

    def _suggest_file(self, name: str) -> str:
        """What lies there instead: a file of the same stem, in another case, or with another number of digits."""
        wanted = Path(name)
        for path in self._known_files:
            if path.stem == wanted.stem:
                return f"; there is {path.name}: give names with the suffix that the files have"
            if path.name.lower() == wanted.name.lower():
                return f"; there is {path.name}, in another case"
            digits = wanted.stem.lstrip("0")
            if wanted.stem.isdecimal() and digits and path.stem.lstrip("0") == digits:
                return f"; there is {path.name}, with another number of digits"
        return "; for numbers in place of names give a --file-pattern" if name.isdecimal() else ""

    @functools.cached_property
    def _known_files(self) -> list[Path]:
        return sorted(itertools.islice((path for path in self.images.rglob("*") if path.is_file()), _MOST_LISTED))

    def _file_name(self, row: Row, where: str, printed: set[str], seen: Mapping[str, Labelled]) -> str:
        if self.file_pattern:
            row = {**row, self.file_column: fill_pattern(self.file_pattern, row, where)}
        value = cell(row, self.file_column, where, option="--file-column")
        if (self.images / self.file_column).is_file():
            raise MissingColumn(
                f"{self.labels}:1: names the image {self.file_column!r} where the names of the columns should be. "
                "Put a line with the names of the columns above it, such as file_name,value."
            )
        if not isinstance(value, str) or not value.strip():
            mend = "; for numbers in place of names give a --file-pattern" if isinstance(value, int | float) else ""
            raise DataError(f"{where}: {self.file_column} should be the path of an image. Got {value!r} instead{mend}.")
        name, folder = value.strip(), os.path.abspath(self.images)
        if os.path.isabs(name) and Path(os.path.abspath(name)).is_relative_to(folder):
            say_once(printed, f"{self.labels}: paths that begin with {folder} are taken relative to it.")
            name = os.path.relpath(name, folder)
        return self._find_below(name, where, printed, seen)

    def _label(self, row: Row, name: str, where: str, note: Callable[[str], object], reach: Reach) -> Any:  # noqa: ANN401
        columns = self._label_columns
        if self.kind == "boxes":
            return [label_cells.read_box(row, columns, native_size(self.images / name), where, self.written, reach)]
        if self.kind == "keypoints":
            joints = label_cells.read_joints(
                row, columns, self.joint_names, where, min_confidence=self.min_confidence, note=note
            )
            names = label_cells.name_joints(self.joint_names or reach.names, len(joints))
            size = native_size(self.images / name)
            reach.add(joints[joints[:, 2] > 0, :2], size)
            check_joints_inside(joints, names, size, where)
            return joints
        if self.label_files is not None:
            return read_label_file(row, columns, self.label_files, name, where)
        if self.kind == "masks":
            return label_cells.find_mask(row, columns, self.masks or self.images, name, where)
        return self._read_label(row, where)

    def _item(self, labelled: Labelled, role: str, details: dict[str, Any]) -> Item:
        image, label = self.images / labelled.name, labelled.label
        kept = self._keep_columns(labelled)
        if self.kind == "masks":
            label = functools.partial(
                prepare_mask, labelled.label, image, details["ids"], self.ignore_id, self.image_size
            )
        if self.kind == "keypoints":
            box, side = person_box(label, self.margin), self.image_size or _CROP_SIDE
            person = person_item(labelled.item_id, role, image, label, box, side, labelled.where, self.bits)
            return replace(person, extra={**person.extra, **kept})
        picture = Shrink(self.image_size, bits=self.bits).picture(image)
        return Item(labelled.item_id, role, picture, label, extra=kept, where=labelled.where)
