"""Captions of a drawn scene: five different, true English sentences from a small grammar."""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cml.data_prep.synthetic.random_choice import Rng, pick
from cml.data_prep.synthetic.things.kinds import COLOURS, Thing

CAPTIONS = 5


_WORDS = {  # of each kind: its names, one and several, the usual one first; and what it does
    "apple": ((("apple", "apples"), ("fruit", "fruits")), ("lying",)),
    "ball": ((("ball", "balls"), ("toy ball", "toy balls")), ("lying", "resting")),
    "bird": ((("bird", "birds"), ("animal", "animals")), ("sitting", "perched")),
    "boat": ((("boat", "boats"), ("sailboat", "sailboats"), ("ship", "ships")), ("floating", "sailing")),
    "box": ((("box", "boxes"), ("crate", "crates")), ("standing", "lying")),
    "car": ((("car", "cars"), ("automobile", "automobiles"), ("vehicle", "vehicles")), ("parked", "standing")),
    "clock": ((("clock", "clocks"), ("alarm clock", "alarm clocks")), ("standing",)),
    "cup": ((("cup", "cups"), ("mug", "mugs")), ("standing", "placed")),
    "fish": ((("fish", "fish"), ("animal", "animals")), ("swimming", "floating")),
    "flower": ((("flower", "flowers"), ("blossom", "blossoms"), ("plant", "plants")), ("growing", "blooming")),
    "house": ((("house", "houses"), ("cottage", "cottages"), ("building", "buildings")), ("standing",)),
    "mushroom": ((("mushroom", "mushrooms"),), ("growing",)),
    "star": ((("star", "stars"),), ("shining",)),
    "tree": ((("tree", "trees"), ("plant", "plants")), ("standing", "growing")),
}


NOUNS: Mapping[str, Sequence[tuple[str, str]]] = {kind: names for kind, (names, _) in _WORDS.items()}


SIZE_WORDS = {"small": ("small", "little", "tiny"), "": (), "large": ("large", "big", "huge")}


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
        left, top, right, bottom = np.array([thing.box for thing in self.things]).T
        return float(left.min()), float(top.min()), float(right.max()), float(bottom.max())

    @property
    def middle(self) -> tuple[float, float]:
        left, top, right, bottom = self.box
        return (left + right) / 2, (top + bottom) / 2

    @property
    def be(self) -> str:
        return "is" if len(self.things) == 1 else "are"

    def doing(self, rng: Rng) -> str:
        return pick(rng, _WORDS[self.things[0].kind][1])


Groups = Sequence[_Group]


def describe(things: Sequence[Thing], rng: Rng) -> tuple[str, ...]:
    """Describe a scene in five different sentences; the first names everything in it."""
    kinds = dict.fromkeys(thing.kind for thing in things)
    numbered = [[number for number, thing in enumerate(things) if thing.kind == kind] for kind in kinds]
    groups = [_Group(tuple(things[number] for number in numbers), tuple(numbers)) for numbers in numbered]
    sentences: dict[str, None] = {}
    weights = np.array([weight for _, weight, _ in _FORMS])
    while len(sentences) < CAPTIONS:
        form, _, least = _FORMS[int(rng.choice(len(_FORMS), p=weights / weights.sum())) if sentences else 0]
        text = form([groups[place] for place in rng.permutation(len(groups))], rng) if len(groups) >= least else None
        if text is not None:
            sentences.setdefault(text[0].upper() + text[1:] + ("." if rng.random() < 0.8 else ""))
    return tuple(sentences)


def relation(a: _Group, b: _Group) -> list[str]:  # keys of ``RELATIONS``; none in an unclear case
    """Tell where one group is as seen from another, in clear cases."""
    if any(thing.on in b.numbers for thing in a.things):
        return ["on", "on", "above"]
    if any(thing.on in a.numbers for thing in b.things):
        return ["below"]
    (left, top, right, bottom), (other_left, other_top, other_right, other_bottom) = a.box, b.box
    across, down = a.middle[0] - b.middle[0], a.middle[1] - b.middle[1]
    sideways, overlap = abs(across) > abs(down), min(right, other_right) > max(left, other_left)
    apart = max(left - other_right, other_left - right, top - other_bottom, other_top - bottom)
    return _so(
        left=sideways and right < other_left + 0.03,
        right=sideways and left > other_right - 0.03,
        above=not sideways and overlap and bottom < other_top + 0.03,
        below=not sideways and overlap and top > other_bottom - 0.03,
        near=apart < 0.07,
    )


def _so(**ways: bool) -> list[str]:
    return [way for way, is_so in ways.items() if is_so]


