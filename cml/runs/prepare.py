"""Preparing a dataset from Python, as ``cml prepare`` does."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from cml import data_prep
from cml.data.prepared import PreparedDataset


def prepare(name: str, /, out: Path | str, *, skip_bad: bool = False, **settings: Any) -> PreparedDataset:  # noqa: ANN401
    """Turn raw files into a prepared dataset; a killed call is continued by the same call.

    Args:
        name: Name of the source: "folder", "people", "lspet", ..; ``cml prepare`` lists them.
        out: Folder of the dataset to make.
        skip_bad: Leave out items whose image or label is bad, and count them; otherwise the first one is the error.
        **settings: The source's settings by name: the options of ``cml prepare SOURCE``.

    Raises:
        UserError: unknown source or setting, or a bad item.

    Example:
        >>> import tempfile
        >>> import cml
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dict(cml.prepare("people", f"{folder}/people", count=12, size=32).info.counts)
        {'train': 8, 'query': 1, 'gallery': 3}
    """
    source: Any = data_prep.registry.entry(name)
    files = {one.name for one in fields(source) if "Path" in str(one.type)} if is_dataclass(source) else ()
    paths = {key: Path(value) if key in files and value is not None else value for key, value in settings.items()}
    return data_prep.get(name, **paths).prepare(Path(out), skip_bad=skip_bad)
