"""Edit distance, for texts and lists of tokens such as actions or notes."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cml.array_types import Float32, Int64
from cml.data.tensor_array import tensor_array
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.distances.sequences.edit_loops import count_edits, weigh_edits
from cml.errors import UserError

_MOST_CODES = 1 << 16  # numbers of tokens that are close enough to count from the least


@dataclass(frozen=True)
class Edit(LabelDistance):
    """The least cost of insertions, deletions and substitutions that turn one sequence of tokens into another.

    A label is a text, whose tokens are its characters, or a list of tokens: texts or whole numbers. With equal weights
    it is Levenshtein's distance. An empty text is allowed.

    Args:
        insert: Cost of an inserted token, above 0; the distance is symmetric if it is that of a deleted one.
        delete: Cost of a deleted token, above 0.
        substitute: Cost of a token in place of another, above 0.

    Source:
        Levenshtein, "Binary codes capable of correcting deletions, insertions, and reversals", Soviet Physics Doklady
        1966; Wagner and Fischer, "The string-to-string correction problem", JACM 1974, for the table.

    Example:
        >>> distance = Edit()
        >>> words = distance.encode(["kitten", "sitting", ""])
        >>> distance.pairwise(words[:1], words).tolist()
        [[0.0, 3.0, 6.0]]
    """

    insert: float = 1.0
    delete: float = 1.0
    substitute: float = 1.0
    name: ClassVar[str] = "edit"
    unit: ClassVar[str] = "edits"
    is_costly: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("insert", "delete", "substitute"):
            if not 0 < (value := getattr(self, name)) < np.inf:
                raise UserError(f"The cost '{name}' should be above 0 and finite. Got {value} instead.")

    @property
    def is_symmetric(self) -> bool:
        """True if a token costs as much to insert as to delete."""
        return self.insert == self.delete

    @property
    def is_metric(self) -> bool:
        """True if it is symmetric."""
        return self.is_symmetric

    def encode(self, labels: Sequence[Any]) -> Labels:  # arrays ``tokens`` (N, T) int64 and ``lengths`` (N,)
        """Check and pack texts or lists of tokens."""
        rows = [_read_tokens(label, position) for position, label in enumerate(labels)]
        lengths = np.array([len(row) for row in rows], np.int64)
        tokens = np.full((len(rows), max(1, int(lengths.max()))), -1, np.int64)
        for position, row in enumerate(rows):
            tokens[position, : len(row)] = row
        return Labels({"tokens": tokens, "lengths": lengths})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        out = np.empty((len(a), len(b)), np.float32)
        first, second = np.ascontiguousarray(a.arrays["tokens"]), np.ascontiguousarray(b.arrays["tokens"])
        lengths = a.arrays["lengths"], b.arrays["lengths"]
        if (self.insert, self.delete, self.substitute) == (1, 1, 1):
            mirror = np.array_equal(first, second) and np.array_equal(*lengths)
            first, second, codes = _number_closely(first, second)
            count_edits(first, lengths[0], second, lengths[1], codes, mirror, out)
        else:
            weigh_edits(first, lengths[0], second, lengths[1], self.insert, self.delete, self.substitute, out)
        return out


def _number_closely(first: Int64, second: Int64) -> tuple[Int64, Int64, int]:
    """The tokens of two sides as numbers from 0, and how many numbers there are."""
    least = min(int(first.min()), int(second.min()))
    count = max(int(first.max()), int(second.max())) - least + 1
    if count <= _MOST_CODES:
        return first - least, second - least, count
    kinds, places = np.unique(np.concatenate([first.ravel(), second.ravel()]), return_inverse=True)
    return places[: first.size].reshape(first.shape), places[first.size :].reshape(second.shape), len(kinds)


def _read_tokens(label: Any, position: int) -> list[int]:  # noqa: ANN401 - checked here
    """The numbers of tokens; those of texts do not depend on the other labels."""
    if isinstance(label, str):
        return [ord(character) for character in label]
    label = tensor_array(label) if hasattr(label, "detach") else label
    tokens = label.tolist() if isinstance(label, np.ndarray) else label
    if isinstance(tokens, list | tuple):
        if all(isinstance(token, str) for token in tokens):
            return [_number(token) for token in tokens]
        if all(isinstance(token, int) and not isinstance(token, bool) and abs(token) < 1 << 62 for token in tokens):
            return list(tokens)
    raise LabelError(position, f"should be a text, or a list of texts or of whole numbers. Got {short(label)} instead.")


def _number(token: str) -> int:
    """A number of a token, of 62 bits: two tokens of one number are as good as impossible."""
    if len(token) == 1:
        return ord(token)
    digest = hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 2) | (1 << 61)
