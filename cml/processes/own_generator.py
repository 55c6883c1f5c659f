"""Random numbers of torch from a generator of one's own, where code calls ``torch.rand`` or ``tensor.normal_()``.

Layers draw their first weights from torch's global generator, which all threads of a process share: seeding it would
repeat the random numbers of the caller, and a draw of another thread would change the weights. Within ``draw_from``,
only the calls of the own thread draw from the own generator, with the bits that the global one would give.

Without it ``test_a_named_generator_and_other_threads_draw_as_ever`` in tests/training/test_process_state.py fails:
``torch.random.fork_rng`` would seed the global generator, of which another thread draws at that moment.

Not for: what torch draws in C++, such as dropout; see ``cml.training.randomness``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_OF_TENSORS = (
    *("bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "multinomial", "normal_"),
    *("random_", "uniform_"),
)
_OF_TORCH = ("bernoulli", "multinomial", "normal", "rand", "randint", "randn", "randperm")
_OF_LAYERS = ("kaiming_normal_", "kaiming_uniform_", "normal_", "trunc_normal_", "uniform_")
_LIKE: Mapping[Any, Callable[[Tensor, torch.Generator], Tensor]] = {
    torch.rand_like: lambda tensor, generator: tensor.uniform_(generator=generator),
    torch.randn_like: lambda tensor, generator: tensor.normal_(generator=generator),
}
_TAKE_GENERATORS = {
    *(getattr(Tensor, name) for name in _OF_TENSORS),
    *(getattr(torch, name) for name in _OF_TORCH),
    *(getattr(nn.init, name) for name in _OF_LAYERS),
}


class draw_from(TorchFunctionMode):
    """Draw random numbers from a generator in the block, in this thread.

    Example:
        >>> with draw_from(torch.Generator().manual_seed(3)):
        ...     layer = torch.nn.Linear(2, 2)
        >>> before = torch.random.get_rng_state()
        >>> _ = torch.manual_seed(3)
        >>> torch.equal(layer.weight, torch.nn.Linear(2, 2).weight)
        True
        >>> torch.random.set_rng_state(before)
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 - any function of torch
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Call a function of torch, with the generator if it draws without one."""
        kwargs = {} if kwargs is None else kwargs
        if (func in _TAKE_GENERATORS or func in _LIKE) and kwargs.get("generator") is None and self._fits(args, kwargs):
            if func in _LIKE:
                return _LIKE[func](torch.empty_like(*args, **kwargs), self._generator)
            return func(*args, **{**kwargs, "generator": self._generator})
        return func(*args, **kwargs)

    def _fits(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a function draws on the device of the generator."""
        devices = [value.device for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        if kwargs.get("device") is not None:
            devices = [torch.device(kwargs["device"])]
        return all(device.type == self._generator.device.type for device in devices or [torch.get_default_device()])
