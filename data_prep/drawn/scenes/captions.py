"""What one may say of a scene: five different English sentences from a small grammar.

Some name everything, some a part; some count, some say where a thing is or where two things are to each other. Every
sentence is true. All words stand in the tables below, so that ``vocabulary`` can list them. Not for: drawing
(``things.py``), nor understanding captions.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cml.data_prep.drawn.scenes.things import COLOURS, Thing

CAPTIONS = 5

NOUNS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "apple": (("apple", "apples"), ("fruit", "fruits")),
    "ball": (("ball", "balls"), ("toy ball", "toy balls")),
    "bird": (("bird", "birds"), ("animal", "animals")),
    "boat": (("boat", "boats"), ("sailboat", "sailboats"), ("ship", "ships")),
    "box": (("box", "boxes"), ("crate", "crates")),
    "car": (("car", "cars"), ("automobile", "automobiles"), ("vehicle", "vehicles")),
    "clock": (("clock", "clocks"), ("alarm clock", "alarm clocks")),
    "cup": (("cup", "cups"), ("mug", "mugs")),
    "fish": (("fish", "fish"), ("animal", "animals")),
    "flower": (("flower", "flowers"), ("blossom", "blossoms"), ("plant", "plants")),
    "house": (("house", "houses"), ("cottage", "cottages"), ("building", "buildings")),
    "mushroom": (("mushroom", "mushrooms"),),
    "star": (("star", "stars"),),
    "tree": (("tree", "trees"), ("plant", "plants")),
}
"""Names of each kind, one and several; the first is the usual one."""

DOING: Mapping[str, tuple[str, ...]] = {
    "apple": ("lying",),
    "ball": ("lying", "resting"),
    "bird": ("sitting", "perched"),
    "boat": ("floating", "sailing"),
    "box": ("standing", "lying"),
    "car": ("parked", "standing"),
    "clock": ("standing",),
    "cup": ("standing", "placed"),
    "fish": ("swimming", "floating"),
    "flower": ("growing", "blooming"),
    "house": ("standing",),
    "mushroom": ("growing",),
    "star": ("shining",),
    "tree": ("standing", "growing"),
}
SIZE_WORDS: Mapping[str, tuple[str, ...]] = {
    "small": ("small", "little", "tiny"),
    "": (),
    "large": ("large", "big", "huge"),
}
NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five"}

RELATIONS = {
    "on": ("on", "on top of"),
    "left": ("to the left of", "left of", "on the left side of"),
    "right": ("to the right of", "right of", "on the right side of"),
    "above": ("above", "over", "higher than"),
    "below": ("below", "under", "beneath"),
    "near": ("next to", "beside", "near", "close to"),
}
PLACES = {
    "left": ("on the left", "at the left side"),
    "right": ("on the right", "at the right side"),
    "top": ("at the top", "in the upper part"),
    "bottom": ("at the bottom", "in the lower part"),
    "middle": ("in the middle", "in the center"),
}

# {all}: everything; {some}: a part; {a} and {b}: two groups; {be}: is or are; {number}: of all things.
_LISTS = ("{all}", "{all}", "a picture of {all}", "a photo with {all}", "there {be} {all}", "an image showing {all}")
_PARTS = ("{some} and other things", "{some} among other things", "a picture with {some} in it", "there {be} {some}")
_COUNTS = ("{number} things, among them {some}", "{number} objects: {all}", "a group of {number} things with {some}")
_RELATED = ("{a} {relation} {b}", "there {be} {a} {relation} {b}", "{a} {doing} {relation} {b}")
_ON_TOP = ("{a} {relation} {b}", "{a} {doing} {relation} {b}", "{b} with {a} {relation} it")
_PLACED = ("{a} {place} of the picture", "{place} of the image there {be} {a}", "{a} {doing} {place} of the picture")
_SIDES = ("{a} on the left and {b} on the right", "on the left {a}, on the right {b}")
_HEIGHTS = ("{a} at the top and {b} at the bottom", "{a} with {b} somewhere below")
_SIZES = ("{a} that {be} bigger than {b}", "{a} and, much smaller, {b}")


@dataclass(frozen=True)
class _Group:
    """Things of one kind: they are alike."""

    things: tuple[Thing, ...]
    numbers: tuple[int, ...]  # their numbers in the scene

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom of all together."""
        left, top, right, bottom = np.array([thing.box for thing in self.things]).T
        return float(left.min()), float(top.min()), float(right.max()), float(bottom.max())

    @property
    def middle(self) -> tuple[float, float]:
        left, top, right, bottom = self.box
        return (left + right) / 2, (top + bottom) / 2

    @property
    def be(self) -> str:
        return "is" if len(self.things) == 1 else "are"


