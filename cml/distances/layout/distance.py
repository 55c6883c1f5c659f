"""Segmentations. Not for: making masks, which data_prep does, or scoring a segmentation network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32, Int64, UInt8, UInt64
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.errors import UserError
from cml.processes.cores import CORES
from cml.settings import check_word

if TYPE_CHECKING:
    from cml.distances.layout.kernel import Bits


MOST_PIXELS = 1 << 24
MOST_MATCHED = 10  # classes of a mask that the matching can take: its time doubles with each
_PACKED_PIXELS = 1 << 18  # packed at a time
_AHEAD = 64  # masks read at a time
_TILE = 1024  # masks a side whose classes are unpacked at a time


@dataclass(frozen=True)
class Layout(LabelDistance):
    """1 - mIoU of two segmentation masks, the mean over the classes present in either.

    Pixels ignored in either mask are left out of both. Two masks without a pixel that counts in both cannot be
    compared: their distance is infinite. Labels are paths of mask images (8-bit grey or palette, the value is the
    class id; read in threads) or 2-D integer arrays of ids.

    Args:
        ignore: Id of pixels that do not count; None if every id is a class.
        largest_id: A larger id is an error; ``ignore`` alone may be larger.
        resolution: Masks are reduced to this many pixels per side (nearest), whatever their size and shape. None keeps
            them as they are; all must then have the same size. Measured on 262 real room layouts of 320x240, error of
            1 - mIoU on average and at most, and time for all pairs of a batch of 150: 32 pixels 0.004, 0.064, 0.6 ms;
            64 pixels 0.002, 0.034, 1.0 ms; 128 pixels 0.001, 0.019, 1.7 ms; as they are 14 ms. At 64 it is a
            hundredth of a training step, and the rows fill whole machine words.
        matching: ``fixed``: an id means the same in both masks. ``hungarian``: ids are names only; the ids of one mask
            are matched one to one with those of the other so that most pixels agree, and among such matchings to
            the highest mIoU. A class left over counts with an IoU of 0. Up to 10 classes per mask.

    Source:
        Kim et al., "Deep Metric Learning Beyond Binary Supervision", CVPR 2019: 1 - mIoU; resolution and matching
        are stated nowhere. The LSUN room layout challenge scores pixels after the matching by most agreeing pixels.

    Example:
        >>> distance = Layout(resolution=None)
        >>> masks = distance.encode([[[1, 1], [4, 4]], [[1, 4], [4, 4]]])
        >>> distance.pairwise(masks, masks).round(3).tolist()  # 1 - (1/2 + 2/3) / 2
        [[0.0, 0.4169999957084656], [0.4169999957084656, 0.0]]
    """

    ignore: int | None = 0
    largest_id: int = 255
    resolution: int | None = 64
    matching: Literal["fixed", "hungarian"] = "fixed"
    name: ClassVar[str] = "layout"
    unit: ClassVar[str] = "1 - mIoU"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ignore is not None and not _is_whole(self.ignore, 0, 255):
            raise UserError(f"The 'ignore' must be a class id from 0 to 255, or None. Got {self.ignore!r} instead.")
        if not _is_whole(self.largest_id, 0, 255):
            raise UserError(f"The 'largest_id' must be from 0 to 255. Got {self.largest_id!r} instead.")
        if (size := self.resolution) is not None and not _is_whole(size, 1, 4096):
            raise UserError(f"The 'resolution' must be from 1 to 4096 pixels, or None. Got {size!r} instead.")
        check_word("matching", self.matching, ("fixed", "hungarian"))

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Read and pack masks of one size: the bits of their ids, one a pixel, and how many pixels each id has.

        Returns arrays ``planes`` (N, bits, words) uint64, ``areas`` (N, 1 + highest id) int32, and ``size`` (N, 2)
        int32, height and width.
        """
        size = (0, 0)
        maps: UInt8 = np.empty((0, 0), np.uint8)
        planes: UInt64 = np.empty((0, 8, 0), np.uint64)
        areas = np.empty((len(labels), 256), np.int32)
        for position, mask in enumerate(self._masks(labels)):
            if position == 0:
                size = mask.shape
                maps = np.empty((max(1, _PACKED_PIXELS // mask.size), mask.size), np.uint8)
                planes = np.empty((len(labels), 8, -(-mask.size // 64)), np.uint64)
            if mask.shape != size:
                fault = f"is {_size(mask.shape)} pixels, the first is {_size(size)}; masks of different sizes need a "
                raise _fault(position, labels[position], fault + "resolution")
            flat = mask.reshape(-1)
            areas[position] = np.bincount(flat, minlength=256)
            if self.ignore is not None and areas[position, self.ignore] == mask.size:
                raise _fault(position, labels[position], f"has only ignored pixels (id {self.ignore})")
            place = position % len(maps)
            maps[place] = flat
            if place == len(maps) - 1 or position == len(labels) - 1:  # a chunk is complete
                for bit in range(8):
                    planes[position - place : position + 1, bit] = _pack_bits(maps[: place + 1] >> bit & 1)
        highest = int(np.flatnonzero(areas.any(axis=0)).max())
        used = planes[:, : max(1, highest.bit_length())].copy()
        sizes = np.tile(np.array(size, np.int32), (len(labels), 1))
        return Labels({"planes": used, "areas": areas[:, : highest + 1].copy(), "size": sizes})

    def _masks(self, labels: Sequence[Any]) -> Iterator[UInt8]:
        """The checked masks in order, at the resolution; a few files are read ahead."""

        def load(position: int) -> UInt8:
            mask = _read_mask(labels[position], position)
            most = int(mask.max() if self.ignore is None else np.where(mask == self.ignore, 0, mask).max())
            if most > self.largest_id:
                raise _fault(position, labels[position], f"holds the id {most}; ids should be 0 to {self.largest_id}")
            if self.resolution is not None:  # take what is nearest to the middles of equal parts
                middles = 2 * np.arange(self.resolution) + 1
                mask = mask[np.ix_(*(middles * length // (2 * self.resolution) for length in mask.shape))]
            if mask.size > MOST_PIXELS:
                fault = f"has {mask.size:,} pixels; at most {MOST_PIXELS:,}. Set a resolution"
                raise _fault(position, labels[position], fault)
            return mask

        with ThreadPoolExecutor(CORES) as pool:  # Pillow decodes outside the interpreter lock
            for start in range(0, len(labels), _AHEAD):
                yield from pool.map(load, range(start, min(start + _AHEAD, len(labels))))

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        from cml.distances.layout.kernel import matched_iou_distances, mean_iou_distances

        result = np.empty((len(a), len(b)), np.float32)
        size_a, size_b = (_size(side.arrays["size"][0].tolist()) for side in (a, b))
        if size_a != size_b:
            raise UserError(f"The masks of the two sides are {size_a} and {size_b} pixels; set a resolution.")
        present = {mask_id for side in (a, b) for mask_id in np.flatnonzero(side.arrays["areas"].any(axis=0)).tolist()}
        ids = sorted(present - {self.ignore})
        fill = matched_iou_distances if self.matching == "hungarian" else mean_iou_distances
        for i in range(0, len(a), _TILE):
            bits_a = self._unpack_bits(a[i : i + _TILE], ids)
            for j in range(i if a is b else 0, len(b), _TILE):
                bits_b = bits_a if a is b and i == j else self._unpack_bits(b[j : j + _TILE], ids)
                tile = np.empty((len(bits_a.areas), len(bits_b.areas)), np.float32)
                fill(bits_a, bits_b, bits_a is bits_b, tile)
                result[i : i + _TILE, j : j + _TILE] = tile
                if a is b:  # the same to the last bit either way
                    result[j : j + _TILE, i : i + _TILE] = tile.T
        return result

    def _unpack_bits(self, labels: Labels, ids: list[int]) -> Bits:
        from cml.distances.layout.kernel import Bits

        areas = np.stack([_area(labels, mask_id) for mask_id in ids], axis=1)  # (N, K)
        if self.matching == "hungarian" and (most := np.count_nonzero(areas, axis=1).max()) > MOST_MATCHED:
            raise UserError(
                f"matching=hungarian takes at most {MOST_MATCHED} classes per mask. Got {most}; use matching=fixed."
            )
        classes = np.stack([_class_pixels(labels, mask_id) for mask_id in ids], axis=1)  # (N, K, W)
        if self.ignore is None:
            return Bits(classes, areas, np.zeros((len(labels), 1), np.uint64), np.zeros(len(labels), bool))
        return Bits(classes, areas, _class_pixels(labels, self.ignore), _area(labels, self.ignore) > 0)


def _pack_bits(flat: NDArray[Any]) -> UInt64:
    """Pack (..., P) zeros and ones as (..., P / 64) words, the last one filled with zeros."""
    packed = np.packbits(flat, axis=-1)
    padded = np.zeros((*packed.shape[:-1], -(-packed.shape[-1] // 8) * 8), np.uint8)
    padded[..., : packed.shape[-1]] = packed
    return padded.view(np.uint64)


def _class_pixels(labels: Labels, class_id: int) -> UInt64:
    """Find where a class id is: (N, words), one bit per pixel."""
    planes = labels.arrays["planes"]
    height, width = labels.arrays["size"][0].tolist()
    where = np.tile(_pack_bits(np.ones(height * width, np.uint8)), (len(labels), 1))  # filling is of no class
    for bit in range(planes.shape[1]):
        where &= planes[:, bit] if class_id >> bit & 1 else ~planes[:, bit]
    return where if class_id < 1 << planes.shape[1] else np.zeros_like(where)


def _area(labels: Labels, class_id: int) -> Int64:
    """Count the pixels of a class id in each mask: (N,)."""
    areas = labels.arrays["areas"]
    return areas[:, class_id].astype(np.int64) if class_id < areas.shape[1] else np.zeros(len(labels), np.int64)


def _read_mask(label: Any, position: int) -> UInt8:  # noqa: ANN401 - checked here
    if isinstance(label, str | Path):
        from cml.data.masks import MaskFault, read_mask

        try:
            return read_mask(Path(label))
        except MaskFault as fault:
            raise _fault(position, label, str(fault)) from None
    try:
        mask = np.asarray(label)
    except ValueError:  # rows of different lengths
        mask = np.empty(0)
    if mask.ndim != 2 or mask.size == 0 or mask.dtype.kind not in "iu":
        raise LabelError(position, f"should be a mask's path or a 2-D array of class ids. Got {short(label)} instead.")
    if mask.min() < 0 or mask.max() > 255:
        raise LabelError(position, f"holds the class ids {mask.min()} to {mask.max()}; they should be 0 to 255.")
    return mask.astype(np.uint8)


def _fault(position: int, label: Any, fault: str) -> LabelError:  # noqa: ANN401 - a path or an array
    named = f"is the mask {label}, which {fault}" if isinstance(label, str | Path) else fault
    return LabelError(position, f"{named}.")


def _size(shape: Sequence[int]) -> str:
    return f"{shape[1]}x{shape[0]}"


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
