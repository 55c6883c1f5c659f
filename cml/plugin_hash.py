"""The hash of a plugin's code, by which a run knows whether the code has changed since it was trained."""

import hashlib
from pathlib import Path
from types import ModuleType


def hash_content(content: bytes) -> str:
    """Hash the content of a file."""
    return hashlib.sha256(content).hexdigest()


def hash_module(
    module: ModuleType,
) -> str:  # the SHA-256 of the module's file, or of the names and contents of a package's Python files
    """Hash the code of a module or package."""
    folders = [Path(folder) for folder in getattr(module, "__path__", ())]
    if folders:
        files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
        return hash_content(b"".join(file.name.encode() + file.read_bytes() for file in files))
    file = getattr(module, "__file__", None)
    return hash_content(Path(file).read_bytes()) if file else ""
