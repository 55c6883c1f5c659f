"""``cml.Index``: embeddings with ids, labels and columns in a folder, to add to, remove from and search."""

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from cml.array_types import Bools, Float32, UInt64
from cml.data.image_sources import as_array
from cml.errors import DataError, UserError
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.searching.approximate import Neighbors, Recall
from cml.searching.hit import Hit
from cml.searching.index_file import (
    AGAIN,
    CALLS,
    FILE,
    IndexFile,
    Row,
    as_bytes,
    change_about,
    count_items,
    find_row,
    insert,
    read_about,
    select_where,
)
from cml.searching.index_items import Described, check_ids, describe_items, mark_training_items, paths_in
from cml.searching.index_search import Question, search_index
from cml.searching.index_state import IndexState
from cml.storage.atomic import make_folder

_LARGEST = 1e15  # of a norm: search squares it in float32


@runtime_checkable
class IndexModel(Protocol):
    """What an index asks of a model, a ``cml.Model``."""

    @property
    def config(self) -> ModelConfig:
        """The shape of its network."""
        ...

    @property
    def digest(self) -> str:
        """A digest of its form and weights."""
        ...

    @property
    def network(self) -> EmbeddingModel:
        """The network."""
        ...

    @property
    def training_items(self) -> UInt64:
        """Digests of the items that it was trained on."""
        ...

    def find_training_items(self, inputs: Any) -> Bools:  # noqa: ANN401 - as cml.fit takes them
        """Tell which inputs (N,) it was trained on."""
        ...

    def as_embeddings(self, inputs: Any) -> Float32:  # noqa: ANN401 - inputs or embeddings
        """Embed inputs that are not embeddings already."""
        ...


