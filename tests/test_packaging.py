"""What is installed: every package of the three folders, and the files beside the code."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_every_folder_of_code_is_a_package_that_is_installed() -> None:
    folders = [path.parent for top in ("cml", "tasks", "data_prep") for path in (ROOT / top).rglob("*.py")]
    names = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert set(SETTINGS["packages"]) == {name if name.split(".")[0] == "cml" else f"cml.{name}" for name in names}
    assert all((folder / "__init__.py").exists() for folder in folders)


def test_files_beside_the_code_are_installed() -> None:
    patterns = SETTINGS["package-data"]["*"]
    beside = [
        path
        for top in ("cml", "tasks", "data_prep")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc", ".nbi", ".nbc") and "__pycache__" not in path.parts
    ]
    packages = {path.parent for path in (ROOT / "cml").rglob("__init__.py")}
    assert beside
    for path in beside:
        package = next(folder for folder in path.parents if folder in packages)
        assert any(path.relative_to(package).match(pattern) for pattern in patterns), path
