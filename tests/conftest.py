"""What the tests share: where the real data lies, and a cache of their own."""

from __future__ import annotations

import faulthandler
import gc
import http.server
import math
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from PIL import Image

from cml.errors import UserError
from cml.storage.atomic import atomic_file

if "PYTEST_XDIST_WORKER" in os.environ:  # tests run side by side: a thread each, also in the processes that they start
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Thousands of small files: a disk would wait for each that is forced onto it, and for each that is removed. Where there
# is room, they lie in memory; processes that tests start, and those that run tests side by side, inherit it.
MEMORY = Path("/dev/shm")
ROOM = 8 << 30
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"], tempfile.tempdir = str(MEMORY), str(MEMORY)

# each process that tests start would compile cml anew, and each that runs tests would rewrite their assertions anew
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# nothing of a test depends on how busy the machine is
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

ROOT = Path(__file__).resolve().parents[1]
WATCH = 400  # seconds, longer than the limit of a test by the time in which the watch may not be set again
SLOW_PLACES = {"test_guarded.py"}  # folders and files whose tests are all marked slow


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out, unread, what is marked slow as a whole or not at all: it may import for seconds what is not run."""
    named = any(collection_path.name in argument for argument in config.args)
    if named or not collection_path.match("test_*.py") or config.option.markexpr not in ("slow", "not slow"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    all_slow = collection_path.name in SLOW_PLACES or "\npytestmark = pytest.mark.slow\n" in text
    left_out = all_slow if config.option.markexpr == "not slow" else not (all_slow or "mark.slow" in text)
    return True if left_out else None  # None: others may leave it out


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow folders and files, before the marks choose what is run."""
    for item in items:
        if SLOW_PLACES & {item.path.parent.name, item.path.name}:
            item.add_marker("slow")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the error output apart from that of tests, and hear signals although the run was started in the background.

    What tests start would ignore what the run ignores.
    """
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        _watch["errors"] = os.dup(2)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


gc.disable()  # collections would take a third of the time in which the tests are imported, and find nothing


def pytest_collection_finish() -> None:
    """Collect garbage from now on, but never among modules and tests: a million objects that all stay."""
    gc.freeze()
    gc.enable()


_watch = {"set": -math.inf, "errors": 2}  # when the watch below was last set, and where it prints


def pytest_runtest_logstart() -> None:
    """End a process of the test run in which no signal is heard, inside a library, and print all stacks.

    pytest sets such a watch for each test, and waits for a thread each time.
    """
    now = time.monotonic()
    if now - _watch["set"] > WATCH / 10:
        _watch["set"] = now
        faulthandler.dump_traceback_later(WATCH, exit=True, file=int(_watch["errors"]))


@pytest.hookimpl(trylast=True)  # after pytest has removed the folders of earlier runs, which may take minutes
def pytest_sessionfinish() -> None:
    """End a process of the test run that waits for ever for one that a test left behind."""
    faulthandler.dump_traceback_later(120, exit=True, file=int(_watch["errors"]))


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Unless CML_CACHE says otherwise, nothing of the tests stays in the user's cache, nor is found there."""
    with pytest.MonkeyPatch.context() as patch:
        if "CML_CACHE" not in os.environ:
            patch.setenv("CML_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _own_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins that other tests have loaded do not stand in the commands that a test is told to run."""
    monkeypatch.setattr("cml.plugins._sources", {})


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Give the folder of a real data set by name; skip with the reason where it is missing."""
    base = Path(os.environ.get("CML_DATA", ROOT.parent / "shared" / "data"))

    def folder(name: str) -> Path:
        path = base / name
        if not path.exists():
            pytest.skip(f"real data {name!r} is not at {base} (set CML_DATA)")
        return path

    return folder


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave figures and sheets empty, for tests that do not look at them: drawing them three times takes seconds."""

    def save(figure: object, path: Path, **options: object) -> None:
        path.write_bytes(b"")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", save)
    monkeypatch.setattr("cml.comparing.report._write_run_sheet", lambda path, _: Image.new("L", (1, 1)).save(path))


@pytest.fixture
def drawn_curves() -> None:
    """The curve of each run is drawn."""


@pytest.fixture(autouse=True)
def _undrawn_curves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the curve of a run empty unless a test asks for ``drawn_curves``: hundreds of runs would draw a minute."""

    def write_curves(path: Path, metrics: object) -> None:
        with atomic_file(path) as temporary:
            Image.new("L", (1, 1)).save(temporary, "PNG")

    if "drawn_curves" not in request.fixturenames:
        monkeypatch.setattr("cml.reporting.curves.write_curves", write_curves)


@pytest.fixture
def unpublished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare no run with a published network, for tests that do not look at its row: it takes half of a second."""

    def refuse(model: object) -> None:
        raise UserError("none in tests")

    monkeypatch.setattr("cml.doors.trained_model.TrainedModel.load_published", refuse)


@pytest.fixture
def short_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train the heads of an audit for a few steps, for tests that do not look at its scores."""
    monkeypatch.setattr("cml.checks.audit._STEPS", 5)


class Requests(http.server.BaseHTTPRequestHandler):
    """Answers everything with nothing and remembers the paths asked for."""

    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    Requests.seen.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Requests) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}", Requests.seen
        listening.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        found = shutil.which(name)
        if found:
            return found
    pytest.skip("no chromium on the PATH (Debian: apt-get install chromium)")


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=60_000)
        yield started
        started.close()
