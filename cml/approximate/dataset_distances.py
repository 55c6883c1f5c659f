"""Label distances of a prepared dataset's items: written as a job, checked, and summed up with a histogram."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from cml import tasks
from cml.approximate.approximate import approximate
from cml.approximate.result import Approximation
from cml.array_types import Float32
from cml.console.messages import say
from cml.data.prepared import PreparedDataset
from cml.distances.dataset_labels import encode_labels, label_faults, unit_in_dataset
from cml.distances.jobs import run, stored_lists
from cml.distances.jobs.job_options import JobOptions, JobResult
from cml.distances.jobs.summary import Summary, summarize
from cml.distances.jobs.work import MatrixWork, Work
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import DataError, UserError
from cml.feature_store.frozen_features import with_features
from cml.feature_store.store import FeatureStore
from cml.processes.cores import CORES
from cml.reporting.curves import write_histogram
from cml.storage.regular_file import map_array
from cml.task import label_distance_of

ROLES = {
    "train": ("train",),
    "query": ("query",),
    "gallery": ("gallery",),
    "query-gallery": ("query", "gallery"),
    "all": ("train", "query", "gallery"),
}
_LOOKED_AT, _MANY_TIES = 200, 0.2  # items, and the share of equal pairs among them that is worth a word
_MARKED = (0.02, 0.2, 0.5)  # quantiles that the picture names: a floor, a threshold, the middle


def find_label_faults(data: Path) -> list[str]:  # a sentence for each fault; none if all labels are accepted
    """Find all labels that the label distance of the task's recipe refuses."""
    dataset = PreparedDataset.open(data)
    try:
        task = tasks.get(dataset.info.task)
        distance = label_distance_of(task.name, task.label_distance(task.recipe, dataset.info))
    except UserError as error:  # of another package, or with an extra that is not there
        return [f"its labels cannot be checked: {error}"]
    return label_faults(distance, dataset)


def describe_ties(data: Path) -> str:  # the advice; "" where less than a fifth of the pairs are equal
    """Say how many pairs of labels are equal, and which losses suit such labels."""
    opened = DatasetDistances.open(data)
    some = opened.labels[np.random.default_rng(0).permutation(len(opened.labels))[:_LOOKED_AT]]
    if len(some) < 2 or opened.distance.class_names(some) is not None:
        return ""
    share = (opened.distance.pairwise(some, some) == 0)[np.triu_indices(len(some), 1)].mean()
    if share <= _MANY_TIES:
        return ""
    return (
        f"{share:.0%} of the pairs of training images have equal labels (label distance 0): their order is arbitrary. "
        'Compare the losses "cosent(scale=2.0)", "rkd-distance(normalize=True)" and "log-ratio(weights=uniform)".'
    )


@dataclass(frozen=True)
class DatasetDistances:
    """The label distances of some of a dataset's items. Made by ``open``."""

    dataset: PreparedDataset
    distance: LabelDistance  # the label distance, fitted on its training items
    role: str  # which items, a key of ``ROLES``
    labels: Labels  # their encoded labels
    item_ids: list[str]

    @classmethod
    def open(
        cls,
        data: Path,
        label_distance: str = "",  # the label distance, as on the command line; "" for that of the dataset's task
        role: str = "train",
    ) -> Self:
        """Open a dataset and encode the labels of some of its items."""
        dataset = PreparedDataset.open(data)
        if not label_distance:
            task = tasks.get(dataset.info.task)
            label_distance = task.label_distance(task.recipe, dataset.info)
        names = [name for name in ROLES[role] if name in dataset.info.roles or role == "gallery"]
        distance = label_distance_of(dataset.info.task, label_distance).fit(dataset.split("train").labels)
        ids = [item for name in names for item in dataset.split(name).item_ids]
        return cls(dataset, distance, role, encode_labels(distance, dataset, names), ids)

    @property
    def counted(self) -> str:
        """How many items, and which: "80 items, the training set (--role all: every item)"."""
        which = {"train": "the training set (--role all: every item)", "all": "every item"}
        return f"{len(self.labels):,} items, {which.get(self.role, f'those of {self.role}')}"

    @property
    def unit(self) -> str:
        """Unit of the label distance, see ``unit_in_dataset``."""
        return unit_in_dataset(self.distance, self.dataset)

    def write(
        self,
        work: Work,
        folder: Path,
        *,
        threads: int,
        scheduler: str,  # address of a Dask scheduler, tcp://host:port, whose workers compute the strips
    ) -> JobResult:  # the file, the number of pairs computed, and the seconds that it took
        """Write a matrix or neighbour lists into a folder, where training finds them; a job cut off is continued."""
        about = {"dataset": str(self.dataset.folder.resolve()), "role": self.role}
        options = JobOptions(threads=threads, scheduler=scheduler, say=say)
        result = run.run_job(work, folder, options, about=about, item_ids=self.item_ids)
        stored_lists.note(folder, work)
        return result

    def approximate(
        self,
        budget: str,
        k: int,
        *,
        vectors: Path | None = None,  # the vectors to start from: a .npy file with a row for each item
        out: Path | None = None,  # folder that keeps all answers and gets the result; None for one in the cache
        seed: int = 0,
        threads: int = CORES,
        scheduler: str = "",  # address of a Dask scheduler, tcp://host:port; "" for none
    ) -> Approximation:
        """Find neighbours and learn an embedding from few calls; see ``cml.distances.approximate``."""
        return approximate(
            self.distance,
            self.labels,
            self._read_vectors(vectors),
            budget,
            k=k,
            out=out,
            seed=seed,
            threads=threads,
            scheduler=scheduler,
            item_ids=self.item_ids,
        )

    def _read_vectors(self, path: Path | None) -> Float32:
        """Read the vectors (N, F) of the items."""
        dataset = self.dataset
        if path is not None and not path.is_dir():
            try:
                return np.asarray(map_array(path), np.float32)
            except (OSError, ValueError) as error:
                raise DataError(f"{path} cannot be read as a .npy file of vectors: {error}.") from None
        if path is not None:
            dataset = with_features(dataset, FeatureStore.open(path))
        parts = [dataset.split(name).vectors for name in ROLES[self.role] if name in dataset.info.roles]
        rows = [part.read(np.arange(len(part))) for part in parts if part is not None]
        if not rows and (own := self.distance.start_vectors(self.labels)) is not None:
            return np.asarray(own, np.float32)
        if not rows:
            raise UserError(
                "A budget needs vectors of the items to start from, which this dataset does not have: name a .npy file "
                "with a row for each item, or a feature store (cml features), with --vectors."
            )
        return np.concatenate(rows)

    def summary(
        self,
        out: Path | None = None,  # folder of the histogram; None for one in the cache
        *,
        seed: int = 0,
    ) -> tuple[Summary, Path]:
        """Summarise the distances, and draw their histogram."""
        summary = summarize(self.distance, self.labels, unit=self.unit, seed=seed)
        folder = out or stored_lists.folder_of(MatrixWork(self.distance, self.labels)).parent
        marked = {share: summary.quantiles[share] for share in _MARKED}
        title, path = f"{self.dataset.info.name}, {self.distance.name}", folder / "histogram.png"
        title += ", known pairs" if self.distance.is_partial else ""
        try:
            write_histogram(path, summary.distances, unit=summary.unit, quantiles=marked, title=title)
        except OSError as error:
            raise UserError(
                f"The folder {folder} cannot be written ({error.strerror}); choose another --out."
            ) from None
        return summary, path
