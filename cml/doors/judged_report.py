"""Judgements of a run's items beside its table: agreement with judges, pairs from a file, and what labels signal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cml import losses
from cml.array_types import Float64, Int64
from cml.console.messages import say
from cml.data.images import Images
from cml.data.texts import Texts
from cml.data.vectors import Vectors
from cml.data_prep.row_files import cell, number, read_rows
from cml.distances.dataset_labels import encode_labels
from cml.doors.trained_run import Embeddings, Rows, TrainedRun
from cml.errors import DataError, UserError
from cml.losses.loss import Loss
from cml.retrieval.judgement_agreement import PAIR_SPEARMAN, TRIPLET_AGREEMENT, measure_agreement, summarize_spearman
from cml.retrieval.label_regression import ITEMS, LabelSignal, LabelSignals, find_label_signal
from cml.retrieval.reference_rows import ORACLE, RANDOM
from cml.retrieval.results import Evaluation
from cml.storage.safe_paths import look_up
from cml.training.run_folder import LOSS
from cml.training.saved_model import RunConfig

_SEED = 0
DISAGREEMENT = "disagreement"


class JudgedReport(NamedTuple):
    """What a report says of judgements."""

    table: Sequence[Sequence[str]]  # the agreement of each method: a header and a row a method
    # method to the share of each query's triplets that it does not agree with, (Q,), NaN for a query without any; empty
    # of pairs, whose distances are known
    disagreement: Mapping[str, Float64]

    def select_best(self, methods: Mapping[str, Embeddings]) -> dict[str, Embeddings]:
        """Select the method that agrees with most triplets, such as the best form of vectors."""
        best = sorted(methods, key=lambda name: float(np.nanmean(self.disagreement[name])))[:1]
        return {name: methods[name] for name in best}


def report_judgements(
    trained: TrainedRun, methods: Mapping[str, Embeddings]
) -> JudgedReport | None:  # what the report says; None where the labels are no judgements
    """Compare methods by the judgements of a run's queries."""
    if not trained.dataset.info.queries_are_gallery:
        return None
    rows = {name: embeddings[0] for name, embeddings in methods.items()}
    agreement = measure_agreement([*rows, ORACLE], trained.distance, trained.query_labels, rows, seed=_SEED)
    if agreement is None:
        return None
    metrics = list(agreement.rows[ORACLE])
    count = f"{agreement.repeated_questions} questions"
    heads = [f"{name} ({count})" if name.startswith("repeated") else name for name in metrics]
    table = [["method", *heads]]
    table += [[name, *(f"{row[metric].mean:.3f}" for metric in metrics)] for name, row in agreement.rows.items()]
    if agreement.ceiling is not None:
        table.append(["ceiling", "", f"{agreement.ceiling:.3f}"])
    if TRIPLET_AGREEMENT not in metrics:
        return JudgedReport(table, {})
    return JudgedReport(table, {name: 1 - agreement.rows[name][TRIPLET_AGREEMENT].per_query for name in rows})


def describe_labels_of_run(
    folder: Path, config: RunConfig
) -> str:  # a sentence or two; "" where the loss learns nothing of them, is not registered here, or was not kept
    """Say what the loss of a run has learned of the labels."""
    path = folder / LOSS
    if config.train.tune or not path.is_file():
        return ""
    try:
        loss = losses.get(config.train.loss)
    except UserError:  # of a plugin that is not loaded
        return ""
    if type(loss).describe_labels is Loss.describe_labels:
        return ""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        loss.load_state_dict(load_file(path), strict=False)  # the file holds no constants
    except (SafetensorError, OSError, RuntimeError) as error:
        raise DataError(f"{path} does not hold the parameters of {config.train.loss} ({error}). Train again.") from None
    return loss.describe_labels()


PAIRS = "pairs.csv"  # in the folder of a prepared dataset that comes with such pairs


@dataclass(frozen=True)
class Pairs:
    """P pairs of items whose similarity people have judged."""

    first: NDArray[np.intp]  # (P,) places of one item of each pair among the queries and, behind them, the gallery
    second: NDArray[np.intp]  # (P,) places of the other
    similarity: Float64  # (P,) the similarity that people see


