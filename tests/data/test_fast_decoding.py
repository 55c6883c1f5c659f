"""Fast decoding is close to the exact one, keeps orientation and faults, and is used only where it is asked for."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import cml
from cml.cli import main
from cml.data.images import Images, read_image, read_pixels
from cml.errors import DataError, UserError
from cml.feature_store.store import FeatureStore
from cml.processes.ranks import Ranks
from cml.training.head_alone import freeze_backbone


def photograph(height: int, width: int, seed: int = 0) -> Image.Image:
    """A smooth picture, as a JPEG keeps it."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8))
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture
def photographs(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{number}.jpg" for number in range(8)]
    for number, path in enumerate(paths):
        photograph(120, 160, number).save(path, quality=90)
    return paths


def far(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(int) - other.astype(int)).mean())


@pytest.mark.parametrize("size", [(56, 56), (60, 80), (61, 80), (120, 160), (130, 200), (15, 20), (8, 12)])
@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_fast_pixels_are_close_to_the_exact_ones(tmp_path: Path, size: tuple[int, int], ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    photograph(120, 160).save(path)
    exact, fast = read_image(path, size), read_image(path, size, "fast")
    assert fast.shape == exact.shape
    assert fast.dtype == np.uint8
    assert far(exact, fast) < 3
    if ending == "png" or 2 * size[0] > 120 or 2 * size[1] > 160:  # decoded whole: the resizing rounds otherwise
        assert np.abs(exact.astype(int) - fast).max() <= 1
    else:
        with Image.open(path) as scaled:  # libjpeg's own scale, resized exactly
            scaled.draft("RGB", size[::-1])
            assert min(scaled.size) >= min(size)
            wanted = np.asarray(scaled.resize(size[::-1], Image.Resampling.BILINEAR))
        assert np.abs(wanted.astype(int) - fast).max() <= 1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_kept(tmp_path: Path, orientation: int) -> None:
    path, exif = tmp_path / "a.jpg", Image.Exif()
    exif[0x0112] = orientation
    photograph(120, 160).save(path, exif=exif)
    assert far(read_image(path, (40, 30)), read_image(path, (40, 30), "fast")) < 2


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_other_jpegs_become_rgb(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.jpg"
    photograph(120, 160).convert(mode).save(path)
    assert far(read_image(path, (30, 40)), read_image(path, (30, 40), "fast")) < 2


def test_images_of_any_source_are_read_fast(photographs: list[Path]) -> None:
    contents = [path.read_bytes() for path in photographs]
    pictures = [Image.open(io.BytesIO(content)).copy() for content in contents]
    images = Images(photographs, (30, 40), decode="fast")
    pixels = images.read(np.arange(8))
    assert np.array_equal(pixels, Images(contents, (30, 40), decode="fast").read(np.arange(8)))
    for decoded in (pictures, [np.asarray(picture) for picture in pictures]):
        assert far(pixels, Images(decoded, (30, 40), decode="fast").read(np.arange(8))) < 2
    assert np.array_equal(images.subset(np.array([3, 5])).read(np.arange(2)), pixels[[3, 5]])
    assert images.at((20, 20)).decode == "fast"
    assert not np.array_equal(pixels, Images(photographs, (30, 40)).read(np.arange(8)))


def test_broken_files_are_named(tmp_path: Path, photographs: list[Path]) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(photographs[0].read_bytes()[:600])
    with pytest.raises(DataError, match=r"broken\.jpg cannot be read"):
        read_image(broken, (30, 40), "fast")
    with pytest.raises(DataError, match="image number 1 cannot be read"):
        Images([photographs[0].read_bytes(), b"nothing"], (30, 40), decode="fast").load()


def test_other_bands_are_read_exactly(photographs: list[Path], tmp_path: Path) -> None:
    grey = tmp_path / "grey.png"
    photograph(60, 80).convert("L").save(grey)
    assert np.array_equal(read_pixels(grey, 1, (30, 40), "fast"), read_pixels(grey, 1, (30, 40)))


OPTIONS = {"backbone": "small-cnn", "weights": "none", "image_size": (32, 32), "steps": 2, "workers": 0, "quiet": True}


def test_training_decodes_fast_and_evaluation_does_not(photographs: list[Path], tmp_path: Path) -> None:
    levels = np.arange(8.0)
    batches = {"sampler": "random(batch_size=4)"}
    exact, fast, again = (
        cml.fit(photographs, levels, decode=decode, **batches, **OPTIONS) for decode in ("exact", "fast", "fast")
    )
    embeddings = fast.embed(photographs)
    assert not np.array_equal(exact.embed(photographs), embeddings)
    assert np.array_equal(again.embed(photographs), embeddings)
    assert fast.run_config.train.decode == "fast"
    fast.save(tmp_path / "model")
    loaded = cml.load(tmp_path / "model")
    assert np.array_equal(loaded.embed(photographs), embeddings)  # exactly, unless told otherwise
    assert loaded.run_config.train.decode == "fast"
    near = loaded.embed(photographs, decode="fast")
    assert not np.array_equal(near, embeddings)
    assert np.abs(near - embeddings).max() < 0.1


def test_stores_say_how_images_were_decoded(
    photographs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = {"backbone": "small-cnn", "weights": "none", "image_size": (32, 32), "quiet": True}
    exact = cml.features(photographs, out=tmp_path / "exact", **shape)
    fast = cml.features(photographs, out=tmp_path / "fast", decode="fast", **shape)
    assert "decode" not in exact.manifest["made_by"]
    assert FeatureStore.open(tmp_path / "fast").manifest["made_by"]["decode"] == "fast"
    assert not np.array_equal(np.asarray(exact.rows), np.asarray(fast.rows))
    with pytest.raises(UserError, match="decode fast"):
        cml.features(photographs, out=tmp_path / "fast", **shape)
    cml.features(photographs, image_size=(32, 32), out=tmp_path / "pretrained", decode="fast", quiet=True)
    options = {**OPTIONS, "backbone": "efficientnet-lite0", "weights": "imagenet", "sampler": "random(batch_size=4)"}
    model = cml.fit(photographs, np.arange(8.0), freeze_backbone=True, decode="fast", **options)
    images = Images(photographs, (32, 32), decode="fast")
    stored = freeze_backbone(model.network, images, Ranks(), store=str(tmp_path / "pretrained"))[1]
    assert np.array_equal(
        stored.read(np.arange(8)), freeze_backbone(model.network, images, Ranks())[1].read(np.arange(8))
    )
    model.save(tmp_path / "run")
    command = ["embed", str(tmp_path / "run"), "--images", str(photographs[0].parent)]
    command += ["--features", str(tmp_path / "pretrained"), "--out"]
    assert main([*command, str(tmp_path / "exactly")]) == 2
    assert "32 x 32 pixels, decode fast), but the features of" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "embedded"), "--decode", "fast"]) == 0
    embedded = cml.EmbeddingFolder.open(tmp_path / "embedded")
    assert embedded.manifest["made_with"]["decode"] == "fast"
    assert np.allclose(embedded.embeddings, model.embed(photographs, decode="fast"), atol=1e-5)
    with pytest.raises(UserError, match="'decode' is an option of backbones"):
        cml.features(["a", "b"], backbone=lambda items: np.ones((len(items), 2)), out=tmp_path / "o", decode="fast")


