"""Whether the features and the pixels of a run's training items tell anything about their labels."""

from typing import Any

import numpy as np

from cml.data.images import Images
from cml.data.vectors import Vectors
from cml.distances.dataset_labels import encode_labels
from cml.doors.trained_run import TrainedRun
from cml.retrieval.shuffled_labels import ITEMS, LabelSignal, LabelSignals, find_label_signal

_SIDE = 8  # pixels


def find_label_signals(
    run: TrainedRun,  # the run, which has frozen features; 300 of its training items are looked at, at most
) -> LabelSignals:  # what features and pixels tell
    """Test what the training items of a run tell about their labels."""
    split = run.dataset.split("train")
    rows = np.arange(len(split))
    if len(rows) > ITEMS:
        rows = np.sort(np.random.default_rng(0).choice(rows, ITEMS, replace=False))
    labels = encode_labels(run.distance, run.dataset, "train")[rows]

    def signal(features: Any) -> LabelSignal:  # noqa: ANN401 - an array
        return find_label_signal(features.reshape(len(rows), -1), labels, run.distance)

    inputs: Any = split.inputs
    if isinstance(inputs, Vectors):
        return LabelSignals(signal(run.embed_by_reference(inputs.subset(rows))), None)
    paths = [inputs[row] for row in rows]
    features = signal(run.embed_by_reference(run.open_inputs(paths)))
    if run.features is not None or run.config.train.features:
        return LabelSignals(features, None)
    pixels = Images(paths, (_SIDE, _SIDE), channels=run.model.config.inputs.channels).read(np.arange(len(paths)))
    return LabelSignals(features, signal(pixels))
