"""The audit of the labels of a run's dataset."""

from collections.abc import Sequence

from cml.runs.audit_list import AUDIT, AuditList
from cml.runs.explore import inputs_of, sample_items
from cml.runs.explore_inputs import describe_label
from cml.runs.trained_run import TrainedRun
from cml.training.audit import audit_labels


def audit_run(trained: TrainedRun, splits: Sequence[str] = (), seed: int = 0) -> AuditList:
    """Audit the labels of a run's dataset; see ``cml.Run.audit``.

    Args:
        trained: The run.
        splits: Which items: train, query, gallery; all if there are none, or the training items alone where the queries
            are these again.
        seed: Random seed.

    Returns:
        The list, which is also in audit.csv of the run folder.

    Raises:
        UserError: There are no frozen features, fewer than 30 items, or labels that do not differ.
    """
    if trained.dataset.info.queries_are_known and not splits:
        splits = ("train",)  # it has most judgements
    drawings, labels = sample_items(trained, splits)
    features = trained.embed_inputs(inputs_of(drawings), frozen=True)
    factor, unit = trained.report
    audit = audit_labels(features, labels, trained.distance, factor=factor, unit=unit, seed=seed)
    names = [drawing.split.item_ids[drawing.item] for drawing in drawings]
    words = [drawing.words() or describe_label(drawing.split.labels[drawing.item]) for drawing in drawings]
    listed = AuditList(audit, names, words, [drawing.split.role for drawing in drawings])
    listed.save(trained.folder / AUDIT)
    return listed
