"""Figures on the pages: every table and every marked number comes from a record, and records are complete."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cml.storage.json_file import write_json

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from making import benchmark_tables, records, result_tables, results  # noqa: E402

MOST_LEGACY = 10
FIGURE = {"mean": 0.25, "low": 0.2, "high": 0.3}
COMPLETE = {
    "commands": ["cml compare value --steps 300"],
    "kind": "comparison",
    "paths": ["runs/mine"],
    "values": {
        "unit": "px",
        "trained": {"one": {"a@1": {**FIGURE, "seeds": [0.2, 0.3]}}, "two": {"a@1": {"mean": 3, "low": 3, "high": 3}}},
        "references": {"oracle": {"a@1": FIGURE}},
    },
    "settings": {"train": 640},
    "commit": "0123456789abcdef",
    "date": "2026-01-31",
    "machine": {"processor": "Processor", "cores": 2, "memory_gib": 8, "accelerator": "none"},
    "versions": {"python": "3.11.7"},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of records."""
    monkeypatch.setattr(records, "RECORDS", tmp_path)
    monkeypatch.setattr(results, "RECORDS", tmp_path)
    result_tables.load.cache_clear()
    yield tmp_path
    result_tables.load.cache_clear()  # the records of this folder are not those of the pages


@pytest.mark.parametrize("page", list(results.pages()), ids=lambda page: page.name)
def test_figures_are_those_of_the_records(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert results.fill(text, page.parent) == text, f"{page}: run 'python docs/making/results.py fill'"


@pytest.mark.parametrize("page", sorted(results.RESULTS.glob("*.md")), ids=lambda page: page.name)
def test_every_number_of_a_results_page_has_a_record(page: Path) -> None:
    assert results.unrecorded_numbers(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "page", [page for page in results.pages() if page.parent != results.RESULTS], ids=lambda page: page.name
)
def test_every_measured_number_of_any_page_has_a_record(page: Path) -> None:
    assert results.unrecorded_numbers(page.read_text(encoding="utf-8"), results.MEASURED) == []


def test_every_record_is_complete_and_shown() -> None:
    names = {path.stem for path in records.RECORDS.glob("*.json")}
    assert len([name for name in names if records.read_record(name).legacy]) <= MOST_LEGACY
    text = "".join(page.read_text(encoding="utf-8") for page in results.pages())
    shown = {match["name"] for match in results.TABLE.finditer(text)}
    assert shown - names <= set(results.TABLES)


def test_a_table_shows_rounded_figures_and_their_origin(folder: Path) -> None:
    write_json(folder / "mine.json", COMPLETE)
    assert results.fill("<!-- results: mine -->\n<!-- end of results -->") == (
        "<!-- results: mine -->\n\n| method | a@1 |\n| --- | --- |\n| one | 0.250\u00a0±\u00a00.050 |\n"
        "| two | 3.00* |\n"
        "| oracle | 0.250\u00a0±\u00a00.050 |\n\n"
        "*[Record](records/mine.json): 2026-01-31, commit 0123456, 2 cores of Processor.*\n\n<!-- end of results -->"
    )


def test_a_table_of_legacy_figures_is_marked(folder: Path) -> None:
    write_json(folder / "old.json", {"commands": ["c"], "legacy": "Too long.", "table": [["a", "b"], ["x", "1 ± 2"]]})
    text = results.fill("<!-- results: old -->\n<!-- end of results -->")
    assert "| x | 1\u00a0±\u00a02 |" in text
    assert "*Legacy figures: Too long.*" in text
    assert results.evaluate("old('x', 'b') + old('x', 'b', 'high') | .1f") == "4.0"
    with pytest.raises(KeyError, match="There are 0 rows 'y'"):
        results.evaluate("old('y', 'b') | .1f")


def test_a_number_in_a_sentence_is_computed_from_records(folder: Path) -> None:
    write_json(folder / "mine.json", COMPLETE)
    text = "7 %<!-- no figure --> and 99.9<!-- = 100 * mine('one', 'a@1', 'low') / mine('two', 'a@1')\n| .1f --> of"
    assert "and 6.7<!-- =" in results.fill(text)
    assert results.evaluate("len(mine.values['trained'])") == "2"
    with pytest.raises(ValueError, match="has no format"):
        results.evaluate("mine('one', 'a@1')")
    with pytest.raises(NameError, match="'other'"):
        results.evaluate("other('one', 'a@1') | .1f")


def test_numbers_without_a_record_are_found(folder: Path) -> None:
    write_json(folder / "mine.json", COMPLETE)
    page = (
        "On 640 images, 300 steps and 95 % intervals; 1,800 items.\n\n"
        "<!-- results: mine -->\n<!-- end of results -->\n\n"
        "<!-- settings: 1,800 -->\n\nIt is 12.5<!-- = mine('one', 'a@1') | .1f --> and `7` and [x](8.md) and lite0.\n"
    )
    assert results.unrecorded_numbers(page) == []
    (number,) = results.unrecorded_numbers(f"{page}\n13 of them.")
    assert number.endswith("13 of them.")
    assert len(results.unrecorded_numbers(f"{page}\n| a | b |\n|---|---|\n| 1.5 | 640 |\n")) == 1


@pytest.mark.parametrize(
    "text",
    ["It scores .98.", "It takes 3 s.", "about 10 minutes", "30% of them", "1.5 as much", "a | b\n-|-\n| a | 7 | c |"],
)
def test_numbers_that_look_measured_are_found(text: str) -> None:
    assert len(results.unrecorded_numbers(text, results.MEASURED)) == 1


@pytest.mark.parametrize("text", ["200 items of CVPR 2019", "`--steps 0.5`", "on 3 sets", "3 smaller", "95 % interval"])
def test_sizes_and_settings_do_not_look_measured(text: str) -> None:
    assert results.unrecorded_numbers(text, results.MEASURED) == []


@pytest.mark.parametrize("key", ["commands", "kind", "paths", "values", "commit", "date", "machine", "versions"])
def test_an_incomplete_record_is_refused(folder: Path, key: str) -> None:
    write_json(folder / "mine.json", {**COMPLETE, key: type(COMPLETE[key])()})
    with pytest.raises(ValueError, match=f"The record 'mine' has no {key}"):
        records.read_record("mine")


def test_benchmark_files_are_recorded(folder: Path, tmp_path: Path) -> None:
    content: dict[str, Any] = {"ratio": 12.345678, "seconds": [1.0, 2.0]}
    write_json(tmp_path / "layout.json", content)
    record = records.make_record("benchmark", ["layout.json"], ["python layout.py"], tmp_path)
    assert record.values == {"layout": content}
    assert record.machine["cores"] >= 1
    assert len(record.commit.rstrip("+")) == 40
    records.write_record("speed", record)
    assert records.read_record("speed") == record


@pytest.mark.parametrize(
    ("value", "digits", "text"), [(0.843, 2, "0.84"), (1103, 2, "1,100"), (0.0096, 1, "0.01"), (99.96, 2, "100")]
)
def test_numbers_are_rounded_to_significant_digits(value: float, digits: int, text: str) -> None:
    assert benchmark_tables.significant(value, digits) == text


def test_sizes_and_durations_have_readable_units() -> None:
    assert [benchmark_tables.format_seconds(value) for value in (0.04, 3, 200, 20_000, 2e5)] == [
        "0.04 s",
        "3 s",
        "3 min",
        "6 h",
        "2 days",
    ]
    assert [benchmark_tables.format_bytes(value) for value in (26e6, 1.6e9, 4e16)] == ["26 MB", "1.6 GB", "40,000 TB"]
    assert benchmark_tables.span([1.01, 1.04]) == "1.0"
    assert benchmark_tables.span([5, 3]) == "3.0 to 5.0"


def test_limits_are_extrapolated_from_the_nearest_point() -> None:
    assert benchmark_tables.extrapolate([10, 100], [1, 30], 1000, 2) == 3000
    assert benchmark_tables.extrapolate([10, 100], [1, 30], 100, 2) == 30
    assert benchmark_tables.extrapolate([10, 100], [1, 30], 5, 1) == 0.5
    assert benchmark_tables.interpolate([10, 110], [60, 160], 1010) == 1060


def test_coverages_are_those_of_the_record(folder: Path) -> None:
    part = {"normal": {"20": {"1 seed": {"cml": 0.93}}, "50": {"1 seed": {"cml": 0.96}}}, "lognormal": {}}
    values = {"interval_coverage": {"mean": part}}
    write_json(folder / "interval_coverage.json", {**COMPLETE, "kind": "benchmark", "values": values})
    assert results.evaluate("lowest_coverage('mean') | .1f") == "93.0"
    assert results.evaluate("highest_coverage('mean') | .1f") == "96.0"
    assert results.evaluate("lowest_coverage('mean', case='50 normal') | .1f") == "96.0"


def test_intervals_by_items_are_those_of_the_record(folder: Path) -> None:
    shares = {"better": 0.02, "worse": 0.03, "coverage": 0.94, "variance of differences": 1.1}
    found = {"60 normal": {"ndcg@10": shares, "hit@10": {**shares, "coverage": 0.5}}}
    parts = {"one": {"equal": found}, "two": {"equal": {"9 in 9": {"score@2": shares}}}}
    write_json(folder / "item_intervals.json", {**COMPLETE, "kind": "benchmark", "values": parts})
    assert results.evaluate("max(of_items('told apart').values()) | .1f") == "5.0"
    assert results.evaluate("min(of_items('coverage').values()) | .1f") == "94.0"  # without hits
    assert results.evaluate("min(of_items('coverage', 'hit', 'normal').values()) | .1f") == "50.0"
    assert results.evaluate("of_items('variance of differences', case=' in ')['9 in 9: score@2'] | .1f") == "1.1"
    rows = results.table("item_intervals_coverage").splitlines()
    assert rows[2:] == ["| 60 normal |  |  | 94.0 |  |  | 50.0 |", "| 9 in 9 |  | 94.0 |  |  |  |  |"]


def test_power_is_that_of_the_record(folder: Path) -> None:
    shares = {"told apart": 0.45, "known variance": 0.5}
    hits = {**shares, "told apart": 0.4}
    found = {"ndcg@10, 0.72": shares, "ndcg@10, 0.84": {**shares, "told apart": 0.5}, "hit@10, 0.72": hits}
    write_json(folder / "item_power.json", {**COMPLETE, "kind": "benchmark", "values": {"one": {"power": found}}})
    assert results.evaluate("max(power_of_items('0.72').values()) | .0f") == "90"
    assert results.evaluate("power_of_items('0.84', 'known variance')['ndcg@10'] | .0f") == "50"
    assert results.evaluate("min(power_of_hits().values()) | .0f") == "80"
