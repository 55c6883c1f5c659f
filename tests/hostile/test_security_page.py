"""A test for each sentence of what SECURITY.md promises; a sentence without one fails."""

from __future__ import annotations

import json
import pickle
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.data.prepared import PreparedDataset
from cml.errors import UserError
from cml.feature_store.store import FeatureStore
from cml.searching.hit import Hit
from cml.searching.search_page import write_index_page
from cml.storage.atomic import as_cell
from cml.storage.regular_file import map_array
from cml.storage.safe_paths import file_inside

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "tests/hostile/test_hostile_files.py::"
PROMISES = {  # the beginning of a sentence to its tests, which are in this file or another
    "No file is unpickled": ["test_no_pickle_is_read"],
    "Weights are safetensors": ["tests/hostile/test_source_safety.py::test_nothing_can_run_code"],
    "Names in a data file": ["test_no_name_leaves_the_folder"],
    "An index names the images": ["test_a_page_shows_pictures_of_named_folders_alone"],
    "Sizes, shapes and types": [
        "tests/hostile/test_hostile_inputs.py::test_a_config_that_names_a_huge_network_is_refused_before_it_is_made",
        f"{HOSTILE}test_arrays_that_lie",
    ],
    "Archives, images, Parquet tables": [
        f"{HOSTILE}test_archives_that_are_bombs",
        f"{HOSTILE}test_images_that_are_bombs_or_none",
        "tests/data_prep/test_hf_folder.py::test_files_that_unpack_to_far_more_than_their_size",
        "tests/hostile/test_hostile_inputs.py::test_a_checkpoint_that_unpacks_to_more_than_its_size_is_not_unpacked",
    ],
    "A local folder in the form": [
        "tests/data_prep/test_hf_folder.py::test_a_readme_leads_nowhere",
        "tests/data_prep/test_hf_folder.py::test_a_loading_script_is_not_run",
    ],
    "Opening a run reaches": [
        "tests/runs/test_downloads.py::test_resuming_a_run_downloads_nothing_that_its_config_names"
    ],
    "A model that it names": [
        "tests/runs/test_downloads.py::test_a_sentence_model_of_a_run_is_taken_from_the_cache_alone",
        "tests/runs/test_downloads.py::test_a_permission_is_not_widened_within",
    ],
    "Embeddings, indexes, feature stores": ["tests/hostile/test_reread_files.py::test_damaged_files"],
    "They tell damage, not forgery": ["tests/hostile/test_reread_files.py::test_many_damaged_files"],
    "Texts of others": ["test_texts_move_no_terminal"],
    "A table that is written as CSV": ["test_no_cell_is_a_formula"],
    "A run remembers which plugins": [
        "tests/test_plugins.py::test_a_file_registers_and_is_remembered_by_name_and_hash"
    ],
    "It never imports them": ["tests/test_plugins.py::test_a_strangers_run_names_its_plugins_and_none_is_imported"],
    "What is refused is one line": ["tests/hostile/test_hostile_inputs.py::test_the_series_finds_nothing"],
}


def test_each_sentence_has_a_test() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    _, start, part = page.partition("cml reads them as data only:")
    assert start
    part = part.partition("## What it does not protect you from")[0]
    text = " ".join(part.replace("\n- ", " ").split())
    sentences = [sentence.strip(" -") for sentence in re.split(r"(?<=\.)\s+(?=[A-Z])", text) if len(sentence) > 3]
    assert len(sentences) == len(PROMISES)
    for sentence in sentences:
        (tests,) = [tests for start, tests in PROMISES.items() if sentence.startswith(start)] or [[f"none: {sentence}"]]
        for test in tests:
            path, _, name = test.rpartition("::")
            file = ROOT / path if path else Path(__file__)
            assert f"\ndef {name}(" in file.read_text(encoding="utf-8"), test


def test_no_pickle_is_read(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Harm:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return ran.write_text, ("x",)

    np.save(tmp_path / "a.npy", np.array([Harm()], object), allow_pickle=True)
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Harm()))
    for name in ("a.npy", "b.npy"):
        with pytest.raises((ValueError, UserError)):
            map_array(tmp_path / name)
        with pytest.raises(UserError):
            cml.distances.get("precomputed", path=str(tmp_path / name))
    assert not ran.exists()


def _same(rows: Any) -> Any:  # noqa: ANN401
    return np.asarray(rows, np.float32)


