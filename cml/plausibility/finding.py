"""A finding: what is suspicious about a dataset as a whole, and how it is mended."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from cml.word_vectors.word_vectors import CountedWords

Rule = Literal[
    "constant-labels",
    "sentinels",
    "outliers",
    "mixed-units",
    "radians",
    "circular",
    "codes",
    "frame",
    "swapped-places",
    "thousands",
    "repeated-labels",
    "lone-queries",
    "tiny-people",
    "stray-ids",
    "depth",
    "same-images",
    "near-duplicates",
    "near-in-order",
    "feature-duplicates",
    "unknown-words",
]
_EXAMPLES = 3  # items that a message names


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


_SHARE = 0.05  # of all words; of COCO's captions GloVe does not know 0.3 %, of German and French ones 9 to 17 %
_FEWEST = 3  # unknown words


def find_unknown_words(
    words: CountedWords,  # the words of the captions without stop words, and the unknown ones among them
) -> list[Finding]:
    """Find captions of which the word vectors do not know 5 % of the words or more."""
    count = sum(words.unknown.values())
    if count < _FEWEST or count < _SHARE * words.total:
        return []
    examples = [word if times == 1 else f"{word}: {times} times" for word, times in list(words.unknown.items())[:8]]
    return [
        Finding(
            "unknown-words",
            f"{count} of {words.total} words of the captions ({count / words.total:.0%}) have no vector in "
            f"{words.vectors}, and are left out",
            "Correct them, or take vectors of the captions' language: --label-distance 'captions(vectors=FILE)'.",
            count,
            words.total,
            examples,
        )
    ]
