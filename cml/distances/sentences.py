"""Texts or sets of texts, by vectors of whole sentences. Not for: distances of words (captions)."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from cml.array_types import Float32
from cml.distances.cosine import Cosine
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.distances.sets import Sets
from cml.errors import DataError
from cml.settings import check_word
from cml.storage.downloads import may_download
from cml.word_vectors.sentence_model import PACKAGED, model_sha256, sentence_vectors

_NOISE = 1e-6  # vectors of equal texts differ by rounding where they were computed beside others


@dataclass(frozen=True)
class Sentences(LabelDistance):
    """1 - cosine of the vectors of whole sentences: the meaning of an image's captions, in whatever words.

    A label is a text, or the list of an image's captions, one or more.

    Args:
        model: ``all-minilm-l6-v2`` (extra ``sentences``, no network), or any sentence-transformers model: the folder
            of one, or its name on the Hugging Face hub, downloaded once.
        reduce: ``sum``: over the captions of both images, the distance to the nearest caption of the other image, as
            in ``captions``. ``mean``: 1 - cosine of the mean vectors of both images' captions.
        model_sha256: Content that the model must have, if given. ``settings()`` fills it in, so that a saved config
            cannot be used with another model.

    Source:
        Reimers and Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", EMNLP 2019, for the
        vectors; Kim et al., "Deep Metric Learning Beyond Binary Supervision", CVPR 2019, for the sum.

    Example:
        >>> distance = Sentences()  # doctest: +SKIP
        >>> labels = distance.encode([["a dog runs"], ["a running dog"], ["the stock market"]])  # doctest: +SKIP
        >>> distance.pairwise(labels[:1], labels).round(2).tolist()  # doctest: +SKIP
        [[0.0, 0.15, 1.87]]
    """

    model: str = PACKAGED
    reduce: Literal["sum", "mean"] = "sum"
    model_sha256: str = field(default="", compare=False)
    name: ClassVar[str] = "sentences"
    _download: ClassVar[bool] = True  # of an instance: whether its model may be downloaded

    @classmethod
    def is_self_contained(cls, settings: Mapping[str, Any]) -> bool:
        """Whether the model is the one of the package, not of a folder or a hub."""
        return bool(settings.get("model", PACKAGED) == PACKAGED)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_word("reduce", self.reduce, ("sum", "mean"))
        object.__setattr__(self, "_download", may_download())  # as of where it is made, not of where it is used
        if self.model_sha256 and self.model_sha256 != self._digest():
            raise DataError(
                f"The sentence model {self.model} is not the one that these settings were saved with: SHA-256 "
                f"{self._digest()[:12]}... instead of {self.model_sha256[:12]}..."
            )

    @property
    def unit(self) -> str:
        """1 - cosine, or the sum of such values."""
        return "1 - cosine" if self.reduce == "mean" else "summed 1 - cosine"

    @functools.cached_property
    def _base(self) -> LabelDistance:
        return Cosine() if self.reduce == "mean" else Sets(Cosine())

    def _digest(self) -> str:
        return model_sha256(self.model, self._download)

    def settings(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them, with the digest of the model."""
        return {**super().settings(), "model_sha256": self._digest()}

    def encode(self, labels: Sequence[Any]) -> Labels:  # the arrays of ``cosine`` or ``sets``
        """Embed the texts of N labels and pack their vectors."""
        captions = [[label] if isinstance(label, str) else label for label in labels]
        for position, label in enumerate(captions):
            listed = isinstance(label, list | tuple) and all(isinstance(text, str) for text in label)
            if not listed or len(label) == 0:
                raise LabelError(position, f"should be a text or a list of texts. Got {short(label)} instead.")
            if not all(text.strip() for text in label):
                raise LabelError(position, f"has an empty text: {short(label)}; write or delete it.")
        vectors = sentence_vectors(self.model, [text for label in captions for text in label], self._download)
        parts = np.split(vectors, np.cumsum([len(label) for label in captions])[:-1])
        return self._base.encode([part.mean(axis=0) for part in parts] if self.reduce == "mean" else parts)

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        distances = self._base.pairwise(a, b)
        distances[distances < _NOISE] = 0
        return distances
