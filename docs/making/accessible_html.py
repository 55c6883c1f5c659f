"""What Sphinx leaves to do for keyboards and screen readers: boxes that scroll take the focus, landmarks have names.

The page of the search has a heading, too.
"""

from __future__ import annotations

import re
from pathlib import Path

_DRAWING = re.compile(r'<p>(<img [^>]*src="[^"]*\.svg"[^>]*/>)</p>')
_LANDMARKS = {
    '\n\n<div id="search-results"></div>': '\n<h1>Search</h1>\n<div id="search-results"></div>',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Pages">',
    '<aside class="toc-drawer">': '<aside class="toc-drawer" aria-label="Headings">',
}
_PARAMETERS = re.compile(r'(<span class="sig-paren">\(</span>)\s*<dl>(.*?)</dl>', re.DOTALL)


def make_accessible(html: str) -> str:
    """Change the body of a page.

    Code, tables, formulas and drawings that are wider than the page scroll, which a keyboard can do only where they
    take the focus. The parameters of long signatures are a definition list without terms, and some tables have headers
    without a word, which screen readers cannot announce.

    Args:
        html: The body, as Sphinx writes it.

    Returns:
        The body with focusable boxes, with parameters as plain blocks and empty headers as empty cells.
    """
    html = html.replace("<pre>", '<pre tabindex="0">')
    html = html.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')
    html = html.replace('<div class="formula">', '<div tabindex="0" class="formula">')
    html = html.replace('<th class="head"><p></p></th>', "<td></td>")
    html = _DRAWING.sub(r'<div tabindex="0" class="drawing">\1</div>', html)
    return _PARAMETERS.sub(_as_blocks, html)


def name_landmarks(site: Path) -> None:
    """Name the landmarks that a page has several of, in all pages of a site, and head the page of the search.

    Args:
        site: Folder of the site.
    """
    for page in site.rglob("*.html"):
        html = named = page.read_text(encoding="utf-8")
        for tag, with_name in _LANDMARKS.items():
            named = named.replace(tag, with_name)
        if named != html:
            page.write_text(named, encoding="utf-8")


def _as_blocks(match: re.Match[str]) -> str:
    parameters = match[2].replace("<dd>", '<div class="parameter">').replace("</dd>", "</div>")
    return f'{match[1]}<div class="parameters">{parameters}</div>'
