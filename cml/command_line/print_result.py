"""Results on stdout: JSON, or lines of text."""

import json


def print_json(value: object) -> None:  # value: a value that JSON can hold; NaN and infinity are a ``ValueError``
    """Print a result as JSON on stdout."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))


def show(value: object, *lines: str, as_json: bool) -> None:
    """Print a result on stdout, as JSON or as lines of text."""
    if as_json:
        print_json(value)
    else:
        print(*lines, sep="\n")
