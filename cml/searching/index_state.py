"""What an index holds of its file in memory: what the file says of itself, its rows, and faiss's neighbours of them."""

import sqlite3

from cml.errors import DataError
from cml.searching.approximate import Neighbors
from cml.searching.index_file import IndexFile, read_about
from cml.searching.index_rows import HeldRows


class IndexState:
    """The memory of one index, refreshed by what any process has changed since it was read."""

    def __init__(self, file: IndexFile) -> None:
        self.about: dict[str, str] = {}
        self._file = file
        self._connected: sqlite3.Connection | None = None
        self._identity: tuple[int, ...] = ()
        self._version: int | None = None  # SQLite's number of the changes of others; None after an own change
        self._held: dict[bool, HeldRows] = {}  # by whether those that faiss covers are among them
        self._neighbors: Neighbors | None = None
        self._noted: str | None = None  # of the file of faiss, when it was looked for

    @property
    def digest(self) -> str:
        """The digest of the model whose embeddings it holds."""
        return self.about.get("digest", "")

    @property
    def dimension(self) -> int:
        """D, the number of dimensions of the embeddings."""
        return int(self.about.get("dimension", "0"))

    def forget_version(self) -> None:
        """Let the next refresh read what this process changes itself."""
        self._version = None

    def refresh(self, db: sqlite3.Connection, *, exact: bool) -> tuple[HeldRows, Neighbors | None]:
        """The rows in memory, as the file is now: all, or those beside the index of faiss, and that."""
        if self._connected is not db:  # after a fork, or the file is another one: numbers of changes are not comparable
            self._connected, self._version = db, None
            if self._file.identity != self._identity:
                self._held.clear()
                self._identity, self._noted, self._neighbors = self._file.identity, None, None
        (version,) = db.execute("PRAGMA data_version").fetchone()
        key = exact or self._neighbors is None
        held = self._held.get(key)
        if held is not None and version == self._version and held.is_new:
            return held, None if key else self._neighbors
        db.execute("BEGIN")  # one state of the file
        try:
            about = read_about(db, self._file.folder)
            if self.digest and about.get("digest") != self.digest:
                raise DataError(
                    f"{self._file.folder} is now an index of another model than when it was opened. Open it again."
                )
            if about.get("faiss") != self.about.get("faiss") or about.get("epoch") != self.about.get("epoch"):
                self._held.clear()
            self.about = about
            for other in self._held.values():
                other.is_new = False
            if not exact and about.get("faiss") != self._noted:
                self._noted = about.get("faiss")
                noted = self._noted
                self._neighbors = None if noted is None else Neighbors.load(self._file.folder, noted, self.dimension)
            covers = None if exact else self._neighbors
            key = covers is None
            held = self._held.get(key) or HeldRows(db, self.dimension, 0 if covers is None else covers.last)
            held.refresh(db, self._file.folder)
            self._held[key], self._version = held, version
        finally:
            if db.in_transaction:
                db.execute("COMMIT")
        return held, covers
