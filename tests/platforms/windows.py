"""A Linux process that lacks what Windows lacks, for the tests: python tests/platforms/windows.py FOLDER.

No fcntl and resource, but a msvcrt of fcntl's meaning; none of the flags of os.open, of pwrite, preadv, SIGHUP and fork
hooks; an open file cannot be renamed, a folder cannot be opened. It trains, goes on, evaluates, opens a run whose path
is no Unicode and stores neighbour lists. Not for: line ends, paths and processes of Windows itself, which a workflow
has to try.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
import signal
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch  # noqa: F401 - and all that it imports, before anything is taken away
from scipy import stats  # noqa: F401
from torch import multiprocessing  # noqa: F401


def take_away() -> None:
    """Take away what Windows lacks."""
    import fcntl

    def locking(descriptor: int, mode: int, count: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    find, replace, opened = importlib.util.find_spec, os.replace, os.open
    fake: Any = types.ModuleType("msvcrt")
    fake.locking, fake.LK_NBLCK = locking, 2
    sys.modules["msvcrt"] = fake
    importlib.util.find_spec = lambda name, package=None: None if name == "fcntl" else find(name, package)
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "pwrite", "preadv", "register_at_fork"):
        delattr(os, name)
    del signal.SIGHUP
    sys.modules["resource"] = None  # type: ignore[assignment]
    os.supports_fd = os.supports_fd - {os.scandir}
    shutil._use_fd_functions = False  # type: ignore[attr-defined] # decided at import; it needs O_NONBLOCK from 3.13 on

    def refusing(source: str | Path, target: str | Path) -> None:
        held = {os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")}
        if os.path.realpath(source) in held or Path(target).is_dir():
            raise PermissionError(errno.EACCES, "Access is denied", str(source))
        replace(source, target)

    def files_alone(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, flags, mode, dir_fd=dir_fd)

    os.replace, os.open = refusing, files_alone


def main(folder: Path) -> None:
    """Work in a folder."""
    take_away()
    import cml
    from cml.comparing.bench.trials import measure_peak_memory
    from cml.errors import UserError
    from cml.storage.atomic import atomic_folder
    from cml.storage.regular_file import text_path
    from cml.storage.work_folder import exclusive_lock
    from cml.training.callbacks import State

    levels = np.linspace(0, 255, 40).round()
    images = np.tile(levels[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
    options: dict[str, Any] = {"backbone": "small-cnn", "weights": "none", "image_size": (16, 16), "steps": 4}
    options |= {"sampler": "random(batch_size=16)", "workers": 0, "checkpoint_every": 2, "quiet": True}

    assert measure_peak_memory() == 0  # the system does not tell

    def stop(state: State) -> None:
        if state.step == 3:
            raise RuntimeError("cut off")

    run = folder / "run"
    try:
        cml.fit(images, levels, out=run, callbacks=[cml.Callback(on_step=stop)], **options)
    except RuntimeError as error:
        print(error)
    model = cml.fit(images, levels, out=run, resume=True, **options)
    np.testing.assert_array_equal(cml.load(run).embed(images), model.embed(images))
    odd = run.rename(folder / "half a character \udcff")
    np.testing.assert_array_equal(cml.load(odd).embed(images), model.embed(images))
    with text_path(odd / "model.safetensors") as name:  # of a copy, as no open file has a name
        assert name.isprintable()
        assert not name.startswith("/dev/fd")
        assert Path(name).read_bytes() == (odd / "model.safetensors").read_bytes()
    assert not Path(name).exists()
    odd.rename(run)
    with exclusive_lock(run / "lock", "the run"):
        try:
            with exclusive_lock(run / "lock", "the run"):
                raise AssertionError("held twice")
        except UserError as error:
            print(error)
    (folder / "empty").mkdir()
    with atomic_folder(folder / "empty") as made:
        (made / "a").write_text("a", encoding="utf-8")
    print(sorted(path.name for path in (folder / "empty").iterdir()))
    assert not [path for path in folder.rglob("*") if ".partial-" in path.name]
    from cml.cli import main as command

    data, job = str(folder / "digits"), folder / "job"
    assert command(["prepare", "digits", "--out", data]) == 0
    matrix = ["distances", data, "--role", "query", "--matrix", "--out", str(job)]
    assert command(matrix) == 0
    assert command([*matrix, "--verify"]) == 0
    assert np.load(job / "matrix.npy").shape == (896, 896)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
