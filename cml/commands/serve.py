"""``cml serve INDEX``: searches of an index by HTTP."""

import contextlib
import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import Device, print_text

_PORTS = 65535


@dataclass(frozen=True)
class Serve:
    """Answer searches of an index over HTTP: a client sends an image, texts or vectors, and gets the nearest items."""

    index: Annotated[Path, Positional, arg(metavar="INDEX")]
    """Folder of an index from 'cml index', or output folder of 'cml embed'."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all network interfaces."""
    port: int = 8000
    """Port; 0 chooses a free one."""
    k: int = 5
    """Default number of results of a request."""
    max_k: int = 100
    """Maximum number of results that a request may ask for."""
    max_bytes: int = 10_000_000
    """Maximum size of a request body in bytes; all bodies together may have 20 times as many."""
    max_pixels: int = 25_000_000
    """Maximum number of pixels of an image. A file of 10 kB may contain 90 million pixels."""
    max_inputs: int = 256
    """Maximum number of texts or vectors in a request."""
    max_seconds: float = 30.0
    """Maximum time in seconds from the start of a request to its response."""
    max_waiting: int = 1000
    """Maximum number of waiting requests; further ones are refused with status 503."""
    batch_size: int = 32
    """Number of inputs, from one or more requests, that the model embeds at a time."""
    run: Path | None = None
    """Path of the run, if it moved since the index was built."""
    device: Device = "auto"


def run(arguments: Sequence[str]) -> None:
    """Serve until SIGINT or SIGTERM ends it."""
    options = parse(Serve, arguments, prog="cml serve")
    from cml.errors import DataError, UserError, require_extra
    from cml.searching.index_file import explain_missing

    for name, least in {"k": 1, "max_k": options.k, "max_inputs": 1, "max_waiting": 1, "batch_size": 1}.items():
        if getattr(options, name) < least:
            raise UserError(f"'--{name.replace('_', '-')}' must be {least} or more. Got {getattr(options, name)}.")
    if not (options.max_bytes > 0 and options.max_pixels > 0 and options.max_seconds > 0):
        raise UserError("'--max-bytes', '--max-pixels' and '--max-seconds' must be above 0.")
    if not options.index.exists():
        raise DataError(explain_missing(options.index))
    with require_extra("serve", "'cml serve'"):
        from cml.serving.app import create_app
        from cml.serving.server import Server
    from cml.doors.search import open_with_model
    from cml.serving.answer import Searcher
    from cml.serving.query import Limits

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    with _listen(options.host, options.port) as listener:
        searcher = Searcher(*open_with_model(options.index, options.run, device=options.device))
        with contextlib.suppress(UserError):  # a model that takes no blank input
            searcher.warm()
        limits = Limits(
            bytes=options.max_bytes,
            pixels=options.max_pixels,
            inputs=options.max_inputs,
            seconds=options.max_seconds,
            waiting=options.max_waiting,
            found=options.max_k,
            batch=options.batch_size,
        )
        app = create_app(searcher, limits, options.k)
        host, port = listener.getsockname()[:2]
        place = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        print_text(
            f"{options.index}: {len(searcher):,} items, nearest to {searcher.form}",
            f"search: {place}/search   try it in a browser: {place}/docs   also /health and /metrics",
            *_say_what_lacks(searcher.calibration is None, searcher.novelty is None),
        )
        Server(app).run(sockets=[listener])


def _say_what_lacks(no_calibration: bool, no_novelty: bool) -> list[str]:
    lines = []
    if no_calibration:
        lines.append("no intervals: the run is not calibrated (cml calibrate RUN)")
    if no_novelty:
        lines.append("no novelty: the index holds fewer than 40 items that the model was not trained on")
    return lines


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens."""
    from cml.errors import UserError

    if not 0 <= port <= _PORTS:
        raise UserError(f"'--port' must be from 0 to {_PORTS}. Got {port}.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UserError(
            f"{host}:{port} cannot be listened on ({error.strerror or error}): choose another --port or --host."
        ) from None
