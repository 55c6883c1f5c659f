"""The files of a prepared dataset that its metadata may name, found without asking the disk for each.

Not for: what a name's text alone can say (inside.py), nor opening files.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections import deque
from pathlib import Path

from cml.data.inside import is_inside, relative_name

_ENTRIES = 4096  # of a folder, read at a time


class ListedFiles:
    """Finds what file_name columns name; lists each subfolder once, since asking for 10^5 single files is slow."""

    def __init__(self, dataset: Path, name: str) -> None:
        self._dataset = dataset.resolve()
        self._name = name
        self._root = dataset / name
        self._listed: dict[str, bool] = {}  # subfolders, and whether they could be read
        # of the files in them, by their path below the root:
        self._plain: set[str] = set()  # those that no item has as its image yet
        self._links: dict[str, bool] = {}  # those that may lie elsewhere, and whether an item has them

    def find(self, value: object) -> str:
        """The path below the root of the file that ``value`` names; ValueError says why there is none."""
        parent, found = self._parted(value)
        self._list(parent)
        path = self._root / found
        if found in self._links:
            if not is_inside(path, self._dataset):
                raise ValueError(f"leads out of the dataset, to {path.resolve()}")
        elif found not in self._plain and not (self._listed[parent] and path.is_file() and not path.is_symlink()):
            raise ValueError(f"names a missing file: there is no {path}")
        return found

    def take(self, found: str) -> bool:
        """Take a file that was found as the image of an item; False if one has it."""
        if found in self._links:
            is_free, self._links[found] = not self._links[found], True
            return is_free
        is_free = found in self._plain
        self._plain.discard(found)
        return is_free

    def take_all(self, names: list[str]) -> bool:
        """Take the files that ``names`` say; False, and none is taken, if they need a closer look."""
        while True:
            left = iter(names)
            try:
                deque(map(self._plain.remove, left), maxlen=0)
                return True
            except KeyError:
                first = len(names) - len(list(left)) - 1  # that is missing, taken or said in another way
                self._plain.update(names[:first])
            try:
                new = {self._parted(name)[0] for name in names[first:]} - self._listed.keys()
            except ValueError:
                return False
            if not new:
                return False
            for parent in new:
                self._list(parent)

    def give_back(self, names: list[str]) -> None:
        """Undo ``take_all``."""
        self._plain.update(names)

    def _parted(self, value: object) -> tuple[str, str]:
        """Subfolder and path below the root."""
        path = relative_name(value, f"{self._name}/")
        return path.rpartition("/")[0], path

    def _list(self, parent: str) -> None:
        if parent in self._listed:
            return
        folder, prefix = self._root / parent, f"{parent}/" if parent else ""
        try:
            outside = not is_inside(folder, self._dataset)
            with os.scandir(folder) as entries:
                while some := list(itertools.islice(entries, _ENTRIES)):
                    files = list(filter(os.DirEntry.is_file, some))
                    if outside or any(map(os.DirEntry.is_symlink, files)):
                        links = [entry.name for entry in files if outside or entry.is_symlink()]
                        self._links.update((prefix + name, False) for name in links)
                        files = [entry for entry in files if not outside and not entry.is_symlink()]
                    self._plain.update(map(prefix.__add__, map(operator.attrgetter("name"), files)))
            self._listed[parent] = True
        except (OSError, ValueError):  # ValueError: characters that no path can have
            self._listed[parent] = False
