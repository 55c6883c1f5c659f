"""Words of captions: how a text is cut into words, and which of them are stop words."""

import re

from cml.distances.captions.function_words import FUNCTION_WORDS

# As GloVe's own training text was cut: "don't" is do n't, "man's" is man 's; hyphens stay within a word.
_WORD = re.compile(r"[^\W_]+(?=n't)|n't|'[^\W_]+|[^\W_]+(?:-[^\W_]+)*", re.IGNORECASE)

WORDS, WHITESPACE = "words", "whitespace"


def tokenize(text: str, *, rule: str, lower: bool) -> list[str]:
    """Cut a text into words, in their order.

    Args:
        text: The text.
        rule: ``words``: runs of letters and digits, cut as GloVe's training text was. ``whitespace``: what stands
            between white space.
        lower: True to lower-case the text first.

    Returns:
        The words.

    Example:
        >>> tokenize("The man's T-shirt doesn't fit.", rule="words", lower=True)
        ['the', 'man', "'s", 't-shirt', 'does', "n't", 'fit']
    """
    if lower:
        text = text.lower()
    return text.split() if rule == WHITESPACE else _WORD.findall(text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))


def stop_words(setting: str | tuple[str, ...]) -> frozenset[str]:
    """Return the words to leave out.

    Args:
        setting: ``none``, ``english`` (gensim's list of 337 words), ``function`` (``FUNCTION_WORDS``), or the words
            themselves.

    Returns:
        The words as they are listed.
    """
    if setting == "english":
        from gensim.parsing.preprocessing import STOPWORDS

        return frozenset(STOPWORDS)
    if setting == "function":
        return FUNCTION_WORDS
    return frozenset(() if setting == "none" else setting)
