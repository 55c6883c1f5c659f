"""An interrupted ``cml.fit`` or ``cml.train``: its exception, and the model so far."""

import contextlib
from collections.abc import Callable, Iterator

from cml.doors.model import Model
from cml.errors import UserError
from cml.training.learner import Learned, StoppedRun
from cml.training.run_config import RunConfig

_latest: list[Model] = []  # the model of the last run, if that was interrupted


class Interrupted(KeyboardInterrupt):
    """An interrupt of ``cml.fit`` or ``cml.train`` after a step and before the end; it carries the model so far.

    Args:
        text: What was done, and how to go on.
        model: The model so far.

    Attributes:
        model: The model so far: with the best weights if the run was validated, else the last ones.

    Example:
        >>> import numpy as np
        >>> def interrupt(state):
        ...     if state.step == 3:
        ...         raise KeyboardInterrupt
        >>> rows = np.random.default_rng(0).normal(size=(60, 3))
        >>> watch = cml.Callback(on_step=interrupt)
        >>> try:
        ...     cml.fit(rows, rows[:, 0], sampler="random(batch_size=20)", callbacks=[watch], quiet=True)
        ... except cml.Interrupted as stop:
        ...     print(stop.model, stop.model is cml.last())
        Model(none, 3 numbers -> 128 numbers, L2-normalised) True
    """

    def __init__(self, text: str, model: Model) -> None:
        super().__init__(text)
        self.model = model


def last() -> Model:
    """Give the model so far of the last ``cml.fit`` or ``cml.train`` of this process, if that was interrupted.

    Returns:
        The model; it is kept until another run ends.

    Raises:
        UserError: The last run finished, or there was none that had done a step.

    Example:
        >>> import numpy as np
        >>> def interrupt(state):
        ...     if state.step == 3:
        ...         raise KeyboardInterrupt  # as Ctrl-C, or the stop button of a notebook
        >>> rows = np.random.default_rng(0).normal(size=(60, 3))
        >>> watch = cml.Callback(on_step=interrupt)
        >>> try:
        ...     cml.fit(rows, rows[:, 0], sampler="random(batch_size=20)", callbacks=[watch], quiet=True)
        ... except KeyboardInterrupt:
        ...     print(cml.last())
        Model(none, 3 numbers -> 128 numbers, L2-normalised)
    """
    if not _latest:
        raise UserError(
            "No interrupted run has left a model: cml.last() is for the model of a cml.fit that was interrupted after "
            "its first step. A finished cml.fit returns its model."
        )
    return _latest[0]


@contextlib.contextmanager
def keep_interrupted(make_model: Callable[[Learned, RunConfig], Model], *, has_folder: bool) -> Iterator[None]:
    """Keep the model so far if training is interrupted in the block."""
    try:
        yield
    except StoppedRun as stop:
        if stop.run is None:
            raise
        model = make_model(stop.learned, stop.run)
        _latest[:] = [model]
        again = (
            "The same call with resume=True continues the run." if has_folder else "A run with out=... can be resumed."
        )
        text = f"{stop}" or "training was interrupted in a step"
        raise Interrupted(f"{text}. The model so far: cml.last(). {again}", model) from None
    _latest.clear()
