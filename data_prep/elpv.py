"""ELPV: photographs of solar cells by their electroluminescence, with the probability that a cell is defective.

Not for: telling kinds of defects apart, which it does not label.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cml.data_prep.class_labels import split_lines
from cml.data_prep.listed import Listed, ListedSource, read_each, within
from cml.data_prep.source import role_by_hash
from cml.errors import DataError, extra_needed

_KINDS = ("mono", "poly")


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
    """The folder with labels.csv; that of the installed package when not given."""
    test_share: float = 0.3
    """Share of the photographs that are not for training."""

    name = "elpv"
    published = "ELPV, Deitsch and others, Solar Energy 185, 2019; Buerhop-Lutz and others, EU PVSEC 2018"
    licence = "CC BY-NC-SA 4.0"
    label_unit = "defect probability"
    images = "images"

    def _files(self) -> tuple[list[Path], Path]:
        folder = self.source
        if folder is None:
            with extra_needed("elpv", "The package of photographs elpv-dataset"):
                import elpv_dataset
            folder = Path(elpv_dataset.__file__).parent / "data"
        return [folder / "labels.csv"], folder

    def _listed(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        return read_each(split_lines(lists[0]), self._line)

    def _line(self, where: str, words: list[str]) -> Listed:
        if len(words) != 3 or words[2] not in _KINDS:
            raise DataError(
                f"{where}: should be a path, a probability and {' or '.join(_KINDS)}. Got {' '.join(words)!r}."
            )
        value = within(words[1], "the probability", where, 0, 1)
        return Listed(where, words[0], value, role_by_hash(words[0], self.test_share, 1.0), {"cell": words[2]})
