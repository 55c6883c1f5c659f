"""Texts in both of Unicode's normal forms: "é" is one character in NFC, and a letter and an accent in NFD.

Names of files come in either, by the system and the program that wrote them, and look the same. Not for: names that
differ in case, or in characters that only look alike.
"""

import unicodedata
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def unicode_forms(text: str) -> tuple[str, ...]:
    """Spell a text as it is, composed (NFC) and decomposed (NFD).

    Example:
        >>> [len(form) for form in unicode_forms("café.jpg")]
        [8, 9]
    """
    if text.isascii():
        return (text,)
    return tuple(dict.fromkeys([text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD"))]))


def look_up(name: str, known: Mapping[str, T]) -> T | None:  # the value; None if no spelling of the name is known
    """Look up a name, by its other spellings where it is unknown as it is."""
    return next((known[form] for form in unicode_forms(name) if form in known), None)
