"""``cml export captioning``: features of a trunk, in the layout that captioning code reads.

As in public extractors, ``fc`` is the mean of the last convolution map over its positions, and ``att`` the map pooled
to S x S positions, both keyed by COCO id.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional

from cml.array_types import Float32, UInt8
from cml.console.messages import format_bytes, say
from cml.console.progress_bar import ProgressBar
from cml.data.decoding import Decoded, decode_chunks
from cml.data.image_list import ImageList
from cml.data.images import Size, read_image, resize_image
from cml.errors import DataError, UserError
from cml.export.feature_stores import STORES, Features, FeatureStore, Layout, Shape
from cml.models.backbone_checks import evaluating
from cml.models.embedding import EmbeddingModel
from cml.models.weights import backbone_fingerprint
from cml.option_types import check_options
from cml.processes.cores import CORES
from cml.processes.device import check_batch_size
from cml.storage.resumable_output import ResumableOutput, resumable_output
from cml.storage.saved_options import Count, record

CHUNK = 64  # images decoded, computed and recorded together


@dataclass(frozen=True)
class CaptioningFeatures:
    """Options of features for captioning code."""

    name: str = "cocotalk"
    """Prefix of the file names."""
    layout: Layout = "directory"
    """directory | hdf5 | lmdb: all three are read by ImageCaptioning.pytorch."""
    att_size: Literal[7, 14] = 7
    """S: spatial features have S x S positions; 14 takes four times the space of 7."""
    dtype: Literal["float32", "float16"] = "float32"
    """Of the spatial features; the global ones are always float32, as the readers require."""
    view: Literal["native", "crop"] = "native"
    """'native' is the whole image at its own size, as in public extractors; 'crop' is the centre at the model's image
    size."""
    longest: int = 1280
    """A native image whose longer side has more pixels than this is scaled down to it."""
    compress: bool = False
    """Compress .npz files: smaller and slower; not for hdf5."""

    def check(self) -> None:
        """Refuse options that are out of range, with a UserError."""
        if not self.name or self.name != Path(self.name).name or self.name.startswith("."):
            raise UserError(f"'name' must be a plain file name. Got {self.name!r} instead.")
        if self.longest < 32:
            raise UserError(f"'longest' must be 32 pixels or more. Got {self.longest} instead.")
        if self.compress and self.layout == "hdf5":
            raise UserError("The layout 'hdf5' is written uncompressed: leave 'compress' out or choose another layout.")


class Estimate(NamedTuple):
    """The remaining work of an export."""

    images: int  # images that are left
    needed: int  # bytes that their features take, or at most take if they are compressed
    free: int  # free bytes of the disk


def export_captioning(
    model: EmbeddingModel,
    images: ImageList,
    out: Path,
    options: CaptioningFeatures | None = None,  # which features, in which layout; None for the defaults
    *,
    trunk: str = "",
    batch_size: int | None = None,  # images of 640 x 480 pixels per forward pass; by default 16, or 1 on a CPU
    threads: int = CORES,
    skip_bad: bool = False,
    quiet: bool = False,
    tell: Callable[[Estimate], object] | None = None,
) -> dict[str, Any]:  # the manifest, which is also written to ``out``
    """Write features of a model's trunk for captioning code. A call that was killed is resumed by the same call."""
    options = check_options(options or CaptioningFeatures())
    batch_size = check_batch_size(model.mean.device, batch_size, threads, on_gpu=16, on_cpu=1)
    store = STORES[options.layout]
    view = CaptioningView(options.view, model.config.image_size, options.longest)
    made_with = {
        "trunk": backbone_fingerprint(model),
        "images": images.fingerprint(),
        **{key: value for key, value in asdict(options).items() if key != "name"},
        **({"image_size": list(model.config.image_size)} if options.view == "crop" else {}),
    }
    manifest, about = f"{options.name}_manifest.json", {"images": str(images.root)}
    parse, parts = functools.partial(_check_record, images=len(images)), store.parts(options.name)
    with resumable_output(out, made_with, parts, manifest, about=about, parse=parse) as output, evaluating(model):
        if output.manifest is not None:
            return output.manifest
        shape = Shape(_channels(model), options.att_size, options.dtype, options.compress)
        seen = int(output.records[-1]["seen"]) if output.records else 0
        left = len(images) - seen
        estimate = Estimate(left, left * store.bytes_each(shape), shutil.disk_usage(output.work).free)
        if estimate.needed > estimate.free and not options.compress:
            raise UserError(
                f"The features of {left} images take {format_bytes(estimate.needed)}, but {out} has "
                f"{format_bytes(estimate.free)} left. Take --att-size 7 or --dtype float16, or another disk."
            )
        if tell is not None:
            tell(estimate)
        with contextlib.closing(store(output.work, options.name, images.item_ids, shape)) as files:
            _write(_Work(model, images, view, files, batch_size), output, seen, threads, skip_bad, quiet)
        scaled = sum(record["scaled"] for record in output.records)
        skipped = [entry for record in output.records for entry in record["skipped"]]
        if len(skipped) == len(images):
            output.start_over()  # there is nothing to continue
            raise DataError(f"None of the {len(images)} images in {images.root} can be read.")
        if skipped:
            files.drop([entry["id"] for entry in skipped])
        head = {"kind": "captioning features", "trunk": trunk or model.config.backbone, **about}
        figures = {"items": len(images) - len(skipped), "channels": shape.channels, "scaled": scaled}
        return output.finish({**head, **figures, "skipped": skipped})


