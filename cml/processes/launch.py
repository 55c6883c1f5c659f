"""How this process was started: alone, or by torchrun as one of several.

Read from the environment, without torch, so that a command knows before any import whether it may print.
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    """This process among those started together: its rank of ``size``, on all machines and on its own (local)."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @property
    def first(self) -> bool:
        """Whether it is the process that prints and writes."""
        return self.rank == 0

    @property
    def complains(self) -> bool:
        """Whether it prints an error that all processes of its machine have."""
        return self.local_rank == 0


def launch() -> Launch:
    """This process, by the environment variables that torchrun sets."""
    said = os.environ
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= said.keys() or int(said["WORLD_SIZE"]) < 2:
        return Launch()
    local = int(said.get("LOCAL_RANK", 0)), int(said.get("LOCAL_WORLD_SIZE", 1))
    return Launch(int(said["RANK"]), int(said["WORLD_SIZE"]), *local)
