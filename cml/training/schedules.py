"""Learning rate schedules: the share of the base rates that each step takes."""

import functools
import math
from abc import ABC, abstractmethod

from cml.registry import Registry
from cml.settings import check_number, check_whole


class Schedule(ABC):
    """A learning rate schedule."""

    @abstractmethod
    def factor(
        self,
        step: int,  # from 0
        steps: int,  # of the whole run
    ) -> float:  # at least 0
        """The factor of the base rates at a step."""


class Constant(Schedule):
    """The base rates in every step."""

    def factor(self, step: int, steps: int) -> float:
        """See ``Schedule``."""
        return 1.0


class Cosine(Schedule):
    """From the base rates to zero along half a period of the cosine."""

    def factor(self, step: int, steps: int) -> float:
        """See ``Schedule``."""
        return 0.5 * (1 + math.cos(math.pi * step / steps))


class Inverse(Schedule):
    """1 / (1 + decay * step), as in the log-ratio paper."""

    def __init__(self, decay: float = 1e-4) -> None:
        self.decay = check_number("decay", decay, least=0)

    def factor(self, step: int, steps: int) -> float:
        """See ``Schedule``."""
        return 1 / (1 + self.decay * step)


class Step(Schedule):
    """The base rates times ``decay`` after every so many steps; ``first`` is the step of the first time."""

    def __init__(self, every: int, decay: float = 0.1, first: int | None = None) -> None:
        self.every, self.decay = check_whole("every", every), check_number("decay", decay, least=0, below=1)
        self.first = self.every if first is None else check_whole("first", first)

    def factor(self, step: int, steps: int) -> float:
        """See ``Schedule``."""
        return 1.0 if step < self.first else self.decay ** (1 + (step - self.first) // self.every)


registry: Registry[Schedule] = Registry(
    "schedule", {"cosine": Cosine, "inverse": Inverse, "step": Step, "constant": Constant}
)


@functools.lru_cache(maxsize=16)  # each step of a run asks for its schedule
def make_schedule(choice: str) -> Schedule:
    """Make the schedule that a text names, such as ``step(every=100)``."""
    return registry.make(choice)
