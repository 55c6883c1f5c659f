"""Parts of one's own, each one file outside the repository, from start to end: by ``--plugin`` and by entry point."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_examples import forget_modules, forget_plugins, read_files

import cml
from cml import plugins
from cml.cli import main

pytestmark = pytest.mark.slow

PARTS = {
    name: read_files(page)[f"{name}.py"]
    for name, page in {
        "hours": "howto/plugins.md",
        "stress": "extend/loss.md",
        "sorted_runs": "extend/sampler.md",
        "net": "extend/backbone.md",
        "clocks": "extend/source.md",
        "daytime": "extend/task.md",
    }.items()
}
POINTS = """
[cml.distances]
hours = own_hours:hours
[cml.losses]
stress = own_stress:Stress
[cml.samplers]
every-other = own_sorted_runs:EveryOther
[cml.backbones]
tiny-net = own_net:TinyNet
[cml.sources]
clocks = own_clocks:Clocks
[cml.tasks]
daytime = own_daytime:TASK
"""
OWN = (
    "--label-distance hours --sampler every-other(batch_size=8) --backbone tiny-net --steps 2 --dimension 4 --workers 0"
)
STEPS = [
    "prepare clocks --out data --count 32",
    f"train daytime --data data --out run --loss stress(scale=0.2) {OWN}",
    "evaluate run",
    "distances data --summary",
    f"compare daytime --data data --out compared --seeds 1 --losses log-ratio stress {OWN}",
    "report run",
]
OUTSIDE = """
import sys
from cml.cli import main
for line in sys.stdin.read().splitlines():
    code = main(line.split())
    if code:
        sys.exit(code)
"""


@pytest.fixture(autouse=True)
def own_registries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What a test registers, nobody else meets; its folder is the working one, and keeps the cache."""
    forget_plugins(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    yield
    forget_modules()


def check_results(folder: Path, needed: set[str]) -> None:
    config = json.loads((folder / "run" / "config.json").read_text())
    assert {name for name, _ in config["plugins"]} == needed
    assert config["train"]["loss"] == "stress(scale=0.2)"
    assert config["label_distance"] == "hours"
    evaluation = json.loads((folder / "run" / "evaluation.json").read_text())
    assert evaluation["unit"] == "h"
    assert (folder / "run" / "retrieval_report.html").exists()
    assert (folder / "compared" / "table.md").read_text().count("| stress |") == 1


def test_by_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    flags = []
    for name, text in PARTS.items():
        (tmp_path / f"{name}.py").write_text(text)
        flags += ["--plugin", f"{name}.py"]
    with monkeypatch.context() as patch:
        forget_plugins(patch)
        for line in STEPS:
            assert main([*line.split(), *flags]) == 0
        check_results(tmp_path, {"hours.py", "stress.py", "sorted_runs.py", "net.py", "daytime.py"})
        (tmp_path / "hours.py").write_text(PARTS["hours"] + "\n")
        plugins.load("hours.py")
        with pytest.warns(UserWarning, match=r"The code of hours\.py has changed since the run was trained"):
            cml.open_run("run")
        (tmp_path / "hours.py").write_text(PARTS["hours"])

    # a stranger's run: nothing of it is imported, and the message says what to give
    capsys.readouterr()
    for line in ("evaluate run", "report run", "embed run --images data --out embedded"):
        assert main(line.split()) == 2
        said = capsys.readouterr().err
        assert said.count("error: ") == len(said.splitlines()) == 1
        assert "give --plugin daytime.py --plugin hours.py" in said
    assert main(["evaluate", "run", *flags[:-2]]) == 2
    said = capsys.readouterr().err
    assert "Unknown task 'daytime'" in said
    assert "give --plugin daytime.py, or in Python call cml.load_plugin('daytime.py') or import it" in said


def outside(folder: Path, lines: list[str]) -> subprocess.CompletedProcess[str]:
    """Run commands in a process of its own, to which the folder ``site`` is what pip has installed."""
    text = "\n".join(lines)
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, 'site')\n{OUTSIDE}"],
        cwd=folder,
        input=text,
        capture_output=True,
        text=True,
        timeout=240,
    )


def install(folder: Path, points: str) -> None:
    metadata = folder / "site" / "own-1.0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(points)


@pytest.mark.slow
def test_by_entry_point(tmp_path: Path) -> None:
    install(tmp_path, POINTS)
    for name, text in PARTS.items():
        (tmp_path / "site" / f"own_{name}.py").write_text(text)
    done = outside(tmp_path, STEPS)
    assert done.returncode == 0, done.stderr
    check_results(tmp_path, {"own_hours", "own_stress", "own_sorted_runs", "own_net", "own_daytime"})


@pytest.mark.slow
def test_a_task_of_another_package_brings_a_label_distance_of_its_own(tmp_path: Path) -> None:
    """The distance is known once the task is imported, in each process anew."""
    install(tmp_path, "[cml.tasks]\ndaytime = own_task:TASK\n")
    clocks = PARTS["clocks"].replace('task = "value"', 'task = "daytime"')
    daytime = PARTS["daytime"].replace("circular(period=24)", "hours")
    (tmp_path / "site" / "own_task.py").write_text(PARTS["hours"] + daytime + clocks)
    few = "--backbone small-cnn --weights none --image-size 16 16 --dimension 4 --sampler random(batch_size=8)"
    few += " --steps 2 --workers 0"
    (tmp_path / "clocks.py").write_text(clocks)
    assert main(["prepare", "clocks", "--out", "data", "--count", "32", "--plugin", "clocks.py"]) == 0
    train = f"train daytime --data data --out run {few}"
    compare = f"compare daytime --data data --out compared --seeds 1 {few}"
    for lines in (
        [train, compare],
        ["evaluate run", "report run"],
        ["distances data --summary --label-distance hours"],
    ):
        done = outside(tmp_path, lines)
        assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert [name for name, _ in config["plugins"]] == ["own_task"]
