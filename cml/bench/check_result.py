"""Checks of a result: what must be in its file, and what follows from its ranks, its set and the rules of its suite.

Not for: what only training again can show (``cml.bench.rerun``).
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from cml import plugins
from cml.array_types import Float64, Int64
from cml.bench.fixed_rows import FITTED_ROWS, fixed_row_config, fixed_row_ranker
from cml.bench.needed_plugins import find_needed_plugins
from cml.bench.own_metrics import OwnMetric, find_unregistered
from cml.bench.result import Result, choose, compute_scores, config_digest, read_ranks, read_result
from cml.bench.scores import FIRST, Ranks
from cml.bench.sets import BenchSet, open_set
from cml.bench.suite import (
    FIXED_ROWS,
    METHODS,
    NO_BACKBONE,
    OWN,
    SETS,
    SUITES,
    TRACKS,
    UNTRAINED,
    Method,
    Suite,
    declare_pretraining,
    method,
    track_folder,
)
from cml.errors import DataError, UserError, did_you_mean
from cml.registry import Choice
from cml.runs.search_space import with_settings
from cml.storage.provenance import as_json
from cml.training.config import TrainConfig
from cml.version import __version__

_OPTIONS_SINCE: Mapping[str, str] = {
    "missing": "0.2",
    "features": "0.2",
    "tune": "0.2",
    **dict.fromkeys(("tune_losses", "tune_rates", "tune_minutes", "tune_control"), "0.2"),
    "epochs": "0.2",
    "train_only": "0.2",
    "views": "0.2",
    "projector": "0.2",
    "head_start": "0.2",
    "random_crop": "0.2",
    "clip_gradient_value": "0.2",
    "group_column": "0.2",
}
"""An option that results before some version of cml lack -> the first version whose results have it."""
_CLOSE = 2e-5  # relative: files hold six digits
_SECONDS = 1e8  # three years: no run takes longer
_MEBIBYTES = (16, 1 << 24)  # no process that has torch takes less memory, no machine has more
_VERSION = re.compile(r"\d+(\.\d+)+[\w.+-]*")
_ROUNDING = {"oracle": 1e-5, "random": 1e-12, "frozen": 1e-2}
"""Row -> by how much label distances, random numbers or squared distances of features may differ between machines,
relative to the mean over the gallery."""


@dataclass(frozen=True)
class CheckedResult:
    """A result in which nothing is wrong.

    Attributes:
        result: The result.
        unregistered: Its metrics that were not checked, because their plugin is not loaded.
        unranked: Why the ranks of its row were not computed again; "" if they were, or if only training can do that.
    """

    result: Result
    unregistered: dict[str, OwnMetric]
    unranked: str = ""


def check_result(path: Path) -> CheckedResult:
    """Check a file of results against its ranks, its set and the rules of its suite.

    Metrics of one's own are computed again if the file holds them and they are registered; see ``find_unregistered``.

    Args:
        path: The file.

    Returns:
        The result, with what was not checked.

    Raises:
        DataError: the result does not follow from its ranks, lacks something or breaks the rules; the error says how.
        UserError: it cannot be checked here: a plugin is not loaded, or the raw files of its set are missing.
    """
    result = read_result(path)
    if result.set.startswith(OWN) and result.set not in SETS:
        raise UserError(f"{path}: the set {result.set} is somebody's own dataset: give its folder with --data.")
    for kind, name, known in (("suite", result.suite, SUITES), ("set", result.set, SETS)):
        if name not in known:
            raise DataError(f"{path}: there is no {kind} {name!r}.{did_you_mean(name, known)}")
    rules = SUITES[result.suite]
    _raise_first(path, _check_track(result))
    _explain_plugins(path, result)
    try:
        how = None if result.track == "C" else method(result.method, result.suite)
        _raise_first(path, _check_file(result, how, rules, path))
    except DataError:
        raise
    except UserError as error:  # of a name or a setting in the file
        raise DataError(f"{path}: {error}") from None
    try:
        data = open_set(result.set, result.suite)
    except UserError as error:
        raise UserError(f"{path}: its set cannot be opened: {error}") from None
    _raise_first(path, _check_rules(result, how, rules, data))
    if result.failed:
        return CheckedResult(result, {})
    ranks = read_ranks(path, result, data)
    _raise_first(path, _check_ranks(result, ranks, data))
    unranked = ""
    if how is None and result.track != "C":
        try:
            _raise_first(path, _check_fixed_row(result, ranks, data))
        except DataError:
            raise
        except UserError as error:
            unranked = str(error)
    return CheckedResult(result, find_unregistered(result.metrics), unranked)


def _raise_first(path: Path, faults: Iterable[str]) -> None:
    """Raise an error of the first fault, which later checks rely on being absent."""
    for fault in faults:
        raise DataError(f"{path}: {fault.rstrip('.')}.")


def _letter(result: Result) -> str:
    return result.track.partition("-")[0]


def _check_track(result: Result) -> Iterator[str]:
    letter, _, backbone = result.track.partition("-")
    if letter not in TRACKS or (letter == "C") == bool(backbone) or (letter == "C" and result.track != "C"):
        yield f"there is no track {result.track!r}: it is C, or A or B with a backbone, as A-efficientnet-lite0"


def _explain_plugins(path: Path, result: Result) -> None:
    """Raise an error if a plugin is missing, or is named without need: a file must not make anybody load one."""
    of_metrics = {metric.plugin for metric in result.metrics.values()}
    needed = [(name, sha256) for name, sha256 in result.plugins if name not in of_metrics]
    if needed and _needs_no_plugin(result):
        raise DataError(f"{path}: it names the plugin {needed[0][0]!r}, but its method and backbone are cml's own.")
    mend = plugins.explain_missing(needed)
    if mend:
        raise UserError(f"{path}: {mend}")


def _needs_no_plugin(result: Result) -> bool:
    """Whether the method and the backbone of a result are cml's own."""
    if result.track == "C":
        return True
    if result.method not in (*FIXED_ROWS, *METHODS):
        return False
    backbone = result.config.get("backbone")
    if not isinstance(backbone, str):
        return True
    from cml import models

    name = backbone.partition("(")[0].partition("/")[0].strip()
    if name in models.names():
        return not models.registry.origin(name)
    import torchvision

    return name in torchvision.models.list_models(module=torchvision.models)


