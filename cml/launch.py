"""How this process was started, alone or by torchrun; without torch, so that a command knows before it imports that."""

import os
from typing import NamedTuple

from cml.errors import UserError

_ALWAYS = ("RANK", "WORLD_SIZE")
_LOCAL = {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}  # what they are where nobody set them


class Launch(NamedTuple):
    """This process among those that were started together."""

    rank: int = 0  # its rank among the processes of all machines
    size: int = 1  # the number of processes of all machines
    local_rank: int = 0  # its rank among the processes of its machine
    local_size: int = 1  # the number of processes of its machine

    @property
    def first(self) -> bool:
        """Whether it is the process that prints and writes."""
        return self.rank == 0

    @property
    def prints_errors(self) -> bool:
        """Whether it prints an error that all processes of its machine have."""
        return self.local_rank == 0


def launch() -> Launch:
    """Find out how this process was started, by the environment variables that torchrun sets."""
    if not {*_ALWAYS, "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        return Launch()
    for name in (*_ALWAYS, *_LOCAL):
        if name in os.environ and not os.environ[name].isdecimal():
            raise UserError(f"The variable {name} should be a whole number, as torchrun sets it: {os.environ[name]!r}.")
    rank, size = (int(os.environ[name]) for name in _ALWAYS)
    local_rank, local_size = (int(os.environ.get(name, alone)) for name, alone in _LOCAL.items())
    return Launch(rank, size, local_rank, local_size) if size > 1 else Launch()
