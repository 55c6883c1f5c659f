"""A finding: what is suspicious about a dataset as a whole, and how it is mended."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Rule = Literal[
    "constant-labels",
    "sentinels",
    "outliers",
    "radians",
    "swapped-places",
    "thousands",
    "repeated-labels",
    "lone-queries",
    "tiny-people",
    "stray-ids",
    "depth",
    "same-images",
    "near-duplicates",
    "feature-duplicates",
    "unknown-words",
]
_EXAMPLES = 3  # items that a message names


class ImplausibleData(UserWarning):
    """The category of warnings of ``cml.fit`` about labels that are legal, but probably not what was meant."""


@dataclass(frozen=True)
class Finding:
    """Something that is legal, but probably not what was meant."""

    rule: Rule  # name of the rule, by which it can be skipped
    what: str  # what was found, as a clause
    mend: str  # what to do, as a sentence
    count: int  # the number of items that it was found at
    total: int  # the number of items that were looked at
    examples: Sequence[str] = field(default=())  # the first of them: ids of items, or values

    def __str__(self) -> str:
        """One line, such as "outliers: 1 of 12 labels ..."."""
        shown = ", ".join(self.examples[:_EXAMPLES])
        more = ", ..." if self.count > min(len(self.examples), _EXAMPLES) else ""
        named = f" ({shown}{more})" if shown else ""
        return f"{self.rule}: {self.what}{named}. {self.mend}"
