"""Files made to do harm: each is refused by one error that names it, quickly and in little memory."""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import os
import re
import struct
import sys
import tarfile
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from cml.data.encode_image import encode
from cml.data.images import native_size, read_image
from cml.data.masks import MaskFault, read_mask
from cml.data_prep import archive
from cml.data_prep.mat_file import read_variable
from cml.errors import DataError, UserError
from cml.registry import Choice, Registry
from cml.storage.json_file import parse_json, read_json
from cml.storage.regular_file import map_array
from cml.storage.safe_paths import file_inside

# ---- file names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "below").mkdir(parents=True)
    Image.new("L", (2, 2)).save(folder / "below" / "a.png")
    (tmp_path / "secret.png").write_bytes((folder / "below" / "a.png").read_bytes())
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "within.png").symlink_to("below/a.png")
    (folder / "out").symlink_to(tmp_path)
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "device.png").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe.png")
    return folder


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/etc/passwd", "without '..'"),
        ("../secret.png", "without '..'"),
        ("below/../../secret.png", "without '..'"),
        ("..\\secret.png", "backslash"),
        ("C:\\secret.png", "backslash"),
        ("below/a.png\0.jpg", "NUL"),
        ("", "should be the path"),
        (" ", "should be the path"),
        (7, "should be the path"),
        (None, "should be the path"),
        ("x" * 300, "longer than any file name"),
        ("y/" * 3000, "longer than any file name"),
        ("link.png", "leads out of"),
        ("out/secret.png", "leads out of"),
        ("loop.png", "is missing"),
        ("device.png", "is missing"),
        ("pipe.png", "is missing"),
        ("below", "is missing"),
        ("\ud800.png", "is missing"),
        ("gone.png", "is missing"),
    ],
)
def test_names_that_leave_the_folder_or_name_no_file(folder: Path, name: object, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        file_inside(folder, name, "labels.csv:3")
    assert str(caught.value).startswith("labels.csv:3: the image")
    assert len(str(caught.value)) < 2000


def test_names_of_files_in_the_folder(folder: Path, tmp_path: Path) -> None:
    assert file_inside(folder, "below//./a.png", "here") == folder / "below" / "a.png"
    assert file_inside(folder, "within.png", "here") == folder / "within.png"
    (tmp_path / "elsewhere").symlink_to(folder)  # the folder may be a link: the user named it
    assert file_inside(tmp_path / "elsewhere", "below/a.png", "here").is_file()


def test_pipes_and_devices_are_not_waited_for(folder: Path) -> None:
    for path in (folder / "pipe.png", Path("/dev/zero"), folder):
        with pytest.raises(DataError, match="no regular file"):
            read_json(path, "x")
        with pytest.raises(OSError, match="no regular file"):
            map_array(path)
        with pytest.raises(DataError, match="no regular file"):
            read_image(path)
        with pytest.raises(DataError, match="no regular file"):
            read_variable(path, "x")
        with pytest.raises(DataError, match="no regular file"):
            list(archive.members(path, re.compile(".*")))


# ---- JSON


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "is nested too deep"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "is nested too deep"),
        (b"9" * 5000, "thousands of digits"),
        (b'{"a": NaN}', "holds NaN"),
        (b"[-Infinity]", "holds -Infinity"),
        (b'{"a": 1, "b": 2, "a": 3}', "names the key 'a' twice"),
        (b'{"a": {"role": 1, "r\\u006fle": 2}}', "names the key 'role' twice"),
        (b'["\\ud800"]', "half a character"),
        (b'{"\\uDFFF\\uD83D": 1}', "half a character"),
        (b'"\xff"', "is not UTF-8"),
        ("[1]".encode("utf-16"), "is not UTF-8"),
        (b'"\xed\xa0\x80"', "is not UTF-8"),
        (b"", "is not JSON"),
        (b"\xef\xbb\xbf[1]", "is not JSON"),
        (b'"a\nb"', "is not JSON"),
        (b"[1] [2]", "is not JSON"),
    ],
)
def test_odd_json(text: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text)
    (tmp_path / "x.json").write_bytes(text)
    with pytest.raises(DataError, match=rf"x\.json should hold the config .* cannot be parsed: it .*{message}"):
        read_json(tmp_path / "x.json", "the config")


