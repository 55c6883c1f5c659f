"""HTML escaping: pages are written from templates that escape every text, under a content security policy."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from cml.storage.atomic import atomic_file


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
