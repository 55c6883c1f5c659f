"""``cml.index``: a search index of images or vectors in a folder or a file, as ``cml index`` builds it."""

from collections.abc import Sequence
from pathlib import Path

from cml.data.image_list import ImageList
from cml.data.prepared import ROLES
from cml.doors.load import load
from cml.doors.stored_items import list_from_store
from cml.models.forward_pass import ForwardPass
from cml.processes.cores import CORES
from cml.processes.exactness import Decode, Precision
from cml.searching.index import Index
from cml.searching.index_images import index_images
from cml.storage.downloads import resolve_run


def index(
    run: Path | str,
    images: Path | str,
    out: Path | str,
    *,
    add: bool = False,
    replace: bool = False,
    prefix: str = "",
    ids: Path | str | None = None,
    dimension: int | None = None,
    features: Path | str | None = None,
    splits: Sequence[str] = ROLES,
    batch_size: int | None = None,
    threads: int = CORES,
    skip_bad: bool = False,
    decode: Decode = "exact",
    precision: Precision = "float32",
    compile: bool = False,
    device: str = "auto",
    quiet: bool = False,
) -> Index:
    """Embed images and index them, or add images to an index. A call that was killed is resumed by the same call.

    ``cml.Index`` makes an index of images, vectors or embeddings that are in memory.

    Args:
        run: Folder of the run, or a model as ``cml.load`` takes it.
        images: Folder of images, a prepared dataset of images or vectors, or a .npy file of vectors, whose ids are
            their row numbers.
        out: Folder of the index.
        add: Add the images to an existing index. Images that it already holds are not embedded again.
        replace: Embed images again that were modified since the index took them in.
        prefix: Prefix of every item id, to distinguish files of the same name in different folders.
        ids: A text file with the ids of the rows of a .npy file, one per line, in place of their numbers.
        dimension: Only the first dimensions of the embedding, see ``model.shorten``; a search takes them too.
        features: A feature store of the backbone, from which features are read instead of images.
        splits: Splits of a prepared dataset: train, query, gallery.
        batch_size: Images per forward pass; by default 64, or 16 on a CPU.
        threads: Images decoded at a time.
        skip_bad: Skip images that cannot be read; by default, the first one is an error.
        decode: "fast" decodes JPEGs at a half, a quarter or an eighth of their size where that is enough, which changes
            pixels and embeddings slightly.
        precision: "bfloat16" (autocast) or "tf32" (on GPUs) in place of "float32".
        compile: Compile the backbone by torch.compile, which takes a minute or more.
        device: "auto", "cpu", "cuda" or another device of torch.
        quiet: No progress bar.

    Returns:
        The index, with the model.

    Raises:
        UserError: ``out`` holds an index of another model or of other images, or the model takes other inputs.
        DataError: An image cannot be read, or an id is already taken.

    Example:
        >>> index = cml.index("runs/mine", "photos", "index/mine", quiet=True)
        >>> index
        Index(40 items of 128 numbers, exact)
        >>> index.search(["photos/7.png"], k=2)[0][0].item_id
        '7.png'
    """
    folder = resolve_run(run)
    model = load(folder, device=device)
    model = model if dimension is None else model.shorten(dimension)
    how = ForwardPass(decode, precision, compile)
    listed = ImageList.open(images, splits)
    if ids is not None:
        listed = listed.with_ids(Path(ids))
    with model.network.use_forward_pass(how):
        if features is not None:
            listed = list_from_store(listed, Path(features), model, folder)
        listed = listed.add_prefix(prefix) if prefix else listed
        return index_images(
            model,
            listed,
            Path(out),
            run=str(folder.absolute()),
            add=add,
            replace=replace,
            batch_size=batch_size,
            threads=threads,
            skip_bad=skip_bad,
            quiet=quiet,
        )[0]
