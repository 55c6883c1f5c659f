"""The explorer as a widget: a click and the lasso give positions and names back, whatever the names hold."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cml.distances import as_label_distance
from cml.errors import UserError
from cml.explore.explorer import Explorer
from cml.explore.explorer_widget import SCRIPT
from cml.explore.label_side import build_label_side
from cml.explore.page import Items, write_explorer
from cml.explore.views import build_embedding_view

NAMES = ["<img src=x onerror=alert(1)>", "\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627", *"defgh"]


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Explorer:
    labels = np.linspace(0, 300, len(NAMES))
    distance = as_label_distance("circular")
    side = build_label_side(distance, distance.encode(labels.tolist()))
    points = np.stack([np.cos(np.deg2rad(labels)), np.sin(np.deg2rad(labels))], axis=1).astype(np.float32)
    pictures = [lambda: Image.new("RGB", (8, 8))] * len(NAMES)
    items = Items(NAMES, [""] * len(NAMES), ["item"] * len(NAMES), pictures)
    path = tmp_path_factory.mktemp("explorer") / "page.html"
    write_explorer(path, items, side, [build_embedding_view("embedding", points, side, ["pca"])], title="angles")
    return Explorer(path)


def test_nothing_is_selected_at_first(explorer: Explorer) -> None:
    widget = explorer.widget()
    assert widget.selection == []
    assert widget.names == []
    assert widget.page == explorer.path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_selection_comes_back(explorer: Explorer, browser: Any, tmp_path: Path) -> None:  # noqa: ANN401
    widget = explorer.widget()
    host = tmp_path / "notebook.html"
    host.write_text("<!doctype html><body></body>", encoding="utf-8")
    context = browser.new_context()
    page = context.new_page()
    page.goto(host.as_uri())
    page.evaluate(
        """async ([source, html]) => {
            const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
            const { default: widget } = await import(url);
            window.values = { page: html };
            const set = (name, value) => (values[name] = value);
            const model = { get: (name) => values[name], set, save_changes() {} };
            widget.render({ model, el: document.body });
        }""",
        [SCRIPT, widget.page],
    )
    frame = page.locator("iframe").content_frame
    frame.locator("body.ready").wait_for()
    inside = page.frames[1]
    inside.evaluate("actions.lassoed([0, 1, 2])")
    page.wait_for_function("window.values.selection?.length === 3")
    assert page.evaluate("values.selection") == [0, 1, 2]
    assert page.evaluate("values.names") == NAMES[:3]
    inside.evaluate("actions.select(4)")
    page.wait_for_function("window.values.selection?.length === 1")
    inside.evaluate("actions.select(-1)")
    page.wait_for_function("window.values.selection?.length === 0")
    assert page.evaluate("values.names") == []
    context.close()


def test_without_the_extra_one_line_says_so(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "cml.explore.explorer_widget", raising=False)
    with pytest.raises(UserError, match=r"notebook") as caught:
        explorer.widget()
    assert len(str(caught.value).splitlines()) == 1


def test_a_page_with_pictures_beside_it_is_refused(explorer: Explorer) -> None:
    folder = explorer.path.with_name("page.pictures")
    folder.mkdir()
    try:
        with pytest.raises(UserError, match="10,000 items"):
            explorer.widget()
    finally:
        folder.rmdir()
