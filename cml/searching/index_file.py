"""``index.sqlite``: its schema, its rows as Python values, and one connection that no fork or thread disturbs.

SQLite keeps ids unique and changes whole, writes them to the disk, and lets one process write at a time. A checksum
over all columns of an item tells damage that SQLite cannot see.
"""

import contextlib
import functools
import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cml.errors import DataError, UserError, did_you_mean
from cml.storage.safe_paths import check_no_link

FILE, FORMAT = "index.sqlite", "1"
PATIENCE = 30.0  # seconds that a call waits for another process
AGAIN = "Build the index again: cml index RUN IMAGES --out FOLDER"
_SCHEMA = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    # numbers of rows are never used twice, so that they tell which rows are new; the vector is last, so that a search
    # for the other columns seldom reads it
    "CREATE TABLE items (row INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, label, path TEXT,"
    " columns TEXT NOT NULL, added REAL NOT NULL, crc INTEGER NOT NULL, vector BLOB NOT NULL)",
    "CREATE TABLE removed (number INTEGER PRIMARY KEY AUTOINCREMENT, row INTEGER NOT NULL, id TEXT NOT NULL)",
    "CREATE TABLE column_names (name TEXT PRIMARY KEY)",
    # REPLACE would not fire it: items are deleted and inserted
    "CREATE TRIGGER remove_item AFTER DELETE ON items"
    " BEGIN INSERT INTO removed (row, id) VALUES (OLD.row, OLD.id); END",
)
_OWN = ("row", "id", "label", "path", "columns", "added", "crc", "vector")  # names that columns of items cannot have

# No call into SQLite, whose locks a child would inherit as they are, may be under way at a fork; nor may a first
# search, which imports numba. One lock for all indexes of the process is the only one whose order cannot be wrong.
CALLS = threading.RLock()
_of_parents: list[sqlite3.Connection] = []  # of a parent process: to close them here could undo its work

if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=CALLS.acquire, after_in_parent=CALLS.release, after_in_child=CALLS.release)


class Row(NamedTuple):
    """An item as SQLite holds it; texts are bytes where it is written, because names of files may be no Unicode."""

    id: str
    label: Any
    path: str | None
    columns: str
    added: float
    vector: bytes

    @property
    def crc(self) -> int:
        """Checksum over all of it."""
        texts = f"{self.id}\0{self.label!r}\0{self.path}\0{self.columns}\0{self.added!r}"
        return zlib.crc32(self.vector, zlib.crc32(texts.encode("utf-8", "surrogatepass")))


