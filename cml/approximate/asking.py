"""Rounds of questions to a slow label distance, each kept on disk, within a budget of calls or of time."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cml.approximate.asked_pairs import pairs_of_keys
from cml.array_types import Float32, Int64
from cml.distances.jobs.folder import JOB
from cml.distances.jobs.job_options import JobOptions
from cml.distances.jobs.run import run_job
from cml.distances.jobs.work import PairsWork
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.pair_function import PairFunction
from cml.errors import DataError, UserError
from cml.storage.atomic import atomic_file, delete
from cml.storage.regular_file import map_array, open_regular
from cml.storage.resumable_output import DifferentSettingsError, ResumableOutput

STRIP_SECONDS = 0.5  # what an error or a kill loses at most, unless one call takes longer
_MOST_STRIP = 1 << 16
_CHECKED = 3  # pairs that are asked for both ways
_CHECK_SHARE = 20  # of a budget of so many calls, one may be spent on a pair that is asked for both ways
_SLICES = 20  # into which a budget of time is cut, at least
_SHORTEST = 1e-7  # seconds of a call
_ROUNDING = 1e-5  # relative difference of the two ways that is rounding


Plan = Mapping[str, NDArray[Any]]
"""The pairs of a round, (P,) ``keys``, and what else has to be known of them."""


class Answers(NamedTuple):
    """Pairs and their label distances."""

    keys: Int64  # (P,) keys of the pairs
    distances: Float32  # (P,)


class Interview:
    """The questions to one label distance, and what was spent on them."""

    def __init__(
        self,
        distance: LabelDistance,
        labels: Labels,
        output: ResumableOutput,
        seconds: float | None,
        options: JobOptions,
    ) -> None:
        self._distance, self._labels, self._output, self._options = distance, labels, output, options
        self.calls, self.spent, self._seconds = 0, 0.0, seconds
        self.call_seconds = self.plan_seconds = 0.0  # seconds of one call, as last measured; 0 before that
        self._began = time.monotonic()
        self._records = {str(entry["step"]): entry for entry in output.records if "step" in entry}

    def check(
        self,
        pairs: Int64,  # (P, 2) pairs to choose from
        calls: int,
    ) -> None:
        """Ask for a few pairs both ways: whether the distance is symmetric, and how long a call takes."""
        if "check" in self._records:
            self.call_seconds = self._step("check", 0)["call_seconds"]
            return
        distance = self._distance
        if isinstance(distance, PairFunction):  # which would ask for both ways but once
            distance = replace(distance, symmetric=False)
        asked, slowest = 0, 0.0
        count = max(self._seconds is not None, min(_CHECKED, calls // _CHECK_SHARE))
        for first, second in pairs[:count].tolist():
            values = []
            for start, stop in ((first, second), (second, first)):
                before = time.monotonic()
                values.append(float(distance.pairwise(self._labels[[start]], self._labels[[stop]])[0, 0]))
                slowest = time.monotonic() - before
                asked += 1
                if self._seconds is not None and slowest > self._seconds:
                    raise UserError(
                        f"The budget of {self._seconds:g} s is shorter than one call of the label distance "
                        f"{distance.name!r}, which took {slowest:.3g} s; give a longer one."
                    )
            if not np.isclose(values[0], values[1], rtol=_ROUNDING, atol=0):
                raise UserError(
                    f"The label distance {distance.name!r} is not symmetric: it is {values[0]:g} from item {first} to "
                    f"{second}, but {values[1]:g} from {second} to {first}. Give a symmetric one, such as the mean of "
                    "both."
                )
            if self.call_seconds == 0 or slowest < self.call_seconds:
                self.call_seconds = slowest  # not the first call, which may compile
        self._step("check", asked, call_seconds=self.call_seconds)

    def ask(self, name: str, plan: Callable[[], Plan], until: Callable[[], float]) -> tuple[Answers, Plan]:
        """Ask for some pairs, all or the first ones if time ends; what was asked for before is read.

        ``plan`` chooses the pairs, unless they were chosen before and can be read. ``until`` tells after the plan at
        how many seconds of the budget to end, if it is one of time.
        """
        path = self._output.work / f"{name}.npz"
        planned = self._read_plan(path)
        if planned is None:
            planned = plan()
            with atomic_file(path) as temporary, temporary.open("wb") as file:
                np.savez(file, **planned)  # type: ignore[arg-type]
        keys = planned["keys"]
        self.plan_seconds = float(self._step(f"{name} planned", 0)["seconds"])
        parts = [np.empty(0, np.float32)]
        for start, stop in self._slices(len(keys), until()):
            parts.append(self._compute(f"{name} {start} {stop}", keys[start:stop]))
        distances = np.concatenate(parts)
        return Answers(keys[: len(distances)], distances), planned

    def _read_plan(self, path: Path) -> Plan | None:
        """The plan of an earlier process; None if there is none, or it is damaged, which the CRC-32 of a zip tells."""
        try:
            with open_regular(path) as file, np.load(file, allow_pickle=False) as archive:
                plan = {name: archive[name] for name in archive.files}
            first, second = pairs_of_keys(plan["keys"], len(self._labels)).T
        except Exception:  # of zipfile, zlib, NumPy and tokenize, which reads headers
            return None
        is_pairs = plan["keys"].dtype == np.int64 and ((first >= 0) & (first < second)).all()
        return plan if is_pairs and len(np.unique(plan["keys"])) == len(first) else None

    def _slices(self, count: int, until: float) -> Iterator[tuple[int, int]]:
        """Cut pairs into slices as long as there is time; all at once if the budget is in calls."""
        if self._seconds is None:
            if count:
                yield 0, count
            return
        start = 0
        while start < count:
            left = min(until - self.spent, self._seconds / _SLICES)
            size = int(left / max(self.call_seconds, _SHORTEST))
            if size < 1:
                return
            stop = min(count, start + size)
            yield start, stop
            start = stop

    def _compute(self, step: str, keys: Int64) -> Float32:
        """Compute the distances of pairs in a folder of their own, or read them."""
        order = np.argsort(keys)  # pairs of one first item follow each other
        work = PairsWork(self._distance, self._labels, pairs_of_keys(keys[order], len(self._labels)))
        folder = self._output.work / step.replace(" ", "-")
        strip = int(min(_MOST_STRIP, max(1, STRIP_SECONDS / max(self.call_seconds, _SHORTEST))))
        options = replace(self._options, strip_pairs=strip)
        if folder.is_dir() and not (folder / JOB).exists():  # a job is there once it is done; its record is gone
            delete(folder, strict=True)
        try:
            job = run_job(work, folder, options)
        except (DataError, DifferentSettingsError):  # its record is damaged, or of a plan that was
            delete(folder, strict=True)
            job = run_job(work, folder, options)
        answers = np.empty(len(keys), np.float32)
        answers[order] = map_array(job.path)[:, 0]
        self.call_seconds = self._step(step, len(keys))["seconds"] / len(keys)
        return answers

    def _step(self, name: str, calls: int, **more: float) -> dict[str, Any]:
        """Count a step: the seconds since the one before, or those that an earlier process recorded."""
        entry = self._records.get(name)
        if entry is None:
            entry = {"step": name, "calls": calls, "seconds": time.monotonic() - self._began, **more}
            self._output.record(entry)
        self.calls, self.spent = self.calls + entry["calls"], self.spent + entry["seconds"]
        self._began = time.monotonic()
        return entry
