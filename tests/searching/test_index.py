"""``cml.Index``: additions, removals and searches are those of a plain dictionary of embeddings, whoever changes it."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from PIL import Image

import cml
from cml.errors import DataError, UserError
from cml.searching import approximate
from cml.searching.hit import Hit
from cml.searching.index_file import FILE

D = 6
SHORT: dict[str, Any] = {"sampler": "random(batch_size=20)", "quiet": True}
ROWS = np.random.default_rng(0).normal(size=(400, D)).astype(np.float32)


def slow_search(held: dict[str, np.ndarray], query: np.ndarray, k: int) -> list[float]:
    """The k least distances, each by a sum in float64."""
    squared = sorted(sum((float(a) - float(b)) ** 2 for a, b in zip(row, query, strict=True)) for row in held.values())
    return [value**0.5 for value in squared[:k]]


def check(index: cml.Index, held: dict[str, np.ndarray]) -> None:
    assert len(index) == len(held)
    assert all(item_id in index for item_id in held)
    if held:
        k = min(5, len(held))
        for query, hits in zip(ROWS[:3], index.search(ROWS[:3], k), strict=True):
            np.testing.assert_allclose([hit.distance for hit in hits], slow_search(held, query, k), atol=1e-5)
            for hit in hits:
                np.testing.assert_allclose(hit.distance, np.linalg.norm(held[hit.item_id] - query), atol=1e-5)


def create(folder: Path) -> cml.Index:
    return cml.Index.create(folder / "index", dimension=D, digest="mine")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Changes(RuleBasedStateMachine):
    """Random changes by two who hold the index; each sees those of both."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=os.environ["PYTEST_CHANGES"]))  # random numbers repeat here
        self.indexes = [create(self.folder), cml.Index.open(self.folder / "index")]
        self.held: dict[str, tuple[np.ndarray, float, int]] = {}

    @rule(who=st.integers(0, 1), first=st.integers(0, 390), count=st.integers(1, 9), replace=st.booleans())
    def add(self, who: int, first: int, count: int, replace: bool) -> None:
        ids = [str(number % 40) for number in range(first, first + count)]
        rows, labels = ROWS[first : first + count], [float(number) for number in range(count)]
        columns = [{"site": number % 3, "ümlaut 'x": None} for number in range(count)]
        if not replace and any(item_id in self.held for item_id in ids):
            with pytest.raises(UserError, match="already holds an item"):
                self.indexes[who].add(rows, ids, labels, columns=columns)
            return
        self.indexes[who].add(rows, ids, labels, columns=columns, replace=replace)
        for number, item_id in enumerate(ids):
            self.held.pop(item_id, None)
            self.held[item_id] = rows[number], labels[number], number % 3

    @precondition(lambda self: self.held)
    @rule(who=st.integers(0, 1), data=st.data())
    def remove(self, who: int, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.sampled_from(sorted(self.held)), unique=True, min_size=1, max_size=9))
        self.indexes[who].remove(gone)
        for item_id in gone:
            del self.held[item_id]

    @rule(who=st.integers(0, 1))
    def compact(self, who: int) -> None:
        self.indexes[who].compact()

    @rule(who=st.integers(0, 1))
    def reopen(self, who: int) -> None:
        self.indexes[who] = cml.Index.open(self.folder / "index")

    @precondition(lambda self: self.held)
    @rule(who=st.integers(0, 1), query=st.integers(0, 399), radius=st.floats(0, 4), data=st.data())
    def search(self, who: int, query: int, radius: float, data: st.DataObject) -> None:
        hidden = data.draw(st.lists(st.sampled_from(sorted(self.held)), max_size=4))
        point = ROWS[query].astype(np.float64)
        far = {item_id: float(np.linalg.norm(row - point)) for item_id, (row, _, _) in self.held.items()}
        order = sorted(far, key=lambda item_id: (far[item_id], [*self.held].index(item_id)))
        chosen = {
            "within": [item_id for item_id in order if far[item_id] <= radius],
            "where": [item_id for item_id in order if self.held[item_id][2] == 1 and self.held[item_id][1] < 5],
            "exclude": [item_id for item_id in order if item_id not in hidden][:5],
        }
        index = self.indexes[who]
        found = {
            "within": index.search(ROWS[query : query + 1], within=radius),
            "where": index.search(ROWS[query : query + 1], len(index), where="site = ? AND label < 5", values=[1]),
            "exclude": index.search(ROWS[query : query + 1], min(5, len(index)), exclude=hidden),
        }
        for kind, wanted in chosen.items():
            if kind != "within" or all(abs(value - radius) > 1e-5 for value in far.values()):
                assert [hit.item_id for hit in found[kind][0]] == wanted, kind
        for hit in found["exclude"][0]:
            _, label, site = self.held[hit.item_id]
            assert (hit.label, hit.columns["site"]) == (label, site)

    @invariant()
    def are_those_of_a_dictionary(self) -> None:
        for index in self.indexes:
            check(index, {item_id: row for item_id, (row, _, _) in self.held.items()})
            many = np.concatenate([ROWS[:12]])  # by blocks, not one by one
            if self.held:
                firsts = [hits[0].distance for hits in index.search(many, 1)]
                rows = {item_id: row for item_id, (row, _, _) in self.held.items()}
                np.testing.assert_allclose(firsts, [slow_search(rows, query, 1)[0] for query in many], atol=1e-5)


