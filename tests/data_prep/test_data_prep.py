"""The data sources: real input where it is at hand, small files in the true format, broken input of every kind."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import tyro
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.io import loadmat, savemat

from cml import data_prep
from cml.array_types import Float64, UInt8
from cml.data.bands import upright_rgb
from cml.data.check_dataset import check_dataset
from cml.data.prepared import ROLES, PreparedDataset
from cml.data_prep import folder_split, row_files
from cml.data_prep.hash_split import split_by_hash
from cml.data_prep.person_crop import Box, crop, crop_file, into_crop, person_box
from cml.data_prep.provenance import record_provenance
from cml.data_prep.sources.donkeycar import Donkeycar, deal_roles
from cml.data_prep.sources.folder import Folder
from cml.data_prep.sources.lspet import JOINTS, Lspet, read_joints
from cml.data_prep.synthetic.people.source import People
from cml.errors import DataError, UserError

RealData = Callable[[str], Path]


def jpeg(seed: int, width: int = 32, height: int = 24) -> bytes:
    content = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(content, "JPEG")
    return content.getvalue()


def pixels_of(path: Path) -> UInt8:
    with Image.open(path) as image:
        return np.asarray(image)


def roles_of(dataset: PreparedDataset) -> dict[str, str]:
    return {item_id: role for role in ROLES for item_id in dataset.split(role).item_ids}


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


# ---- what all sources share


def test_registry() -> None:
    assert {"donkeycar", "folder", "lspet", "people"} <= set(data_prep.names())
    assert data_prep.get("people", count=24) == People(count=24)
    with pytest.raises(UserError, match="Did you mean 'lspet'"):
        data_prep.get("lsped")
    with pytest.raises(UserError, match="needs the setting 'source'"):
        data_prep.get("lspet")


@pytest.mark.parametrize("name", data_prep.names())
def test_every_source_is_a_command_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    entry = data_prep.registry.entry(name)
    with pytest.raises(SystemExit) as ended:
        tyro.cli(entry, args=["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert f"cml prepare {name} " in shown or f"cml prepare {name}:" in shown
    assert "Licence:" in shown
    for field in dataclasses.fields(entry):  # type: ignore[arg-type]
        assert f"--{field.name.replace('_', '-')}" in shown


def test_flags_become_settings() -> None:
    source = tyro.cli(Folder, args=["--images", "a", "--labels", "b.csv", "--label-columns", "x", "y"])
    assert source == Folder(Path("a"), Path("b.csv"), label_columns=("x", "y"))
    assert tyro.cli(Lspet, args=["--source", "a", "--margin", "0.5"]) == Lspet(Path("a"), margin=0.5)


def test_roles_by_hash_keep_their_shares() -> None:
    roles = Counter(split_by_hash(f"item {n}", 0.3, 0.25) for n in range(5_000))
    assert roles["train"] / 5_000 == pytest.approx(0.7, abs=0.02)
    assert roles["query"] / 5_000 == pytest.approx(0.075, abs=0.012)
    smaller = {n for n in range(500) if split_by_hash(str(n), 0.2, 0.5) != "train"}
    larger = {n for n in range(500) if split_by_hash(str(n), 0.4, 0.5) != "train"}
    assert smaller < larger  # a larger share only adds to the test items


def test_made_with_follows_content_not_place(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "images").mkdir(parents=True)
        (tmp_path / name / "images/1.jpg").write_bytes(b"12")
        (tmp_path / name / "labels.csv").write_text("x")

    def origin(name: str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
        folder = tmp_path / name
        source = Folder(folder / "images", folder / "labels.csv", **changes)
        return record_provenance(source, revision=1, files=[source.labels], images=source.images)

    assert origin("a") == origin("b")
    assert origin("a") != origin("a", unit="m")
    (tmp_path / "b/labels.csv").write_text("y")
    assert origin("a") != origin("b")
    (tmp_path / "a/images/2.jpg").write_bytes(b"1")
    assert origin("a")["input"] != record_provenance(Folder(tmp_path, tmp_path), revision=1)["input"]
    with pytest.raises(DataError, match=r"gone.csv cannot be read"):
        record_provenance(People(), revision=1, files=[tmp_path / "gone.csv"])
    with pytest.raises(DataError, match="should be a folder"):
        record_provenance(People(), revision=1, images=tmp_path / "gone")


# ---- donkeycar


def catalog(count: int) -> list[dict[str, Any]]:
    return [
        {"_index": n, "cam/image_array": f"{n}_cam.jpg", "user/angle": round(math.sin(n / 5), 3), "user/mode": "user"}
        for n in range(count)
    ]


def tub_files(count: int = 60) -> dict[str, bytes]:
    text = "".join(json.dumps(entry) + "\n" for entry in catalog(count)).encode()
    manifest = b'["cam/image_array"]\n' + json.dumps({"paths": ["catalog_0.catalog"], "deleted_indexes": []}).encode()
    images = {f"images/{n}_cam.jpg": jpeg(n) for n in reversed(range(count))}  # archives keep no order
    return images | {
        "catalog_0.catalog": text,
        "manifest.json": manifest,
        "._catalog_0.catalog": b"\0\5junk",
        "images/._0_cam.jpg": b"\0\5junk",
        "catalog_0.catalog_manifest": b"{}",
    }


def pack(path: Path, files: dict[str, bytes], mode: Literal["w", "w:gz"] = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"tub/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


SMALL: dict[str, Any] = {"blocks": 6, "deal": "TTTTQG", "gap": 2}


@pytest.mark.slow
def test_donkeycar_on_the_real_tub(real_data: RealData, tmp_path: Path) -> None:
    source = Donkeycar(real_data("donkeycar_tub") / "tub.tar.gz")
    dataset = source.prepare(tmp_path / "set")
    assert dataset.info.counts == {"train": 640, "query": 100, "gallery": 200}
    assert (dataset.info.task, dataset.info.label_column) == ("value", "value")
    frames = {role: np.array([int(name) for name in dataset.split(role).item_ids]) for role in ROLES}
    for role in ROLES:
        for other in set(ROLES) - {role}:  # frames within +-30 nearly duplicate each other
            assert np.abs(frames[role][:, None] - frames[other]).min() > 30
    with tarfile.open(source.source) as archive:
        text = archive.extractfile("tub/catalog_0.catalog")
        assert text is not None
        angles = {entry["_index"]: entry["user/angle"] for entry in map(json.loads, text)}
        for role in ROLES:
            split = dataset.split(role)
            assert list(split.labels) == [angles[frame] for frame in frames[role]]
            assert min(split.labels) < -0.6
            assert max(split.labels) > 0.89
            assert abs(np.mean(split.labels) - np.mean(list(angles.values()))) < 0.05
            first = archive.extractfile(f"tub/images/{frames[role][0]}_cam_image_array_.jpg")
            assert first is not None
            assert split.paths[0].read_bytes() == first.read()
    assert check_dataset(dataset.folder) == []
    before = times(dataset.folder)
    assert source.prepare(dataset.folder).fingerprint == dataset.fingerprint
    assert times(dataset.folder) == before


def test_an_unpacked_tub_gives_the_same_items(tmp_path: Path) -> None:
    files = tub_files()
    for name, content in files.items():
        (tmp_path / "tub" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tub" / name).write_bytes(content)
    packed = Donkeycar(pack(tmp_path / "tub.tar.gz", files), **SMALL).prepare(tmp_path / "a")
    unpacked = Donkeycar(tmp_path / "tub", **SMALL).prepare(tmp_path / "b")
    for role in ROLES:
        a, b = packed.split(role), unpacked.split(role)
        assert (a.item_ids, a.labels) == (b.item_ids, b.labels)
        assert [path.read_bytes() for path in a.paths] == [path.read_bytes() for path in b.paths]
        assert list(a.item_ids) == sorted(a.item_ids)  # in the order of time, whatever the archive's
        for item_id, path in zip(a.item_ids, a.paths, strict=True):
            assert path.read_bytes() == jpeg(int(item_id))
    assert Counter(roles_of(packed).values()) == {"train": 38, "query": 10, "gallery": 8}


def test_deleted_frames_are_left_out(tmp_path: Path) -> None:
    files = tub_files()
    files["manifest.json"] = b'[]\n{"deleted_indexes": [0, 7]}\n'
    del files["images/7_cam.jpg"]
    ids = roles_of(Donkeycar(pack(tmp_path / "t.tar.gz", files), **SMALL).prepare(tmp_path / "set"))
    assert "000000" not in ids
    assert "000007" not in ids
    assert "000001" in ids


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 60), st.text("TQG", min_size=1, max_size=6), st.integers(3, 12), st.integers(0, 8))
def test_dealt_roles_agree_with_loops(frames: int, deal: str, blocks: int, gap: int) -> None:
    letters = [deal[(frame * blocks // frames) % len(deal)] for frame in range(frames)]
    names = {"T": "train", "Q": "query", "G": "gallery"}
    expected: list[str | None] = [names[letter] for letter in letters]
    for role, stricter in (("gallery", ("query",)), ("train", ("query", "gallery"))):
        chosen = [frame for frame in range(frames) if expected[frame] in stricter]
        for frame in range(frames):
            if expected[frame] == role and any(abs(frame - other) <= gap for other in chosen):
                expected[frame] = None
    assert deal_roles(frames, deal=deal, blocks=blocks, gap=gap) == expected


def _line(line: int, text: str) -> Callable[[dict[str, bytes]], None]:
    def put(files: dict[str, bytes]) -> None:
        rows = files["catalog_0.catalog"].splitlines()
        rows[line - 1] = text.encode()
        files["catalog_0.catalog"] = b"\n".join(rows)

    return put


def _frame(number: int, **changes: Any) -> str:  # noqa: ANN401
    return json.dumps(catalog(number + 1)[number] | changes)


BROKEN_TUBS: dict[str, tuple[Callable[[dict[str, bytes]], object], str]] = {
    "no catalog": (lambda files: files.pop("catalog_0.catalog"), "holds no catalog_N.catalog"),
    "no json": (_line(3, '{"_index": 2'), "catalog_0.catalog:3: is not JSON"),
    "a list": (_line(3, "[]"), "catalog_0.catalog:3: should be a JSON object"),
    "nan": (_line(3, _frame(2, **{"user/angle": math.nan})), "catalog_0.catalog:3: user/angle .*Got nan"),
    "text": (_line(3, _frame(2, **{"user/angle": "0.5"})), "catalog_0.catalog:3: user/angle .*Got '0.5'"),
    "no angle": (_line(3, '{"_index": 2, "cam/image_array": "2_cam.jpg"}'), "catalog:3: user/angle .*Got None"),
    "no image name": (_line(3, '{"_index": 2}'), "catalog_0.catalog:3: cam/image_array .*Got None"),
    "no index": (_line(3, "{}"), "catalog_0.catalog:3: _index .*Got None"),
    "index twice": (_line(3, _frame(1)), "catalog_0.catalog:3: _index 1 is already in .*catalog_0.catalog:2"),
    "image missing": (
        lambda files: files.pop("images/2_cam.jpg"),
        "catalog_0.catalog:3: .*images/2_cam.jpg is missing",
    ),
    "leads out": (_line(3, _frame(2, **{"cam/image_array": "../../x.jpg"})), r"3: the image images/../../x.jpg is"),
    "image cut": (
        lambda files: files.update({"images/2_cam.jpg": jpeg(2)[:-99]}),
        "catalog_0.catalog:3, images/2_cam.jpg: The image cannot be read: .*truncated",
    ),
    "manifest": (lambda files: files.update({"manifest.json": b"[]\n{"}), "manifest.json:2: is not JSON"),
    "two tubs": (lambda files: files.update({"second/catalog_1.catalog": b""}), "holds several tubs"),
}


@pytest.mark.parametrize("kind", BROKEN_TUBS)
def test_broken_tubs(tmp_path: Path, kind: str) -> None:
    spoil, message = BROKEN_TUBS[kind]
    files = tub_files()
    spoil(files)
    with pytest.raises(DataError, match=message) as caught:
        Donkeycar(pack(tmp_path / "tub.tar.gz", files), **SMALL).prepare(tmp_path / "set")
    assert str(tmp_path / "tub.tar.gz") in str(caught.value)
    kept = {".set.partial"} if kind == "image cut" else set()  # frames before it wait for a second try
    assert {path.name for path in tmp_path.iterdir()} == {"tub.tar.gz"} | kept


@pytest.mark.parametrize("share", [0.001, 0.3, 0.9])
def test_a_half_downloaded_archive(tmp_path: Path, share: float) -> None:
    path = pack(tmp_path / "tub.tar.gz", tub_files())
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(DataError, match=r"tub.tar.gz is not a complete tar archive.*Fetch it again"):
        Donkeycar(path).prepare(tmp_path / "set")


@pytest.mark.parametrize("share", [0.001, 0.3, 0.7])
def test_a_half_downloaded_plain_archive(tmp_path: Path, share: float) -> None:
    path = pack(tmp_path / "tub.tar", dict(reversed(tub_files().items())), mode="w")
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(DataError, match=r"tub\.tar is not a complete|tub\.tar:catalog_0.catalog:.* is missing"):
        Donkeycar(path).prepare(tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_other_archives_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.tar.gz").write_text("no archive")
    with pytest.raises(DataError, match="is not a complete tar archive"):
        Donkeycar(tmp_path / "text.tar.gz").prepare(tmp_path / "set")
    with pytest.raises(DataError, match=r"gone.tar.gz cannot be read"):
        Donkeycar(tmp_path / "gone.tar.gz").prepare(tmp_path / "set")
    with pytest.raises(DataError, match="holds no catalog"):
        Donkeycar(tmp_path).prepare(tmp_path / "set")
    path = pack(tmp_path / "tub.tar.gz", tub_files())
    with pytest.raises(UserError, match="would have no train items"):
        Donkeycar(path, gap=1000).prepare(tmp_path / "set")
    monkeypatch.setattr("cml.data_prep.archive.LARGEST", 1000)
    with pytest.raises(DataError, match=r"images/59_cam.jpg has .* bytes; the limit is 1,000"):
        Donkeycar(path).prepare(tmp_path / "set")
    for changes in ({"deal": "TQX"}, {"deal": ""}, {"blocks": 2}, {"gap": -1}):
        with pytest.raises(UserError, match="should be"):
            Donkeycar(path, **changes)


def test_links_in_an_archive_are_not_followed(tmp_path: Path) -> None:
    files = tub_files()
    del files["images/2_cam.jpg"]
    path = pack(tmp_path / "tub.tar", files, mode="w")
    with tarfile.open(path, "a") as archive:
        link = tarfile.TarInfo("tub/images/2_cam.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(DataError, match=r"images/2_cam.jpg is missing"):
        Donkeycar(path).prepare(tmp_path / "set")


def test_no_room_to_unpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, content: object) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.SpooledTemporaryFile", lambda max_size: Full())
    with pytest.raises(UserError, match=r"no room to unpack .*TMPDIR"):
        Donkeycar(pack(tmp_path / "tub.tar.gz", tub_files())).prepare(tmp_path / "set")


def test_a_killed_preparation_leaves_nothing_at_out(tmp_path: Path) -> None:
    source = pack(tmp_path / "tub.tar.gz", tub_files())
    script = f"""
        import time
        from pathlib import Path
        from cml.data.prepared_writer import PreparedWriter
        from cml.data_prep.sources.donkeycar import Donkeycar
        add, added = PreparedWriter.add, []
        def slow(self, items):
            add(self, items)
            added.append(items)
            if len(added) == 30:
                print("half", flush=True)
                time.sleep(60)
        PreparedWriter.add = slow
        Donkeycar(Path({str(source)!r}), blocks=6, deal="TTTTQG", gap=2).prepare(Path({str(tmp_path / "set")!r}))
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "set").exists()
    assert check_dataset(Donkeycar(source, **SMALL).prepare(tmp_path / "set").folder) == []


