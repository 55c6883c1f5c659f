from __future__ import annotations

import errno
import json
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from export_runs import draw_images, draw_odd_images, make_run
from PIL import Image

import cml
from cml.cli import main
from cml.data.image_list import ImageList
from cml.data.images import read_image
from cml.errors import DataError, UserError
from cml.models.embedding import EmbeddingModel
from cml.models.weights import model_fingerprint
from cml.searching.embed_folder import embed_folder
from cml.searching.embedding_folder import EmbeddingFolder
from cml.storage.atomic import GrowingFile
from cml.storage.resumable_output import resumable_output
from cml.storage.work_folder import parse_line


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "value")


@pytest.fixture(scope="module")
def model(run: Path) -> EmbeddingModel:
    return cml.load(run, device="cpu").network


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    draw_images(folder, 7)
    draw_images(folder / "more", 6, seed=1, size=60)
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "x.png").write_bytes(b"")
    (folder / "notes.txt").write_text("no image")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def failure(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 2) -> str:
    capsys.readouterr()
    assert main([str(one) for one in arguments]) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]


def test_a_loaded_run_embeds_paths_and_arrays_alike(model: EmbeddingModel, photos: Path) -> None:
    paths = sorted(photos.glob("*.png"))
    embeddings = model.embed(paths)
    assert embeddings.dtype == np.float32
    assert embeddings.shape == (7, 8)
    arrays = np.stack([read_image(path, (36, 36)) for path in paths])
    np.testing.assert_allclose(model.embed(arrays), embeddings, atol=1e-6)
    np.testing.assert_allclose(model.embed([str(path) for path in paths], batch_size=3), embeddings, atol=1e-5)
    opened = [Image.open(path) for path in paths[:5]]
    mixed = [*opened[:3], *(np.asarray(image) for image in opened[3:5]), *paths[5:]]
    np.testing.assert_allclose(model.embed(mixed), embeddings, atol=1e-6)
    with pytest.raises(UserError, match="list of paths"):
        model.embed(str(paths[0]))
    with pytest.raises(UserError, match="Got a single image"):
        model.embed(opened[0])
    with pytest.raises(UserError, match=r"images\[1\] must have the shape \(H, W, 3\) or \(3, H, W\). Got \(36, 36\)"):
        model.embed([paths[0], arrays[0, :, :, 0]])
    tensors = [torch.from_numpy(array).permute(2, 0, 1) for array in arrays]
    np.testing.assert_allclose(model.embed(tensors), embeddings, atol=1e-6)
    with pytest.raises(UserError, match="Got float32 instead"):
        model.embed([torch.zeros(3, 36, 36)])
    with pytest.raises(UserError, match="Got int instead"):
        model.embed([3])


def test_pillows_images_are_turned_upright_and_made_rgb(model: EmbeddingModel, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (36, 36, 4), dtype=np.uint8)
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(pixels[..., :3]).save(tmp_path / "turned.png", exif=turned)
    Image.fromarray(pixels).save(tmp_path / "transparent.png")
    Image.fromarray(pixels[..., 0]).save(tmp_path / "grey.png")
    paths = sorted(tmp_path.glob("*.png"))
    np.testing.assert_array_equal(model.embed([Image.open(path) for path in paths]), model.embed(paths))


