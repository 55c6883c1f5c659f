"""A batch: its items and its anchors."""

from dataclasses import dataclass

from cml.array_types import Int64


@dataclass(frozen=True)
class Batch:
    """Items of one batch; the first ``anchors`` of them are the anchors.

    Attributes:
        items: (B,) distinct item numbers.
        anchors: A, 1 <= A <= B.
    """

    items: Int64
    anchors: int
