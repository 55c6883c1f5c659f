"""MATLAB files: cml's reader, which looks files through before scipy, against scipy in a child process with limits.

    python tests/benchmarks/mat_files.py [--masks 50] [FILE:VARIABLE ..]

The masks are like LSUN's: 8-bit, 375 x 500 pixels and more, compressed. A child has at most 2 GB of memory and 60 s;
it is started for each file, or once for all. Files that are given, such as annotations of poses, are read both ways.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.io import savemat

from cml.data_prep.mat_file import read_variable

CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
import numpy as np
from scipy.io import loadmat
name, *files = sys.argv[1:]
for file in files:
    array = loadmat(file, variable_names=[name])[name]
    if array.dtype.hasobject or array.dtype.names:
        continue  # structs: nothing but pickle would hand them over
    np.save(sys.stdout.buffer, array, allow_pickle=False)
"""


def write_masks(folder: Path, count: int) -> list[Path]:
    """Masks of five walls, in the form of LSUN's."""
    paths = []
    for number in range(count):
        mask = np.ones((375 + number % 40, 500), np.uint8)
        mask[:150], mask[:, :120], mask[200:, 300:], mask[300:] = 2, 3, 4, 5
        paths.append(folder / f"{number}.mat")
        savemat(paths[-1], {"layout": mask}, do_compression=True)
    return paths


def read_in_child(paths: Sequence[Path], name: str) -> list[np.ndarray]:
    """The arrays of a variable in some files, read by one child."""
    command = [sys.executable, "-c", CHILD, name, *map(str, paths)]
    output = io.BytesIO(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    size = len(output.getvalue())
    arrays = []
    while output.tell() < size:
        arrays.append(np.load(output, allow_pickle=False))
    return arrays


def seconds_since(begin: float) -> float:
    """Seconds from a time of ``time.perf_counter``."""
    return time.perf_counter() - begin


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--masks", type=int, default=50)
    parser.add_argument("files", nargs="*", help="further files with the name of a variable: joints.mat:joints")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_masks(Path(folder), options.masks)
        read_variable(paths[0], "layout")  # imports scipy
        begin = time.perf_counter()
        own = [read_variable(path, "layout") for path in paths]
        print(f"{len(paths)} masks: {1000 * seconds_since(begin):.0f} ms by cml's reader")
        begin = time.perf_counter()
        together = read_in_child(paths, "layout")
        print(f"{len(paths)} masks: {1000 * seconds_since(begin):.0f} ms by one child for all")
        begin = time.perf_counter()
        alone = [array for path in paths for array in read_in_child([path], "layout")]
        print(f"{len(paths)} masks: {1000 * seconds_since(begin):.0f} ms by a child for each")
        assert all(np.array_equal(a, b) and np.array_equal(a, c) for a, b, c in zip(own, together, alone, strict=True))
    for file in options.files:
        path, _, name = file.rpartition(":")
        begin = time.perf_counter()
        read_variable(Path(path), name)
        own_seconds, begin = seconds_since(begin), time.perf_counter()
        read_in_child([Path(path)], name)
        print(f"{path}: {1000 * own_seconds:.0f} ms by cml's reader, {1000 * seconds_since(begin):.0f} ms by a child")


if __name__ == "__main__":
    main()