def test_what_is_no_finished_run_is_said_in_one_line(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        cml.load(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"config\.json is missing"):
        cml.load(tmp_path)
    for name, what in {"dataset.json": "a prepared dataset", "model.onnx": "an ONNX export"}.items():
        (tmp_path / name).touch()
        with pytest.raises(DataError, match=f"is {what}, not a run; give a run folder"):
            cml.load(tmp_path)
        (tmp_path / "config.json").write_text('{"kind": "its own"}')
        with pytest.raises(DataError, match=f"is {what}, not a run; give a run folder"):
            cml.load(tmp_path)
        (tmp_path / "config.json").unlink()
        (tmp_path / name).unlink()
    kept = shutil.copytree(run, tmp_path / "kept")
    (kept / "model.onnx").touch()  # a run stays one, whatever its user keeps in it
    cml.load(kept)
    (tmp_path / "config.json").write_bytes((run / "config.json").read_bytes())
    with pytest.raises(DataError, match="the run is not finished"):
        cml.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((run / "model.safetensors").read_bytes()[:-100])
    with pytest.raises(DataError, match="is damaged"):
        cml.load(tmp_path)
    with pytest.raises(UserError, match="device 'tpu9'"):
        cml.load(run, device="tpu9")


def test_embed_writes_what_embed_returns(
    run: Path, model: EmbeddingModel, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["embed", str(run), "--images", str(photos), "--out", str(out), "--batch-size", "4", "--tsv", "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == {"folder": str(out), "items": 13, "dimension": 8, "skipped": 0}
    embeddings = np.load(out / "embeddings.npy", allow_pickle=False)
    items = [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]
    assert embeddings.dtype == np.float32
    assert [item["item_id"] for item in items] == [
        *(f"{n:03}.png" for n in range(7)),
        *(f"more/{n:03}.png" for n in range(6)),
    ]
    np.testing.assert_allclose(embeddings, model.embed([photos / item["file_name"] for item in items]), atol=1e-5)

    assert sorted(content(out)) == ["embeddings.npy", "items.jsonl", "manifest.json", "metadata.tsv", "vectors.tsv"]
    np.testing.assert_array_equal(np.loadtxt(out / "vectors.tsv", delimiter="\t", dtype=np.float32), embeddings)
    metadata = [line.split("\t") for line in (out / "metadata.tsv").read_text().splitlines()]
    assert metadata[0] == ["item_id", "file_name"]
    assert [row[0] for row in metadata[1:]] == [item["item_id"] for item in items]
    before = content(out)
    assert main(command) == 0  # there already: nothing is done again
    assert content(out) == before
    assert [path.name for path in out.iterdir() if path.is_dir()] == []


def test_cells_of_the_projector_are_no_formulas(run: Path, tmp_path: Path) -> None:
    names = ["=1+1", "+a", "-x", "@b", "\uff1dc", "-3", "a=b"]
    for name, path in zip(names, draw_images(tmp_path / "photos", len(names)), strict=True):
        path.rename(path.with_name(f"{name}.png"))
    images = [{"file_name": f"{name}.png", "value": -1.5, "split": "train"} for name in names]
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, images)))
    out = tmp_path / "out"
    assert main(["embed", str(run), "--images", str(tmp_path / "photos"), "--out", str(out), "--tsv"]) == 0
    rows = [line.split("\t") for line in (out / "metadata.tsv").read_text().splitlines()[1:]]
    shown = {f"'{name}.png" for name in names[:6]} | {"a=b.png"}
    assert {row[0] for row in rows} == {row[1] for row in rows} == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (-1.5, "-1.5"),
        ("-1.5", "-1.5"),
        ("+1e-3", "+1e-3"),
        ("-1-1", "'-1-1"),
        ("\t=x", "'=x"),
        ("", ""),
        ([-1], "[-1]"),
    ],
)
def test_numbers_of_the_projector_stay_numbers(value: object, shown: str) -> None:
    from cml.searching.embed_folder import _tsv_cell

    assert _tsv_cell(value) == shown


