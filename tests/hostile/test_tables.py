"""Tables that grow wide, hold endless cells or formulas: read in time, refused in a line, and written as texts."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cml.data.pair_judgements import PairJudgements
from cml.data.triplet_judgements import TripletJudgements
from cml.data_prep.row_files import read_rows
from cml.data_prep.sources.table import Table
from cml.errors import DataError, UserError
from cml.storage.atomic import as_cell, from_cell, write_csv
from cml.storage.json_file import find_repeated, parse_json


def wide_table(path: Path, columns: int) -> Path:
    path.write_text(",".join(f"c{number}" for number in range(columns)) + ",y\n" + ("1," * columns + "1\n") * 2)
    return path


@pytest.mark.timeout(20)  # each name among all names would take minutes
def test_a_table_of_100_000_columns_is_read(tmp_path: Path) -> None:
    path = wide_table(tmp_path / "wide.csv", 100_000)
    assert [len(row) for _, row in read_rows(path)] == [100_001] * 2  # type: ignore[arg-type]
    assert len(Table(path, features=("c*",), label_columns=("y",))._columns) == 100_000
    names = {f"c{number}": 0 for number in range(100_000)}
    text = str(names).replace("'", '"').replace('"c99999"', '"c99998"')
    with pytest.raises(ValueError, match="'c99998' twice"):
        parse_json(text.encode())


@pytest.mark.timeout(20)
def test_a_table_of_10_000_label_columns_is_read(tmp_path: Path) -> None:
    path = wide_table(tmp_path / "wide.csv", 10_000)
    table = Table(path, features=("y",), label_columns=tuple(f"c{number}" for number in range(10_000)))
    assert table._columns == ("y",)


@given(st.lists(st.sampled_from("abcdef")))
def test_the_first_name_that_is_there_twice(names: list[str]) -> None:
    assert find_repeated(names) == next((name for name in names if names.count(name) > 1), None)


def test_a_cell_without_end_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,b\n"x,1\n' + "y,2\n" * 50_000)
    with pytest.raises(
        DataError, match=r"t\.csv:\d+: has a cell of more than 131,072 characters; is a quote left open"
    ):
        list(read_rows(path))


@pytest.mark.parametrize("judgements", [PairJudgements, TripletJudgements])
@pytest.mark.parametrize("rows", [[[0, 1, 2]], [[0, 1, 10**12]], [[10**12, 1, 2]]])
def test_no_number_of_items_takes_all_memory(judgements: type, rows: list[list[int]]) -> None:
    with pytest.raises(UserError, match=r"10,000,000 items at most.* Got 1,000,000,000,00[01]; name the items"):
        judgements(rows, items=None if judgements is TripletJudgements and max(rows[0]) > 9 else 10**12)


@pytest.mark.parametrize(
    "text", ["=3+1", "=cmd|' /C calc'!A0", "+1-1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", "\uff1d1"]
)
def test_a_cell_that_a_spreadsheet_would_run_is_a_text(tmp_path: Path, text: str) -> None:
    path = write_csv(tmp_path / "list.csv", ["id", "score"], [[text, "-0.25"]])
    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["id", "score"], [f"'{text}", "-0.25"]]


@given(st.text())
def test_a_cell_is_read_as_it_was(text: str) -> None:
    assert from_cell(as_cell(text)) == text
    assert as_cell(text)[:1] not in ("=", "@", "\t", "\r")
