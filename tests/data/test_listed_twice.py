"""Ids and images that come twice: found by hashes at the end, told as a loop that remembers all lines would."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cml.data.dataset_info import ROLES
from cml.data.metadata import read_metadata

# id, image, label of each line; few of each, so that many come twice; no file is called 4.jpg, and "x" is no number
LINE = st.tuples(st.integers(0, 6), st.integers(0, 4), st.sampled_from(["1", "1.5", "1", "2", '"x"', "-3"]))
LINES = st.tuples(st.lists(LINE, max_size=5), st.lists(LINE, max_size=5))
HASHES: dict[str, Callable[[str], int]] = {
    "all equal": lambda _: -1,
    "some equal": lambda text: sum(map(ord, text)) % 3,
}
DIFFERENT = [[(0, 0, "1"), (1, 1, "1"), (2, 2, "1")], [(3, 0, "1"), (4, 1, "1"), (5, 2, "1")]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files 0.jpg .. 3.jpg of either part, and no lines."""
    folder = tmp_path_factory.mktemp("twice")
    for name in ("train", "test"):
        (folder / name / "images").mkdir(parents=True)
        for number in range(4):
            (folder / name / f"images/{number}.jpg").touch()
    return folder


def put(folder: Path, lines: tuple[list[tuple[int, int, str]], ...] | list[list[tuple[int, int, str]]]) -> None:
    for name, role, rows in zip(("train", "test"), ("train", "gallery"), lines, strict=True):
        text = "".join(
            f'{{"file_name": "images/{image}.jpg", "item_id": "id{number}", "role": "{role}", "value": {label}}}\n'
            for number, image, label in rows
        )
        (folder / name / "metadata.jsonl").write_text(text)
    counts = {"train": len(lines[0]), "query": 0, "gallery": len(lines[1])}
    texts = dict.fromkeys(("label_unit", "frame", "source", "licence"), "")
    info = {"format": 1, "name": "twice", "task": "value", "label_column": "value", "counts": counts, **texts}
    (folder / "dataset.json").write_text(json.dumps(info))


def slow_faults(folder: Path, lines: tuple[list[tuple[int, int, str]], ...]) -> Iterator[str]:
    """What is wrong with ``lines``, by a loop that remembers all of them."""
    seen: dict[str, str] = {}
    form = None
    for name, rows in zip(("train", "test"), lines, strict=True):
        for place, (number, image, label) in enumerate(rows, start=1):
            where = f"{folder / name / 'metadata.jsonl'}:{place}"

            def once(what: str, where: str = where) -> Iterator[str]:
                if seen.setdefault(what, where) != where:
                    yield f"{where}: {what} is listed already in {seen[what]}; an item has one line, one role."

            yield from once(f"item_id 'id{number}'")
            words = "a text" if label == '"x"' else "one number"
            form = form or words
            if words != form:
                yield f"{where}: value is {words}, but the first item's is {form}."
            path = f"{folder / name}/images/{image}.jpg"
            if image == 4:
                yield f"{where}: file_name 'images/4.jpg' names a missing file: there is no {path}."
            else:
                yield from once(f"image {path!r}")


def faults(folder: Path) -> list[str]:
    """What reading tells of single lines."""
    told: list[str] = []
    read_metadata(folder, told.append)
    return [fault for fault in told if "metadata.jsonl:" in fault]


@pytest.mark.parametrize("size", [1, 200, 1 << 20])  # bytes read at a time: a line, some lines, all
@pytest.mark.parametrize("hashed", [None, *HASHES])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES)
def test_faults_are_those_of_a_loop(
    folder: Path, size: int, hashed: str | None, lines: tuple[list[tuple[int, int, str]], ...]
) -> None:
    put(folder, lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cml.data.metadata._BLOCK", size)
        if hashed is not None:
            patch.setattr("cml.data.columns.hash", HASHES[hashed], raising=False)
        assert faults(folder) == list(slow_faults(folder, lines))


@pytest.mark.parametrize("hashed", HASHES)
def test_equal_hashes_of_different_names_are_no_fault(
    folder: Path, hashed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, DIFFERENT)
    expected = read_metadata(folder, lambda _: None)
    monkeypatch.setattr("cml.data.columns.hash", HASHES[hashed], raising=False)
    with monkeypatch.context() as patch:
        patch.setattr("cml.data.metadata._LineReader", None)
        with pytest.raises(TypeError, match="not callable"):  # it does read line by line
            read_metadata(folder, lambda _: None)
    info, found = read_metadata(folder, lambda _: None)
    assert faults(folder) == []
    assert (info, found.fingerprint) == (expected[0], expected[1].fingerprint)
    for mine, its in zip(found.items, expected[1].items, strict=True):
        assert mine.ids.tolist() == its.ids.tolist()
        assert mine.names.tolist() == its.names.tolist()


def test_names_are_not_compared_where_all_hashes_differ(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, DIFFERENT)  # images of train/ and test/ have the same names
    monkeypatch.setattr("cml.data.metadata._LineReader", None)
    _, metadata = read_metadata(folder, lambda _: None)
    assert [items.roles.tolist() for items in metadata.items] == [[0] * 3, [ROLES.index("gallery")] * 3]


def test_the_last_line_of_all_repeats_the_first(folder: Path) -> None:
    put(folder, [DIFFERENT[0], [*DIFFERENT[1], (0, 3, "1")]])
    first, last = f"{folder / 'train/metadata.jsonl'}:1", f"{folder / 'test/metadata.jsonl'}:4"
    assert faults(folder) == [f"{last}: item_id 'id0' is listed already in {first}; an item has one line, one role."]


def test_a_repeat_is_told_before_a_file_that_cannot_be_read(folder: Path) -> None:
    put(folder, [[*DIFFERENT[0], (0, 3, "1")], []])
    (folder / "test/metadata.jsonl").unlink()
    told: list[str] = []
    read_metadata(folder, told.append)
    assert "item_id 'id0' is listed already" in told[0]
    assert "cannot be read" in told[1]