def test_embed_takes_roles_and_labels_of_a_prepared_dataset(run: Path, model: EmbeddingModel, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    draw_images(photos, 12)
    (tmp_path / "labels.csv").write_text(
        "file_name,age,split\n" + "".join(f"{n:03}.png,{n},{('train', 'query', 'gallery')[n % 3]}\n" for n in range(12))
    )
    data = str(tmp_path / "data")
    command = ["prepare", "folder", "--images", str(photos), "--labels", str(tmp_path / "labels.csv"), "--out", data]
    assert main([*command, "--label-columns", "age", "--split-column", "split"]) == 0
    made = embed_folder(model, ImageList.open(data), tmp_path / "out", quiet=True)
    items = list(made.items())
    assert [item["role"] for item in items] == ["train"] * 4 + ["query"] * 4 + ["gallery"] * 4
    assert [
        next(value for key, value in item.items() if key not in ("item_id", "file_name", "role")) for item in items[:2]
    ] == [0, 3]
    assert all((Path(data) / item["file_name"]).is_file() for item in items)
    command = ["embed", str(run), "--images", data, "--out", str(tmp_path / "some"), "--splits", "query", "gallery"]
    assert main(command) == 0
    assert [item["role"] for item in EmbeddingFolder.open(tmp_path / "some").items()] == ["query"] * 4 + ["gallery"] * 4


def last_record(work: Path) -> dict[str, object]:
    """What the journal of unfinished work says last."""
    found: dict[str, object] = parse_line((work / "journal.jsonl").read_bytes().splitlines(keepends=True)[-1])
    return found


def test_a_killed_embedding_is_continued_to_the_same_bytes(
    model: EmbeddingModel, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = ImageList.open(photos)
    monkeypatch.setattr("cml.searching.embed_folder.BATCHES_A_CHUNK", 2)
    whole = embed_folder(model, images, tmp_path / "whole", batch_size=2, quiet=True)
    real, calls = EmbeddingModel.embed, 0

    def killed(self: EmbeddingModel, *arguments: object, **settings: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 6:  # in mid-chunk, with something behind the record already
            raise MemoryError("killed")
        return real(self, *arguments, **settings)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddingModel, "embed", killed)
        with pytest.raises(MemoryError):
            embed_folder(model, images, tmp_path / "killed", batch_size=2, quiet=True)
    assert not (tmp_path / "killed" / "embeddings.npy").exists()  # nothing unfinished can be taken for whole
    with pytest.raises(DataError, match=r"manifest\.json is missing"):
        EmbeddingFolder.open(tmp_path / "killed")
    (work,) = (tmp_path / "killed").iterdir()
    with (work / "embeddings.npy").open("ab") as file:
        file.write(b"torn")  # a write that was cut off behind the record
    calls = 100
    embed_folder(model, images, tmp_path / "killed", batch_size=2, quiet=True)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    assert len(whole.embeddings) == 13


@pytest.mark.slow
def test_sigkill_is_survived(run: Path, model: EmbeddingModel, photos: Path, tmp_path: Path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
import cml
import cml.searching.embed_folder as embeddings
from cml.data.image_list import ImageList
from cml.models.embedding import EmbeddingModel
embeddings.BATCHES_A_CHUNK, real, calls = 2, EmbeddingModel.embed, []
def embed(*arguments, **settings):
    calls.append(1)
    if len(calls) == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **settings)
EmbeddingModel.embed = embed
model = cml.load(sys.argv[1], device="cpu").network
embeddings.embed_folder(model, ImageList.open(sys.argv[2]), Path(sys.argv[3]), batch_size=2, quiet=True)
"""
    command = [sys.executable, "-c", script, str(run), str(photos), str(tmp_path / "killed")]
    assert subprocess.run(command, check=False, timeout=240).returncode == -signal.SIGKILL
    assert last_record(tmp_path / "killed" / ".manifest.partial-work")["seen"] == 8
    for name in ("killed", "whole"):
        embed_folder(model, ImageList.open(photos), tmp_path / name, batch_size=2, quiet=True)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


def test_second_process_is_refused(model: EmbeddingModel, photos: Path, tmp_path: Path) -> None:
    images = ImageList.open(photos)
    made_with = {"model": model_fingerprint(model), "images": images.fingerprint()}
    with resumable_output(tmp_path / "out", made_with, ["embeddings.npy"]):
        with pytest.raises(UserError, match="Another process is working on"):
            embed_folder(model, images, tmp_path / "out", quiet=True)
        assert (tmp_path / "out" / ".manifest.partial-work" / "journal.jsonl").exists()
    embed_folder(model, images, tmp_path / "out", quiet=True)


def test_results_of_other_images_or_another_run_are_not_continued(
    run: Path, model: EmbeddingModel, tmp_path: Path
) -> None:
    draw_images(tmp_path / "photos", 3)
    embed_folder(model, ImageList.open(tmp_path / "photos"), tmp_path / "out", quiet=True)
    draw_images(tmp_path / "photos", 1, name="new.png")
    with pytest.raises(UserError, match=r"different settings .not with the same images"):
        embed_folder(model, ImageList.open(tmp_path / "photos"), tmp_path / "out", quiet=True)
    (tmp_path / "photos" / "new.png").unlink()
    other = cml.load(make_run(tmp_path / "other", seed=1), device="cpu").network
    assert (
        model_fingerprint(other) != model_fingerprint(model) == model_fingerprint(cml.load(run, device="cpu").network)
    )
    with pytest.raises(UserError, match=r"different settings .not with the same model"):
        embed_folder(other, ImageList.open(tmp_path / "photos"), tmp_path / "out", quiet=True)
    with pytest.raises(UserError, match=r"holds a run or a model .config.json.\. Choose another folder"):
        embed_folder(other, ImageList.open(tmp_path / "photos"), run, quiet=True)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "items.jsonl").write_text("mine")
    with pytest.raises(UserError, match=r"items\.jsonl already exists"):
        embed_folder(model, ImageList.open(tmp_path / "photos"), tmp_path / "taken", quiet=True)
    assert content(tmp_path / "taken") == {"items.jsonl": b"mine"}
    assert len(list((tmp_path / "taken").iterdir())) == 1


def test_bad_images_stop_or_are_listed(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos, out = tmp_path / "photos", tmp_path / "out"
    paths = draw_images(photos, 6)
    paths[2].write_bytes(paths[2].read_bytes()[:60])
    command = ("embed", run, "--images", photos, "--out", out, "--batch-size", "2")
    told = failure(capsys, *command)
    assert f"The image {paths[2]} cannot be read" in told
    assert "With --skip-bad such images are left out and listed." in told
    assert not out.exists()  # nothing was recorded yet, so nothing is left
    assert main([str(one) for one in (*command, "--skip-bad")]) == 0
    assert "embeddings, 5 x 8 float32, 1 skipped" in capsys.readouterr().out
    made = EmbeddingFolder.open(out)
    assert [item["item_id"] for item in made.items()] == ["000.png", "001.png", "003.png", "004.png", "005.png"]
    assert len(made.embeddings) == 5
    (skipped,) = (json.loads(line) for line in (out / "skipped.jsonl").read_text().splitlines())
    assert skipped["item_id"] == "002.png"
    assert "cannot be read" in skipped["error"]
    for path in paths:
        path.write_bytes(b"")
    assert "None of the 6 images" in failure(
        capsys, "embed", run, "--images", photos, "--out", tmp_path / "none", "--skip-bad"
    )


def test_every_form_of_image_is_embedded(model: EmbeddingModel, tmp_path: Path) -> None:
    paths = draw_odd_images(tmp_path)
    embeddings = dict(zip(paths, model.embed(list(paths.values())), strict=True))
    assert np.isfinite(np.stack(list(embeddings.values()))).all()
    grey = np.asarray(Image.open(paths["grey"]).convert("RGB").resize((36, 36), Image.Resampling.BILINEAR))
    np.testing.assert_allclose(embeddings["grey"], model.embed(grey[None])[0], atol=1e-4)
    upright = read_image(paths["turned"], (36, 36))
    np.testing.assert_allclose(embeddings["turned"], model.embed(upright[None])[0], atol=1e-5)


def test_what_is_transparent_shows_white(tmp_path: Path) -> None:
    paths = draw_odd_images(tmp_path)
    pixels = read_image(paths["clear"])
    assert (pixels[:, ::2] == 255).all()  # every second column is transparent, over black in the file
    assert (pixels[:10, 1, 0] < 20).all()
    hole = Image.new("P", (2, 1))
    hole.putpalette([0, 0, 0, 10, 20, 30])
    hole.putpixel((1, 0), 1)
    hole.save(tmp_path / "hole.gif", transparency=0)
    assert read_image(tmp_path / "hole.gif").tolist() == [[[255, 255, 255], [10, 20, 30]]]
    key = Image.new("RGB", (2, 1), (1, 2, 3))
    key.putpixel((1, 0), (9, 9, 9))
    key.save(tmp_path / "key.png", transparency=(1, 2, 3))
    assert read_image(tmp_path / "key.png").tolist() == [[[255, 255, 255], [9, 9, 9]]]


def test_huge_image_is_a_limit_not_a_crash(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw_images(tmp_path / "photos", 2)
    monkeypatch.setattr("cml.data.open_image.MAX_PIXELS", 1599)
    message = failure(capsys, "embed", run, "--images", tmp_path / "photos", "--out", tmp_path / "out")
    assert "40 x 40 pixels; the limit is 1,599" in message


def test_wrong_folders_are_said(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert "holds no images" in failure(capsys, "embed", run, "--images", tmp_path / "empty", "--out", tmp_path / "o")
    said = failure(capsys, "embed", run, "--images", tmp_path / "gone", "--out", tmp_path / "o")
    assert "does not exist; give a folder of images" in said
    draw_images(tmp_path / "photos", 1)
    embed = ("embed", run, "--images", tmp_path / "photos", "--out")
    assert "is a file" in failure(capsys, *embed, tmp_path / "photos" / "000.png")
    assert "must be 1 or more" in failure(capsys, *embed, tmp_path / "o", "--batch-size", "0")


def test_full_disk_is_said_and_the_rest_is_kept(
    run: Path,
    model: EmbeddingModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    draw_images(tmp_path / "photos", 12)
    monkeypatch.setattr("cml.searching.embed_folder.BATCHES_A_CHUNK", 1)
    real, synced = GrowingFile.sync, 0

    def full(self: GrowingFile) -> int:
        nonlocal synced
        synced += 1
        if synced == 7:
            raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))
        return real(self)

    command = ("embed", run, "--images", tmp_path / "photos", "--out", tmp_path / "out", "--batch-size", "2")
    with monkeypatch.context() as patch:
        patch.setattr(GrowingFile, "sync", full)
        assert "The disk is full" in failure(capsys, *command, code=1)
    assert last_record(tmp_path / "out" / ".manifest.partial-work")["seen"] == 4
    assert main([str(one) for one in command]) == 0
    images = ImageList.open(tmp_path / "photos")
    embed_folder(model, images, tmp_path / "whole", run=str(run.absolute()), batch_size=2, quiet=True)
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_a_file_that_the_system_does_not_let_grow(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw_images(tmp_path / "photos", 120, size=8)
    command = ("embed", run, "--images", tmp_path / "photos", "--out", tmp_path / "out", "--batch-size", "4")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))  # 3 kB a file, as on a disk with no more left
    try:
        assert "File too large" in failure(capsys, *command, code=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert main([str(one) for one in command]) == 0
    assert len(EmbeddingFolder.open(tmp_path / "out").embeddings) == 120


def test_results_with_parts_lost_are_refused(model: EmbeddingModel, tmp_path: Path) -> None:
    draw_images(tmp_path / "photos", 3)
    images = ImageList.open(tmp_path / "photos")
    made = embed_folder(model, images, tmp_path / "out", quiet=True)
    (tmp_path / "out" / "items.jsonl").write_text('{"item_id": "a", "file_name": "a.jpg"}\n')
    with pytest.raises(DataError, match="1 items, but there are 3 embeddings"):
        list(made.items())
    (tmp_path / "out" / "items.jsonl").write_text("no json\n")
    with pytest.raises(DataError, match=r"items\.jsonl:1 is not an item"):
        list(made.items())
    np.save(tmp_path / "out" / "embeddings.npy", np.zeros((3, 8)))
    with pytest.raises(DataError, match="should hold float32"):
        EmbeddingFolder.open(tmp_path / "out")
    (tmp_path / "out" / "embeddings.npy").write_bytes(b"torn")
    with pytest.raises(DataError, match="cannot be read"):
        EmbeddingFolder.open(tmp_path / "out")


def test_a_building_ends_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped() -> None:
        with resumable_output(tmp_path / "o", {"a": 1}, ["x", "y"]) as made:
            (made.work / "x").write_text("x")
            made.record({"seen": 1})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="continues"):
        stopped()
    with (
        pytest.raises(UserError, match=r"was begun with different settings .a was 1, now 2"),
        resumable_output(tmp_path / "o", {"a": 2}, ["x"]),
    ):
        pass

    def killed(*_: object) -> None:
        raise MemoryError

    def finish() -> None:
        with resumable_output(tmp_path / "o", {"a": 1}, ["x", "y"]) as made:
            assert made.records == [{"seen": 1}]
            made.finish({"items": 2})

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", killed)
        with pytest.raises(MemoryError):
            finish()
    with resumable_output(tmp_path / "o", {"a": 1}, ["x", "y"]) as made:
        assert made.manifest is not None
        assert {name: made.manifest[name] for name in ("items", "made_with")} == {"items": 2, "made_with": {"a": 1}}
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["manifest.json", "x"]


def test_file_shorter_than_its_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    with pytest.raises(DataError, match="has 5 bytes, but 6 were recorded"):
        GrowingFile(tmp_path / "a", 6)
    with GrowingFile(tmp_path / "a", 3) as file:
        file.append(b"xy")
        assert file.sync() == 5
    assert (tmp_path / "a").read_bytes() == b"123xy"
