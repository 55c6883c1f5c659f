"""How inputs pass a network to be embedded: the decoding of images, the precision, and compilation by torch."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from cml.errors import UserError
from cml.processes.exactness import Decode, Precision

_COMPILERS = ("g++", "clang++", "c++", "cl")


@dataclass(frozen=True)
class ForwardPass:
    """How inputs pass a network; the default is what evaluation uses."""

    decode: Decode = "exact"  # of images
    precision: Precision = "float32"
    compile: bool = False  # whether the backbone is compiled by torch.compile

    @property
    def departures(self) -> dict[str, str]:
        """What changes values, where it is not the default: it is recorded with the embeddings."""
        options = {"decode": self.decode, "precision": self.precision}
        return {name: value for name, value in options.items() if value != getattr(EXACT, name)}


EXACT = ForwardPass()


def compile_module(module: nn.Module) -> Callable[[], None]:
    """Compile a module by torch.compile at its first call, in place; returns what undoes it."""
    on_cpu = all(parameter.device.type == "cpu" for parameter in module.parameters())
    if on_cpu and not any(shutil.which(name) for name in (os.environ.get("CXX", ""), *_COMPILERS) if name):
        raise UserError("'compile' needs a C++ compiler, such as g++: install one, or leave out 'compile'.")
    module.compile()

    def undo() -> None:
        module._compiled_call_impl = None

    return undo