def vocabulary() -> list[str]:
    """All words that captions can have, lower case, sorted."""
    words = [*(doing for _, doing in _WORDS.values()), *SIZE_WORDS.values(), *RELATIONS.values(), *PLACES.values()]
    names = itertools.chain(*NOUNS.values())
    forms = (_LISTS, _PARTS, _COUNTS, _RELATED, _ON_TOP, _PLACED, _SIDES, _HEIGHTS, _SIZES)
    texts = itertools.chain(COLOURS, NUMBERS.values(), ("a", "an", "and", "is", "are"), *words, *names, *forms)
    return sorted({word for text in texts for word in re.findall("[a-z]+", re.sub(r"\{\w+\}", " ", text))})


def _name_group(group: _Group, rng: Rng) -> str:
    """Such as "a small red ball" or "two cups", mostly with its colour, a little less often with its size."""
    thing, many = group.things[0], len(group.things)
    names = NOUNS[thing.kind]
    usual = len(names) == 1 or rng.random() < 0.7
    words = [names[0 if usual else int(rng.integers(1, len(names)))][0 if many == 1 else 1]]
    if rng.random() < 0.75:
        words.insert(0, thing.colour)
    if thing.size and rng.random() < 0.8 * 0.75:
        words.insert(0, pick(rng, SIZE_WORDS[thing.size]))
    article = "an" if words[0][0] in "aeiou" else "a"
    return " ".join([article if many == 1 else NUMBERS[many], *words])


def _enumerate_groups(groups: Groups, rng: Rng) -> str:
    names = [_name_group(group, rng) for group in groups]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _everything(groups: Groups, rng: Rng) -> str:
    return pick(rng, _LISTS).format(all=_enumerate_groups(groups, rng), be=groups[0].be)


def _part(groups: Groups, rng: Rng) -> str:
    part = groups[: int(rng.integers(1, len(groups)))]
    return pick(rng, _PARTS).format(some=_enumerate_groups(part, rng), be=part[0].be)


def _count_groups(groups: Groups, rng: Rng) -> str:
    part, number = groups[: int(rng.integers(1, len(groups)))], NUMBERS[sum(len(group.things) for group in groups)]
    return pick(rng, _COUNTS).format(
        number=number, all=_enumerate_groups(groups, rng), some=_enumerate_groups(part, rng)
    )


def _relate_groups(groups: Groups, rng: Rng) -> str | None:
    a, b, *_ = groups
    ways = relation(a, b)
    if not ways:
        return None
    way = pick(rng, ways)
    form = pick(rng, _ON_TOP if way == "on" else _RELATED)
    names = {"a": _name_group(a, rng), "b": _name_group(b, rng)}
    return form.format(**names, be=a.be, doing=a.doing(rng), relation=pick(rng, RELATIONS[way]))


def _place_group(groups: Groups, rng: Rng) -> str | None:
    group = groups[0]
    (left, top, right, bottom), (x, y) = group.box, group.middle
    middle = abs(x - 0.5) < 0.12 and abs(y - 0.5) < 0.12
    ways = _so(left=right < 0.48, right=left > 0.52, top=bottom < 0.5, bottom=top > 0.5, middle=middle)
    if not ways:
        return None
    place, doing = pick(rng, PLACES[pick(rng, ways)]), group.doing(rng)
    return pick(rng, _PLACED).format(a=_name_group(group, rng), place=place, be=group.be, doing=doing)


def _opposite(groups: Groups, rng: Rng) -> str | None:
    a, b, *_ = groups
    if a.box[2] < 0.5 < b.box[0]:
        forms = _SIDES
    elif a.box[3] < 0.55 and b.box[1] > 0.45 and a.middle[1] < b.box[1] and a.box[3] < b.middle[1]:
        forms = _HEIGHTS
    else:
        return None
    return pick(rng, forms).format(a=_name_group(a, rng), b=_name_group(b, rng))


def _compare_sizes(groups: Groups, rng: Rng) -> str | None:
    a, b, *_ = groups
    if a.things[0].half_width < 1.35 * b.things[0].half_width:
        return None
    return pick(rng, _SIZES).format(a=_name_group(a, rng), b=_name_group(b, rng), be=a.be)


_FORMS: tuple[tuple[Callable[[Groups, Rng], str | None], float, int], ...] = (
    # with their weights, and of how many groups at least
    (_everything, 1.5, 1),
    (_part, 1.5, 2),
    (_count_groups, 1.0, 2),
    (_relate_groups, 3.0, 2),
    (_place_group, 1.0, 1),
    (_opposite, 1.0, 2),
    (_compare_sizes, 0.7, 2),
)
