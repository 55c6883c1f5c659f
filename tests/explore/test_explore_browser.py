"""The explorer in a real browser: what a hand, a key or a finger does on it; no hostile text runs, nothing is asked."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_texts import attacks
from PIL import Image

from cml.distances import as_label_distance
from cml.explore.label_side import build_label_side
from cml.explore.page import Items, write_explorer
from cml.explore.views import build_embedding_view, build_oracle_view
from cml.reporting.retrieval_report import Picture, ReportRow, write_retrieval_page

pytestmark = pytest.mark.slow

N = 60


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    angles = np.linspace(0, 355, N)
    distance = as_label_distance("circular")
    side = build_label_side(distance, distance.encode(angles.tolist()))
    turned = np.deg2rad(angles)
    ours = np.stack([np.cos(turned), np.sin(turned), 0.1 * np.cos(7 * turned)], axis=1).astype(np.float32)
    noise = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)

    def page(name: str, names: list[str] | None = None, **changes: Any) -> Path:  # noqa: ANN401
        items = Items(
            names or [f"item {i:02d}" for i in range(N)],
            [f"{angle:.0f} degrees" for angle in angles],
            ["train"] * 20 + ["query"] * (N - 20),
            [lambda i=i: Image.new("RGB", (24, 16), (4 * i, 90, 200)) for i in range(N)],
            {"angle": (angles, 360.0), "half": (np.array(["low", "high"], object)[(angles > 180).astype(int)], None)},
        )
        views = [
            build_embedding_view("ours", ours, side, ["pca"], stages={10: noise, 20: ours}),
            build_embedding_view("noise", noise, side, ["pca"]),
            build_oracle_view(side, ["pca"]),
        ]
        path = tmp_path_factory.mktemp("page") / f"{name}.html"
        title = changes.pop("title", "angles")
        write_explorer(path, dataclasses.replace(items, **changes), side, views, title=title, unit="°")
        return path

    return page


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:  # noqa: ANN401
    contexts = []

    def opened(path: Path, **settings: Any) -> Any:  # noqa: ANN401
        settings = {"viewport": {"width": 1400, "height": 900}, "reduced_motion": "reduce", **settings}
        context = browser.new_context(**settings)
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.faults = []
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.goto(path.as_uri())
        page.wait_for_selector("body.ready")
        return page

    yield opened
    faults = [fault for context in contexts for page in context.pages for fault in page.faults]
    for context in contexts:
        context.close()
    assert not faults


@pytest.fixture(scope="module")
def plain(write: Callable[..., Path]) -> Path:
    return write("plain")


def until(page: Any, expression: str) -> None:  # noqa: ANN401
    """Wait until it holds: the page's policy lets nothing poll from within."""
    for _ in range(150):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(expression)


def spot(page: Any, item: int, plane: int = 0) -> tuple[float, float]:  # noqa: ANN401
    """Where an item lies on a map, in the window."""
    box = page.locator(".plane").nth(plane).bounding_box()
    x, y = page.evaluate(f"planes[{plane}].place({item})")
    return box["x"] + x, box["y"] + y


def test_a_click_shows_an_item_and_its_neighbours(plain: Path, visit: Callable[..., Any]) -> None:
    page = visit(plain)
    page.mouse.click(*spot(page, 7))
    assert page.locator("#panel h2").inner_text() == "item 07"
    assert page.locator("#say").inner_text() == "item 07. 42 degrees"
    near, by_label = page.locator("#panel .five").all()
    pictures = near.locator("button .picture").all()[:2]
    assert {picture.get_attribute("aria-label") for picture in pictures} == {"item 06", "item 08"}
    assert by_label.locator("button").count() == 10
    first = by_label.locator("button").first
    assert first.get_by_text("label distance").count() == 1  # said to screen readers
    assert "6.0" in first.text_content()
    assert "rank by embedding" in first.text_content()
    first.click()
    assert page.locator("#panel h2").inner_text() in ("item 06", "item 08")
    page.mouse.click(*spot(page, 30, plane=1))
    assert page.locator("#panel h2").inner_text() == "item 30"
    page.mouse.move(*spot(page, 12))
    assert page.evaluate("state.hover") == 12
    assert "item 12" in page.locator("#tip").inner_text()


