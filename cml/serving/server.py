"""The server of the service: it ends within seconds of a signal, whatever is under way."""

import asyncio
import os
import socket
import time

import uvicorn
from fastapi import FastAPI

from cml.command_line.shared_options import print_text
from cml.command_line.streams import flush_results

LONGEST_END = 4  # seconds that requests have to be answered in when the service ends
_TOLD = 1.0  # seconds in which those that are refused are told


class Server(uvicorn.Server):
    """Serves on a socket until SIGINT or SIGTERM, and then ends the process."""

    def __init__(self, app: FastAPI) -> None:
        silent = uvicorn.Config(app, log_config=None, access_log=False, server_header=False)
        silent.timeout_graceful_shutdown = LONGEST_END
        super().__init__(silent)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no further requests, answer those that have begun or refuse them, and end the process."""
        await super().shutdown(sockets)
        until = time.monotonic() + _TOLD
        while self.server_state.tasks and time.monotonic() < until:
            await asyncio.sleep(0.01)
        try:
            with flush_results():
                print_text("ended")
        finally:
            # Python would wait for a search that is under way, and take seconds to take the libraries apart
            os._exit(0)
