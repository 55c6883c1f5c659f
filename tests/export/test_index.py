"""``cml.Index``: additions, removals and searches are those of a plain dictionary of embeddings, whoever changes it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import cml
from cml.errors import DataError, UserError
from cml.export import index_changes
from cml.searching.embedding_folder import EmbeddingFolder
from cml.storage.exclusive_lock import exclusive_lock

D = 6
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


def create(folder: Path, **options: str) -> cml.Index:
    return cml.Index.create(folder / "index", dimension=D, digest="mine", **options)  # type: ignore[arg-type]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@given(
    st.lists(st.tuples(st.sampled_from(["add", "remove", "compact"]), st.integers(1, 9)), max_size=14), st.booleans()
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_changes_leave_what_a_dictionary_holds(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, int]], approximate: bool
) -> None:
    folder = tmp_path_factory.mktemp("changes")
    index = create(folder, method="flat" if approximate else "exact")
    watching = cml.Index.open(folder / "index")  # as another process would
    held: dict[str, np.ndarray] = {}
    taken = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_changes, "_BESIDE", 12)
        patch.setattr(index_changes, "_LEAST_REMOVED", 4)
        for kind, count in changes:
            if kind == "add":
                rows = ROWS[taken : taken + count]
                index.add(rows, ids=range(taken, taken + count), labels=rows[:, 0])
                held |= {str(taken + number): row for number, row in enumerate(rows)}
                taken += count
            elif kind == "remove":
                gone = list(held)[::2][:count]
                index.remove(gone)
                held = {item_id: row for item_id, row in held.items() if item_id not in gone}
            else:
                index.compact()
            check(index, held)
            check(watching, held)
    check(cml.Index.open(folder / "index"), held)
    if held:
        (hit,) = index.search(ROWS[:1], 1)[0]
        assert hit.label == pytest.approx(float(held[hit.item_id][0]))


def test_additions_rewrite_few_rows_and_make_few_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    real = index_changes.write_embedding_folder

    def counted(*arguments: object, items: int, **options: object) -> EmbeddingFolder:
        written.append(items)
        return real(*arguments, items=items, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(index_changes, "write_embedding_folder", counted)
    index = create(tmp_path)
    for number in range(64):
        index.add(ROWS[number : number + 1], ids=[number])
    assert len(index.parts) == 1
    assert sum(written) <= 64 * 7  # log2(64) times and the first one
    index.add(ROWS[64:67], ids=["a", "b", "c"])
    assert [len(part) for part in index.parts] == [64, 3]
    assert {path.name for path in (tmp_path / "index" / "parts").iterdir()} == {p.folder.name for p in index.parts}


def test_an_approximate_index_is_extended_when_many_items_are_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_changes, "_BESIDE", 50)
    index = create(tmp_path, method="hnsw")
    index.add(ROWS[:40], ids=range(40))
    assert index.manifest["file"] is None
    index.add(ROWS[40:100], ids=range(40, 100))
    first = index.manifest["file"]
    assert (first, index.manifest["covered"]) == ("hnsw-0001.faiss", 100)
    before = (tmp_path / "index" / "hnsw-0001.faiss").read_bytes()
    index.add(ROWS[100:130], ids=range(100, 130))
    assert (tmp_path / "index" / "hnsw-0001.faiss").read_bytes() == before
    check(index, {str(number): row for number, row in enumerate(ROWS[:130])})
    index.add(ROWS[130:160], ids=range(130, 160))
    assert (index.manifest["file"], index.manifest["covered"]) == ("hnsw-0002.faiss", 160)
    assert not (tmp_path / "index" / "hnsw-0001.faiss").exists()
    index.remove(range(0, 100, 2))
    check(index, {str(number): ROWS[number] for number in range(160) if number >= 100 or number % 2})


def test_auto_becomes_approximate_as_the_index_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cml.export.approximate._EXACT_TO", 90)
    monkeypatch.setattr(index_changes, "_BESIDE", 50)
    index = create(tmp_path)
    index.add(ROWS[:80], ids=range(80))
    assert index.manifest["method"] == "exact"
    index.add(ROWS[80:120], ids=range(80, 120))
    assert (index.manifest["method"], index.manifest["covered"]) == ("hnsw", 120)
    index.remove(range(60))
    index.compact()
    assert (index.manifest["method"], index.manifest["file"]) == ("exact", None)
    check(index, {str(number): ROWS[number] for number in range(60, 120)})


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
    assert (len(added), added.manifest["run"]) == (24, str(run))


def test_a_folder_of_the_first_format_opens_and_grows(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    part = folder / "parts" / "0001"
    part.mkdir(parents=True)
    old = {"cml": "0.1", "kind": "index", "parts": ["0001"], "items": 5, "model": "mine", "method": "exact", "run": "r"}
    (folder / "manifest.json").write_text(json.dumps(old | {"dimension": D, "file": None, "recall": None}))
    about = {"items": 5, "skipped": 0, "dimension": D, "images": "/photos", "model": "mine"}
    (part / "manifest.json").write_text(json.dumps(about | {"made_with": {"images": "i", "model": "mine"}}))
    lines = [{"item_id": f"{number}.png", "file_name": f"{number}.png", "age": number} for number in range(5)]
    (part / "items.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    np.save(part / "embeddings.npy", ROWS[:5])
    index = cml.Index.open(folder)
    index.add(ROWS[5:9], ids=range(5, 9))
    index.remove(["2.png"])
    held = {f"{number}.png" if number < 5 else str(number): ROWS[number] for number in range(9) if number != 2}
    check(index, held)
    index.compact()
    check(cml.Index.open(folder), held)
    hit = index.search(ROWS[3:4], 1)[0][0]
    assert (hit.path, hit.label, hit.item_id) == (Path("/photos/3.png"), 3, "3.png")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": 3}))
    with pytest.raises(DataError, match="has format 3, which a later version of cml wrote"):
        cml.Index.open(folder)


KILLED = """
import os, sys
import numpy as np
import cml
from cml.storage import atomic
target, at = sys.argv[1], int(sys.argv[2])
calls = 0
def kill(real):
    def counted(*arguments, **options):
        global calls
        calls += 1
        if calls == at:
            os._exit(9)
        return real(*arguments, **options)
    return counted
