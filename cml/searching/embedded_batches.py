"""Embeddings of the items of an export, batch by batch."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32
from cml.data.decoding import Decoded, decode_chunks
from cml.data.image_list import ImageList
from cml.data.images import Images, read_pixels, stored_size

if TYPE_CHECKING:
    from cml.models.embedding import EmbeddingModel

BATCHES_A_CHUNK = 16  # batches between two records, which a kill can cost


class Batch(NamedTuple):
    """The embeddings of some items."""

    start: int  # position of the first item
    stop: int  # position behind the last one
    items: list[int]  # positions of the items that could be read
    embeddings: Float32  # their embeddings, (n, D)
    faults: dict[int, str]  # positions of the others, and what is wrong with each


def embed_batches(
    model: EmbeddingModel, images: ImageList, batch_size: int, threads: int, *, skip_bad: bool, start: int = 0
) -> Generator[Batch]:
    """Embed items in order. Close it, as with ``contextlib.closing``."""
    embed: Callable[[Any], Float32]
    if images.features is not None:
        decoding = _read_chunks(images, images.read_features, batch_size, start)
        embed = functools.partial(model.embed_feature_rows, batch_size=batch_size)
    elif images.rows:
        decoding = _read_chunks(images, images.read, batch_size, start)
        embed = functools.partial(model.embed, batch_size=batch_size)
    else:
        size = stored_size(model.config.image_size, model.config.crop)
        channels, decode = model.config.inputs.channels, model.forward_pass.decode
        read = functools.partial(read_pixels, channels=channels, size=size, decode=decode)
        decoding = decode_chunks(images.paths, read, size=batch_size, start=start, threads=threads, skip_bad=skip_bad)
        embed = functools.partial(_embed_pixels, model, batch_size)
    with contextlib.closing(decoding) as chunks:
        for chunk in chunks:
            embeddings = embed(_join(chunk.pixels)) if chunk.items else np.empty((0, model.config.dimension), "f4")
            faults = {item: str(fault) for item, fault in chunk.faults.items()}
            yield Batch(chunk.start, chunk.stop, chunk.items, embeddings, faults)


def _embed_pixels(model: EmbeddingModel, batch_size: int, pixels: NDArray[Any]) -> Float32:
    """Embed decoded images."""
    return model.embed(Images.from_pixels(pixels), batch_size=batch_size)


def _join(items: list[Any]) -> Any:  # noqa: ANN401 - an array, or a list of texts
    """Items of one chunk as a model takes them."""
    return items if isinstance(items[0], str) else np.stack(items)


def _read_chunks(images: ImageList, read: Callable[[int, int], Any], size: int, start: int) -> Generator[Decoded]:
    """Read vectors, texts or features chunk by chunk, as ``decode_chunks`` reads images."""
    for begin in range(start, len(images), size):
        end = min(begin + size, len(images))
        yield Decoded(begin, end, list(range(begin, end)), list(read(begin, end)), {})
