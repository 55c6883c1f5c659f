"""Finding all faults of a prepared dataset, pixels included."""

import functools
import itertools
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from cml.data.dataset_info import INFO, METADATA
from cml.data.encode_image import read_picture
from cml.data.masks import mask_problem
from cml.data.metadata import read_metadata
from cml.data.prepared import PreparedDataset
from cml.errors import DataError, UserError, did_you_mean
from cml.processes.cores import CORES

_AT_ONCE = 4096  # images that wait to be decoded


def check_dataset(
    folder: Path,
    *,
    tasks: Collection[str] = (),  # the known tasks, of which dataset.json should name one; without them, any
    threads: int = CORES,
    progress: Callable[[int], object] | None = None,  # called with 1 after each image
    look: Callable[[Path, Image.Image], object] | None = None,
) -> list[str]:
    """Find all faults of a prepared dataset; images are decoded."""
    problems: list[str] = []
    info, metadata = read_metadata(folder, problems.append)
    if info is None:
        return problems
    if tasks and info.task not in tasks:
        known = f"{did_you_mean(info.task, tasks)} Known: {', '.join(tasks)}. A plugin's needs --plugin FILE_OR_MODULE"
        problems.append(f"{folder / INFO}: there is no task {info.task!r}.{known}.")
    masks = {
        (label, path or label): where
        for items in metadata.items
        if isinstance(items.labels, list)
        for path, label, where in items.rows(METADATA)
        if isinstance(label, Path)
    }
    labels = {mask for mask, _ in masks}
    listed: set[str] = set()

    def checks() -> Iterator[tuple[str, Callable[[], str | None]]]:
        rows = ((path, where) for items in metadata.items for path, _, where in items.rows(METADATA) if path)
        for path, where in itertools.chain(rows, metadata.others):
            if str(path) not in listed and path not in labels:
                listed.add(str(path))
                yield where, functools.partial(_image_fault, path, look)
        for mask, where in masks.items():
            yield where, functools.partial(mask_problem, *mask, info.details)

    waiting = checks()
    with ThreadPoolExecutor(threads) as pool:  # Pillow decodes outside the interpreter lock
        while batch := list(itertools.islice(waiting, _AT_ONCE)):
            for (where, _), fault in zip(batch, pool.map(lambda check: check[1](), batch), strict=True):
                if fault is not None:
                    problems.append(f"{where}: {fault}")
                if progress is not None:
                    progress(1)
    if not problems and info.inputs.kind == "texts":
        try:
            PreparedDataset.open(folder)
        except DataError as error:
            problems.append(str(error))
    suffixes = Image.registered_extensions()
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in suffixes and str(path) not in listed and path not in labels:
            problems.append(f"{path}: no {METADATA} lists this image; list it or delete it.")
    return problems


def describe_constant_columns(
    dataset: PreparedDataset,
) -> str:  # a sentence; "" if there are none, or the items are images
    """Say which numbers of the training vectors are all the same."""
    vectors = dataset.split("train").vectors
    if vectors is None:
        return ""
    try:
        constant = vectors.with_missing("mean").standardization().constant
        return vectors.form.describe_constant(constant, "training vectors")
    except UserError as error:  # a column without any number
        return str(error)


def _image_fault(path: Path, look: Callable[[Path, Image.Image], object] | None) -> str | None:
    try:
        picture = read_picture(path)
    except DataError as error:
        return str(error)
    if look is not None:
        look(path, picture)
    return None
