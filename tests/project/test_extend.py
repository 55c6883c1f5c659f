"""Each way to extend cml works as its page says: its files are written, its commands (of few steps) and code run."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import page_commands
import pytest
from page_examples import DOCS, forget_modules, forget_plugins

from cml.cli import main

pytestmark = pytest.mark.slow

ROW = re.compile(r"^\| an? (?P<part>[\w ]+) \| \[[^]]+\]\((?P<page>[^)]+)\) \| `(?P<group>cml\.\w+)` \|$", re.MULTILINE)
WAYS = {match["part"]: match["page"] for match in ROW.finditer((DOCS / "extend" / "index.md").read_text("utf-8"))}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``photos``, ``labels.csv`` and ``data/mine``, which the pages start from."""
    folder = tmp_path_factory.mktemp("photos")
    page_commands.draw_photos(folder, count=120)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(shlex.split(page_commands.PREPARATIONS["data/mine"])[1:]) == 0
    return folder


def test_the_table_lists_every_way() -> None:
    pages = {path.name for path in (DOCS / "extend").glob("*.md")}
    about_cml_itself = {"index.md", "architecture.md", "testing.md", "figures.md", "release.md"}
    assert pages - about_cml_itself == {page for page in WAYS.values() if "/" not in page}
    assert len(WAYS) >= 7


@pytest.mark.usefixtures("unpublished")
@pytest.mark.filterwarnings("ignore::UserWarning")  # the photos are of one colour each
@pytest.mark.parametrize("part", WAYS)
def test_the_page_works_word_by_word(
    part: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "labels.csv", "data"):
        (tmp_path / name).symlink_to(photos / name)
    text = (DOCS / "extend" / WAYS[part]).read_text(encoding="utf-8")
    count = 0
    for block in page_commands.read_blocks(text):
        if block.file_name:
            (tmp_path / block.file_name).write_text(block.text, encoding="utf-8")
        if block.is_skipped:
            continue
        for command in block.commands():
            with pytest.MonkeyPatch.context() as patch:  # a process of its own would know nothing of the others
                forget_plugins(patch)
                forget_modules()
                if block.kind == "python":
                    (tmp_path / "block.py").write_text(command, encoding="utf-8")
                    runpy.run_path(str(tmp_path / "block.py"), run_name="__main__")
                else:
                    program, *words = shlex.split(re.sub(r"--steps \d+", "--steps 3", command))
                    assert program == "cml"
                    assert main(words) == 0, capsys.readouterr().err
                    count += 1
    assert count
