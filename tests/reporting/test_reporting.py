"""The retrieval report, curves and drawing: order, escaping, embedded pictures, refusals. No browser here."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import io
import math
import re
import subprocess
import sys
import tempfile
import weakref
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFont

from cml.array_types import Bools, Float64
from cml.errors import UserError
from cml.reporting.curves import compute_moving_mean, write_curves
from cml.reporting.drawing import LEFT, RIGHT, contact_sheet, draw_gauge, draw_regions, draw_skeleton, draw_text, flat
from cml.reporting.metric_curves import Panel, write_metric_curves
from cml.reporting.retrieval_report import Picture, ReportRow, write_retrieval_page
from cml.reporting.sheet import wrap_text, write_sheet
from cml.reporting.visible_text import visible_text
from cml.searching.search_page import SearchPicture, write_search_page

HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>' onmouseover='alert(2)",
    "{{7*7}} {% raw %} {#",
    "javascript:alert(1)",
    "</style><style>*{display:none}",
    "</title></textarea><!-- ]]>",
    "nul\x00 bell\x07 escape\x1b[31m delete\x7f",
    "lone \ud800 surrogates \udfff",
    "override \u202e gnp.exe",
    "שלום עולם",
    "&lt;b&gt; &amp;amp; &#60;",
]
ELEMENTS = """a b bdi body div figcaption figure h1 h2 head header html i input label li main meta nav ol p section
small span style table tbody td th thead title tr"""


class Page(html.parser.HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self._quiet = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._quiet = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._quiet = False

    def handle_data(self, data: str) -> None:
        if not self._quiet:
            self.text += data

    def attributes(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]


def plain(color: str = "red", size: tuple[int, int] = (40, 30)) -> Image.Image:
    return Image.new("RGB", size, color)


def row(
    score: float, caption: str = "query", distances: tuple[float | None, ...] = (1.0, 2.0), methods: str = "ab"
) -> ReportRow:
    top = [Picture(plain("blue"), f"{caption} {place}", distance) for place, distance in enumerate(distances)]
    return ReportRow(Picture(plain(), caption), dict.fromkeys(methods, top), score)


def made(folder: Path, *rows: ReportRow, **texts: str) -> str:
    path = folder / "retrieval_report.html"
    write_retrieval_page(
        path, rows, title=texts.get("title", "Title"), unit=texts.get("unit", "px"), summary=texts.get("summary", "")
    )
    return path.read_text(encoding="utf-8")


def embedded(text: str) -> list[Image.Image]:
    return [
        Image.open(io.BytesIO(base64.b64decode(data))) for data in re.findall(r"data:image/jpeg;base64,([^)]+)", text)
    ]


# ---- retrieval report


def test_rows_come_at_random_and_sort_at_the_readers_wish(tmp_path: Path) -> None:
    scores = [1.0, math.inf, -2.0, math.nan, 3.0, 1.0, -math.inf]
    gains = [0.0, 5.0, math.nan, 1.0, -1.0, 0.0, 9.0]
    rows = [
        replace(row(score, f"row{number}."), gain=gain)
        for number, (score, gain) in enumerate(zip(scores, gains, strict=True))
    ]
    text = made(tmp_path, *rows)
    captions = dict(
        zip(re.findall(r'<li class="row" id="q(\d)">', text), re.findall(r'"query: row(\d)\."', text), strict=True)
    )
    expected = {"worst": "1405263", "best": "6205413", "gain": "6130542"}  # NaN, nothing comparable, comes last
    for order, numbers in expected.items():
        places = {place: int(number) for place, number in re.findall(rf"#q(\d)\{{--{order}:(\d)\}}", text)}
        assert "".join(captions[place] for place in sorted(places, key=places.__getitem__)) == numbers, order
        assert f"body:has(#by-{order}:checked) .row{{order:var(--{order})}}" in text
    assert re.findall(r'id="by-(\w+)" checked', text) == ["random"]
    assert list(captions) not in (list("1234567"), list("7654321"))
    assert made(tmp_path, *rows) == text
    assert "by-gain" not in made(tmp_path, *(replace(one, gain=math.nan) for one in rows))


def test_the_middle_score_comes_first_at_the_readers_wish(tmp_path: Path) -> None:
    text = made(tmp_path, *(row(score) for score in (1.0, 5.0, 3.0, 2.0, 4.0, math.nan)))
    places = dict(re.findall(r"#q(\d)\{--median:(\d)\}", text))
    assert [places[place] for place in "123456"] == ["3", "1", "0", "2", "4", "5"]


def test_a_range_of_numbers_as_labels_can_be_chosen(tmp_path: Path) -> None:
    rows = [replace(row(float(-number)), value=float(number)) for number in range(20)]
    text = made(tmp_path, *rows)
    assert re.findall(r'id="part\d"> (.*?)</label>', text) == [
        "0.0 to 3.0", "4.0 to 7.0", "8.0 to 11.0", "12.0 to 15.0", "16.0 to 19.0",
    ]  # fmt: skip
    assert {int(place): int(part) for part, place in re.findall(r'class="row p(\d)" id="q(\d+)"', text)} == {
        place: (place - 1) // 4 for place in range(1, 21)
    }
    assert "body:has(#part4:checked) .row:not(.p4){display:none}" in text
    for few in (rows[:9], [*rows, row(0.0)], [replace(one, value=1.0) for one in rows]):
        assert 'id="part0"' not in made(tmp_path, *few)


def test_a_few_different_labels_can_be_chosen_one_by_one(tmp_path: Path) -> None:
    values = [0, 0.333, 0.667, *[1] * 9]
    text = made(tmp_path, *(replace(row(float(n)), value=float(value)) for n, value in enumerate(values)))
    assert re.findall(r'id="part\d"> (.*?)</label>', text) == ["0.00", "0.33", "0.67", "1.00"]
    assert sorted(re.findall(r'class="row p(\d)"', text)) == ["0", "1", "2", *["3"] * 9]


def test_a_page_names_its_measure_and_its_baseline(tmp_path: Path) -> None:
    rows, path = [replace(row(float(n)), gain=1.0) for n in range(3)], tmp_path / "g.html"
    write_retrieval_page(path, rows, title="t", unit="px", measure="gap to the oracle", baseline="frozen net")
    text = path.read_text("utf-8")
    assert "largest gain over frozen net first" in text
    assert text.count('<span class="score">gap to the oracle <b>') == 3
    assert "Each bar of the strip at the top is a query" in text


def test_one_legend_a_page_and_the_name_in_the_tooltip(tmp_path: Path) -> None:
    path = tmp_path / "g.html"
    shown = ReportRow(Picture(plain(), "a label", name="a.jpg"), {"m": [Picture(plain(), "", 1.0, "b.jpg")]}, 0.0)
    write_retrieval_page(path, [shown], title="t", unit="px", legend={"floor": "#009e73", "<wall>": "red"})
    page = Page(path.read_text("utf-8"))
    assert "a.jpg · a label" in page.attributes("title")
    assert "b.jpg · label distance 1.00 px" in page.attributes("title")
    assert "m, place 1: b.jpg" in page.attributes("aria-label")
    assert page.text.count("floor") == page.text.count("<wall>") == 1
    assert ".k1{--color:#ff0000}" in path.read_text("utf-8")


def test_overview_links_lead_to_rows_that_exist(tmp_path: Path) -> None:
    for count in (1, 2, 3, 400):
        page = Page(made(tmp_path, *(row(float(score)) for score in range(count))))
        ids = set(page.attributes("id"))
        links = page.attributes("href")
        assert {link.removeprefix("#") for link in links} <= ids
        assert {"#q1", f"#q{count}"} <= set(links)
        ticks = [element for element in page.elements if element[0] == "a" and "tabindex" in element[1]]
        assert min(count, 100) <= len(ticks) <= 160


def test_every_text_field_is_shown_as_text(tmp_path: Path) -> None:
    picture = plain()
    for hostile in HOSTILE:
        rows = [ReportRow(Picture(picture, hostile), {hostile: [Picture(picture, hostile, 1.0)]}, 0.0)]
        path = tmp_path / "hostile.html"
        write_retrieval_page(path, rows, title=hostile, unit=hostile, summary=hostile, table=[[hostile] * 2] * 2)
        page = Page(path.read_text(encoding="utf-8"))
        shown = visible_text(hostile)
        # title, h1, summary, legend, four cells, two captions, a heading
        assert page.text.count(shown) >= 11, hostile
        assert {tag for tag, _ in page.elements} <= set(ELEMENTS.split())
        names = {name for _, attributes in page.elements for name in attributes}
        assert not {name for name in names if name.startswith("on") or name in {"src", "style", "srcdoc", "action"}}
        assert all(link.startswith("#") for link in page.attributes("href"))
        assert shown in " ".join(page.attributes("aria-label"))
        assert f"{shown} · label distance 1.00 {shown}" in page.attributes("title")


@settings(deadline=None, max_examples=40)
@given(st.text(st.sampled_from("<>&\"'{}%=/ a") | st.characters(codec=None), max_size=60))
def test_any_caption_comes_back_from_the_page(caption: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.html"
        write_retrieval_page(path, [row(0.0, caption, methods="a")], title=caption, unit="", summary=caption)
        page = Page(path.read_text(encoding="utf-8"))
    assert f"query: {visible_text(caption) or 'no caption'}" in page.attributes("aria-label")
    assert visible_text(caption) in page.text


def test_policy_allows_only_its_own_style_sheets_and_embedded_pictures(tmp_path: Path) -> None:
    text = made(tmp_path, row(0.0))
    (policy,) = (value for value in Page(text).attributes("content") if "default-src" in value)
    sheets = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()}'" for sheet in sheets}
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert set(directives.pop("style-src").split()) == hashes
    assert directives == {"default-src": "'none'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}
    assert "http" not in text.replace("http-equiv", "")
    assert set(re.findall(r"url\((.{5})", text)) == {"data:"}


def test_pictures_are_embedded_once_each_and_decode(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (50, 80, 3), np.uint8)
    pictures = [
        plain("red", (400, 200)),
        plain("#00ff00", (30, 60)),
        Image.fromarray(noise),
        Image.fromarray(noise.copy()),
    ]
    top = [Picture(image, str(place), float(place)) for place, image in enumerate(pictures * 3)]
    text = made(tmp_path, ReportRow(top[0], {"a": top}, 0.0), ReportRow(top[1], {"a": top[::-1]}, 1.0))
    images = embedded(text)
    # the second row, worse, comes first, and its first picture is the noise
    assert [image.size for image in images] == [(80, 50), (30, 60), (144, 72)]
    assert {image.mode for image in images} == {"RGB"}
    assert np.abs(np.asarray(images[2], np.int64) - [255, 0, 0]).max() <= 3
    assert np.abs(np.asarray(images[0], np.float64) - noise).mean() < 25
    used = [name for value in Page(text).attributes("class") for name in value.split() if re.fullmatch(r"i\d+", name)]
    assert len(used) == 26
    assert set(used) == {"i0", "i1", "i2"}


def test_what_came_with_a_file_stays_behind(tmp_path: Path) -> None:
    file = tmp_path / "photo.jpg"
    exif = Image.Exif()
    exif[0x010F] = "secret camera"
    plain().save(file, exif=exif, comment=b"secret comment")
    with Image.open(file) as image:
        text = made(tmp_path, ReportRow(Picture(image, ""), {"a": []}, 0.0))
    (shown,) = embedded(text)
    assert "comment" not in shown.info
    assert not shown.getexif()


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "LA", "CMYK", "I", "I;16", "F"])
def test_every_kind_of_image_is_shown(tmp_path: Path, mode: str) -> None:
    image = Image.new(mode, (20, 20))
    assert embedded(made(tmp_path, ReportRow(Picture(image, ""), {"a": []}, 0.0)))[0].size == (20, 20)


def test_images_of_equal_indices_and_other_palettes_stay_apart(tmp_path: Path) -> None:
    red, blue = Image.new("P", (8, 8)), Image.new("P", (8, 8))
    red.putpalette([255, 0, 0])
    blue.putpalette([0, 0, 255])
    images = embedded(made(tmp_path, ReportRow(Picture(red, ""), {"a": [Picture(blue, "", 1.0)]}, 0.0)))
    assert len(images) == 2


def test_distances_means_and_bars(tmp_path: Path) -> None:
    near = [Picture(plain(), "", distance) for distance in (0.0, 1.0, 2.0)]
    far = [Picture(plain(), "", distance) for distance in (4.0, math.inf, None)]
    none = [Picture(plain(), "", math.inf)]
    text = made(
        tmp_path, ReportRow(Picture(plain(), ""), {"near": near, "far": far, "none": none, "empty": []}, math.nan)
    )
    page = Page(text)
    numbers = re.findall(r"<figcaption[^>]*><b>(.*?)</b>", text)
    assert numbers == ["0.00", "1.00", "2.00", "4.00", "not comparable", "\u2013", "not comparable"]
    bars = [value.split()[1] for value in page.attributes("class") if value.startswith("bar ") and "key" not in value]
    assert bars == ["s0", "s5", "s10", "s20", "none", "none"]
    means = re.findall(r'<span class="mean">(.*?)</span>', text)
    assert means == ["mean <b>1.00</b>", "<small>1 not comparable</small> mean <b>4.00</b>", "not comparable", ""]
    assert "nothing retrieved" in text
    assert "score <b>not comparable</b>" in text


@pytest.mark.parametrize(
    ("distances", "shown"),
    [
        ((1234.5, 2345.6), ["1,234", "2,346"]),
        ((12.34, 56.78), ["12.3", "56.8"]),
        ((0.1234, 0.9), ["0.123", "0.900"]),
        ((0.0000021, 0.9), ["2.1e\u221206", "0.900"]),
        ((3e7, 2.0, 2.0), ["3e+07", "2.00", "2.00"]),
        ((0.0, 0.0), ["0.00", "0.00"]),
    ],
)
def test_figures_have_the_digits_their_size_asks_for(
    tmp_path: Path, distances: tuple[float, ...], shown: list[str]
) -> None:
    text = made(tmp_path, row(0.0, distances=distances, methods="a"))
    assert re.findall(r"<figcaption[^>]*><b>(.*?)</b>", text) == shown


def test_almost_equal_distances_of_a_row_get_a_calm_bar(tmp_path: Path) -> None:
    calm, wide = row(1.0, distances=(1.0, 1.001)), row(0.0, distances=(0.0, 10.0))
    text = made(tmp_path, calm, wide)
    bars = re.findall(r'class="bar (s\d+)"', text)
    assert sorted([bars[:4], bars[4:]]) == [["s0"] * 4, ["s0", "s20"] * 2]  # rows come at random


def test_methods_keep_the_first_rows_order(tmp_path: Path) -> None:
    text = made(tmp_path, row(2.0, methods="ba"), row(1.0, methods="ab"))
    assert re.findall(r"<h2><bdi>(.)</bdi>", text) == list("baba")


def test_pictures_are_made_as_they_are_written_one_at_a_time_and_once_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[Image.Image]] = []

    @dataclass(frozen=True)
    class Made:
        level: int

        def __call__(self) -> Image.Image:
            assert sum(one() is not None for one in made) <= 1
            image = Image.new("RGB", (40, 30), (self.level, 0, 0))
            made.append(weakref.ref(image))
            return image

    monkeypatch.setattr("cml.reporting.retrieval_report.BAR_DELAY", 0.0)
    monkeypatch.setattr("cml.searching.search_page.BAR_DELAY", 0.0)
    top = [Picture(Made(level), "", float(level)) for level in range(20)]
    rows = [ReportRow(Picture(Made(query), ""), {"a": top, "b": top[::-1]}, 0.0) for query in range(15, 30)]
    write_retrieval_page(tmp_path / "retrieval_report.html", rows, title="", unit="")
    assert len(made) == 30
    assert len(embedded((tmp_path / "retrieval_report.html").read_text())) == 30
    assert "report: 100% 15/15" in capsys.readouterr().err
    found = [
        (SearchPicture(Made(query), ""), [SearchPicture(Made(level), "", 1.0) for level in range(20)])
        for query in range(15, 30)
    ]
    write_search_page(tmp_path / "found.html", found, title="")
    assert len(made) == 60
    assert "page: 100% 15/15" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ([], {}, "at least one query"),
        ([row(0.0, methods="")], {}, "at least one method"),
        ([row(0.0, methods="ab"), row(0.0, methods="ac")], {}, "same methods"),
        ([row(0.0, methods="ab"), row(0.0, methods="abc")], {}, "same methods"),
        ([row(0.0, distances=(1.0, math.nan))], {}, "picture 2 has nan"),
        ([row(0.0, distances=(-1.0,))], {}, "picture 1 has -1.0"),
        ([ReportRow(Picture(Image.new("RGB", (0, 4)), "void"), {"a": []}, 0.0)], {}, "empty image"),
        ([row(0.0)], {"table": [["a", "b"], ["c"]]}, "equally many cells"),
        ([row(0.0)], {"thumbnail": 4}, "thumbnail"),
    ],
)
def test_refusals_leave_the_old_page(tmp_path: Path, rows: list[ReportRow], options: dict[str, int], said: str) -> None:
    path = tmp_path / "retrieval_report.html"
    path.write_text("old")
    with pytest.raises(UserError, match=said):
        write_retrieval_page(path, rows, title="", unit="", **options)  # type: ignore[arg-type]
    assert [file.name for file in tmp_path.iterdir()] == ["retrieval_report.html"]
    assert path.read_text() == "old"


def test_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    assert made(tmp_path, row(1.0), row(2.0)) == made(tmp_path, row(1.0), row(2.0))


# ---- text


@settings(deadline=None, max_examples=50)
@given(st.text(st.characters(codec=None), max_size=100), st.integers(1, 80))
def test_visible_text_can_be_written_and_is_short(text: str, longest: int) -> None:
    shown = visible_text(text, longest)
    shown.encode("utf-8")
    assert len(shown) <= longest
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]", shown)
    if len(text) < longest and text.isascii() and text.isprintable():
        assert shown == text.strip()


def test_visible_text_spells_what_cannot_be_shown() -> None:
    assert visible_text("a\x00b\ud800\u202ec\n d") == "a\\x00b\\ud800\\u202ec  d"
    assert visible_text("x" * 10_000_000, 5) == "xxxx…"
    assert visible_text("é 👩‍👩‍👧 שלום") == "é 👩‍👩‍👧 שלום"


# ---- drawing


def closest(image: Image.Image, color: str) -> Bools:
    target = np.asarray(plain(color, (1, 1)))[0, 0].astype(int)
    near: Bools = np.abs(np.asarray(image).astype(int) - target).max(axis=2) < 40
    return near


POINTS: list[list[float]] = [[10, 10, 1], [10, 50, 1], [50, 10, 1], [50, 50, 0], [math.nan, 5, 1]]


def test_skeleton_has_left_right_and_no_hidden_joints() -> None:
    picture = plain("#808080", (64, 64))
    drawn = draw_skeleton(picture, POINTS, [(0, 1), (0, 2), (1, 3), (2, 4)], left=[1], right=[2])
    assert drawn.size == (192, 192)
    left, right = closest(drawn, LEFT), closest(drawn, RIGHT)
    assert left[60:120, 28:33].any(axis=1).all()  # the limb at x = 10, three times enlarged
    assert right[28:33, 60:120].any(axis=0).all()
    assert closest(drawn, "#808080")[100:, 60:].all()  # nothing where the hidden joint and the NaN joint would be


def test_limbs_are_antialiased() -> None:
    drawn = draw_skeleton(plain("black", (192, 192)), [[10, 20, 1], [180, 90, 1]], [(0, 1)])
    levels = np.unique(np.asarray(drawn)[..., 0])
    assert len(levels) > 10


def test_drawing_leaves_its_input_alone() -> None:
    for size in ((64, 48), (300, 200)):
        picture = plain("#407090", size)
        before = picture.tobytes()
        copies = [
            draw_skeleton(picture, POINTS, [(0, 1)]),
            draw_regions(picture, np.eye(7, dtype=np.uint8)),
            draw_gauge(picture, 0.2, -1, 1),
            draw_text(picture, "a text"),
            draw_text(picture, ""),
            flat(picture),
            contact_sheet([picture], 3),
        ]
        assert picture.tobytes() == before
        for copy in copies:
            assert copy.mode == "RGB"
            copy.putpixel((0, 0), (1, 2, 3))
            assert picture.tobytes() == before
        for copy in copies[:4]:
            assert copy.tobytes() != before
            assert max(copy.size) == max(192, max(size))


@pytest.mark.parametrize("far", [1e30, -1e30, 1e6])
def test_joints_far_outside_are_no_trouble(far: float) -> None:
    drawn = draw_skeleton(plain(), np.array([[5, 5, 1], [far, far, 1], [math.inf, 1, 1]]), [(0, 1), (1, 2)])
    assert drawn.size == (192, 144)


def test_bad_skeletons_are_refused() -> None:
    with pytest.raises(UserError, match=r"\(J, 3\)"):
        draw_skeleton(plain(), [[1, 2], [3, 4]], [])
    for limb in ((0, 2), (-1, 0)):
        with pytest.raises(UserError, match=r"outside 0\.\.1"):
            draw_skeleton(plain(), [[1, 2, 1], [3, 4, 1]], [limb])


def test_regions_are_tinted_with_a_border_between_them() -> None:
    mask = np.zeros((10, 10), np.int64)
    mask[:, 5:] = 1
    mask[8:] = 255
    drawn = np.asarray(
        draw_regions(plain("black", (200, 200)), mask, colors={0: "#ff0000", 1: "#0000ff"}, ignore=[255], tint=0.5)
    )
    assert tuple(drawn[50, 50]) == (127, 0, 0)
    assert tuple(drawn[50, 150]) == (0, 0, 127)
    assert tuple(drawn[190, 100]) == (0, 0, 0)
    assert tuple(drawn[50, 100]) == (255, 255, 255)
    for bad in (np.zeros((2, 2, 2), np.uint8), np.zeros((2, 2)), np.zeros((0, 2), np.uint8)):
        with pytest.raises(UserError, match="mask"):
            draw_regions(plain(), bad)


def test_gauge_moves_with_its_value() -> None:
    def amount(value: float, low: float, high: float) -> int:
        return int(closest(draw_gauge(plain("black", (192, 192)), value, low, high), LEFT).sum())

    assert amount(0.1, 0, 1) < amount(0.5, 0, 1) < amount(1, 0, 1) == amount(7, 0, 1)
    assert amount(0.01, -1, 1) < amount(-0.5, -1, 1) < amount(-1, -1, 1)
    for bad in ((math.nan, 0, 1), (0, 1, 1), (0, 2, 1), (0, 0, math.inf), (0, -1.7e308, 1.7e308)):
        with pytest.raises(UserError, match="gauge"):
            draw_gauge(plain(), *bad)


@pytest.mark.parametrize("text", [*HOSTILE, "long " * 10_000])
def test_any_text_can_be_drawn(text: str) -> None:
    picture = plain("#407090", (100, 80))
    assert draw_text(picture, text).tobytes() != draw_text(picture, "").tobytes()
    draw_gauge(picture, 0, -1, 1, text=text)


def test_contact_sheet_places_every_image() -> None:
    sheet = contact_sheet([plain("red", (10, 10)), plain("blue", (6, 20)), plain("lime", (10, 10))], 2, gap=2)
    assert sheet.size == (2 * 12 + 2, 2 * 22 + 2)
    assert sheet.getpixel((7, 12)) == (255, 0, 0)
    assert sheet.getpixel((19, 12)) == (0, 0, 255)
    assert sheet.getpixel((7, 34)) == (0, 255, 0)
    assert sheet.getpixel((19, 34)) == (255, 255, 255)
    for images, columns in (([], 2), ([plain()], 0)):
        with pytest.raises(UserError, match="contact sheet"):
            contact_sheet(images, columns)


# ---- curves

RECORDS = [{"step": step, "loss": 2.0 / (1 + step), "lr": 0.1} for step in range(200)]


def ink(path: Path, color: tuple[int, int, int]) -> int:
    with Image.open(path) as image:
        return int((np.abs(np.asarray(image.convert("RGB")).astype(int) - color).max(axis=2) < 12).sum())


def test_loss_curve_is_a_picture_of_the_right_size(tmp_path: Path) -> None:
    write_curves(tmp_path / "loss.png", RECORDS, title="run $\\frac")
    write_curves(tmp_path / "both.png", [*RECORDS, {"step": 0, "validation": 3.0}, {"step": 100, "validation": 2.0}])
    sizes = []
    for name in ("loss.png", "both.png"):
        with Image.open(tmp_path / name) as image:
            image.load()
            sizes.append(image.size)
    assert sizes == [(1200, 675), (1200, 900)]
    assert ink(tmp_path / "loss.png", (0, 0x72, 0xB2)) > 500
    assert ink(tmp_path / "loss.png", (0xD5, 0x5E, 0)) == 0
    assert ink(tmp_path / "both.png", (0xD5, 0x5E, 0)) > 500


@pytest.mark.parametrize(
    "records",
    [
        [{"step": 1, "loss": 0.5}],
        [{"step": step, "loss": value} for step, value in enumerate([1.0, math.nan, math.inf, 0.5, -1.0])],
        [{"step": step, "loss": float(step % 7)} for step in range(5000)],
        [{"step": step, "loss": math.nan if step < 4000 else 1.0} for step in range(5000)],
        [{"step": 1, "validation": 0.5}],
        [{"step": 5, "loss": 1.0}, {"step": 3, "loss": 2.0}, {"step": 5, "loss": 0.1}],
        [{"step": 0, "loss": 1e-30}, {"step": 1, "loss": 1e30}],
    ],
)
def test_odd_runs_are_drawn(tmp_path: Path, records: list[dict[str, float]]) -> None:
    write_curves(tmp_path / "loss.png", records)
    with Image.open(tmp_path / "loss.png") as image:
        assert image.size == (1200, 675)


def test_of_records_of_one_step_the_last_counts(tmp_path: Path) -> None:
    write_curves(tmp_path / "a.png", [{"step": 0, "loss": 9.0}, {"step": 1, "loss": 2.0}, {"step": 0, "loss": 1.0}])
    write_curves(tmp_path / "b.png", [{"step": 0, "loss": 1.0}, {"step": 1, "loss": 2.0}])
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([], "nothing to draw"),
        ([{"step": 1, "loss": math.nan}], "nothing to draw"),
        ([{"step": "one", "loss": 1.0}], "Record 0"),
        ([{"step": 1, "loss": 1.0}, {"step": 2, "loss": "high"}], "Record 1"),
    ],
)
def test_unusable_metrics_are_refused(tmp_path: Path, records: list[dict[str, float]], said: str) -> None:
    with pytest.raises(UserError, match=said):
        write_curves(tmp_path / "loss.png", records)
    assert not list(tmp_path.iterdir())


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.one_of(st.floats(-100, 100), st.sampled_from([math.nan, math.inf])), min_size=1, max_size=40),
    st.integers(1, 50),
)
def test_smoothing_against_plain_loops(values: list[float], window: int) -> None:
    fast = compute_moving_mean(np.array(values), window)
    for at in range(len(values)):
        near = [v for v in values[max(0, at - window // 2) : at + window // 2 + 1] if math.isfinite(v)]
        slow = sum(near) / len(near) if near else math.nan
        assert fast[at] == pytest.approx(slow, abs=1e-9, nan_ok=True)


def flat_curve(value: float, *, width: float = 0.0) -> dict[int, tuple[float, float, float]]:
    return dict.fromkeys((1, 2, 5, 10), (value, value - width, value + width))


@pytest.mark.slow
def test_metric_curves_take_any_name_and_any_gap(tmp_path: Path) -> None:
    curves = {name: flat_curve(base, width=1.0) for base, name in enumerate(["cml", *HOSTILE, "_hidden", "$\\frac{"])}
    curves["gap"] = {1: (1.0, math.nan, math.nan), 2: (math.nan, math.nan, math.nan), 5: (3.0, 2.0, 4.0)}
    curves["void"] = {1: (math.nan, 0.0, 1.0)}
    curves["oracle"] = {1: (math.nan, 0.0, 1.0)}
    path = tmp_path / "k.png"
    panel = Panel(curves, "d@K ^_$", "K $")
    write_metric_curves(path, [panel], title="$\\alpha")
    write_metric_curves(path, [panel, panel, Panel({"void": curves["void"], "oracle": flat_curve(1.0)}, "c")])
    with Image.open(path) as image:
        assert image.width == 3120
    write_metric_curves(path, [Panel({"cml": {10: (0.5, 0.4, 0.6)}}, "nDCG")])


def test_each_point_of_each_method_has_its_bar_near_its_k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.axes import Axes

    drawn, errorbar = [], Axes.errorbar

    def watched(self: Axes, x: Float64, *rest: object, **more: object) -> object:
        drawn.append((x, more["errorevery"]))
        return errorbar(self, x, *rest, **more)

    monkeypatch.setattr(Axes, "errorbar", watched)
    for places in (range(1, 11), (10, 20, 30, 40)):
        curves = {name: dict.fromkeys(places, (1.0, 0.5, 1.5)) for name in "abc"}
        write_metric_curves(tmp_path / "k.png", [Panel(curves, "d@K")])
        step = places[1] - places[0]
        assert all(np.abs(x - places).max() <= 0.06 * step for x, _ in drawn)
        assert all(every == (0, 1) for _, every in drawn)
        drawn.clear()


def test_curves_lie_as_vectors_at_a_columns_width_beside_the_picture(tmp_path: Path) -> None:
    panels = [Panel({"cml": flat_curve(1.0, width=0.5), "oracle": flat_curve(0.5)}, "d@K")] * 2
    first = [(tmp_path / f"{name}.png") for name in "ab"]
    for path in first:
        write_metric_curves(path, panels)
    svg = (tmp_path / "a.svg").read_text("utf-8")
    width = float(re.search(r'<svg[^>]* width="([\d.]+)pt"', svg)[1])  # type: ignore[index]
    assert width == pytest.approx(2 * 3.4 * 72)
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    for kind in ("png", "svg", "pdf"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_a_reference_at_a_single_place_is_a_line_across(tmp_path: Path) -> None:
    grey, path = (0x66, 0x63, 0x5E), tmp_path / "k.png"
    one = {name: {8: (value, value - 0.01, value + 0.01)} for name, value in (("cml", 0.5), ("frozen", 0.48))}
    write_metric_curves(path, [Panel({"cml": one["cml"]}, "nDCG")], quiet=["frozen"])
    before = ink(path, grey)
    write_metric_curves(path, [Panel(one, "nDCG")], quiet=["frozen"])
    assert ink(path, grey) > before + 500


def test_a_method_looks_the_same_in_all_panels(tmp_path: Path) -> None:
    blue, orange = (0, 0x72, 0xB2), (0xD5, 0x5E, 0)
    path = tmp_path / "k.png"
    both = Panel({"cml": flat_curve(0.5), "other": flat_curve(0.7), "oracle": flat_curve(0.9)}, "nDCG")
    alone = Panel({"other": dict.fromkeys((16, 32, 64, 128), (0.5, 0.4, 0.6))}, "nDCG", "dimension")
    write_metric_curves(path, [both])
    one = ink(path, orange)
    write_metric_curves(path, [both, alone])
    assert ink(path, blue) > 500
    assert ink(path, orange) > 1.5 * one


def test_a_far_reference_is_named_and_does_not_press_the_methods_together(tmp_path: Path) -> None:
    def height(*references: str, oracle: float) -> int:
        """Rows between the lines of the two methods."""
        curves = {"a": flat_curve(10.0), "b": flat_curve(11.0), **{name: flat_curve(oracle) for name in references}}
        write_metric_curves(tmp_path / "k.png", [Panel(curves, "px")], quiet=("oracle", "frozen"))
        with Image.open(tmp_path / "k.png") as image:
            pixels = np.asarray(image.convert("RGB")).astype(int)
        plot = pixels[:700]  # above the legend
        rows = [
            np.flatnonzero((np.abs(plot - color).max(axis=2) < 12).sum(axis=1) > 200).mean()
            for color in ((0, 0x72, 0xB2), (0xD5, 0x5E, 0))
        ]
        return int(rows[0] - rows[1])

    alone = height(oracle=0.0)
    assert height("oracle", oracle=0.0) > 0.6 * alone
    assert height("oracle", oracle=1000.0) > 0.6 * alone
    assert height("oracle", oracle=11.2) > 0.6 * alone
    assert height("frozen", oracle=13.5) < 0.5 * alone  # a baseline is drawn if it is not too far ...
    assert height("frozen", oracle=1000.0) > 0.6 * alone  # ... and else named


@pytest.mark.parametrize("panels", [1, 2])
def test_the_legend_of_many_long_names_stays_within_the_figure(tmp_path: Path, panels: int) -> None:
    names = [f"language-guided multi-similarity, {'WM'[place % 2] * 7}" for place in range(9)] + ["oracle", "random"]
    curves = {name: {k: (place + k, place, place) for k in (1, 2, 4)} for place, name in enumerate(names)}
    write_metric_curves(tmp_path / "many.png", [Panel(curves, "recall@K")] * panels)  # type: ignore[arg-type]
    with Image.open(tmp_path / "many.png") as image:
        pixels = np.asarray(image.convert("L"))
    assert (pixels[:, :6] > 250).all()
    assert (pixels[:, -6:] > 250).all()
    assert (pixels[-3:] > 250).all()


@pytest.mark.parametrize("curves", [{}, {"cml": {}}, {"cml": {1: (math.nan, math.nan, math.nan)}}])
def test_empty_metric_curves_are_refused(
    tmp_path: Path, curves: dict[str, dict[int, tuple[float, float, float]]]
) -> None:
    with pytest.raises(UserError, match="draw"):
        write_metric_curves(tmp_path / "k.png", [Panel(curves, "")])
    with pytest.raises(UserError, match="draw"):
        write_metric_curves(tmp_path / "k.png", [])


# ---- sheet


def sheet(path: Path, *rows: ReportRow, unit: str = "px", side: int = 96) -> Image.Image:
    write_sheet(path, rows, unit=unit, side=side)
    with Image.open(path) as image:
        image.load()
    return image


def test_sheet_has_a_column_a_picture_and_a_row_a_query(tmp_path: Path) -> None:
    path = tmp_path / "sheet.png"
    one = sheet(path, row(0.0, "", (1.0, 2.0)))
    assert sheet(path, *[row(0.0, "", (1.0, 2.0))] * 3).size[0] == one.size[0]
    head = 2 * one.size[1] - sheet(path, *[row(0.0, "", (1.0, 2.0))] * 2).size[1]
    assert 0 < head < 60
    wide = sheet(path, row(0.0, "", (1.0, 2.0, 3.0)))
    assert wide.size == (one.size[0] + 2 * (96 + 6), one.size[1])
    blue = np.all(np.asarray(one) == (0, 0, 255), axis=2)
    red = np.all(np.asarray(one) == (255, 0, 0), axis=2)
    assert red.sum() == 96 * 72  # pictures of 40 x 30 pixels, enlarged
    assert blue.sum() == 4 * 96 * 72
    assert np.flatnonzero(red.any(axis=0)).max() < np.flatnonzero(blue.any(axis=0)).min()


def test_sheet_makes_room_for_captions(tmp_path: Path) -> None:
    path = tmp_path / "sheet.png"
    bare = sheet(path, row(0.0, "", (1.0,)))
    said = sheet(path, row(0.0, "a man in a red coat walks two small dogs along the river", (1.0,)))
    endless = sheet(path, row(0.0, "word " * 500, (1.0,)))
    assert bare.height + 20 < said.height < endless.height < bare.height + 100
    assert bare.width == said.width == endless.width


def test_sheet_shows_any_text_and_any_shape(tmp_path: Path) -> None:
    path = tmp_path / "sheet.png"
    shapes = [(40, 30), (3, 400), (400, 3), (96, 96)]
    for hostile, size in zip(HOSTILE, shapes * 3, strict=False):
        top = [Picture(plain("blue", size), hostile, distance) for distance in (math.inf, 0.0, 1e9)]
        assert sheet(path, ReportRow(Picture(plain(size=size), hostile), {hostile: top}, 0.0), unit=hostile).width
    sheet(path, row(0.0, "nothing retrieved", ()), row(0.0, "one", (1.0,)))


def test_unusable_sheets_are_refused(tmp_path: Path) -> None:
    for rows in ([], [row(0.0, methods="")], [row(0.0), row(0.0, methods="ac")]):
        with pytest.raises(UserError, match="A sheet needs"):
            write_sheet(tmp_path / "sheet.png", rows, unit="")
    assert not list(tmp_path.iterdir())


@settings(deadline=None, max_examples=25)
@given(st.text(st.sampled_from("abcM \t") | st.characters(codec="utf-8"), max_size=80), st.integers(20, 200))
def test_wrapped_lines_fit_and_lose_nothing(text: str, width: int) -> None:
    font = ImageFont.load_default(10)
    assert isinstance(font, ImageFont.FreeTypeFont)
    lines = wrap_text(text, width, font, 1000)
    assert "".join(lines).replace(" ", "") == "".join(text.split())
    assert all(font.getlength(line) <= width or len(line) == 1 for line in lines)
    few = wrap_text(text, width, font, 2)
    assert len(few) == min(2, len(lines))
    assert all(font.getlength(line) <= width or len(line) <= 2 for line in few)
    assert few == lines or len(lines) > 2
    assert all(line.endswith("…") for line in few[-1:]) or len(lines) <= 2


def test_curves_change_nothing_global_and_imports_stay_light(tmp_path: Path) -> None:
    program = f"""
import sys
import cml.reporting
assert not any(name.split(".")[0] in ("torch", "matplotlib", "jinja2", "scipy") for name in sys.modules), "heavy import"
import matplotlib
before = list(dict.items(matplotlib.rcParams))  # not through rcParams itself, which would choose a backend
from dataclasses import replace
from pathlib import Path
cml.reporting.write_curves(Path({str(tmp_path)!r}) / "loss.png", [dict(step=1, loss=1.0), dict(step=2, loss=0.5)])
assert "matplotlib.pyplot" not in sys.modules
assert list(dict.items(matplotlib.rcParams)) == before
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)