def _check_file(result: Result, how: Method | None, rules: Suite, path: Path) -> Iterator[str]:
    """Faults that a file shows without its set."""
    kind = SETS[result.set].kind
    if result.kind != kind:
        yield f"its labels are {result.kind!r}, those of the set {result.set} are {kind!r}"
    yield from _check_origin(result, how)
    yield from _check_config(result)
    yield from _check_plugins(result, how)
    yield from _check_pretraining(result)
    if how is None:
        if result.track != "C" and result.method not in rules.fixed_rows:
            yield f"the suite {result.suite} has no row {result.method!r}"
        if result.trials or result.chosen is not None:
            yield f"{result.method} is no method that has trials"
        if result.failed:
            yield f"it says that it failed, but {result.method} is not trained"
    else:
        yield from _check_trials(result, how, rules)
    yield from _check_failure(result, path)
    yield from _check_cost(result, how)


def _check_origin(result: Result, how: Method | None) -> Iterator[str]:
    """Faults of what is said of the versions and the machine."""
    if not _VERSION.fullmatch(result.cml):
        yield f"it must name the version of cml that wrote it. Got {result.cml!r}"
    if _release(result.cml) > _release(__version__):
        yield f"cml {result.cml} wrote it, which is later than this version, {__version__}: check it with that one"
    for name in ("python", "torch", "numpy", *(["optuna"] if how is not None else [])):
        version = result.versions.get(name, "")
        if not _VERSION.fullmatch(version):
            yield f"its versions must have that of {name}. Got {version!r}"
    if not result.hardware.strip():
        yield "it must name its hardware"


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,9}", version.partition("+")[0])[:3])


def _check_config(result: Result) -> Iterator[str]:
    """Faults of the options: they must be all there, and those of the track."""
    if config_digest(result.config) != result.config_sha256:
        yield "its config does not match its config_sha256"
    if result.track == "C":
        size, name = result.config.get("dimension"), result.config.get("embeddings")
        if result.config.keys() != {"dimension", "embeddings"} or type(size) is not int or not isinstance(name, str):
            yield "its config must have the dimension and the name of its embeddings, and nothing else"
        return
    if result.method in UNTRAINED:
        if result.config:
            yield f"its config must be empty, because {result.method} has no options"
        return
    known = [option.name for option in fields(TrainConfig)]
    saved = result.config
    unknown = next((name for name in saved if name not in known), None)
    if unknown is not None:
        yield f"its config has the option {unknown!r}, which cml does not know.{did_you_mean(unknown, known)}"
    written = _release(result.cml)
    missing = [name for name in known if name not in saved and written >= _release(_OPTIONS_SINCE.get(name, "0"))]
    if missing:
        yield f"its config lacks the option {missing[0]!r}, which cml {result.cml} writes"
    for name in ("backbone", "weights", "loss"):
        if not isinstance(saved[name], str):
            yield f"its {name} must be a text. Got {saved[name]!r}"


