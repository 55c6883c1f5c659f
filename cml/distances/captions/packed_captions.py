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
    """

    captions: Int64  # (N + 1,) image n has the captions captions[n] .. captions[n + 1] - 1
    entries: Int64  # (C + 1,) caption c has the entries entries[c] .. entries[c + 1] - 1, words ascending
    places: Int64  # (E,) an entry's word, as its place in the word list of its image
    counts: Int64  # (E,) how often the word occurs in the caption
    weights: Float64  # (E,) the same, as a share of the caption's words
    lengths: Int64  # (C,) words of a caption, each as often as it occurs
    lists: Int64  # (N + 1,) image n has the distinct words words[lists[n]] .. words[lists[n + 1] - 1], ascending
    words: Int64  # (W,) the distinct words of all images
    ranks: Int64  # (N,) an order of the images by content alone, equal where the content is


def pack_captions(images: Sequence[Sequence[Sequence[int]]]) -> Labels:
    """Pack word numbers as arrays with one row per image.

    Returns ``lengths`` (N, most captions) int32, words of each caption; ``words`` (N, most words) int32, ascending in
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


def collect_words(*labels: Labels) -> Int64:  # (V,) int64, ascending
    """Collect the word numbers that occur."""
    occurs = np.zeros(1 + max(int(part.arrays["words"].max()) for part in labels), bool)
    for part in labels:
        words = part.arrays["words"]
        occurs[words[words >= 0]] = True
    return np.flatnonzero(occurs)


def rank_by_content(
    *labels: Labels,
) -> list[Int64]:  # for each part its images' ranks (N,) int64, equal where the content is
    """Order images by content."""
    _, order = np.unique(np.concatenate([part.arrays["content"] for part in labels]), axis=0, return_inverse=True)
    return np.split(order.reshape(-1).astype(np.int64), np.cumsum([len(part) for part in labels])[:-1])


def unpack_captions(
    labels: Labels,
    words: Int64,  # (V,) the vocabulary, ascending word numbers that hold all of the images' words
    order: Int64,  # (N,) ranks of the images by content
) -> PackedCaptions:
    """Bring packed images into the form of the kernels."""
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