class Index:
    """A search index in a folder: embeddings of items, with an id, a label and columns for each.

    The folder holds one SQLite file. Several processes and threads may hold one index. A search sees all changes that
    are finished; one process at a time makes a change, whole or not at all, and others wait. ``Index.create`` and
    ``Index.open`` make an index.

    Search compares with every item. Above 200,000 items, where faiss is installed (extra ``index``), an addition also
    writes ``index.faiss``, by which searches are fast and miss some neighbours; items that were added later are
    compared exactly. That file may be deleted at any time.

    Args:
        folder: Its folder.
        model: The model that embeds what is added and searched; None if the index holds ready embeddings only.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> import cml
        >>> rows = np.random.default_rng(0).normal(size=(40, 6))
        >>> model = cml.fit(rows, rows[:, 0], steps=5, dimension=4, sampler="random(batch_size=20)", quiet=True)
        >>> folder = tempfile.TemporaryDirectory()
        >>> index = cml.Index.create(f"{folder.name}/index", model)
        >>> index.add(rows[:30], ids=range(30), labels=rows[:30, 0], columns=[{"site": row % 2} for row in range(30)])
        >>> index.add(model.embed(rows[30:]), ids=range(30, 40))
        >>> index
        Index(40 items of 4 numbers, exact)
        >>> [hit.item_id for hit in index.search(rows[7:8], k=3)[0]][0]
        '7'
        >>> [hit.columns["site"] for hit in index.search(rows[7:8], k=2, where="site = 0 AND label > -9")[0]]
        [0, 0]
        >>> index.remove(["7"])
        >>> len(index), "7" in index
        (39, False)
        >>> folder.cleanup()
    """

    def __init__(self, folder: Path, model: IndexModel | None = None) -> None:
        self.folder = folder
        self.model = model
        self._file = IndexFile(folder)
        self._state = IndexState(self._file)

    @classmethod
    def create(
        cls,
        folder: Path | str,
        model: IndexModel | None = None,
        *,
        run: Path | str = "",
        dimension: int | None = None,
        digest: str | None = None,
    ) -> Self:
        """Create an empty index.

        Args:
            folder: The folder to create.
            model: The model whose embeddings it is to hold.
            run: Run folder of the model, which ``cml search`` loads.
            dimension: Without a model, D of the embeddings.
            digest: Without a model, the digest of the one that makes them: any text that no other model has.

        Returns:
            The index.

        Raises:
            UserError: The folder is not empty, or model and dimension do not fit.
        """
        folder = Path(folder)
        if model is not None:
            _check_is_model(model)
            if dimension is not None or digest is not None:
                raise UserError("'dimension' and 'digest' are those of the model: leave them out, or leave it out.")
            dimension, digest = model.config.dimension, model.digest
        elif isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1:
            raise UserError(f"An index without a model needs 'dimension', 1 or more. Got {dimension!r} instead.")
        elif not isinstance(digest, str) or not digest:
            raise UserError(f"An index without a model needs 'digest', a text that names the model. Got {digest!r}.")
        with make_folder(folder):
            # an index, which is told from the file of a call that ended while it made one, is refused below
            if {path.name for path in folder.iterdir()} - {FILE, f"{FILE}-journal"}:
                raise UserError(f"{folder} is not an empty folder. Choose another folder or delete this one.")
            place = json.dumps(os.path.abspath(run) if run else "")  # a path may be no Unicode
            IndexFile.create(folder, {"dimension": str(dimension), "digest": digest, "run": place})
        return cls.open(folder, model)

    @classmethod
    def open(cls, folder: Path | str, model: IndexModel | None = None) -> Self:
        """Open an index, also one that ``cml index`` made.

        Args:
            folder: Its folder.
            model: The model whose embeddings it holds, to embed what is added and searched.

        Returns:
            The index.

        Raises:
            UserError: It holds embeddings of another model.
            DataError: It is not an index, or is damaged.
        """
        index = cls(Path(folder), model)
        with index._file.reading() as db:
            index._state.about = read_about(db, index.folder)
            if not index.digest or index.dimension < 1:
                raise DataError(f"{folder} does not describe a search index. {AGAIN}")
        if model is not None:
            _check_is_model(model)
            index._check_digest(model.digest, "the model")
        return index

    @property
    def digest(self) -> str:
        """The digest of the model whose embeddings it holds."""
        return self._state.digest

    @property
    def dimension(self) -> int:
        """D, the number of dimensions of the embeddings."""
        return self._state.dimension

    @property
    def run(self) -> str:
        """Run folder of the model; "" if it is not known."""
        return str(json.loads(self._state.about.get("run", '""')))

    @property
    def about(self) -> Mapping[str, str]:
        """What the index says of itself, as it was read last."""
        return self._state.about

    @property
    def method(self) -> str:
        """How it is searched: exact, or the method of faiss."""
        with self._file.reading() as db:
            _, covers = self._state.refresh(db, exact=False)
            return "exact" if covers is None else covers.method

    @property
    def recall(self) -> Recall | None:
        """The measured share of the true neighbours that faiss finds; None of exact search."""
        with self._file.reading() as db:
            _, covers = self._state.refresh(db, exact=False)
            return None if covers is None else covers.recall

    @property
    def embeddings(self) -> Float32:
        """The embeddings (N, D) of all items, in the order in which they were added."""
        with self._file.reading() as db:
            held, _ = self._state.refresh(db, exact=True)
            return held.gallery.embeddings[held.gallery.is_live]

    def select(self, where: str, values: Sequence[Any] = ()) -> Float32:
        """Read the embeddings of some items.

        Args:
            where: A condition as of ``search``.
            values: Values for each ? in ``where``.

        Returns:
            The embeddings (M, D) of the items that meet it, in the order in which they were added.

        Raises:
            UserError: ``where`` is no condition.
            DataError: The index is damaged.
        """
        with self._file.reading() as db:
            held, _ = self._state.refresh(db, exact=True)
            return held.gallery.embeddings[held.at(np.array(select_where(db, where, values), np.int64))]

    def __len__(self) -> int:
        with self._file.reading() as db:
            return count_items(db)

    def __contains__(self, item_id: object) -> bool:
        with self._file.reading() as db:
            return find_row(db, str(item_id)) is not None

    def __repr__(self) -> str:
        return f"Index({len(self):,} items of {self.dimension} numbers, {self.method})"

    def add(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them, or embeddings
        ids: Iterable[str | int] | None = None,
        labels: Any = None,  # noqa: ANN401 - a sequence of labels
        *,
        columns: Sequence[Mapping[str, Any]] | None = None,
        replace: bool = False,
        digest: str | None = None,
    ) -> None:
        """Add items, all or none of them. They are on the disk, and a search finds them, as soon as this returns.

        Inputs that the index's model was trained on get "yes" in the column "trained on", which hits show: they lie
        nearer to like items than new ones do. Embeddings are not recognised; where you know of them, give that column.

        Args:
            inputs: N inputs of any kind that the model embeds, such as paths, Pillow images, arrays or the bytes of
                image files; or their embeddings (N, D), told apart as by ``model.search``.
            ids: A new id for each, a text or a whole number, which becomes a text; None for paths, which are their own.
            labels: A label for each, which a search returns: a number, a text, a list of these, or None.
            columns: Further columns of each, by name: numbers, texts or None. Searches return them, and ``where`` may
                ask for them.
            replace: Put items in the place of those that have their ids; otherwise an id that is taken is an error.
            digest: Digest of the model that made the embeddings (``model.digest``), to be compared with the index's.

        Raises:
            UserError: An id is taken, numbers of inputs, ids and labels differ, the embeddings are of another model or
                dimension or not finite, or another process has been changing the index for 30 seconds.
            DataError: An image cannot be read, or the index is damaged.
        """
        paths = paths_in(inputs)
        chosen = check_ids(paths if ids is None else ids)
        if not replace:
            self._refuse_taken(chosen)  # before they are embedded
        described = describe_items(chosen, paths, labels, columns)
        rows = self._embed(inputs, digest, "the items")
        if self.model is not None and digest is None and len(rows) == len(described):  # ``insert`` refuses others
            described = mark_training_items(described, self.model.find_training_items(inputs))
        self.insert(rows, described, replace=replace)

    def insert(self, rows: Float32, items: Sequence[Described], *, replace: bool = False, **about: str | None) -> None:
        """Add embeddings (N, D) of items that are described and checked already; the rest as of ``add``.

        Args:
            rows: The embeddings.
            items: Of each its id, label, path and columns as ``describe_item`` gives them.
            replace: As of ``add``.
            about: Changes of what the index says of itself, made with the addition.

        Raises:
            UserError: there is not one item per row, an embedding is not finite, or an id is there already.
            DataError: the index is damaged.
        """
        if len(rows) != len(items):
            raise UserError(f"There must be one id per item. Got {len(rows)} items and {len(items)} ids instead.")
        is_usable = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64)) < _LARGEST  # False for NaN
        if not is_usable.all():
            item_id = items[int(np.argmin(is_usable))][0]
            raise UserError(f"The embedding of {item_id!r} must be finite and less than {_LARGEST:g} long.")
        now = round(time.time(), 3)
        lines = [Row(*item, now, row.tobytes()) for item, row in zip(items, rows.astype("<f4"), strict=True)]
        with CALLS:
            try:
                with self._file.changing() as db:
                    self._state.forget_version()
                    if replace:
                        db.executemany(
                            "DELETE FROM items WHERE id = CAST(? AS TEXT)", [(as_bytes(line.id),) for line in lines]
                        )
                    insert(db, lines)
                    if about:
                        change_about(db, self.folder, **about)
            except sqlite3.IntegrityError as error:
                self._refuse_taken([line.id for line in lines])
                raise DataError(f"{self.folder / FILE} is damaged ({error}). {AGAIN}") from None
        self.cover()

    def note(self, **about: str | None) -> None:
        """Change what the index says of itself; None deletes an entry."""
        with self._file.changing() as db:
            change_about(db, self.folder, **about)
            self._state.forget_version()
        # what others changed meanwhile, such as the file of faiss, is for the next refresh to see
        self._state.about = {name: value for name, value in (self._state.about | about).items() if value is not None}

    def sources(self) -> list[tuple[str, str | None, float]]:
        """Id, path and time of addition, in seconds since 1970, of every item in order."""
        with self._file.reading() as db:
            return db.execute("SELECT id, path, added FROM items ORDER BY row").fetchall()

    def remove(self, ids: Iterable[str | int]) -> None:
        """Remove items, all or none of them.

        Args:
            ids: Their ids.

        Raises:
            UserError: The index does not hold one of them, or one is given twice.
            DataError: The index is damaged.
        """
        chosen = check_ids(ids)
        with self._file.changing() as db:
            self._state.forget_version()
            for item_id in chosen:
                if not db.execute("DELETE FROM items WHERE id = CAST(? AS TEXT)", [as_bytes(item_id)]).rowcount:
                    had = "SELECT 1 FROM removed WHERE id = CAST(? AS TEXT)"
                    was_there = db.execute(had, [as_bytes(item_id)]).fetchone()
                    why = "it was removed before" if was_there else "it never did"
                    raise UserError(f"{self.folder} does not hold the item {item_id!r}: {why}.")

    def search(
        self,
        queries: Any,  # noqa: ANN401 - as cml.fit takes them, or embeddings
        k: int | None = None,
        *,
        within: float | None = None,
        where: str | None = None,
        values: Sequence[Any] = (),
        exclude: Iterable[str | int] = (),
        exact: bool = False,
        digest: str | None = None,
    ) -> list[list[Hit]]:
        """Find the items nearest to queries.

        Distances are computed in float64 and rounded; of items that are equally far, the one that was added first is
        the nearer. ``model.search`` finds the same items in an array.

        Args:
            queries: Q inputs, or their embeddings (Q, D), as of ``add``.
            k: Items found for each query, at most as many as the index holds, by default 10, or with ``within`` all.
                With ``where`` and ``exclude``, and by faiss, fewer may be found.
            within: Only items at this embedding distance or nearer; ``model.calibration.radius`` gives that of a label
                distance.
            where: Only items that meet this condition in SQL over ``id``, ``label``, ``path`` and the names of columns,
                such as "age > 30 AND site = 'north'". It is run as it is: take texts of strangers as ``values``.
            values: Values for each ? in ``where``.
            exclude: Ids of items that are not to be found, such as those of the query and its group. ``where`` leaves
                out items by a column: "patient <> ?".
            exact: Compare with every item, also where there is an index of faiss.
            digest: Digest of the model that made the embeddings, to be compared with the index's.

        Returns:
            For each query its hits, nearest first: ``item_id``, ``label``, ``distance`` (L2), ``path`` and ``columns``.

        Raises:
            UserError: The index is empty, ``k`` is out of range, ``where`` is no condition, or queries are of another
                model or dimension or not finite.
            DataError: An image cannot be read, or the index is damaged.
        """
        rows = self._embed(queries, digest, "the queries")
        asked = Question(k, within, where, values, [str(item_id) for item_id in exclude], exact)
        with self._file.reading() as db:
            return search_index(db, self._state, rows, asked, self.folder)

    def compact(self) -> None:
        """Give the room of removed items back to the disk, and forget which they were.

        Raises:
            UserError: Another process has been changing the index for 30 seconds.
            DataError: The index is damaged.
        """
        with self._file.reading() as db:
            with self._file.changing():
                epoch = str(int(self._state.about.get("epoch", "0")) + 1)
                change_about(db, self.folder, epoch=epoch)  # others cannot tell any more which rows are gone
                db.execute("DELETE FROM removed")
            self._state.forget_version()
            db.execute("VACUUM")
        self.cover(anew=True)

    def cover(self, *, anew: bool = False) -> None:
        """Write ``index.faiss``, or extend it, if that is due: above 200,000 items, a tenth of which it lacks.

        Args:
            anew: Write it anew, if the index is large enough.
        """
        with self._file.reading() as db:
            total = count_items(db)
            if not Neighbors.is_due(total, 0):
                return
            beside, covers = self._state.refresh(db, exact=False)
            if not (anew or Neighbors.is_due(total, total - len(beside.gallery) if covers else 0)):
                return
            earlier = None if anew else covers
            held, _ = self._state.refresh(db, exact=True)
            numbers, is_live = held.numbers.copy(), held.gallery.is_live
            rows = held.gallery.embeddings
        made = Neighbors.make(numbers[is_live], rows[is_live], earlier)  # minutes, in which others search
        with self._file.changing() as db:
            change_about(db, self.folder, faiss=made.save(self.folder))
            self._state.forget_version()

    def check_model(self, model: IndexModel, run: Path | str) -> None:
        """Check that the index was made with a model.

        Args:
            model: The model.
            run: Its run folder, for the message.

        Raises:
            UserError: The index was made with another model.
        """
        digest = model.digest
        if digest != self.digest and self.run:
            if str(run) == self.run:
                raise UserError(f"{run} was trained again after {self.folder} was made. {AGAIN}")
            raise UserError(
                f"{self.folder} is an index of another run ({self.run}), not of {run}: their embeddings cannot be "
                "compared. Give that run, or build the index again."
            )
        self._check_digest(digest, str(run))

    def _check_digest(self, digest: str, owner: str) -> None:
        if digest != self.digest:
            raise UserError(
                f"{self.folder} holds embeddings of another model (digest {self.digest[:12]}...) than {owner} (digest "
                f"{str(digest)[:12]}...): they cannot be compared. Give that model, or make a new index."
            )

    def _refuse_taken(self, ids: Sequence[str]) -> None:
        with self._file.reading() as db:
            taken = next((item_id for item_id in ids if find_row(db, item_id) is not None), None)
        if taken is not None:
            raise UserError(
                f"{self.folder} already holds an item {taken!r}. Remove it first, give another id, or replace it "
                "(replace=True)."
            )

    def _embed(self, inputs: Any, digest: str | None, owner: str) -> Float32:  # noqa: ANN401
        """Embeddings (N, D) of inputs, or inputs that are embeddings already."""
        dimension = self.dimension
        if digest is not None:
            self._check_digest(digest, owner)
        if self.model is not None and digest is None:
            rows = self.model.as_embeddings(inputs)
        else:
            array = inputs if isinstance(inputs, np.ndarray) else as_array(inputs)
            if array is None or array.dtype.kind not in "fiu":
                raise UserError(
                    f"Without a model, or with a digest, {owner} must be an array of embeddings (N, {dimension}). Got "
                    f"{type(inputs).__name__} instead; cml.Index.open({str(self.folder)!r}, model) embeds others."
                )
            rows = np.ascontiguousarray(array, np.float32)
        if rows.ndim != 2 or rows.shape[1] != dimension:
            raise UserError(f"The embeddings of {owner} must be (N, {dimension}). Got {rows.shape} instead.")
        return rows

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "model": self.model}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(vars(type(self).open(state["folder"], state["model"])))


def _check_is_model(model: object) -> None:
    if not isinstance(model, IndexModel):
        raise UserError(
            f"'model' must be a model of cml.fit or cml.load. Got {type(model).__name__} instead: load it first, as "
            "by cml.load(path)."
        )
