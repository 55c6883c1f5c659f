"""Train embeddings whose distances mirror label distances.

- ``cml.fit`` trains a model on images and labels; ``cml.load`` loads a trained model, and ``cml.last`` gives the model
  so far of an interrupted ``cml.fit``.
- ``cml.PairJudgements`` and ``cml.TripletJudgements`` take judged pairs and triplets as labels.
- ``cml.Grades`` takes graded documents of queries as labels; ``cml.Ranking`` measures what a search finds by them, and
  ``cml.SearchFolder`` reads and writes both sides with their grades.
- ``cml.LabelledStream`` holds data that is read from start to end, such as tar shards, for ``cml.fit``.
- ``cml.prepare``, ``cml.open_dataset``, ``cml.train`` and ``cml.compare`` work on prepared datasets, like the commands
  of the same names.
- ``cml.Index`` holds embeddings to search, ``cml.EmbeddingFolder`` those of ``cml embed``; ``cml.index`` and
  ``cml.search`` index and search images, like the commands.
- ``cml.open_run`` opens a trained run, to evaluate it, explore it and export its model.
- ``cml.losses``, ``cml.distances``, ``cml.sampling``, ``cml.models``, ``cml.protocols`` and ``cml.trackers`` hold
  the parts. Each is made by name, as in ``cml.losses.get("log-ratio")``, or by class, as in
  ``cml.losses.LogRatioLoss()``.
- ``cml.distributed`` gathers batches in training loops of one's own that run in several processes.

``import cml`` does not import torch: each name is imported when it is used first.
"""

import importlib
from typing import TYPE_CHECKING, Any

from cml.version import __version__

if TYPE_CHECKING:
    from cml import distances, distributed, losses, models, protocols, retrieval, sampling, sklearn, trackers
    from cml.comparing.compare import compare
    from cml.data.pair_judgements import PairJudgements
    from cml.data.prepared import open_dataset
    from cml.data.triplet_judgements import TripletJudgements
    from cml.doors.features import features
    from cml.doors.fit import fit
    from cml.doors.index import index
    from cml.doors.load import load
    from cml.doors.model import Model
    from cml.doors.prepare import prepare
    from cml.doors.run import Run, open_run
    from cml.doors.search import search
    from cml.doors.search_model import SearchModel
    from cml.doors.train import train
    from cml.doors.training_run import Interrupted, last
    from cml.errors import UserError
    from cml.graded.grades import Grades
    from cml.graded.ranking import Ranking
    from cml.graded.ranking_evaluation import RankingEvaluation
    from cml.graded.search_folder import SearchFolder
    from cml.plugins import load as load_plugin
    from cml.searching.embedding_folder import EmbeddingFolder
    from cml.searching.index import Index
    from cml.streams.labelled_stream import LabelledStream
    from cml.training.callbacks import Callback
    from cml.training.config import TrainConfig

_MODULES = ("distances", "distributed", "losses", "models", "protocols", "retrieval", "sampling", "sklearn", "trackers")
_PLACES = {  # public name: "module:name in it"
    "Callback": "cml.training.callbacks:Callback",
    "EmbeddingFolder": "cml.searching.embedding_folder:EmbeddingFolder",
    "Grades": "cml.graded.grades:Grades",
    "Index": "cml.searching.index:Index",
    "Interrupted": "cml.doors.training_run:Interrupted",
    "LabelledStream": "cml.streams.labelled_stream:LabelledStream",
    "Model": "cml.doors.model:Model",
    "PairJudgements": "cml.data.pair_judgements:PairJudgements",
    "Ranking": "cml.graded.ranking:Ranking",
    "RankingEvaluation": "cml.graded.ranking_evaluation:RankingEvaluation",
    "Run": "cml.doors.run:Run",
    "SearchFolder": "cml.graded.search_folder:SearchFolder",
    "SearchModel": "cml.doors.search_model:SearchModel",
    "TrainConfig": "cml.training.config:TrainConfig",
    "TripletJudgements": "cml.data.triplet_judgements:TripletJudgements",
    "UserError": "cml.errors:UserError",
    "compare": "cml.comparing.compare:compare",
    "features": "cml.doors.features:features",
    "fit": "cml.doors.fit:fit",
    "index": "cml.doors.index:index",
    "last": "cml.doors.training_run:last",
    "load": "cml.doors.load:load",
    "load_plugin": "cml.plugins:load",
    "open_dataset": "cml.data.prepared:open_dataset",
    "open_run": "cml.doors.run:open_run",
    "prepare": "cml.doors.prepare:prepare",
    "search": "cml.doors.search:search",
    "train": "cml.doors.train:train",
}

__all__ = [
    "Callback",
    "EmbeddingFolder",
    "Grades",
    "Index",
    "Interrupted",
    "LabelledStream",
    "Model",
    "PairJudgements",
    "Ranking",
    "RankingEvaluation",
    "Run",
    "SearchFolder",
    "SearchModel",
    "TrainConfig",
    "TripletJudgements",
    "UserError",
    "__version__",
    "compare",
    "distances",
    "distributed",
    "features",
    "fit",
    "index",
    "last",
    "load",
    "load_plugin",
    "losses",
    "models",
    "open_dataset",
    "open_run",
    "prepare",
    "protocols",
    "retrieval",
    "sampling",
    "search",
    "sklearn",
    "trackers",
    "train",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute
    if name in _MODULES:
        return importlib.import_module(f"cml.{name}")
    if name in _PLACES:
        module, _, attribute = _PLACES[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    raise AttributeError(f"module 'cml' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
