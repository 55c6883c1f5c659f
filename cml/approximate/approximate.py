"""``cml.distances.approximate``: neighbour lists and an embedding from few calls of a slow label distance.

A twentieth of the budget, but no more than half a per cent of all pairs, is asked for at random. Then rounds follow: a
map of the user's vectors is learned from all answers so far (``cml/training/pair_map.py``), and the nearest pairs of
its embedding are asked for. From the third round on, neighbours of neighbours by the answers are candidates as well:
pairs that are both come first, and the others of either kind get shares by what that kind has brought before.
What is left goes to a sample of items, by which the recall of the lists is estimated. Each round is a distance job
whose strips are kept, so that an interrupted call continues where it stopped. Not for: label distances that are fast
enough for all pairs, whose lists ``LabelDistance.neighbors`` and ``cml.distances.jobs`` compute exactly.
"""

import contextlib
import functools
import hashlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from cml.approximate.asked_pairs import (
    ChosenPairs,
    choose_nearest,
    choose_of_neighbors,
    combine_choices,
    draw_pairs,
    find_share,
    pairs_of_keys,
)
from cml.approximate.asking import Answers, Interview, Plan
from cml.approximate.budget import Budget
from cml.approximate.learned_model import make_model
from cml.approximate.recall import RecallEstimate, Sample, draw_sample, estimate_recall
from cml.approximate.result import (
    DISTANCES,
    EMBEDDINGS,
    IDS,
    ITEMS,
    KNOWN,
    MANIFEST,
    MODEL,
    PARTS,
    Approximation,
    Spent,
)
from cml.approximate.start_vectors import StartVectors, check_vectors, choose_start
from cml.array_types import Float32, Floating
from cml.console.messages import say, say_warning
from cml.data.dataset_items import has_columns
from cml.distances import LabelDistance, Labels, Neighbors, SparseDistances, as_label_distance
from cml.distances.blas_threads import one_blas_thread
from cml.distances.jobs.job_options import JobOptions
from cml.distances.nearest import check_k
from cml.distances.pair_function import PairFunction
from cml.distances.sparse_distances import LabelRows
from cml.errors import UserError
from cml.items.label_inputs import read_label_frame
from cml.option_types import check_options
from cml.processes.cores import CORES
from cml.registry import Choice
from cml.storage.atomic import atomic_file, delete
from cml.storage.checksums import FILES, digest_files
from cml.storage.downloads import cache_folder
from cml.storage.json_file import write_json
from cml.storage.resumable_output import ResumableOutput, resumable_output
from cml.training.pair_map import KnownLists, PairMap, learn_map

REVISION = 2  # raise it when the same options ask for other pairs than before
RANDOM_SHARE = 0.005  # of all pairs: the far distances keep their ranks
_MOST_RANDOM = 0.05  # of the budget: of a small one, the nearest pairs need the larger part
_SAMPLE_SHARE = 0.05  # of the budget, for the estimate of recall ...
_FEW_SAMPLED, _MOST_OF_FEW = 512, 0.1  # ... a larger share where that gives fewer calls than these, for 32 items ...
_MOST_SAMPLED = 256_000  # ... and no more calls than these, for 1,000 items
ROUNDS = 6
_FIRST_OF_NEIGHBORS = 3  # the round from which on lists are good enough for neighbours of neighbours
_FIRST_SHARE = 0.5  # of neighbours of neighbours in that round, among the pairs that are not nearest as well
_MAP_SHARE = 0.03  # of a budget of time, that a map is learned for at most
_WRITING_SECONDS, _MOST_WRITING = 0.6, 0.1  # for the result, but no larger share of a budget of time
_AHEAD = 1.5  # times as many pairs are planned as there seems to be time for


