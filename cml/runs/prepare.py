"""Preparing a dataset from Python, as ``cml prepare`` does."""

import os
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from cml import data_prep
from cml.data.prepared import PreparedDataset

Setting = str | float | Path | Sequence[str | float] | None
"""A value of a source's setting: the types that options of the command line have."""


def prepare(name: str, /, out: Path | str, *, skip_bad: bool = False, **settings: Setting) -> PreparedDataset:
    """Turn raw files into a prepared dataset; a killed call is continued by the same call.

    Args:
        name: Name of the source: "folder", "people", "lspet", ..; ``cml prepare`` lists them.
        out: Folder of the dataset to make.
        skip_bad: Leave out items whose image or label is bad, and count them; otherwise the first one is the error.
        **settings: The source's settings by name: the options of ``cml prepare SOURCE``.

    Returns:
        The prepared dataset.

    Raises:
        UserError: The source or a setting is unknown, or an item is bad.

    Example:
        >>> import tempfile
        >>> import cml
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dict(cml.prepare("people", f"{folder}/people", count=12, size=32).info.counts)
        {'train': 8, 'query': 1, 'gallery': 3}
    """
    source: Any = data_prep.registry.entry(name)
    files = {field.name for field in fields(source) if "Path" in str(field.type)} if is_dataclass(source) else ()
    converted = dict(settings)
    for key, value in settings.items():
        if key in files and isinstance(value, str | os.PathLike):
            converted[key] = Path(value)
    return data_prep.get(name, **converted).prepare(Path(out), skip_bad=skip_bad)