# ---- lspet


def people_joints(count: int = 30) -> Float64:
    """(count, 14, 3): joints inside photographs of 80 x 60 pixels, the first two hidden, with junk for a place."""
    rng = np.random.default_rng(0)
    joints = np.ones((count, 14, 3))
    joints[:, :, 0] = rng.uniform(5, 75, (count, 14))
    joints[:, :, 1] = rng.uniform(5, 55, (count, 14))
    joints[:, :2] = [-1e5, 1e5, 0]
    return joints


def lspet_folder(folder: Path, joints: Float64, photos: int | None = None) -> Path:
    (folder / "images").mkdir(parents=True)
    savemat(folder / "joints.mat", {"joints": joints.transpose(1, 2, 0)})
    for number in range(len(joints) if photos is None else photos):
        (folder / f"images/im{number + 1:05d}.jpg").write_bytes(jpeg(number, 80, 60))
    return folder


def test_lspet_on_the_real_photographs(real_data: RealData, tmp_path: Path) -> None:
    source = Lspet(real_data("lspet400"), image_size=64)
    dataset = source.prepare(tmp_path / "set")
    raw = loadmat(source.source / "joints.mat")["joints"]
    assert sum(dataset.info.counts.values()) == int((raw[:, 2].sum(axis=0) >= 8).sum()) == 392
    assert dataset.info.counts == {"train": 225, "query": 50, "gallery": 117}
    assert dataset.info.details["joints"] == list(JOINTS)
    assert dataset.info.details["image_size"] == [64, 64]
    assert dataset.info.details["left_out"] == {"fewer than 8 visible joints": 8}
    for role in ROLES:
        split = dataset.split(role)
        labels = np.array(split.labels)  # (N, 14, 3)
        visible = labels[:, :, 2] == 1
        assert (labels[~visible] == 0).all()
        people = [int(item_id[2:]) - 1 for item_id in split.item_ids]
        assert np.array_equal(visible, raw[:, 2, people].T == 1)
        low = np.where(visible[:, :, None], labels[:, :, :2], np.inf).min(axis=1)
        high = np.where(visible[:, :, None], labels[:, :, :2], -np.inf).max(axis=1)
        assert np.allclose(low.min(axis=1), 64 * 0.25 / 1.5, atol=0.02)  # the longer side touches both margins
        assert np.allclose(high.max(axis=1), 64 * 1.25 / 1.5, atol=0.02)
        assert np.allclose(low + high, 64, atol=0.02)  # the joints stand in the middle
        assert pixels_of(split.paths[0]).shape == (64, 64, 3)
    before = times(dataset.folder)
    source.prepare(dataset.folder)
    assert times(dataset.folder) == before
    with pytest.raises(UserError, match="image_size was 64, now 32"):
        Lspet(source.source, image_size=32).prepare(dataset.folder)