atomic.system.replace = kill(atomic.system.replace)
index = cml.Index.open(target)
rows = np.random.default_rng(5).normal(size=(8, 6)).astype(np.float32)
index.add(rows, ids=[f"new {n}" for n in range(8)])
index.remove(["1", "new 3"])
index.compact()
"""


@pytest.mark.slow
def test_a_killed_change_leaves_the_state_before_or_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = create(tmp_path, method="flat")
    monkeypatch.setattr(index_changes, "_BESIDE", 0)
    index.add(ROWS[:7], ids=range(7))
    new = np.random.default_rng(5).normal(size=(8, D)).astype(np.float32)
    before = {str(number): row for number, row in enumerate(ROWS[:7])}
    added = before | {f"new {number}": row for number, row in enumerate(new)}
    removed = {item_id: row for item_id, row in added.items() if item_id not in ("1", "new 3")}
    processes = {}
    for at in (2, 4, 5, 9):  # a part, removed rows, the manifest that names them, the manifest after compaction
        copy = tmp_path / f"killed at {at}"
        for name, whole in content(tmp_path / "index").items():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(whole)
        processes[copy] = subprocess.Popen([sys.executable, "-c", KILLED, copy, str(at)])
    sizes = []
    for copy, process in processes.items():
        assert process.wait() == 9
        left = cml.Index.open(copy)
        held = next(state for state in (before, added, removed) if len(state) == len(left))
        sizes.append(len(held))
        check(left, held)
        left.add(ROWS[20:22], ids=["x", "y"])  # it goes on, and deletes what has no owner
        check(left, held | {"x": ROWS[20], "y": ROWS[21]})
        assert not [path for path in copy.rglob("*") if ".partial-" in path.name]
        assert {path.name for path in (copy / "parts").iterdir()} == set(left.manifest["parts"])
    assert sizes == [7, 15, 15, 13]


def test_an_index_whose_making_was_killed_before_its_manifest_ends_as_an_unkilled_one(
    model: cml.Model, pictures: list[Image.Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = model.save(tmp_path / "run")
    (tmp_path / "photos").mkdir()
    for number, picture in enumerate(pictures):
        picture.save(tmp_path / "photos" / f"{number:02}.png")

    def build(name: str) -> None:
        cml.index(run, tmp_path / "photos", tmp_path / name, method="flat", quiet=True)

    def kill(*_: object) -> None:
        raise MemoryError("killed")

    build("whole")
    with monkeypatch.context() as patch:
        patch.setattr(index_changes, "write_index_manifest", kill)
        for _ in range(2):
            with pytest.raises(MemoryError, match="killed"):
                build("killed")
    assert (tmp_path / "killed" / "flat-0001.faiss").exists()
    build("killed")
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


def test_a_folder_of_something_else_keeps_its_files(model: cml.Model, tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "flat-0001.faiss").write_bytes(b"mine")
    with pytest.raises(UserError, match="is not an empty folder"):
        cml.Index.create(tmp_path / "index", model)
    assert (tmp_path / "index" / "flat-0001.faiss").read_bytes() == b"mine"


ADDING = """
import sys
import numpy as np
import cml
index = cml.Index.open(sys.argv[1])
for number in range(12):
    index.add(np.full((2, 6), float(number), np.float32), ids=[f"{sys.argv[2]} {number} {n}" for n in range(2)])
