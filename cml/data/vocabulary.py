"""What the names of columns mean: one vocabulary, matched on the words of a name, which every kind of label asks."""

import itertools
import re
from collections.abc import Collection, Mapping, Sequence

MEANINGS: Mapping[str, frozenset[str]] = {
    meaning: frozenset(words.split())
    for meaning, words in {
        "latitude": "latitude lat latitud latitudine breite breitengrad",
        "longitude": "longitude lon lng long longitud longitudine laenge laengengrad länge längengrad",
        "map metres": "easting northing utm utmx utmy",
        "heading": "heading hdg bearing azimuth azimut course compass yaw direction orientation angle",
        "yaw": "yaw y",
        "pitch": "pitch p",
        "roll": "roll r",
        "rx": "rx rvec rotvec",
        "ry": "ry",
        "rz": "rz",
        "qx": "qx x",
        "qy": "qy y",
        "qz": "qz z",
        "qw": "qw w",
        "angle": "angle alpha theta phi yaw heading bearing azimuth azimut hue phase orientation direction course",
        "altitude": "altitude alt elevation ele height",
        "hour": "hour hours clock",
        "weekday": "weekday dayofweek",
        "month": "month months",
        "class": "class category label name object",
        "left": "left xmin xtl",
        "top": "top ymin ytl",
        "right": "right xmax xbr",
        "bottom": "bottom ymax ybr",
        **{name: name for name in ("x0", "y0", "x1", "y1", "x2", "y2")},
        "x": "x x0 x1 xmin left xtl",
        "y": "y y0 y1 ymin top ytl",
        "w": "w width",
        "h": "h height",
        "cx": "cx xc xcenter xcentre centerx centrex",
        "cy": "cy yc ycenter ycentre centery centrey",
        "confidence": "confidence conf likelihood score visibility visible vis v",
        "joint": "joint keypoint bodypart bodyparts landmark",
        "rater": "rater annotator judge coder reviewer grader",
        "xyzw": "xyzw",
        "radians": "radians radian rads rad",
        "degrees": "degrees degree degs deg",
    }.items()
}


def split_words(name: str) -> list[str]:
    """Split a name into its words, in lower case: those of snake case, camel case and brackets.

    Example:
        >>> split_words("decimalLongitude"), split_words("yaw [rad]"), split_words("GPSLatitude")
        (['decimal', 'longitude'], ['yaw', 'rad'], ['gps', 'latitude'])
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return [word for word in re.split(r"[\W_]+", spaced.lower()) if word]


def means(name: str, meaning: str) -> bool:
    """Tell whether a word of a name has a meaning."""
    words = split_words(name)
    joined = (one + other for one, other in itertools.pairwise(words))  # x_center, bodyPart
    return not MEANINGS[meaning].isdisjoint((*words, *joined))


def find_meanings(names: Sequence[str], meanings: Collection[str]) -> dict[str, str]:
    """Find the names that say which of some meanings they have: meaning to name, where exactly one name says so."""
    found = {meaning: [name for name in names if means(name, meaning)] for meaning in meanings}
    return {meaning: there[0] for meaning, there in found.items() if len(there) == 1}


def order_by_meaning(names: Sequence[str], meanings: Sequence[str]) -> tuple[str, ...] | None:
    """Put names into the order of meanings; None unless each name has one of them, and each meaning one name."""
    found = find_meanings(names, meanings)
    ordered = tuple(found[meaning] for meaning in meanings if meaning in found)
    return ordered if len(set(ordered)) == len(names) == len(meanings) else None


def split_alias(text: str) -> tuple[str, str]:
    """Split "latitude=y", by which a user says what the column y means, into meaning and column.

    A text without a meaning is both the name and the column.
    """
    meaning, mark, column = text.partition("=")
    known = all(any(word in words for words in MEANINGS.values()) for word in split_words(meaning))
    return (meaning, column) if mark and column and meaning and known else (text, text)
