"""Preparing a dataset from Python, as ``cml prepare`` does."""

from collections.abc import Sequence
from pathlib import Path

from cml import data_prep
from cml.checks.dataset_findings import find_suspicious
from cml.checks.query_count import judge_test_size
from cml.console.messages import say
from cml.data.prepared import PreparedDataset
from cml.data_prep.dataset_source import DatasetSource
from cml.errors import UserError, shorten_message

Setting = str | float | Path | Sequence[str | float] | None
"""A value of a source's setting: the types that options of the command line have."""


def prepare(name: str, /, out: Path | str, *, skip_bad: bool = False, **settings: Setting) -> PreparedDataset:
    """Turn raw files into a prepared dataset. After an interruption, the same call resumes.

    Args:
        name: Name of the source, such as "folder", "people" or "lspet"; ``cml prepare`` lists them.
        out: Folder of the dataset to create.
        skip_bad: Whether to leave out and count items with a bad image or label. By default, the first one is an error.
        **settings: The source's settings by name: the options of ``cml prepare SOURCE``.

    Returns:
        The prepared dataset.

    Raises:
        UserError: The source or a setting is unknown, or a setting is out of its range.
        DataError: The input is not as the source expects it, or an item is bad.

    Example:
        >>> import tempfile
        >>> import cml
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dict(cml.prepare("people", f"{folder}/people", count=12, size=32).info.counts)
        {'train': 8, 'query': 1, 'gallery': 3}
    """
    return prepare_source(data_prep.get(name, **settings), Path(out), skip_bad=skip_bad)


def prepare_source(source: DatasetSource, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
    """Prepare the dataset of a source, after a check of the label distance that its settings name."""
    label_distance = getattr(source, "label_distance", "")
    if label_distance:
        from cml.distances.composed import is_self_contained

        if not is_self_contained(label_distance):
            rule = "should be a label distance that reads nothing outside the dataset"
            raise UserError(f"The 'label_distance' {rule}. Got {label_distance!r} instead.")
    dataset = source.prepare(out, skip_bad=skip_bad)
    for finding in find_suspicious(dataset):  # cml check looks at the images as well
        say(shorten_message(f"Suspicious: {finding}"))
    if few := judge_test_size(dataset):
        say(few)
    return dataset
