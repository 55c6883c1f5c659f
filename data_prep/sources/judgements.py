"""Images or vectors whose labels are what people judged of them: pairs with a distance or similarity, or triplets."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cml.console.messages import say
from cml.data.dataset_info import TEST_ID
from cml.data.judgement_columns import join_records
from cml.data.pair_judgements import PairJudgements
from cml.data.prepared_writer import Item, bad_item_error
from cml.data.triplet_judgements import TripletJudgements
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.group_split import split_by_group
from cml.data_prep.provenance import record_provenance
from cml.data_prep.readers import read_labels
from cml.data_prep.row_files import Quote, Row
from cml.data_prep.scale_depth import check_bits
from cml.data_prep.shrink import Shrink
from cml.data_prep.text_lines import read_lines
from cml.data_prep.text_pairs import TextPair, find_text_pair
from cml.data_prep.vector_rows import check_row, map_vectors, store_row
from cml.errors import DataError, UserError

_FEWEST = 8  # items of a split
Judged = PairJudgements | TripletJudgements


class _Side(NamedTuple):
    """The items of training or testing, and their labels."""

    role: str
    numbers: Sequence[int]
    labels: Judged


@dataclass(frozen=True)
class Judgements(DatasetSource):
    """Your own items and what people judged of them: how far apart two are, or which of two is nearer to a third.

    Command: cml prepare judgements --images DIR --pairs pairs.csv --out DIR

    Input: images in a folder, or vectors in a .npy file; and a CSV file with a header or a JSONL file with one object
    per line, which names images by their paths relative to the folder, and vectors by the numbers of their rows, from
    0, or by the lines of the file of --names. --pairs has the columns item, other, and distance (at least 0) or
    similarity (the largest stands for distance 0); optional weight (above 0). --triplets has the columns anchor,
    nearer, farther, and optional count. Both may have a column rater. Few of all pairs or triplets need to be there,
    and the same may be there several times, also with another answer.

    With --texts, the items are the texts of --pairs, such as sentence1 and sentence2 with a score.

    Split: by default by item, which measures how well new items are placed: a test item is in no judgement that is
    trained on, and a judgement of training and test items is used by neither. With --split judgements, by question,
    which measures how well new judgements of known items are predicted: all answers to one question (a pair in either
    order, a triplet with either answer) are for training or for testing, no judgement is lost, and an item is on both
    sides; as a test item, its id ends in " (test)". Items without any judgement are left out.

    Where pairs or triplets were judged several times, dataset.json holds how well an embedding can agree with them at
    most, and where raters are named, how well each agrees with the others.

    Licence: yours.
    """

    HELP_GROUPS: ClassVar[Mapping[str, tuple[str, ...]]] = {  # the first is what --help shows without --help-all
        "basic": ("images", "vectors", "texts", "pairs", "triplets", "split", "test_fraction"),
        "reading": ("names", "image_size", "bits", "format", "quote", "split_seed"),
    }

    images: Path | None = None
    """Folder of the images."""
    vectors: Path | None = None
    """File .npy of vectors in place of images, (N, F) floats, a row for each item."""
    names: Path | None = None
    """Text file with a name for each row of the vectors, one per line."""
    pairs: Path | None = None
    """CSV, JSONL, Parquet or Excel file of judged pairs, with the columns item, other, and distance or similarity;
    optional weight and rater."""
    triplets: Path | None = None
    """File of judged triplets, in place of pairs, with the columns anchor, nearer and farther; optional count and
    rater."""
    texts: bool = False
    """The items are the texts of the pairs themselves, as vectors of the packaged sentence model: two columns such as
    sentence1 and sentence2, and one of their similarity, as STS-B has them."""
    split: Literal["items", "judgements"] = "items"
    """What is held out for testing: items with all their judgements, or judgements of items that are trained on."""
    split_seed: int = 0
    """Random seed of the split."""
    test_fraction: float = 0.3
    """Fraction of the items, or of the different pairs or triplets, held out for testing."""
    image_size: int | None = None
    """Shrink larger images so that their shorter side has this many pixels; by default files are copied unchanged."""
    bits: int | None = None
    """Number of bits that 16-bit images use, such as 10 or 12. The largest value of that many bits becomes white. By
    default it is 65535, or the maximum that the file specifies."""
    format: str = ""
    """Format of the judgements, as for cml prepare folder. By default it is recognised."""
    quote: Quote = '"'
    """Quotation mark of texts in a CSV or TSV file. With none, quotation marks are ordinary characters."""

    task = "value"
    label_column = "judgements"
    label_unit = "judgements"
    licence = "the user's own"
    minimums: ClassVar[dict[str, float]] = {"split_seed": 0}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bits(self.bits)
        if self.texts and (self.images or self.vectors or self.triplets):
            raise UserError("With 'texts' (--texts) the items are those of the pairs: leave the others out.")
        if not self.texts and (self.images is None) == (self.vectors is None):
            got = "neither; for pairs of texts give --texts" if self.images is None else "both"
            raise UserError(f"Give either 'images' (--images) or 'vectors' (--vectors). Got {got}.")
        if self.bits is not None and self.vectors is not None:
            raise UserError("The 'bits' (--bits) are those of images: leave them out where there are vectors.")
        if self.names is not None and self.vectors is None:
            raise UserError("The 'names' (--names) name rows of vectors. Images are named by their paths.")
        if (self.pairs is None) == (self.triplets is None):
            got = "neither" if self.pairs is None else "both; prepare a dataset of each"
            raise UserError(f"Give either 'pairs' (--pairs) or 'triplets' (--triplets). Got {got}.")

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        files = [self._file, *(file for file in (self.vectors, self.names) if file is not None)]
        images: Path | tuple[Path, ...] = () if self.images is None else self.images
        ignored = [
            name
            for name, default in (("texts", False), ("format", ""), ("quote", '"'))
            if getattr(self, name) == default
        ]
        return record_provenance(self, revision=2, files=files, images=images, ignored=ignored)

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        names = self._find_images() if self._rows is None else self._name_rows(self._rows)
        faults: list[DataError] = []
        judged = self._read(names, faults if skip_bad else None)
        for remark in judged.remarks:
            say(f"{self._file}: {remark}")
        used = sorted({names[item] for item in judged.questions.ravel().tolist()})
        if len(used) < 2 * _FEWEST:
            raise DataError(f"{self._file} judges {len(used)} items; at least {2 * _FEWEST} are needed.")
        kind = _name_kind(judged)
        details = {
            "gallery": "queries",
            "label_distance": judged.label_distance,
            "judgements": {"kind": kind, "ceiling": judged.ceiling, "raters": judged.raters},
            "left_out": {"no judgement": len(names) - len(used)} if len(used) < len(names) else {},
        }
        if self.split == "items":
            sides = self._hold_out_items(judged, names, used)
        else:
            sides = self._hold_out_judgements(judged, names)
            details["queries"] = "train"
        if self._rows is not None:
            details["inputs"] = {"kind": "vectors", "size": self._rows.shape[1], "columns": []}
        _say_agreement(judged)
        items = [
            self._make_item(names[number], side.role, number, side.labels[number])
            for side in sides
            for number in side.numbers
        ]
        name = self._file.stem if self.texts else self._place.resolve().name.removesuffix(".npy")
        items_are = "texts" if self.texts else "images" if self._rows is None else "vectors"
        source = f"a user's own {items_are}; label: judged {kind}"
        return Content([*items, *faults], details, {"name": name, "source": source})

    def _hold_out_items(self, judged: Judged, names: Sequence[str], used: Sequence[str]) -> list[_Side]:
        """Split the items that are judged; the judgements of items of both sides are lost."""
        kind = _name_kind(judged)
        held = split_by_group({name: name for name in used}, self.test_fraction, seed=self.split_seed, salt="test")
        asked = [tuple(names[item] for item in items) for items in judged.questions.tolist()]
        trained, tested = sum(map(held.isdisjoint, asked)), sum(map(held.issuperset, asked))
        of_both = len(asked) - trained - tested
        say(f"{self._file}: {trained} different {kind} to train on, {tested} to test on; {of_both} are of both")
        if of_both > len(asked) / 2:
            say(
                f"{self._file}: more than half of the {kind} are of training and test items, and are left out. A "
                "smaller test_fraction leaves out fewer; --split judgements leaves out none, and tests on new "
                "judgements of known items."
            )
        if not tested or not trained:
            part, change = ("test", "Raise") if trained else ("training", "Lower")
            raise DataError(
                f"{self._file}: no {kind} are of {part} items alone. {change} test_fraction, judge more, or hold out "
                "judgements in place of items (--split judgements)."
            )
        numbers = {name: number for number, name in enumerate(names)}
        return [
            _Side("train", [numbers[name] for name in used if name not in held], judged),
            _Side("query", [numbers[name] for name in used if name in held], judged),
        ]

    def _hold_out_judgements(self, judged: Judged, names: Sequence[str]) -> list[_Side]:
        """Split the questions; an item is on each side that has a judgement of it."""
        try:
            train, test = judged.hold_out(self.test_fraction, seed=self.split_seed)
        except UserError as error:
            raise DataError(f"{self._file}: {error}") from None
        sides = [
            _Side(role, sorted(set(part.questions.ravel().tolist()), key=names.__getitem__), part)
            for role, part in (("train", train), ("query", test))
        ]
        trained = set(sides[0].numbers)
        unknown = [number for number in sides[1].numbers if number not in trained]
        say(
            f"{self._file}: {len(train.questions)} different {_name_kind(judged)} to train on, {len(test.questions)} "
            "to test on, of the same items; the test measures new judgements of known items, not new items"
        )
        if unknown:
            say(f"{self._file}: {len(unknown)} items are in test judgements alone, such as {names[unknown[0]]}")
        taken = {name + TEST_ID for name in names}.intersection(names)
        if taken:
            name = min(taken)
            raise DataError(f"{self._file}: the name {name!r} would also be that of a test item. Rename the item.")
        return sides

    @property
    def _place(self) -> Path:
        place = self.images or self.vectors
        assert place is not None  # one of them is given
        return place

    @functools.cached_property
    def _rows(self) -> NDArray[Any] | None:
        """The vectors; None if items are images."""
        if self.texts:
            from cml.word_vectors.sentence_model import PACKAGED, sentence_vectors

            return np.asarray(sentence_vectors(PACKAGED, list(self._sentences)))
        return None if self.vectors is None else map_vectors(self.vectors)

    @functools.cached_property
    def _pair(self) -> TextPair:
        """The columns of pairs of texts."""
        first = next((row for _, row in self._read_rows() if not isinstance(row, DataError)), {})
        pair = find_text_pair(list(first), self._file)
        say(f"{self._file}: reads {pair.item} and {pair.other} as texts, and {pair.value} as their {pair.meaning}.")
        return pair

    @functools.cached_property
    def _sentences(self) -> dict[str, str]:
        """The texts of the pairs, each once, and their ids."""
        texts: dict[str, str] = {}
        for where, row in self._read_rows():
            for column in () if isinstance(row, DataError) else self._pair[:2]:
                text = row.get(column) if not isinstance(row, DataError) else None
                if isinstance(text, str) and text.strip():  # others are bad rows
                    texts.setdefault(self._pair.read({column: text}, column, where), f"{len(texts):06d}")
        if not texts:
            raise DataError(f"{self._file} holds no texts in {self._pair.item} and {self._pair.other}.")
        return texts

    def _read_rows(self) -> Iterator[tuple[str, Row | DataError]]:
        """The rows of the file; whole numbers are texts, as items are named by texts."""
        rows = read_labels(self._file, "judgements", format=self.format, items="judgements", quote=self.quote)
        for where, row in rows:
            if not isinstance(row, DataError):
                row = {name: str(value) if type(value) is int else value for name, value in row.items()}
            yield where, row

    def _find_images(self) -> list[str]:
        """The paths of the images."""
        suffixes = Image.registered_extensions()
        files = sorted(path for path in self._place.rglob("*") if path.suffix.lower() in suffixes)
        return [path.relative_to(self._place).as_posix() for path in files]

    def _name_rows(self, rows: NDArray[Any]) -> list[str]:
        """The names of the vectors."""
        if self.texts:
            return list(self._sentences.values())
        if self.names is None:
            return list(map(str, range(len(rows))))
        lines = read_lines(self.names)
        if len(lines) != len(rows):
            raise DataError(f"{self.names} has {len(lines)} names, but {self.vectors} has {len(rows)} rows.")
        first: dict[str, str] = {}
        for where, line in lines:
            if (name := line.strip()) in first:
                raise DataError(f"{where}: the name {name!r} is also that of {first[name]}; names must differ.")
            first[name] = where
        return list(first)

    def _make_item(self, name: str, role: str, number: int, label: Sequence[str]) -> Item | DataError:
        """An item to write, or what is wrong with its vector."""
        item_id = name + TEST_ID if role == "query" and self.split == "judgements" else name
        if self._rows is None:
            picture = Shrink(self.image_size, bits=self.bits).picture(self._place / name)
            return Item(item_id, role, picture, label, where=str(self._file))
        try:
            vector = check_row(store_row(self._rows[number]), f"{self.vectors}, row {number}")
        except DataError as error:
            return error
        extra = {"text": list(self._sentences)[number]} if self.texts else {}
        return Item(item_id, role, None, label, extra=extra, where=str(self._file), vector=vector)

    @property
    def _file(self) -> Path:
        file = self.pairs or self.triplets
        assert file is not None  # one of them is given
        return file

    def _read(self, names: Sequence[str], faults: list[DataError] | None) -> Judged:
        """Read the file; bad rows are collected in ``faults``, or the first one is raised."""
        rows, places = [], []
        for where, row in self._read_rows():
            if self.texts and not isinstance(row, DataError):
                try:
                    row = self._pair.rename(row, self._sentences, where)
                except DataError as error:
                    row = error
            if not isinstance(row, DataError):
                rows.append(row)
                places.append(where)
            elif faults is None:
                raise bad_item_error(str(row))
            else:
                faults.append(row)
        columns = join_records(rows)
        kind = PairJudgements if self.pairs is not None else TripletJudgements
        try:
            return kind(columns, names, places=places, faults=faults)
        except DataError as error:
            raise bad_item_error(str(error)) from None
        except UserError as error:
            raise DataError(f"{self._file}: {error}") from None


def _name_kind(judged: Judged) -> str:
    return "triplets" if isinstance(judged, TripletJudgements) else "pairs"


def _say_agreement(judged: Judged) -> None:
    """Print the ceiling, and how well raters agree."""
    measure = "agreement" if isinstance(judged, TripletJudgements) else "rank correlation"
    if judged.ceiling is not None:
        say(f"By the repeated judgements, the {measure} of an embedding can be {judged.ceiling:.2f} at most.")
    if judged.raters:
        each = ", ".join(f"{rater} {value:.2f}" for rater, value in sorted(judged.raters.items()))
        say(f"{measure.capitalize()} of each rater with the others: {each}")
