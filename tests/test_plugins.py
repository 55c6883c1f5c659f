"""Plugins: files and modules that register parts, and what a run remembers of them."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cml import distances, plugins, tasks
from cml.cli import COMMANDS, main
from cml.errors import UserError
from cml.registry import Registry, registries

HOURS = """
import cml.distances


@cml.distances.register("hours", unit="h", metric=True, symmetric=True)
def hours(a, b):
    return min(abs(a - b), 24 - abs(a - b))
"""


@pytest.fixture(autouse=True)
def registries_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    modules = set(sys.modules)
    for registry in registries:
        for name in ("_entries", "_origins", "_unread_group"):
            monkeypatch.setattr(registry, name, copy.copy(getattr(registry, name)))
    monkeypatch.setattr(plugins, "_loaded", {})
    yield
    for name in set(sys.modules) - modules:
        if "plugin" in name:
            del sys.modules[name]


@pytest.fixture
def hours(tmp_path: Path) -> Path:
    file = tmp_path / "hours.py"
    file.write_text(HOURS)
    return file


def test_a_file_registers_and_is_remembered_by_name_and_hash(hours: Path) -> None:
    plugin = plugins.load(hours)
    assert plugin == plugins.Plugin("hours.py", hashlib.sha256(hours.read_bytes()).hexdigest())
    clock = distances.get("hours")
    assert clock.pairwise(clock.encode([1]), clock.encode([23])).tolist() == [[2.0]]
    assert distances.registry.origin("hours") == "hours.py"
    needed = plugins.required_plugins("pose", "combined(a=hours, b=euclidean)", "log-ratio(weights=rank)")
    assert needed == ((plugin.name, plugin.sha256),)
    assert plugins.required_plugins("euclidean", "log-ratio") == ()
    assert plugins.explain_missing(needed) == plugins.explain_changes(needed) == ""
    assert "hours.py has changed" in plugins.explain_changes((("hours.py", "0" * 64),))


def test_loading_again_takes_the_changed_file(hours: Path) -> None:
    first = plugins.load(hours)
    assert plugins.load(hours) is first
    hours.write_text(HOURS.replace("24", "12"))
    assert plugins.load(hours).sha256 != first.sha256
    clock = distances.get("hours")
    assert clock.pairwise(clock.encode([1]), clock.encode([11])).tolist() == [[2.0]]


def test_a_module_is_a_plugin_too_and_a_package_is_hashed_by_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "plugin_package"
    package.mkdir()
    (package / "__init__.py").write_text("from plugin_package import clock\n")
    (package / "clock.py").write_text(HOURS)
    monkeypatch.syspath_prepend(tmp_path)
    before = plugins.load("plugin_package")
    assert before.name == "plugin_package"
    assert distances.registry.origin("hours") == "plugin_package"
    (package / "clock.py").write_text(HOURS + "\n")
    assert "plugin_package has changed" in plugins.explain_changes([("plugin_package", "0" * 64)])
    assert plugins.required_plugins("hours") == (("plugin_package", before.sha256),)


def test_an_imported_module_is_remembered_without_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugin_clock.py").write_text(HOURS)
    monkeypatch.syspath_prepend(tmp_path)
    import plugin_clock  # type: ignore[import-not-found]  # noqa: F401

    sha256 = hashlib.sha256(HOURS.encode()).hexdigest()
    assert plugins.required_plugins("hours") == (("plugin_clock", sha256),)
    assert plugins.explain_missing([("plugin_clock.py", sha256)]) == ""  # what --plugin would have written


@pytest.mark.parametrize(
    ("source", "text", "said"),
    [
        ("gone.py", None, r"There is no plugin .*gone\.py: give a Python file or the name of a module\."),
        ("no_such_module_x", None, "There is no plugin no_such_module_x: give a Python file or the name of a module"),
        ("broken.py", "import cml\n\nimport no_such_y\n", r"broken\.py, line 3: ModuleNotFoundError: No module named"),
        ("torn.py", "x = 1\ndef (:\n", r"torn\.py cannot be read: .*torn\.py, line 2: "),
        ("zero.py", "def f():\n    return 1 / 0\n\nf()\n", r"zero\.py, line 2: ZeroDivisionError: division by zero\."),
        ("leaves.py", "import sys\nsys.exit('bye')\n", r"leaves\.py, line 2: SystemExit: bye\."),
        ("empty.py", "x = 1\n", r"The plugin empty\.py registers nothing"),
        ("taken.py", "import cml.losses\ncml.losses.register('cosent')(int)\n", r"line 2: .*'cosent' is already taken"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_one_sentence(
    tmp_path: Path, source: str, text: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / source if source.endswith(".py") else source
    if text is not None:
        Path(place).write_text(text)
    with pytest.raises(UserError, match=said):
        plugins.load(place)
    assert main(["losses", "--plugin", str(place)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_every_help_tells_of_plugins(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], *([name, "--help"] for name in COMMANDS), ["train", "pose", "--help"]):
        with contextlib.suppress(SystemExit):
            main(words)
        assert "--plugin FILE_OR_MODULE" in capsys.readouterr().out, words
    assert main(["check", "--plugin"]) == 2
    assert "'--plugin'" in capsys.readouterr().err


def test_plugins_stand_anywhere_and_are_loaded_before_anything_is_looked_up(
    hours: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "loss.py"
    other.write_text(
        "import cml.losses\nfrom cml.losses.log_ratio import LogRatioLoss\n\n\n"
        "@cml.losses.register('mine')\nclass Mine(LogRatioLoss):\n    '''A loss of mine.'''\n"
    )
    assert main(["losses", f"--plugin={other}", "mine", "--plugin", str(hours)]) == 0
    assert "A loss of mine." in capsys.readouterr().out
    assert "hours" in distances.names()


def test_a_strangers_run_names_its_plugins_and_none_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugin_evil.py").write_text("raise SystemExit('ran')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    said = plugins.explain_missing([("plugin_evil", "0"), ("plugin_evil.py", "0")])
    assert "give --plugin plugin_evil --plugin plugin_evil.py" in said
    assert "cml.load_plugin('plugin_evil.py')" in said
    assert "plugin_evil" not in sys.modules


def test_a_packages_entry_point_that_takes_a_name_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "rival-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rival\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[cml.things]\none = rival:One\ntwo = rival:Two\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry: Registry[int] = Registry("thing", {"one": lambda: 0}, group="cml.things")
    assert registry.get("one") == 0  # the packages are not asked
    with pytest.raises(UserError, match=r"package 'rival' registers a thing .one., a name that cml has taken"):
        registry.names()
    registry = Registry("thing", {}, group="cml.things")
    assert registry.names() == ["one", "two"]
    assert registry.origin("two") == "rival"
    with pytest.raises(UserError, match=r"'two' of an .* cannot be imported from 'rival:Two': No module named 'rival'"):
        registry.get("two")
    (tmp_path / "rival.py").write_text("One = 3\n")
    with pytest.raises(UserError, match="has no attribute 'Two'"):
        registry.get("two")
    del sys.modules["rival"]


def test_tasks_are_registered_by_call_and_by_decorator() -> None:
    from dataclasses import replace

    mine = replace(tasks.get("value"), name="mine")
    assert tasks.register(mine) is mine
    assert tasks.get("mine") is mine
    with pytest.raises(UserError, match="The task name 'mine' is already taken"):
        tasks.register(replace(mine))

    @tasks.register
    def also_mine() -> tasks.Task:
        return replace(mine, name="also-mine")

    assert tasks.get("also-mine").name == "also-mine"
    assert also_mine().name == "also-mine"


def test_a_definition_that_runs_again_takes_its_place() -> None:
    registry: Registry[int] = Registry("thing", {})
    for value in (1, 2):
        cell = {"__name__": "notebook", "registry": registry}
        exec(f"@registry.register('mine')\ndef mine():\n    return {value}\n", cell)
    assert registry.get("mine") == 2