def _check_plugins(result: Result, how: Method | None) -> Iterator[str]:
    """Faults of the plugins that are loaded."""
    changed = plugins.explain_changes(result.plugins)
    if changed:
        yield changed
    loss, backbone = ("", "") if how is None else (how.loss, result.config["backbone"])
    named = {name for name, _ in result.plugins}
    missing = next((name for name, _ in find_needed_plugins(loss, backbone, result.metrics) if name not in named), None)
    if missing is not None:
        yield f"it needs the plugin {missing!r}, but does not name it"


def _check_pretraining(result: Result) -> Iterator[str]:
    if result.track == "C":
        if not result.pretraining.strip():
            yield "it must state the data on which its network was trained before"
        return
    declared = declare_pretraining(result.config.get("weights", "none"))
    if result.pretraining != declared:
        yield f"its pretraining is {result.pretraining!r}, but with its weights it is {declared!r}"


def _check_trials(result: Result, how: Method, rules: Suite) -> Iterator[str]:
    if [trial.number for trial in result.trials] != list(range(rules.trials)):
        yield f"it should hold the trials 0 to {rules.trials - 1}, all of them"
    for trial in result.trials:
        if trial.settings != how.settings(trial.number, _letter(result)):
            yield f"trial {trial.number} has other settings than the suite draws for it"
        if (trial.score is None) != bool(trial.failed):
            yield f"trial {trial.number} must have either a score or the reason why it failed"
        if trial.score is not None and trial.score > 1:
            yield f"the score of trial {trial.number} is {trial.score}, but the best possible one is 1"
    best = getattr(choose(result.trials), "number", None)
    if result.chosen != best:
        yield f"trial {result.chosen} was chosen, but {best} has the best score on validation"


def _check_failure(result: Result, path: Path) -> Iterator[str]:
    if not result.failed:
        if result.trials and result.chosen is None:
            yield "it has scores, but all of its trials failed"
        return
    if result.scores or result.values or result.metrics or result.ranks_sha256:
        yield "it says that it failed, but has scores"
    if path.with_suffix(".npz").exists():
        yield f"it says that it failed, but its ranks are there, {path.with_suffix('.npz').name}"
    reasons = [trial.failed for trial in result.trials if trial.failed]
    if result.chosen is None and result.failed != reasons[0]:
        yield f"it says that it failed because of {result.failed!r}, but its first trial because of {reasons[0]!r}"


def _check_cost(result: Result, how: Method | None) -> Iterator[str]:
    """Faults of seconds and memory."""
    for name, seconds in result.seconds.items():
        if not 0 <= seconds <= _SECONDS:
            yield f"its seconds of {name!r} must be 0 to {_SECONDS:.0e}. Got {seconds}"
    for trial in result.trials:
        if not 0 <= trial.seconds <= _SECONDS or (trial.score is not None and not trial.seconds):
            yield f"trial {trial.number} must take more than 0 seconds, and at most {_SECONDS:.0e}. Got {trial.seconds}"
    total = sum(trial.seconds for trial in result.trials)
    if abs(result.seconds["trials"] - total) > 0.01:
        yield f"its trials take {total:.3f} seconds together, but it states {result.seconds['trials']}"
    is_fitted = result.method in FITTED_ROWS and result.track != "C"
    is_trained = (how is not None and not result.failed) or is_fitted
    if is_trained != (result.seconds["run"] > 0) and not result.failed:
        rule = "more than 0 seconds" if is_trained else "0 seconds, because nothing was trained"
        yield f"its final run must take {rule}. Got {result.seconds['run']}"
    least, most = _MEBIBYTES
    if result.memory_mb != 0 and not least <= result.memory_mb <= most:
        yield f"its memory_mb must be {least} to {most:,}, or 0 if unknown. Got {result.memory_mb}"


