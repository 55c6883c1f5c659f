"""What a prepared dataset was made from: the source, its settings and a fingerprint of its input."""

import dataclasses
import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cml.errors import DataError
from cml.storage.regular_file import open_regular

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def record_provenance(
    source: "DataclassInstance",
    *,
    revision: int,
    files: Iterable[Path] = (),
    images: Path | Iterable[Path] = (),
    ignored: Collection[str] = (),
) -> dict[str, Any]:  # ``{"source": ..., "revision": ..., "settings": {...}, "input": SHA-256 in hexadecimal}``
    """Describe what decides the content of a prepared dataset, so that a second preparation can compare it.

    Paths among the settings do not count: input that was moved is still the same input.
    """
    digest = hashlib.sha256()
    for file in files:
        try:
            with open_regular(file) as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        except OSError as error:
            raise DataError(f"The input {file} cannot be read ({error.strerror}).") from None
    for folder in [images] if isinstance(images, Path) else images:
        if not folder.is_dir():
            rule = "is no folder" if folder.exists() else "does not exist"
            raise DataError(f"The input {folder} should be a folder of images, but it {rule}.")
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(f"{path.relative_to(folder).as_posix()}:{path.stat().st_size};".encode(errors="replace"))
    values = {field.name: getattr(source, field.name) for field in dataclasses.fields(source)}
    settings = {name: value for name, value in values.items() if not isinstance(value, Path) and name not in ignored}
    return {
        "source": type(source).__name__.lower(),
        "revision": revision,
        "settings": settings,
        "input": digest.hexdigest(),
    }
