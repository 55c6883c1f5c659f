"""Text of others in pages and terminals: escaped in HTML, and with its control characters made visible."""

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from cml.storage.atomic import atomic_file

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


def write_html(
    path: Path,
    package: str,  # the package whose folder ``templates`` holds the template, the styles and the scripts
    template: str,
    *,
    styles: Sequence[str] = (),
    rules: Sequence[str] = (),
    scripts: Sequence[str] = (),
    **shown: object,
) -> None:
    """Write an HTML page atomically, with every text escaped and a policy of only its own styles and scripts."""
    import jinja2

    loader = jinja2.PackageLoader(package, "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    common = jinja2.PackageLoader("cml.reporting", "templates").get_source(environment, "page.css")[0]
    files = ["".join(loader.get_source(environment, name)[0] for name in names) for names in (styles, scripts)]
    sheets = ["\n".join(text.splitlines()) for text in (common + files[0], *rules)]  # the parser joins CR LF
    script = "\n".join(files[1].splitlines())
    html = environment.get_template(template).render(
        styles=sheets, style_hashes=_hashes(sheets), scripts=[script], script_hashes=_hashes([script]), **shown
    )
    with atomic_file(path) as temporary:
        temporary.write_text(html, encoding="utf-8", newline="\n")


def _hashes(texts: Sequence[str]) -> list[str]:
    """SHA-256 hashes, as a content security policy writes them."""
    return [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
