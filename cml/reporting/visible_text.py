"""Text from anywhere, made fit to be shown: captions, item ids and titles may hold any character.

Not for: escaping markup, which the template does.
"""

from __future__ import annotations

import re

LONGEST = 400  # characters of one text that a page or picture shows

_BLANK = re.compile(r"[\t\n\r\u2028\u2029]+")
# Control characters and lone surrogates cannot be written as text; the bidirectional embeddings, overrides and isolates
# would reorder the text that follows them on the page; the rest are no characters at all.
_UNSHOWABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufdd0-\ufdef\ufeff\ufff9-\ufffb\ufffe\uffff]"
)


def visible_text(text: str, longest: int = LONGEST) -> str:
    r"""``text`` in one line of characters that can be shown, the others spelt out: a NUL reads ``\x00``.

    Args:
        text: Any string, lone surrogates too.
        longest: Longer texts are cut here and end in an ellipsis.
    """
    cut = text[: 4 * longest]  # a text of megabytes is not searched to its end
    shown = _UNSHOWABLE.sub(_spelt, _BLANK.sub(" ", cut)).strip()
    if len(shown) <= longest and len(text) == len(cut):
        return shown
    return shown[: longest - 1].rstrip() + "…"


def _spelt(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
