"""The rule of ids and names, for all sources: none is listed twice."""

from collections import Counter
from collections.abc import Hashable, Iterable, MutableMapping

from cml.errors import DataError


def check_unique(ids: Iterable[object], subject: str) -> None:
    """Check the ids of a whole file."""
    counts = Counter(number if isinstance(number, Hashable) else repr(number) for number in ids)
    twice = [number for number, count in counts.items() if count > 1]
    if twice:
        raise DataError(f"{subject} {twice[0]!r} is listed twice.")


def note_unique(seen: MutableMapping[str, str], key: str, where: str, shown: str, rule: str) -> None:
    """Note an id at its place, one after the other."""
    first = seen.setdefault(key, where)
    if first != where:
        raise DataError(f"{where}: {shown} is already in {first}; {rule}.")