def _check_rules(result: Result, how: Method | None, rules: Suite, data: BenchSet) -> Iterator[str]:
    """Faults that the set and the suite show: split, data, unit, options."""
    if result.split != data.split:
        yield f"its split is {result.split[:12]}..., that of the suite's set {result.set} is {data.split[:12]}..."
    if result.data != data.data:
        yield f"its dataset is {result.data[:12]}..., the one that is prepared here {data.data[:12]}..."
    if result.unit != data.reported_unit.unit:
        yield f"its unit is {result.unit!r}, that of the set {result.set} is {data.reported_unit.unit!r}"
    if result.track == "C" or result.method in UNTRAINED:
        return
    if (data.train.vectors is None) == (result.config["backbone"] == NO_BACKBONE):
        items = "images" if data.train.vectors is None else "vectors"
        yield f"its backbone is {result.config['backbone']!r}, but the items of {result.set} are {items}"
        return
    yield from _check_options(result, how, rules, data)
    lowest = _lowest_score(data)
    for trial in result.trials:
        if trial.score is not None and trial.score < lowest:
            yield f"the score of trial {trial.number} is {trial.score}, but the worst possible one is {lowest:.6g}"


def _lowest_score(data: BenchSet) -> float:
    """A bound of the validation score from below: that of a ranking that retrieves the farthest item alone."""
    distances = data.validation_distances
    known = distances[np.isfinite(distances)]
    chance = float(known.mean(dtype=np.float64))
    nearest = np.sort(distances, axis=1)[:, :FIRST]
    best = float(nearest.mean(where=np.isfinite(nearest), dtype=np.float64))
    return (chance - float(known.max())) / (chance - best)


def fixed_row_options(result: Result, rules: Suite, data: BenchSet) -> TrainConfig:
    """Return the options that the suite gives a row without trials which uses features.

    Args:
        result: The result, whose config has the backbone.
        rules: The suite.
        data: The set.

    Returns:
        The options.
    """
    config = fixed_row_config(rules, _letter(result), result.config["backbone"])
    return replace(config, label_distance=data.label_distance)


def trained_options(
    result: Result, how: Method, rules: Suite, data: BenchSet, settings: Mapping[str, Any]
) -> TrainConfig:
    """Return the options with which the suite trains a method in its final runs.

    Args:
        result: The result, whose config has the backbone.
        how: The loss.
        rules: The suite.
        data: The set.
        settings: Those of a trial.

    Returns:
        The options, with the seed of a trial.
    """
    shared = replace(rules.config(_letter(result), result.config["backbone"]), label_distance=data.label_distance)
    return with_settings(how.options(shared, data.vectors), settings)


def _check_options(result: Result, how: Method | None, rules: Suite, data: BenchSet) -> Iterator[str]:
    if how is None:
        config = fixed_row_options(result, rules, data)
        earlier_loss = config.loss
    else:
        chosen = {} if result.chosen is None else result.trials[result.chosen].settings
        config = trained_options(result, how, rules, data, chosen)
        named_earlier = replace(how, loss=how.earlier or how.loss)
        earlier_loss = trained_options(result, named_earlier, rules, data, chosen).loss
    expected = as_json(asdict(config))
    earlier = {"loss": earlier_loss, "label_distance": data.earlier_label_distance}
    saved = result.config
    for name, value in expected.items():
        written = saved.get(name, value)  # an option that came later is not in it
        if written not in (value, earlier.get(name, value)):
            yield f"it was trained with {name} {written}, where the suite gives {value}"
    letter = _letter(result)
    folder = track_folder(letter, saved["backbone"])
    if folder != result.track and not (how is None and rules.config(letter).weights == "none"):
        yield f"its track is {result.track}, but its backbone is {saved['backbone']!r}, which belongs in {folder}"


def _check_ranks(result: Result, ranks: Ranks, data: BenchSet) -> Iterator[str]:
    """Faults of the ranks, and of the scores that follow from them."""
    for one, other in itertools.combinations(range(len(ranks.top)), 2):
        if np.array_equal(ranks.top[one], ranks.top[other]) and np.array_equal(ranks.probe[one], ranks.probe[other]):
            yield f"its final runs {one + 1} and {other + 1} have equal ranks, but other seeds"
    yield from _check_probes(ranks, data.test_distances.shape[1])
    again = compute_scores(ranks, data, own=result.metrics.keys(), intervals=result.intervals)
    for name, score in again.scores.items():
        for entry, computed in vars(score).items():
            written = getattr(result.scores.get(name), entry, None)
            if not _are_close(written, computed):
                yield f"the {entry} of {name} is {written}, but the ranks give {computed}"
    for name, metric in again.metrics.items():
        if metric != result.metrics[name]:
            yield f"its description of the metric {name} differs from that of the plugin"
    if not _are_close(result.values, again.values, 2e-4):
        yield "the scores of its queries do not follow from its ranks"


