"""The items that a run proposes to label next, with their names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cml.data.image_list import ImageList
from cml.data.vectors import Vectors
from cml.reporting.visible_text import visible_text
from cml.retrieval.farthest_first import choose_farthest
from cml.retrieval.text_table import align_columns
from cml.runs.explore import inputs_of, sample_items
from cml.runs.trained_run import TrainedRun
from cml.storage.csv_file import write_csv

_COLUMNS = ("rank", "item_id", "distance")


@dataclass(frozen=True, eq=False)
class ProposalList:
    """Items to label next, the first one first.

    Attributes:
        names: Their ids: paths below the folder, or ids of the dataset.
        distances: The distance of each, by frozen features, to the nearest item that has a label or stands before it.
    """

    names: Sequence[str]
    distances: Sequence[float]

    def rows(self) -> list[list[str]]:
        """The list as texts: rank, name and distance of each."""
        pairs = zip(self.names, self.distances, strict=True)
        return [[str(rank), name, f"{distance:.4g}"] for rank, (name, distance) in enumerate(pairs, 1)]

    def table(self, count: int) -> str:
        """Write the first items as lines of text.

        Args:
            count: How many.
        """
        cells = [[visible_text(name, 60), rank, distance] for rank, name, distance in self.rows()[:count]]
        return align_columns([["item", "rank", "distance to the nearest"], *cells])

    def save(self, path: Path | str) -> Path:
        """Write the list as a CSV file.

        Args:
            path: The file, which is replaced if it exists.

        Returns:
            The file.
        """
        return write_csv(path, _COLUMNS, self.rows())


def propose_items(trained: TrainedRun, pool: Path | str, count: int) -> ProposalList:
    """Choose what to label next; see ``cml.Run.propose``.

    Args:
        trained: The run.
        pool: Folder of images, a .npy file of vectors, or a prepared dataset.
        count: How many items.

    Returns:
        The list.

    Raises:
        UserError: The pool holds fewer items, or others than the model takes.
        DataError: An image cannot be read.
    """
    listed = ImageList.open(pool)
    listed.check_kind(trained.model.config.inputs)
    labelled = trained.embed_inputs(inputs_of(sample_items(trained, ())[0]), frozen=True)
    inputs = Vectors(listed.read_vectors(0, len(listed))) if listed.vectors else listed.paths
    chosen = choose_farthest(trained.embed_inputs(inputs, frozen=True), labelled, count)
    return ProposalList([listed.item_ids[item] for item in chosen.items.tolist()], chosen.distances.tolist())