def test_json_that_is_fine() -> None:
    assert parse_json('{"a": ["\\ud83d\\ude00", "é"], "b": -1.5e3}'.encode()) == {"a": ["😀", "é"], "b": -1500.0}
    assert parse_json(b'"\\ud800"', surrogates=True) == "\ud800"
    assert np.isnan(parse_json(b"NaN", finite=False))


# ---- images


def png(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in ((b"IHDR", header), *chunks, (b"IEND", b"")))


def bomb(kind: str) -> bytes:
    file = io.BytesIO()
    if kind == "zeros":  # 400 megapixels of zeros in 400 KB
        return png(20_000, 20_000, (b"IDAT", zlib.compress(bytes(20_001 * 1000)) * 1))
    if kind == "a little over":
        return png(9500, 9500, (b"IDAT", zlib.compress(b"0")))
    if kind == "giant":
        return png(2**31 - 1, 2**31 - 1, (b"IDAT", zlib.compress(b"0")))
    if kind == "text":  # a comment that unpacks to 100 MB
        return png(2, 2, (b"zTXt", b"k\0\0" + zlib.compress(bytes(70 << 20), 1)), (b"IDAT", zlib.compress(bytes(6))))
    if kind == "profile":
        return png(2, 2, (b"iCCP", b"k\0\0" + zlib.compress(bytes(70 << 20), 1)), (b"IDAT", zlib.compress(bytes(6))))
    if kind == "bmp":
        return b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, 100_000, 100_000, 1, 24, 0, 0, 0, 0, 0, 0)
    if kind == "tiff":
        Image.new("L", (4, 4)).save(file, "TIFF")
        head = file.getvalue()
        return head.replace(struct.pack("<HHII", 256, 4, 1, 4), struct.pack("<HHII", 256, 4, 1, 2**31 - 1), 1)
    if kind == "gif":
        return b"GIF89a" + struct.pack("<HH", 65_535, 65_535) + b"\0\0\0" + b",\0\0\0\0\xff\xff\xff\xff\0\2\0;"
    if kind == "postscript":
        return b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) run\n%%EOF\n"
    Image.new("RGB", (64, 64)).save(file, "JPEG")
    return {"truncated": file.getvalue()[:300], "empty": b"", "text file": b"<svg onload=alert(1)>"}[kind]


BOMBS = ("zeros", "a little over", "giant", "bmp", "tiff", "gif", "postscript", "truncated", "empty", "text file")


@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_images_that_are_bombs_or_none(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(bomb(kind))
    for read in (read_image, lambda path: read_image(path, (8, 8)), encode, lambda path: encode(path.read_bytes())):
        with pytest.raises(DataError, match=r"limit|cannot be read"):
            read(path)
    with pytest.raises(MaskFault, match=r"limit|cannot be read|is a JPEG"):
        read_mask(path)
    if kind != "truncated":  # its header is whole
        with pytest.raises(DataError, match=r"photo\.jpg .*(limit|cannot be read)"):
            native_size(path)


@pytest.mark.parametrize("kind", ["text", "profile"])
def test_comments_and_profiles_that_are_bombs(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(bomb(kind))
    tracemalloc.start()
    try:
        assert read_image(path).shape == (2, 2, 3)
    except DataError as error:
        assert "cannot be read" in str(error)  # noqa: PT017 - either is right: what counts is the memory
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 16 << 20


def test_pillows_warning_of_a_bomb_is_an_error() -> None:
    from cml.data.open_image import MAX_PIXELS

    assert Image.MAX_IMAGE_PIXELS is not None
    assert MAX_PIXELS <= Image.MAX_IMAGE_PIXELS


# ---- arrays


def npy(header: str, content: bytes = b"") -> bytes:
    head = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + content


@pytest.mark.parametrize(
    "content",
    [
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 1000000)}", bytes(64)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000000000000000, 2)}", bytes(64)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4)}", bytes(64)),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"cos\nsystem\n(S'true'\ntR."),
        npy("{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (1,)}", bytes(64)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "(" * 3000 + ")" * 3000 + ",)}", bytes(64)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os').system('true'),)}", bytes(64)),
        npy("-" * 9000 + "1"),
        npy('"""'),
        npy("{'descr': 'V0', 'fortran_order': False, 'shape': (3,)}"),
        b"\x93NUMPY\x01\x00\xff\xff{",
        b"\x93NUMPY\x09\x00",
        b"PK\x03\x04" + bytes(60),
        b"\x80\x04cos\nsystem\n",
        b"",
    ],
)
def test_arrays_that_lie(tmp_path: Path, content: bytes) -> None:
    from cml.distances.precomputed import Precomputed

    path = tmp_path / "matrix.npy"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"."):
        map_array(path)
    with pytest.raises(DataError, match=r"matrix\.npy cannot be read"):
        Precomputed(str(path))


