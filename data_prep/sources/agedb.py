"""AgeDB: photographs of faces with the person's age, as the benchmark of imbalanced regression splits them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cml.data_prep.listed_source import Listed, ListedSource
from cml.data_prep.published_table import read_published_rows, read_within
from cml.data_prep.row_errors import read_each
from cml.data_prep.row_files import Row
from cml.errors import DataError

_ROLES = {"train": "train", "val": "", "test": "query"}


_OLDEST = 120  # years


@dataclass(frozen=True)
class Agedb(ListedSource):
    """AgeDB: faces with ages, in the AgeDB-DIR split (imbalanced training ages, balanced test ages).

    Command: cml prepare agedb --source agedb --out DIR

    Input: a folder with agedb.csv (columns age, path, split; from github.com/YyzHarry/imbalanced-regression, folder
    agedb-dir/data) and the photographs in AgeDB/, from ibug.doc.ic.ac.uk/resources/agedb, whose makers give the
    archive's password on request. 12,208 photographs train; 2,140 test ones are queries that are searched among each
    other; those of "val" are left out.

    Licence: non-commercial research only, by agreement with AgeDB's makers.
    """

    published = "AgeDB, Moschoglou and others, CVPRW 2017; split AgeDB-DIR, Yang and others, ICML 2021"
    licence = "non-commercial research only, by agreement with its makers"
    label_unit = "years"
    lists = ("agedb.csv",)
    images = "AgeDB"

    def _read_lists(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        return read_each(read_published_rows(lists[0], ("age", "path", "split")), self._line)

    def _line(self, where: str, row: Row) -> Listed:
        if row["split"] not in _ROLES:
            raise DataError(f"{where}: split should be one of {', '.join(_ROLES)}. Got {row['split']!r}.")
        return Listed(where, row["path"], read_within(row["age"], "age", where, 0, _OLDEST), _ROLES[row["split"]])
