"""The embedded scenes: reproducible, visible, and captions that say nothing but the truth, in words with vectors."""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from cml import distances
from cml.data.prepared import PreparedDataset
from cml.data_prep.synthetic.scenes.arrangement import sample_things
from cml.data_prep.synthetic.scenes.captions import NOUNS, NUMBERS, PLACES, RELATIONS, SIZE_WORDS, describe, vocabulary
from cml.data_prep.synthetic.scenes.scenes import Scenes, Thing, draw_scenes
from cml.data_prep.synthetic.scenes.source import Scenes as ScenesSource
from cml.data_prep.synthetic.scenes.words import glove_text
from cml.data_prep.synthetic.things.classes import CLASSES, TEST, TRAINING, draw_singles
from cml.data_prep.synthetic.things.drawing_pen import Pen
from cml.data_prep.synthetic.things.kinds import COLOURS, KINDS, sample_rgb
from cml.data_prep.synthetic.things.picture import RING
from cml.data_prep.synthetic.things.source import Things as ThingsSource
from cml.distances.captions.tokens import WORDS, tokenize
from cml.errors import UserError
from cml.word_vectors.open import SCENE_WORDS

SEEDS = st.integers(0, 2**32 - 1)
Box = tuple[float, float, float, float]
Told = tuple[tuple[Thing, ...], tuple[str, ...]]


def scene(seed: int) -> Told:
    rng = np.random.default_rng(seed)
    things = sample_things(rng, seed % len(RING))
    return things, describe(things, rng)


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    return draw_scenes(40, seed=7)


@pytest.fixture(scope="module")
def many() -> list[Told]:
    return [scene(seed) for seed in range(800)]


def kinds_of(noun: str) -> set[str]:
    return {kind for kind, names in NOUNS.items() if any(noun in pair for pair in names)}


NOUN = "|".join(sorted({name for pairs in NOUNS.values() for pair in pairs for name in pair}, key=len, reverse=True))
SIZES = "|".join(word for words in SIZE_WORDS.values() for word in words)
PHRASE = (
    rf"(?P<count{{0}}>a|an|{'|'.join(NUMBERS.values())}) (?:(?P<size{{0}}>{SIZES}) )?"
    rf"(?:(?P<colour{{0}}>{'|'.join(COLOURS)}) )?(?P<noun{{0}}>{NOUN})\b"
)


def meant(match: re.Match[str], group: str, things: tuple[Thing, ...]) -> list[list[Thing]]:
    """The things that a noun phrase can mean, by kind: "an animal" may be a bird or a fish."""
    counts = {"a": 1, "an": 1, **{word: number for number, word in NUMBERS.items()}}
    fitting = []
    for kind in kinds_of(match[f"noun{group}"]):
        found = [thing for thing in things if thing.kind == kind]
        colour, size = match[f"colour{group}"], match[f"size{group}"]
        if (
            len(found) == counts[match[f"count{group}"]]
            and colour in (None, found[0].colour)
            and (size is None or size in SIZE_WORDS[found[0].size])
        ):
            fitting.append(found)
    return fitting


def holds(way: str, one: list[Thing], two: list[Thing], things: tuple[Thing, ...]) -> bool:
    """Whether ``one`` is to ``two`` as a key of RELATIONS says."""
    (left, top, right, bottom), (left2, top2, right2, bottom2) = around(one), around(two)
    if way == "on":
        return any(thing.on >= 0 and things[thing.on] in two for thing in one)
    if way == "near":
        return max(left2 - right, left - right2, top2 - bottom, top - bottom2) < 0.08
    across, down = (left + right - left2 - right2) / 2, (top + bottom - top2 - bottom2) / 2
    return {"left": across, "right": -across, "above": down, "below": -down}[way] < -0.05


def around(things: list[Thing]) -> Box:
    boxes = np.array([thing.box for thing in things])
    return (*boxes[:, :2].min(axis=0).tolist(), *boxes[:, 2:].max(axis=0).tolist())


