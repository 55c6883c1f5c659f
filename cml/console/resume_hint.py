"""What an interrupted command tells its user: that the same command continues the work."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def resume_hint() -> Iterator[None]:
    """Add to a ``KeyboardInterrupt`` from the block that rerunning the command resumes the work.

    Yields:
        Nothing.

    Raises:
        KeyboardInterrupt: the block was interrupted; the message says what is kept and how to continue.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        text = str(stop) or "what is finished is kept"
        hint = "" if "the same command" in text else "; the same command continues from there"
        raise KeyboardInterrupt(f"{text}{hint}") from None
