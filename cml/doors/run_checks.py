"""What ``Run`` does with the labels of its dataset: calibrate, audit, propose what to label next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cml.checks.audit_list import AUDIT, AuditList, audit_items
from cml.checks.calibrate_items import KnownItems, calibrate_items
from cml.checks.proposals import ProposalList, propose_items
from cml.console.messages import say
from cml.data.image_list import ImageList
from cml.data.item_digests import MOST_DIGESTED, digest_items
from cml.items.label_inputs import label_split
from cml.retrieval.calibration import LEVEL, Calibration
from cml.retrieval.saved_calibration import save_calibration

if TYPE_CHECKING:
    from cml.doors.trained_run import TrainedRun


def calibrate(
    self: TrainedRun, *, gallery: Literal["test", "train"] = "test", level: float = LEVEL, seed: int = 0
) -> Calibration:
    """Learn from the queries of the dataset what label distance an embedding distance means.

    ``cml search`` shows what is kept in calibration.json of the run folder. Queries that are copies of training items
    are left out.

    Args:
        gallery: What they are searched in: "test" for the gallery of the dataset, or each other where they are the
            gallery; "train" for the training items, as in an index that holds these.
        level: The share of label distances that the intervals should contain.
        seed: Random seed of the split of the queries into two halves.

    Returns:
        The calibration, in the unit in which label distances are reported.

    Raises:
        UserError: There are fewer than 30 queries that were not trained on, or labels that do not differ.
    """
    mend = "Hold out others."
    if self.dataset.info.queries_are_known:
        mend = "The split is by judgements: prepare the dataset with --split items."
    trained = digest_items(self.dataset.split("train").inputs, MOST_DIGESTED)
    known, (factor, unit) = KnownItems(trained, place=str(self.dataset.folder), mend=mend), self.report
    searched = None if self.gallery is self.queries else self.gallery
    if gallery == "train":
        searched = label_split(self.dataset, "train", self.distance, self.open_inputs)
    calibration = calibrate_items(self, self.queries, searched, known, level=level, seed=seed, factor=factor, unit=unit)
    save_calibration(self.folder, calibration, self.model.network)
    return calibration


def audit(self: TrainedRun, *, splits: Sequence[str] = (), seed: int = 0) -> AuditList:
    """Find the labels of the dataset that disagree with those of similar items, perhaps wrong ones.

    Items are compared by frozen features, as ``cml evaluate`` has a row of; see ``cml.checks.audit``. The list is
    kept in audit.csv of the run folder, and the explorer has its scores as a colour.

    Args:
        splits: Which items: train, query, gallery; all when none are given, or train where the queries are training
            items again.
        seed: Random seed.

    Returns:
        The list: ``suspects`` names the items, the label most likely to be wrong first.

    Raises:
        UserError: There are no frozen features, fewer than 30 items, or labels that do not differ.
    """
    if self.dataset.info.queries_are_known and not splits:
        splits = ("train",)  # it has most judgements
    items = self.items(splits)
    listed = audit_items(self, items.label(self.open_inputs), items.describe(self.task, self.report), seed=seed)
    listed.save(self.folder / AUDIT)
    return listed


def propose(self: TrainedRun, pool: Path | str, count: int = 50) -> ProposalList:
    """Choose the items of a pool that are worth labelling next: each is far from all that have a label.

    All items of the dataset count as labelled. ``cml.Model.propose`` takes items that are in memory, and says how
    they are chosen.

    Args:
        pool: Folder of images, a .npy file of vectors, or a prepared dataset, whose labels are not read.
        count: How many items to choose.

    Returns:
        The list, the first item to label first.

    Raises:
        UserError: The pool holds fewer items, or others than the model takes.
        DataError: An image cannot be read.
    """
    listed = ImageList.open(pool)
    listed.check_kind(self.form)
    inputs = listed.inputs(0, len(listed)) if listed.rows else self.open_inputs(listed.paths)
    chosen = propose_items(self, inputs, self.items().label(self.open_inputs).inputs, count)
    if len(chosen.items) < count:
        say(f"{len(chosen.items)} of the {len(listed)} items of the pool have no label yet.")
    return ProposalList([listed.item_ids[item] for item in chosen.items.tolist()], chosen.distances.tolist())
