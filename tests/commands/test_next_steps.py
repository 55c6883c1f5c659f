"""The command that ``cml prepare`` prints last suits the size of the dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cml.cli import main


@pytest.mark.parametrize(
    ("count", "said"),
    [(100, "--tune"), (30, "--sampler 'random(batch_size=10)'"), (1600, "--out runs/set")],
    ids=["few", "very few", "many"],
)
def test_few_items_choose_a_head_on_held_out_ones(
    count: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(count, 3))
    np.save("rows.npy", rows)
    Path("labels.csv").write_text("\n".join(["x", *map(str, rows[:, 0])]))
    words = ["--source", "labels.csv", "--vectors", "rows.npy", "--label-columns", "x", "--out", "set"]
    assert main(["prepare", "table", *words]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(said)