@pytest.mark.parametrize("size", [32, 160, 300])
@pytest.mark.parametrize("shift", [0.0, 0.37])
def test_joints_stay_on_the_picture(size: int, shift: float) -> None:
    joints = np.zeros((14, 3))
    image = np.zeros((150, 200, 3), np.uint8)
    for joint, (x, y) in enumerate([(31, 25), (170, 40), (95, 120), (60, 90)]):
        image[y - 3 : y + 4, x - 3 : x + 4] = 255  # a square around the middle of pixel (x, y)
        joints[joint] = x + 0.5, y + 0.5, 1
    box = person_box(joints, 0.3)
    box = Box(box.left + shift, box.top - shift, box.side)
    moved = into_crop(joints, box, size)
    assert np.array_equal(moved[4:], np.zeros((10, 3)))
    pixels = np.asarray(crop(Image.fromarray(image), box, size)).mean(axis=2)
    reach = 6 * size / box.side
    rows, columns = np.mgrid[:size, :size] + 0.5
    for x, y, _ in moved[:4]:
        near = np.where((abs(columns - x) <= reach) & (abs(rows - y) <= reach), pixels, 0)
        assert near.sum() > 0
        assert (near * columns).sum() / near.sum() == pytest.approx(x, abs=0.25)
        assert (near * rows).sum() / near.sum() == pytest.approx(y, abs=0.25)


