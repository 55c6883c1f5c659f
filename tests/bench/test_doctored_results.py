"""Published results that somebody has changed: each is refused, for its own reason, in one line.

What no file shows is in the last table: docs/results/benchmark.md names it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import page_examples
import pytest
from numpy.typing import NDArray

from cml.bench import check_result as checking
from cml.bench import sets
from cml.bench.check_result import check_result
from cml.bench.fixed_rows import FITTED_ROWS
from cml.bench.rerun import draw_runs
from cml.bench.result import config_digest
from cml.bench.scores import Ranks
from cml.bench.submit import submit
from cml.cli import main
from cml.errors import DataError, UserError
from cml.training.config import TrainConfig

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "results" / "2026.1" / "digits"
TRACK = "A-efficientnet-lite0"
MIB = 1 << 20


class Doctored:
    """A copy of a published result, which is changed in memory and then written.

    Attributes:
        path: Its file.
        record: What the file holds.
        arrays: Its ranks, by name; none where it failed.
    """

    def __init__(self, folder: Path, method: str = "cosent", track: str = TRACK) -> None:
        self.path = folder / "2026.1" / "digits" / track / f"{method}.json"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for source in (PUBLISHED / track).glob(f"{method}.*"):
            shutil.copyfile(source, self.path.with_suffix(source.suffix))
        self.record: dict[str, Any] = json.loads(self.path.read_text("utf-8"))
        self.arrays: dict[str, NDArray[Any]] = {}
        if self.ranks.exists():
            with np.load(self.ranks) as arrays:
                self.arrays = {name: arrays[name].copy() for name in arrays}

    @property
    def ranks(self) -> Path:
        """The file of the ranks."""
        return self.path.with_suffix(".npz")

    @property
    def config(self) -> dict[str, Any]:
        """The options."""
        config: dict[str, Any] = self.record["config"]
        return config

    @property
    def trials(self) -> list[dict[str, Any]]:
        """The trials."""
        trials: list[dict[str, Any]] = self.record["trials"]
        return trials

    def other(self, method: str, track: str = TRACK) -> dict[str, NDArray[Any]]:
        """The ranks of another published result."""
        with np.load(PUBLISHED / track / f"{method}.npz") as arrays:
            return {name: arrays[name].copy() for name in arrays}

    def save_record(self) -> None:
        """Write the file as it is in memory."""
        self.path.write_text(json.dumps(self.record), "utf-8")

    def save_config(self) -> None:
        """Write it with the digest of its options."""
        self.record["config_sha256"] = config_digest(self.config)
        self.save_record()

    def save_ranks(self) -> None:
        """Write the ranks, and the file with their digest."""
        np.savez_compressed(self.ranks, **self.arrays)
        self.save_digest()

    def save_digest(self) -> None:
        """Write the file with the digest of the ranks that are there."""
        self.record["ranks_sha256"] = hashlib.sha256(self.ranks.read_bytes()).hexdigest()
        self.save_record()

    def save_scores(self) -> None:
        """Write the ranks, and the file with the scores that follow from them."""
        from dataclasses import asdict

        from cml.bench.result import compute_scores

        intervals = self.record.get("intervals", "bootstrap")  # the published files name none
        computed = compute_scores(Ranks(**self.arrays), sets.open_set("digits", "2026.1"), intervals=intervals)
        self.record["scores"] = {name: asdict(score) for name, score in computed.scores.items()}
        self.record["values"] = computed.values
        self.save_ranks()

    def move(self, track: str) -> None:
        """Put it among the results of another track, of which it says that it is."""
        self.record["track"] = track
        moved = self.path.parents[1] / track / self.path.name
        moved.parent.mkdir(exist_ok=True)
        self.ranks.rename(moved.with_suffix(".npz"))
        self.path.unlink()
        self.path = moved
        self.save_record()


Doctor = Callable[[Doctored], object]


def _set(*keys: str | int, value: object) -> Doctor:
    """Change one entry of the file."""

    def doctor(file: Doctored) -> None:
        inner: Any = file.record
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        file.save_config() if keys[0] == "config" else file.save_record()

    return doctor


def _add(key: str, amount: float, *keys: str | int) -> Doctor:
    """Add to a figure of the file."""

    def doctor(file: Doctored) -> None:
        inner: Any = file.record[key]
        for step in keys[:-1]:
            inner = inner[step]
        inner[keys[-1]] += amount
        file.save_record()

    return doctor


def _drop(*keys: str | int) -> Doctor:
    def doctor(file: Doctored) -> None:
        inner: Any = file.record
        for key in keys[:-1]:
            inner = inner[key]
        del inner[keys[-1]]
        file.save_config() if keys[0] == "config" else file.save_record()

    return doctor


def _in_all(key: str, value: object) -> Doctor:
    """Change an entry of all trials."""

    def doctor(file: Doctored) -> None:
        for trial in file.trials:
            trial[key] = value
        file.save_record()

    return doctor


def _tune(file: Doctored) -> None:
    file.trials[1]["settings"]["learning_rate"] = 0.005
    file.save_record()


def _renumber(file: Doctored) -> None:
    file.record["trials"] = [{**file.trials[0], "number": number} for number in range(20)]
    file.save_record()


def _choose_second(file: Doctored) -> None:
    file.record["chosen"] = (file.record["chosen"] + 1) % 20
    file.save_record()


def _empty_config(file: Doctored) -> None:
    file.record["config"] = {"backbone": "resnet50"}
    file.save_config()


def _swap_nearest(file: Doctored) -> None:
    file.arrays["top"][:, :, [0, 10]] = file.arrays["top"][:, :, [10, 0]]
    np.savez_compressed(file.ranks, **file.arrays)


def _swap_unprobed(file: Doctored) -> None:
    """Exchange two items that are not among the probes, within all rankings of the first run."""
    for ranking in file.arrays["top"][0]:
        kept = np.flatnonzero(ranking >= 32)
        ranking[kept[[0, -1]]] = ranking[kept[[-1, 0]]]
    file.save_ranks()


def _repeat_best_seed(file: Doctored) -> None:
    for array in file.arrays.values():
        array[:] = array[4]
    file.save_scores()


def _one_seed_more_often(file: Doctored) -> None:
    for array in file.arrays.values():
        array[3] = array[4]
    file.save_scores()


def _leave_out_seeds(file: Doctored) -> None:
    file.arrays = {name: array[2:] for name, array in file.arrays.items()}
    file.save_scores()


def _probes_of_other_runs(file: Doctored) -> None:
    file.arrays["probe"] = np.roll(file.arrays["probe"], 1, axis=0)
    file.save_scores()


def _probes_of_labels(file: Doctored) -> None:
    """Take the probes from the ranking by the labels, which brings a rank correlation."""
    file.arrays["probe"][:] = file.other("oracle")["probe"]
    file.save_scores()


def _ranks_of(method: str, track: str = TRACK) -> Doctor:
    def doctor(file: Doctored) -> None:
        runs = len(file.arrays["top"])
        file.arrays = {name: array[:runs] for name, array in file.other(method, track).items()}
        file.save_scores()

    return doctor


def _item_twice(file: Doctored) -> None:
    file.arrays["top"][0, 0, 0] = file.arrays["top"][0, 0, 1]
    file.save_ranks()


def _item_outside(file: Doctored) -> None:
    file.arrays["top"][0, 0, 0] = 500
    file.save_ranks()


def _other_array(**arrays: NDArray[Any]) -> Doctor:
    def doctor(file: Doctored) -> None:
        file.arrays |= arrays
        file.save_ranks()

    return doctor


def _without_probe(file: Doctored) -> None:
    del file.arrays["probe"]
    file.save_ranks()


def _pickled(file: Doctored) -> None:
    file.arrays["top"] = file.arrays["top"].astype(object)
    file.save_ranks()


def _fortran(file: Doctored) -> None:
    file.arrays["top"] = np.asfortranarray(file.arrays["top"])
    file.save_ranks()


def _bytes(change: Callable[[bytes], bytes]) -> Doctor:
    def doctor(file: Doctored) -> None:
        file.ranks.write_bytes(change(file.ranks.read_bytes()))
        file.save_digest()

    return doctor


def _members(file: Doctored) -> dict[str, bytes]:
    with zipfile.ZipFile(file.ranks) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _long_member(file: Doctored) -> None:
    members = _members(file)
    with zipfile.ZipFile(file.ranks, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content + bytes(1000))
    file.save_digest()


def _short_member(file: Doctored) -> None:
    members = _members(file)
    with zipfile.ZipFile(file.ranks, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content[:-100])
    file.save_digest()


def _twice_the_member(file: Doctored) -> None:
    members = _members(file)
    with zipfile.ZipFile(file.ranks, "w") as archive, warnings.catch_warnings(action="ignore"):
        for name, content in [*members.items(), *members.items()]:
            archive.writestr(name, content)
    file.save_digest()


def _encrypted(file: Doctored) -> None:
    raw = bytearray(file.ranks.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = raw.find(signature)
        while at >= 0:
            raw[at + offset] |= 1
            at = raw.find(signature, at + 4)
    file.ranks.write_bytes(raw)
    file.save_digest()


def _unknown_compression(file: Doctored) -> None:
    raw = bytearray(file.ranks.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = raw.find(signature)
        while at >= 0:
            raw[at + offset] = 93
            at = raw.find(signature, at + 4)
    file.ranks.write_bytes(raw)
    file.save_digest()


def _long_header(file: Doctored) -> None:
    """State version 2.0, whose header may have 4 GiB."""
    members = _members(file)
    with zipfile.ZipFile(file.ranks, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content[:6] + b"\x02\x00" + content[8:])
    file.save_digest()


def _header_that_is_no_python(file: Doctored) -> None:
    members = _members(file)
    with zipfile.ZipFile(file.ranks, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content.replace(b"{'descr'", b"[[[[[[[["))
    file.save_digest()


def _flip(file: Doctored) -> None:
    """Change the compressed bytes of the first array."""
    raw = bytearray(file.ranks.read_bytes())
    raw[len(raw) // 3] ^= 0xFF
    file.ranks.write_bytes(raw)
    file.save_digest()


def _fail_with_scores(file: Doctored) -> None:
    file.record["failed"] = "its loss became nan"
    file.save_record()


def _fail(reason: str, *, ranks: bool = False) -> Doctor:
    """Say that it failed, and leave out its scores."""

    def doctor(file: Doctored) -> None:
        file.record |= {"failed": reason, "scores": {}, "values": [], "ranks_sha256": ""}
        if not ranks:
            file.ranks.unlink()
        file.save_record()

    return doctor


def _untrained_weights(file: Doctored) -> None:
    file.config["weights"] = file.record["pretraining"] = "none"
    file.save_config()


def _move_to(version: str, name: str) -> Doctor:
    def doctor(file: Doctored) -> None:
        file.record |= {"suite": version, "set": name}
        moved = file.path.parents[3] / version / name / TRACK / "cosent.json"
        moved.parent.mkdir(parents=True)
        file.path.rename(moved)
        file.path = moved
        file.save_record()

    return doctor


def _unknown_method(file: Doctored) -> None:
    file.record["method"] = "cossent"
    file.path = file.path.rename(file.path.with_name("cossent.json"))
    file.save_record()


def _rename_method(file: Doctored) -> None:
    file.record["method"] = "rkd-distance"
    for suffix in (".json", ".npz"):
        file.path.with_suffix(suffix).rename(file.path.with_name(f"rkd-distance{suffix}"))
    file.path = file.path.with_name("rkd-distance.json")
    file.save_record()


def _add_metric(file: Doctored) -> None:
    stated = {
        "columns": ["score"],
        "higher_is_better": True,
        "unit": "",
        "note": "",
        "shown": "largest_k",
        "plugin": "",
    }
    file.record["metrics"] = {"mine": stated}
    file.save_record()


def _add_score(file: Doctored) -> None:
    file.record["scores"]["accuracy"] = file.record["scores"]["score"]
    file.save_record()


def _write(content: bytes) -> Doctor:
    return lambda file: file.path.write_bytes(content)


def _repeat_key(file: Doctored) -> None:
    text = file.path.read_text("utf-8")
    file.path.write_text(text.replace('"suite"', '"suite": "2026.1", "suite"', 1), "utf-8")


def _seconds_of_trials(file: Doctored) -> None:
    file.trials[3]["seconds"] = -1.0
    file.record["seconds"]["trials"] = round(sum(trial["seconds"] for trial in file.trials), 3)
    file.save_record()


def _plugin(file: Doctored) -> None:
    file.record["plugins"] = [["evil.py", "0" * 64]]
    file.save_record()


CASES: dict[str, tuple[str, Doctor, str]] = {
    # scores and values
    "mean raised": ("cosent", _add("scores", 0.01, "score", "mean"), "the mean of score is 0.71"),
    "interval narrowed": ("cosent", _add("scores", 0.05, "score", "low"), "the low of score is 0.68"),
    "seed raised": ("cosent", _add("scores", 0.01, "ndcg", "seeds", 0), "the seeds of ndcg is"),
    "score of a query raised": ("cosent", _add("values", 0.3, 0, 1), "the scores of its queries do not follow"),
    "score left out": ("cosent", _drop("scores", "ndcg"), "it lacks the score 'ndcg'"),
    "score added": ("cosent", _add_score, "it has the score 'accuracy', which is none of the benchmark"),
    "metric named as a score": ("cosent", _add_metric, "the metric 'mine' has the name of a score"),
    "no scores": ("cosent", _set("scores", value={}), "it lacks the score"),
    "values left out": ("cosent", _set("values", value=[]), "its values must have one row per final run"),
    "values of a seed cut": ("cosent", _drop("values", 1, 0), "its values must have one row per final run"),
    "seed of a score left out": ("cosent", _drop("scores", "ndcg", "seeds", 0), "the score 'ndcg' must have 5 seeds"),
    # ranks
    "ranks edited": ("cosent", _swap_nearest, "a rank was changed"),
    "ranks edited with digest": ("cosent", _swap_unprobed, "of .* is .*, but the ranks give"),
    "best seed five times": ("cosent", _repeat_best_seed, "its final runs 1 and 2 have equal ranks"),
    "a seed twice": ("cosent", _one_seed_more_often, "its final runs 4 and 5 have equal ranks"),
    "worst seeds left out": ("cosent", _leave_out_seeds, "it must have 5 final runs. Got 3"),
    "probes of other seeds": ("cosent", _probes_of_other_runs, "its top and its probe are not of one run"),
    "probes of the labels": ("cosent", _probes_of_labels, "its top and its probe are not of one run"),
    "item twice": ("cosent", _item_twice, "top ranks an item twice"),
    "item that there is not": ("cosent", _item_outside, "top ranks the item 500, but there are only 500"),
    "oracle as random": ("random", _ranks_of("oracle"), "in top are not those of the row random"),
    "trained as oracle": ("oracle", _ranks_of("cosent"), "in top are not those of the row oracle"),
    "trained as frozen": ("frozen", _ranks_of("h-ap"), "in top are not those of the row frozen"),
    "frozen of another backbone": (
        "frozen",
        _ranks_of("frozen", "A-efficientnet-lite2"),
        "not those of the row frozen",
    ),
    "no ranks": ("cosent", lambda file: file.ranks.unlink(), "cosent.npz, which should hold its ranks, is missing"),
    # the archive of the ranks
    "shape": (
        "cosent",
        _other_array(top=np.zeros((5, 100, 99), np.uint16)),
        r"top must be \(5, 100, 100\), uint16. Got",
    ),
    "type": ("cosent", _other_array(probe=np.zeros((5, 100, 32), np.int64)), "probe must be .* uint8. Got .* int64"),
    "array missing": ("cosent", _without_probe, "it must hold the arrays top, probe. Got 'top.npy'"),
    "array added": ("cosent", _other_array(more=np.zeros(3)), "it must hold the arrays top, probe. Got 'more.npy'"),
    "array twice": ("cosent", _twice_the_member, "it must hold the arrays top, probe. Got 'probe.npy', 'probe.npy'"),
    "pickle": ("cosent", _pickled, "top must be .* Got .* object"),
    "Fortran order": ("cosent", _fortran, "top must be in C order"),
    "long array": ("cosent", _long_member, "top must have 100,000 bytes. Got more"),
    "short array": ("cosent", _short_member, "top must have 100,000 bytes. Got 99,900"),
    "long header": ("cosent", _long_header, "must be in version 1.0 of the format .npy"),
    "header that is no Python": ("cosent", _header_that_is_no_python, "the header of .* cannot be read"),
    "bytes flipped": ("cosent", _flip, "it is damaged .(Error -3|Bad CRC)"),
    "archive cut off": ("cosent", _bytes(lambda raw: raw[:-50]), "it is damaged .File is not a zip file"),
    "no archive": ("cosent", _bytes(lambda raw: b"PK nothing"), "it is damaged .File is not a zip file"),
    "empty archive": ("cosent", _bytes(lambda raw: b""), "it is damaged .File is not a zip file"),
    "padded archive": ("cosent", _bytes(lambda raw: bytes(10 * MIB) + raw), "its arrays have only 116,000"),
    "encrypted": ("cosent", _encrypted, "it is damaged .*encrypted"),
    "unknown compression": ("cosent", _unknown_compression, "it is damaged .*compression"),
    # trials
    "trial left out": ("cosent", _drop("trials", 19), "it should hold the trials 0 to 19, all of them"),
    "trial repeated": ("cosent", _renumber, "trial 1 has other settings than the suite draws for it"),
    "trial tuned": ("cosent", _tune, "trial 1 has other settings than the suite draws for it"),
    "other trial chosen": ("cosent", _choose_second, "has the best score on validation"),
    "no trial chosen": ("cosent", _set("chosen", value=None), "trial None was chosen"),
    "score above the best": (
        "cosent",
        _set("trials", 6, "score", value=1.2),
        "the score of trial 6 is 1.2, but the best",
    ),
    "score below the worst": (
        "cosent",
        _set("trials", 3, "score", value=-55.0),
        "the score of trial 3 is -55.0, but the worst",
    ),
    "score and failure": ("cosent", _set("trials", 3, "failed", value="no"), "trial 3 must have either a score or the"),
    "neither score nor failure": (
        "cosent",
        _set("trials", 3, "score", value=None),
        "trial 3 must have either a score or",
    ),
    "trials of the oracle": ("oracle", _set("chosen", value=3), "oracle is no method that has trials"),
    # options
    "config without digest": ("cosent", _set("config_sha256", value="0" * 64), "its config does not match"),
    "empty config": ("cosent", _empty_config, "its config lacks the option 'label_distance', which cml 0.1.0 writes"),
    "option left out": (
        "cosent",
        _drop("config", "steps"),
        "its config lacks the option 'steps', which cml 0.1.0 writes",
    ),
    "option unknown": (
        "cosent",
        _set("config", "step", value=9),
        "its config has the option 'step', which cml does not",
    ),
    "more steps": ("cosent", _set("config", "steps", value=900), "trained with steps 900, where the suite gives 300"),
    "other label distance": (
        "cosent",
        _set("config", "label_distance", value="euclidean"),
        "with label_distance euclidean",
    ),
    "other weights": ("cosent", _untrained_weights, "trained with weights none, where the suite gives imagenet"),
    "whole network": ("cosent", _set("config", "freeze_backbone", value=False), "trained with freeze_backbone False"),
    "other seed": ("cosent", _set("config", "seed", value=3), "trained with seed 3, where the suite gives 0"),
    "backbone is no text": ("cosent", _set("config", "backbone", value=5), "its backbone must be a text. Got 5"),
    "other backbone": (
        "cosent",
        _set("config", "backbone", value="efficientnet-lite2"),
        "belongs in A-efficientnet-lite2",
    ),
    "other track": ("cosent", lambda file: file.move("A-efficientnet-lite2"), "belongs in A-efficientnet-lite0"),
    "options of frozen": ("frozen", _set("config", "image_size", value=[224, 224]), "with image_size .*224, 224"),
    "options of the oracle": ("oracle", _set("config", "steps", value=3), "its config must be empty, because oracle"),
    # what is stated
    "pretraining": ("cosent", _set("pretraining", value="none"), "its pretraining is 'none', but with its weights"),
    "kind of label": ("cosent", _set("kind", value="poses"), "its labels are 'poses', those of the set digits are 'cl"),
    "unit": ("cosent", _set("unit", value="metres"), "its unit is 'metres', that of the set digits is"),
    "split": ("cosent", _set("split", value="0" * 64), "its split is 000000000000..., that of the suite's set"),
    "dataset": ("cosent", _set("data", value="0" * 64), "its dataset is 000000000000..., the one that is prepared"),
    "no version": ("cosent", _set("cml", value=""), "it must name the version of cml that wrote it"),
    "later version": ("cosent", _set("cml", value="99.0"), "cml 99.0 wrote it, which is later than this version"),
    "no versions": ("cosent", _set("versions", value={}), "its versions must have that of python. Got ''"),
    "a version left out": ("cosent", _drop("versions", "optuna"), "its versions must have that of optuna. Got ''"),
    "a version that is none": ("frozen", _set("versions", "torch", value="new"), "that of torch. Got 'new'"),
    "no hardware": ("cosent", _set("hardware", value=" "), "it must name its hardware"),
    "plugin that is not needed": ("cosent", _plugin, "it names the plugin 'evil.py', but its method and backbone are"),
    "method renamed": ("cosent", _rename_method, "other settings than the suite draws for it"),
    "moved": ("cosent", _set("method", value="h-ap"), "says that it is .*h-ap.json, which is not where it lies"),
    "unknown suite": ("cosent", _move_to("2020.1", "digits"), "there is no suite '2020.1'. Did you mean '2026.1'"),
    "unknown set": ("cosent", _move_to("2026.1", "digit"), "there is no set 'digit'. Did you mean 'digits'"),
    "unknown track": ("cosent", lambda file: file.move("D-efficientnet-lite0"), "there is no track 'D-efficientnet-l"),
    "unknown method": ("cosent", _unknown_method, "Unknown method 'cossent'. Did you mean 'cosent'"),
    "failed with scores": ("cosent", _fail_with_scores, "it says that it failed, but has scores"),
    "failed with ranks": ("cosent", _fail("lost", ranks=True), "it says that it failed, but its ranks are there"),
    "frozen failed": ("frozen", _fail("lost"), "it says that it failed, but frozen is not trained"),
    "other failure": ("log-ratio", _set("failed", value="bad luck"), "it failed because of 'bad luck', but its first"),
    "failure without a reason": ("log-ratio", _set("failed", value=""), "it lacks the score"),
    # seconds and memory
    "seconds left out": ("cosent", _drop("seconds", "run"), "its seconds must be those of 'run' and 'trials'"),
    "no seconds": ("cosent", _set("seconds", "run", value=0.0), "its final run must take more than 0 seconds"),
    "seconds below 0": ("cosent", _set("seconds", "run", value=-1.0), "its seconds of 'run' must be 0 to"),
    "endless": ("cosent", _set("seconds", "run", value=1e12), "its seconds of 'run' must be 0 to"),
    "seconds of no training": ("frozen", _set("seconds", "run", value=9.0), "0 seconds, because nothing was trained"),
    "seconds of the trials": (
        "cosent",
        _set("seconds", "trials", value=5.0),
        "its trials take 11.760 seconds together",
    ),
    "trial below 0 seconds": ("cosent", _seconds_of_trials, "trial 3 must take more than 0 seconds"),
    "trials without seconds": ("cosent", _in_all("seconds", 0.0), "trial 0 must take more than 0 seconds"),
    "memory below 0": ("cosent", _set("memory_mb", value=-5), "its memory_mb must be 16 to"),
    "memory of no machine": ("cosent", _set("memory_mb", value=10**12), "its memory_mb must be 16 to"),
    "memory too little": ("cosent", _set("memory_mb", value=3), "its memory_mb must be 16 to"),
    # the file
    "text for a number": ("cosent", _set("memory_mb", value="many"), "the entry 'memory_mb' cannot be 'many'"),
    "entry left out": ("cosent", _drop("versions"), "versions"),
    "no JSON": ("cosent", _write(b"\x00\x01"), "should hold a result of the benchmark"),
    "key twice": ("cosent", _repeat_key, "names the key 'suite' twice"),
    "nested": ("cosent", _write(b"[" * 200_000), "is nested too deep"),
    "huge": ("cosent", _write(b" " * (17 * MIB)), "has 17,825,792 bytes. A result of the benchmark has at most"),
}


@pytest.fixture(scope="module", autouse=True)
def _set_is_open() -> Iterator[None]:
    """Other test modules replace the suites."""
    sets.open_set.cache_clear()
    yield
    sets.open_set.cache_clear()


@pytest.mark.parametrize("name", CASES)
def test_a_doctored_result_is_refused_with_its_reason(name: str, tmp_path: Path) -> None:
    method, doctor, reason = CASES[name]
    file = Doctored(tmp_path, method)
    doctor(file)
    with pytest.raises(DataError, match=reason) as error:
        check_result(file.path)
    line = str(error.value)
    assert str(tmp_path) in line
    assert "\n" not in line
    assert len(line) < 600
    assert line[-1] in ".?"


def test_published_results_agree(tmp_path: Path) -> None:
    for method in ("cosent", "log-ratio", "frozen", "label-mds", "oracle", "random"):
        assert not check_result(Doctored(tmp_path, method).path).unranked


def test_published_results_hold_every_option_of_the_version_that_wrote_them() -> None:
    """A new option of training goes into ``_OPTIONS_SINCE``, or the published results are refused."""
    known = {option.name for option in fields(TrainConfig)} - checking._OPTIONS_SINCE.keys()
    for path in PUBLISHED.parent.rglob("*.json"):
        config = json.loads(path.read_text("utf-8"))["config"]
        assert not config or config.keys() >= known


def test_an_option_that_came_later_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Doctored(tmp_path)
    del file.config["memory"]
    file.save_config()
    with pytest.raises(DataError, match="its config lacks the option 'memory'"):
        check_result(file.path)
    monkeypatch.setattr(checking, "_OPTIONS_SINCE", {**checking._OPTIONS_SINCE, "memory": "0.2.0"})
    check_result(file.path)


def _fill_with_zeros(path: Path, shapes: dict[str, tuple[int, ...]], sizes: dict[str, int]) -> None:
    """Write arrays of zeros that are larger than their headers say."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, shape in shapes.items():
            kind = "<u2" if name == "top" else "|u1"
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                header = {"descr": kind, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                for _ in range(sizes[name] // MIB):
                    member.write(bytes(MIB))


@pytest.mark.parametrize(
    ("shape", "size", "reason"),
    [
        ((5, 100, 800_000), 256, "but its arrays have only 116,000"),  # of a file of 1 MiB
        ((5, 100, 800_000), 48, r"top must be \(5, 100, 100\), uint16. Got"),
        ((5, 100, 100), 48, "top must have 100,000 bytes. Got more"),
    ],
)
def test_ranks_that_unpack_to_much_are_refused_in_little_memory(
    shape: tuple[int, ...], size: int, reason: str, tmp_path: Path
) -> None:
    file = Doctored(tmp_path)
    check_result(file.path)  # what is loaded once
    _fill_with_zeros(file.ranks, {"top": shape, "probe": (5, 100, 32)}, {"top": size * MIB, "probe": MIB})
    file.save_digest()
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=reason):
            check_result(file.path)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


def test_values_do_not_decide_how_much_is_read(tmp_path: Path) -> None:
    file = Doctored(tmp_path)
    file.record["values"] = [[0] * 500_000 for _ in range(5)]
    file.save_record()
    with pytest.raises(DataError, match=r"it must have 100 queries\. Got 500000"):
        check_result(file.path)


def test_a_bad_file_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    doctored = {}
    for method in ("cosent", "h-ap", "soft-target", "rkd-distance"):
        doctored[method] = Doctored(tmp_path / "results", method)
    doctored["cosent"].path.write_text("[" * 100_000, "utf-8")
    _flip(doctored["h-ap"])
    _plugin(doctored["soft-target"])
    Doctored(tmp_path / "results", "oracle")
    assert main(["bench", "check", str(tmp_path / "results")]) == 2
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert len(lines) == 3
    for line, method in zip(lines, ("cosent", "h-ap", "soft-target"), strict=True):
        assert f"{method}.json" in line
    assert said.err.strip() == "error: 3 of 5 results cannot be trusted."


def test_a_set_that_is_not_here_leaves_results_unchecked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CML_TUB", raising=False)
    steering = tmp_path / "results" / "2026.1" / "steering" / TRACK
    shutil.copytree(PUBLISHED.parent / "steering" / TRACK, steering)
    for path in steering.iterdir():
        if path.stem not in ("cosent", "h-ap"):
            path.unlink()
    record = json.loads((steering / "h-ap.json").read_text("utf-8"))
    (steering / "h-ap.json").write_text(json.dumps({**record, "memory_mb": -1}), "utf-8")
    Doctored(tmp_path / "results", "oracle")
    assert main(["bench", "check", str(tmp_path / "results")]) == 2
    said = capsys.readouterr()
    assert "Not checked: " in said.out
    assert "cosent.json: its set cannot be opened: its raw files are the user's own: set CML_TUB" in said.out
    assert "h-ap.json: its memory_mb must be" in said.out  # what the file alone shows
    assert "error: 1 of 3 results cannot be trusted. 1 of 3 results were not checked." in said.err


def test_the_ranks_of_a_row_whose_backbone_is_not_here_are_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise UserError("It needs the extra 'pretrained'.")

    monkeypatch.setattr("cml.bench.check_record.cache_folder", lambda: tmp_path / "cache")
    file = Doctored(tmp_path / "results", "frozen")
    Doctored(tmp_path / "results", "cosent")
    board = ["bench", "table", str(tmp_path / "results")]
    assert main(board) == 0
    said = capsys.readouterr().out
    assert said.count("?") == 3  # two figures, and what it means
    assert "2 results were not checked on this computer, ? marks them: run cml bench check." in said
    with monkeypatch.context() as patch:
        patch.setattr(checking, "fixed_row_ranker", refuse)
        assert main(["bench", "check", str(tmp_path / "results")]) == 0
    assert f"Not checked: the ranks of {file.path}. It needs the extra 'pretrained'." in capsys.readouterr().out
    assert main([*board, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unchecked"] == {"frozen": ["digits"]}
    assert main(["bench", "page", str(tmp_path / "results"), "--out", str(tmp_path / "board.html")]) == 0
    assert "1 result was not checked on this computer, ? marks it" in (tmp_path / "board.html").read_text("utf-8")
    assert main(["bench", "submit", str(tmp_path / "results"), "--into", str(tmp_path / "project")]) == 0
    file.record["hardware"] = "another"
    file.save_record()
    assert main(board) == 0
    assert "1 result was not checked" in capsys.readouterr().out  # the file has changed


def _noisy_oracle(file: Doctored) -> None:
    """Rank by the label distances with noise, and compute all scores from that."""
    distances = sets.open_set("digits", "2026.1").test_distances
    rng = np.random.default_rng(0)
    runs = [distances + rng.normal(scale=0.8, size=distances.shape) for _ in range(5)]
    ranks = Ranks.from_rankers([run.__getitem__ for run in runs], *distances.shape)
    file.arrays = {"top": ranks.top, "probe": ranks.probe}
    file.save_scores()


def _invent_trials(file: Doctored) -> None:
    for trial in file.trials:
        trial["score"] = round(min(1.0, trial["score"] / 2 + 0.2), 6)
    file.save_record()


def _noisy_label_mds(file: Doctored) -> None:
    ranks = file.other("h-ap")
    file.arrays = {name: array[:1] for name, array in ranks.items()}
    file.save_scores()


def _claim_failure(file: Doctored) -> None:
    for trial in file.trials:
        trial |= {"score": None, "failed": "its loss became nan"}
    file.record["chosen"] = None
    file.record["config"] = json.loads((file.path.with_name("log-ratio.json")).read_text("utf-8"))["config"]
    file.config["loss"] = "cosent"
    file.record["config_sha256"] = config_digest(file.config)
    file.record["seconds"]["run"] = 0.0
    _fail("its loss became nan")(file)


UNSEEN: dict[str, tuple[str, Doctor, str]] = {
    "ranks of the labels with noise": ("cosent", _noisy_oracle, "final run"),
    "invented trials": ("cosent", _invent_trials, "trial"),
    "invented label MDS": ("label-mds", _noisy_label_mds, "row"),
    "a failure that did not happen": ("cosent", _claim_failure, "trial"),
    "other seconds, memory or hardware": ("cosent", _set("hardware", value="pocket calculator"), ""),
}


@pytest.mark.slow  # the features of all items of the set
@pytest.mark.parametrize("name", UNSEEN)
def test_what_no_file_shows_is_on_the_page_and_shown_by_running_it_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "results" / "benchmark.md").read_text("utf-8")
    assert name in " ".join(page.split())
    method, doctor, kind = UNSEEN[name]
    Doctored(tmp_path, "log-ratio")
    file = Doctored(tmp_path, method)
    doctor(file)
    checked = check_result(file.path)
    if not kind:
        return
    drawn = next(run for run in draw_runs({file.path: checked}, 100) if run.kind == kind)
    monkeypatch.setattr("cml.bench.rerun.draw_runs", lambda *_: [drawn])
    assert main(["bench", "check", str(file.path), "--rerun", "1"]) == 2
    said = capsys.readouterr()
    assert f"Rerun differs: {drawn}: " in said.out
    assert "error: 1 run differs from the files." in said.err


@pytest.mark.slow
def test_published_runs_come_out_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [Doctored(tmp_path / "results", method) for method in ("log-ratio", "oracle", "random", "frozen")]
    assert main(["bench", "check", str(tmp_path / "results"), "--rerun", "100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("Rerun: ") for line in lines) == 20 + len(files[1:])
    assert "score 1.0, in the file 1.0; 100 % of the first 10 items are the same" in "".join(lines)
    assert lines[-1] == "4 results agree with ranks, splits and the rules."
    assert main(["bench", "check", str(tmp_path / "results"), "--rerun", "-1"]) == 2


def test_a_run_that_is_impossible_here_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise UserError("It needs the extra 'pretrained'.")

    for method in ("oracle", "label-mds"):
        Doctored(tmp_path, method)
    monkeypatch.setitem(FITTED_ROWS, "label-mds", refuse)
    assert main(["bench", "check", str(tmp_path), "--rerun", "2"]) == 2
    said = capsys.readouterr()
    assert "label-mds.json: It needs the extra 'pretrained'." in said.out
    assert "oracle.json: score 1.0" in said.out
    assert "error: 1 run was not possible here." in said.err


def test_runs_are_drawn_without_repetition_and_final_runs_as_often_as_trials(tmp_path: Path) -> None:
    path = Doctored(tmp_path).path
    checked = {path: check_result(path)}
    every = draw_runs(checked, 100)
    assert len(set(every)) == len(every) == 25
    first = [draw_runs(checked, 1)[0].kind for _ in range(400)]
    assert 140 < first.count("final run") < 260  # 200 and six standard deviations


OWN = """
import cml.losses
import cml.retrieval.metrics
from cml.losses import LabelDistanceLoss
from cml.retrieval.metrics import Metric, MetricInfo

@cml.losses.register("uniform")
class Uniform(LabelDistanceLoss):
    def forward(self, embeddings, label_distances):
        return embeddings.sum()

@cml.retrieval.metrics.register("scale")
class Scale(Metric):
    info = MetricInfo(higher_is_better=True)
    needs = "top_k"
    ks = (5,)

    def measure(self, ranking):
        return ranking.retrieved[:, 0]
"""


def test_a_plugin_whose_names_are_words_of_options_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "words.py").write_text(OWN, "utf-8")
    folder = tmp_path / "results"
    for method in ("cosent", "log-ratio", "oracle"):
        Doctored(folder, method)
    with pytest.MonkeyPatch.context() as patch:
        page_examples.forget_plugins(patch)
        assert main(["bench", "check", str(folder), "--plugin", str(tmp_path / "words.py")]) == 0
    page_examples.forget_modules()
    assert capsys.readouterr().out.strip() == "3 results agree with ranks, splits and the rules."


def test_submitting_blames_the_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Doctored(tmp_path / "results")
    written: list[Path] = []

    def write(path: Path, content: bytes) -> int:
        written.append(path)
        with path.open("wb") as stream:
            stream.write(content[:100])
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(content)

    target = tmp_path / "project" / "2026.1" / "digits" / TRACK
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write)
        with pytest.raises(OSError, match="No space left") as error:
            submit(tmp_path / "results", tmp_path / "project")
    assert error.value.filename == str(target / "cosent.json")
    assert [path.name for path in target.iterdir()] == ["cosent.npz"]  # the ranks first, and nothing by halves
    shutil.rmtree(target)
    with monkeypatch.context() as patch:
        patch.setattr("cml.bench.submit.check_result", _check_and_break(file.ranks))
        with pytest.raises(OSError, match=r"results.*cosent\.npz"):
            submit(tmp_path / "results", tmp_path / "project")
    assert not target.exists()


def test_the_series_of_mutations_finds_nothing() -> None:
    from hostile_results import series

    assert series(30, seed=5, report=lambda text: None) == {}


def _check_and_break(ranks: Path) -> Callable[[Path], object]:
    def check(path: Path) -> object:
        checked = check_result(path)
        ranks.unlink()
        return checked

    return check