def approximate(
    distance: Any,  # noqa: ANN401 - as ``as_label_distance`` takes it
    labels: Any,  # noqa: ANN401 - N labels of any form
    vectors: Any,  # noqa: ANN401 - checked here
    budget: str | float | Budget,
    *,
    k: int = 10,
    out: Path | str | None = None,
    seed: int = 0,
    threads: int = CORES,
    scheduler: str = "",
    item_ids: Sequence[str] = (),
    quiet: bool = False,
) -> Approximation:
    """Find the nearest neighbours by a slow label distance, and learn an embedding that follows it, from few calls.

    Args:
        distance: The label distance: a function of two labels, a ``LabelDistance``, or a text as on the command line.
            It must be symmetric, which is checked on three pairs. A function whose code you may mend on the way, or
            that counts its calls or fills a cache, needs a version to be continued:
            ``cml.distances.as_label_distance(function, version="1")``.
        labels: N labels, or a data frame with a row for each item.
        vectors: (N, F) vectors to start from, an array or a tensor, such as frozen features or simple statistics of
            the labels. The better they follow the label distance, the fewer calls are needed; what is learned is kept
            only where it is better than they are. None for those of the label distance (``start_vectors``), which
            ``dtw`` and ``frechet`` have, and distances of numbers.
        budget: ``"1%"`` of all pairs (or the float 0.01), ``"200000"`` calls (or that number), or a time for everything
            together: ``"90s"``, ``"30min"``, ``"2h"``. A budget of all pairs and more asks for all of them. Lists of k
            neighbours take N k / 2 calls at least, and several times as many to be good; a budget below that is said.
        k: Neighbours in a list, 1 to N - 1.
        out: Folder that keeps all answers: the same call continues an interrupted one there. None for one in the cache;
            for a function that is not registered, for nothing to be kept.
        seed: Random seed.
        threads: Strips of pairs computed at the same time.
        scheduler: Address of a Dask scheduler, ``tcp://host:port``, whose workers compute; "" for this process.
        item_ids: Ids of the N items, stored beside the result.
        quiet: True for no messages and no progress bar.

    Returns:
        The lists, all known distances, the embedding and an estimate of the recall of the lists.

    Raises:
        UserError: The budget is 0, less than one call or no budget, vectors and labels do not fit, the label distance
            fails, is negative, NaN or not symmetric, or ``out`` holds something else. Answers so far are kept.

    Example:
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(60, 3))
        >>> def slow(a, b):
        ...     return float(abs(a - b).sum())
        >>> approximation = approximate(slow, list(rows), rows, budget="40%", k=3, quiet=True)
        >>> approximation.neighbors.ids.shape, approximation.spent.calls
        ((60, 3), 708)
    """
    allowed = Budget.parse(budget)
    chosen = _as_symmetric(as_label_distance(distance))
    if has_columns(labels):
        labels, _ = read_label_frame(labels, chosen.name, quiet=quiet)
    chosen = chosen if isinstance(labels, Labels) else chosen.fit(labels)
    encoded = chosen.encode(labels)
    items = len(encoded)
    check_k(k, items)
    allowed.calls_of(items)  # a share of less than one call is refused before anything is written
    rows = check_vectors(_start_vectors(chosen, encoded) if vectors is None else vectors, items)
    options = check_options(JobOptions(threads=threads, scheduler=scheduler, bar_after=None if quiet else 1.0))
    terms = {
        "revision": REVISION,
        "labels_fingerprint": encoded.fingerprint(),
        "distance_fingerprint": chosen.fingerprint(),
        "vectors": hashlib.sha256(rows.tobytes()).hexdigest(),
        "budget": {name: value for name, value in asdict(allowed).items() if value is not None},
        "k": k,
        "seed": seed,
    }
    about = {"label_distance": str(Choice(chosen.name, chosen.settings()))}
    with contextlib.ExitStack() as stack:
        kept = chosen.is_stored if out is None else True
        if out is not None:
            folder = Path(out)
        elif kept:
            folder = cache_folder() / "distances" / "approximate" / _digest(terms)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "approximation"
        output = stack.enter_context(resumable_output(folder, terms, PARTS, MANIFEST, about=about))
        if output.manifest is None:
            with one_blas_thread():
                work = _Approximating(chosen, encoded, rows, allowed, k, seed, output, options, quiet=quiet)
                try:
                    work.write(item_ids, about)
                except UserError as error:
                    if not kept or not output.records:
                        raise
                    kept_answers = f"{folder} keeps the answers so far: the same call continues."
                    raise UserError(f"{error} {kept_answers}") from error
        result = Approximation.open(folder)
        return result if kept else replace(result, folder=None)


def _start_vectors(distance: LabelDistance, labels: Labels) -> Floating:
    """The vectors of a label distance that has some."""
    vectors = distance.start_vectors(labels)
    if vectors is None:
        raise UserError(
            f"The label distance {distance.name!r} has no vectors of its own to start from: give 'vectors', an array "
            "(N, F) such as frozen features."
        )
    return vectors


def _as_symmetric(distance: LabelDistance) -> LabelDistance:
    """A function as one that is the same both ways, which a few pairs will show."""
    return replace(distance, symmetric=True) if isinstance(distance, PairFunction) else distance