def test_crops_beyond_the_border_repeat_it() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    image = Image.fromarray(pixels)
    assert np.array_equal(
        np.asarray(crop(image, Box(-5, -7, 40), 40)), np.pad(pixels, ((7, 13), (5, 5), (0, 0)), mode="edge")
    )
    assert np.array_equal(np.asarray(crop(image, Box(4, 3, 16), 16)), pixels[3:19, 4:20])
    for box in (Box(-30, -40, 20), Box(45, 2, 16)):  # wholly outside: the border's pixels alone
        rows = np.arange(int(box.top), int(box.top + box.side)).clip(0, 19)
        columns = np.arange(int(box.left), int(box.left + box.side)).clip(0, 29)
        assert np.array_equal(np.asarray(crop(image, box, int(box.side))), pixels[rows[:, None], columns])


@pytest.mark.parametrize(
    ("size", "orientation", "smaller"),
    [((1301, 899), 1, True), ((1304, 896), 6, True), ((1301, 899), 6, False)],  # 8 divides the second's sides
)
def test_large_jpegs_are_decoded_smaller_and_the_crop_stays_in_place(
    tmp_path: Path, size: tuple[int, int], orientation: int, smaller: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 256, (9, 13, 3), np.uint8))
    photo = small.resize(size, Image.Resampling.BICUBIC)
    upright = photo if orientation == 1 else photo.transpose(Image.Transpose.ROTATE_270)
    exif = Image.Exif()
    exif[0x0112] = orientation
    photo.save(tmp_path / "a.jpg", quality=98, subsampling=0, exif=exif)
    decoded: list[tuple[int, int]] = []

    def spied(image: Image.Image) -> Image.Image:
        decoded.append(image.size)
        return upright_rgb(image)

    monkeypatch.setattr("cml.data_prep.person_crop.upright_rgb", spied)
    for box, times in ((Box(103.3, 51.8, 700.4), 8), (Box(-40.5, 20.25, 350), 4), (Box(300, 200.7, 130), 1)):
        cut = np.asarray(crop_file(tmp_path / "a.jpg", box, 40)).astype(float)
        assert decoded[-1] == (tuple(math.ceil(side / times) for side in size) if smaller else size)
        whole = np.asarray(crop(upright, box, 40)).astype(float)
        moved = np.asarray(crop(upright, Box(box.left + box.side / 80, box.top, box.side), 40)).astype(float)
        assert np.abs(cut - whole).mean() < 2.5
        assert np.abs(cut - whole).mean() < 0.4 * np.abs(cut - moved).mean()  # less than half a crop's pixel away


def test_both_layouts_of_joints(tmp_path: Path) -> None:
    joints = people_joints()
    savemat(tmp_path / "a.mat", {"joints": joints.transpose(1, 2, 0)})  # (14, 3, N)
    savemat(tmp_path / "b.mat", {"joints": joints.transpose(2, 1, 0)})  # (3, 14, N)
    expected = np.where(joints[:, :, 2:] == 1, joints, 0)
    assert np.array_equal(read_joints(tmp_path / "a.mat"), expected)
    assert np.array_equal(read_joints(tmp_path / "b.mat"), expected)
    flipped = joints.copy()
    flipped[:, :, 2] = 1 - joints[:, :, 2]
    savemat(tmp_path / "c.mat", {"joints": flipped.transpose(1, 2, 0)})
    assert np.array_equal(read_joints(tmp_path / "c.mat", "occluded"), expected)


