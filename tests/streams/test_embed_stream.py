"""Embeddings of streams: those of the same items in a list, written as they are read, with bad ones left out."""

from __future__ import annotations

import io
import itertools
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_texts import LABELS, TEXTS, tiny_transformer

import cml
from cml.cli import main
from cml.errors import DataError, UserError

FAST: dict[str, Any] = {"steps": 2, "workers": 0, "quiet": True, "sampler": "random(batch_size=8)", "dimension": 4}
PICTURES: dict[str, Any] = {"backbone": "small-cnn", "weights": "none", "image_size": (16, 16)}
ROWS = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
COUNT, BAD = 24, 7


def picture(level: int) -> Image.Image:
    rng = np.random.default_rng(level)
    return Image.fromarray(rng.integers(0, 256, (5, 6, 3), np.uint8)).resize((48, 40))


def encoded(level: int, kind: str = "JPEG") -> bytes:
    file = io.BytesIO()
    picture(level).save(file, kind)
    return file.getvalue()


def write_shard(path: Path, numbers: range, bad: int | None = None) -> None:
    with tarfile.open(path, "w") as archive:
        for number in numbers:
            content = encoded(number)[: 200 if number == bad else None]
            about = json.dumps({"age": number / 2}).encode()
            for ending, data in (("jpg", content), ("json", about), ("txt", b"a text")):
                member = tarfile.TarInfo(f"{number:04}.{ending}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model of images."""
    folder = tmp_path_factory.mktemp("runs") / "model"
    cml.fit([encoded(number) for number in range(COUNT)], np.arange(COUNT), **FAST, **PICTURES).save(folder)
    return folder


@pytest.fixture
def shards(tmp_path: Path) -> str:
    for shard in range(3):
        write_shard(tmp_path / f"{shard}.tar", range(8 * shard, 8 * shard + 8), bad=BAD)
    return str(tmp_path / "*.tar")


def by_number(folder: cml.EmbeddingFolder) -> dict[int, Any]:
    """The embedding and the entry of each item."""
    rows = zip(folder.items(), folder.embeddings, strict=True)
    return {int(entry["item_id"].rpartition(" ")[2]): (entry, row) for entry, row in rows}


def test_embeddings_of_a_stream_are_those_of_its_items() -> None:
    model = cml.fit(ROWS, ROWS.sum(axis=1).tolist(), **FAST)
    wanted = model.embed(ROWS)
    stream = cml.LabelledStream(lambda: zip(ROWS, range(60), strict=True))
    for inputs in (
        stream,
        cml.LabelledStream(lambda: iter(ROWS)),
        cml.LabelledStream(lambda: ({"r": r} for r in ROWS)),
    ):
        np.testing.assert_allclose(model.embed(inputs, batch_size=7), wanted, atol=1e-6)


def test_texts_of_a_stream_are_embedded() -> None:
    model = cml.fit(TEXTS, LABELS, backbone=tiny_transformer(), **FAST, device="cpu")
    stream = cml.LabelledStream(lambda: ({"text": text, "score": 1.0} for text in TEXTS))
    np.testing.assert_allclose(model.embed(stream), model.embed(TEXTS), atol=1e-5)


def test_a_folder_is_written_from_tar_files(run: Path, shards: str, tmp_path: Path) -> None:
    model = cml.load(run)
    stream = cml.LabelledStream(shards, skip_bad=True)
    folder = model.embed_stream(stream, tmp_path / "out", label="json.age", batch_size=5, quiet=True)
    found = by_number(folder)
    assert sorted(found) == [number for number in range(COUNT) if number != BAD]
    wanted = model.embed([encoded(number) for number in range(COUNT)])
    for number, (entry, row) in found.items():
        assert entry["label"] == number / 2
        assert entry["item_id"] == f"{number // 8}.tar: {number:04}"
        np.testing.assert_allclose(row, wanted[number], atol=1e-6)
    assert folder.manifest["skipped"] == 1
    skipped = json.loads((tmp_path / "out" / "skipped.jsonl").read_text())
    assert skipped["item_id"] == "0.tar: 0007"
    assert "cannot be read" in skipped["error"]
    assert folder.search(model.embed([encoded(3)]), k=1)[0][0].item_id == "0.tar: 0003"
    written = (tmp_path / "out" / "manifest.json").stat().st_mtime_ns
    model.embed_stream(stream, tmp_path / "out", label="json.age", quiet=True)  # finished: nothing is done
    assert (tmp_path / "out" / "manifest.json").stat().st_mtime_ns == written
    with pytest.raises(UserError, match="different settings"):
        model.embed_stream(stream, tmp_path / "out", quiet=True)
    with pytest.raises(UserError, match=r"0007\) of the stream cannot be read"):
        model.embed(cml.LabelledStream(shards))


def test_the_command_embeds_tar_files(
    run: Path, shards: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["embed", str(run), "--shards", shards, "--out", str(out), "--skip-bad", "--label", "json.age"]
    assert main([*command, "--decode", "fast", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == {"folder": str(out), "items": COUNT - 1, "dimension": 4, "skipped": 1}
    assert "skipped: The image of item 7 (0.tar: 0007) of the stream cannot be read" in told.err
    assert cml.EmbeddingFolder.open(out).manifest["made_with"]["decode"] == "fast"
    for more, text in (
        (["--images", str(tmp_path)], "--shards does not go with --images"),
        (["--field", "png"], "no field 'png'. There are: jpg, json.age, txt"),
        (["--field", "txt"], "The image a text is missing"),
    ):
        command = ["embed", str(run), "--shards", shards, "--out", str(tmp_path / "other"), *more]
        assert main(command) != 0
        assert text in capsys.readouterr().err
    assert main(["embed", str(run), "--images", str(tmp_path), "--field", "jpg", "--out", str(tmp_path / "o")]) != 0
    assert "--field is an option of --shards" in capsys.readouterr().err


def test_feature_stores_refuse_streams(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="which those of a stream cannot: take a part of the stream"):
        cml.features(cml.LabelledStream(lambda: iter(ROWS)), backbone=lambda rows: rows, out=tmp_path / "store")


def test_what_does_not_fit_is_refused_by_name(run: Path, tmp_path: Path) -> None:
    model = cml.load(run)

    def refuse(items: list[Any], text: str, **options: Any) -> None:  # noqa: ANN401
        with pytest.raises((UserError, DataError), match=text):
            model.embed_stream(cml.LabelledStream(lambda: iter(items)), tmp_path / "none", quiet=True, **options)
        assert not (tmp_path / "none" / "manifest.json").exists()

    two = {"a": encoded(1), "b": encoded(2)}
    refuse([two], r"2 fields of the first item may hold one: name it by field='...'. There are: a, b")
    refuse([], "The stream gives no item")
    refuse([{"__key__": "k", "a": encoded(1)}] * 2, "Two items of the stream have the key 'k'")
    refuse([{"a": encoded(1)}, {"b": encoded(1)}], "Item 1 of the stream has no field 'a'. There are: b")
    refuse([{"a": encoded(1)}], "item 0.*'age'|'age'.*", label="age")
    bad = cml.LabelledStream(lambda: iter([b"nothing"]), skip_bad=True)
    with pytest.raises(DataError, match="No item of the stream can be read"):
        model.embed_stream(bad, tmp_path / "none", quiet=True)
    good = cml.LabelledStream(lambda: iter([encoded(1)]))
    model.embed_stream(good, tmp_path / "good", quiet=True)
    with pytest.raises(UserError, match="only of tar files it is known"):
        model.embed_stream(good, tmp_path / "good", quiet=True)


def test_only_a_batch_is_held(run: Path, tmp_path: Path) -> None:
    alive: list[int] = []

    class Counted(bytes):
        def __new__(cls, content: bytes) -> Counted:
            alive.append(1)
            return super().__new__(cls, content)

        def __del__(self) -> None:
            alive.pop()

    most = 0

    def items() -> Iterator[Any]:
        nonlocal most
        for content in itertools.islice(itertools.cycle([encoded(1), encoded(2)]), 400):
            yield Counted(content)
            most = max(most, len(alive))

    folder = cml.load(run).embed_stream(cml.LabelledStream(items), tmp_path / "out", batch_size=10, quiet=True)
    assert len(folder) == 400
    assert most < 60  # chunks of 16, and a batch
