"""Names of rows in a text file, one a line: ids of vectors, or the items of a matrix."""

from pathlib import Path

from cml.errors import DataError
from cml.storage.regular_file import open_regular


def read_names(listing: Path, count: int, of: str) -> tuple[str, ...]:
    """Read the names of ``count`` rows of a file: printable texts, all different."""
    try:
        with open_regular(listing) as file:
            names = file.read().decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{listing} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if len(names) != count:
        raise DataError(
            f"{listing} should have a line with the id of each of the {count} rows of {of}. It has {len(names)}."
        )
    first: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if not name.strip() or not name.isprintable():
            raise DataError(f"{listing}:{number}: an id should be printable text. Got {name!r} instead.")
        if first.setdefault(name, number) != number:
            raise DataError(f"{listing}:{number}: the id {name!r} is that of line {first[name]} as well.")
    return tuple(names)
