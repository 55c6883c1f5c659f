"""Messages for people, which go through ``logging`` and are shown on stderr; and how they state sizes and durations.

Each module has its logger below ``cml``, such as ``cml.training.loop``. An application that configures ``logging`` gets
every message in its own format, and none is shown twice: the handler installed here is silent where a logger of cml has
other handlers, or a handler above them writes to the console. ``logging.getLogger("cml").setLevel("WARNING")`` silences
messages about progress.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator
from contextvars import ContextVar

from cml.errors import escape_controls
from cml.launch import launch

LOGGER = logging.getLogger("cml")
_SHOWN: ContextVar[set[str] | None] = ContextVar("shown", default=None)  # in a block of ``say_each_once``
_PREFIXES = {logging.WARNING: "warning: ", logging.ERROR: "error: "}


def say(text: str) -> None:
    """Log a message about progress to the logger of the calling module; of several processes only the first logs it."""
    shown = _SHOWN.get()
    if shown is not None and text in shown:
        return
    if shown is not None:
        shown.add(text)
    _log(logging.INFO, text)


def format_bytes(size: float) -> str:
    """Format a number of bytes with three digits and a decimal unit: ``1.3 GB``."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.0f} TB" if size >= 1000 else f"{size:.3g} TB"


def format_duration(seconds: float) -> str:
    """Format a duration with the precision that an estimate has: ``under a second``, ``about 4 s``, ``about 3.5 h``."""
    if seconds < 1:
        return "under a second"
    if seconds < 100:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 6000 else f"about {seconds / 3600:.1f} h"


@contextlib.contextmanager
def resume_hint() -> Iterator[None]:
    """Add to a ``KeyboardInterrupt`` from the block that rerunning the command resumes the work."""
    try:
        yield
    except KeyboardInterrupt as stop:
        text = str(stop) or "what is finished is kept"
        hint = "" if "the same command" in text else "; the same command continues from there"
        raise KeyboardInterrupt(f"{text}{hint}") from None


@contextlib.contextmanager
def say_each_once() -> Iterator[None]:
    """Leave out messages about progress that ``say`` logged in this block before, such as a remark of every run."""
    token = _SHOWN.set(set())
    try:
        yield
    finally:
        _SHOWN.reset(token)


def say_warning(text: str) -> None:
    """Log a warning to the logger of the calling module; of several processes only the first logs it."""
    _log(logging.WARNING, text)


def _log(level: int, text: str) -> None:
    if not launch().first:
        return
    name = sys._getframe(2).f_globals.get("__name__", "")
    logger = logging.getLogger(name) if name.startswith(f"{LOGGER.name}.") else LOGGER
    logger.log(level, "%s", "\n".join(map(escape_controls, text.split("\n"))), stacklevel=3)


def print_around_bars(text: str) -> None:
    """Print a line on stderr; progress bars of a terminal are cleared before it and drawn again after it."""
    stream = sys.stderr
    if stream is None:
        return
    bars = getattr(sys.modules.get("tqdm"), "tqdm", None)
    if bars is None:  # there are none yet; another thread may be importing tqdm
        print(text, file=stream, flush=True)
        return
    bars.write(text, file=stream)
    stream.flush()


class ConsoleHandler(logging.Handler):
    """Prints records of the loggers of cml on stderr, unless the application shows them itself."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        if self._is_shown_elsewhere(logging.getLogger(record.name)):
            return
        try:
            print_around_bars(f"{_PREFIXES.get(record.levelno, '')}{record.getMessage()}")
        except Exception:
            self.handleError(record)

    def _is_shown_elsewhere(self, logger: logging.Logger | None) -> bool:
        """Whether a logger of cml has other handlers, or one above them has one that may write to the console."""
        is_own = True
        while logger is not None:
            handlers = [handler for handler in logger.handlers if handler is not self]
            if any(is_own or _may_write_to_console(handler) for handler in handlers):
                return True
            is_own = is_own and logger is not LOGGER
            logger = logger.parent if logger.propagate else None
        return False


def _may_write_to_console(handler: logging.Handler) -> bool:
    """Whether a handler is not known to write elsewhere, as one of a log file is."""
    if isinstance(handler, logging.NullHandler):
        return False
    if isinstance(handler, logging.StreamHandler):
        return handler.stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return True


def install_console_handler() -> None:
    """Let the logger ``cml`` show messages on stderr; a second call changes nothing."""
    if not any(isinstance(handler, ConsoleHandler) for handler in LOGGER.handlers):
        LOGGER.addHandler(ConsoleHandler())
    if LOGGER.level == logging.NOTSET:  # a level that the application has set stays
        LOGGER.setLevel(logging.INFO)


install_console_handler()