def read_pairs(path: Path, places: Mapping[str, int]) -> Pairs:
    """Read pairs from a CSV or JSONL file with the columns item, other and similarity."""
    rows: list[tuple[int, int, float]] = []
    total = 0
    for where, row in read_rows(path):
        if isinstance(row, DataError):
            raise row
        names = [str(cell(row, column, where, option="that name")) for column in ("item", "other")]
        similarity = number(cell(row, "similarity", where, option="that name"), "similarity", where)
        first, other = (look_up(name, places) for name in names)
        if names[0] == names[1] or (first is not None and first == other):
            raise DataError(f"{where}: {names[0]!r} is paired with itself; delete the line.")
        total += 1
        if first is not None and other is not None:
            rows.append((first, other, similarity))
    if not rows:
        raise DataError(f"{path}: of its {total} pairs none is of two items among queries and gallery, by item_id.")
    if len(rows) < total:
        say(f"{path}: {total - len(rows)} of {total} pairs are not of two items among queries and gallery, left out")
    places_of_first, places_of_other, similarities = zip(*rows, strict=True)
    return Pairs(np.array(places_of_first), np.array(places_of_other), np.array(similarities, np.float64))


def with_pairs(
    evaluation: Evaluation, trained: TrainedRun, embeddings: Mapping[str, Embeddings], path: Path, seed: int
) -> Evaluation:
    """Add pair_spearman to every row of an evaluation: a mean over resamples, with their 95 % interval."""
    splits = trained.splits[:1] if trained.dataset.info.queries_are_gallery else trained.splits
    ids = [item for split in splits for item in split.item_ids]
    labels = [label for split in splits for label in split.labels]
    pairs = read_pairs(path, {item: place for place, item in enumerate(ids)})

    rows = {}
    for name, metrics in evaluation.rows.items():
        if name == ORACLE:
            distances = _label_distances(trained, labels, pairs)
        elif name == RANDOM:
            distances = np.random.default_rng(seed).random(len(pairs.similarity))
        else:
            first, second = (_read_rows(embeddings[name][: len(splits)], side) for side in (pairs.first, pairs.second))
            distances = np.square(first - second).sum(axis=1)
        rows[name] = {
            **metrics,
            PAIR_SPEARMAN: summarize_spearman(pairs.first, distances, -pairs.similarity, seed=seed),
        }
    return replace(evaluation, rows=rows)


def _read_rows(parts: Sequence[Rows], items: Int64) -> Float64:
    """Rows (P, D) of some items (P,), which are numbered through all parts."""
    points = np.empty((len(items), parts[0].shape[1]))
    before = 0
    for part in parts:
        chosen = (items >= before) & (items < before + len(part))
        points[chosen] = part[items[chosen] - before]
        before += len(part)
    return points


def _label_distances(trained: TrainedRun, labels: Sequence[Any], pairs: Pairs) -> Float64:
    """Label distance (P,) of each pair."""
    distances = np.empty(len(pairs.similarity))
    for place in np.unique(pairs.first):
        at = np.flatnonzero(pairs.first == place)
        encoded = trained.distance.encode([labels[place], *(labels[other] for other in pairs.second[at])])
        distances[at] = trained.distance.pairwise(encoded[:1], encoded[1:])[0]
    return distances


_SIDE = 8  # pixels


def find_label_signals(
    run: TrainedRun,  # the run, which has frozen features; 300 of its training items are looked at, at most
) -> LabelSignals:  # what features and pixels tell
    """Test what the training items of a run tell about their labels."""
    split = run.dataset.split("train")
    rows = np.arange(len(split))
    if len(rows) > ITEMS:
        rows = np.sort(np.random.default_rng(0).choice(rows, ITEMS, replace=False))
    labels, column = encode_labels(run.distance, run.dataset, "train")[rows], run.config.train.groups
    groups = np.array(run.dataset.read_groups("train", column))[rows] if column else None

    def signal(features: Any) -> LabelSignal:  # noqa: ANN401 - an array
        return find_label_signal(features.reshape(len(rows), -1), labels, run.distance, groups)

    inputs: Any = split.inputs
    if isinstance(inputs, Vectors | Texts):
        return LabelSignals(signal(run.embed_by_reference(inputs.subset(rows))), None)
    paths = inputs[rows]
    features = signal(run.embed_by_reference(run.open_inputs(paths)))
    if run.features is not None or run.config.train.features:
        return LabelSignals(features, None)
    pixels = Images(paths, (_SIDE, _SIDE), channels=run.model.config.inputs.channels).read(np.arange(len(paths)))
    return LabelSignals(features, signal(pixels))
