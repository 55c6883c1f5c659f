"""Words of captions: how a text is cut into words, and which of them are stop words.

Not for: what a word means (cml.word_vectors).
"""

import re

# As GloVe's own training text was cut: "don't" is do n't, "man's" is man 's; hyphens stay within a word.
_WORD = re.compile(r"[^\W_]+(?=n't)|n't|'[^\W_]+|[^\W_]+(?:-[^\W_]+)*", re.IGNORECASE)

WORDS, WHITESPACE = "words", "whitespace"


def tokenize(text: str, *, rule: str, lower: bool) -> list[str]:
    """The words of ``text`` in order.

    Args:
        text: Any text.
        rule: ``words``: runs of letters and digits, with punctuation left out. ``whitespace``: whatever stands
            between white space, for text that is cut into words already.
        lower: Whether words are lower-cased.

    Example:
        >>> tokenize("The man's T-shirt doesn't fit.", rule="words", lower=True)
        ['the', 'man', "'s", 't-shirt', 'does', "n't", 'fit']
    """
    if lower:
        text = text.lower()
    return text.split() if rule == WHITESPACE else _WORD.findall(text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))


def stop_words(setting: str | tuple[str, ...]) -> frozenset[str]:
    """The words that ``setting`` leaves out: ``none``, ``english`` (gensim's list of 337) or the words themselves."""
    if setting == "none":
        return frozenset()
    if setting == "english":
        from gensim.parsing.preprocessing import STOPWORDS

        return frozenset(STOPWORDS)
    return frozenset(setting)