@pytest.mark.parametrize("examples", [5, pytest.param(40, marks=pytest.mark.slow)])
def test_any_changes_leave_what_a_dictionary_holds(
    examples: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_CHANGES", str(tmp_path))
    case = Changes.TestCase
    case.settings = settings(
        max_examples=examples, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
    )
    case().runTest()


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes of more than 90 items are large."""
    pytest.importorskip("faiss")
    monkeypatch.setattr(approximate, "_EXACT_TO", 90)
    monkeypatch.setattr(approximate, "_BESIDE", 50)


@pytest.mark.usefixtures("_small")
def test_a_large_index_has_a_file_of_faiss_that_may_be_deleted(tmp_path: Path) -> None:
    index, cache = create(tmp_path), tmp_path / "index/index.faiss"
    index.add(ROWS[:80], ids=range(80))
    assert (index.method, cache.exists()) == ("exact", False)
    index.add(ROWS[80:120], ids=range(80, 120))
    assert (index.method, cache.exists()) == ("hnsw", True)
    assert index.recall == {"k": 10, "queries": 120, "value": 1.0}
    held = {str(number): row for number, row in enumerate(ROWS[:120])}
    check(index, held)
    first = cache.read_bytes()
    index.add(ROWS[120:150], ids=range(120, 150))  # beside it
    assert cache.read_bytes() == first
    held |= {str(number): ROWS[number] for number in range(120, 150)}
    other = cml.Index.open(index.folder)
    check(other, held)
    index.add(ROWS[150:190], ids=range(150, 190))
    assert cache.read_bytes() != first
    index.remove(range(0, 100, 2))
    index.add(ROWS[200:201], ids=[1], replace=True)
    held = {str(number): ROWS[number] for number in range(190) if number >= 100 or number % 2} | {"1": ROWS[200]}
    for each in (index, other, cml.Index.open(index.folder)):
        check(each, held)
        assert each.search(ROWS[:9], within=1.5, exclude=["3"]) == each.search(
            ROWS[:9], within=1.5, exclude=["3"], exact=True
        )
    for damage in (lambda: cache.write_bytes(first), lambda: cache.write_bytes(first[:99]), cache.unlink):
        damage()
        opened = cml.Index.open(index.folder)
        assert opened.method == "exact"
        check(opened, held)
    index.compact()
    assert (cml.Index.open(index.folder).method, cache.exists()) == ("hnsw", True)
    check(index, held)


@pytest.mark.usefixtures("_small")
def test_a_large_index_without_faiss_is_searched_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path).add(ROWS[:120], ids=range(120))
    monkeypatch.setattr(approximate, "find_spec", lambda name: None)
    index = cml.Index.open(tmp_path / "index")
    assert index.method == "exact"
    check(index, {str(number): row for number, row in enumerate(ROWS[:120])})


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    rng = np.random.default_rng(1)
    small = rng.integers(0, 256, (12, 4, 4, 3), np.uint8)
    return [Image.fromarray(pixels).resize((24, 24), Image.Resampling.BILINEAR) for pixels in small]


@pytest.fixture(scope="module")
def model(pictures: list[Image.Image]) -> cml.Model:
    return cml.fit(
        pictures,
        np.arange(12.0),
        backbone="small-cnn",
        weights="none",
        image_size=(16, 16),
        dimension=D,
        steps=2,
        workers=0,
        sampler="random(batch_size=12)",
        quiet=True,
    )


def as_bytes(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def test_images_bytes_paths_and_embeddings_are_found_by_each_other(
    model: cml.Model, pictures: list[Image.Image], tmp_path: Path
) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path, picture in zip(paths, pictures, strict=False):
        picture.save(path)
    index = cml.Index.create(tmp_path / "index", model)
    index.add([str(path) for path in paths], labels=[[1, 2.5], "dog", None])
    index.add(pictures[3:6], ids=["3", "4", "5"], labels=np.array([3, 4, 5]))
    index.add([as_bytes(picture) for picture in pictures[6:9]], ids=[6, 7, 8])
    index.add(model.embed(pictures[9:]), ids=[9, 10, 11], digest=model.digest)
    for queries in (pictures, [as_bytes(picture) for picture in pictures], model.embed(pictures)):
        first = [row[0] for row in index.search(queries, 2)]
        assert [hit.item_id for hit in first] == [*map(str, paths), *map(str, range(3, 12))]
        assert [hit.label for hit in first] == [[1, 2.5], "dog", None, 3, 4, 5] + [None] * 6
        assert [hit.path for hit in first] == [*paths, *[None] * 9]
        assert max(hit.distance for hit in first) < 1e-5


def test_added_items_that_were_trained_on_are_marked(tmp_path: Path) -> None:
    rows = ROWS[:60].astype(np.float64)
    frame = pd.DataFrame(rows, columns=[f"f{column}" for column in range(D)])
    fitted = cml.fit(frame.assign(y=rows[:, 0])[:40], features="f*", label="y", steps=2, dimension=4, **SHORT)
    fitted.save(tmp_path / "saved")
    for number, model in enumerate((fitted, cml.load(tmp_path / "saved"), pickle.loads(pickle.dumps(fitted)))):
        index = cml.Index.create(tmp_path / f"index{number}", model)
        index.add(frame[30:50], range(30, 50), columns=[{"site": "north"}] * 20)
        index.add(rows[:5], range(5))
        index.add(rows[:1], ["0"], replace=True)
        hits = index.search(rows[:1], 25)[0]
        assert {hit.item_id for hit in hits if hit.is_trained} == set(map(str, [*range(5), *range(30, 40)]))
        assert sum(hit.columns.get("site") == "north" for hit in hits) == 20
        assert len(index.search(rows[:1], 25, where='"trained on" IS NULL')[0]) == 10
        index.add(model.embed(rows[:1]), ["embedded"])  # which are not recognised, as the docstring says
        assert [hit.is_trained for hit in index.search(rows[:1], 26)[0] if hit.item_id == "embedded"] == [False]


def test_added_files_that_were_trained_on_are_marked(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(24)]
    for number, path in enumerate(paths):
        Image.new("RGB", (16, 16), (10 * number, 0, 0)).save(path)
    small: dict[str, Any] = {"backbone": "small-cnn", "weights": "none", "image_size": (16, 16), "workers": 0}
    model = cml.fit(paths[:20], np.arange(20.0), steps=1, **small, **SHORT)
    index = cml.Index.create(tmp_path / "index", model)
    index.add(paths[18:])
    index.add([path.read_bytes() for path in paths[16:18]], ["16", "17"])
    hits = index.search(paths[:1], 8)[0]
    assert {Path(hit.item_id).stem for hit in hits if hit.is_trained} == {"16", "17", "18", "19"}


def test_the_folder_is_the_one_of_the_commands(model: cml.Model, pictures: list[Image.Image], tmp_path: Path) -> None:
    run = model.save(tmp_path / "run")
    (tmp_path / "photos").mkdir()
    for number, picture in enumerate(pictures):
        picture.save(tmp_path / "photos" / f"{number:02}.png")
    made = cml.index(run, tmp_path / "photos", tmp_path / "index", quiet=True)
    opened = cml.Index.open(tmp_path / "index", model)
    opened.add([as_bytes(pictures[0].rotate(90))], ids=["turned"], labels=["new"])
    assert len(made) == 13
    opened.remove(["03.png"])
    again = cml.index(run, tmp_path / "photos", tmp_path / "index", add=True, quiet=True)
    assert len(again) == 13  # the removed image is new again
    again.compact()
    for index in (made, opened, again):
        assert [row[0].item_id for row in index.search(pictures[2:5], 1)] == ["02.png", "03.png", "04.png"]
    assert again.search(pictures[3:4], 1)[0][0].path == tmp_path / "photos" / "03.png"
    hits = cml.search(tmp_path / "index", [pictures[0].rotate(90)], k=2)[0]
    assert (hits[0].item_id, hits[0].label) == ("turned", "new")
    alone = cml.Index.create(tmp_path / "alone", model)
    alone.add(pictures, ids=range(12))
    with pytest.raises(UserError, match=r"does not know its model's run; say where it is with --run"):
        cml.search(alone.folder, pictures[:1])
    assert cml.search(alone.folder, pictures[4:5], run=run, k=1)[0][0].item_id == "4"
    added = cml.index(run, tmp_path / "photos", tmp_path / "alone", add=True, quiet=True)
    assert (len(added), added.run) == (24, str(run))


KILLED = """
import os, random, signal, sys, time
import numpy as np
import cml
rows = np.random.default_rng(5).normal(size=(3000, 6)).astype(np.float32)
cml.Index  # imported once, for all children
def change(folder, told):
    index = cml.Index.open(folder)
    os.write(told, b".")
    for number in range(30):
        index.add(rows[100 * number : 100 * number + 100], ids=[f"new {number} {n}" for n in range(100)])
        if number:
            index.remove([f"new {number - 1} {n}" for n in range(0, 100, 2)])
rng = random.Random(0)
for folder in sys.argv[1:]:
    heard, told = os.pipe()
    child = os.fork()
    if not child:
        change(folder, told)
        os._exit(0)
    os.close(told)
    assert os.read(heard, 1) == b".", folder
    time.sleep(rng.random() * 0.25)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(heard)
"""


@pytest.mark.parametrize("left", ["empty file", "no items"])
def test_a_call_that_ended_while_it_made_an_index_is_continued(left: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    run, folder = tmp_path / "run", tmp_path / "index"
    model = cml.fit(rows, rows[:, 0], steps=1, dimension=2, sampler="random(batch_size=20)", quiet=True)
    model.save(run)
    if left == "no items":
        cml.Index.create(folder, model, run=run)
    else:
        folder.mkdir()
        (folder / FILE).touch()
    for _ in range(2):
        assert len(cml.index(run, tmp_path / "rows.npy", folder, quiet=True)) == 40
    np.save(tmp_path / "others.npy", rows + 1)
    with pytest.raises(UserError, match="already holds an index"):
        cml.index(run, tmp_path / "others.npy", folder, quiet=True)


def test_a_transaction_whose_end_fails_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = create(tmp_path / "index")
    index.add(ROWS[:3], ids=["a", "b", "c"])
    reader = cml.Index.open(index.folder)

    def fail() -> None:
        with reader._file.reading() as db:
            db.execute("BEGIN")
            db.execute("SELECT id FROM items").fetchall()
            raise MemoryError

    with pytest.raises(MemoryError):
        fail()
    monkeypatch.setattr("cml.searching.index_file.PATIENCE", 0.1)
    cml.Index.open(index.folder).remove(["a"])
    assert len(reader) == 2


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_killed_changes_leave_a_state_before_or_after_one(tmp_path: Path) -> None:
    index = create(tmp_path)
    index.add(ROWS[:7], ids=range(7))
    rows = np.random.default_rng(5).normal(size=(3000, D)).astype(np.float32)
    states: list[dict[str, np.ndarray]] = [{str(number): row for number, row in enumerate(ROWS[:7])}]
    for number in range(30):
        states.append(states[-1] | {f"new {number} {n}": rows[100 * number + n] for n in range(100)})
        if number:
            gone = {f"new {number - 1} {n}" for n in range(0, 100, 2)}
            states.append({item_id: row for item_id, row in states[-1].items() if item_id not in gone})
    copies = [tmp_path / f"killed {kill}" for kill in range(20)]
    for copy in copies:
        shutil.copytree(tmp_path / "index", copy)
    subprocess.run([sys.executable, "-c", KILLED, *copies], check=True, timeout=240)
    sizes = set()
    for copy in copies:
        left = cml.Index.open(copy)
        found = {item_id for item_id, _, _ in left.sources()}
        held = next(state for state in states if state.keys() == found)
        sizes.add(len(held))
        check(left, held)
        left.add(ROWS[20:22], ids=["x", "y"])  # it goes on
        check(left, held | {"x": ROWS[20], "y": ROWS[21]})
        assert sorted(path.name for path in copy.iterdir()) == [FILE]
    assert len(sizes) > 2


ADDING = """
import sys
import tempfile
import numpy as np
import cml
index = cml.Index.open(sys.argv[1])
for number in range(12):
    index.add(np.full((2, 6), float(number), np.float32), ids=[f"{sys.argv[2]} {number} {n}" for n in range(2)])
"""


@pytest.mark.slow
def test_two_processes_and_four_threads_that_change_at_once_lose_nothing(tmp_path: Path) -> None:
    index = create(tmp_path)
    index.add(ROWS[:4], ids=range(4))
    processes = [subprocess.Popen([sys.executable, "-c", ADDING, index.folder, name]) for name in ("a", "b")]
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(12):
                index.add(ROWS[number : number + 1], ids=[f"{name} {number}"])
                assert index.search(ROWS[number : number + 1], 1)[0][0].distance < 1e-5  # at once
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("c", "d", "e", "f")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [process.wait() for process in processes] == [0, 0]
    assert len(index) == 4 + 2 * 24 + 4 * 12
    assert all(f"{name} {number} 1" in index for name in ("a", "b") for number in range(12))


FORKING = """
import os, sys, threading
import numpy as np
import cml
index = cml.Index.open(sys.argv[1])
rows = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
def work():  # the first search of many queries imports numba
    while True:
        index.search(rows, 3)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
children = []
for number in range(20):
    child = os.fork()
    if not child:
        hits = index.search(rows, 3)
        index.add(rows[:1], ids=[f"child {number}"])
        os._exit(0 if len(hits) == 20 and f"child {number}" in index else 1)
    children.append(child)
codes = [os.waitpid(child, 0)[1] for child in children]
print(codes, flush=True)
os._exit(any(codes) or len(index) != 420)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_while_threads_search_leaves_an_index_that_both_can_use(tmp_path: Path) -> None:
    create(tmp_path).add(ROWS, ids=range(400))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, tmp_path / "index"], timeout=200, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def answers(folder: Path) -> tuple[Any, ...]:
    index = cml.Index.open(folder)
    found: list[list[Hit]] = index.search(ROWS[200:203], 4) + index.search(ROWS[:1], 3, where="site > 1 AND label > 3")
    return len(index), index.digest, index.run, found, [str(number) in index for number in range(0, 150, 7)]