# ---- .mat files


def mat(*elements: bytes) -> bytes:
    return b"MATLAB 5.0".ljust(124) + struct.pack("<H", 0x0100) + b"IM" + b"".join(elements)


def element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def array(kind: int, shape: tuple[int, ...], *inner: bytes, name: bytes = b"") -> bytes:
    head = element(6, struct.pack("<II", kind, 0)) + element(5, struct.pack(f"<{len(shape)}i", *shape))
    return element(14, head + element(1, name) + b"".join(inner))


def nested(depth: int) -> bytes:
    made = array(6, (1, 1), element(9, bytes(8)))
    for _ in range(depth):
        made = array(1, (1, 1), made)
    return made


_NUMBER = array(6, (1, 1), element(9, bytes(8)))
LIES = {
    "cells": array(1, (2**30, 8), _NUMBER, name=b"x"),
    "cells in a cell": array(1, (1, 1), array(1, (2**30, 8), _NUMBER), name=b"x"),
    "texts": array(4, (2**30, 4), element(16, b""), name=b"x"),
    "numbers": array(6, (2**30, 4), element(9, bytes(8)), name=b"x"),
    "negative": array(6, (-1, 1), element(9, bytes(8)), name=b"x"),
    "structs": array(2, (2**31 - 1, 1), element(5, struct.pack("<i", 8)), element(1, b"field".ljust(8)), name=b"x"),
    "no fields": array(2, (2**31 - 1, 1), element(5, struct.pack("<i", 8)), element(1, b""), name=b"x"),
    "fields of no length": array(2, (1, 1), element(5, bytes(4)), element(1, b"field"), _NUMBER, name=b"x"),
    "nested": array(1, (1, 1), nested(300), name=b"x"),
    "a function": array(16, (1, 1), _NUMBER, name=b"x"),
    "hidden behind": array(1, (1, 1), array(6, (1, 1), element(9, bytes(8)), array(1, (2**30, 8))), name=b"x"),
    "twice": array(6, (1, 1), element(9, bytes(8)), name=b"x") * 2,
    "too long": struct.pack("<II", 14, 2**31) + bytes(64),
    "cut": array(6, (1, 1), element(9, bytes(8)), name=b"x")[:-9],
    "bomb": element(15, zlib.compress(bytes(8 << 20))),
    "not packed": element(15, b"no zlib stream, but long enough"),
}


@pytest.mark.parametrize("kind", LIES)
def test_mat_files_that_lie(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cml.data_prep.mat_file.MOST_UNPACKED", 4 << 20)
    path = tmp_path / "a.mat"
    path.write_bytes(mat(LIES[kind]))
    with pytest.raises(DataError, match=r"a\.mat cannot be read as a \.mat file"):
        read_variable(path, "x")


def test_mat_files_of_any_size_and_other_versions(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole, which no disk needs to hold
    with pytest.raises(DataError, match="more than such a file has"):
        read_variable(path, "x")
    savemat(path, {"x": 1.0}, format="4")
    with pytest.raises(DataError, match="does not begin as a file of version 5 to 7"):
        read_variable(path, "x")
    path.write_bytes(mat(array(6, (2, 1), element(9, struct.pack("<2d", 1, 2)), name=b"x"), LIES["cells"][:-8]))
    with pytest.raises(DataError, match="cannot be read"):
        read_variable(path, "x")
    path.write_bytes(mat(array(6, (2, 1), element(9, struct.pack("<2d", 1, 2)), name=b"x")))
    assert read_variable(path, "x").tolist() == [[1], [2]]


# ---- archives


def tar(*files: tuple[str, bytes], form: str = "w:gz", kind: bytes = tarfile.REGTYPE) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=form) as made_archive:  # type: ignore[call-overload]
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname = len(content), kind, "/etc/passwd"
            made_archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def read_archive(path: Path) -> list[str]:
    return [match[0] for match, _ in archive.members(path, re.compile(r".*\.jpg"))]


def test_archives_write_nothing_and_follow_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "in" / "a.tar.gz"
    path.parent.mkdir()
    path.write_bytes(tar(("../../slip.jpg", b"x"), ("/abs/slip.jpg", b"x")))
    assert read_archive(path) == ["../../slip.jpg", "/abs/slip.jpg"]  # names are matched by who asks, never opened
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE):
        path.write_bytes(tar(("a.jpg", b""), kind=kind))
        assert read_archive(path) == []
    assert sorted(tmp_path.rglob("*")) == [path.parent, path]
    assert not Path("/abs").exists()