class IndexFile:
    """The SQLite file of an index. Every use of its connection is a block of ``reading`` or ``changing``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / FILE
        self._db: sqlite3.Connection | None = None
        self._opened: tuple[int, ...] = ()

    @classmethod
    def create(cls, folder: Path, about: Mapping[str, str]) -> None:
        """Write the file of an empty index into a folder that has none."""
        check_no_link(folder, FILE)
        with CALLS:
            try:
                with contextlib.closing(_connect(folder / FILE)) as db, _transaction(db):
                    if _has_tables(db):
                        raise UserError(f"{folder} already holds an index. Open it: cml.Index.open({str(folder)!r}).")
                    for statement in _SCHEMA:
                        db.execute(statement)
                    _write_about(db, {"format": FORMAT, **about})
            except _ERRORS as error:
                raise _explain(error, folder) from None

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give the connection for one or more statements, which other processes may change the file between."""
        with CALLS:
            try:
                yield self._connection()
            except BaseException as error:
                if self._db is not None and self._db.in_transaction:  # its end failed; others would wait for it
                    with contextlib.suppress(sqlite3.Error):
                        self._db.rollback()
                if isinstance(error, _ERRORS):
                    raise _explain(error, self.folder) from None
                raise

    @contextlib.contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Give the connection for a change, which is made as a whole or not at all."""
        with self.reading() as db, _transaction(db):
            yield db

    @property
    def identity(self) -> tuple[int, ...]:
        """What tells the file that is open from one that was put in its place."""
        return self._opened[1:]

    def is_same_file(self) -> bool:
        """Whether the connection is to the file that is there now, and of this process."""
        try:
            file = os.stat(self.path)
        except OSError as error:
            raise DataError(f"The index {self.folder} is gone ({error.strerror or error}).") from None
        return self._opened == (os.getpid(), file.st_dev, file.st_ino)

    def _connection(self) -> sqlite3.Connection:
        if self._db is not None and self.is_same_file():
            return self._db
        if not self.path.is_file():
            raise DataError(explain_missing(self.folder))
        check_no_link(self.folder, FILE)
        if self._db is not None and self._opened[0] == os.getpid():
            self._db.close()
        elif self._db is not None:
            _of_parents.append(self._db)
        file = os.stat(self.path)
        db = _connect(self.path)
        try:
            _check_schema(db, self.folder)
        except BaseException:
            db.close()
            raise
        self._db, self._opened = db, (os.getpid(), file.st_dev, file.st_ino)
        return db


def holds_index(folder: Path) -> bool:
    """Whether a folder has the file of an index; one without tables was left by a call that ended while it made it."""
    path = folder / FILE
    if not path.is_file():
        return path.exists()
    check_no_link(folder, FILE)
    with CALLS:
        try:
            with contextlib.closing(_connect(path)) as db:
                return _has_tables(db)
        except _ERRORS:  # opening it says what is wrong
            return True


def _has_tables(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master").fetchone() is not None


def read_about(db: sqlite3.Connection, folder: Path) -> dict[str, str]:
    """Read what an index says of itself: format, digest, dimension, run."""
    about = dict(db.execute("SELECT name, value FROM about ORDER BY name"))
    if about.get("format", FORMAT) != FORMAT:
        raise DataError(f"{folder} has format {about['format']}, which another version of cml wrote. {AGAIN}")
    if about.pop("crc", "") != _about_crc(about):
        raise DataError(f"{folder / FILE} is damaged: what it says of itself has a wrong checksum. {AGAIN}")
    return about


def change_about(db: sqlite3.Connection, folder: Path, **changes: str | None) -> None:
    """Change what an index says of itself, inside a transaction; None deletes an entry."""
    about = read_about(db, folder) | changes
    _write_about(db, {name: value for name, value in about.items() if value is not None})


def insert(db: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Insert items inside a transaction; ``sqlite3.IntegrityError`` if an id is taken."""
    lines = (
        (as_bytes(row.id), _bind(row.label), as_bytes(row.path), row.columns, row.added, row.crc, row.vector)
        for row in rows
    )
    db.executemany(
        "INSERT INTO items (id, label, path, columns, added, crc, vector)"
        " VALUES (CAST(? AS TEXT), CASE WHEN typeof(?2) = 'blob' THEN CAST(?2 AS TEXT) ELSE ?2 END,"
        " CAST(?3 AS TEXT), ?4, ?5, ?6, ?7)",
        lines,
    )
    names = {name for columns in {row.columns for row in rows} for name in json.loads(columns)}
    db.executemany("INSERT OR IGNORE INTO column_names VALUES (CAST(? AS TEXT))", [(as_bytes(n),) for n in names])


def select_where(db: sqlite3.Connection, where: str, values: Sequence[Any]) -> list[int]:
    """Row numbers of the items that meet a condition over id, label, path and the names of columns."""
    shown: dict[str, str] = {}
    for (name,) in db.execute("SELECT name FROM column_names ORDER BY name").fetchall():
        free = name
        while free.lower() in {*_OWN, *map(str.lower, shown)}:
            free += "_"
        shown[free] = name
    columns = "".join(
        f""", json_extract(columns, '$."{name.replace("'", "''")}"') AS "{free}\""""
        for free, name in shown.items()
        if '"' not in name and "\\" not in name
    )
    label = "CASE typeof(label) WHEN 'text' THEN json_extract(label, '$') ELSE label END AS label"
    query = f"SELECT row FROM (SELECT row, id, {label}, path{columns} FROM items) WHERE ({where}\n)"
    try:
        return [row for (row,) in db.execute(query, values)]
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:  # a warning of Python 3.11: several statements
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            raise
        known = ["id", "label", "path", *shown]
        _, is_unknown, column = str(error).partition("no such column: ")
        hint = did_you_mean(column, known) if is_unknown else ""
        raise UserError(
            f"'where' is no condition over {', '.join(known)}: {error}. Got {where!r:.200}.{hint}"
        ) from None


