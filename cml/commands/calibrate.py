"""``cml calibrate RUN``: what an embedding distance of a run means as a label distance, with an interval."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AsJson, Data, Device, Run, StoreOfImages, show
from cml.retrieval.calibration import LEVEL
from cml.storage.downloads import check_run_folder


@dataclass(frozen=True)
class Calibrate:
    """Learn which label distance to expect for an embedding distance, from the held-out queries of a run."""

    run: Run
    gallery: Literal["test", "train"] = "test"
    """Items in which the queries are searched: the test items, or the training items, as in an index that contains
    them."""
    level: float = LEVEL
    """Fraction of label distances that the intervals should contain."""
    seed: int = 0
    """Random seed for splitting the queries into two halves."""
    data: Data = None
    features: StoreOfImages = None
    device: Device = "auto"
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Write RUN/calibration.json, and print what embedding distances mean."""
    options = parse(Calibrate, arguments, prog="cml calibrate")
    check_run_folder(options.run)
    from cml.doors.run import open_run
    from cml.retrieval.saved_calibration import CALIBRATION

    opened = open_run(options.run, data=options.data, device=options.device, features=options.features)
    calibration = opened.calibrate(gallery=options.gallery, level=options.level, seed=options.seed)
    lines = [*calibration.lines(), "", calibration.table(), "", f"calibration: {opened.folder / CALIBRATION}"]
    show(asdict(calibration), *lines, as_json=options.json)