def test_a_file_with_a_flipped_byte_gives_the_same_answers_or_one_line(tmp_path: Path) -> None:
    index = create(tmp_path)
    columns = [{"site": number % 5, "name": f"item {number}"} for number in range(150)]
    index.add(ROWS[:150], ids=range(150), labels=list(range(150)), columns=columns)
    index.remove(range(0, 40, 3))
    wanted, whole = answers(index.folder), (index.folder / FILE).read_bytes()
    rng, refused = random.Random(0), 0
    used = [place for place in range(len(whole)) if whole[place] or rng.random() < 0.02]
    for number in range(40):
        place = rng.randrange(100) if number < 8 else rng.choice(used)
        copy = tmp_path / f"mutant {number}"
        copy.mkdir()
        mutant = bytearray(whole)
        mutant[place] ^= 1 << rng.randrange(8)
        (copy / FILE).write_bytes(mutant)
        try:
            found = answers(copy)
        except UserError as error:
            assert str(copy) in str(error) and "\n" not in str(error), place  # noqa: PT017, PT018 - some are the same
            refused += 1
        else:
            assert found == wanted, place
    assert refused > 15


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_an_addition_is_on_the_disk_when_it_ends(tmp_path: Path) -> None:
    create(tmp_path)
    code = (
        "import sys, os, numpy as np, cml; index = cml.Index.open(sys.argv[1]); os.write(1, b'begin');"
        "index.add(np.ones((1, 6), 'f4'), ids=['a']); os.write(1, b'end')"
    )
    traced = [*("strace", "-f", "--seccomp-bpf", "-e", "trace=fsync,fdatasync,write", "-o", tmp_path / "calls")]
    subprocess.run(
        [*traced, sys.executable, "-c", code, tmp_path / "index"], check=True, capture_output=True, timeout=120
    )
    calls = (tmp_path / "calls").read_text()
    within = calls[calls.index('write(1, "begin"') : calls.index('write(1, "end"')]
    assert len([line for line in within.splitlines() if "sync(" in line]) >= 2  # journal and file


