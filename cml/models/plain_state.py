"""Weights under the names of the module itself, also where torch.compile or DataParallel has wrapped it."""

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel


def plain_state(network: nn.Module) -> dict[str, Tensor]:
    """The weights of a network by their names without those of wrappers."""
    names = _plain_names(network)
    return {names[name]: value for name, value in network.state_dict().items()}


def load_plain_state(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load weights of ``plain_state`` into a network, wrapped or not."""
    wrapped = {plain: name for name, plain in _plain_names(network).items()}
    network.load_state_dict({wrapped.get(name, name): value for name, value in weights.items()})


def _plain_names(network: nn.Module) -> dict[str, str]:
    """Name to plain name of each tensor of the state."""
    inner = []  # paths of modules in wrappers, the outermost first
    for path, module in network.named_modules():
        compiled = getattr(module, "_orig_mod", None)  # of torch.compile, whose class is not public
        if isinstance(compiled, nn.Module):
            inner.append((f"{path}._orig_mod.", f"{path}."))
        elif isinstance(module, DataParallel | DistributedDataParallel):
            inner.append((f"{path}.module.", f"{path}."))
    inner = [(begin.lstrip("."), end.lstrip(".")) for begin, end in inner]
    names = {}
    for name in network.state_dict():
        plain = name
        for begin, end in reversed(inner):  # the innermost first, since the others' paths begin theirs
            plain = end + plain.removeprefix(begin) if plain.startswith(begin) else plain
        names[name] = plain
    return names
