"""The ``cml`` command: imports the chosen subcommand, a module of cml.commands, alone; prints errors."""

import codecs
import contextlib
import errno
import importlib
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from cml.command_line.options import PLUGIN, PLUGIN_HELP, load_plugins
from cml.console.messages import say_warning
from cml.errors import MachineError, UserError, did_you_mean, shorten_message
from cml.launch import launch
from cml.processes.heap import keep_freed_memory
from cml.version import DISTRIBUTION, __version__

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

COMMANDS = {
    "demo": "train two losses on drawn people, rooms, scenes or heads and compare them, in three minutes",
    "prepare": "convert raw files to a prepared dataset",
    "check": "check a prepared dataset for problems",
    "distances": "compute all label distances or nearest neighbours, or summarise them",
    "train": "train an embedding",
    "evaluate": "evaluate a trained embedding beside the oracle, a random ranking and frozen features",
    "compare": "train several losses with the same budget and seeds, and compare them in a table",
    "bench": "run the benchmark of continuous metric learning, check and compare results",
    "reproduce": "repeat the experiments of a paper, and compare the results with the published ones",
    "losses": "list all losses with their labels, cost, source and use",
    "gallery": "write a page of what a trained embedding retrieves",
    "explore": "write an interactive page for exploring an embedding",
    "embed": "embed a folder of images with a trained run",
    "index": "build a search index of images, or add images to it",
    "search": "search an index for the images that are nearest to query images",
    "export": "export a trained run: ONNX, weights to share, captioning features",
}
SPLIT = ("train", "evaluate")  # the commands that several processes of torchrun share
_SPELT, _SPELLINGS = "cml.spelt", {"±": "+-", "\N{EN DASH}": "-", "…": ".."}
_LESS_MEMORY = "Take smaller batches or images, fewer threads or workers, or a machine with more."


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 2 for the user's mistake, 1 for a fault of the machine, 130 for SIGINT, SIGTERM and SIGHUP."""
    open_streams()
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    warnings.showwarning = _show_warning
    try:
        with _stopped_by_signals(), flush_results():
            _run(name, rest)
    except (UserError, FloatingPointError, MachineError) as error:
        _complain(error)
        return 2 if isinstance(error, UserError) else 1
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        return 0
    except OSError as error:
        _complain(_machine(error))
        return 1
    except UnicodeEncodeError as error:
        if (encoding := sys.getfilesystemencoding()) == "utf-8":
            raise
        _complain(f"No file can be called {error.object[:200]!a} here, where names are {encoding}: set LC_ALL=C.UTF-8.")
        return 2
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        said = next(iter(str(error).splitlines()), "") or type(error).__name__
        _complain(f"The memory is full ({said}). {_LESS_MEMORY}")
        return 1
    except KeyboardInterrupt as stop:
        _say(f"\nstopped; {stop}" if str(stop) else "\nstopped")
        return 130
    return 0


def _run(name: str, arguments: list[str]) -> None:
    if name in ("-h", "--help"):
        print(_help())
        return
    if name == "--version":
        print(f"cml {__version__} ({DISTRIBUTION})")
        return
    if name not in COMMANDS:
        raise UserError(f"Unknown command {name!r}.{did_you_mean(name, COMMANDS)} Known: {', '.join(COMMANDS)}.")
    if launch().size > 1 and name not in SPLIT:
        raise UserError(f"cml {name} runs in one process; torchrun is for cml {' and cml '.join(SPLIT)}.")
    keep_freed_memory()
    importlib.import_module(f"cml.commands.{name}").run(load_plugins(arguments))


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


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP are as good as SIGINT; one that somebody ignores, as nohup does, or hears stays theirs."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    known = {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}  # Windows has no SIGHUP
    known = known if threading.current_thread() is threading.main_thread() else set()
    ours = [number for number in known if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    say_warning(str(message))  # a user needs what it says, not the line of code that says it


def _machine(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return f"The disk is full ({error.filename or 'while writing'}): free some space and run the command again."
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM) and error.filename is not None:
        return f"{error.filename} cannot be read or written ({error.strerror}): choose another folder."
    return str(error)


def _is_out_of_memory(error: Exception) -> bool:
    """Also where torch says it, which has no class of its own for a processor's memory."""
    names = ("OutOfMemoryError", "MemoryError", "_ArrayMemoryError")
    return type(error).__name__ in names or "can't allocate memory" in str(error)


def _help() -> str:
    commands = "\n".join(f"  {name:<11}{summary}" for name, summary in COMMANDS.items())
    return (
        "usage: cml COMMAND [options]\n\nTrain image embeddings whose distances mirror label distances.\n\n"
        f"{commands}\n\n  {PLUGIN}\n  {'':<11}{PLUGIN_HELP}\n\ncml COMMAND --help explains a command's options."
    )


class _Forgiving(io.FileIO):
    def write(self, content: "ReadableBuffer", /) -> int:
        try:
            return super().write(content)
        except OSError:  # the terminal is gone, or the disk of a log is full: the work continues
            return memoryview(content).nbytes


def open_streams() -> None:
    """Open closed streams on the null device, before a file gets their number; let stderr fail silently."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number: this one
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - open until the process ends
    if sys.stderr is sys.__stderr__:
        coding = getattr(sys.stderr, "encoding", "utf-8")
        raw = io.BufferedWriter(_Forgiving(2, "wb", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, coding, errors=_SPELT, line_buffering=True)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_SPELT)


def _spelt(error: UnicodeError) -> tuple[str, int]:
    """Characters that the terminal lacks, spelt in ASCII."""
    assert isinstance(error, UnicodeEncodeError)
    others = error.object[error.start : error.end]
    known = (_SPELLINGS.get(one) or one.encode("ascii", "backslashreplace").decode() for one in others)
    return "".join(known), error.end


codecs.register_error(_SPELT, _spelt)


@contextlib.contextmanager
def flush_results() -> Iterator[None]:
    """Flush stdout at the end of the block; an ``OSError`` if that fails."""
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError as error:
            # or Python fails on it again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise OSError(error.errno, error.strerror, "standard output") from None


if __name__ == "__main__":
    sys.exit(main())
