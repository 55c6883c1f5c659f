"""What a prepared dataset was made from: the source, its settings and a fingerprint of its input."""

import dataclasses
import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from cml.errors import DataError
from cml.storage.atomic import open_regular


def made_with(
    source: Any,  # noqa: ANN401 - any dataclass
    *,
    revision: int,
    files: Iterable[Path] = (),
    images: Path | Iterable[Path] = (),
    without: Collection[str] = (),
) -> dict[str, Any]:
    """What decides the content of a prepared dataset: the source, its settings and a fingerprint of its input.

    ``revision`` is of the source's own code, raised when the same input gives another dataset. Of ``files`` the content
    counts, of folders of ``images`` the names and sizes of their files, of settings neither paths, so that moved input
    is still the same, nor those in ``without``. An input that is missing is a DataError.
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
            raise DataError(f"The input {folder} should be a folder of images.")
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(f"{path.relative_to(folder).as_posix()}:{path.stat().st_size};".encode(errors="replace"))
    settings = ((field.name, getattr(source, field.name)) for field in dataclasses.fields(source))
    kept = {name: value for name, value in settings if not isinstance(value, Path) and name not in without}
    name = type(source).__name__.lower()
    return {"source": name, "revision": revision, "settings": kept, "input": digest.hexdigest()}