def test_people_without_enough_joints_are_left_out(tmp_path: Path) -> None:
    joints = people_joints()
    joints[3, 5:, 2] = 0  # three visible
    joints[4, 2, :2] = (-30, 20)  # outside its photograph
    joints[5, 2, :2] = (81, 60.5)  # a click just beside the border
    dataset = Lspet(lspet_folder(tmp_path / "in", joints), image_size=32).prepare(tmp_path / "set")
    assert dataset.info.details["left_out"] == {"fewer than 8 visible joints": 1}
    assert dataset.info.details["joints_outside_the_photograph"] == 1
    labels = {
        item_id: label
        for role in ROLES
        for item_id, label in zip(dataset.split(role).item_ids, dataset.split(role).labels, strict=True)
    }
    assert "im00004" not in labels
    assert labels["im00005"][2] == [0, 0, 0]
    assert labels["im00006"][2][2] == 1
    assert len(labels) == 29


def test_broken_joints(tmp_path: Path) -> None:
    joints = people_joints(3)
    good = tmp_path / "good.mat"
    savemat(good, {"joints": joints.transpose(1, 2, 0)})
    shape_faults: list[tuple[str, dict[str, Any], str]] = [
        ("other", {"points": joints}, "should hold a variable 'joints'"),
        ("flat", {"joints": joints[0]}, "14 x 3 x N.*Got 14 x 3 of float64"),
        ("shape", {"joints": np.ones((5, 14, 3))}, "Got 5 x 14 x 3"),
        ("text", {"joints": "abc"}, "should be numbers"),
    ]
    for name, content, message in shape_faults:
        savemat(tmp_path / f"{name}.mat", content)
        with pytest.raises(DataError, match=message):
            read_joints(tmp_path / f"{name}.mat")
    (tmp_path / "cut.mat").write_bytes(good.read_bytes()[:-300])
    (tmp_path / "no.mat").write_text("no matlab file, but long enough to be taken for one " * 20)
    for name in ("cut.mat", "no.mat", "gone.mat"):
        with pytest.raises(DataError, match=rf"{name} cannot be read as a .mat file"):
            read_joints(tmp_path / name)


def test_broken_lspet_folders(tmp_path: Path) -> None:
    joints = people_joints()
    with pytest.raises(DataError, match=r"joints.mat: person 30: the photograph .*im00030.jpg is missing"):
        Lspet(lspet_folder(tmp_path / "few", joints, photos=29)).prepare(tmp_path / "set")
    with pytest.raises(DataError, match=r"there are no photographs"):
        Lspet(lspet_folder(tmp_path / "none", joints, photos=0)).prepare(tmp_path / "set")
    with pytest.raises(DataError, match=r"30 people, but there is im00031.jpg"):
        Lspet(lspet_folder(tmp_path / "many", joints, photos=31)).prepare(tmp_path / "set")
    with pytest.raises(DataError, match=r"joints.mat cannot be read \(No such file"):
        Lspet(tmp_path).prepare(tmp_path / "set")
    cut = lspet_folder(tmp_path / "cut", joints)
    (cut / "images/im00007.jpg").write_bytes(jpeg(6, 80, 60)[:-500])
    with pytest.raises(DataError, match=r"im00007.jpg.*truncated"):
        Lspet(cut).prepare(tmp_path / "set")
    nan, flag = joints.copy(), joints.copy()
    nan[1, 6, 0] = math.nan
    flag[2, 5, 2] = 7
    with pytest.raises(DataError, match=r"joints.mat: person 2: r_wrist is visible but its place is not finite"):
        Lspet(lspet_folder(tmp_path / "nan", nan)).prepare(tmp_path / "set")
    with pytest.raises(DataError, match=r"joints.mat: person 3: .* of l_ankle should be 0 or 1. Got 7"):
        Lspet(lspet_folder(tmp_path / "flag", flag)).prepare(tmp_path / "set")
    with pytest.raises(DataError, match=r"of l_ankle should be 0 or 1. Got 7"):
        Lspet(lspet_folder(tmp_path / "second", flag), third_number="occluded").prepare(tmp_path / "set")
    assert not (tmp_path / "set").exists()
    for changes in (
        {"image_size": 4},
        {"margin": -1.0},
        {"margin": math.nan},
        {"min_joints": 1},
        {"test_fraction": 1.0},
    ):
        with pytest.raises(UserError, match="should be"):
            Lspet(cut, **changes)


# ---- folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    for number in range(20):
        name = f"sub/{number}.jpg" if number % 2 else f"{number}.jpg"
        (folder / name).write_bytes(jpeg(number, 40, 30))
    return folder


def names_of(photos: Path) -> list[str]:
    return sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.jpg"))


def csv_of(photos: Path, header: str, row: Callable[[int, str], str]) -> Path:
    path = photos.parent / "labels.csv"
    path.write_text(header + "\n" + "".join(row(n, name) + "\n" for n, name in enumerate(names_of(photos))))
    return path


def test_folder_with_csv(photos: Path, tmp_path: Path) -> None:
    labels = csv_of(photos, "file_name,value,note", lambda n, name: f'{name}, {n / 4} ,"a, b"')
    source = Folder(photos, labels, test_fraction=0.5, query_fraction=0.5, unit="years")
    dataset = source.prepare(tmp_path / "set")
    assert dataset.info.label_unit == "years"
    assert dataset.info.task == "value"
    assert dataset.info.name == "photos"
    assert dataset.info.counts == {"train": 10, "query": 10, "gallery": 0}
    assert check_dataset(dataset.folder) == []
    for role in ROLES:
        split = dataset.split(role)
        for item_id, path, label in zip(split.item_ids, split.paths, split.labels, strict=True):
            assert label == names_of(photos).index(item_id) / 4
            assert path.read_bytes() == (photos / item_id).read_bytes()
    before = times(dataset.folder)
    source.prepare(dataset.folder)
    assert times(dataset.folder) == before
    with pytest.raises(UserError, match="unit was years, now days"):
        dataclasses.replace(source, unit="days").prepare(dataset.folder)


