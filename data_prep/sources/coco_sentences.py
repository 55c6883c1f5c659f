"""COCO captions without their photographs: each image is the mean of the sentence vectors of its captions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cml.array_types import Float32
from cml.data.prepared_writer import Item
from cml.data_prep.captioned_source import Photo
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.hash_split import split_by_hash
from cml.data_prep.provenance import record_provenance
from cml.data_prep.row_errors import read_each
from cml.data_prep.sources.coco_captions import check_year, read_captions
from cml.word_vectors.sentence_model import PACKAGED, model_sha256, sentence_vectors


@dataclass(frozen=True)
class CocoSentences(DatasetSource):
    """Captions of COCO as vectors: the mean sentence vector of an image's captions; label: the captions.

    Command: cml prepare coco_sentences --source annotations/captions_val2017.json --out DIR

    Input: one of COCO's caption files; no photograph is read. The vectors have 384 numbers, by the model of the extra
    sentences, which needs no download. The captions are compared by the Word Mover's Distance. The item's id is COCO's
    image id.

    Split: a hash of the ids.

    Licence: annotations CC BY 4.0.
    """

    source: Path
    """A file captions_*.json."""
    year: int = 2017
    """Year of the file, 2014 or 2017."""
    model: str = PACKAGED
    """Sentence model: all-minilm-l6-v2, the folder of a sentence-transformers model, or its name on the Hugging Face
    hub, which is downloaded."""
    test_fraction: float = 0.3
    """Fraction of images held out for testing."""
    query_fraction: float = 0.2
    """Fraction of test images that are queries; the others form the gallery."""

    task = "caption"
    published = "COCO captions, Chen et al., arXiv 1504.00325, 2015"
    licence = "annotations CC BY 4.0"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_year(self.year)

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        return {**record_provenance(self, revision=1, files=[self.source]), "model_sha256": model_sha256(self.model)}

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        photos = list(read_captions(self.source, self.source.parent, self.year).values())
        sound = [photo for photo in photos if photo.captions and not photo.fault]
        vectors = sentence_vectors(self.model, [caption for photo in sound for caption in photo.captions])
        ends = np.cumsum([len(photo.captions) for photo in sound])[:-1]
        means = dict(zip([photo.item_id for photo in sound], map(_mean, np.split(vectors, ends)), strict=True))

        def make_item(_: str, photo: Photo) -> Item:
            photo.check()
            role = split_by_hash(photo.item_id, self.test_fraction, self.query_fraction)
            return Item(photo.item_id, role, None, photo.captions, where=photo.where, vector=means[photo.item_id])

        items = list(read_each((("", photo) for photo in photos), make_item))
        inputs = {"kind": "vectors", "size": vectors.shape[1]}
        return Content(
            items, {"split": "hash of the ids", "inputs": inputs}, texts={"name": f"coco-captions-{self.year}"}
        )


def _mean(rows: Float32) -> Float32:
    """The mean (D,) of sentence vectors (N, D)."""
    mean: Float32 = rows.mean(axis=0)
    return mean