def test_archives_that_are_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tar"
    monkeypatch.setattr(archive, "FREE", 1 << 20)
    for form in ("w:gz", "w:bz2", "w:xz"):
        path.write_bytes(tar(("unasked.bin", bytes(4 << 20)), ("a.jpg", b"x"), form=form))
        with pytest.raises(DataError, match=r"unpacks to over .* the limit for an archive of its size"):
            read_archive(path)
    monkeypatch.setattr(archive, "LARGEST", 1 << 20)
    path.write_bytes(tar(("a.jpg", bytes(archive.LARGEST + 1)), form="w"))
    with pytest.raises(DataError, match=r"a\.jpg has .* bytes; the limit is"):
        read_archive(path)
    monkeypatch.setattr(archive, "MOST_MEMBERS", 3)
    path.write_bytes(tar(*((f"{number}.jpg", b"") for number in range(5)), form="w"))
    with pytest.raises(DataError, match="over 3 members"):
        read_archive(path)
    monkeypatch.setattr(archive, "MOST_BYTES", 1000)
    with pytest.raises(DataError, match="unpacks to over 1,000 bytes"):
        read_archive(path)


def test_archives_with_lying_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FREE", 4 << 20)

    def header(size: bytes, kind: bytes, name: bytes = b"a.jpg") -> bytes:
        head = bytearray(512)
        head[: len(name)] = name
        head[100:124] = b"0000644\00000000\00000000\0"
        head[124:136], head[136:148], head[156:157] = size, b"00000000000\0", kind
        head[257:265] = b"ustar\x0000"
        head[148:156] = b" " * 8
        head[148:156] = b"%06o\0 " % sum(head)
        return bytes(head)

    path = tmp_path / "a.tar"
    largest, negative = b"\x80" + b"\x00" * 3 + b"\x7f" + b"\xff" * 7, b"\xff" * 11 + b"\x00"
    for content in (
        header(largest, b"0"),  # a member of eight exabytes
        header(largest, b"x"),  # a header as long
        header(largest, b"L"),
        header(negative, b"1") + bytes(1024),  # points back: some versions of tarfile read it for ever
        header(b"00000000000\0", b"x") * 5000,  # headers of headers
        header(b"00000000012\0", b"x") + b"9999999999 a=b".ljust(512, b"\0"),
        bz2.compress(bytes(8 << 20)),
    ):
        path.write_bytes(content)
        try:
            assert read_archive(path) == []
        except DataError as error:
            assert str(error).startswith(str(path))  # noqa: PT017 - some are only empty


# ---- choices


@pytest.mark.parametrize(
    "text",
    [
        *("a(x=__import__('os'))", "a(x=1e999)", "a(x=b'')", "a(x={1, 2})", "a(x=1j)", "a(x={1: 2})", "a(x=...)"),
        *("a(x=" + "[" * 100_000, "a(x=" + "-" * 50_000 + "1)", "a(**b)", "a(x=1, x=2)", "a(1)", "\0", "a(x=\0)", ""),
        *("a(x=" + "9" * 5000 + ")", "a(x=[y for y in b])", "a(x=f'{y}')", "a(x=lambda: 1)", "a(x=y.z)", "a(x=y[0])"),
    ],
)
def test_choices_are_plain_values(text: str) -> None:
    with pytest.raises(UserError):
        Choice.parse(text)


