"""Unknown words: word vectors do not know many words of the captions, as where they are of another language."""

from cml.plausibility.finding import Finding
from cml.word_vectors.word_vectors import CountedWords

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
