"""The file that lists MPII people with their roles, as the paper's split needs it."""

from pathlib import Path

from cml.data_prep.text_lines import read_lines
from cml.errors import DataError

Listed = dict[tuple[str, int | None], tuple[str, str]]  # (image, person or None for all) to (role, "FILE:LINE")


def read_split(path: Path, queries: int) -> Listed:
    """Read a split file: lines ``IMAGE [PERSON] ROLE``; test lines after the first ``queries`` are the gallery."""
    listed: Listed = {}
    tests = 0
    for where, line in read_lines(path):
        if not (words := line.partition("#")[0].split()):
            continue
        image, *who, role = words if len(words) > 1 else [*words, ""]
        is_number = len(who) < 2 and all(person.isdecimal() and int(person) > 0 for person in who)
        if role not in ("train", "query", "gallery", "test") or not is_number:
            form = "IMAGE [PERSON] ROLE with a PERSON from 1 and train, query, gallery or test as the ROLE"
            raise DataError(f"{where}: should be {form}. Got {line.strip()!r} instead.")
        if role == "test":
            tests += 1
            role = "query" if tests <= queries else "gallery"
        key = image, int(who[0]) if who else None
        if key in listed:
            raise DataError(f"{where}: is already in {listed[key][1]}; a person has one line.")
        listed[key] = role, where
    if not listed:
        raise DataError(f"{path} lists no people.")
    return listed