def test_settings_of_any_name_and_type_are_the_users_error() -> None:
    def entry(size: int = 1) -> int:
        return range(size)[0]

    registry = Registry("thing", {"a": entry})
    assert registry.make("a") == 0
    for text in ("a(name=3)", "a(self=3)", "a(size=big)", "a(size=[])", "a(size=0)"):
        with pytest.raises(UserError, match="The thing"):
            registry.make(text)
    with pytest.raises(UserError, match="should read"):
        Choice.parse(5)  # type: ignore[arg-type]


# ---- indexes and runs


@pytest.mark.parametrize("name", ["../a.jpg", "/etc/passwd", "x\0", 7, ""])
def test_items_of_embeddings_that_lie_elsewhere(tmp_path: Path, name: object) -> None:
    from cml.searching.embedding_folder import DIGESTED, EmbeddingFolder
    from cml.storage.regular_file import digest_file

    rows, folder = np.zeros((1, 2), np.float32), tmp_path / "folder"
    folder.mkdir()
    np.save(folder / "embeddings.npy", rows)
    (folder / "items.jsonl").write_text(json.dumps({"item_id": "a", "file_name": name}) + "\n")
    about = {"format": 1, "run": "", "images": "/photos", "items": 1, "skipped": 0, "dimension": 2, "model": "m"}
    made = {"made_with": {"model": "m", "images": ""}, "sha256": {n: digest_file(folder / n) for n in DIGESTED}}
    (folder / "manifest.json").write_text(json.dumps(about | made))
    with pytest.raises(DataError, match=r"items\.jsonl:1 is not an item"):
        EmbeddingFolder.open(tmp_path / "folder").search(rows, 1)


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of 120 items that counts as a large one."""
    pytest.importorskip("faiss")
    import cml

    monkeypatch.setattr("cml.searching.approximate._EXACT_TO", 90)
    monkeypatch.setattr("cml.searching.approximate._BESIDE", 50)
    index = cml.Index.create(tmp_path / "index", dimension=4, digest="m")
    index.add(np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32), ids=range(120))
    assert index.method == "hnsw"
    return index.folder


@pytest.mark.parametrize("kind", ["cut", "claims", "product", "narrow", "few", "flat"])
def test_files_of_faiss_that_are_others_or_claim_more_than_they_have(large: Path, kind: str) -> None:
    import sqlite3

    import faiss

    import cml
    from cml.searching.index_file import change_about

    path, rows = large / "index.faiss", np.random.default_rng(1).normal(size=(30, 4)).astype(np.float32)
    whole, narrow = path.read_bytes(), faiss.IndexIDMap(faiss.IndexHNSWFlat(3, 8))
    narrow.add_with_ids(np.ascontiguousarray(rows[:, :3]), np.arange(1, 31))
    if kind == "cut":
        path.write_bytes(whole[:-20])
    elif kind == "claims":
        claimed = [struct.pack("<q", size) for size in (480, 1920)]  # numbers in the vectors, or their bytes
        path.write_bytes(whole.replace(claimed[0], struct.pack("<q", 1 << 38)).replace(claimed[1], b"\0\0\0\0\0\1\0\0"))
        assert path.read_bytes() != whole
    else:
        other = {"product": faiss.IndexPQ(4, 1, 8), "narrow": narrow, "flat": faiss.IndexFlatL2(4)}
        faiss.write_index(other.get(kind, faiss.IndexIDMap(faiss.IndexFlatIP(4))), str(path))
    for is_noted in (False, True):  # also where somebody wrote the checksum of that file into the index
        if is_noted:
            noted = json.dumps({"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "last": 120, "recall": None})
            db = sqlite3.connect(large / "index.sqlite")
            with db:
                change_about(db, large, faiss=noted)
            db.close()
        index = cml.Index.open(large)
        assert index.method == "exact"
        assert len(index.search(rows, 7)[0]) == 7


@pytest.mark.skipif(sys.platform == "win32", reason="sizes of files cannot be limited")
def test_a_file_of_faiss_whose_end_finds_no_room_is_an_error(large: Path) -> None:
    import resource

    import cml

    index, size = cml.Index.open(large), (large / "index.faiss").stat().st_size
    before = (large / "index.faiss").read_bytes()
    assert index.method == "hnsw"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 9, hard))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            index.cover(anew=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.value.filename == str(large / "index.faiss")
    assert sorted(path.name for path in large.iterdir()) == ["index.faiss", "index.sqlite"]
    assert (large / "index.faiss").read_bytes() == before
