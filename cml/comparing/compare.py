"""``cml.compare``: several losses compared as they are, or with options that vary."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from cml import losses as all_losses
from cml import tasks
from cml.comparing.rows import Row, rows_of
from cml.comparing.search_space import SearchSpace, parse_search_space
from cml.comparing.sweep import run_sweep
from cml.comparing.train_comparison import CompareOptions, run_comparison
from cml.data.prepared import PreparedDataset
from cml.doors.train import options_for
from cml.errors import UserError
from cml.option_types import check_options
from cml.retrieval.comparison import Comparison
from cml.task import Task
from cml.trackers import GuardedTracker, Tracker
from cml.training.config import TrainConfig
from cml.training.train_options import TrainOptions, list_options


@list_options
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
    protocol: str = "",
    search_space: SearchSpace = (),
    trials: int = 0,
    study: bool = False,
    tracker: str | Tracker | None = None,
    config: TrainConfig | None = None,
    **options: Unpack[TrainOptions],
) -> Comparison:
    """Train several losses with one network and budget, several seeds each, and compare what they retrieve.

    The runs, comparison.json, table.md, retrieval_report.html and the figures are written to ``out``. A finished run in
    that folder is not trained again.

    With ``search_space`` each row is tuned by itself on held-out training items, with as many trials as the others. Of
    a grid, every setting has all seeds, and their mean is compared; a drawn trial has seed 0 alone, and what is chosen
    gets the others. Trials are validated ten times a run unless ``evaluate_every`` says otherwise, and keep their best
    weights.

    Args:
        task: The task, or its name: "value", "pose", ...
        data: The prepared dataset or its folder.
        out: Folder of the comparison.
        variants: Names among the task's variants. When neither they nor ``losses`` are given: log-ratio, dense and
            thresholded triplets, Rank-N-Contrast, CoSENT, H-AP, a regression of labels that are vectors, and ``tune``;
            for classes, all variants.
        losses: Losses to compare, each as the command line takes it: a row each, after the variants.
        seeds: Runs per row, with seeds 0, 1, ...; intervals over seeds need at least 2.
        dimensions: Further dimensions of the embedding to train every row at.
        cut: At these also cut the embedding of ``dimension`` to its first numbers: one model for all sizes, which the
            loss ``matryoshka`` is made for, beside those trained for each.
        recall_within: Label distance up to which Recall@K counts an item as relevant; see ``cml.Run.evaluate``.
        protocol: A protocol that also measures every row, such as "regression": errors of the labels that neighbours
            and a linear probe predict. See ``cml.Run.measure``.
        search_space: Options that vary: names of ``TrainConfig``, or such as "loss.alpha", to their values or to a
            range such as "1e-5..1e-2:log". Without variants and losses, the recipe alone is trained.
        trials: Settings drawn from the search space for each row; 0 trains all combinations.
        study: Evaluate all combinations on the test set instead of the one that validation chooses.
        tracker: An experiment tracker that follows every run.
        config: All options of training; None for the task's recipe.
        **options: Any option of ``TrainConfig`` by its name; it takes precedence over ``config``.

    Returns:
        The figures, with ``rows()``, ``markdown()`` and ``to_pandas()``; a ``SweepResult``, which also has ``trials``,
        if there is a search space.

    Raises:
        UserError: A variant, loss or option is unknown, a loss needs labels that the dataset does not have, or ``out``
            holds a run with other options or on another dataset.

    Example:
        >>> comparison = cml.compare("value", "data/mine", "runs/losses", losses=["log-ratio", "cosent(scale=2.0)"],
        ...                          seeds=1, freeze_backbone=True, steps=20, sampler="random(batch_size=16)")
        >>> list(comparison.rows())
        ['log-ratio', 'cosent(scale=2.0)', 'frozen efficientnet-lite0', 'random', 'oracle']
    """
    task = tasks.get(task) if isinstance(task, str) else task
    dataset = data if isinstance(data, PreparedDataset) else PreparedDataset.open(data)
    if "loss" in options:
        raise UserError("In a comparison the rows set the loss: leave 'loss' out and choose variants and losses.")
    for loss in losses:
        all_losses.get(loss)
    shared = options_for(task, config, options, dataset.info)
    guarded = GuardedTracker(tracker) if tracker else None  # one for all runs: a server that is gone is waited for once
    if not search_space:
        if trials or study:
            raise UserError("'trials' and 'study' are for options that vary: name them by 'search_space'.")
        how = check_options(CompareOptions(seeds, recall_within, guarded, dimensions, cut, protocol))
        rows = rows_of(task, shared, variants, losses, dataset, one_size=not dimensions)
        return run_comparison(task, dataset, rows, Path(out), how, dimension=shared.dimension).comparison
    if dimensions or cut:
        raise UserError("Give all dimensions by 'search_space': dimension=16,32,64.")
    if protocol:
        raise UserError("A search is not measured by a 'protocol': compare what it chose, or measure its run.")
    rows = rows_of(task, shared, variants, losses, dataset, one_size=False) if variants or losses else [Row("", shared)]
    return run_sweep(
        task,
        dataset,
        rows,
        Path(out),
        parse_search_space(search_space),
        CompareOptions(seeds, recall_within, guarded),
        dimension=shared.dimension,
        trials=trials,
        study=study,
        seed=shared.seed,
    )
