"""The leaderboard in a real browser: sorted by what is chosen, a track at a time, every score a link to its file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

from cml.comparing.bench.page import write_leaderboard
from cml.comparing.bench.table import Board, read_board, score_of

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
VERSION, TRACKS = "2026.3", ("A-efficientnet-lite0", "B-small-cnn")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's results, and some of them once more as those of another track."""
    folder = tmp_path_factory.mktemp("board") / "results"
    kept = ROOT / "results" / VERSION
    for path in kept.glob(f"*/{TRACKS[0]}"):
        shutil.copytree(path, folder / VERSION / path.relative_to(kept))
    for name in ("elpv", "digits"):
        other = folder / VERSION / name / TRACKS[1]
        shutil.copytree(folder / VERSION / name / TRACKS[0], other)
        for file in other.glob("*.json"):
            file.write_text(
                json.dumps({**json.loads(file.read_text("utf-8")), "track": TRACKS[1], "backbone": "small-cnn"}),
                "utf-8",
            )
    return folder


@pytest.fixture(params=[1400, 400])
def page(request: pytest.FixtureRequest, browser: Any, results: Path) -> Iterator[Any]:  # noqa: ANN401
    """The page in a window of that width, which may ask nothing of the network."""
    path = results.parent / f"board-{request.param}.html"
    write_leaderboard(results, path)
    context = browser.new_context(viewport={"width": request.param, "height": 900})
    context.set_default_timeout(15_000)
    opened = context.new_page()
    asked: list[str] = []
    opened.on("request", lambda one: asked.append(one.url))
    opened.goto(path.as_uri())
    yield opened
    context.close()
    assert asked == [path.as_uri()]


def choose(page: Any, label: str) -> None:  # noqa: ANN401
    page.locator("label:visible").filter(has_text=label).first.click()


def methods(page: Any) -> list[str]:  # noqa: ANN401
    """What the lines that are seen are called, from the top down."""
    lines = [line for line in page.locator(".line:not(.head)").all() if line.is_visible()]
    tops = {line.locator(".name").inner_text(): line.bounding_box()["y"] for line in lines}
    assert len(set(tops.values())) == len(lines)
    return sorted(tops, key=tops.__getitem__)


def scores(one: Board, name: str) -> dict[str, float]:
    return {method: score_of(row[name]) for method, row in one.results.items() if name in row}


@pytest.mark.parametrize("page", [1400], indirect=True)
def test_a_set_sorts_the_lines_and_stands_alone(page: Any, results: Path) -> None:  # noqa: ANN401
    first = read_board(results, VERSION, TRACKS[0])
    assert methods(page) == first.order
    for name in (first.sets[0], first.sets[-1]):
        choose(page, name)
        reached = scores(first, name)
        found = [reached[method] for method in methods(page) if method in reached]
        assert found == sorted(reached.values(), reverse=True)
        heads = [cell.inner_text() for cell in page.locator(".head span").all() if cell.is_visible()]
        assert heads == ["method", name]
    choose(page, "mean rank")
    assert methods(page) == first.order


def test_a_track_is_shown_at_a_time(page: Any, results: Path) -> None:  # noqa: ANN401
    for track in (TRACKS[1], TRACKS[0]):
        choose(page, track)
        shown = read_board(results, VERSION, track)
        assert methods(page) == shown.order
        heads = [cell.inner_text() for cell in page.locator(".head span").all() if cell.is_visible()]
        header = shown.grid()[0]
        assert heads == ["method", "mean rank", *shown.sets, *header[len(shown.sets) + 2 :]]


def test_a_narrow_window_scrolls_the_table_and_not_the_page(page: Any) -> None:  # noqa: ANN401
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".scroll:visible").bounding_box()["width"] <= width


@pytest.mark.parametrize("page", [1400], indirect=True)
def test_every_score_leads_to_its_file(page: Any, results: Path) -> None:  # noqa: ANN401
    links = [one.evaluate("link => link.href") for one in page.locator(".line a").all()]
    files = {Path(unquote(urlparse(link).path)) for link in links}
    kept = {path for path in results.rglob("*.json") if path.parent.name in TRACKS}
    assert files == kept


@pytest.mark.parametrize("page", [400], indirect=True)
def test_the_first_column_stays_where_it_is(page: Any) -> None:  # noqa: ANN401
    box = page.locator(".scroll:visible")
    name, cell = box.locator(".line").nth(1).locator("span").all()[:2]
    before = name.bounding_box()["x"], cell.bounding_box()["x"]
    box.evaluate("box => (box.scrollLeft = 300)")
    assert name.bounding_box()["x"] == before[0]
    assert cell.bounding_box()["x"] == before[1] - 300


@pytest.mark.parametrize("page", [1400], indirect=True)
def test_bars_are_as_long_as_scores(page: Any, results: Path) -> None:  # noqa: ANN401
    first = read_board(results, VERSION, TRACKS[0])
    name = first.sets[0]
    seen = 0
    for line in page.locator(".line:visible:not(.head)").all():
        score = scores(first, name).get(line.locator(".name").inner_text())
        if score is not None and score > -1:
            part = line.locator(".s0").evaluate("cell => getComputedStyle(cell).getPropertyValue('--part')")
            assert float(part.strip("%")) == pytest.approx(100 * max(0, score), abs=2.6)
            seen += 1
    assert seen > 5


@pytest.mark.parametrize("page", [400], indirect=True)
def test_the_diagram_and_the_table_are_there(page: Any, results: Path) -> None:  # noqa: ANN401
    picture = page.locator(".board:visible figure img")
    assert picture.evaluate("image => image.complete && image.naturalWidth") > 0
    (link,) = (link.get_attribute("href") for link in page.locator(".files:visible a").all())
    first = read_board(results, VERSION, TRACKS[0])
    csv_lines = (results.parent / unquote(link)).read_text("utf-8").splitlines()
    assert [line.split(",")[0] for line in csv_lines] == ["method", *first.order]
