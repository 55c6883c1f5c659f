"""Captions as packed arrays: what ``Captions.encode`` stores for each image, and what its kernels work on."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cml.array_types import Float64, Int64
from cml.distances.labels import Labels


class PackedCaptions(NamedTuple):
    """The captions of N images as bags of words, one image after the other.

    Words are numbers of a vocabulary of V words; there are C captions, E distinct words of captions, and W distinct
    words of images in all.

    Attributes:
        captions: (N + 1,) image n has the captions captions[n] .. captions[n + 1] - 1.
        entries: (C + 1,) caption c has the entries entries[c] .. entries[c + 1] - 1, words ascending.
        places: (E,) an entry's word, as its place in the word list of its image.
        counts: (E,) how often the word occurs in the caption.
        weights: (E,) the same, as a share of the caption's words.
        lengths: (C,) words of a caption, each as often as it occurs.
        lists: (N + 1,) image n has the distinct words words[lists[n]] .. words[lists[n + 1] - 1], ascending.
        words: (W,) the distinct words of all images.
        ranks: (N,) an order of the images by content alone, equal where the content is.
    """

    captions: Int64
    entries: Int64
    places: Int64
    counts: Int64
    weights: Float64
    lengths: Int64
    lists: Int64
    words: Int64
    ranks: Int64


def pack_captions(images: Sequence[Sequence[Sequence[int]]]) -> Labels:
    """Pack word numbers as arrays with one row per image.

    Args:
        images: For each of N images, for each of its captions, the word numbers.

    Returns:
        ``lengths`` (N, most captions) int32, words of each caption; ``words`` (N, most words) int32, ascending in
        each caption; 0 and -1 fill the rest. ``content`` (N, 2) int64, a digest of both.
    """
    lengths = np.zeros((len(images), max(len(image) for image in images)), np.int32)
    words = np.full((len(images), max(sum(map(len, image)) for image in images)), -1, np.int32)
    content = np.empty((len(images), 2), np.int64)
    for row, image in enumerate(images):
        flat = [word for caption in image for word in sorted(caption)]
        lengths[row, : len(image)] = [len(caption) for caption in image]
        words[row, : len(flat)] = flat
        text = lengths[row, : len(image)].tobytes() + b":" + words[row, : len(flat)].tobytes()
        content[row] = np.frombuffer(hashlib.blake2b(text, digest_size=16).digest(), np.int64)
    return Labels({"lengths": lengths, "words": words, "content": content})


def collect_words(*labels: Labels) -> Int64:
    """Collect the word numbers that occur.

    Args:
        *labels: Packed images.

    Returns:
        (V,) int64, ascending.
    """
    occurs = np.zeros(1 + max(int(part.arrays["words"].max()) for part in labels), bool)
    for part in labels:
        words = part.arrays["words"]
        occurs[words[words >= 0]] = True
    return np.flatnonzero(occurs)


def rank_by_content(*labels: Labels) -> list[Int64]:
    """Order images by content.

    Args:
        *labels: Packed images, in several parts.

    Returns:
        For each part its images' ranks (N,) int64, equal where the content is.
    """
    _, order = np.unique(np.concatenate([part.arrays["content"] for part in labels]), axis=0, return_inverse=True)
    return np.split(order.reshape(-1).astype(np.int64), np.cumsum([len(part) for part in labels])[:-1])


def unpack_captions(labels: Labels, words: Int64, order: Int64) -> PackedCaptions:
    """Bring packed images into the form of the kernels.

    Args:
        labels: N packed images.
        words: (V,) the vocabulary, ascending word numbers that hold all of the images' words.
        order: (N,) ranks of the images by content.

    Returns:
        The images' captions over the vocabulary.
    """
    count, lengths, tokens = len(labels), labels.arrays["lengths"], labels.arrays["words"]
    captions = np.concatenate([[0], np.cumsum(np.count_nonzero(lengths, axis=1))])
    flat_lengths = lengths[lengths > 0].astype(np.int64)
    place = np.zeros(1 + words[-1], np.int64)  # in the vocabulary; a look each, where a search would take longest here
    place[words] = np.arange(len(words))
    tokens = place[tokens[tokens >= 0]]
    caption = np.repeat(np.arange(len(flat_lengths)), flat_lengths)
    starts = np.flatnonzero(np.diff(caption, prepend=-1) | np.diff(tokens, prepend=-1))  # of each distinct word
    counts = np.diff(starts, append=len(tokens))
    caption, tokens = caption[starts], tokens[starts]
    image = np.repeat(np.arange(count), np.diff(captions))[caption]
    pairs, where = np.unique(image * len(words) + tokens, return_inverse=True)
    lists = np.searchsorted(pairs, np.arange(count + 1) * len(words))
    return PackedCaptions(
        captions=captions,
        entries=np.searchsorted(caption, np.arange(len(flat_lengths) + 1)),
        places=where - lists[image],
        counts=counts,
        weights=counts / flat_lengths[caption],
        lengths=flat_lengths,
        lists=lists,
        words=pairs % len(words),
        ranks=order,
    )
