"""Words of captions: how a text is cut into words, and which of them are stop words."""

import re

# As GloVe's own training text was cut: "don't" is do n't, "man's" is man 's; hyphens stay within a word.
_WORD = re.compile(r"[^\W_]+(?=n't)|n't|'[^\W_]+|[^\W_]+(?:-[^\W_]+)*", re.IGNORECASE)

WORDS, WHITESPACE = "words", "whitespace"


def tokenize(text: str, *, rule: str, lower: bool) -> list[str]:
    """The words of a text in order: runs of letters and digits, or by the rule ``whitespace`` what stands between it.

    Example:
        >>> tokenize("The man's T-shirt doesn't fit.", rule="words", lower=True)
        ['the', 'man', "'s", 't-shirt', 'does', "n't", 'fit']
    """
    if lower:
        text = text.lower()
    return text.split() if rule == WHITESPACE else _WORD.findall(text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))


def stop_words(setting: str | tuple[str, ...]) -> frozenset[str]:
    """The words that ``setting`` leaves out: ``none``, ``english`` (gensim's list of 337) or the words themselves."""
    if setting == "english":
        from gensim.parsing.preprocessing import STOPWORDS

        return frozenset(STOPWORDS)
    return frozenset(() if setting == "none" else setting)
