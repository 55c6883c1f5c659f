"""``cml.Index``: embeddings with ids and labels in a folder, to add to, remove from and search, in any process.

The folder is the one that ``cml index`` writes. Every change writes new files and replaces the manifest that names them
last, so that an index is always as it was before or after a change, for a reader and after a crash.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from cml.array_types import Float32
from cml.data.image_sources import as_array, label_list
from cml.errors import DataError, UserError, did_you_mean
from cml.export.approximate import METHODS, Auto, Method
from cml.export.index_changes import append_part, change_alone, remove_rows, rewrite
from cml.export.index_manifest import AGAIN, LOCK, MANIFEST, IndexManifest, write_index_manifest
from cml.export.index_state import IndexState, read_stamp
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.searching.embedding_folder import LONGEST_LINE, EmbeddingFolder, encode_item
from cml.searching.hit import Hit

_PATIENCE = 30.0  # seconds that a change waits for that of another process
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

    def embed_unless_embedded(self, inputs: Any) -> Float32:  # noqa: ANN401 - inputs or embeddings
        """Embed inputs that are not embeddings already."""
        ...


class Index:
    """A search index in a folder: embeddings of items, with an id and a label for each.

    Several processes and threads may hold one index. A search sees all changes that are finished; one process at a
    time makes a change, and others wait. ``Index.create`` and ``Index.open`` make an index.

    An addition writes the new items and rewrites few others: small parts are merged, so that n additions make about
    log2(n) parts. From 200,000 items on faiss (extra ``index``) searches approximately, and up to a tenth of the items
    are searched exactly beside it until it is extended. Removed items are no longer found; their rows are dropped when
    their part is rewritten, at the latest by ``compact``.

    Args:
        folder: Its folder.
        model: The model that embeds what is added and searched; None if the index holds ready embeddings only.
        state: The index as it was opened.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> import cml
        >>> rows = np.random.default_rng(0).normal(size=(40, 6))
        >>> model = cml.fit(rows, rows[:, 0], steps=5, dimension=4, sampler="random(batch_size=20)", quiet=True)
        >>> folder = tempfile.TemporaryDirectory()
        >>> index = cml.Index.create(f"{folder.name}/index", model)
        >>> index.add(rows[:30], ids=range(30), labels=rows[:30, 0])
        >>> index.add(model.embed(rows[30:]), ids=range(30, 40))
        >>> index
        Index(40 items of 4 numbers, exact)
        >>> [hit.item_id for hit in index.search(rows[7:8], k=3)[0]][0]
        '7'
        >>> index.remove(["7"])
        >>> len(index), "7" in index
        (39, False)
        >>> folder.cleanup()
    """

    def __init__(self, folder: Path, model: IndexModel | None, state: IndexState) -> None:
        self.folder = folder
        self.model = model
        self._state = state
        self._changes = threading.RLock()

    @classmethod
    def create(
        cls,
        folder: Path | str,
        model: IndexModel | None = None,
        *,
        method: Method | Auto = "auto",
        run: Path | str = "",
        dimension: int | None = None,
        digest: str | None = None,
    ) -> Self:
        """Create an empty index.

        Args:
            folder: The folder to create.
            model: The model whose embeddings it is to hold.
            method: exact compares a query with every item, the others are faiss's; auto is exact up to 200,000 items.
            run: Run folder of the model, which ``cml search`` loads.
            dimension: Without a model, D of the embeddings.
            digest: Without a model, the digest of the one that makes them: any text that no other model has.

        Returns:
            The index.

        Raises:
            UserError: The folder is not empty, the method is unknown, or model and dimension do not fit.
        """
        folder = Path(folder)
        if method not in (*METHODS, "auto"):
            hint = did_you_mean(str(method), (*METHODS, "auto"))
            raise UserError(f"'method' must be auto, {', '.join(METHODS)}. Got {method!r} instead.{hint}")
        if model is not None:
            _check_is_model(model)
            if dimension is not None or digest is not None:
                raise UserError("'dimension' and 'digest' are those of the model: leave them out, or leave it out.")
            dimension, digest = model.config.dimension, model.digest
        elif isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1:
            raise UserError(f"An index without a model needs 'dimension', 1 or more. Got {dimension!r} instead.")
        elif not isinstance(digest, str) or not digest:
            raise UserError(f"An index without a model needs 'digest', a text that names the model. Got {digest!r}.")
        with change_alone(folder, patience=_PATIENCE):
            if (folder / MANIFEST).exists():
                raise UserError(f"{folder} already holds an index. Open it: cml.Index.open({str(folder)!r}).")
            if any(path.name != LOCK for path in folder.iterdir()):
                raise UserError(f"{folder} is not an empty folder. Choose another folder or delete this one.")
            manifest: IndexManifest = {
                "run": os.path.abspath(run) if run else "",
                "model": digest,
                "dimension": dimension,
                "method": "exact" if method == "auto" else method,
                "items": 0,
                "parts": [],
                "file": None,
                "sha256": None,
                "recall": None,
                "auto": method == "auto",
                "covered": 0,
                "removed": None,
            }
            write_index_manifest(folder, manifest)
        return cls.open(folder, model)

    @classmethod
    def open(cls, folder: Path | str, model: IndexModel | None = None) -> Self:
        """Open an index, also one that ``cml index`` wrote.

        Args:
            folder: Its folder.
            model: The model whose embeddings it holds, to embed what is added and searched.

        Returns:
            The index.

        Raises:
            UserError: It holds embeddings of another model.
            DataError: It is not a finished index, or a file of it is damaged.
        """
        folder = Path(folder)
        index = cls(folder, model, IndexState.open(folder))
        if model is not None:
            _check_is_model(model)
            index._check_digest(model.digest, "the model")
        return index

    @property
    def state(self) -> IndexState:
        """The index as it is now."""
        return self._refresh()

    @property
    def manifest(self) -> IndexManifest:
        """What the index holds now."""
        return self._refresh().manifest

    @property
    def parts(self) -> tuple[EmbeddingFolder, ...]:
        """The folders of its embeddings."""
        return self._refresh().parts

    @property
    def embeddings(self) -> list[Float32]:
        """The embeddings of all parts, mapped into memory, those of removed items included."""
        return self._refresh().embeddings

    @property
    def digest(self) -> str:
        """The digest of the model whose embeddings it holds."""
        return self._state.manifest["model"]

    def __len__(self) -> int:
        return len(self._refresh())

    def __contains__(self, item_id: object) -> bool:
        return self._refresh().position(str(item_id)) is not None

    def __repr__(self) -> str:
        manifest = self.manifest
        return f"Index({manifest['items']:,} items of {manifest['dimension']} numbers, {manifest['method']})"

    def add(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them, or embeddings
        ids: Iterable[str | int] | None = None,
        labels: Any = None,  # noqa: ANN401 - a sequence of labels
        *,
        digest: str | None = None,
    ) -> None:
        """Add items, all or none of them. A search finds them as soon as this returns.

        Args:
            inputs: N inputs of any kind that the model embeds, such as paths, Pillow images, arrays or the bytes of
                image files; or their embeddings (N, D), told apart as by ``model.search``.
            ids: A new id for each, a text or a whole number, which becomes a text; None for paths, which are their own.
            labels: A label for each, which a search returns: a number, a text, a list of these, or None.
            digest: Digest of the model that made the embeddings (``model.digest``), to be compared with the index's.

        Raises:
            UserError: An id is taken, numbers of inputs, ids and labels differ, the embeddings are of another model or
                dimension or not finite, or another process has been changing the index for 30 seconds.
            DataError: An image cannot be read, or the index is damaged.
        """
        paths = _paths_in(inputs)
        chosen = _check_ids(paths if ids is None else ids)
        self._refuse_taken(self._refresh(), chosen)
        entries, root = _describe(chosen, paths, labels)
        rows = self._embed(inputs, digest, "the items")
        if len(rows) != len(chosen):
            raise UserError(f"There must be one id per item. Got {len(rows)} items and {len(chosen)} ids instead.")
        is_usable = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64)) < _LARGEST  # False for NaN
        if not is_usable.all():
            item_id = chosen[int(np.argmin(is_usable))]
            raise UserError(f"The embedding of {item_id!r} must be finite and less than {_LARGEST:g} long.")
        if len(rows):
            self._change(lambda state: append_part(self._refuse_taken(state, chosen), rows, entries, root))

    def remove(self, ids: Iterable[str | int]) -> None:
        """Remove items, all or none of them.

        Args:
            ids: Their ids.

        Raises:
            UserError: The index does not hold one of them, or one is given twice.
            DataError: The index is damaged.
        """
        chosen = _check_ids(ids)

        def change(state: IndexState) -> IndexState:
            positions = []
            for item_id in chosen:
                if (position := state.position(item_id)) is None:
                    why = "it was removed before" if state.had(item_id) else "it never did"
                    raise UserError(f"{self.folder} does not hold the item {item_id!r}: {why}.")
                positions.append(position)
            return remove_rows(state, positions)

        if chosen:
            self._change(change)

    def search(
        self,
        queries: Any,  # noqa: ANN401 - as cml.fit takes them, or embeddings
        k: int = 10,
        *,
        exact: bool = False,
        digest: str | None = None,
    ) -> list[list[Hit]]:
        """Find the items nearest to queries.

        Args:
            queries: Q inputs, or their embeddings (Q, D), as of ``add``.
            k: Items found for each query, at most as many as the index holds. An approximate index may find fewer.
            exact: Compare with every item, even if the index is approximate.
            digest: Digest of the model that made the embeddings, to be compared with the index's.

        Returns:
            For each query its hits, nearest first: ``item_id``, ``label``, ``distance`` (L2) and ``path``.

        Raises:
            UserError: The index is empty, ``k`` is out of range, or queries are of another model or dimension or not
                finite.
            DataError: An image cannot be read, or the index is damaged.
        """
        state = self._refresh()
        if not len(state):
            raise UserError(f"The index {self.folder} is empty: add items to it before a search.")
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= len(state):
            raise UserError(f"'k' must be 1 or more and at most the number of items, {len(state)}. Got {k!r} instead.")
        rows = self._embed(queries, digest, "the queries")
        if not np.isfinite(rows).all():
            raise UserError("The embeddings of the queries must be finite, but one holds NaN or infinity.")
        return state.hits(*state.search(rows, int(k), exact=exact)) if len(rows) else []

    def compact(self) -> None:
        """Write all items anew as one part, without the rows of removed ones; an approximate index is built anew.

        Raises:
            UserError: Another process has been changing the index for 30 seconds.
            DataError: The index is damaged.
        """
        self._change(rewrite)

    def check_model(self, model: IndexModel, run: Path | str) -> None:
        """Check that the index was made with a model.

        Args:
            model: The model.
            run: Its run folder, for the message.

        Raises:
            UserError: The index was made with another model.
        """
        digest, made_with = model.digest, self._state.manifest["run"]
        if digest != self.digest and made_with:
            if str(run) == made_with:
                raise UserError(f"{run} was trained again after {self.folder} was made. {AGAIN}")
            raise UserError(
                f"{self.folder} is an index of another run ({made_with}), not of {run}: their embeddings cannot be "
                "compared. Give that run, or build the index again."
            )
        self._check_digest(digest, str(run))

    def _check_digest(self, digest: str, owner: str) -> None:
        if digest != self.digest:
            raise UserError(
                f"{self.folder} holds embeddings of another model (digest {self.digest[:12]}...) than {owner} (digest "
                f"{str(digest)[:12]}...): they cannot be compared. Give that model, or make a new index."
            )

    def _refresh(self) -> IndexState:
        """The index as it is now, which another process may have changed."""
        if read_stamp(self.folder) != self._state.stamp:
            with self._changes:
                self._take(IndexState.open(self.folder, self._state))
        return self._state

    def _take(self, state: IndexState) -> None:
        if state.manifest["model"] != self.digest:
            raise DataError(f"{self.folder} is now an index of another model than when it was opened. Open it again.")
        self._state = state.keep_approximate(self._state)

    def _change(self, change: Callable[[IndexState], IndexState]) -> None:
        with self._changes, change_alone(self.folder, patience=_PATIENCE):
            self._take(change(self._refresh()))

    def _refuse_taken(self, state: IndexState, ids: Sequence[str]) -> IndexState:
        taken = next((item_id for item_id in ids if state.position(item_id) is not None), None)
        if taken is not None:
            raise UserError(f"{self.folder} already holds an item {taken!r}. Remove it first, or give another id.")
        return state

    def _embed(self, inputs: Any, digest: str | None, owner: str) -> Float32:  # noqa: ANN401
        """Embeddings (N, D) of inputs, or inputs that are embeddings already."""
        dimension = self._state.manifest["dimension"]
        if digest is not None:
            self._check_digest(digest, owner)
        if self.model is not None and digest is None:
            rows = self.model.embed_unless_embedded(inputs)
        else:
            array = as_array(inputs)
            if array is None or array.dtype.kind not in "fiu":
                raise UserError(
                    f"Without a model, or with a digest, {owner} must be an array of embeddings (N, {dimension}). Got "
                    f"{type(inputs).__name__} instead; cml.Index.open({str(self.folder)!r}, model) embeds others."
                )
            rows = np.ascontiguousarray(array, np.float32)
        if rows.ndim != 2 or rows.shape[1] != dimension:
            raise UserError(f"The embeddings of {owner} must be (N, {dimension}). Got {rows.shape} instead.")
        return rows


def _check_is_model(model: object) -> None:
    if not isinstance(model, IndexModel):
        raise UserError(
            f"'model' must be a model of cml.fit or cml.load. Got {type(model).__name__} instead: load it first, as "
            "by cml.load(path)."
        )


def _check_ids(ids: Iterable[str | int] | None) -> list[str]:
    """Ids as texts."""
    if ids is None or isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise UserError(f"'ids' must be a list with a text or whole number for each item. Got {ids!r:.80} instead.")
    chosen: dict[str, None] = {}
    for number, item_id in enumerate(ids):
        is_number = isinstance(item_id, int | np.integer) and not isinstance(item_id, bool)
        if not (is_number or isinstance(item_id, str)) or item_id == "":
            raise UserError(f"ids[{number}] must be a text or a whole number. Got {item_id!r:.80} instead.")
        if str(item_id) in chosen:
            raise UserError(f"The id {str(item_id)!r} is given twice; each item needs its own.")
        chosen[str(item_id)] = None
    return list(chosen)


def _paths_in(inputs: Any) -> list[str] | None:  # noqa: ANN401
    """The paths of inputs that are a list of files; None for other inputs."""
    is_list = isinstance(inputs, list | tuple) and len(inputs) > 0
    return [str(path) for path in inputs] if is_list and all(isinstance(i, str | Path) for i in inputs) else None


def _describe(
    ids: Sequence[str],
    paths: Sequence[str] | None,
    labels: Any,  # noqa: ANN401
) -> tuple[list[dict[str, Any]], str]:
    """Lines of items, and the folder that their file names are relative to; "" if they are no files."""
    root, now = "", round(time.time(), 3)
    listed = [None] * len(ids) if labels is None else label_list(labels)
    if len(listed) != len(ids):
        raise UserError(f"There must be one label per item. Got {len(ids)} ids and {len(listed)} labels instead.")
    entries = []
    for number, item_id in enumerate(ids):
        entry: dict[str, Any] = {"item_id": item_id, "indexed_at": now}
        if paths is not None:
            path = Path(os.path.abspath(paths[number]))
            entry["file_name"] = path.relative_to(path.anchor).as_posix()
            if root not in ("", path.anchor):
                raise UserError(f"All images must lie on one drive. Got {root} and {path.anchor} instead.")
            root = path.anchor
        if (label := _check_label(listed[number], item_id)) is not None:
            entry["label"] = label
        if len(encode_item(entry)) > LONGEST_LINE:
            raise UserError(f"Id and label of {item_id[:40]!r} are longer than {LONGEST_LINE:,} bytes.")
        entries.append(entry)
    return entries, root


def _check_label(label: Any, item_id: str) -> Any:  # noqa: ANN401 - any label
    """A label as JSON."""
    if isinstance(label, np.generic | np.ndarray):
        label = label.tolist()
    if isinstance(label, list | tuple):
        return [_check_label(value, item_id) for value in label]
    if isinstance(label, float) and not np.isfinite(label):
        raise UserError(f"The label of {item_id!r} must be finite. Got {label} instead; None stands for no label.")
    if label is None or isinstance(label, bool | int | float | str):
        return label
    raise UserError(
        f"The label of {item_id!r} must be a number, a text, a list of these or None. Got {type(label).__name__} "
        "instead."
    )
