"""Makes any text printable: captions, item ids and titles may hold any character."""

import re

LONGEST = 400  # characters of one text that a page or picture shows

_BLANK = re.compile(r"[\t\n\r\u2028\u2029]+")
# Control characters and lone surrogates cannot be written as text; bidirectional embeddings, overrides and isolates
# would reorder the following text on the page; the rest are not characters.
_UNSHOWABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufdd0-\ufdef\ufeff\ufff9-\ufffb\ufffe\uffff]"
)


def visible_text(text: str, longest: int = LONGEST) -> str:
    r"""``text`` in one printable line, other characters escaped: a NUL becomes ``\x00``; cut to ``longest``."""
    cut = text[: 4 * longest]  # do not search megabytes
    shown = _UNSHOWABLE.sub(lambda character: ascii(character[0])[1:-1], _BLANK.sub(" ", cut)).strip()
    fits = len(shown) <= longest and len(text) == len(cut)
    return shown if fits else shown[: longest - 1].rstrip() + "…"
