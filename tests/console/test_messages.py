from __future__ import annotations

import io
import logging
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import cml
from cml.console.messages import (
    LOGGER,
    format_bytes,
    format_duration,
    install_console_handler,
    say,
    say_each_once,
    say_warning,
)
from cml.console.progress_bar import ProgressBar
from cml.errors import UserError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """What is on stderr; afterwards, logging is configured as before."""
    root, handlers, before = logging.getLogger(), list(LOGGER.handlers), list(logging.getLogger().handlers)
    yield lambda: capsys.readouterr().err
    LOGGER.handlers[:], root.handlers[:] = handlers, before
    LOGGER.setLevel(logging.INFO)


def test_messages_are_shown_on_stderr_of_which_a_warning_says_so(stderr: Callable[[], str]) -> None:
    install_console_handler()  # once more
    say("1/2 drawing")
    say_warning("a value is missing")
    assert stderr() == "1/2 drawing\nwarning: a value is missing\n"


def test_a_block_says_each_message_once(stderr: Callable[[], str]) -> None:
    for _ in range(2):
        with say_each_once():
            say("1/2 drawing")
            say("2/2 drawing")
            say("1/2 drawing")
    say("1/2 drawing")
    assert stderr() == "1/2 drawing\n2/2 drawing\n" * 2 + "1/2 drawing\n"


def test_a_logger_that_an_application_configured_shows_every_message_alone(stderr: Callable[[], str]) -> None:
    LOGGER.addHandler(own := logging.StreamHandler(log := io.StringIO()))
    own.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))
    say("100 % of it")
    say_warning("careful")
    assert log.getvalue() == "cml INFO 100 % of it\ncml WARNING careful\n"
    assert stderr() == ""


def test_each_module_has_its_logger(stderr: Callable[[], str]) -> None:
    module = types.ModuleType("cml.training.loop")  # the messages of whose namesake are meant
    exec("def work(say): say('working')", vars(module))
    module.work(say)
    assert stderr() == "working\n"
    logger = logging.getLogger("cml.training.loop")
    logger.addHandler(own := logging.StreamHandler(log := io.StringIO()))
    try:
        own.setFormatter(logging.Formatter("%(name)s %(funcName)s %(message)s"))
        module.work(say)
        assert log.getvalue() == "cml.training.loop work working\n"
        say("of another module")
        assert stderr() == "of another module\n"
        logging.getLogger("cml.training").setLevel("WARNING")
        module.work(say)
        module.work(say_warning)
    finally:
        logger.removeHandler(own)
        logging.getLogger("cml.training").setLevel("NOTSET")
    assert log.getvalue().count("\n") == 2
    assert stderr() == ""


def test_messages_of_a_run_have_the_names_of_their_modules(caplog: pytest.LogCaptureFixture) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    rows[:, 2] = 1.0
    with caplog.at_level("INFO", "cml"):
        cml.fit(rows, rows[:, 0], steps=2, evaluate_every=1, sampler="random(batch_size=20)")
    names = [record.name for record in caplog.records]
    assert names
    assert set(names) == {"cml.training.stages", "cml.training.parts"}
    assert caplog.records[0].filename == "stages.py"
    assert "kept step" in caplog.text


def test_logging_of_everything_to_the_console_prints_a_message_once(stderr: Callable[[], str]) -> None:
    logging.basicConfig(format="%(asctime)s %(message)s", stream=sys.stderr, force=True)
    say("1/2 drawing")
    shown = stderr()
    assert shown.count("1/2 drawing") == 1
    assert not shown.startswith("1/2")


def test_a_log_file_gets_messages_beside_the_console(stderr: Callable[[], str], tmp_path: Path) -> None:
    logging.getLogger().addHandler(file := logging.FileHandler(tmp_path / "log"))
    say("1/2 drawing")
    file.close()
    assert (tmp_path / "log").read_text() == stderr() == "1/2 drawing\n"


def test_a_level_silences_messages_about_progress(stderr: Callable[[], str]) -> None:
    LOGGER.setLevel(logging.WARNING)
    install_console_handler()
    say("1/2 drawing")
    say_warning("careful")
    assert stderr() == "warning: careful\n"


def test_a_message_is_a_line_of_its_own_above_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with ProgressBar(total=2, desc="work", mininterval=0) as bar:
        bar.update(1)
        say("a message")
    assert "\ra message\n" in terminal.getvalue()  # the bar was cleared before
    assert terminal.getvalue().rindex("work") > terminal.getvalue().index("a message")


def test_a_message_is_shown_while_another_thread_imports_the_library_of_bars(
    stderr: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))  # as it is before its first line has run
    say("1/2 drawing")
    assert stderr() == "1/2 drawing\n"


def test_only_the_first_of_several_processes_speaks(stderr: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    say("1/2 drawing")
    assert stderr() == ""


def test_messages_are_dropped_without_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    say("1/2 drawing")


def test_amounts_as_text() -> None:
    assert [format_bytes(size) for size in (5, 1600, 2.5e9, 3e15)] == ["5 bytes", "1.6 kB", "2.5 GB", "3,000 TB"]
    assert [format_duration(seconds) for seconds in (0.2, 40, 600, 7200)] == [
        "under a second",
        "about 40 s",
        "about 10 min",
        "about 2.0 h",
    ]


@pytest.mark.parametrize("character", [*"\x1b\r\x9b\u202e\u2066\u200f\u2028"], ids=ascii)
def test_a_name_cannot_reorder_or_colour_what_is_shown(character: str, caplog: pytest.LogCaptureFixture) -> None:
    name = f"a{character}gnp.exe"
    shown = f"a{ascii(character)[1:-1]}gnp.exe"
    assert str(UserError(f"The image {name} is missing.")) == f"The image {shown} is missing."
    with caplog.at_level("INFO", "cml"):
        say(f"skipped: {name}\nnext")
    assert caplog.messages == [f"skipped: {shown}\nnext"]
    assert str(UserError("Größe, 日本, שלום")) == "Größe, 日本, שלום"
