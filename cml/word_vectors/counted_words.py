"""How many words of texts there are, and which of them word vectors do not know."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class CountedWords:
    """The words of texts, and those among them that word vectors do not know.

    Attributes:
        total: The number of words, each as often as it occurs.
        unknown: The words without a vector and how often they occur, the most frequent first.
        vectors: The name or path of the word vectors.
    """

    total: int
    unknown: Mapping[str, int]
    vectors: str