def is_at(place: str, box: Box) -> bool:
    """Whether a box is where a key of PLACES says."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    middle = abs(x - 0.5) < 0.15 and abs(y - 0.5) < 0.15
    return {"left": x < 0.45, "right": x > 0.55, "top": y < 0.47, "bottom": y > 0.53, "middle": middle}[place]


def test_shapes_and_types(scenes: Scenes) -> None:
    assert scenes.images.shape == (40, 64, 64, 3)
    assert scenes.images.dtype == np.uint8
    assert len(scenes.captions) == len(scenes.things) == 40
    assert all(len(set(captions)) == 5 for captions in scenes.captions)


def test_an_item_depends_on_seed_and_position_alone(scenes: Scenes) -> None:
    again = draw_scenes(13, seed=7)
    np.testing.assert_array_equal(again.images, scenes.images[:13])
    assert again.captions == scenes.captions[:13]
    assert again.things == scenes.things[:13]


def test_seeds_and_items_differ(scenes: Scenes) -> None:
    other = draw_scenes(15, seed=8)
    known = {image.tobytes() for image in scenes.images}
    assert len(known) == 40
    assert not known & {image.tobytes() for image in other.images}
    assert not set(other.captions) & set(scenes.captions)


def test_another_size_shows_the_same_scene(scenes: Scenes) -> None:
    large = draw_scenes(5, size=128, seed=7)
    assert large.captions == scenes.captions[:5]
    halved = large.images.reshape(5, 64, 2, 64, 2, 3).mean(axis=(2, 4))
    assert np.abs(halved - scenes.images[:5]).mean() < 12  # the same scene but for noise and edges


@pytest.mark.slow
def test_workers_change_nothing() -> None:
    alone, together = draw_scenes(120, size=16, seed=3), draw_scenes(120, size=16, seed=3, workers=2)
    np.testing.assert_array_equal(alone.images, together.images)
    assert alone.captions == together.captions


@pytest.mark.parametrize("wrong", [{"count": 0}, {"size": 15}, {"seed": -1}, {"workers": 0}, {"size": 20.5}])
def test_arguments_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UserError, match=f"draw_scenes: {next(iter(wrong))} must be a whole number"):
        draw_scenes(**{"count": 3, **wrong})


@given(SEEDS)
@settings(deadline=None, max_examples=50)
def test_things_are_in_the_picture_and_hide_each_other_little(seed: int) -> None:
    things, _ = scene(seed)
    assert 2 <= len(things) <= 5
    assert len({thing.kind for thing in things}) >= 2
    for number, thing in enumerate(things):
        left, top, right, bottom = thing.box
        assert -0.1 < left < right < 1.1
        assert -0.1 < top < bottom < 1
        for other in things[:number]:
            if thing.on == -1 or things[thing.on] is not other:
                wide = min(right, other.box[2]) - max(left, other.box[0])
                high = min(bottom, other.box[3]) - max(top, other.box[1])
                area = min((b.box[2] - b.box[0]) * (b.box[3] - b.box[1]) for b in (thing, other))
                assert max(0.0, wide) * max(0.0, high) <= 0.1 * area + 1e-9
        if thing.on >= 0:
            below = things[thing.on]
            assert KINDS[below.kind].flat_top
            assert bottom == pytest.approx(below.box[1], abs=0.01)
            assert below.box[0] < thing.x < below.box[2]


def test_every_kind_colour_number_and_stacking_occurs(many: list[Told]) -> None:
    things = [thing for found, _ in many for thing in found]
    assert {thing.kind for thing in things} == set(KINDS)
    assert {thing.colour for thing in things} == set(COLOURS)
    assert {len(found) for found, _ in many} == {2, 3, 4, 5}
    assert sum(any(thing.on >= 0 for thing in found) for found, _ in many) > 150


def test_captions_name_only_what_is_there_as_it_is(many: list[Told]) -> None:
    phrase = re.compile(PHRASE.format(""))
    mentioned = 0
    for things, captions in many:
        for caption in captions:
            text = caption[0].lower() + caption[1:]
            for match in phrase.finditer(text):
                assert meant(match, "", things), (caption, things)
                mentioned += 1
            assert len(phrase.findall(text)) == len(re.findall(rf"\b(?:{NOUN})\b", text)), caption  # none unread
    assert mentioned > 5 * len(many)


def test_the_first_caption_names_everything(many: list[Told]) -> None:
    phrase = re.compile(PHRASE.format(""))
    for things, captions in many:
        named = [kinds_of(match["noun"]) for match in phrase.finditer(captions[0].lower())]
        kinds = {thing.kind for thing in things}
        assert len(named) == len(kinds)
        assert all(any(kind in meant for meant in named) for kind in kinds)  # "animal" may be a bird or a fish


def test_counts_are_true(many: list[Told]) -> None:
    counted = 0
    for things, captions in many:
        for caption in captions:
            for word in re.findall(rf"({'|'.join(NUMBERS.values())}) (?:things|objects)", caption.lower()):
                assert word == NUMBERS[len(things)]
                counted += 1
    assert counted > 100


def test_relations_are_true(many: list[Told]) -> None:
    words = {text: way for way, texts in RELATIONS.items() for text in texts}
    ways = "|".join(sorted(words, key=len, reverse=True))
    related = re.compile(rf"{PHRASE.format(1)}(?: \w+)? (?P<way>{ways}) {PHRASE.format(2)}")
    seen = dict.fromkeys(RELATIONS, 0)
    for things, captions in many:
        for caption in captions:
            match = related.search(caption[0].lower() + caption[1:])
            if match is None:
                continue
            way = words[match["way"]]
            pairs = itertools.product(meant(match, "1", things), meant(match, "2", things))
            assert any(holds(way, one, two, things) for one, two in pairs), (caption, things)
            seen[way] += 1
    assert min(seen.values()) > 30


def test_places_are_true(many: list[Told]) -> None:
    words = {text: place for place, texts in PLACES.items() for text in texts}
    placed = re.compile(rf"{PHRASE.format('')}(?: \w+)? (?P<place>{'|'.join(words)}) of the picture")
    seen = dict.fromkeys(PLACES, 0)
    for things, captions in many:
        for caption in captions:
            match = placed.search(caption[0].lower() + caption[1:])
            if match is None:
                continue
            place = words[match["place"]]
            boxes = [around(found) for found in meant(match, "", things)]
            assert any(is_at(place, box) for box in boxes), (caption, things)
            seen[place] += 1
    assert min(seen.values()) > 10


def test_vocabulary_is_what_captions_use(many: list[Told]) -> None:
    used = {word for _, captions in many for text in captions for word in tokenize(text, rule=WORDS, lower=True)}
    assert used == set(vocabulary())


def test_word_vectors_are_those_of_glove() -> None:
    assert SCENE_WORDS.read_text(encoding="utf-8") == glove_text()


@pytest.mark.slow
def test_distances_need_no_extra_and_are_those_of_glove(scenes: Scenes, monkeypatch: pytest.MonkeyPatch) -> None:
    captions = [list(texts) for texts in scenes.captions]
    for stop in ("english", "none"):
        whole = distances.get("captions", vectors="glove-6b-50d", stop_words=stop)
        labels = whole.encode(captions)
        expected = whole.pairwise(labels, labels)
        with monkeypatch.context() as without:
            without.setattr(importlib.util, "find_spec", lambda name: None)
            ours = distances.get("captions", vectors="scene-words", stop_words=stop, out_of_vocabulary="error")
            labels = ours.encode(captions)
            np.testing.assert_allclose(ours.pairwise(labels, labels), expected, rtol=1e-6)


def test_scenes_with_the_same_things_are_nearer(many: list[Told]) -> None:
    distance = distances.get("captions", vectors="scene-words")
    labels = distance.encode([list(captions) for _, captions in many[:120]])
    block = distance.pairwise(labels, labels)
    kinds = [{thing.kind for thing in things} for things, _ in many[:120]]
    shared = np.array([[len(one & two) / len(one | two) for two in kinds] for one in kinds])
    upper = np.triu_indices(120, 1)
    means = [float(block[upper][shared[upper] == 0].mean()), float(block[upper][shared[upper] > 0.4].mean())]
    assert means[0] > 1.15 * means[1]


FLAT = ("bird", "boat", "box", "car", "fish")  # shaded alike in any light


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_thing_is_drawn_where_its_box_is_and_in_its_colour(kind: str) -> None:
    rng = np.random.default_rng(4)
    purple = sample_rgb(rng, "purple")  # a colour of nothing else in it
    drawn = []
    for light in (-1, 1):
        picture = Image.new("RGB", (200, 240), (128, 128, 128))
        canvas = ImageDraw.Draw(picture, "RGBA")
        KINDS[kind].draw(Pen(canvas, (100, 220), 60, purple, turned=False, tilt=0, light=light, variant=0.3))
        drawn.append(np.asarray(picture).astype(int))
    changed = np.abs(drawn[0] - 128).sum(axis=2) > 0
    rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
    height = 60 * KINDS[kind].height
    assert rows[0] == pytest.approx(220 - height, abs=0.12 * height + 3)
    assert rows[-1] == pytest.approx(220, abs=8)
    assert columns[0] >= 100 - 60 * 1.1
    assert columns[-1] <= 100 + 60 * 1.15
    assert columns[-1] - columns[0] > 1.5 * 60
    hue = (drawn[0][..., 2] > 1.15 * drawn[0][..., 1]) & (drawn[0][..., 0] > 1.05 * drawn[0][..., 1]) & changed
    assert hue.sum() > 0.2 * changed.sum()  # purple: more blue and red than green
    assert (np.abs(drawn[0] - drawn[1]).sum() > 0) == (kind not in FLAT)  # the light comes from a side


@pytest.mark.parametrize("name", sorted(COLOURS))
def test_colours_can_be_told_apart(name: str) -> None:
    rng = np.random.default_rng(0)
    middles = {other: np.mean([sample_rgb(rng, other) for _ in range(40)], axis=0) for other in COLOURS}
    own = np.array([sample_rgb(rng, name) for _ in range(40)])
    nearest = {other: np.linalg.norm(own - middle, axis=1) for other, middle in middles.items()}
    best = np.array(list(nearest)).take(np.argmin(list(nearest.values()), axis=0))
    assert (best == name).mean() > 0.9


def test_turning_the_pen_mirrors_the_thing() -> None:
    drawn = []
    for turned in (False, True):
        picture = Image.new("RGB", (201, 200), "gray")
        canvas = ImageDraw.Draw(picture, "RGBA")
        light = -1 if turned else 1
        pen = Pen(canvas, (100, 180), 70, (200, 30, 30), turned=turned, tilt=math.radians(9), light=light, variant=0.7)
        KINDS["fish"].draw(pen)
        drawn.append(np.asarray(picture).astype(int))
    assert (np.abs(drawn[0][:, ::-1] - drawn[1]).max(axis=2) > 0).mean() < 0.03  # but for the rounding of edges


def test_prepared_scenes_are_a_whole_dataset(tmp_path: Path, scenes: Scenes) -> None:
    dataset = ScenesSource(count=36, seed=7).prepare(tmp_path / "scenes")
    assert dataset.info.task == "caption"
    assert dataset.info.details["word_vectors"] == "scene-words"
    assert [len(dataset.split(role)) for role in ("train", "query", "gallery")] == [24, 3, 9]
    labels = [label for role in ("train", "query", "gallery") for label in dataset.split(role).labels]
    assert labels == [list(captions) for captions in scenes.captions[:36]]
    with Image.open(dataset.split("query").paths[0]) as image:
        np.testing.assert_array_equal(np.asarray(image), scenes.images[24])  # lossless


def test_too_few_scenes_are_refused() -> None:
    with pytest.raises(UserError, match="at least 12"):
        ScenesSource(count=11)


def test_single_things_are_reproducible_and_halves_share_no_picture() -> None:
    few, more = draw_singles(4, TRAINING, seed=3, size=32), draw_singles(7, TRAINING, seed=3, size=32)
    assert np.array_equal(few[0], more[0][:4])
    assert few[1] == more[1][:4]
    other = draw_singles(4, TEST, seed=3, size=32)[0]
    for one in few[0].astype(float):  # not even the crop behind the thing
        assert np.abs(one - other).mean(axis=(1, 2, 3)).min() > 5


@pytest.mark.slow
def test_single_things_show_their_class() -> None:
    images, names = draw_singles(1200, TRAINING, size=32)
    assert set(names) == set(TRAINING)
    behind = np.median(images.reshape(len(images), -1, 3), axis=1)  # (N, 3)
    apart = np.abs(images - behind[:, None, None]).sum(axis=3)
    colours: dict[str, list[np.ndarray]] = {}
    for image, far, name in zip(images, apart, names, strict=True):
        colours.setdefault(name, []).append(image[far >= np.quantile(far, 0.95)].mean(axis=0))
    for name in ("red apple", "yellow apple", "green box", "red box", "blue cup", "blue fish", "red fish", "red star"):
        red, green, blue = np.median(colours[name], axis=0)
        word = name.partition(" ")[0]
        least = {"red": red - green, "yellow": green - blue, "green": green - red, "blue": blue - red}[word]
        assert least > 40, name


def test_things_have_classes_of_their_own_for_testing(tmp_path: Path) -> None:
    assert len(set(CLASSES)) == len(CLASSES)
    assert min(len(TRAINING), len(TEST)) >= 20
    dataset = ThingsSource(count=90, size=16).prepare(tmp_path / "things")
    found = {role: set(dataset.split(role).labels) for role in ("train", "query")}
    assert found["train"] <= set(TRAINING)
    assert found["query"] <= set(TEST)
    assert dataset.info.queries_are_gallery
    assert (len(dataset.split("train")), len(dataset.split("query"))) == (60, 30)
    assert dataset.info.details["recall_ks"] == [1, 2, 4, 8]
    again = ThingsSource(count=90, train=40, size=16).prepare(tmp_path / "fewer")
    assert (len(again.split("train")), len(again.split("query"))) == (40, 50)
    assert PreparedDataset.open(tmp_path / "things").fingerprint == dataset.fingerprint