def test_further_columns_colour_the_maps_and_texts_are_shown_and_found(
    write: Callable[..., Path], visit: Callable[..., Any]
) -> None:
    ages = np.arange(N, dtype=float)
    ages[9] = np.nan
    further = {"age": (ages, None), "site": (np.array([f"site {i % 3}" for i in range(N)], object), None)}
    texts = {"note": [f"<b>note {i}</b>" for i in range(N)]}
    page = visit(write("further", further=further, texts=texts, note="Pictures show the first three bands of 4."))
    names = page.evaluate("[...document.querySelectorAll('#colour option')].map((one) => one.textContent)")
    assert names[:5] == ["angle", "half", "place on the labels' map", "role", "age"]
    page.mouse.click(*spot(page, 7))
    shown = page.locator("#panel dl").first.inner_text()
    assert "7.00" in shown
    assert "site 1" in shown
    assert "<b>note 7</b>" in shown
    assert "Pictures show the first three bands of 4." in page.locator("#panel").inner_text()
    page.select_option("#colour", "age")
    assert page.locator("#legend").inner_text().split() == ["0.000", "58.0"]  # to the 99th percentile
    assert page.evaluate("[...planes[0].colours.slice(4 * 9, 4 * 9 + 3)]") == [128, 128, 128]  # a missing number
    page.select_option("#colour", "site")
    assert page.locator("#legend .kind").count() == 3
    page.fill("#search", "41</b>")
    assert page.locator("#found [role=option]").count() == 1
    page.keyboard.press("Enter")
    assert page.locator("#panel h2").inner_text() == "item 41"