"""


@pytest.mark.slow
def test_two_processes_and_threads_that_change_at_once_lose_nothing(tmp_path: Path) -> None:
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

    threads = [threading.Thread(target=work, args=(name,)) for name in ("c", "d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [process.wait() for process in processes] == [0, 0]
    assert len(index) == 4 + 2 * 24 + 2 * 12
    assert all(f"{name} {number} 1" in index for name in ("a", "b") for number in range(12))


def test_another_process_at_work_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cml.export.index._PATIENCE", 0.1)
    index = create(tmp_path)
    with exclusive_lock(index.folder / ".lock", "test"), pytest.raises(UserError, match="Another process is working"):
        index.add(ROWS[:1], ids=["a"])
    index.add(ROWS[:1], ids=["a"])
    assert len(index) == 1


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
        (lambda: index.add(pictures[:1], ids=["4"]), "already holds an item '4'. Remove it first"),
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
        (lambda: cml.Index.create(tmp_path / "x", model, method="hnws"), "Did you mean 'hnsw'"),
    ]
    for call, words in wrong:
        with pytest.raises(UserError, match=words) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert content(tmp_path) == before


@pytest.mark.parametrize("name", ["parts/0001/embeddings.npy", "parts/0001/items.jsonl", "removed-0001.npy"])
def test_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    index = create(tmp_path)
    index.add(ROWS[:9], ids=range(9))
    index.remove([3])
    path = index.folder / name
    whole = bytearray(path.read_bytes())
    whole[-3] ^= 1
    path.write_bytes(whole)
    with pytest.raises(DataError, match=f"{path.name} is damaged"):
        cml.Index.open(index.folder)
    path.unlink()
    with pytest.raises(DataError, match=f"{path.name} cannot be read"):
        cml.Index.open(index.folder)


def test_an_index_that_is_gone_is_one_line(tmp_path: Path) -> None:
    index = create(tmp_path)
    (index.folder / "manifest.json").unlink()
    with pytest.raises(DataError, match="is gone"):
        len(index)
