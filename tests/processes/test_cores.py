"""The number of cores: affinity, control groups of both versions, and CML_THREADS."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cml.errors import UserError
from cml.processes.cores import _read_limits, count_cores


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("files", "membership", "expected"),
    [
        ({}, "0::/\n", math.inf),
        ({"cpu.max": "max 100000\n"}, "0::/\n", math.inf),
        ({"cpu.max": "250000 100000\n"}, "0::/\n", 2.5),
        ({"a/cpu.max": "max 100000", "cpu.max": "400000 100000"}, "0::/a/b\n", 4),
        ({"a/cpu.max": "300000 100000", "a/b/cpu.max": "100000 100000"}, "0::/a/b\n", 1),
        (
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "150000\n", "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"},
            "5:cpuset:/a\n4:cpu,cpuacct:/a\n",
            1.5,
        ),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, "4:cpu:/\n", math.inf),
        ({"cpu.max": "nonsense"}, "0::/\n", math.inf),
    ],
)
def test_limits_of_control_groups(tmp_path: Path, files: dict[str, str], membership: str, expected: float) -> None:
    root, place = tmp_path / "cgroup", tmp_path / "membership"
    root.mkdir()
    for name, text in files.items():
        write(root / name, text)
    place.write_text(membership)
    assert min(_read_limits(root, place)) == expected
    assert [*_read_limits(root, tmp_path / "none")] == [math.inf]


def test_the_variable_gives_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CML_THREADS", "7")
    assert count_cores() == 7
    monkeypatch.setenv("CML_THREADS", "0")
    with pytest.raises(UserError, match=r"CML_THREADS must be a whole number of at least 1. Got '0'"):
        count_cores()
    monkeypatch.delenv("CML_THREADS")
    assert 1 <= count_cores() <= (os.cpu_count() or 1)


def test_eight_cores_are_asked_for_everywhere() -> None:
    script = """
import inspect, json
from cml.approximate.approximate import approximate
from cml.commands.distances import Distances
from cml.commands.embed import Embed
from cml.data.check_dataset import check_dataset
from cml.distances import LabelDistance
from cml.distances.jobs.job_options import JobOptions
from cml.retrieval import EvaluateOptions
from cml.retrieval.search import nearest_embeddings
from cml.training.config import TrainConfig
read = lambda function: inspect.signature(function).parameters["threads"].default
functions = (approximate, check_dataset, LabelDistance.neighbors, nearest_embeddings)
options = (Distances, Embed, JobOptions, EvaluateOptions)
fields = [option.__dataclass_fields__["threads"].default for option in options]
print(json.dumps([*map(read, functions), *fields, TrainConfig().workers]))
"""
    environment = {**os.environ, "CML_THREADS": "8"}
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=240, env=environment
    )
    assert json.loads(result.stdout) == [8] * 9