def test_embeddings_and_indexes_say_how_images_were_decoded(
    photographs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = cml.fit(photographs, np.arange(8.0), sampler="random(batch_size=4)", **OPTIONS)
    model.save(tmp_path / "model")
    run, folder = str(tmp_path / "model"), str(photographs[0].parent)
    common = ["embed", run, "--images", folder, "--out"]
    assert main([*common, str(tmp_path / "fast"), "--decode", "fast", "--precision", "bfloat16"]) == 0
    assert main([*common, str(tmp_path / "exact")]) == 0
    fast, exact = (cml.EmbeddingFolder.open(tmp_path / name) for name in ("fast", "exact"))
    assert fast.manifest["made_with"]["decode"] == "fast"
    assert fast.manifest["made_with"]["precision"] == "bfloat16"
    assert exact.manifest["made_with"].keys() == {"model", "images"}
    assert np.array_equal(exact.embeddings, model.embed(photographs))
    wanted = model.embed(photographs, decode="fast", precision="bfloat16")
    assert np.allclose(fast.embeddings, wanted, atol=1e-6)
    capsys.readouterr()
    assert main([*common, str(tmp_path / "fast")]) == 2  # begun otherwise
    assert "decode was fast" in capsys.readouterr().err
    cml.index(tmp_path / "model", folder, tmp_path / "index", decode="fast", quiet=True)
    index = cml.Index.open(tmp_path / "index")
    assert index.about["decode"] == "fast"
    assert len(index) == 8
