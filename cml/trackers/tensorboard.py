"""TensorBoard as a tracker (extra ``tensorboard``)."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from cml.errors import require_extra
from cml.storage.safe_paths import check_no_link
from cml.trackers.tracker import TrackedRun, Tracker


class TensorBoard(Tracker):
    """Event files in ``folder``, by default RUN/tensorboard, which ``tensorboard --logdir runs`` reads.

    Args:
        folder: Where to write them; "" for the run folder, or ``runs`` for a run without one.

    Raises:
        UserError: The library is not installed.
    """

    def __init__(self, folder: str = "") -> None:
        with require_extra("tensorboard", "The tracker 'tensorboard'"):
            from torch.utils.tensorboard import SummaryWriter
        self._folder = folder
        self._make_writer = SummaryWriter
        self._last_step = 0

    def begin(self, run: TrackedRun) -> None:
        """Open the event file."""
        if not self._folder and run.folder is not None:
            check_no_link(run.folder, "tensorboard")
        self._writer = self._make_writer(self._folder or (run.folder or Path("runs")) / "tensorboard")

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        self._last_step = step
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, step)

    def log_image(self, name: str, path: Path) -> None:
        """Add an image."""
        image = Image.open(path, formats=["PNG"]).convert("RGB")
        self._writer.add_image(name, np.asarray(image), self._last_step, dataformats="HWC")

    def end(self) -> None:
        """Close the event file."""
        self._writer.close()