def test_keys_walk_zoom_and_let_go(plain: Path, visit: Callable[..., Any]) -> None:
    page = visit(plain)
    page.mouse.click(*spot(page, 7))
    page.keyboard.press("l")
    assert page.evaluate("state.item") in (6, 8)
    before = page.evaluate("state.item")
    x = spot(page, before)[0]
    for key in ("ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
        if page.evaluate("state.item") != before:
            break
    assert (spot(page, page.evaluate("state.item"))[0] > x) == (key == "ArrowRight")
    page.keyboard.press("+")
    assert page.evaluate("planes[0].view.z") > 1
    page.keyboard.press("0")
    assert page.evaluate("planes[0].view.z") < 1
    page.keyboard.press("Escape")
    assert page.evaluate("state.item") == -1
    assert "draw around many" in page.locator("#panel").inner_text()


def drag_around(page: Any, width: float = 1.0, plane: int = 0) -> None:  # noqa: ANN401
    """Draw around the left part of a map."""
    box = page.locator(".plane").nth(plane).bounding_box()
    left, top, side = box["x"] + 5, box["y"] + 5, box["width"] - 10  # its corners are round
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in ((width, 0), (width, 1), (0, 1), (0, 0)):
        page.mouse.move(left + x * side, top + y * side, steps=3)
    page.mouse.up()


def test_a_lasso_selects_and_the_selection_is_exported(plain: Path, visit: Callable[..., Any]) -> None:
    page = visit(plain)
    left = page.evaluate("[...Array(N).keys()].filter((i) => planes[0].place(i)[0] < planes[0].side / 2 - 4)")
    page.click("#lasso")
    drag_around(page, 0.5)
    chosen = page.evaluate("state.chosen")
    assert set(left) <= set(chosen)
    assert len(chosen) < N
    assert f"{len(chosen)} items selected" in page.locator("#panel").inner_text()
    with page.expect_download() as download:
        page.get_by_text("Export as CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text("utf-8-sig"))))
    assert [row["name"] for row in rows] == [f"item {i:02d}" for i in chosen]
    assert float(rows[0]["angle"]) == pytest.approx(np.linspace(0, 355, N)[chosen[0]], abs=0.1)
    assert rows[0]["half"] in ("low", "high")
    page.click("#lasso")
    page.get_by_text("Let go").click()
    assert page.evaluate("state.chosen") is None


def test_formulas_of_names_are_no_formulas_in_the_export(
    write: Callable[..., Path], visit: Callable[..., Any], tmp_path: Path
) -> None:
    names = ["=1+1", "+1", "-1", "@x", "\t=2", ' =cmd|"/c calc"!A0', "1,2", 'a"b', *[f"n{i}" for i in range(N - 8)]]
    page = visit(write("formulas", names))
    page.click("#lasso")
    drag_around(page)
    with page.expect_download() as download:
        page.get_by_text("Export as CSV").click()
    rows = list(csv.reader(io.StringIO(Path(download.value.path()).read_text("utf-8-sig"))))
    assert len(rows) == N + 1
    assert [row[0] for row in rows[1:9]] == ["'=1+1", "'+1", "'-1", "'@x", "'=2", '\'=cmd|"/c calc"!A0', "1,2", 'a"b']


def test_colours_follow_the_choice(plain: Path, visit: Callable[..., Any]) -> None:
    page = visit(plain)
    names = page.locator("#colour option").all_inner_texts()
    assert names[:2] == ["angle", "half"]
    seen = {}
    for name in names:
        page.select_option("#colour", name)
        colours = page.evaluate("Array.from(planes[0].colours)")
        seen[name] = np.reshape(colours, (N, 4))[:, :3]
        assert page.locator("#legend").inner_text() or page.locator("#legend i").count()
    step = np.abs(np.diff(seen["angle"].astype(int), axis=0)).sum(axis=1)
    assert np.abs(seen["angle"][0] - seen["angle"][-1]).sum() < 3 * step.max()  # it closes the circle
    assert len(np.unique(seen["half"], axis=0)) == 2
    assert len(np.unique(seen["role"], axis=0)) == 2
    page.locator("#roles input").first.uncheck()
    assert page.evaluate("planes[0].colours.filter((value, i) => i % 4 === 3 && !value).length") == 20


def test_tabs_change_the_embedding_and_sliders_move_it(plain: Path, visit: Callable[..., Any]) -> None:
    page = visit(plain)
    tabs = page.get_by_role("tab")
    assert tabs.all_inner_texts() == ["ours", "noise", "oracle (the labels)"]
    map_of_ours = page.evaluate("Array.from(planes[0].a)")
    tabs.nth(1).click()
    until(page, "planes[0].a[0] === arrays['1.map0'][0]")
    assert page.evaluate("Array.from(planes[0].a)") != map_of_ours
    assert tabs.nth(1).get_attribute("aria-selected") == "true"
    assert page.locator("#training").is_hidden()
    page.keyboard.press("ArrowLeft")
    until(page, "state.view === 0")
    page.locator("#stage").fill("0")
    assert page.locator("#step").inner_text() == "10"
    assert page.evaluate("planes[0].a[0] === arrays['0.stage0'][0]")
    page.locator("#stage").fill("2")
    assert page.locator("#step").inner_text() == "end"
    page.locator("#morph").fill("1")
    assert page.evaluate(
        "[...Array(N).keys()].every((i) => Math.abs(planes[0].place(i)[0] - planes[1].place(i)[0]) < 1)"
    )


def test_search_finds_by_name_and_label(plain: Path, visit: Callable[..., Any]) -> None:
    page = visit(plain)
    page.keyboard.press("/")
    page.keyboard.type("item 1")
    assert page.locator("#found [role=option]").count() == 8
    hits = [i for i, angle in enumerate(np.linspace(0, 355, N)) if "1" in f"{i:02d} {angle:.0f}"]
    assert page.evaluate("[...state.hits]") == hits
    page.locator("#search").fill("60 degrees 10")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("#panel h2").inner_text() == "item 10"
    page.locator("#search").fill("no such thing")
    assert "nothing found" in page.locator("#found").inner_text()


def test_dots_and_worst_pairs_show_a_pair(plain: Path, visit: Callable[..., Any]) -> None:
    page = visit(plain)
    page.get_by_role("tab").nth(1).click()
    canvas = page.locator("#shepard canvas")
    x, y = page.evaluate("diagram.spot(5)")
    canvas.click(position={"x": x, "y": y})
    assert page.evaluate("state.pair").__len__() == 2
    assert "embedding distance" in page.locator("#panel").inner_text()
    canvas.press("ArrowRight")
    page.locator("#worst button").first.click()
    assert "rank by label" in page.locator("#panel").inner_text()
    page.locator("#worst input").nth(1).check()
    page.locator("#worst button").first.click()
    assert "#" in page.locator("#panel").inner_text()


def test_a_finger_taps_and_pans(plain: Path, visit: Callable[..., Any]) -> None:
    page = visit(plain, viewport={"width": 400, "height": 800}, has_touch=True, color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.locator(".plane").first.scroll_into_view_if_needed()
    page.touchscreen.tap(*spot(page, 20))
    assert page.locator("#panel h2").inner_text() == "item 20"


def test_no_name_or_label_runs_and_nothing_asks_the_network(
    write: Callable[..., Path], visit: Callable[..., Any], server: tuple[str, list[str]]
) -> None:
    address, seen = server
    texts = attacks(address)
    names = [f"{texts[i % len(texts)]} {i}" for i in range(N)]
    columns = {texts[0]: (np.array(texts * 5, object)[:N], None), "angle": (np.arange(N, dtype=float), None)}
    audit = {texts[1]: (np.arange(N, dtype=float), None), texts[2]: (np.array(names, object), None)}
    path = write(
        "hostile",
        names,
        words=names,
        roles=[texts[i % 2] for i in range(N)],
        columns=columns,
        title=texts[0],
        note=texts[3],
        legend={texts[4]: "#ff0000", texts[10]: "#00ff00"},
        further=audit,
        texts={texts[5]: names, "note": [f"{name} suspicious" for name in names]},
    )
    page = visit(path)
    page.on("console", lambda message: page.faults.append(message.text) if message.type == "error" else None)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for name in range(page.locator("#colour option").count()):
        page.locator("#colour").select_option(index=name)
    colours = page.locator("#colour option").all_text_contents()
    assert all(any(name[:15] in shown for shown in colours) for name in audit), colours
    page.mouse.click(*spot(page, 3))
    assert "suspicious" in page.locator("#panel").inner_text()
    page.mouse.move(*spot(page, 9))
    page.locator("#search").fill("script")
    page.click("#lasso")
    drag_around(page, plane=1)
    page.locator("#worst button").first.click()
    page.wait_for_timeout(300)
    assert page.title().startswith("<script>document.title=")
    assert page.locator("script").count() == page.evaluate("3 + meta.sheet.count")
    assert page.locator("iframe, img, base, link, svg, form").count() == 0
    assert [url for url in asked if not url.startswith(("blob:", "data:"))] == []
    assert seen == []
    assert page.faults == []
    # the policy would hold even if a text were taken for markup
    page.evaluate(
        "(text) => document.body.insertAdjacentHTML('beforeend', text)",
        "".join(text for text in texts if "refresh" not in text),
    )
    page.wait_for_timeout(300)
    assert seen == []
    assert page.title().startswith("<script>document.title=")
    assert page.faults  # what the policy has kept back
    page.faults.clear()


def test_a_click_or_the_keyboard_enlarges_a_picture_of_the_gallery(browser: Any, tmp_path: Path) -> None:  # noqa: ANN401
    top = [Picture(Image.new("RGB", (60, 60), "red"), "label", float(place)) for place in range(3)]
    rows = [ReportRow(Picture(Image.new("RGB", (60, 60), "blue"), "query"), {"m": top}, 1.0)]
    write_retrieval_page(tmp_path / "g.html", rows, title="t", unit="px")
    page = browser.new_page(viewport={"width": 400, "height": 700}, has_touch=True)
    page.set_default_timeout(15_000)
    page.goto((tmp_path / "g.html").as_uri())
    picture = page.locator(".five .picture").first
    small, below = picture.bounding_box(), page.locator("figcaption").last.bounding_box()
    page.touchscreen.tap(small["x"] + 10, small["y"] + 10)
    assert picture.bounding_box()["width"] > 300
    assert page.locator("figcaption").last.bounding_box() == below  # nothing moves
    page.touchscreen.tap(200, 5)
    assert picture.bounding_box() == small
    picture.focus()
    assert picture.bounding_box()["width"] > 300
    page.close()


def test_pictures_that_lie_beside_the_page_are_shown(
    write: Callable[..., Path], visit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cml.explore.page.IN_ONE_FILE", N - 1)
    page = visit(write("a page"))
    page.check("#pictures")
    until(page, "[...bitmaps.values()].some(Boolean)")
    loaded = "async (url) => { const image = new Image(); image.src = url; await image.decode(); return image.width; }"
    assert page.evaluate(f"({loaded})(sheet(0))") >= 24
    assert "a%20page.pictures/" in page.locator("#panel .picture").first.get_attribute("style")


def test_a_page_of_judged_triplets_has_the_embedding_alone(visit: Callable[..., Any], tmp_path: Path) -> None:
    distance = as_label_distance("judged-triplets")
    labels = distance.encode([[str(item), f"{(item + 1) % 12} {(item + 5) % 12}"] for item in range(12)])
    side = build_label_side(distance, labels)
    embeddings = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    items = Items(
        [f"item {i:02d}" for i in range(12)],
        ["1 judgement"] * 12,
        ["query"] * 12,
        [lambda i=i: Image.new("RGB", (24, 16), (20 * i, 90, 200)) for i in range(12)],
        {},
    )
    path = tmp_path / "triplets.html"
    write_explorer(
        path, items, side, [build_embedding_view("ours", embeddings, side, ["pca"])], title="judged", unit=""
    )
    page = visit(path)
    assert page.locator("figure.map").count() == 1
    assert "There is no map of the labels, for no label distance is known" in page.inner_text(".sliders")
    assert page.locator("#shepard, #worst, #morph").count() == 0
    assert page.inner_text("#left .about") == "ours"
    for colour in page.locator("#colour option").all_inner_texts():
        page.select_option("#colour", colour)
        assert "label" not in colour
    before = page.inner_text("#panel h2")
    page.focus("#left .plane")
    page.keyboard.press("l")
    assert page.inner_text("#panel h2") == before
    page.keyboard.press("e")
    assert page.inner_text("#panel h2") != before
    assert page.locator("#panel h3").count() == 1
    assert "label" not in page.inner_text("#panel")
    page.keyboard.press("Escape")
    assert page.locator("#panel h3").count() == 0


def test_a_pair_of_sequences_is_drawn_with_the_path_of_its_distance(visit: Callable[..., Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tracks = [rng.normal(size=(int(rng.integers(9, 14)), 2)).cumsum(axis=0) * 60 for _ in range(12)]
    for name in ("dtw(band=6)", "frechet(open_ends=3)", "dtw(base=circular)"):
        distance = as_label_distance(name)
        labels = distance.encode(tracks)
        side = build_label_side(distance, labels)
        views = [build_embedding_view("ours", rng.normal(size=(12, 3)).astype(np.float32), side, ["pca"])]
        pictures = [lambda: Image.new("RGB", (24, 16))] * 12
        items = Items([f"item {i}" for i in range(12)], [""] * 12, ["query"] * 12, pictures)
        path = tmp_path / "page.html"
        write_explorer(path, items, side, views, title="tracks")
        page = visit(path)
        page.evaluate("showPair(3)")
        assert page.locator("#panel canvas.sequences").count() == 1
        one, other = page.evaluate("[...state.pair]")
        found = page.evaluate(f"alignSequences(sequenceOf({one}), sequenceOf({other}))")
        wanted = distance.pairwise(labels[one : one + 1], labels[other : other + 1]).item()
        assert "circular" in name or found["distance"] == pytest.approx(wanted, rel=1e-4)
        steps = np.diff(found["path"], axis=0)
        assert ((steps >= 0) & (steps <= 1)).all()
        assert steps.any(axis=1).all()
        page.mouse.click(*spot(page, 4))
        assert page.locator("#panel canvas.sequences").count() == 1
