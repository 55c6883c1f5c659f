"""The first argument of commands such as ``cml train TASK``: a registered name, or help that lists the names."""

from collections.abc import Callable, Iterable, Sequence

from cml.command_line.plugin_help import PLUGIN, PLUGIN_HELP
from cml.errors import UserError, did_you_mean


def pick(
    arguments: Sequence[str],
    kind: str,
    known: Iterable[str],
    summary: Callable[[str], str],
    prog: str,
    default: str | None = None,
) -> tuple[str, Sequence[str]]:
    """Take a name from the front of a command's arguments; without one, print a help text that lists the names."""
    if default is not None and (not arguments or arguments[0].startswith("-")):
        return default, arguments
    known = list(known)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: {prog} {kind.upper()} [options]\n")
        for name in known:
            print(f"  {name:<15}{summary(name)}")
        print(f"\n  {PLUGIN}\n  {'':<15}{PLUGIN_HELP}")
        print(f"\n{prog} {kind.upper()} --help explains the options.")
        raise SystemExit(0)
    if arguments[0] not in known:
        hint = did_you_mean(arguments[0], known)
        raise UserError(f"Unknown {kind} {arguments[0]!r}.{hint} Known: {', '.join(known)}.")
    return arguments[0], arguments[1:]
