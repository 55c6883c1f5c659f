"""Preparations that are killed, stopped or meet bad items: what is kept, what goes on, what is said."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat

from cml import cli
from cml.data.check_dataset import check_dataset
from cml.data.dataset_info import DatasetInfo
from cml.data.encode_image import Encoded
from cml.data.prepared import PreparedDataset
from cml.data.prepared_writer import Item, find_prepared, write_dataset
from cml.data_prep.sources.donkeycar import Donkeycar
from cml.data_prep.sources.folder import Folder
from cml.data_prep.sources.lspet import Lspet
from cml.errors import DataError, UserError
from cml.storage.partial_dataset import PartialDataset
from cml.storage.work_folder import encode_line

ROOT = Path(__file__).parents[2]
COUNT = 40  # people of the source that the tests kill
MADE_WITH = {"source": "test", "revision": 1, "settings": {"size": 8}, "input": "00"}


def content(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, to compare byte for byte."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }


def partial(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.partial")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as Lspet takes it."""
    folder = tmp_path_factory.mktemp("lspet")
    rng = np.random.default_rng(0)
    joints = np.ones((COUNT, 14, 3))
    joints[:, :, 0] = rng.uniform(5, 75, (COUNT, 14))
    joints[:, :, 1] = rng.uniform(5, 55, (COUNT, 14))
    savemat(folder / "joints.mat", {"joints": joints.transpose(1, 2, 0)})
    (folder / "images").mkdir()
    for number in range(COUNT):
        pixels = rng.integers(0, 256, (60, 80, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"images/im{number + 1:05d}.jpg")
    return folder


@pytest.fixture(scope="module")
def whole(people: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes | None]:
    """What an uninterrupted preparation writes."""
    return content(Lspet(people, image_size=32).prepare(tmp_path_factory.mktemp("whole") / "set").folder)


# ---- killed

HANG = """
import os, sys, time
from pathlib import Path
from cml.storage import atomic, partial_dataset
from cml.storage.partial_dataset import PartialDataset
from cml.storage.work_folder import WorkFolder
from cml.data_prep.sources.lspet import Lspet

def hang():
    print("here", flush=True)
    time.sleep(60)

real_write, real_record, real_publish, real_replace = (
    Path.write_bytes, WorkFolder.record, PartialDataset.publish, os.replace)
written, recorded = [], []
"""
MOMENTS = {  # name: where the process stands when it is killed, and how many items are finished by then
    "before the first image": ("WorkFolder.record = lambda *_, **__: hang()", 0),
    "half a file written": (
        """
        def write(path, content):
            written.append(path)
            if len(written) == 13:
                real_write(path, content[:500])
                hang()
            real_write(path, content)
        Path.write_bytes = write
        """,
        12,
    ),
    "a file written but not recorded": (
        """
        def record(self, entry, **how):
            recorded.append(entry)
            if len(recorded) == 21:
                hang()
            real_record(self, entry, **how)
        WorkFolder.record = record
        """,
        20,
    ),
    "half a record": (
        """
        def record(self, entry, **how):
            recorded.append(entry)
            real_record(self, entry, **how)
            if len(recorded) == 8:
                size = os.fstat(self._journal.fileno()).st_size
                self._journal.truncate(size - 15)
                hang()
        WorkFolder.record = record
        """,
        7,
    ),
    "all written, not published": ("PartialDataset.publish = lambda *_: hang()", COUNT),
    "just before it has its name": ("partial_dataset.os.replace = lambda *_: hang()", COUNT),
}


def kill_at(people: Path, out: Path, moment: str) -> None:
    """Prepare in a process of its own and kill it at a moment."""
    run = f"Lspet(Path({str(people)!r}), image_size=32).prepare(Path({str(out)!r}))"
    script = HANG + textwrap.dedent(moment) + "\n" + run
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def count_crops(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The photographs that are cropped from now on."""
    from cml.data_prep.person_crop import crop_file

    cropped = []

    def counted(photo: Path, *rest: Any) -> Image.Image:  # noqa: ANN401
        cropped.append(photo)
        return crop_file(photo, *rest)

    monkeypatch.setattr("cml.data_prep.person_items.crop_file", counted)
    return cropped


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_preparation_goes_on(
    people: Path,
    whole: dict[str, bytes | None],
    tmp_path: Path,
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script, finished = MOMENTS[moment]
    out = tmp_path / "set"
    kill_at(people, out, script)
    assert not out.exists()
    assert [path.name for path in tmp_path.iterdir()] == [".set.partial"]
    cropped = count_crops(monkeypatch)
    Lspet(people, image_size=32).prepare(out)
    assert len(cropped) == COUNT - finished
    assert (f"{finished} items were finished before" in capsys.readouterr().err) == (finished > 0)
    assert content(out) == whole
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


@pytest.mark.slow
def test_killed_twice_and_killed_after_the_end(
    people: Path, whole: dict[str, bytes | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "set"
    kill_at(people, out, MOMENTS["half a file written"][0])
    kill_at(people, out, MOMENTS["a file written but not recorded"][0])  # counts from the first item, old or new
    kill_at(people, out, "atomic.shutil.rmtree = lambda *_, **__: hang()")
    assert content(out) == whole  # it was published and died over its tidying up
    assert partial(out).exists()
    cropped = count_crops(monkeypatch)
    Lspet(people, image_size=32).prepare(out)
    assert cropped == []
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_other_settings_start_over(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "set"
    kill_at(people, out, MOMENTS["a file written but not recorded"][0])
    cropped = count_crops(monkeypatch)
    made = Lspet(people, image_size=16).prepare(out)
    assert len(cropped) == COUNT
    assert "was begun with different settings (image_size was 32, now 16); starting over" in capsys.readouterr().err
    assert check_dataset(made.folder) == []
    assert content(out) == content(Lspet(people, image_size=16).prepare(tmp_path / "other").folder)


def test_another_pillow_starts_over(people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "set"
    kill_at(people, out, MOMENTS["a file written but not recorded"][0])
    cropped = count_crops(monkeypatch)
    monkeypatch.setattr("PIL.__version__", "99")  # it may encode otherwise
    Lspet(people, image_size=32).prepare(out)
    assert len(cropped) == COUNT


def test_what_a_power_cut_has_torn_is_made_anew(
    people: Path, whole: dict[str, bytes | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "set"
    kill_at(people, out, MOMENTS["all written, not published"][0])
    images = sorted((partial(out) / "dataset").rglob("*.jpg"))
    images[0].write_bytes(b"")
    images[1].write_bytes(b"\0" * images[1].stat().st_size)
    images[2].unlink()
    images[3].with_name("stray.jpg").write_bytes(b"")
    record = partial(out) / "journal.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join(lines[:-2]) + encode_line({"item_id": 3}) + lines[-1])  # two more lost
    cropped = count_crops(monkeypatch)
    Lspet(people, image_size=32).prepare(out)
    assert 3 <= len(cropped) <= 5
    assert content(out) == whole


@pytest.mark.parametrize("head", [b"", b"junk\n", encode_line([]), encode_line({"made_with": 3}), b"\xff\n{}\n"])
def test_a_record_without_a_head_starts_over(
    people: Path, whole: dict[str, bytes | None], tmp_path: Path, head: bytes
) -> None:
    folder = partial(tmp_path / "set")
    folder.mkdir()
    (folder / "journal.jsonl").write_bytes(head)
    (folder / "dataset").mkdir()
    (folder / "dataset/stray").write_bytes(b"")
    assert content(Lspet(people, image_size=32).prepare(tmp_path / "set").folder) == whole


def picture(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8))


def info(label_column: str, **changes: Any) -> DatasetInfo:  # noqa: ANN401
    given = {"name": "tiny", "task": "value", "label_column": label_column, "made_with": MADE_WITH, **changes}
    return DatasetInfo(**{"label_unit": "", "frame": "", "source": "drawn", "licence": "MIT", **given})


@settings(deadline=None, max_examples=8)
@given(st.lists(st.integers(0, 11), max_size=4), st.sampled_from(["value", "layout_file_name"]), st.booleans())
def test_any_series_of_interruptions_gives_the_same(stops: list[int], label_column: str, skip_bad: bool) -> None:
    made: list[int] = []

    def pixels(number: int) -> Callable[[], Image.Image]:
        def make() -> Image.Image:
            made.append(number)
            return picture(number)

        return make

    def label(number: int) -> object:
        return (lambda: Image.new("L", (8, 8), number)) if label_column == "layout_file_name" else number

    def items(stop: int | None) -> Iterator[Item | DataError]:
        for number in range(12):
            if number == stop:
                raise KeyboardInterrupt
            if number == 5 and skip_bad:
                yield DataError("bad")
            role = ("train", "query", "gallery")[number % 3]
            yield Item(f"a/{number % 2}" if number < 2 else f"a_{number}", role, pixels(number), label(number))

    with tempfile.TemporaryDirectory() as folder:
        for name, where in (("whole", []), ("set", stops)):
            made.clear()
            for stop in where:
                with pytest.raises(KeyboardInterrupt):
                    write_dataset(Path(folder) / name, info(label_column), items(stop), threads=1, skip_bad=skip_bad)
            write_dataset(Path(folder) / name, info(label_column), items(None), threads=1, skip_bad=skip_bad)
            assert set(made) == set(range(12))
        assert content(Path(folder) / "set") == content(Path(folder) / "whole")
        assert sorted(path.name for path in Path(folder).iterdir()) == ["set", "whole"]


def test_without_made_with_nothing_is_kept(tmp_path: Path) -> None:
    def items() -> Iterator[Item]:
        yield Item("a", "train", picture(0), 0.0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_dataset(tmp_path / "set", info("value", made_with={}), items(), threads=1)
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_that_would_only_come_again_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no query items"):
        write_dataset(tmp_path / "set", info("value"), [Item("a", "train", picture(0), 0.0)])
    assert list(tmp_path.iterdir()) == []


# ---- two at a time


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "set"
    with PartialDataset(out, MADE_WITH) as first:
        with pytest.raises(UserError, match=f"Another process is working on {out}"):
            write_dataset(out, info("value"), [])
        assert (first.data.parent / "journal.jsonl").exists()  # the refused one leaves it alone
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_waited_for_the_folder_finds_it_taken(tmp_path: Path) -> None:
    out = tmp_path / "set"
    second = PartialDataset(out, MADE_WITH)
    items = [Item(role, role, picture(0), 0.0) for role in ("train", "query", "gallery")]
    write_dataset(out, info("value"), items)
    with pytest.raises(UserError, match="already exists"):
        second.__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    assert find_prepared(out, MADE_WITH) is not None


@pytest.mark.slow
def test_two_processes_at_once(people: Path, whole: dict[str, bytes | None], tmp_path: Path) -> None:
    out = tmp_path / "set"
    command = [sys.executable, "-m", "cml", "prepare", "lspet", "--source", str(people), "--image-size", "32"]
    processes = [
        subprocess.Popen(
            [*command, "--out", str(out)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=240)[1].decode() for process in processes]
    codes = [process.returncode for process in processes]
    assert 0 in codes
    for code, text in zip(codes, said, strict=True):
        assert code == 0 or (code == 2 and text.count("\n") == 1 and f"{out}" in text), text
    assert content(out) == whole
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


# ---- stopped by hand, full disk


@pytest.mark.slow
def test_control_c_is_one_line_and_goes_on(people: Path, whole: dict[str, bytes | None], tmp_path: Path) -> None:
    out = tmp_path / "set"
    arguments = ["prepare", "lspet", "--source", str(people), "--image-size", "32", "--out", str(out)]
    script = f"""
        import sys, time
        from cml import cli
        from cml.storage.work_folder import WorkFolder
        record, recorded = WorkFolder.record, []
        def slow(self, entry, **how):
            record(self, entry, **how)
            recorded.append(entry)
            if len(recorded) == 9:
                print("here", flush=True)
                time.sleep(60)
        WorkFolder.record = slow
        sys.exit(cli.main({arguments!r}))
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
    assert process.returncode == 130
    assert said.splitlines()[-1] == "stopped; 9 finished items are kept and the same command continues from there"
    assert cli.main(arguments) == 0
    assert content(out) == whole


def test_a_full_disk_is_one_line_and_goes_on(
    people: Path,
    whole: dict[str, bytes | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "set"
    really_write = Path.write_bytes
    written = 0

    def write_bytes(path: Path, content: bytes) -> int:
        nonlocal written
        written += 1
        if written == 8:
            really_write(path, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return really_write(path, content)

    arguments = ["prepare", "lspet", "--source", str(people), "--image-size", "32", "--out", str(out)]
    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err.strip()
    bars, _, error = said.rpartition("\n")
    assert all(line.startswith("prepare lspet: ") for line in bars.splitlines())
    assert f"disk is full: {out} could not be written; 7 finished items are kept" in error
    assert cli.main(arguments) == 0
    assert content(out) == whole


# ---- bad items


def bad_people(people: Path, folder: Path) -> Path:
    """A copy with four bad people: a truncated and an empty photograph, one that is missing, one bad joint."""
    from scipy.io import loadmat

    (folder / "images").mkdir(parents=True)
    for path in (people / "images").iterdir():
        (folder / "images" / path.name).write_bytes(path.read_bytes())
    joints = loadmat(people / "joints.mat")["joints"]
    joints[3, 2, 21] = 7
    savemat(folder / "joints.mat", {"joints": joints})
    cut = folder / "images/im00003.jpg"
    cut.write_bytes(cut.read_bytes()[:-200])
    (folder / "images/im00010.jpg").write_bytes(b"")
    (folder / "images/im00012.jpg").unlink()
    return folder


def test_bad_items_are_an_error_or_are_named_and_counted(
    people: Path, whole: dict[str, bytes | None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = bad_people(people, tmp_path / "in")
    arguments = ["prepare", "lspet", "--source", str(folder), "--image-size", "32", "--out", str(tmp_path / "set")]
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0
    assert "im00010.jpg" in said
    assert "--skip-bad" in said
    assert cli.main([*arguments, "--skip-bad"]) == 0
    printed = capsys.readouterr()
    assert "skipped as bad: 4. " in printed.out
    for what in ("im00003.jpg", "im00010.jpg", "im00012.jpg is missing", "third number of l_hip"):
        assert what in printed.err
    made = PreparedDataset.open(tmp_path / "set")
    assert sum(made.info.counts.values()) == COUNT - 4
    skipped = made.info.details["skipped"]
    assert skipped["count"] == len(skipped["first"]) == 4
    assert any("im00003" in name for name in skipped["first"])
    assert check_dataset(made.folder) == []
    for name, image in content(made.folder).items():
        if name.endswith(".jpg"):
            assert image == whole[name]
    assert cli.main([*arguments, "--json"]) == 0  # the same dataset, whether bad items would be skipped or not
    printed = capsys.readouterr()
    assert json.loads(printed.out)["skipped"] == skipped
    assert "4 bad items were skipped then" in printed.err


def test_after_a_bad_image_skip_bad_goes_on(people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "in"
    bad_people(people, folder)
    (folder / "joints.mat").write_bytes((people / "joints.mat").read_bytes())
    for number in (10, 12):  # one bad image alone, which only shows when it is decoded
        (folder / f"images/im{number:05d}.jpg").write_bytes((people / f"images/im{number:05d}.jpg").read_bytes())
    with pytest.raises(DataError, match=r"im00003.jpg.*truncated.*With --skip-bad"):
        Lspet(folder, image_size=32).prepare(tmp_path / "set")
    cropped = count_crops(monkeypatch)
    made = Lspet(folder, image_size=32).prepare(tmp_path / "set", skip_bad=True)
    assert made.info.details["skipped"] == {"count": 1, "first": ["im00003"]}
    assert len(cropped) == COUNT - 2
    assert content(made.folder) == content(
        Lspet(folder, image_size=32).prepare(tmp_path / "other", skip_bad=True).folder
    )


def test_only_the_first_bad_items_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items: list[Item | DataError] = [DataError(f"line {n} is bad") for n in range(30)]
    with pytest.raises(DataError, match=r"^line 0 is bad \(With --skip-bad"):
        write_dataset(tmp_path / "set", info("value"), items)
    items += [Item(role, role, picture(0), 0.0) for role in ("train", "query", "gallery")]
    made = write_dataset(tmp_path / "set", info("value"), items, skip_bad=True)
    assert made.info.details["skipped"] == {"count": 30, "first": [f"line {n} is bad" for n in range(10)]}
    said = capsys.readouterr().err
    assert said.count("skipped: line") == 10
    assert "skipped 30 bad items; the first 10 are listed above" in said


def test_a_list_is_looked_through_before_the_first_image(tmp_path: Path) -> None:
    def never() -> Image.Image:
        raise AssertionError

    with pytest.raises(DataError, match="late"):
        write_dataset(tmp_path / "set", info("value"), [Item("a", "train", never, 0.0), DataError("late")])


def test_everything_bad_and_wrong_labels(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no train items.* 2 bad items were skipped"):
        write_dataset(tmp_path / "set", info("value"), [DataError("a"), DataError("b")], skip_bad=True)
    roles = ("train", "query", "gallery")
    items = [*(Item(role, role, picture(0), 1.0) for role in roles), Item("odd", "train", picture(1), float("nan"))]
    with pytest.raises(DataError, match=r"value of item 'odd'.*--skip-bad"):
        write_dataset(tmp_path / "set", info("value"), items)
    made = write_dataset(tmp_path / "set", info("value"), items, skip_bad=True)
    assert made.info.details["skipped"]["first"] == ["odd"]
    assert check_dataset(made.folder) == []
    assert not list(made.folder.rglob("odd*"))


def test_a_mask_may_be_made_on_a_thread_and_may_be_bad(tmp_path: Path) -> None:
    def refuse() -> Image.Image:
        raise DataError("mask.png has another size")

    items = [
        Item(role, role, picture(n), lambda n=n: Image.new("L", (8, 8), n))
        for n, role in enumerate(("train", "query", "gallery"))
    ]
    made = write_dataset(tmp_path / "set", info("layout_file_name"), items)
    with Image.open(made.split("gallery").labels[0]) as mask:
        assert mask.getextrema() == (2, 2)
    items.append(Item("odd", "train", picture(3), refuse, where="line 4"))
    with pytest.raises(DataError, match=r"^line 4: mask.png has another size.*--skip-bad"):
        write_dataset(tmp_path / "bad", info("layout_file_name"), items)
    with pytest.raises(UserError, match="item 'odd' should be an image"):
        write_dataset(tmp_path / "bad", info("layout_file_name"), [*items[:3], Item("odd", "train", picture(3), "x")])
    png = Encoded(b"as it is", ".png")
    kept = write_dataset(tmp_path / "kept", info("layout_file_name"), [*items[:3], Item("e", "train", picture(4), png)])
    assert Path(kept.split("train").labels[1]).read_bytes() == b"as it is"


def test_bad_lines_of_a_folder_and_a_tub_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for n in range(20):
        picture(n).save(tmp_path / f"photos/{n}.png")
    good = [f"{n}.png,{n}" for n in range(19)]
    labels = tmp_path / "labels.csv"
    bad = ["gone.png,1", "1.png", "../x.png,1", "19.png,old"]
    labels.write_text("\n".join(["file_name,value", *good, *bad]))
    source = Folder(tmp_path / "photos", labels, test_fraction=0.5, query_fraction=0.5)
    with pytest.raises(DataError, match=r"labels.csv:21: the image .*gone.png is missing.*--skip-bad"):
        source.prepare(tmp_path / "set")
    made = source.prepare(tmp_path / "set", skip_bad=True)
    assert made.info.details["skipped"]["count"] == 4
    assert sum(made.info.counts.values()) == 19
    labels.write_text("\n".join(["file_name,value", *good, "0.png,2"]))
    with pytest.raises(DataError, match=r"labels.csv:21: '0.png' is already in .*--several mean or median"):
        source.prepare(tmp_path / "judged")

    tub = tmp_path / "tub"
    (tub / "images").mkdir(parents=True)
    lines = []
    for n in range(60):
        picture(n).save(tub / f"images/{n}.jpg")
        lines.append(json.dumps({"_index": n, "cam/image_array": f"{n}.jpg", "user/angle": n / 60}))
    lines[4] = "{"
    (tub / "images/7.jpg").unlink()
    (tub / "images/8.jpg").write_bytes(b"")
    (tub / "catalog_0.catalog").write_text("\n".join(lines))
    made = Donkeycar(tub, blocks=6, deal="TTTTQG", gap=0).prepare(tmp_path / "dset", skip_bad=True)
    assert made.info.details["skipped"]["count"] == 3
    assert sum(made.info.counts.values()) == 57