def count_items(db: sqlite3.Connection) -> int:
    """N, the number of items."""
    return int(db.execute("SELECT count(*) FROM items").fetchone()[0])


def find_row(db: sqlite3.Connection, item_id: str) -> int | None:
    """The number of the row of an item; None if there is none."""
    found = db.execute("SELECT row FROM items WHERE id = CAST(? AS TEXT)", [as_bytes(item_id)]).fetchone()
    return None if found is None else int(found[0])


def as_bytes(text: str | None) -> bytes | None:
    """A text as SQLite stores it; lone surrogates, of names of files that are no Unicode, stay as they are."""
    return None if text is None else text.encode("utf-8", "surrogatepass")


def _bind(label: Any) -> Any:  # noqa: ANN401 - a number, or a text of JSON
    return as_bytes(label) if isinstance(label, str) else label


def _connect(path: Path) -> sqlite3.Connection:
    # under CALLS, several threads may use one connection, but never at the same time
    db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    db.text_factory = functools.partial(str, encoding="utf-8", errors="surrogatepass")
    try:
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA synchronous = EXTRA")  # a change is on the disk when it ends; the journal works on any disk
    except sqlite3.Error:
        db.close()
        raise
    return db


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")  # waits for another writer here, and not in the middle
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


_ERRORS = (sqlite3.DatabaseError, ValueError, OverflowError)


def _explain(error: Exception, folder: Path) -> Exception:
    """Turn an error of SQLite, or of values that a damaged file holds, into one line."""
    if isinstance(error, UserError | sqlite3.IntegrityError):  # the latter: an id that is taken
        return error
    if "locked" in str(error):
        return UserError(
            f"Another process has been changing the index {folder} for {PATIENCE:g} seconds. Wait for it to end, or "
            "stop it."
        )
    if any(word in str(error) for word in ("full", "readonly", "unable to open", "I/O")):
        return UserError(f"{folder / FILE} cannot be changed or read: {error}.")
    return DataError(f"{folder / FILE} is damaged ({error}). {AGAIN}")


def _check_schema(db: sqlite3.Connection, folder: Path) -> None:
    """Refuse any other table, view or trigger: the file may be a stranger's."""
    found = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'")}
    if found != set(_SCHEMA):
        about = (
            dict(db.execute("SELECT name, value FROM about")) if any("TABLE about" in f"{sql}" for sql in found) else {}
        )
        if about.get("format", FORMAT) != FORMAT:
            raise DataError(f"{folder} has format {about['format']}, which another version of cml wrote. {AGAIN}")
        raise DataError(f"{folder / FILE} does not describe a search index. {AGAIN}")
    (said,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if said != "ok":
        raise DataError(f"{folder / FILE} is damaged ({str(said).splitlines()[-1]}). {AGAIN}")


def explain_missing(folder: Path) -> str:
    """Say what a folder without the file of an index is."""
    if (folder / "manifest.json").is_file() and (folder / "parts").is_dir():
        return f"{folder} is an index of an earlier state of cml, which is not read any more. {AGAIN}"
    return f"{folder} is not a search index that 'cml index' made; give one, or make it."


def _about_crc(about: Mapping[str, str]) -> str:
    return str(zlib.crc32(json.dumps(about, sort_keys=True).encode()))


def _write_about(db: sqlite3.Connection, about: Mapping[str, str]) -> None:
    db.execute("DELETE FROM about")
    db.executemany("INSERT INTO about VALUES (?, ?)", [*about.items(), ("crc", _about_crc(about))])
