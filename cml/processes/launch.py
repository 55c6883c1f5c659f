"""How this process was started: alone, or by torchrun as one of several that do one job.

Read from the environment, without torch, so that a command can hold its tongue before anything is imported. Not for:
what the processes say to each other (cml.processes.join).
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    """This process among those started together.

    Attributes:
        rank: Its number, 0..size-1.
        size: How many there are.
        local_rank: Its number among those of its machine.
        local_size: How many there are on its machine.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @property
    def first(self) -> bool:
        """Whether it is the one that prints and writes."""
        return self.rank == 0

    @property
    def complains(self) -> bool:
        """Whether it prints an error that all processes of its machine run into."""
        return self.local_rank == 0


def launch() -> Launch:
    """What torchrun, or whoever sets the same variables, says of this process."""
    said = os.environ
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= said.keys() or int(said["WORLD_SIZE"]) < 2:
        return Launch()
    local = int(said.get("LOCAL_RANK", 0)), int(said.get("LOCAL_WORLD_SIZE", 1))
    return Launch(int(said["RANK"]), int(said["WORLD_SIZE"]), *local)
