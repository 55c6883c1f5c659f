"""ELPV: electroluminescence photographs of solar cells with the probability that a cell is defective."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cml.data_prep.hash_split import split_by_hash
from cml.data_prep.listed_source import Listed, ListedSource
from cml.data_prep.published_table import read_within
from cml.data_prep.row_errors import read_each
from cml.data_prep.text_lines import read_words
from cml.errors import DataError, require_extra

_CELLS = ("mono", "poly")


@dataclass(frozen=True)
class Elpv(ListedSource):
    """2,624 photographs of solar cells, each with the probability that the cell is defective.

    Command: cml prepare elpv --out DIR

    Input: none with the extra 'elpv' (pip install elpv-dataset); otherwise --source names the folder with labels.csv
    and images/, as github.com/zae-bayern/elpv-dataset has it. Labels are 0, 1/3, 2/3 and 1; whether a cell is mono-
    or polycrystalline is the column "cell".

    Split: at random, by a hash of each name: which cells were cut out of the same module is not published. Every test
    image is a query that is searched among all other test images.

    Licence: CC BY-NC-SA 4.0.
    """

    source: Path | None = None  # type: ignore[assignment]
    """Folder with labels.csv; by default that of the installed package."""
    test_fraction: float = 0.3
    """Fraction of photographs held out for testing."""

    published = "ELPV, Deitsch and others, Solar Energy 185, 2019; Buerhop-Lutz and others, EU PVSEC 2018"
    licence = "CC BY-NC-SA 4.0"
    label_unit = "defect probability"
    images = "images"

    def _files(self) -> tuple[list[Path], Path]:
        folder = self.source
        if folder is None:
            with require_extra("elpv", "The package of photographs elpv-dataset"):
                import elpv_dataset
            folder = Path(elpv_dataset.__file__).parent / "data"
        return [folder / "labels.csv"], folder

    def _read_lists(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        return read_each(read_words(lists[0]), self._read_cell)

    def _read_cell(self, where: str, words: list[str]) -> Listed:
        if len(words) != 3 or words[2] not in _CELLS:
            got = " ".join(words)
            raise DataError(f"{where}: should be a path, a probability and {' or '.join(_CELLS)}. Got {got!r}.")
        value = read_within(words[1], "the probability", where, 0, 1)
        return Listed(where, words[0], value, split_by_hash(words[0], self.test_fraction, 1.0), {"cell": words[2]})
