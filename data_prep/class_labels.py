"""What the datasets of class labels share: their label column, and the protocol that dataset.json states.

A published protocol is three things: which classes train, whether every test image is searched among all the others or
queries have a gallery of their own, and the K of Recall@K. Not for: the files of any one dataset.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from cml.data_prep.listed import ListedSource
from cml.data_prep.source import text_lines
from cml.errors import DataError


@dataclass(frozen=True)
class Protocol:
    """How a dataset of classes is evaluated."""

    recall_ks: Sequence[int]  # the published K of Recall@K
    # true if queries have a gallery of their own; False if every test image is a query that is searched among
    # all other test images
    own_gallery: bool = False

    def details(self) -> dict[str, Any]:
        """What dataset.json says of it."""
        itself = {} if self.own_gallery else {"gallery": "queries"}
        return {"recall_ks": list(self.recall_ks), **itself}


@dataclass(frozen=True)
class ClassSource(ListedSource):
    """A folder with lists of images and their classes. A source of its own names the files and reads the lists."""

    task = "classes"
    protocol: ClassVar[Protocol]

    def _details(self) -> dict[str, Any]:
        return self.protocol.details()


def split_lines(path: Path) -> list[tuple[str, list[str]]]:
    """The lines of a text file, each with "FILE:LINE", cut at white space."""
    if not (lines := [(where, line.split()) for where, line in text_lines(path)]):
        raise DataError(f"{path} is empty.")
    return lines
