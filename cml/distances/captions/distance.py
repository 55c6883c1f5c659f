"""Distance between the captions of two images, by the Word Mover's Distance of their captions."""

import functools
import hashlib
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.distances.captions.packed_captions import pack_captions
from cml.distances.captions.tokens import stop_words, tokenize
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.distances.nearest import Search
from cml.errors import DataError, UserError
from cml.storage.safe_paths import look_up, unicode_forms
from cml.word_vectors.open import HOW_TO_GET, SCENES, open_word_vectors
from cml.word_vectors.word_vectors import PACKAGED, CountedWords, WordVectors


@dataclass(frozen=True)
class Captions(LabelDistance):
    """Sum over the captions of both images of the distance to the nearest caption of the other image.

    A label is the list of an image's captions, one or more. The distance of two captions is their Word Mover's
    Distance: the least cost of moving the words of one, each caption's words in equal shares that add up to 1, onto
    the words of the other, at the Euclidean distance of their vectors. Exact to about 1e-15.

    Args:
        vectors: The word vectors: ``glove-6b-50d`` (extra ``glove``, taken by itself), ``scene-words`` (the few words
            of cml's drawn scenes), or the path of a GloVe text, a word2vec text or binary, or a .npy with its words in
            a .txt of the same name.
        lower: Lower-case the captions. Right for vectors of lower-cased text, as GloVe's 6B.
        stop_words: Words to leave out: ``function`` (English words of grammar alone), ``english`` (gensim's list of
            337, much like the one that the inventors of the distance take), ``none``, or a list of words. ``english``
            also leaves out numbers and words of place and state, so that two dogs are at distance 0 from three dogs.
        normalize: Bring vectors to unit length, as gensim does; distances are then from 0 to 2 per caption. The
            inventors take the vectors as they are.
        out_of_vocabulary: What to do with a word that the vectors do not know: ``drop`` it or call it an ``error``.
        empty_caption: What to do with a caption of which no word is left: call it an ``error`` or ``drop`` it.
        tokens: ``words``: runs of letters and digits, cut as GloVe's texts were. ``whitespace``: for captions that
            are cut into words already.
        backend: ``numba``, or ``pot`` for a plain loop over POT's solver, 50 to 130 times slower.
        vectors_sha256: Content that the vectors must have, if given. ``settings()`` fills it in, so that a saved
            config cannot be used with other vectors.

    Source:
        Kim et al., "Deep Metric Learning Beyond Binary Supervision", CVPR 2019, for the sum; Kusner et al., "From Word
        Embeddings To Document Distances", ICML 2015, for the Word Mover's Distance. Vectors, their length and stop
        words are stated nowhere for the sum.

    Example:
        >>> distance = Captions("glove-6b-50d")  # doctest: +SKIP
        >>> labels = distance.encode([["a dog runs", "a running dog"], ["the dog sleeps"]])  # doctest: +SKIP
        >>> distance.pairwise(labels, labels).shape  # doctest: +SKIP
        (2, 2)
    """

    vectors: str = PACKAGED
    lower: bool = True
    stop_words: str | tuple[str, ...] = "function"
    normalize: bool = True
    out_of_vocabulary: Literal["drop", "error"] = "drop"
    empty_caption: Literal["error", "drop"] = "error"
    tokens: Literal["words", "whitespace"] = "words"
    backend: Literal["numba", "pot"] = "numba"
    vectors_sha256: str = field(default="", compare=False)
    name: ClassVar[str] = "captions"
    unit: ClassVar[str] = "summed WMD"

    @classmethod
    def is_self_contained(cls, settings: Mapping[str, Any]) -> bool:
        """Whether the word vectors are those of a package, not of a file."""
        return settings.get("vectors", PACKAGED) in (PACKAGED, SCENES)

    def __post_init__(self) -> None:
        if not self.vectors:
            raise UserError(f"The captions need word vectors. {HOW_TO_GET}.")
        words: Any = "none" if self.stop_words is None else self.stop_words  # a bare none on the command line
        if isinstance(words, list | tuple) and all(isinstance(word, str) for word in words):
            words = tuple(words)
        elif words not in ("none", "function", "english"):
            raise UserError(
                f"The 'stop_words' must be none, function, english or a list of words. Got {words!r} instead."
            )
        object.__setattr__(self, "stop_words", words)
        super().__post_init__()
        if self.vectors_sha256 and self.vectors_sha256 != self._vectors.sha256():
            raise DataError(
                f"The word vectors {self.vectors} are not those that these settings were saved with: SHA-256 "
                f"{self._vectors.sha256()[:12]}... instead of {self.vectors_sha256[:12]}..."
            )

    @classmethod
    def gensim(cls, vectors: str | Path) -> Self:
        """Configure the distance like gensim's ``wmdistance`` of captions that are cut at white space.

        Case and stop words are kept, and unknown words are dropped. Where gensim gives infinity (a caption without a
        known word, two words with equal vectors) or NaN and 0 (a vector of zeros), this raises an error or gives the
        distance.

        Args:
            vectors: The word vectors, as of the class.

        Returns:
            The label distance.
        """
        return cls(str(vectors), lower=False, stop_words="none", tokens="whitespace")

    @property
    def is_costly(self) -> bool:
        """True: about 20 microseconds a pair."""
        return True

    @functools.cached_property
    def _vectors(self) -> WordVectors:
        return open_word_vectors(self.vectors)

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to another process as its settings: the vectors are opened there."""
        return type(self), tuple(getattr(self, each.name) for each in fields(self))

    def settings(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them, with the digest of the vectors' content."""
        return {**super().settings(), "vectors_sha256": self._vectors.sha256()}

    def fingerprint(self) -> str:
        """Return a hex digest of name, settings, stop words and vectors, wherever the vectors' file lies."""
        known = {**self.settings(), "vectors": "", "stop_words": sorted(stop_words(self.stop_words))}
        return hashlib.sha256(repr([self.name, sorted(known.items())]).encode()).hexdigest()

    def encode(self, labels: Sequence[Any]) -> Labels:  # the arrays of ``pack_captions``
        """Cut the captions of N images into words and pack their numbers, which are rows of the vectors' file."""
        for position, label in enumerate(labels):
            listed = isinstance(label, list | tuple) and all(isinstance(text, str) for text in label)
            if not listed or len(label) == 0:
                raise LabelError(position, f"should be a list of one or more captions. Got {short(label)} instead.")
        texts = list(self._cut(labels))
        numbers = self._find({word for image in texts for caption in image for word in caption})
        self._check_directions(numbers)
        dropped: list[str] = []
        images = [list(self._known_words(image, numbers, labels[n], n, dropped)) for n, image in enumerate(texts)]
        for position, image in enumerate(images):
            if not image:
                raise LabelError(
                    position,
                    f"has no caption with a known word: {short(labels[position])}; mend it, leave the item out, or "
                    "take other vectors.",
                )
        if dropped:
            named = ", ".join(map(repr, dropped[:5])) + " ..." * (len(dropped) > 5)
            warnings.warn(
                f"{len(dropped)} caption(s) of which {self.vectors} knows no word are left out: {named}", stacklevel=2
            )
        return pack_captions(images)

    def count_words(self, labels: Sequence[Sequence[str]]) -> CountedWords:
        """Count the words of captions, without stop words, and those among them that the vectors do not know.

        Args:
            labels: For each image the list of its captions.

        Returns:
            The counts.
        """
        counts = Counter(word for image in self._cut(labels) for caption in image for word in caption)
        known = self._find(counts.keys())
        unknown = {word: count for word, count in counts.most_common() if word not in known}
        return CountedWords(counts.total(), unknown, self.vectors)

    def _cut(self, labels: Sequence[Sequence[str]]) -> Iterator[list[list[str]]]:
        """Cut the captions of images into words, and leave out stop words."""
        excluded = stop_words(self.stop_words)
        for label in labels:
            words = (tokenize(text, rule=self.tokens, lower=self.lower) for text in label)
            yield [[word for word in caption if word not in excluded] for caption in words]

    def _find(self, words: Collection[str]) -> dict[str, int]:
        """The row numbers of known words; a file may have them in another Unicode normal form than captions."""
        rows = self._vectors.find({form for word in words for form in unicode_forms(word)})
        found = {word: look_up(word, rows) for word in words}
        return {word: row for word, row in found.items() if row is not None}

    def _check_directions(self, numbers: dict[str, int]) -> None:
        vectors = self._vectors.rows(np.array(list(numbers.values()), np.int64))
        zeros = np.flatnonzero(~vectors.any(axis=1))
        if self.normalize and len(zeros):
            word = list(numbers)[zeros[0]]
            raise DataError(
                f"{self._vectors.place(numbers[word])}: the vector of {word!r} is all zeros and cannot be brought to "
                "unit length; add the word to stop_words, or set normalize=False."
            )

    def _known_words(
        self, image: list[list[str]], numbers: dict[str, int], label: Sequence[str], position: int, dropped: list[str]
    ) -> Iterator[list[int]]:
        for number, caption in enumerate(image):
            known = [numbers[word] for word in caption if word in numbers]
            if self.out_of_vocabulary == "error" and len(known) < len(caption):
                word = next(word for word in caption if word not in numbers)
                raise LabelError(
                    position,
                    f"caption {number} has the word {word!r}, which {self.vectors} does not know; mend it, or set "
                    "out_of_vocabulary=drop.",
                )
            if known:
                yield known
            elif self.empty_caption == "error":
                raise LabelError(
                    position,
                    f"caption {number}, {short(label[number])}, has no word left that {self.vectors} knows; mend it, "
                    "or set empty_caption=drop.",
                )
            else:
                dropped.append(label[number])

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute distances: the same number, to the last bit, from b to a and in any block."""
        return self.pairwise64(a, b).astype(np.float32)

    def pairwise64(self, a: Labels, b: Labels, threads: int = 1) -> Float64:
        """Compute the same distances in float64.

        Args:
            a: A packed images.
            b: B packed images.
            threads: Threads that share the rows; their number changes no bit.

        Returns:
            (A, B) float64.
        """
        from cml.distances.captions.blocks import caption_distances

        return caption_distances(a, b, self._vectors_of, use_pot=self.backend == "pot", threads=threads)

    def searcher(self, labels: Labels, k: int, *, block_bytes: int = 64 << 20) -> Search:
        """Prepare the search for the exact k nearest labels; most pairs are ruled out by their lower bound."""
        if self.backend == "pot":
            return super().searcher(labels, k, block_bytes=block_bytes)
        from cml.distances.captions.blocks import nearest_search

        return nearest_search(labels, k, self._vectors_of, block_bytes=block_bytes)

    def _vectors_of(self, words: Int64) -> Float64:
        """Return the vectors (V, D) of word numbers, of length 1 if ``normalize`` is set."""
        vectors = self._vectors.rows(words)
        if self.normalize:
            vectors /= np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
        return vectors
