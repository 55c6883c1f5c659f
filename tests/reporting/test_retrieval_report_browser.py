"""The pages that cml writes in a real browser: no text on them runs as a script, and nothing asks the network."""

from __future__ import annotations

import html.parser
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hostile_texts import attacks
from PIL import Image

from cml.comparing.report import write_report
from cml.reporting.retrieval_report import Picture, ReportRow, write_retrieval_page
from cml.reporting.visible_text import visible_text
from cml.searching.hit import Hit
from cml.searching.search_page import write_index_page

pytestmark = pytest.mark.slow

TITLE = "untouched"


def browse(chromium: str, profile: Path, page: Path, *flags: str) -> str:
    command = [
        chromium,
        *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
        *("--disable-component-update", "--disable-sync", "--hide-scrollbars", f"--user-data-dir={profile}"),
        *("--virtual-time-budget=1500", *flags, page.as_uri()),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=True)
    return done.stdout.decode("utf-8")


@dataclass
class FakeComparison:
    """What the page of a comparison takes from one."""

    rows_of_table: list[list[str]]
    remarks: str
    trained: list[str]

    def table(self) -> list[list[str]]:
        return self.rows_of_table

    def notes(self) -> str:
        return self.remarks


class Seen(html.parser.HTMLParser):
    """What a page holds once a browser has read it: elements, handlers, addresses, and all text that is shown."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.handlers: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name == "style"]
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "srcdoc", "action")]

    def handle_data(self, data: str) -> None:
        self.text += data

    def check(self, texts: Sequence[str]) -> None:
        """Nothing on the page is more than text: every given text is shown as it is."""
        assert self.elements.isdisjoint(("script", "img", "svg", "iframe", "link", "base", "object", "embed", "math"))
        assert self.handlers == []
        assert all(re.fullmatch(r"#(start|q\d+)|table\.(csv|tex)", address) for address in self.addresses)
        for text in texts:
            assert visible_text(text) in self.text


def test_no_text_runs_and_nothing_asks_the_network(
    chromium: str, server: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, seen = server
    texts = attacks(address)
    image = Image.new("RGB", (30, 30), "red")
    rows = [
        ReportRow(Picture(image, text), {"".join(texts): [Picture(image, text, float(place))]}, float(place))
        for place, text in enumerate(texts)
    ]
    page = tmp_path / "retrieval_report.html"
    write_retrieval_page(
        page, rows, title=TITLE + "".join(texts), unit="".join(texts), summary="\n".join(texts), table=[texts, texts]
    )
    shown = browse(chromium, tmp_path / "profile", page, "--dump-dom")
    assert f"<title>{TITLE}&lt;script&gt;document.title=" in shown
    Seen(shown).check(texts)
    assert seen == []

    # The policy alone would hold too: the same attacks, let into the page as markup.
    text = page.read_text(encoding="utf-8")
    markup = "".join(text for text in texts if "refresh" not in text and "\x00" not in text)
    (tmp_path / "unescaped.html").write_text(text.replace('<main id="start">', f'<main id="start">{markup}'))
    shown = browse(chromium, tmp_path / "profile", tmp_path / "unescaped.html", "--dump-dom")
    assert "<script>document.title=" in shown
    assert f"<title>{TITLE}&lt;script&gt;" in shown
    assert seen == []

    # And the test can fail: without the policy the scripts run and the requests leave.
    bare = f"<!doctype html><title>{TITLE}</title>{markup}"
    (tmp_path / "control.html").write_text(bare)
    shown = browse(chromium, tmp_path / "profile", tmp_path / "control.html", "--dump-dom")
    assert "<title>ran</title>" in shown
    assert {"/ran", "/image", "/sheet"} <= set(seen)


def test_a_page_of_search_results_shows_names_as_text(
    chromium: str, server: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, seen = server
    texts = attacks(address)
    names = [text.replace("/", "\u2215").replace("\0", "")[:200].encode(errors="replace").decode() for text in texts]
    images = []
    for name in names:  # as files: a name may hold all but a slash
        images.append(tmp_path / name)
        Image.new("RGB", (30, 30), "red").save(images[-1], "PNG")
    hits = [[Hit(text, images[0], 0.5), Hit(text, Path(f"/gone/{text}"), 1.0)] for text in texts]
    page = tmp_path / "search.html"
    write_index_page(page, images, hits, Path(TITLE + "".join(names)), 7)
    shown = browse(chromium, tmp_path / "profile", page, "--dump-dom")
    assert f"<title>Nearest in {TITLE}&lt;script&gt;document.title=" in shown
    Seen(shown).check([*names, *texts])
    assert seen == []

    text = page.read_text(encoding="utf-8")  # the policy alone would hold too
    markup = "".join(text for text in texts if "refresh" not in text and "\x00" not in text)
    (tmp_path / "unescaped.html").write_text(text.replace('<main id="start">', f'<main id="start">{markup}'))
    shown = browse(chromium, tmp_path / "profile", tmp_path / "unescaped.html", "--dump-dom")
    assert "<script>document.title=" in shown
    assert f"<title>Nearest in {TITLE}&lt;script&gt;" in shown
    assert seen == []


def test_the_report_of_a_comparison_shows_texts_as_text(
    chromium: str, server: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, seen = server
    texts = attacks(address)
    comparison = FakeComparison([["method", *texts], ["embedding", *texts]], "\n".join(texts), texts)
    page = tmp_path / "report.html"
    write_report(comparison, dict.fromkeys(texts, tmp_path), tmp_path, title=TITLE + "".join(texts))  # type: ignore[arg-type]
    shown = browse(chromium, tmp_path / "profile", page, "--dump-dom")
    assert f"<title>{TITLE}&lt;script&gt;document.title=" in shown
    Seen(shown).check([])
    assert "onerror=" in Seen(shown).text
    assert seen == []


@pytest.mark.parametrize("width", [1280, 520])  # narrower ones a headless window does not do
def test_the_page_is_drawn(chromium: str, tmp_path: Path, width: int) -> None:
    blue, red = Image.new("RGB", (60, 60), "#0000ff"), Image.new("RGB", (60, 60), "#ff0000")
    top = [Picture(red, "found", float(place)) for place in range(5)]
    rows = [ReportRow(Picture(blue, "query"), dict.fromkeys(("cml", "oracle", "baseline"), top), 1.0)]
    write_retrieval_page(
        tmp_path / "g.html", rows, title="x" * 300, unit="px", table=[["a"] * 30] * 2, summary="word " * 90
    )
    browse(
        chromium, tmp_path / "profile", tmp_path / "g.html",
        f"--screenshot={tmp_path / 'shot.png'}", f"--window-size={width},1500",
    )  # fmt: skip
    with Image.open(tmp_path / "shot.png") as shot:
        pixels = np.asarray(shot.convert("RGB")).astype(int)
    assert pixels.shape[1] == width
    red_pixels = np.abs(pixels - [254, 0, 0]).max(axis=2) < 8
    blue_pixels = np.abs(pixels - [0, 0, 254]).max(axis=2) < 8
    assert red_pixels.sum() > 15 * 55**2  # fifteen pictures, style sheets and pictures passed the policy
    assert blue_pixels.sum() > 80**2
    columns = np.flatnonzero(red_pixels.any(axis=0))
    assert columns.max() < width - 10  # none is cut off at the right
    rows_of_groups = np.diff(np.flatnonzero(red_pixels.any(axis=1))) > 1
    assert rows_of_groups.sum() == (0 if width == 1280 else 2)  # side by side, or one below the other
