"""What Sphinx leaves to do for keyboards and screen readers: boxes that scroll take the focus, lists are lists."""

from __future__ import annotations

import re

_PARAMETERS = re.compile(r'(<span class="sig-paren">\(</span>)\s*<dl>(.*?)</dl>', re.DOTALL)


def make_accessible(html: str) -> str:
    """Change the body of a page.

    Code and tables that are wider than the page scroll, which a keyboard can do only where they take the focus. The
    parameters of long signatures are a definition list without terms, which screen readers cannot announce.

    Args:
        html: The body, as Sphinx writes it.

    Returns:
        The body with focusable boxes and with parameters as plain blocks.
    """
    html = html.replace("<pre>", '<pre tabindex="0">')
    html = html.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')
    return _PARAMETERS.sub(_as_blocks, html)


def _as_blocks(match: re.Match[str]) -> str:
    parameters = match[2].replace("<dd>", '<div class="parameter">').replace("</dd>", "</div>")
    return f'{match[1]}<div class="parameters">{parameters}</div>'