def describe(things: Sequence[Thing], rng: np.random.Generator) -> tuple[str, ...]:
    """Five different sentences about a scene; the first names everything in it."""
    kinds = dict.fromkeys(thing.kind for thing in things)
    numbered = [[number for number, thing in enumerate(things) if thing.kind == kind] for kind in kinds]
    groups = [_Group(tuple(things[number] for number in numbers), tuple(numbers)) for numbers in numbered]
    found = dict.fromkeys([_sentence(_everything(groups, rng), rng)])
    weights = np.array([weight for _, weight, _ in _FORMS])
    while len(found) < CAPTIONS:
        form, _, least = _FORMS[int(rng.choice(len(_FORMS), p=weights / weights.sum()))]
        text = form(groups, rng) if len(groups) >= least else None
        if text is not None:
            found.setdefault(_sentence(text, rng))
    return tuple(found)


def relation(a: _Group, b: _Group) -> list[str]:
    """Where group ``a`` is as seen from group ``b``: keys of ``RELATIONS``; clear cases only."""
    if any(thing.on in b.numbers for thing in a.things):
        return ["on", "on", "above"]
    if any(thing.on in a.numbers for thing in b.things):
        return ["below"]
    (left, top, right, bottom), (other_left, other_top, other_right, other_bottom) = a.box, b.box
    across, down = a.middle[0] - b.middle[0], a.middle[1] - b.middle[1]
    found = []
    if abs(across) > abs(down):
        found += ["left"] if right < other_left + 0.03 else []
        found += ["right"] if left > other_right - 0.03 else []
    elif min(right, other_right) > max(left, other_left):
        found += ["above"] if bottom < other_top + 0.03 else []
        found += ["below"] if top > other_bottom - 0.03 else []
    apart = max(left - other_right, other_left - right, top - other_bottom, other_top - bottom)
    return found + (["near"] if apart < 0.07 else [])


def vocabulary() -> list[str]:
    """All words that captions can have, lower case, sorted."""
    tables: list[str] = [*COLOURS, *NUMBERS.values(), "a", "an", "and"]
    for names in NOUNS.values():
        tables += [name for pair in names for name in pair]
    for words in (*DOING.values(), *SIZE_WORDS.values(), *RELATIONS.values(), *PLACES.values()):
        tables += words
    for forms in (_LISTS, _PARTS, _COUNTS, _RELATED, _ON_TOP, _PLACED, _SIDES, _HEIGHTS, _SIZES):
        tables += [re.sub(r"\{\w+\}", " ", form) for form in forms]
    tables += ["is", "are"]
    return sorted({word for text in tables for word in re.findall("[a-z]+", text)})


def _sentence(text: str, rng: np.random.Generator) -> str:
    return text[0].upper() + text[1:] + ("." if rng.random() < 0.8 else "")


def _pick(choices: Sequence[str], rng: np.random.Generator) -> str:
    return choices[int(rng.integers(len(choices)))]


def _named(group: _Group, rng: np.random.Generator, detail: float = 0.75) -> str:
    """Such as "a small red ball" or "two cups", with its colour at probability ``detail``, size a little less often."""
    thing, many = group.things[0], len(group.things)
    names = NOUNS[thing.kind]
    usual = len(names) == 1 or rng.random() < 0.7
    noun = names[0 if usual else int(rng.integers(1, len(names)))][0 if many == 1 else 1]
    words = [noun]
    if rng.random() < detail:
        words.insert(0, thing.colour)
    if thing.size and rng.random() < 0.8 * detail:
        words.insert(0, _pick(SIZE_WORDS[thing.size], rng))
    article = "an" if words[0][0] in "aeiou" else "a"
    return " ".join([article if many == 1 else NUMBERS[many], *words])


