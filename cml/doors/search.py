"""``cml.search``: the items of an index or a folder of embeddings that are nearest to images or other inputs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cml.array_types import Float32
from cml.console.messages import say_warning
from cml.data.dataset_info import FOLDERS, INFO, METADATA, VECTORS, parse_object
from cml.data.image_list import COLUMNS, ImageList
from cml.doors.load import load
from cml.doors.model import Model
from cml.doors.search_model import SearchModel
from cml.doors.stored_items import embed_from_store
from cml.errors import UserError
from cml.searching.embedding_folder import EMBEDDINGS, EmbeddingFolder
from cml.searching.hit import Hit
from cml.searching.index import Index
from cml.searching.index_file import FILE
from cml.searching.index_novelty import compare_with_new
from cml.storage.downloads import resolve_run
from cml.storage.regular_file import open_regular

_FOUND = 5


def search(
    index: Path | str | Index | EmbeddingFolder,
    queries: Any,  # noqa: ANN401 - as cml.fit takes them, or embeddings
    *,
    k: int | None = None,
    within: float | None = None,
    where: str | None = None,
    exclude: Sequence[str | int] = (),
    exact: bool = False,
    run: Path | str | None = None,
    features: Path | str | None = None,
    device: str = "auto",
) -> list[list[Hit]]:
    """Search an index, or a folder of embeddings, for the items nearest to queries, by the model that it was made with.

    To search more than once, open the index with the model: ``cml.Index.open(folder, model).search(queries)``.

    Args:
        index: The index or its folder, or a folder that ``cml embed`` wrote, which is searched exactly.
        queries: Q inputs of any kind that the model embeds, or their embeddings (Q, D).
        k: Items found for each query, at most as many as the index holds; by default 5, or with ``within`` all.
        within: Only items whose expected label distance is at most this, in the label's unit; the model must be
            calibrated.
        where: Only items that meet this condition in SQL, see ``cml.Index.search``; of an index alone.
        exclude: Ids of items that are not to be found; of an index alone.
        exact: Compare with every item, also where there is an index of faiss.
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
    source = opened.run if run is None else str(run)
    rows = embed_queries(model, queries, features, source)
    return search_embedded(opened, model, rows, k, within, where=where, exclude=exclude, exact=exact, source=source)


def embed_queries(
    model: Model,
    queries: Any,  # noqa: ANN401 - as cml.fit takes them, or embeddings
    features: Path | str | None,
    source: str,
) -> Float32:
    """Embed what is looked for, perhaps by a store of features; ``source`` is the model's run."""
    if features is None:
        return model.query_model.as_embeddings(queries)
    return embed_from_store(tuple(map(Path, queries)), Path(features), model, Path(source))


def search_embedded(
    opened: Index | EmbeddingFolder,
    model: Model,
    rows: Float32,
    k: int | None,
    within: float | None,
    *,
    where: str | None,
    exclude: Sequence[str | int],
    exact: bool,
    source: str,
) -> list[list[Hit]]:
    """Search by embeddings (Q, D) of queries; the rest as of ``search``."""
    radius = None
    if within is not None:
        calibration = model.calibration
        if calibration is None:
            raise UserError(f"'--within' needs to know what an embedding distance means: cml calibrate {source}")
        if not within >= 0:
            raise UserError(f"'--within' must be 0 or more. Got {within} instead.")
        radius = calibration.radius(within)
    k = _FOUND if k is None and within is None else k
    if isinstance(opened, Index):
        return opened.search(rows, k, within=radius, where=where, exclude=exclude, exact=exact, digest=opened.digest)
    if where is not None or exclude:
        raise UserError(f"{opened.folder} is a folder of embeddings: --where and --exclude need an index (cml index).")
    return opened.search(rows, k, within=radius)


def find_novelty(opened: Index | EmbeddingFolder, model: Model, rows: Float32) -> list[float] | None:
    """The novelty of queries among the items of an index; None where that is not known, or takes long to find out.

    Queries and documents of graded search are of different kinds, and where faiss answers, embeddings stay on the disk.
    """
    is_read = isinstance(opened, Index) and opened.method == "exact"
    novelty = compare_with_new(opened) if is_read and not isinstance(model, SearchModel) else None
    if novelty is None:
        return None
    scores: list[float] = novelty.score(rows).tolist()
    return scores


def open_with_model(
    index: Path | str | Index | EmbeddingFolder, run: Path | str | None = None, *, device: str = "auto"
) -> tuple[Index | EmbeddingFolder, Model]:
    """Open an index, or a folder of embeddings, with the model of its run."""
    opened = index if isinstance(index, Index | EmbeddingFolder) else _open(Path(index))
    if run is None and isinstance(opened, Index) and isinstance(opened.model, Model):
        return opened, opened.model
    if run is None and not opened.run:
        raise UserError(f"{opened.folder} does not know its model's run; say where it is with --run, in Python run=...")
    source = Path(opened.run).absolute() if run is None else resolve_run(run)
    if not source.is_dir():
        raise UserError(f"{source}, the run of {opened.folder}, is gone; say where it is with --run, in Python run=...")
    model = load(source, device=device)
    if 1 <= opened.dimension < model.config.dimension:  # an index of the first dimensions
        model = model.shorten(opened.dimension)
    if isinstance(opened, Index):
        opened.check_model(model, source)
        opened.model = model
    elif opened.digest != model.digest:
        raise UserError(
            f"{opened.folder} holds embeddings of another model than {source}: they cannot be compared. Give its run "
            "(--run), or embed again."
        )
    return opened, model


def _open(folder: Path) -> Index | EmbeddingFolder:
    """An index, or a folder that ``cml embed`` wrote."""
    is_embedded = (folder / EMBEDDINGS).is_file() and not (folder / FILE).exists()
    opened = EmbeddingFolder.open(folder) if is_embedded else Index.open(folder)
    if isinstance(opened, Index) and "begun" in opened.about:
        say_warning(f"{folder} is not finished: give the command that makes it again, to add the images that it lacks.")
    return opened


def describe_query_rows(
    file: Path, count: int
) -> Sequence[Hit]:  # Q items: of the vectors of a prepared dataset their ids, labels and further columns
    """Describe the rows of a file of query vectors."""
    folder = file.absolute().parent
    rows = [Hit(f"row {row}", None, 0.0) for row in range(count)]
    is_of_dataset = file.name == VECTORS and folder.name in FOLDERS.values() and (folder.parent / INFO).is_file()
    if not is_of_dataset:
        return rows
    listed = ImageList.open(folder.parent)
    known = dict(zip(listed.item_ids, listed.columns, strict=True))
    with open_regular(folder / METADATA) as lines:
        ids = [str(parse_object(line)["item_id"]) for line in lines]
    return [_describe_item(item_id, row, known[item_id]) for row, item_id in enumerate(ids)]


def _describe_item(item_id: str, row: int, columns: Mapping[str, Any]) -> Hit:
    label = next((value for name, value in columns.items() if name not in ("role", COLUMNS)), None)
    return Hit(f"{item_id} (row {row})", None, 0.0, label, columns.get(COLUMNS, {}))
