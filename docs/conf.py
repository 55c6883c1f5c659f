"""Configuration of the documentation: sphinx-build -W docs build/docs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from making import mathml  # noqa: E402

from cml.version import __version__  # noqa: E402

project = "cml"
author = "the cml authors"
copyright = f"2026, {author}"
version = release = __version__
extensions = ["myst_nb", "sphinx_copybutton"]
exclude_patterns = ["making", "_build"]
html_theme = "furo"
html_title = "cml"
html_static_path = ["static"]
html_logo = html_favicon = "static/logo.svg"
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_in_temp = True  # what a notebook writes is gone afterwards
nb_execution_timeout = 300  # seconds per cell, enough for a busy machine
nb_output_stderr = "remove"  # progress bars
os.environ["TQDM_MININTERVAL"] = "600"  # seconds: notebooks keep each state of a bar, the more the slower the machine
nb_merge_streams = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
smartquotes = False  # keeps the two hyphens of --out, so that commands can be copied
maximum_signature_line_length = 88
python_display_short_literal_types = True
toc_object_entries_show_parents = "hide"


def make_pages(app: Any) -> None:  # noqa: ANN401 - Sphinx
    """Write the generated pages and drawings before Sphinx reads them."""
    from making import architecture, drawings, gradients, home, pages, suite_tables, warm_kernels

    from cml import losses

    warm_kernels.start()
    folder = HERE / "generated"
    shutil.rmtree(folder, ignore_errors=True)
    pages.generate(folder)
    pictures = folder / "pictures"
    pictures.mkdir(exist_ok=True)
    for name in losses.names():
        gradients.draw(name, pictures / f"{name}.svg")
    for name, draw in drawings.DRAWINGS.items():
        draw(pictures / f"{name}.svg")
    architecture.draw(pictures / "architecture.svg")
    home.draw_results(pictures / "home_results.svg")
    suite_tables.draw(pictures / "benchmark.svg")
    if app.builder.format == "html":
        home.write_explorer(Path(app.outdir) / "clocks.html")
        write_leaderboard(Path(app.outdir) / "leaderboard")


def write_leaderboard(folder: Path) -> None:
    """Write the leaderboard of all published results, beside the files that its scores lead to."""
    from cml.comparing.bench import page

    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE.parent / "results", folder / "results")
    page.write_leaderboard(folder / "results", folder / "leaderboard.html")


def clean_notebooks(app: Any, _: Any) -> None:  # noqa: ANN401 - Sphinx
    """Clean the executed notebooks before Sphinx copies them, and make thumbnails of them."""
    from making import notebooks, thumbnails

    folder = Path(app.env.mystnb_config.output_folder)
    notebooks.clean(folder)
    thumbnails.write(folder, Path(app.outdir))


def make_accessible(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:  # noqa: ANN401
    """Change the body of each page before Sphinx writes it."""
    from making import accessible_html

    if page == "search":
        app.add_js_file("search_ranking.js")
    context["body"] = accessible_html.make_accessible(context.get("body") or "")


def name_landmarks(app: Any, exception: Exception | None) -> None:  # noqa: ANN401 - Sphinx
    """Name the landmarks of all pages when they are written."""
    from making import accessible_html

    if exception is None and app.builder.format == "html":
        accessible_html.name_landmarks(Path(app.outdir))


def setup(app: Any) -> None:  # noqa: ANN401 - Sphinx
    """Register the renderers and the event handlers with Sphinx."""
    app.add_html_math_renderer("mathml", (mathml.inline, None), (mathml.displayed, None))
    app.connect("builder-inited", make_pages)
    app.connect("env-updated", clean_notebooks)
    app.connect("html-page-context", make_accessible)
    app.connect("build-finished", name_landmarks)