def _sample_calls(calls: int) -> int:
    """How many of the calls of a budget go to the sample."""
    few = min(_FEW_SAMPLED, int(_MOST_OF_FEW * calls))
    return min(_MOST_SAMPLED, max(few, int(_SAMPLE_SHARE * calls)))


def _digest(terms: dict[str, Any]) -> str:
    return hashlib.sha256(repr(sorted(terms.items())).encode()).hexdigest()[:32]


class _Approximating:
    """An approximation under way."""

    def __init__(
        self,
        distance: LabelDistance,
        labels: Labels,
        vectors: Float32,
        budget: Budget,
        k: int,
        seed: int,
        output: ResumableOutput,
        options: JobOptions,
        *,
        quiet: bool,
    ) -> None:
        self._distance, self._labels, self._vectors, self._budget = distance, labels, vectors, budget
        self._k, self._seed, self._output, self._options, self._quiet = k, seed, output, options, quiet
        self._items = len(labels)
        self._pairs = self._items * (self._items - 1) // 2
        self._interview = Interview(distance, labels, output, budget.seconds, options)
        self._known = Answers(np.empty(0, np.int64), np.empty(0, np.float32))

    def write(self, item_ids: Sequence[str], about: dict[str, Any]) -> None:
        """Ask, learn, and write the result."""
        calls = self._budget.calls_of(self._items)
        self._warn(calls)
        if calls >= self._pairs and self._budget.seconds is None:
            self._say(f"A budget of {self._budget} pays for all {self._pairs:,} pairs: all are computed.")
            everything = draw_pairs(self._items, self._pairs, np.random.default_rng(0))
            self._ask("all", lambda: {"keys": np.sort(everything)})
            start = self._choose_start()
            learned = self._learn(start)
            recall = None
        else:
            start = self._ask_in_rounds(calls)
            learned = self._learn(start)
            recall = self._ask_for_sample(start.embed(learned), calls)
        if len(self._known.keys) == self._pairs:
            recall = RecallEstimate(1.0, 1.0, 1.0, 0)
        known, lists = self._collect(), self._list()
        spent = Spent(self._items, self._k, self._interview.calls, self._pairs, recall)
        folder = self._output.work
        for name, array in ((IDS, lists.ids), (DISTANCES, lists.distances), (EMBEDDINGS, start.embed(learned))):
            with atomic_file(folder / name) as temporary, temporary.open("wb") as file:
                np.save(file, array)
        known.save(folder / KNOWN)
        delete(folder / MODEL)  # which an earlier process may have left half-written
        make_model(start, learned, self._distance, self._labels, self._seed).save(folder / MODEL)
        if item_ids:
            write_json(folder / ITEMS, list(item_ids))
        manifest = {**about, "unit": self._distance.unit, "spent": asdict(spent)}
        self._output.finish({**manifest, FILES: digest_files(folder, PARTS)})

    def _ask_in_rounds(self, calls: int) -> StartVectors:
        """Ask for random pairs, then for the nearest in embeddings; returns the start of these."""
        rng = np.random.default_rng(self._seed)
        count = max(1, min(round(RANDOM_SHARE * self._pairs), int(_MOST_RANDOM * calls)))
        random = draw_pairs(self._items, count, rng)
        self._interview.check(pairs_of_keys(random, self._items), calls)
        if self._budget.seconds is not None and not self._options.scheduler:
            self._warn(self._options.threads * self._budget.seconds / max(self._interview.call_seconds, 1e-9))
        self._ask("random", lambda: {"keys": random}, lambda: _MOST_RANDOM * (self._budget.seconds or np.inf))
        if not len(self._known.keys):
            raise UserError(f"The budget of {self._budget} is over before two items were compared. Give a longer one.")
        if not np.isfinite(self._known.distances).any():
            raise UserError(
                f"All {len(self._known.keys):,} random pairs are at an infinite label distance, so that none can be "
                "compared: nothing can be learned from them. The label distance should be finite for most pairs."
            )
        start, sampled, share = self._choose_start(), _sample_calls(calls), 0.0
        for number in range(1, ROUNDS + 1):
            if number == _FIRST_OF_NEIGHBORS:
                share = _FIRST_SHARE
            asked_before = len(self._known.keys)
            left = ROUNDS - number + 1
            wanted = max(0, calls - sampled - self._interview.calls) // left
            if self._budget.seconds is not None:
                affordable = self._seconds_for_rounds / left / max(self._interview.call_seconds, 1e-9)
                wanted = min(wanted, 1 + int(_AHEAD * affordable))
            plan = self._ask(
                f"round {number}",
                functools.partial(self._plan, start, wanted, share),
                functools.partial(self._end_of_round, left),
            )
            if number >= _FIRST_OF_NEIGHBORS:
                keys = self._known.keys[asked_before:]
                share = find_share(ChosenPairs(keys, plan["kinds"][: len(keys)]), self._list())
        return start

    def _ask_for_sample(self, embeddings: Float32, calls: int) -> RecallEstimate | None:
        """Ask for the pairs of a sample of items, and estimate the recall of the lists without them."""
        lists = self._list()
        count = calls - self._interview.calls
        if self._budget.seconds is not None:
            count = min(count, _sample_calls(self._interview.calls))

        def plan() -> Plan:
            asked = np.sort(self._known.keys)
            sample = draw_sample(embeddings, asked, count, np.random.default_rng((self._seed, 1)))
            keys = sample.keys(self._items)
            asked = np.sort(np.concatenate([asked, keys]))
            nearest = choose_nearest(embeddings, asked, count - len(keys))
            return {"keys": np.concatenate([keys, nearest]), **sample._asdict()}

        drawn = self._ask("sample", plan, lambda: self._interview.spent + self._seconds_left)
        whole = Sample(*(drawn[name] for name in Sample._fields))
        sample, distances = whole.select(self._known, self._items)
        return estimate_recall(lists, sample, distances)

    @property
    def _seconds_left(self) -> float:
        """Of a budget of time; infinite of another."""
        if self._budget.seconds is None:
            return np.inf
        writing = min(_WRITING_SECONDS, _MOST_WRITING * self._budget.seconds)
        return max(0.0, self._budget.seconds - writing - self._interview.spent)

    @property
    def _seconds_for_rounds(self) -> float:
        """Of a budget of time, without those of the sample; infinite of another."""
        return max(0.0, self._seconds_left - _SAMPLE_SHARE * (self._budget.seconds or 0))

    def _end_of_round(self, left: int) -> float:
        """When a round has to end, of which as many are left: each later one learns a map, and so does the result."""
        interview = self._interview
        return interview.spent + max(0.0, self._seconds_for_rounds - left * interview.plan_seconds) / left

    def _choose_start(self) -> StartVectors:
        return choose_start(self._vectors, pairs_of_keys(self._known.keys, self._items), self._known.distances)

    def _plan(self, start: StartVectors, count: int, share: float) -> Plan:
        """Choose pairs by the answers so far: the nearest of an embedding, and a share of neighbours of neighbours."""
        asked = np.sort(self._known.keys)
        nearest = choose_nearest(start.embed(self._learn(start)), asked, count)
        of_neighbors = choose_of_neighbors(self._list(), asked, count) if share else np.empty(0, np.int64)
        return combine_choices(nearest, of_neighbors, count, share)._asdict()

    def _ask(self, name: str, plan: Callable[[], Plan], until: Callable[[], float] = lambda: np.inf) -> Plan:
        """Ask for the pairs of a plan, and keep the answers."""
        answers, planned = self._interview.ask(name, plan, until)
        keys = np.concatenate([self._known.keys, answers.keys])
        self._known = Answers(keys, np.concatenate([self._known.distances, answers.distances]))
        return planned

    def _collect(self) -> SparseDistances:
        first, second = pairs_of_keys(self._known.keys, self._items).T
        return SparseDistances.from_triples(
            first, second, self._known.distances, items=self._items, name="the answers so far"
        )

    def _list(self) -> Neighbors:
        """The nearest of each item among the answers so far."""
        return self._collect().nearest(LabelRows(np.arange(self._items)), 0, self._items, self._k)

    def _learn(self, start: StartVectors) -> PairMap:
        """Learn a map of the start; the identity where nothing is known."""
        if not np.isfinite(self._known.distances).any():
            return PairMap.identity()
        lists = KnownLists(start.rows, self._collect(), start.normalize)
        seconds = min(_MAP_SHARE * (self._budget.seconds or np.inf), self._seconds_left)
        return learn_map(lists, seconds=seconds, seed=self._seed)

    def _warn(self, calls: float) -> None:
        """Say where so many calls are too few for the lists."""
        shortage = self._budget.describe_shortage(self._items, self._k, calls)
        if shortage and not self._quiet:
            say_warning(shortage)

    def _say(self, text: str) -> None:
        if not self._quiet:
            say(text)
