"""The rule of ids and names, for all sources: none is listed twice."""

from collections import Counter
from collections.abc import Hashable, Iterable, MutableMapping

from cml.errors import DataError


def check_unique(ids: Iterable[object], subject: str) -> None:
    """Check the ids of a whole file.

    Args:
        ids: The ids.
        subject: What they are, for errors: "FILE: the image id".

    Raises:
        DataError: One is listed twice.
    """
    counts = Counter(number if isinstance(number, Hashable) else repr(number) for number in ids)
    twice = [number for number, count in counts.items() if count > 1]
    if twice:
        raise DataError(f"{subject} {twice[0]!r} is listed twice.")


def note_unique(seen: MutableMapping[str, str], key: str, where: str, shown: str, rule: str) -> None:
    """Note an id at its place, one after the other.

    Args:
        seen: The places of those before, by their ids; this one is added.
        key: The id.
        where: Its place, "FILE:LINE".
        shown: The id as errors name it.
        rule: The rule, as a clause.

    Raises:
        DataError: It was noted at another place before.
    """
    first = seen.setdefault(key, where)
    if first != where:
        raise DataError(f"{where}: {shown} is already in {first}; {rule}.")