def _enumerated(groups: Sequence[_Group], rng: np.random.Generator) -> str:
    names = [_named(group, rng) for group in groups]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _shuffled(groups: Sequence[_Group], rng: np.random.Generator) -> list[_Group]:
    return [groups[int(place)] for place in rng.permutation(len(groups))]


def _count(groups: Sequence[_Group]) -> int:
    return sum(len(group.things) for group in groups)


def _everything(groups: Sequence[_Group], rng: np.random.Generator) -> str:
    order = _shuffled(groups, rng)
    return _pick(_LISTS, rng).format(all=_enumerated(order, rng), be=order[0].be)


def _part(groups: Sequence[_Group], rng: np.random.Generator) -> str:
    order = _shuffled(groups, rng)[: int(rng.integers(1, len(groups)))]
    return _pick(_PARTS, rng).format(some=_enumerated(order, rng), be=order[0].be)


def _counted(groups: Sequence[_Group], rng: np.random.Generator) -> str:
    order = _shuffled(groups, rng)
    part = order[: int(rng.integers(1, len(groups)))]
    number = NUMBERS[_count(groups)]
    return _pick(_COUNTS, rng).format(number=number, all=_enumerated(order, rng), some=_enumerated(part, rng))


def _related(groups: Sequence[_Group], rng: np.random.Generator) -> str | None:
    a, b = _shuffled(groups, rng)[:2]
    ways = relation(a, b)
    if not ways:
        return None
    way = _pick(ways, rng)
    return _pick(_ON_TOP if way == "on" else _RELATED, rng).format(
        a=_named(a, rng),
        b=_named(b, rng),
        be=a.be,
        doing=_pick(DOING[a.things[0].kind], rng),
        relation=_pick(RELATIONS[way], rng),
    )


def _placed(groups: Sequence[_Group], rng: np.random.Generator) -> str | None:
    group = _shuffled(groups, rng)[0]
    left, top, right, bottom = group.box
    x, y = group.middle
    ways = [
        *(["left"] if right < 0.48 else []),
        *(["right"] if left > 0.52 else []),
        *(["top"] if bottom < 0.5 else []),
        *(["bottom"] if top > 0.5 else []),
        *(["middle"] if abs(x - 0.5) < 0.12 and abs(y - 0.5) < 0.12 else []),
    ]
    if not ways:
        return None
    place = _pick(PLACES[_pick(ways, rng)], rng)
    doing = _pick(DOING[group.things[0].kind], rng)
    return _pick(_PLACED, rng).format(a=_named(group, rng), place=place, be=group.be, doing=doing)


def _opposite(groups: Sequence[_Group], rng: np.random.Generator) -> str | None:
    a, b = _shuffled(groups, rng)[:2]
    if a.box[2] < 0.5 < b.box[0]:
        forms = _SIDES
    elif a.box[3] < 0.55 and b.box[1] > 0.45 and a.middle[1] < b.box[1] and a.box[3] < b.middle[1]:
        forms = _HEIGHTS
    else:
        return None
    return _pick(forms, rng).format(a=_named(a, rng), b=_named(b, rng))


def _compared(groups: Sequence[_Group], rng: np.random.Generator) -> str | None:
    a, b = _shuffled(groups, rng)[:2]
    if a.things[0].half_width < 1.35 * b.things[0].half_width:
        return None
    return _pick(_SIZES, rng).format(a=_named(a, rng), b=_named(b, rng), be=a.be)


_Form = Callable[[Sequence[_Group], np.random.Generator], str | None]
_FORMS: tuple[tuple[_Form, float, int], ...] = (  # with their weights, and of how many groups at least
    (_everything, 1.5, 1),
    (_part, 1.5, 2),
    (_counted, 1.0, 2),
    (_related, 3.0, 2),
    (_placed, 1.0, 1),
    (_opposite, 1.0, 2),
    (_compared, 0.7, 2),
)
