"""Run folders of earlier versions stay readable: their options are read under the names of today."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from cml.errors import DataError
from cml.renamed_options import RENAMED
from cml.training.config import TrainConfig
from cml.training.run_config import RunConfig

FOLDER = Path(__file__).parent / "earlier_configs"  # each the config.json of a run before options were renamed


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_every_option_is_read_with_its_value(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "config.json")
    saved = json.loads(path.read_text())["train"]
    run = RunConfig.load(tmp_path)
    expected = {
        RENAMED.get(name, name): tuple(value) if name == "image_size" else value for name, value in saved.items()
    }
    assert {name: asdict(run.train)[name] for name in expected} == expected
    assert TrainConfig.load(path) == run.train
    assert TrainConfig.load(path, TrainConfig(ema_decay=0.5, backbone_lr_scale=0.5)) == run.train


def test_renamed_options_have_their_values() -> None:
    options = TrainConfig.load(FOLDER / "averaged.json")
    assert (options.ema_decay, options.backbone_lr_scale, options.validation_fraction) == (0.9, 0.3, 0.2)


def test_a_file_that_gives_both_names_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "both.json"
    path.write_text('{"average": 0.5, "ema_decay": 0.9}')
    with pytest.raises(DataError, match="'average'"):
        TrainConfig.load(path)
