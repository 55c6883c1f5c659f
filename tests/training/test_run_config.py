"""What is said about a folder that is not a run."""

from pathlib import Path

import pytest

from cml.errors import DataError
from cml.training.saved_model import RunConfig


def test_a_folder_of_several_seeds_is_refused_with_one_of_its_runs(tmp_path: Path) -> None:
    for seed in (1, 0):
        (tmp_path / f"seed-{seed}").mkdir()
        (tmp_path / f"seed-{seed}" / "config.json").write_text("{}")
    with pytest.raises(DataError, match=r"holds the runs of several seeds, not a run; give one of them, .*seed-0\.$"):
        RunConfig.load(tmp_path)


def test_a_folder_of_another_kind_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text("{}")
    with pytest.raises(DataError, match="is a comparison, whose runs lie below it, not a run"):
        RunConfig.load(tmp_path)
    with pytest.raises(DataError, match="is not a folder; give a run folder"):
        RunConfig.load(tmp_path / "comparison.json")
