"""The ``cml`` command: imports the chosen subcommand, a module of cml.commands, alone; prints errors."""

import contextlib
import errno
import importlib
import os
import re
import sys
import warnings
from collections.abc import Sequence

from cml.command_line.command_list import COMMANDS, GROUPS, HELP, PLUGIN, PLUGIN_HELP
from cml.command_line.own_commands import find
from cml.command_line.parse_options import load_plugins
from cml.command_line.streams import flush_results, interrupt_on_signals, open_streams
from cml.console.messages import say_warning
from cml.errors import MachineError, UserError, did_you_mean, shorten_message
from cml.launch import launch
from cml.processes.memory import is_out_of_memory, keep_freed_memory
from cml.version import DISTRIBUTION, __version__

_RENAMED = {"gallery": "report"}  # commands that had another name
SPLIT = ("train", "evaluate", "features")  # the commands that several processes of torchrun share
_NO_DIRECTORY = "The working directory was deleted. Change to a folder that exists and run the command again."
_LESS_MEMORY = "Take smaller batches or images, fewer threads or workers, or a machine with more."


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 2 for the user's mistake, 1 for a fault of the machine, 130 for SIGINT, SIGTERM and SIGHUP."""
    open_streams()
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    warnings.showwarning = _show_warning
    try:
        with interrupt_on_signals(), flush_results():
            _run(name, rest)
    except (UserError, FloatingPointError, MachineError) as error:
        _complain(error)
        return 2 if isinstance(error, UserError) else 1
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        return 0
    except (MemoryError, RuntimeError, ImportError, OSError) as error:
        if is_out_of_memory(error):
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            _complain(f"The memory is full ({reason}). {_LESS_MEMORY}")
        elif isinstance(error, OSError):
            _complain(_machine(error))
        else:
            raise
        return 1
    except UnicodeEncodeError as error:
        if (encoding := sys.getfilesystemencoding()) == "utf-8":
            raise
        _complain(f"No file can be called {error.object[:200]!a} here, where names are {encoding}: set LC_ALL=C.UTF-8.")
        return 2
    except KeyboardInterrupt as stop:
        _say(f"\nstopped; {stop}" if str(stop) else "\nstopped")
        return 130
    return 0


def _run(name: str, arguments: list[str]) -> None:
    if name in HELP:
        print(_help())
        return
    if name == "--version":
        print(f"cml {__version__} ({DISTRIBUTION})")
        return
    if name not in COMMANDS:
        hint = f" Did you mean {_RENAMED[name]!r}?" if name in _RENAMED else did_you_mean(name, COMMANDS)
        raise UserError(f"Unknown command {name!r}.{hint} Known: {', '.join(COMMANDS)}.")
    if launch().size > 1 and name not in SPLIT:
        raise UserError(f"cml {name} runs in one process; torchrun is for {', '.join(SPLIT)}.")
    if not _has_working_directory():  # without one, relative paths mean nothing, and oneMKL ends the process
        raise UserError(_NO_DIRECTORY)
    keep_freed_memory()
    arguments = load_plugins(arguments)
    own = find(name, arguments)
    run, rest = (importlib.import_module(f"cml.commands.{name}").run, arguments) if own is None else own
    run(rest)


def _complain(error: object) -> None:
    with contextlib.suppress(UserError):  # of a variable of torchrun, which is what has to be said
        if not launch().prints_errors:
            return
    _say(f"error: {shorten_message(str(error))}")


def _say(last_words: str) -> None:
    """Print what the command ends with on a line of its own: below its progress bars, not within one."""
    if (tqdm := sys.modules.get("tqdm")) is not None:
        for bar in list(getattr(tqdm.tqdm, "_instances", ())):
            bar.close()
    print(last_words, file=sys.stderr)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    say_warning(str(message))  # a user needs what it says, not the line of code that says it


def _has_working_directory() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _machine(error: OSError) -> str:
    if isinstance(error, FileNotFoundError) and not _has_working_directory():  # deleted meanwhile
        return _NO_DIRECTORY
    is_short = error.errno is None and re.fullmatch(r"\d+ requested and \d+ written", str(error))  # as NumPy says it
    if error.errno == errno.ENOSPC or is_short:
        return f"The disk is full ({error.filename or 'while writing'}): free some space and run the command again."
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM) and error.filename is not None:
        return f"{error.filename} cannot be read or written ({error.strerror}): choose another folder."
    return str(error)


def _help() -> str:
    groups = (
        "\n".join([f"{title}:", *(f"  {name:<11}{summary}" for name, summary in group.items())])
        for title, group in GROUPS.items()
    )
    commands = "\n\n".join(groups)
    return (
        "usage: cml COMMAND [options]\n\nTrain embeddings whose distances mirror label distances.\n\n"
        f"{commands}\n\n  {PLUGIN}\n  {'':<11}{PLUGIN_HELP}\n\ncml COMMAND --help explains a command's options."
    )


if __name__ == "__main__":
    sys.exit(main())
