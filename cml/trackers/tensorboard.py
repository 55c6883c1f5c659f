"""TensorBoard: event files in the run folder, read by ``tensorboard --logdir runs``."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from cml.errors import extra_needed
from cml.trackers import TrackedRun


class TensorBoard:
    """Event files in ``folder``; by default RUN/tensorboard."""

    def __init__(self, folder: str = "") -> None:
        with extra_needed("tensorboard", "The tracker 'tensorboard'"):
            from torch.utils.tensorboard import SummaryWriter
        self._folder, self._make, self._last = folder, SummaryWriter, 0

    def begin(self, run: TrackedRun) -> None:
        """Open the event file."""
        self._writer = self._make(self._folder or (run.folder or Path("runs")) / "tensorboard")

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        self._last = step
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, step)

    def picture(self, name: str, path: Path) -> None:
        """Add a picture."""
        picture = Image.open(path, formats=["PNG"]).convert("RGB")
        self._writer.add_image(name, np.asarray(picture), self._last, dataformats="HWC")

    def end(self) -> None:
        """Close the event file."""
        self._writer.close()