def _check_probes(ranks: Ranks, gallery: int) -> Iterator[str]:
    """Faults of the whole order of the first items, which must be that of the first ranks.

    Of items with equal scores either order is random, that of the permutation which ``rank_columns`` draws.
    """
    probes = ranks.probe.shape[2]
    places = np.full((*ranks.top.shape[:2], gallery), ranks.top.shape[2])
    np.put_along_axis(places, ranks.top.astype(np.int64), np.arange(ranks.top.shape[2])[None, None], axis=2)
    in_order = np.take_along_axis(places, ranks.probe.astype(np.int64), axis=2)  # must not fall
    for run, query in np.argwhere((np.diff(in_order, axis=2) < 0).any(axis=2)).tolist():
        draws = [np.argsort(np.random.default_rng((0, query)).permutation(many)) for many in (gallery, probes)]
        order, kept = ranks.probe[run, query].astype(np.int64), places[run, query]
        for nearer, farther in itertools.combinations(order.tolist(), 2):
            is_tie = draws[0][farther] < draws[0][nearer] and draws[1][nearer] < draws[1][farther]
            if kept[farther] < kept[nearer] and not is_tie:
                yield (
                    f"its top and its probe are not of one run: for query {query} of run {run + 1}, top has item "
                    f"{farther} before {nearer}, and probe after it"
                )


def _check_fixed_row(result: Result, ranks: Ranks, data: BenchSet) -> Iterator[str]:
    """Faults of the ranks of a row without trials, which follow from the set.

    Raises:
        UserError: they cannot be computed here; the error says why.
    """
    if result.method not in _ROUNDING:  # what is fitted needs the features of all training items: cml.bench.rerun
        return
    config = SUITES[result.suite].heads
    if result.method not in UNTRAINED:
        config = fixed_row_options(result, SUITES[result.suite], data)
        _refuse_downloads(config)
    ranker, _ = fixed_row_ranker(result.method, data, config)
    scores = np.asarray(ranker(slice(0, len(data.test_distances))), np.float64)
    first = np.ascontiguousarray(scores[:, : ranks.probe.shape[2]])
    for name, order, block in (("top", ranks.top[0], scores), ("probe", ranks.probe[0], first)):
        query = _first_disagreement(order.astype(np.int64), block, _ROUNDING[result.method])
        if query is not None:
            yield f"the ranks of query {query} in {name} are not those of the row {result.method} of this set"


def _refuse_downloads(config: TrainConfig) -> None:
    """Raise an error if a backbone that a file names may be downloaded."""
    from cml import models

    if config.weights != "none" and Choice.parse(config.backbone).name not in models.names():
        raise UserError(f"The weights of {config.backbone} may have to be downloaded; --rerun does so.")


def _first_disagreement(order: Int64, scores: Float64, tolerance: float) -> int | None:
    """The first query whose items are not in the order of their scores; None if there is none."""
    retrieved = np.take_along_axis(scores, order, axis=1)
    ideal = np.sort(scores, axis=1)[:, : order.shape[1]]
    finite = np.isfinite(scores)
    scale = np.where(finite, np.abs(scores), 0).sum(axis=1) / np.maximum(finite.sum(axis=1), 1)
    with np.errstate(invalid="ignore"):  # infinity minus infinity, which are equal
        apart = (retrieved != ideal) & ~(np.abs(retrieved - ideal) <= tolerance * scale[:, None])
    wrong = np.flatnonzero(apart.any(axis=1))
    return int(wrong[0]) if len(wrong) else None


def _are_close(written: Any, computed: Any, close: float = _CLOSE) -> bool:  # noqa: ANN401 - figures, or lists of them
    if isinstance(written, list):
        return len(written) == len(computed) and all(map(_are_close, written, computed, itertools.repeat(close)))
    if written is None or computed is None:
        return written is computed
    return math.isclose(written, computed, rel_tol=close, abs_tol=close)
