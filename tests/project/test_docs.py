"""The documentation: every part of cml has its page or entry, tables are those of the results, links lead somewhere."""

from __future__ import annotations

import base64
import doctest
import io
import json
import re
import sys
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import page_commands
import pytest
from PIL import Image

import cml
from cml import cli, data_prep, distances, losses, sampling, tasks
from cml.losses.loss_table import loss_rows, markdown_table
from cml.registry import registries
from cml.retrieval.gains import GAINS

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from making import (  # noqa: E402
    accessible_html,
    architecture,
    docstrings,
    gradients,
    help,
    home,
    logo,
    notebooks,
    pages,
    results,
    thumbnails,
)
from making.formulas import FORMULAS, LEGENDS  # noqa: E402
from making.mathml import render_formula  # noqa: E402
from making.result_tables import overview  # noqa: E402

LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(?:#[^)]*)?\)")
FENCE = re.compile(
    r"(?P<before>[^\n]*\n[^\n]*\n|^)^(?P<ticks>`{3,})(?P<info>[^\n`]*)\n.*?^(?P=ticks)$", re.DOTALL | re.MULTILINE
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    pages.generate(folder)
    return folder


def test_the_readme_is_one_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 120
    assert "pip install -e . && cml demo" in readme
    assert "pip install -e '.[test]' && pytest" in readme


def test_the_table_of_losses_is_that_of_the_command(made: Path) -> None:
    assert markdown_table(loss_rows()) in (made / "losses" / "index.md").read_text(encoding="utf-8")


def test_names_of_functions_are_set_with_space() -> None:
    thin = 'lspace="0.167em" rspace="0.167em"'
    assert f"<mi>p</mi><mo {thin}>log</mo><mi>x</mi>" in render_formula(r"p \log x", "inline")
    assert '<mo lspace="0.167em" rspace="0">log</mo>' in render_formula(r"\log(x)", "block")


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_is_rendered_whole(name: str) -> None:
    assert "\\" not in render_formula(FORMULAS[name], "block")  # a command that the converter does not know


def test_every_part_has_its_page(made: Path) -> None:
    for name in losses.names():
        page = (made / "losses" / f"{name}.md").read_text(encoding="utf-8")
        assert "$$" in page, f"docs/making/formulas.py lacks the formula of {name}"
        assert f"{name}(" in page
        assert f"../pictures/{name}.svg" in page
    assert sorted(FORMULAS) == losses.names()
    for kind, (registry, _, _) in pages.KINDS.items():
        for name in registry().names():
            assert f"# {name}\n" in (made / kind / f"{name}.md").read_text(encoding="utf-8")
            assert f"({name}.md)" in (made / kind / "index.md").read_text(encoding="utf-8")
    assert sorted(path.stem for path in (made / "sources").glob("*.md")) == sorted([*data_prep.names(), "index"])
    for name in tasks.names():
        assert f"## {name}\n" in (made / "tasks.md").read_text(encoding="utf-8")


def test_a_loss_page_has_its_formula_once(made: Path) -> None:
    for name in losses.names():
        page = (made / "losses" / f"{name}.md").read_text(encoding="utf-8")
        assert page.count("$$") == 2, name
        assert page.count("```text") == 1, name  # the settings
        assert "D\\_y" not in page, name
        assert page.index("## Formula") < page.index("## Gradient") < page.index("## Settings and example")
        assert "@" not in page, name
    page = (made / "losses" / "dense-triplet.md").read_text(encoding="utf-8")
    assert "with D the squared Euclidean distance of embeddings and $\\delta$ the label distance" in page


def test_a_legend_explains_what_its_formula_has() -> None:
    assert LEGENDS.keys() == FORMULAS.keys()
    for name, lines in LEGENDS.items():
        formula, settings = FORMULAS[name].replace(" ", ""), losses.registry.describe(name).partition("\n")[0]
        for symbol in re.findall(r"^\$([^$]+)\$|(?:,| and) \$([^$]+)\$", "\n".join(lines), re.MULTILINE):
            shown = "".join(symbol).replace(" ", "").replace(r"[\,x\,]_+", "]_+")
            assert shown in formula, (name, shown)
        for setting in re.findall(r"`(\w+)`", "\n".join(lines)):
            assert setting in settings, (name, setting)


def test_the_gradient_of_a_loss_of_ones_own_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_entries", "_origins"):
        monkeypatch.setattr(losses.registry, name, dict(getattr(losses.registry, name)))
    page = (ROOT / "docs" / "extend" / "loss.md").read_text(encoding="utf-8")
    for name, code in re.findall(r"```python\n# (\w+)\.py\n(.*?)```", page, re.DOTALL):
        file = tmp_path / f"{name}.py"
        file.write_text(code, encoding="utf-8")
        gradients.main(name.replace("_", "-"), str(tmp_path / f"{name}.svg"), str(file))
    assert [len(path.read_text(encoding="utf-8")) > 1000 for path in tmp_path.glob("*.svg")] == [True] * 4


def test_every_setting_of_a_part_is_explained_where_its_docstring_has_a_list(made: Path) -> None:
    page = (made / "losses" / "log-ratio.md").read_text(encoding="utf-8")
    for name in ("label_exponent", "floor_quantile", "weights", "rank_offset", "normalize", "eps"):
        assert f"- `{name}`: " in page
    assert "```pycon\n>>> from cml.losses import LogRatioLoss\n>>> import torch" in page


def test_every_command_and_option_has_its_entry(made: Path) -> None:
    for name in cli.COMMANDS:
        page = (made / "commands" / f"cml-{name}.md").read_text(encoding="utf-8")
        printed = [" ".join(one.words) for one in help.commands(name)]
        assert printed, name
        for command in printed:
            text = help.read_help(*command.split())
            for flag in set(re.findall(r"(?:^|[│ ,])(--[a-z][\w-]*)(?=[ ,│{])", text, re.MULTILINE)):
                assert flag in page, f"cml {command}: {flag}"
    page = (made / "commands" / "cml-bench.md").read_text(encoding="utf-8")
    for verb in ("table", "page", "check"):
        assert f"## cml bench {verb}\n" in page
    page = (made / "commands" / "cml-train.md").read_text(encoding="utf-8")
    for option in fields(cml.TrainConfig):
        assert f"--{option.name.replace('_', '-')}" in page, option.name


def test_every_public_name_has_its_entry(made: Path) -> None:
    page = (made / "api" / "index.md").read_text(encoding="utf-8")
    assert "{py:module} cml\n" in page
    for name in cml.__all__:
        assert re.search(rf"{{py:(function|class)}} {name}\b|`cml.{name}`", page), name
    for module in (
        "distances",
        "distributed",
        "losses",
        "models",
        "protocols",
        "retrieval",
        "sampling",
        "sklearn",
        "trackers",
    ):
        page = (made / "api" / f"{module}.md").read_text(encoding="utf-8")
        for name in getattr(getattr(cml, module), "__all__", ()):
            assert re.search(rf"{{py:(function|class|data)}} {name}\b", page), (module, name)


def test_names_of_the_reference_are_those_of_the_code(made: Path) -> None:
    """Sphinx joins the module of a page and the name of an entry; .ci/linked_project links to the joined names."""
    index = (made / "api" / "index.md").read_text(encoding="utf-8")
    assert "`````{py:function} fit(" in index
    assert ":canonical: cml.doors.model.Model\n" in index
    losses_page = (made / "api" / "losses.md").read_text(encoding="utf-8")
    for page in (index, losses_page):
        assert not re.search(r"\{py:\w+\} cml\.\w+\.?\w*\(", page)
    assert "| {py:obj}`LogRatioLoss <cml.losses.LogRatioLoss>` | " in losses_page
    assert losses_page.index("## Losses over classes") < losses_page.index("{py:class} ProxyAnchorLoss")


def test_a_class_has_entries_of_all_public_methods(made: Path) -> None:
    index = (made / "api" / "index.md").read_text(encoding="utf-8")
    model = index[index.index("{py:class} Model(") : index.index("{py:function} open_run(")]
    for name in dir(cml.Model):
        value = getattr(cml.Model, name)
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("cml."):
            assert re.search(rf"{{py:method}} {name}\(", model), name
    assert "{py:property} history\n" in model
    losses_page = (made / "api" / "losses.md").read_text(encoding="utf-8")
    assert "See {py:obj}`cml.losses.LabelDistanceLoss.fit`." in losses_page


def test_pages_are_made_accessible() -> None:
    signature = '<dt><span class="sig-paren">(</span>\n\n<dl>\n<dd><em>rows</em></dd>\n</dl>\n</dt>'
    assert "<dl>" not in accessible_html.make_accessible(signature)
    assert '<div class="parameter"><em>rows</em></div>' in accessible_html.make_accessible(signature)
    assert accessible_html.make_accessible("<pre>x</pre>") == '<pre tabindex="0">x</pre>'
    drawing = accessible_html.make_accessible('<p><img alt="a" src="../_images/a.svg" /></p>')
    assert drawing == '<div tabindex="0" class="drawing"><img alt="a" src="../_images/a.svg" /></div>'
    assert accessible_html.make_accessible('<th class="head"><p></p></th>') == "<td></td>"


def test_landmarks_of_a_site_have_names(tmp_path: Path) -> None:
    page = tmp_path / "api" / "index.html"
    page.parent.mkdir()
    page.write_text('<aside class="sidebar-drawer">é</aside><aside class="toc-drawer"></aside>', encoding="utf-8")
    accessible_html.name_landmarks(tmp_path)
    assert re.findall('aria-label="(.*?)"', page.read_text(encoding="utf-8")) == ["Pages", "Headings"]


def test_the_page_of_the_search_has_a_heading(tmp_path: Path) -> None:
    page = tmp_path / "search.html"
    page.write_text('<article>\n\n<div id="search-results"></div></article>', encoding="utf-8")
    accessible_html.name_landmarks(tmp_path)
    accessible_html.name_landmarks(tmp_path)  # of a site that was built again
    assert page.read_text(encoding="utf-8").count("<h1>Search</h1>") == 1


def test_every_loss_and_label_distance_is_in_the_table_that_says_which() -> None:
    page = (ROOT / "docs" / "choose" / "index.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("|")]
    named = [
        set(re.findall(r"`([a-z-]+)(?:\([^`]*\))?`", " ".join(row[column] for row in rows))) for column in (2, 3, 4)
    ]
    for column, registry in enumerate((distances.registry, losses.registry, sampling.registry)):
        own = set(registry.names()) - set(registry.origins())
        assert named[column] - own == set()
        if registry is not sampling.registry:  # these are chosen last
            assert own - named[column] == set()


def test_every_extra_has_its_row() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "start" / "install.md").read_text(encoding="utf-8")
    for extra in extras:
        assert re.search(rf"^\|.*`{extra}`.*\|", page, re.MULTILINE), extra


def test_links_of_hand_written_pages_lead_to_files() -> None:
    for page in hand_written():
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            target = page.parent / link
            known = target.exists() or "generated" in target.parts  # those are checked by the build
            assert known, f"{page.relative_to(ROOT)}: {link}"


def test_every_block_runs_or_says_why_not() -> None:
    """The runner of .ci and the build run sh, python and code cells; blocks of any other kind show no code to run."""
    shown = {"text", "json", "yaml", "pycon", "bibtex"}
    for page in hand_written():
        for block in FENCE.finditer(page.read_text(encoding="utf-8")):
            info = block["info"].strip()
            assert info in {"sh", "python", *shown} or info.startswith("{"), f"{page.relative_to(ROOT)}: {info!r}"


def test_what_is_left_to_the_readme_is_in_it() -> None:
    readme = page_commands.read_blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    run = {command for block in readme if not block.is_skipped for command in block.commands()}
    left = {
        command
        for page in hand_written()
        for block in page_commands.BLOCK.finditer(page.read_text(encoding="utf-8"))
        if "the README" in (block["skip"] or "")
        for command in page_commands.Block(block["kind"], block["text"], is_skipped=True).commands()
    }
    assert "cml demo" in left
    assert left <= run


def test_every_page_is_in_a_table_of_contents() -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if "generated" in page.parts or page.name == "index.md":
            continue
        assert re.search(rf"^{page.stem}$", (page.parent / "index.md").read_text(encoding="utf-8"), re.MULTILINE), page


def test_the_architecture_has_every_package() -> None:
    drawn = {name for layer in architecture.layers() for name in layer}
    there = {name for _, name in architecture.modules()} - {"__init__", "__main__", "plugins"}
    assert there <= drawn
    uses = architecture.imports()
    assert uses["commands", "doors"] > 0
    assert uses["distances", "doors"] == 0


def test_docstrings_become_markdown() -> None:
    def example(first: int) -> int:
        """Add a * b.

        As in

            x_i + y_i

        Args:
            first: One of ``a`` and
                b.

        Example:
            >>> example(1)
            2
        """
        return first + 1

    assert docstrings.markdown(example) == (
        "Add a \\* b.\n\nAs in\n\n```text\nx_i + y_i\n```\n\n**Settings**\n\n- `first`: One of `a` and b.\n\n"
        "**Example**\n\n```pycon\n>>> example(1)\n2\n```\n"
    )


@pytest.mark.slow  # quick tests run the docstrings that they are made from
def test_examples_of_parts_run_as_they_are_pasted(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for registry in registries:  # what an example registers is gone afterwards
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    alone = {"index.md"}  # its examples are of files that another test makes
    shown = 0
    for page in sorted(page for kind in ("losses", "distances", "samplers", "api") for page in (made / kind).glob("*")):
        for example in re.findall(r"^```pycon\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            if page.parent.name == "api" and page.name in alone:
                continue
            test = doctest.DocTestParser().get_doctest(
                example, {"__name__": "__main__"}, f"{page.parent.name}/{page.name}", None, 0
            )
            said: list[str] = []
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
            assert not said, "".join(said)
            shown += 1
    assert shown > 70


def test_the_reference_shows_whole_docstrings(made: Path) -> None:
    losses_page = (made / "api" / "losses.md").read_text(encoding="utf-8")
    assert "{py:method} fit(distance, labels=None, *, seed=0)" in losses_page
    assert "- `label_distances`: (A, B), \\>= 0, in the label's unit" in losses_page
    retrieval = (made / "api" / "retrieval.md").read_text(encoding="utf-8")
    assert "Scores (R, G) of the queries in a slice" in retrieval
    for name in GAINS:
        assert f"{name} is" in retrieval


def test_each_loss_says_what_it_needs_in_a_loop_of_ones_own(made: Path) -> None:
    for name, said in (
        ("log-ratio", "first `loss.fit(distance, labels)`"),
        ("cosent", "neither `fit` nor `prepare`; `loss(embeddings, label_distances)`"),
        ("triplet", "neither `fit` nor `prepare`; `loss(embeddings, classes)`"),
        ("proxy-anchor", "first `loss.prepare(classes, dimension=D)`"),
        ("regression", "first `loss.prepare(labels, dimension=V)`"),
    ):
        assert f"| In your own training loop | {said}" in (made / "losses" / f"{name}.md").read_text(encoding="utf-8")


def test_a_notebook_has_no_link_to_itself(tmp_path: Path) -> None:
    text = "# A loop\n\n*Download this page: {nb-download}`pytorch.ipynb`.*\n\nA loss."
    cells = [{"cell_type": "markdown", "source": text.splitlines(keepends=True)}]
    (tmp_path / "pytorch.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    notebooks.clean(tmp_path)
    (cell,) = json.loads((tmp_path / "pytorch.ipynb").read_text(encoding="utf-8"))["cells"]
    assert "".join(cell["source"]) == "# A loop\n\nA loss."


def test_the_logo_is_what_its_script_draws() -> None:
    assert logo.PATH.read_text(encoding="utf-8") == logo.draw()


def test_the_home_page_has_a_small_explorer_without_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TRAINING", 60), ("STEPS", 2)):
        monkeypatch.setattr(home, name, value)
    home.write_explorer(tmp_path / "clocks.html")
    page = (tmp_path / "clocks.html").read_text(encoding="utf-8")
    assert len(page) < 1_000_000
    assert "default-src 'none'" in page
    assert '"12:' in page
    assert 'src="clocks.html"' in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_the_picture_of_results_has_every_set(tmp_path: Path) -> None:
    home.draw_results(tmp_path / "results.svg")
    drawn = (tmp_path / "results.svg").read_text(encoding="utf-8")
    for title, *_ in overview()[1:]:
        assert title.partition(",")[0] in drawn


def test_every_tutorial_has_its_thumbnail(tmp_path: Path) -> None:
    tutorials = {page.stem for page in (ROOT / "docs" / "tutorials").glob("*.md")} - {"index"}
    assert set(thumbnails.names()) == tutorials
    pixels = io.BytesIO()
    Image.new("RGB", (60, 40), "red").save(pixels, "PNG")
    shown = {"data": {"image/png": base64.b64encode(pixels.getvalue()).decode()}}
    (tmp_path / "tutorials").mkdir()
    notebook = {"cells": [{"cell_type": "markdown"}, {"cell_type": "code", "outputs": [shown]}]}
    (tmp_path / "tutorials" / "ages.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    thumbnails.write(tmp_path, tmp_path / "site")
    for name in tutorials:
        with Image.open(tmp_path / "site" / "_thumbnails" / f"{name}.webp") as picture:
            assert picture.size == thumbnails.SIZE
            if name == "ages":
                assert picture.convert("RGB").getpixel((96, 50))[0] > 200
                assert picture.convert("RGBA").getpixel((2, 50))[3] == 0  # shows on light and dark pages


def test_every_executed_tutorial_can_be_downloaded() -> None:
    for page in (ROOT / "docs" / "tutorials").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert ("{code-cell}" in text) == (f"{{nb-download}}`{page.stem}.ipynb`" in text), page.name


def hand_written() -> Iterator[Path]:
    yield from results.pages()
    yield from (ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md"))
