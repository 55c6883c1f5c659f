"""The engine of work that survives a kill: what it refuses, what it does not follow, what it says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from export_runs import draw_images, make_run
from PIL import Image

import cml
from cml.data.dataset_info import DatasetInfo
from cml.data.image_list import ImageList
from cml.data.prepared_writer import Item, write_dataset
from cml.distances.euclidean import Euclidean
from cml.distances.jobs.job_options import JobOptions
from cml.distances.jobs.run import write_matrix
from cml.errors import UserError
from cml.export.captioning import CaptioningFeatures, export_captioning
from cml.searching.embed_folder import embed_folder
from cml.storage.resumable_output import resumable_output, work_path
from cml.storage.saved_options import difference
from cml.storage.work_folder import JOURNAL, encode_line, work_folder

SECRET = b"nobody's business"
Link = Callable[[Path, Path], object]
LINKS: dict[str, Link] = {"symbolic": lambda target, at: at.symlink_to(target), "hard": lambda to, at: os.link(to, at)}


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def prepare(out: Path) -> None:
    info = DatasetInfo("tiny", "value", "value", "", "", "drawn", "MIT", made_with={"source": "test"})
    items = [Item(role, role, Image.new("RGB", (8, 8), "red"), 0.0) for role in ("train", "query", "gallery")]
    write_dataset(out, info, items)


def distances(out: Path) -> None:
    distance = Euclidean()
    options = JobOptions(bar_after=None, strip_pairs=10)
    write_matrix(distance, distance.encode(list(range(20))), out, options=options)


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Callable[[Path], object], str, list[str]]]:
    """Of each command: what it does, its work folder beside or in the output, and files that it writes there."""
    folder = tmp_path_factory.mktemp("made")
    model = cml.load(make_run(folder / "run"), device="cpu").network
    draw_images(folder / "photos", 3, name="{}.png", size=48)
    images = ImageList.open(folder / "photos")

    def embed(out: Path) -> None:
        embed_folder(model, images, out, quiet=True)

    def export(layout: str) -> Callable[[Path], object]:
        options = CaptioningFeatures(layout=layout)  # type: ignore[arg-type]
        return lambda out: export_captioning(model, images.with_coco_ids(), out, options, quiet=True)

    features = "out/.cocotalk_manifest.partial-work"
    return {
        "prepare": (prepare, ".out.partial", ["dataset/dataset.json", "dataset/train/images/train.jpg"]),
        "distances": (distances, "out/.job.partial-work", ["matrix.npy"]),
        "embed": (embed, "out/.manifest.partial-work", ["embeddings.npy", "items.jsonl"]),
        "export directory": (export("directory"), features, ["cocotalk_fc/0.npy", "cocotalk_att/1.npz"]),
        "export hdf5": (export("hdf5"), features, ["cocotalk_fc.h5", "cocotalk_att.h5", "cocotalk_fc.h5.places.npy"]),
    }


COMMANDS = ["prepare", "distances", "embed", "export directory", "export hdf5"]
Made = dict[str, tuple[Callable[[Path], object], str, list[str]]]


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize("command", COMMANDS)
def test_links_that_a_stranger_left_are_not_followed(make: Made, command: str, kind: str, tmp_path: Path) -> None:
    run, work, names = make[command]
    run(tmp_path / "whole" / "out")
    for name in [*names, "journal.jsonl"]:
        secret = tmp_path / "secret"
        secret.write_bytes(SECRET)
        place = tmp_path / name.replace("/", "-")
        half = place / work
        (half / name).parent.mkdir(parents=True)
        LINKS[kind](secret, half / name)
        run(place / "out")
        assert secret.read_bytes() == SECRET
        assert content(place / "out") == content(tmp_path / "whole" / "out")
        assert [path.name for path in place.iterdir()] == ["out"]


@pytest.mark.parametrize("command", COMMANDS)
def test_linked_folders_are_not_followed(make: Made, command: str, tmp_path: Path) -> None:
    run, work, names = make[command]
    inner = [str(Path(name).parent) for name in names if "/" in name]
    for number, name in enumerate([".", *inner]):
        elsewhere, place = tmp_path / f"elsewhere{number}", tmp_path / str(number)
        (elsewhere / "mine").mkdir(parents=True)
        half = place / work / name
        half.parent.mkdir(parents=True)
        half.symlink_to(elsewhere)
        run(place / "out")
        assert [path.name for path in elsewhere.iterdir()] == ["mine"]
        assert [path.name for path in place.iterdir()] == ["out"]


def test_a_finished_journal_of_a_stranger_with_links_is_begun_anew(tmp_path: Path) -> None:
    """A link among pieces that the journal calls whole is no piece."""
    (tmp_path / "secret").write_bytes(SECRET)

    def stopped() -> None:
        with resumable_output(tmp_path / "o", {"a": 1}, ["x"]) as made:
            made.record({"seen": 1})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    (work_path(tmp_path / "o") / "x").symlink_to(tmp_path / "secret")
    with resumable_output(tmp_path / "o", {"a": 1}, ["x"]) as made:
        assert made.records == []
        assert not (made.work / "x").exists()
        made.finish({})
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["manifest.json"]


def test_a_record_that_names_a_file_elsewhere_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "secret.jpg").write_bytes(SECRET)
    with pytest.raises(MemoryError), work_folder(tmp_path / ".out.partial", {}, "it") as work:
        raise MemoryError
    from zlib import crc32

    from PIL import __version__

    head = {"made_with": {"source": "test", "pillow": __version__}, "about": {}}
    for name in ("../../secret.jpg", str(tmp_path / "secret.jpg")):
        item = {"item_id": "train", "files": {name: [len(SECRET), crc32(SECRET)]}}
        (work.root / "journal.jsonl").write_bytes(encode_line(head) + encode_line(item))
        prepare(tmp_path / "out")
        assert SECRET not in content(tmp_path / "out").values()
        (tmp_path / "out").rename(tmp_path / f"out{len(name)}")
        work.root.mkdir()


@pytest.mark.parametrize(
    ("there", "wanted", "words"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, "b was 2, now 3"),
        ({"a": 1}, {"a": 1, "b": 3}, "b was nothing, now 3"),
        ({"a": 1, "b": 3}, {"a": 1}, "b was 3, now nothing"),
        ({"source": "x", "settings": {"size": 3}}, {"source": "x", "settings": {"size": 4}}, "size was 3, now 4"),
        ({"images": "0" * 64}, {"images": "1" * 64}, "not with the same images"),
        ({"labels_fingerprint": "0" * 64}, {"labels_fingerprint": "1" * 64}, "not with the same labels"),
        ({"a": "x" * 90 + "1"}, {"a": "x" * 90 + "2"}, "a was ..1, now ..2"),
        ({"a": 1}, {"a": 1}, ""),
        ({}, {"a": 1}, "it does not say how"),
        ("text", {"a": 1}, "it does not say how"),
    ],
)
def test_the_first_difference_is_named_with_both_values(there: object, wanted: dict[str, object], words: str) -> None:
    assert difference(there, wanted) == words


def test_where_digests_differ_what_they_are_of_is_named(tmp_path: Path) -> None:
    with resumable_output(tmp_path, {"images": "0" * 64}, [], about={"images": "/a"}) as made:
        made.finish({"images": "/a"})
    with (
        pytest.raises(UserError, match=r"different settings \(images was /a, now /b\)"),
        resumable_output(tmp_path, {"images": "1" * 64}, [], about={"images": "/b"}),
    ):
        pass
    with (
        pytest.raises(UserError, match=r"different settings \(not with the same images\)"),
        resumable_output(tmp_path, {"images": "1" * 64}, [], about={"images": "/a"}),
    ):
        pass


def test_what_an_earlier_version_left_half_made_is_begun_anew(make: Made, tmp_path: Path) -> None:
    run, work, _ = make["embed"]
    (tmp_path / work).mkdir(parents=True)
    (tmp_path / work / "record.json").write_text('{"made_with": {}, "state": {"seen": 3}}')
    (tmp_path / work / "embeddings.npy").write_bytes(b"old")
    (tmp_path / work / "lock").touch()
    run(tmp_path / "out")
    run(tmp_path / "whole")
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_records_of_several_threads_are_all_kept(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with work_folder(tmp_path / "work", {"a": 1}, "it") as work:
        work.start_over()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: work.record({"n": number, "text": "x" * 5000}, sync=False), range(200)))
    with work_folder(tmp_path / "work", {"a": 1}, "it") as work:
        assert sorted(work.records(lambda entry: int(entry["n"]))) == list(range(200))
    np.testing.assert_equal(work.recorded, 200)


@pytest.mark.parametrize(
    "torn",
    [b"3", encode_line(3)[:-1], b'{"number": 3', b"\x00\x00\x00", b"nothing\n" + encode_line(4), b"00000000 4\n"],
)
def test_a_journal_is_cut_off_where_a_power_cut_tore_it(torn: bytes, tmp_path: Path) -> None:
    with work_folder(tmp_path / "work", {"size": 1}, "the work") as work:
        work.start_over()
        work.record(1)
        work.record(20)
    with (tmp_path / "work" / JOURNAL).open("ab") as journal:
        journal.write(torn)  # "3" is a whole number, and yet the beginning of a longer one
    for later in ([], [300]):
        with work_folder(tmp_path / "work", {"size": 1}, "the work") as work:
            assert not work.difference
            assert work.records(int) == [1, 20, *later]
            assert work.recorded == 2 + len(later)
            if not later:
                work.record(300)