@pytest.mark.parametrize("count", [12, 20, 40, 80, 199, 700, 1000])
def test_shares_are_exact_and_few_test_items_are_queries_that_search_each_other(count: int) -> None:
    items = [SimpleNamespace(name=f"{n}.jpg", split=None, group=f"{n}.jpg", label=0.0) for n in range(count)]
    rest = {"classes": False, "grouped": False}
    found = folder_split.assign_roles(items, 0.3, 0.3, seed=0, **rest)
    test = round(0.3 * count)
    expected = {"query": test} if test < 200 else {"query": round(0.3 * test), "gallery": test - round(0.3 * test)}
    assert Counter(found.values()) == {"train": count - test, **expected}
    assert folder_split.assign_roles(items[::-1], 0.3, 0.3, seed=0, **rest) == found
    other = folder_split.assign_roles(items, 0.3, 0.3, seed=1, **rest)
    assert Counter(other.values()) == Counter(found.values())
    assert other != found


def test_groups_stay_whole_and_meet_the_share_as_nearly_as_they_can(photos: Path, tmp_path: Path) -> None:
    items = [SimpleNamespace(name=str(n), split=None, group=str(n // 7), label=0.0) for n in range(700)]
    found = folder_split.assign_roles(items, 0.3, 0.3, seed=0, classes=False, grouped=True)
    assert len({(one.group, found[one.name]) for one in items}) == 100
    counts = Counter(found.values())
    assert counts["train"] == 490
    assert counts["query"] == 63  # of 210; groups hold 7
    labels = csv_of(photos, "file_name,value,person", lambda n, name: f"{name},{n},{n % 5}")
    dataset = Folder(photos, labels, group_column="person", test_fraction=0.4, query_fraction=0.5).prepare(
        tmp_path / "set"
    )
    assert dataset.info.counts == {"train": 12, "query": 4, "gallery": 4}
    people = {role: {names_of(photos).index(one) % 5 for one in dataset.split(role).item_ids} for role in ROLES}
    assert [len(one) for one in people.values()] == [3, 1, 1]
    kept = dict(zip(dataset.split("train").item_ids, dataset.read_groups("train", "person"), strict=True))
    assert kept == {name: str(names_of(photos).index(name) % 5) for name in kept}


def test_consecutive_images_are_groups(photos: Path, tmp_path: Path) -> None:
    labels = csv_of(photos, "file_name,value", lambda n, name: f"{name},{n}")
    options: dict[str, Any] = {"test_fraction": 0.4, "query_fraction": 0.5}
    dataset = Folder(photos, labels, group_rows=4, **options).prepare(tmp_path / "set")
    assert dataset.info.counts == {"train": 12, "query": 4, "gallery": 4}
    blocks = [{int(value) // 4 for value in dataset.split(role).labels} for role in ROLES]
    assert sorted(map(len, blocks)) == [1, 1, 3]
    assert set(dataset.read_groups("query", "group")) == {f"rows {4 * n + 1} to {4 * n + 4}" for n in blocks[1]}


@pytest.mark.parametrize("column", ["value", "role", "photo_file_name"])
def test_a_group_column_whose_name_is_taken_is_kept_by_another(column: str, photos: Path, tmp_path: Path) -> None:
    labels = csv_of(photos, f"image,age,{column}", lambda n, name: f"{name},{n},{n % 5}")
    options: dict[str, Any] = {"file_column": "image", "label_columns": ("age",), "group_column": column}
    dataset = Folder(photos, labels, **options, test_fraction=0.4, query_fraction=0.5).prepare(tmp_path / "set")
    assert dataset.info.group_column == "group"
    number = {name: str(position % 5) for position, name in enumerate(names_of(photos))}
    assert dataset.read_groups("train", "group") == [number[name] for name in dataset.split("train").item_ids]
    assert all(isinstance(label, float) for label in dataset.split("train").labels)


def test_folder_with_vectors_and_a_split(photos: Path, tmp_path: Path) -> None:
    split = ["train", "query", "gallery", "test"]
    labels = csv_of(photos, "split,x,image,y", lambda n, name: f"{split[n % 4]},{n},{name},{-n}e-1")
    columns = {"label_columns": ("x", "y"), "file_column": "image", "split_column": "split"}
    dataset = Folder(photos, labels, **columns).prepare(tmp_path / "set")  # type: ignore[arg-type]
    roles = roles_of(dataset)
    for n, name in enumerate(names_of(photos)):
        assert roles[name] == split[n % 4] if n % 4 < 3 else roles[name] != "train"
    assert len(dataset.split("query")) == 5 + round(0.3 * 5)
    assert list(dataset.split("train").labels) == [[n, -n / 10] for n in range(0, 20, 4)]
    assert dataset.info.details == {"label_columns": ["x", "y"]}


def test_folder_with_jsonl_and_smaller_images(photos: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text(
        "\n".join(json.dumps({"file_name": name, "value": [1, 2.5]}) for name in names_of(photos)) + "\n\n"
    )
    source = Folder(photos, labels, test_fraction=0.6, query_fraction=0.5, image_size=16)
    dataset = source.prepare(tmp_path / "set")
    for role in ROLES:
        assert set(map(tuple, dataset.split(role).labels)) == {(1, 2.5)}
        assert all(pixels_of(path).shape == (16, 21, 3) for path in dataset.split(role).paths)
    kept = dataclasses.replace(source, image_size=30).prepare(tmp_path / "kept")
    split = kept.split("train")
    assert [path.read_bytes() for path in split.paths] == [(photos / name).read_bytes() for name in split.item_ids]


CSV_FAULTS = {
    "missing image": ("gone.jpg,1", r"labels.csv:3: the image .*gone.jpg is missing"),
    "a word": ("2.jpg,old", r"labels.csv:3: value should be a finite number. Got 'old'"),
    "decimal comma": ('2.jpg,"1,5"', r"labels.csv:3: value should be a finite number. Got '1,5'"),
    "an underscore": ("2.jpg,1_0", r"labels.csv:3: value should be a finite number. Got '1_0'"),
    "empty": ("2.jpg,", r"labels.csv:3: value should be a finite number. Got ''"),
    "nan": ("2.jpg,nan", r"labels.csv:3: value should be a finite number. Got 'nan'"),
    "infinite": ("2.jpg,-inf", r"labels.csv:3: value should be a finite number. Got '-inf'"),
    "a cell less": ("2.jpg", r"labels.csv:3: should have 2 cells"),
    "a cell more": ("2.jpg,1,2", r"labels.csv:3: should have 2 cells"),
    "twice": ("0.jpg,1", r"labels.csv:3: '0.jpg' is already in .*labels.csv:2"),
    "twice, written otherwise": ("./0.jpg,1", r"labels.csv:3: '0.jpg' is already in .*labels.csv:2"),
    "absolute": ("/etc/passwd,1", r"labels.csv:3: the image '/etc/passwd' should be relative"),
    "upwards": ("../photos/2.jpg,1", r"labels.csv:3: .* without '\.\.'"),
    "no name": (",1", r"labels.csv:3: file_name should be the path"),
    "a folder": ("sub,1", r"labels.csv:3: the image .*sub is missing"),
    "open quote": ('2.jpg,"1', r"labels.csv:3: is not CSV"),
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_tables_as_other_programs_write_them(
    photos: Path, tmp_path: Path, encoding: str, delimiter: str, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = ("train", "Val", "validation", "test", "train")
    lines = ["file_name , value,split,größe"]
    lines += [f"{photos.resolve() / name},{n},{splits[n % 5]},x" for n, name in enumerate(names_of(photos))]
    labels = tmp_path / ("labels.tsv" if delimiter == "\t" else "labels.csv")
    text = "\r\n".join(lines).replace(",", delimiter)
    labels.write_bytes(("\ufeff" * (encoding == "utf-16-be") + text).encode(encoding))
    dataset = Folder(photos, labels, split_column="split").prepare(tmp_path / "set")
    roles = roles_of(dataset)
    assert [roles[name] == "train" for name in names_of(photos)] == [n % 5 in (0, 4) for n in range(20)]
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith(str(labels))]
    guesses = [f"{labels} is read as UTF-16."] if encoding.startswith("utf-16") else []
    if delimiter != ",":
        guesses.append(f"{labels} is read with cells separated by {'semicolons' if delimiter == ';' else 'tabs'}.")
    assert said == [
        *guesses,
        f"{labels} is read without the white space around the names of its columns.",
        f"{labels}: paths that begin with {photos} are taken relative to it.",
        f"{labels}: split 'Val' is taken for 'test'.",
        f"{labels}: split 'validation' is taken for 'test'.",
        f"{labels}: reads value: 0 ({names_of(photos)[0]})",
        f"{labels}: split says train: 8 training items; test: 12 queries.",
        f"{labels}: labels of kind numbers (--kind) are compared by euclidean (--label-distance).",
    ]


def test_of_a_plain_table_only_the_reading_is_said(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Folder(photos, csv_of(photos, 'file_name,"a;b",', lambda n, name: f"{name},{n},"), label_columns=("a;b",)).prepare(
        tmp_path / "set"
    )
    said = [line.partition("labels.csv: ")[2] for line in capsys.readouterr().err.splitlines() if "labels.csv" in line]
    kind = "labels of kind numbers (--kind) are compared by euclidean (--label-distance)."
    assert said == [f"reads a;b: 0 ({names_of(photos)[0]})", kind]


def test_what_became_of_each_value_of_the_split_column_is_said(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split = ["train", "query", "gallery", "test"]
    labels = csv_of(photos, "file_name,angle,split", lambda n, name: f"{name},{n},{split[n % 4]}")
    options: dict[str, Any] = {"kind": "angle", "split_column": "split", "query_fraction": 0.4}
    Folder(photos, labels, **options).prepare(tmp_path / "set")
    said = capsys.readouterr().err
    roles = "train: 5 training items; query: 5 queries; gallery: 5 gallery items"
    assert f"{labels}: split says {roles}; test: 2 queries and 3 gallery items (--query-fraction)." in said
    assert f"{labels}: labels of kind angle are compared by circular (--label-distance)." in said
    Folder(photos, labels, **options, label_distance="circular(period=24)").prepare(tmp_path / "hours")
    assert "compared by" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "whole"), [("9007199254740992", 2**53), ("9007199254740993", None), (2**60 + 1, None), ("-1e23", -1e23)]
)
def test_whole_numbers_that_would_be_rounded_are_refused(value: object, whole: float | None) -> None:
    if whole is not None:
        assert row_files.number(value, "id", "a.csv:2") == whole
        return
    with pytest.raises(DataError, match=r"a\.csv:2: id should be a number that float64 holds exactly.*--kind classes"):
        row_files.number(value, "id", "a.csv:2")


def test_a_column_that_is_there_twice_is_refused(photos: Path, tmp_path: Path) -> None:
    labels = csv_of(photos, "file_name,value, value ", lambda n, name: f"{name},{n},{n + 1}")
    with pytest.raises(DataError, match=r"labels\.csv:1: the column 'value' is there twice; rename or delete one"):
        Folder(photos, labels).prepare(tmp_path / "set")


@pytest.mark.parametrize("kind", CSV_FAULTS)
def test_broken_csv(photos: Path, tmp_path: Path, kind: str) -> None:
    line, message = CSV_FAULTS[kind]
    labels = tmp_path / "labels.csv"
    labels.write_text(f"file_name,value\n0.jpg,1\n{line}\n")
    with pytest.raises(DataError, match=message):
        Folder(photos, labels).prepare(tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_broken_folders(photos: Path, tmp_path: Path) -> None:
    labels = csv_of(photos, "file_name,value", lambda n, name: f"{name},{n}")

    def message(**changes: Any) -> str:  # noqa: ANN401
        with pytest.raises(UserError) as caught:
            Folder(**{"images": photos, "labels": labels, **changes}).prepare(tmp_path / "set")
        assert not (tmp_path / "set").exists()
        return str(caught.value)

    missing = message(label_columns=("age",))
    assert missing.endswith("no column 'age'. There are: file_name, value. Name yours with --label-columns.")
    assert message(file_column="path").endswith("Name yours with --file-column.")
    assert message(split_column="split").endswith("Name yours with --split-column.")
    with pytest.raises(UserError, match="no column 'age'"):  # not every row skipped
        Folder(photos, labels, label_columns=("age",)).prepare(tmp_path / "set", skip_bad=True)
    assert "value should be one of train, query, gallery, test, val, validation. Got '0'" in message(
        split_column="value"
    )
    assert "should be a folder" in message(images=tmp_path / "gone")
    assert "gone.csv cannot be read" in message(labels=tmp_path / "gone.csv")
    assert "at least one column" in message(label_columns=())
    assert "image_size" in message(image_size=0)
    assert "test_fraction" in message(test_fraction=0.0)
    (tmp_path / "labels.txt").write_text("")
    assert "should be a .csv, .tsv, .jsonl, .json, .parquet or .xlsx file" in message(labels=tmp_path / "labels.txt")
    for name, content, expected in (
        ("empty.csv", b"", "lists no images"),
        ("header.csv", b"file_name,value\n", "lists no images"),
        ("latin.csv", "file_name,value\nä.jpg,1\n".encode("latin-1"), "should be UTF-8"),
        ("a.jsonl", b'{"file_name": "0.jpg", "value": 1}\n{"file_name"\n', "a.jsonl:2: is not JSON"),
        ("b.jsonl", b"[1]\n", "b.jsonl holds a list: name it .json"),
        ("b2.jsonl", b'{"file_name": "0.jpg", "value": 1}\n[1]\n', "b2.jsonl:2: should be a JSON object"),
        ("c.jsonl", b'{"file_name": "0.jpg", "value": NaN}\n', "c.jsonl:1: value should be a finite number"),
        ("d.jsonl", b'{"file_name": "0.jpg", "value": true}\n', "d.jsonl:1: value should be a finite number"),
        ("e.jsonl", b'{"file_name": "0.jpg", "value": [1, null]}\n', "e.jsonl:1: value should be a finite number"),
        (
            "f.jsonl",
            b'{"file_name": "0.jpg", "value": 1}\n{"file_name": "2.jpg", "value": [1]}\n',
            "f.jsonl:2: the label",
        ),
        ("g.jsonl", b'{"file_name": "0.jpg", "value": []}\n', "g.jsonl:1: the label holds empty"),
        ("h.jsonl", b'{"file_name": 7, "value": 1}\n', "h.jsonl:1: file_name should be the path"),
    ):
        (tmp_path / name).write_bytes(content)
        assert expected in message(labels=tmp_path / name)
    (photos / "2.jpg").write_bytes((photos / "2.jpg").read_bytes()[:-300])
    for size in (None, 16):
        text = message(image_size=size)
        assert "2.jpg" in text
        assert "truncated" in text
        assert f"labels.csv:{names_of(photos).index('2.jpg') + 2}" in text


# ---- people


def test_people(tmp_path: Path) -> None:
    from cml.data_prep.synthetic.people import people as synthetic

    source = People(count=24, size=32, seed=3)
    dataset = source.prepare(tmp_path / "set")
    drawn = synthetic.draw_people(24, size=32, seed=3)
    assert dataset.info.counts == {"train": 16, "query": 2, "gallery": 6}
    assert dataset.info.details == {"joints": list(synthetic.JOINTS), "image_size": [32, 32]}
    number = 0
    for role in ROLES:
        split = dataset.split(role)
        for path, label in zip(split.paths, split.labels, strict=True):
            assert np.array_equal(pixels_of(path), drawn.images[number])
            assert np.allclose(label, drawn.keypoints[number], atol=0.006)
            number += 1
    assert number == 24
    before = times(dataset.folder)
    dataclasses.replace(source, workers=2).prepare(dataset.folder)  # nothing is drawn: it is there already
    assert times(dataset.folder) == before
    with pytest.raises(UserError, match="seed was 3, now 4"):
        dataclasses.replace(source, seed=4).prepare(dataset.folder)
    with pytest.raises(UserError, match="at least 12"):
        People(count=11)
    more = People(count=24, size=16, train=16).prepare(tmp_path / "more")
    assert more.info.counts == {"train": 16, "query": 2, "gallery": 6}
    assert People(count=24, size=16, train=4).prepare(tmp_path / "few").info.counts == {
        "train": 4,
        "query": 5,
        "gallery": 15,
    }
    with pytest.raises(UserError, match="at least 4 of the 24 pictures for testing"):
        People(count=24, train=21)


def test_an_interrupted_preparation_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cml.data.prepared_writer import PreparedWriter

    add = PreparedWriter.add
    added = 0

    def interrupted(self: PreparedWriter, items: Any) -> None:  # noqa: ANN401
        nonlocal added
        added += 1
        if added == 20:
            raise KeyboardInterrupt
        add(self, items)

    monkeypatch.setattr(PreparedWriter, "add", interrupted)
    with pytest.raises(KeyboardInterrupt, match="19 finished items are kept and the same command continues"):
        People(count=24, size=16).prepare(tmp_path / "set")
    assert [path.name for path in tmp_path.iterdir()] == [".set.partial"]
    assert check_dataset(People(count=24, size=16).prepare(tmp_path / "set").folder) == []
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
