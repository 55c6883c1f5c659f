"""``cml.compare``: several losses compared as they are, or with options that vary.

Not for: how it is done (comparison.py, sweep.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cml import tasks
from cml.data.prepared import PreparedDataset
from cml.errors import UserError
from cml.retrieval.comparison import Comparison
from cml.runs.comparison import run_comparison, with_losses
from cml.runs.sweep import run_sweep
from cml.runs.train import options_for
from cml.runs.varied import space
from cml.task import Task
from cml.training.config import TrainConfig

if TYPE_CHECKING:
    from cml.trackers import Tracker


def compare(
    task: str | Task,
    data: Path | str | PreparedDataset,
    out: Path | str,
    *,
    variants: Sequence[str] | None = None,
    losses: Sequence[str] = (),
    seeds: int = 3,
    dimensions: Sequence[int] = (),
    cut: bool = False,
    recall_within: float = 0.0,
    vary: Sequence[str] | Mapping[str, str | Sequence[Any]] = (),
    trials: int = 0,
    study: bool = False,
    tracker: str | Tracker | None = None,
    config: TrainConfig | None = None,
    **options: Any,  # noqa: ANN401 - the fields of TrainConfig
) -> Comparison:
    """Train several losses with one network and budget, several seeds each, and compare what they retrieve.

    With ``vary`` each of them is trained with several settings; see ``cml.runs.sweep.run_sweep``.

    The runs, comparison.json, table.md, gallery.html and the figures lie in ``out``. A finished run found there is not
    trained again.

    Args:
        task: The task, or its name: "value", "pose", ..
        data: The prepared dataset or its folder.
        out: Folder of the comparison.
        variants: Names among the task's variants; all of them when neither they nor ``losses`` are given.
        losses: Losses to compare, each as the command line takes it: a row each, after the variants.
        seeds: Runs a row, with seeds 0, 1, ..; intervals over seeds need at least 2.
        dimensions: Further dimensions of the embedding to train every row at.
        cut: At these also cut the embedding of ``dimension`` to its first numbers: one model for all sizes, which the
            loss ``matryoshka`` is made for, beside those trained for each.
        recall_within: See ``cml.Run.evaluate``.
        vary: Options that vary, to their values, or to a range such as "1e-5..1e-2:log": the names of ``TrainConfig``,
            or such as "loss.alpha". Without variants and losses the recipe alone is trained.
        trials: Settings drawn from what varies; 0 takes all combinations.
        study: Evaluate all combinations instead of the one that validation chooses.
        tracker: An experiment tracker that follows every run.
        config: All options of training; the task's recipe when not given.
        **options: Any option of ``TrainConfig`` by its name; it goes before that of ``config``.

    Returns:
        The figures, with ``rows()``, ``markdown()`` and ``to_pandas()``; with ``vary`` also ``trials``.

    Raises:
        UserError: unknown variant, loss or option, or a run in ``out`` with other options or on another dataset.

    Example:
        >>> found = cml.compare("value", "data/mine", "runs/losses", losses=["log-ratio", "cosent(scale=2.0)"],
        ...                     seeds=1, freeze_backbone=True, steps=20, sampler="random(batch_size=16)")
        >>> list(found.rows())
        ['log-ratio', 'cosent(scale=2.0)', 'frozen efficientnet-lite0', 'random', 'oracle']
    """
    task = tasks.get(task) if isinstance(task, str) else task
    dataset = data if isinstance(data, PreparedDataset) else PreparedDataset.open(data)
    if "loss" in options:
        raise UserError("In a comparison the rows set the loss: leave 'loss' out and choose variants and losses.")
    task = with_losses(task, losses)
    rows = [*(variants or ()), *(loss for loss in losses if loss not in (variants or ()))]
    chosen = options_for(task, config, options)
    shared: dict[str, Any] = {"seeds": seeds, "recall_within": recall_within, "tracker": tracker}
    if not vary:
        if trials or study:
            raise UserError("Say what varies: 'trials' and 'study' are of the settings that 'vary' names.")
        found = run_comparison(
            task, dataset, chosen, Path(out), variants=rows or None, dimensions=dimensions, cut=cut, **shared
        )
        return found.comparison
    if dimensions or cut:
        raise UserError("Give all dimensions by 'vary': vary dimension=16,32,64.")
    return run_sweep(task, dataset, chosen, Path(out), space(vary), rows, trials=trials, study=study, **shared)