def test_names_of_files_that_are_no_unicode_stay(tmp_path: Path) -> None:
    index, odd = create(tmp_path), ["a\udcff", "\ud800", "nul\0 b", "ü"]
    index.add(ROWS[:4], odd, odd, columns=[{"name": name, name: 1} for name in odd])
    again = cml.Index.open(index.folder)
    for name, hits in zip(odd, again.search(ROWS[:4], 1), strict=True):
        assert (hits[0].item_id, hits[0].label, hits[0].columns) == (name, name, {"name": name, name: 1})
        assert name in again
    again.add(ROWS[4:5], odd[:1], replace=True)
    again.remove(odd[1:])
    assert again.search(ROWS[4:5], 1)[0][0].item_id == odd[0]


def test_another_process_at_work_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cml.searching.index_file.PATIENCE", 0.1)
    index = create(tmp_path)
    other = sqlite3.connect(index.folder / FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(UserError, match=r"Another process has been changing the index .* for 0\.1 seconds"):
        index.add(ROWS[:1], ids=["a"])
    other.execute("ROLLBACK")
    index.add(ROWS[:1], ids=["a"])
    assert len(index) == 1
    other.close()


def test_wrong_use_is_one_line_and_changes_nothing(
    model: cml.Model, pictures: list[Image.Image], tmp_path: Path
) -> None:
    index = cml.Index.create(tmp_path / "index", model)
    with pytest.raises(UserError, match="is empty: add items to it before a search"):
        index.search(pictures[:1], 1)
    index.add(pictures[:6], ids=range(6))
    index.remove([5])
    plain = create(tmp_path / "plain")
    before = content(tmp_path)
    few = [{"age": 1}]
    nan = np.full((1, D), np.nan, np.float32)
    wrong: list[tuple[Any, str]] = [
        (lambda: index.remove([5]), r"does not hold the item '5': it was removed before\."),
        (lambda: index.remove([4, 4]), "The id '4' is given twice"),
        (lambda: index.remove(["x"]), r"does not hold the item 'x': it never did\."),
        (lambda: index.remove("4"), "'ids' must be a list"),
        (lambda: index.add([b"no image"], ids=["a"]), "The image number 0 cannot be read: it is none of"),
        (lambda: index.add([as_bytes(pictures[0]), as_bytes(pictures[1])[:90]], ids="ab"), "'ids' must be a list"),
        (lambda: index.add([as_bytes(pictures[0]), as_bytes(pictures[1])[:90]], ids=["a", "b"]), "The image number 1"),
        (lambda: index.add(b"no list", ids=["a"]), "must be a list of images"),
        (lambda: index.add([tmp_path / "gone.png"]), "gone.png is missing"),
        (lambda: index.add(pictures[:1], ids=["4"]), "already holds an item '4'. Remove it first, give"),
        (lambda: index.add(pictures[:2], ids=["a", "a"]), "The id 'a' is given twice"),
        (lambda: index.add(pictures[:2], ids=["a"]), "one id per item. Got 2 items and 1 ids"),
        (lambda: index.add(pictures[:1]), "'ids' must be a list"),
        (lambda: index.add(pictures[:1], ids=[1.5]), r"ids\[0\] must be a text or a whole number. Got 1.5"),
        (lambda: index.add(pictures[:1], ids=["a"], labels=[1, 2]), "one label per item. Got 1 ids and 2 labels"),
        (lambda: index.add(pictures[:1], ids=["a"], labels=[float("nan")]), "The label of 'a' must be finite"),
        (lambda: index.add(pictures[:1], ids=["a"], labels=[{1}]), "a list of these or None. Got set"),
        (lambda: index.add(ROWS[:1, :4], ids=["a"]), rf"must be \(N, {D}\). Got \(1, 4\)"),
        (lambda: index.add(nan, ids=["a"]), "The embedding of 'a' must be finite"),
        (lambda: index.add(ROWS[:1] * 1e20, ids=["a"]), "The embedding of 'a' must be finite and less than 1e"),
        (lambda: index.add(ROWS[:1], ids=["a"], digest="other"), "embeddings of another model"),
        (lambda: index.add(pictures[:1], ids=["a"], columns=[{"x": {1}}]), "Column 'x' of 'a' must be a finite number"),
        (lambda: index.add(pictures[:2], ids=["a", "b"], columns=few), "'columns' must be a dict for each of the 2"),
        (lambda: index.search(pictures[:1], 1, where="agee > 3"), "'where' is no condition over id, label, path, tra"),
        (lambda: index.search(pictures[:1], 1, where="1) --"), "'where' is no condition"),
        (lambda: index.search(pictures[:1], 1, where="1; DROP TABLE items"), "'where' is no condition"),
        (lambda: index.search(ROWS[:1], 1, digest="other"), "embeddings of another model"),
        (lambda: index.search(nan, 1), "must be finite, but one holds NaN"),
        (lambda: index.search(ROWS[:1, :3], 1), "must be"),
        (lambda: index.search(pictures[:1], 6), "at most the number of items, 5. Got 6 instead"),
        (lambda: index.search(pictures[:1], 0), "'k' must be 1 or more"),
        (lambda: index.search([b"no image"], 1), "cannot be read"),
        (lambda: plain.add(pictures[:1], ids=["a"]), "must be an array of embeddings"),
        (lambda: cml.Index.open(plain.folder, model), "holds embeddings of another model"),
        (lambda: cml.Index.open(index.folder, "runs/mine"), "load it first"),
        (lambda: cml.Index.open(tmp_path), "is not a search index"),
        (lambda: cml.Index.create(index.folder, model), "already holds an index. Open it"),
        (lambda: cml.Index.create(tmp_path, model), "is not an empty folder"),
        (lambda: cml.Index.create(tmp_path / "x", model, dimension=3), "are those of the model: leave them out"),
        (lambda: cml.Index.create(tmp_path / "x"), "needs 'dimension'"),
        (lambda: cml.Index.create(tmp_path / "x", dimension=3), "needs 'digest'"),
    ]
    for call, words in wrong:
        with pytest.raises(UserError, match=words) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert content(tmp_path) == before


def test_a_file_of_a_stranger_runs_nothing(tmp_path: Path) -> None:
    index = create(tmp_path)
    index.add(ROWS[:3], ids=range(3))
    changes: dict[str, Callable[[sqlite3.Connection], object]] = {
        "a trigger": lambda db: db.execute("CREATE TRIGGER x AFTER INSERT ON items BEGIN DELETE FROM items; END"),
        "a view": lambda db: db.executescript("DROP TABLE column_names; CREATE VIEW column_names AS SELECT 1 AS name"),
        "no table": lambda db: db.execute("DROP TABLE removed"),
        "another format": lambda db: db.executescript(
            "UPDATE about SET value = '7' WHERE name = 'format'; CREATE TABLE later (x)"
        ),
        "a changed label": lambda db: db.execute("UPDATE items SET label = 5 WHERE id = '1'"),
        "another digest": lambda db: db.execute("UPDATE about SET value = 'x' WHERE name = 'digest'"),
    }
    words = ("does not describe a search index", "wrong checksum", "has format 7, which another version")
    for name, change in changes.items():
        copy = tmp_path / name
        shutil.copytree(index.folder, copy)
        db = sqlite3.connect(copy / FILE)
        with db:
            change(db)
        db.close()
        with pytest.raises(DataError) as caught:
            cml.Index.open(copy).search(ROWS[:1], 1)
        assert any(word in str(caught.value) for word in words), name
        assert "cml index RUN IMAGES --out FOLDER" in str(caught.value)


def test_folders_of_earlier_states_are_refused_with_the_command_to_run(tmp_path: Path) -> None:
    (tmp_path / "index/parts/0001").mkdir(parents=True)
    (tmp_path / "index/manifest.json").write_text(json.dumps({"kind": "index", "format": 2}))
    with pytest.raises(DataError, match=r"an index of an earlier state .*: cml index RUN IMAGES --out FOLDER$"):
        cml.Index.open(tmp_path / "index")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/manifest.json").write_text(json.dumps({"kind": "embeddings", "items": 1}))
    with pytest.raises(DataError, match=r"has no format, .*: cml embed RUN --images IMAGES --out FOLDER$"):
        cml.EmbeddingFolder.open(tmp_path / "folder")


def test_an_index_that_is_gone_or_another_one_is_one_line(tmp_path: Path) -> None:
    index = create(tmp_path)
    index.add(ROWS[:3], ids=range(3))
    (index.folder / FILE).unlink()
    with pytest.raises(DataError, match="is gone"):
        index.search(ROWS[:1], 1)
    cml.Index.create(index.folder, dimension=D, digest="other").add(ROWS[:1], ids=["x"])
    with pytest.raises(DataError, match="is now an index of another model"):
        index.search(ROWS[:1], 1)
    (index.folder / FILE).unlink()
    cml.Index.create(index.folder, dimension=D, digest="mine").add(ROWS[5:8], ids=["x", "y", "z"])
    check(index, {"x": ROWS[5], "y": ROWS[6], "z": ROWS[7]})


def test_an_index_travels_to_other_processes_by_its_folder(tmp_path: Path) -> None:
    import pickle

    index = create(tmp_path)
    index.add(ROWS[:3], ids=range(3))
    assert len(pickle.loads(pickle.dumps(index))) == 3
