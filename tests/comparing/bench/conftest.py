"""The tiny suite in every test of this folder, and one run of it for all of them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_suite
from tiny_suite import plan

from cml.comparing.bench import run, sets, suite
from cml.tuning import heads, splits


@contextlib.contextmanager
def tiny_suite_in_place() -> Iterator[None]:
    """The tiny suite and a quick ``tune``, and nothing of them afterwards: other tests run in the same process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(suite.SUITES, "tiny", tiny_suite.TINY)  # type: ignore[arg-type]
        patch.setattr(heads, "STOPS", (5, 10))
        patch.setattr(splits, "MOST_SPLITS", 4)
        yield
    for name in [name for name in suite.SETS if name.startswith(suite.OWN)]:
        del suite.SETS[name]
    sets.open_set.cache_clear()


@pytest.fixture(autouse=True)
def _tiny() -> Iterator[None]:
    with tiny_suite_in_place():
        yield


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results, made once."""
    out = tmp_path_factory.mktemp("bench") / "results"
    with tiny_suite_in_place():
        run.run(plan(out))
    return out


@pytest.fixture
def results(made: Path, tmp_path: Path) -> Path:
    """A copy of them, to be changed."""
    return Path(shutil.copytree(made, tmp_path / "results"))
