"""How many processor cores this process may use, which decides threads and workers everywhere.

joblib counts them as well, but its import takes longer than a failing command may.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

from cml.errors import UserError

THREADS = "CML_THREADS"
"""The environment variable that gives the number instead."""
_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def count_cores() -> int:
    """The number of cores: that of CML_THREADS, or what affinity and the limits of control groups leave."""
    given = os.environ.get(THREADS, "").strip()
    if given:
        if not given.isdecimal() or int(given) < 1:
            raise UserError(f"The environment variable {THREADS} must be a whole number of at least 1. Got {given!r}.")
        return int(given)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, *_read_limits(_CGROUPS, _MEMBERSHIP))))


def _read_limits(root: Path, membership: Path) -> Iterator[float]:
    """The limits in cores of the control group of this process, and of those above it, in either version of them."""
    yield math.inf
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        group = root / controllers if controllers else root
        for folder in (group / path.strip("/"), *(group / path.strip("/")).parents):
            yield _read_limit(folder)
            if folder == group:
                break


def _read_limit(folder: Path) -> float:
    """The limit in cores that one control group has; infinity for none."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return float(quota) / float(period) if float(quota) > 0 else math.inf
    except (OSError, ValueError):  # "max" is no number
        return math.inf


CORES = count_cores()
"""Threads of whatever is spread over cores, unless an option says otherwise."""
MOST_READERS = 8
READERS = min(CORES, MOST_READERS)
"""Processes that read images for training: more than the network needs only take memory."""
