"""What is built and installed: the same files by wheel and by sdist, under a distribution name of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLDERS = {"cml": "cml", "tasks": "cml/tasks", "data_prep": "cml/data_prep"}  # in the repository: in the installation
COPIED = ("pyproject.toml", "README.md", "LICENSE", *FOLDERS)


def files_of_the_checkout() -> set[str]:
    """The files that an installation has, as paths below site-packages."""
    return {
        f"{inside}/{path.relative_to(ROOT / top).as_posix()}"
        for top, inside in FOLDERS.items()
        for path in (ROOT / top).rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".nbi", ".nbc") and "__pycache__" not in path.parts
    }


def build(source: Path, out: Path, kind: str) -> Path:
    """The sdist or wheel of a source tree, built in this environment."""
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(out), str(source)],
        check=True, capture_output=True, timeout=240,
    )  # fmt: skip
    [built] = out.iterdir()
    return built


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel of the checkout, and the wheel that is built from its sdist."""
    folder = tmp_path_factory.mktemp("built")
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, checkout / name)
    sdist = build(checkout, folder / "sdist", "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    [unpacked] = (folder / "unpacked").iterdir()
    return build(checkout, folder / "wheel", "wheel"), build(unpacked, folder / "wheel_of_sdist", "wheel")


def test_links_lead_to_the_folders_at_the_top() -> None:
    for name in ("tasks", "data_prep"):
        assert os.readlink(ROOT / "cml" / name) == f"../{name}"


def test_every_folder_of_code_is_a_package() -> None:
    folders = {path.parent for top in FOLDERS for path in (ROOT / top).rglob("*.py")}
    assert all((folder / "__init__.py").exists() for folder in folders)


@pytest.mark.slow
def test_the_wheel_has_every_file_also_by_way_of_the_sdist(built: tuple[Path, Path]) -> None:
    for wheel in built:
        names = zipfile.ZipFile(wheel).namelist()
        assert {name for name in names if ".dist-info/" not in name} == files_of_the_checkout()
        assert len(names) == len(set(names))


@pytest.mark.slow
def test_an_installed_wheel_names_itself_and_has_its_parts(built: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, _ = built
    assert wheel.name.startswith("continuous_metric_learning-")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True, timeout=240)
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def output(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=240
        ).stdout

    assert output("-m", "cml", "--version") == f"cml 0.1.0 ({PROJECT['name']})\n"
    assert Path(output("-c", "import cml; print(cml.__file__)").strip()).is_relative_to(site)
    assert "log-ratio" in output("-m", "cml", "losses")
    output("-m", "cml", "prepare", "digits", "--out", str(tmp_path / "digits"))
    assert (tmp_path / "digits" / "dataset.json").exists()


def test_extras_of_extras_name_this_distribution() -> None:
    nested = [need for needs in PROJECT["optional-dependencies"].values() for need in needs if "[" in need]
    assert nested
    assert all(need.startswith(f"{PROJECT['name']}[") for need in nested)


def test_the_supported_versions_agree() -> None:
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", text)]
    assert PROJECT["requires-python"] == f">={named[0]}"
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    matrices = re.findall(r"^ +python: (\[.*\])$", workflow, re.MULTILINE)
    assert [json.loads(versions) for versions in matrices] == [named, named]