class _Work(NamedTuple):  # what every chunk needs
    model: EmbeddingModel
    images: ImageList
    view: CaptioningView
    files: FeatureStore
    batch_size: int


class _Record(TypedDict):
    seen: Count
    scaled: Count
    skipped: list[dict[str, str]]


def _check_record(entry: Mapping[str, Any], images: int) -> None:
    """Raise DataError or ValueError if a record is not one of ``images`` images."""
    if record(entry, _Record, "the record", "one of features")["seen"] > images:
        raise ValueError("it is of other images")


def _write(work: _Work, output: ResumableOutput, seen: int, threads: int, skip_bad: bool, quiet: bool) -> None:
    """Compute each chunk of what was not ``seen`` while the previous one is written and recorded."""
    images = work.images
    decoding = decode_chunks(images.paths, work.view, size=CHUNK, start=seen, threads=threads, skip_bad=skip_bad)
    pending: tuple[Future[None], Decoded] | None = None
    with (
        contextlib.closing(decoding) as chunks,
        ThreadPoolExecutor(1) as writer,
        ProgressBar(total=len(images), initial=seen, desc="features", unit="image", disable=quiet) as bar,
    ):

        def settle() -> None:
            if pending is None:
                return
            future, chunk = pending
            future.result()
            scaled = sum(images.paths[item] in work.view.scaled for item in chunk.items)
            for fault in chunk.faults.values():
                say(f"skipped: {fault}")
            skipped = [{"id": images.item_ids[item], "error": str(fault)} for item, fault in chunk.faults.items()]
            output.record({"seen": chunk.stop, "scaled": scaled, "skipped": skipped})
            bar.update(chunk.stop - chunk.start)

        for chunk in chunks:
            features = list(_chunk_features(work, chunk))
            settle()
            pending = writer.submit(work.files.write, features), chunk
        settle()


def _chunk_features(work: _Work, chunk: Decoded) -> Iterator[Features]:
    for rows, pixels in same_size_batches(chunk, work.batch_size):
        fc, att = _batch_features(work.model, pixels, work.files.shape)
        for row, one_fc, one_att in zip(rows, fc, att, strict=True):
            item = chunk.items[row]
            if not (np.isfinite(one_fc).all() and np.isfinite(one_att).all()):
                path = work.images.paths[item]
                raise DataError(f"The features of {path} hold NaN or infinity, or are too large for {att.dtype}.")
            yield Features(work.images.item_ids[item], one_fc, one_att)


def same_size_batches(
    chunk: Decoded,
    batch_size: int,  # images of 640 x 480 pixels per batch; of larger images there are fewer
) -> Iterator[tuple[list[int], UInt8]]:  # rows in the chunk, and their pixels (B, H, W, 3)
    """Group the images of a chunk into batches of images of one size."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for row, pixels in enumerate(chunk.pixels):
        groups.setdefault(pixels.shape, []).append(row)
    for (height, width, _), rows in groups.items():
        size = max(1, min(CHUNK, batch_size * 640 * 480 // (height * width)))
        for start in range(0, len(rows), size):
            batch = rows[start : start + size]
            yield batch, np.stack([chunk.pixels[row] for row in batch])


@torch.inference_mode()
def _batch_features(model: EmbeddingModel, pixels: UInt8, shape: Shape) -> tuple[Float32, NDArray[Any]]:
    """Global (B, C) and spatial (B, S, S, C) features of images (B, H, W, 3)."""
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).to(model.mean.device)
    maps = model.feature_maps(images)  # (B, C, h, w)
    places = functional.adaptive_avg_pool2d(maps, shape.side).permute(0, 2, 3, 1)
    kind = torch.float16 if shape.dtype == "float16" else torch.float32
    return maps.mean(dim=(2, 3)).cpu().numpy(), places.to(kind).contiguous().cpu().numpy()


@torch.inference_mode()
def _channels(model: EmbeddingModel) -> int:
    height, width = model.config.image_size
    blank = torch.zeros(1, 3, height, width, dtype=torch.uint8, device=model.mean.device)
    return int(model.feature_maps(blank).shape[1])


LEAST_SIDE = 32  # pixels: most networks halve an image five times


class CaptioningView:
    """Decodes the part of an image that a feature sees."""

    def __init__(self, kind: Literal["native", "crop"], image_size: Size, longest: int) -> None:
        self._kind, self._image_size, self._longest = kind, image_size, longest
        self.scaled: set[Path] = set()  # images that were scaled down or had a side stretched to 32 pixels

    def __call__(self, path: Path) -> UInt8:
        """Decode an image to pixels (H, W, 3)."""
        pixels = read_image(path)
        height, width = pixels.shape[:2]
        if self._kind == "crop":  # the largest centre box of the size's aspect
            h, w = self._image_size
            across, down = (min(height / h, width / w) * side for side in (w, h))
            box = ((width - across) / 2, (height - down) / 2, (width + across) / 2, (height + down) / 2)
            return np.asarray(resize_image(Image.fromarray(pixels), self._image_size, box))
        scale = min(1.0, self._longest / max(height, width))
        size = max(LEAST_SIDE, round(height * scale)), max(LEAST_SIDE, round(width * scale))
        if size == (height, width):
            return pixels
        self.scaled.add(path)
        return np.asarray(resize_image(Image.fromarray(pixels), size))
