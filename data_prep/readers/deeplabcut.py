"""DeepLabCut's CSV of labelled joints, with three header rows, or four for several animals."""

import csv
import io
import itertools
from collections.abc import Iterator
from pathlib import Path

from cml.data_prep.readers.reader import Reader
from cml.data_prep.row_files import Quote, Row
from cml.errors import DataError
from cml.storage.regular_file import open_regular

_LABELS = ("scorer", "individuals", "bodyparts", "coords")
_PLACES = ("x", "y", "likelihood")


class DeepLabCut(Reader):
    """DeepLabCut's CollectedData_NAME.csv, or the CSV of an analysed video with likelihoods."""

    title = "DeepLabCut's joints"
    is_sparse = True

    def recognizes(self, path: Path, head: str, kind: str) -> bool:
        """See ``Reader.recognizes``."""
        lines = head.splitlines()[:4]
        return path.suffix.lower() == ".csv" and [line.split(",")[0] for line in lines[:1]] == ["scorer"] and any(
            line.startswith("coords,") for line in lines
        )  # fmt: skip

    def read(self, path: Path, images: Path | None, quote: Quote) -> Iterator[tuple[str, Row | DataError]]:
        """See ``Reader.read``."""
        with io.TextIOWrapper(open_regular(path), "utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            try:
                header: dict[str, list[str]] = {}
                for row in itertools.islice(reader, len(_LABELS)):
                    header[row[0] if row else ""] = row
                    if "coords" in header:
                        break
                if not {"bodyparts", "coords"} <= header.keys():
                    raise DataError(f"{path} should have the header rows scorer, bodyparts and coords.")
                first = next(place for place, name in enumerate(header["coords"]) if name in _PLACES)
                for cells in reader:
                    where = f"{path}:{reader.line_num}"
                    if len(cells) != len(header["coords"]):
                        fault = f"should have {len(header['coords'])} cells, as the header has. It has {len(cells)}"
                        yield where, DataError(f"{where}: {fault}.")
                        continue
                    name = "/".join(filter(None, cells[:first]))
                    for animal, joints in _read_animals(header, cells, first).items():
                        row_of_one = {"file_name": name, "individual": animal}
                        is_seen = any(place[0] is not None for place in joints.values())
                        yield where, {**row_of_one, "keypoints": joints} if is_seen else row_of_one
            except (csv.Error, UnicodeError, StopIteration) as error:
                raise DataError(f"{path} is not a CSV file of DeepLabCut: {error}.") from None


def _read_animals(header: dict[str, list[str]], cells: list[str], first: int) -> dict[str, dict[str, list[str | None]]]:
    """The joints of each animal by their names: x, y and, where there is one, the likelihood."""
    individuals = header.get("individuals", [""] * len(cells))
    animals: dict[str, dict[str, list[str | None]]] = {}
    for column in range(first, len(cells)):
        animal, joint, part = individuals[column], header["bodyparts"][column], header["coords"][column]
        text = cells[column].strip()
        place = animals.setdefault(animal, {}).setdefault(joint, [None, None])
        value = None if text.lower() in ("", "nan") else text
        if part == "likelihood":
            place.append(value)
        elif part in _PLACES:
            place[_PLACES.index(part)] = value
    return animals
