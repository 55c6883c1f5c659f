"""The option ``--plugin``, which stands anywhere in the arguments of every command."""

from collections.abc import Sequence
from dataclasses import dataclass

from cml.command_line.parse_options import parse_known


@dataclass(frozen=True)
class _Plugins:
    plugin: tuple[str, ...] = ()


def load_plugins(arguments: Sequence[str]) -> list[str]:
    """Load the plugins that ``--plugin`` names."""
    if not any(word.startswith("--plugin") for word in arguments):  # keep them as they are, including "--"
        return list(arguments)
    from cml.plugins import load

    options, other_arguments = parse_known(_Plugins, arguments, prog="cml")
    for plugin in options.plugin:
        load(plugin)
    return other_arguments
