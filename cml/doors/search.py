"""``cml.search``: the items of an index that are nearest to images or other inputs, as ``cml search`` finds them."""

from pathlib import Path
from typing import Any

from cml.doors.model import Model, load
from cml.doors.stored_items import embed_from_store
from cml.errors import UserError
from cml.export.index import Index
from cml.export.search_within import search_within
from cml.searching.hit import Hit
from cml.storage.hugging_face import resolve_run

_FOUND = 5


def search(
    index: Path | str | Index,
    queries: Any,  # noqa: ANN401 - as cml.fit takes them, or embeddings
    *,
    k: int | None = None,
    within: float | None = None,
    exact: bool = False,
    run: Path | str | None = None,
    features: Path | str | None = None,
    device: str = "auto",
) -> list[list[Hit]]:
    """Search an index for the items that are nearest to queries, by the model of the run that it was made with.

    To search more than once, open the index with the model: ``cml.Index.open(folder, model).search(queries)``.

    Args:
        index: The index or its folder.
        queries: Q inputs of any kind that the model embeds, or their embeddings (Q, D).
        k: Items found for each query, at most as many as the index holds; by default 5, or with ``within`` all.
        within: Only items whose expected label distance is at most this, in the label's unit; the model must be
            calibrated.
        exact: Compare with every item, even if the index is approximate.
        run: Path of the run, if it moved since the index was built, or if the index does not know it.
        features: A feature store that holds the features of the queries, which are paths of images then.
        device: "auto", "cpu", "cuda" or another device of torch.

    Returns:
        For each query its hits, nearest first: ``item_id``, ``label``, ``distance`` and ``path``.

    Raises:
        UserError: The run is gone or is another one, ``k`` is out of range, the model is not calibrated, or queries do
            not fit it.
        DataError: An image cannot be read, or the index is damaged.

    Example:
        >>> index = cml.index("runs/mine", "photos", "index/to search", quiet=True)
        >>> hits = cml.search("index/to search", ["photos/7.png", "photos/9.png"], k=3)
        >>> [row[0].item_id for row in hits]
        ['7.png', '9.png']
    """
    opened, model = open_with_model(index, run, device=device)
    if features is None:
        embeddings = model.embed_unless_embedded(queries)
    else:
        source = opened.manifest["run"] if run is None else run
        embeddings = embed_from_store(tuple(map(Path, queries)), Path(features), model, Path(source))
    if within is None:
        return opened.search(embeddings, _FOUND if k is None else k, exact=exact, digest=opened.digest)
    calibration = model.calibration
    if calibration is None:
        source = opened.manifest["run"] if run is None else run
        raise UserError(f"'--within' needs to know what an embedding distance means: cml calibrate {source}")
    if not within >= 0:
        raise UserError(f"'--within' must be 0 or more. Got {within} instead.")
    results = search_within(opened, embeddings, calibration.radius(within), exact=exact)
    return [hits[:k] for hits in results]


def open_with_model(
    index: Path | str | Index, run: Path | str | None = None, *, device: str = "auto"
) -> tuple[Index, Model]:
    """Open an index with the model of its run.

    Args:
        index: The index or its folder; one that was opened with a model keeps it.
        run: Path of the run, if it moved since the index was built, or if the index does not know it.
        device: Device of the model.

    Returns:
        The index and the model.

    Raises:
        UserError: The run is gone or is another one.
        DataError: The index is damaged.
    """
    opened = index if isinstance(index, Index) else Index.open(index)
    if run is None and isinstance(opened.model, Model):
        return opened, opened.model
    made_with = opened.manifest["run"]
    if run is None and not made_with:
        raise UserError(f"{opened.folder} does not know its model's run; say where it is with --run, in Python run=...")
    source = Path(made_with).absolute() if run is None else resolve_run(run)
    if not source.is_dir():
        raise UserError(f"{source}, the run of {opened.folder}, is gone; say where it is with --run, in Python run=...")
    model = load(source, device=device)
    opened.check_model(model, source)
    return Index(opened.folder, model, opened.state), model
