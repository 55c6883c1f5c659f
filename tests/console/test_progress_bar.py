from __future__ import annotations

import errno
import io
import math
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cml.cli import main
from cml.console.progress_bar import ProgressBar
from cml.models.embedding import EmbeddingModel, ModelConfig


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_in_a_log_is_a_line_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    log, clock = io.StringIO(), [0.0]
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    with ProgressBar(total=100, desc="work", unit="image") as bar:
        for step in range(100):
            clock[0] += 0.35
            bar.update()
            if step == 50:
                bar.write("skipped: one", file=sys.stderr)
    lines = log.getvalue().split("\n")
    assert "\r" not in log.getvalue()
    assert lines.pop() == ""  # the last one ends like the others
    assert lines.pop(2) == "skipped: one"
    assert [line.split("%")[0] for line in lines] == ["work:   0", "work:  29", "work:  58", "work:  87", "work: 100"]


@pytest.mark.parametrize(("kind", "method"), [(Terminal, "refresh"), (Terminal, "clear"), (io.StringIO, "refresh")])
def test_a_bar_that_cannot_be_drawn_holds_up_no_other_thread(
    kind: type[io.StringIO], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Disk(kind):  # type: ignore[misc, valid-type]
        is_full = False

        def write(self, text: str) -> int:
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(text)

    monkeypatch.setattr(sys, "stderr", log := Disk())
    with ProgressBar(total=2, mininterval=0) as bar:
        bar._next = -math.inf
        log.is_full = True
        with pytest.raises(OSError, match="No space left"):
            getattr(bar, method)()
        log.is_full = False
        other = threading.Thread(target=lambda: ProgressBar(total=1).close(), daemon=True)
        other.start()
        other.join(20)
        assert not other.is_alive()


def test_embedding_has_a_bar_where_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cml.models.embedding.BAR_DELAY", 0.0)
    model = EmbeddingModel(ModelConfig("small-cnn", "none", 8, normalize=True, image_size=(16, 16)))
    for bar in ("features", ""):
        monkeypatch.setattr(sys, "stderr", log := io.StringIO())
        model.extract(np.zeros((5, 16, 16, 3), np.uint8), bar=bar)
        assert ("features: " in log.getvalue()) == bool(bar)


def test_a_bar_that_shall_go_leaves_nothing_behind_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    with ProgressBar(total=2, leave=False, delay=2) as bar:
        bar.update(2)
    assert log.getvalue() == ""


def test_a_bar_is_redrawn_in_a_terminal_and_absent_without_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", log := Terminal())
    with ProgressBar(total=2, desc="work", mininterval=0) as bar:
        bar.update(1)
        bar.update(1)
    assert log.getvalue().count("\r") >= 2
    monkeypatch.setattr(sys, "stderr", None)
    with ProgressBar(total=2) as bar:
        bar.update(2)


def test_preparing_and_checking_into_a_pipe_say_how_far_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cml.commands.check.BAR_DELAY", 0.0)
    (tmp_path / "photos").mkdir()
    for number in range(40):
        Image.fromarray(np.full((9, 9, 3), number, np.uint8)).save(tmp_path / "photos" / f"{number}.png")
    lines = ["file_name,value", *(f"{number}.png,{number}" for number in range(40))]
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    folders = ["--images", str(tmp_path / "photos"), "--out", str(tmp_path / "out")]
    assert main(["prepare", "folder", "--labels", str(tmp_path / "labels.csv"), *folders]) == 0
    assert "prepare photos: 100% 40/40" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "out")]) == 0
    assert "check: " in capsys.readouterr().err