def test_no_name_leaves_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    cml.features(np.eye(4, dtype=np.float32), backbone=_same, out=folder, quiet=True)
    for name in ("features-00000.npy", "items.jsonl"):
        moved = (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(moved)
        with pytest.raises(UserError, match="leads out of"):
            _ = FeatureStore.open(folder).item_ids
        (folder / name).unlink()
        moved.rename(folder / name)
    (tmp_path / "secret").write_text("x")
    (folder / "link").symlink_to(tmp_path / "secret")
    for name in ("../secret", "link", "/etc/passwd"):
        with pytest.raises(UserError):
            file_inside(folder, name, "a")


def test_a_page_shows_pictures_of_named_folders_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, work = tmp_path / "mine", tmp_path / "work"
    for place, colour in ((mine, (250, 1, 2)), (work / "photos", (1, 2, 250))):
        place.mkdir(parents=True)
        Image.new("RGB", (8, 8), colour).save(place / "a.png")
    monkeypatch.chdir(work)
    (work / "photos/link.png").symlink_to(mine / "a.png")
    query = work / "photos/a.png"
    hits = [Hit(path.name, path, 0.5) for path in (mine / "a.png", work / "photos/link.png")]

    def shown(*folders: Path) -> int:
        write_index_page(Path("page.html"), [query], [hits], Path("index"), 2, images=folders)
        return Path("page.html").read_text("utf-8").count("(cannot be read)")

    assert shown() == 3 * 2  # three texts of each picture
    assert shown(mine) == 0


def test_texts_move_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from cml.command_line.shared_options import print_json, print_text, show
    from cml.console.messages import say, say_warning
    from cml.console.progress_bar import ProgressBar

    text = "a\x1b[31m\x9b\u202eb\x07\rc"
    print_text(text)
    print_json({text: [text]})
    show({}, text, as_json=False)
    say(text)
    say_warning(text)
    with ProgressBar(total=1, desc=text) as bar:
        bar.update()
    out, err = capsys.readouterr()
    assert not set("\x1b\x9b\u202e\x07\r") & set(out + err)
    assert json.loads(out.splitlines()[1]) == {text: [text]}
    cml.prepare("diabetes", tmp_path / "d")
    info = json.loads((tmp_path / "d/dataset.json").read_text())
    for name in ("label_unit", "name", "frame", "source"):
        (tmp_path / "d/dataset.json").write_text(json.dumps({**info, name: text}))
        with pytest.raises(UserError, match=f"{name} should be printable text in one line"):
            PreparedDataset.open(tmp_path / "d")


def test_no_command_prints_by_itself() -> None:
    prints = {
        path.name
        for path in (ROOT / "cml/commands").glob("*.py")
        if re.search(r"(?<![\w.])print\(", path.read_text(encoding="utf-8"))
    }
    assert prints == {"losses.py"}  # which prints texts of cml alone


def test_no_cell_is_a_formula(tmp_path: Path) -> None:
    from cml.checks.proposals import ProposalList

    ProposalList(["=cmd|' /C calc'!A0", "b"], [0.5, 0.25]).save(tmp_path / "next.csv")
    assert "\n1,'=cmd|' /C calc'!A0,0.5" in (tmp_path / "next.csv").read_text("utf-8").replace("\r", "")
    assert [as_cell(text) for text in ("-1.5e-3", "-1; -2.5; inf")] == ["-1.5e-3", "-1; -2.5; inf"]


def test_rows_that_cml_did_not_write_are_refused(tmp_path: Path) -> None:
    from cml.searching.index_file import Row

    for column, value in (("path", b"x"), ("columns", "[" * 100_000), ("columns", "[1]"), ("label", "[")):
        folder = tmp_path / f"{column}{len(str(value))}"
        cml.Index.create(folder, dimension=2, digest="m").add(np.eye(2, dtype=np.float32), ids=["a", "b"])
        with closing(sqlite3.connect(folder / "index.sqlite")) as db, db:
            db.execute(f"UPDATE items SET {column} = ?", [value])
            rows = db.execute("SELECT row, id, label, path, columns, added, vector FROM items").fetchall()
            for number, *item in rows:
                db.execute("UPDATE items SET crc = ? WHERE row = ?", [Row(*item).crc, number])
        with pytest.raises(UserError, match="cml did not write"):
            cml.Index.open(folder).search(np.eye(2, dtype=np.float32), k=1)
