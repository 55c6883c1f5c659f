"""A published experiment run again: its methods trained as published, their figures beside the published ones."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cml import data_prep, models, tasks
from cml.comparing.protocol_table import MeasuredComparison
from cml.comparing.rows import Row, with_changes
from cml.comparing.train_comparison import CompareOptions, run_comparison
from cml.console.messages import say
from cml.data.prepared import PreparedDataset
from cml.doors.prepare import prepare_source
from cml.errors import UserError, did_you_mean, install_hint, quoted_list
from cml.models.backbones import bn_inception
from cml.papers.reproduction import CARD, LEFT_OUT, QUOTED, Figure, Reproduction, forecast_hours
from cml.processes.device import pick_device
from cml.registry import Choice
from cml.retrieval.comparison import Comparison, Interval, Rows
from cml.storage.atomic import atomic_file
from cml.storage.downloads import names_of_a_run
from cml.storage.json_file import write_json
from cml.tasks.published_experiment import Experiment, PublishedRow
from cml.training.config import TrainConfig

REPRODUCTION = "reproduction"
_NEED_DATA = {"data": "The dataset has to be prepared first: --data DIR."}
_NEED_CARD = {"card": "The whole training needs a graphics card: --device cpu trains nevertheless, --steps N a piece."}
_NEED_WEIGHTS = {
    "weights": f"BN-Inception's weights are not downloaded: --bn-inception FILE, from {bn_inception.SOURCE}."
}
_BN_INCEPTION = "bn-inception"
_FROZEN = "imagenet-features"  # folder of the run that has the features of the pretrained network beside it
_PACKAGED = "efficientnet-lite0"  # whose weights are installed with cml
# the features of a network, through a run of one step, beside which they are measured
_WITHOUT_TRAINING: Mapping[str, Any] = {
    "freeze_backbone": True,
    "flip": "none",
    "random_crop": "none",
    "loss": "log-ratio",
    "sampler": "random(batch_size=8)",
    "steps": 1,
    "head_first": 0,
    "views": 1,
    "lora": 0,
    "train_only": (),
}
_SMALL_ITEMS = {"count": 96, "train": 64, "size": 64}
_SMALL_STEPS = 2
_SMALLER = 3.5  # times smaller sides of --small, rounded to multiples of 32 pixels: 64 in place of 224


@dataclass(frozen=True)
class ReproduceOptions:
    """How much of an experiment is run."""

    seeds: int = 1  # runs per method, with seeds 0, 1, and so on
    dimensions: Sequence[int] = ()  # further dimensions of the embedding to train every method at
    rows: Sequence[str] = ()  # names of the methods to run; all that can be if empty
    bn_inception: Path | None = None  # the file of the published weights of BN-Inception
    small: bool = False  # run every method end to end on a few drawn images, for two steps, with random weights


def reproduce(
    experiment: Experiment,
    config: TrainConfig,
    data: Path | None,  # folder of the prepared dataset; None trains nothing, unless ``options.small``
    out: Path,
    options: ReproduceOptions | None = None,
) -> Reproduction:
    """Train what can be trained here, and write ``reproduction.json`` and ``.md`` beside the runs, if anything is run.

    The whole experiment needs a graphics card.
    """
    options = options or ReproduceOptions()
    check_rows(experiment, options.rows)
    if options.small and not experiment.drawn:
        raise UserError(
            f"Nothing draws data like {experiment.dataset}: leave out 'small', and give 'data' and few steps."
        )
    if options.small and data is not None:
        raise UserError(f"'small' draws its own data: leave out 'small' or data={data}.")
    device = pick_device(config.device).type
    changed = experiment.config.difference(config)
    chosen = {row.name: _row_config(config, row, changed, options) for row in experiment.rows}
    general = {} if data is not None or options.small else _NEED_DATA
    if not options.small and not changed and device == "cpu" and config.device == "auto":
        general = general | _NEED_CARD
    not_run = _list_needs(experiment, chosen, general, options)
    dataset, piece = _open_dataset(experiment, data, out, options)
    piece += [f"{name} is {ours}, not {own}" for name, (own, ours) in changed.items()]
    measured: dict[str, Mapping[str, Any]] = {}
    if dataset is not None:
        rows = [row for row in experiment.rows if row.name not in not_run]
        with names_of_a_run(allow_download=not options.small):
            measured = _train_rows(experiment, rows, chosen, dataset, out, options, dimension=config.dimension)
        absent = {"weights": "The pretrained weights could not be loaded."}
        not_run |= {row.name: absent for row in rows if row.name not in measured}

    hours: dict[str, float] = {}
    card_hours: dict[str, float] = {}
    if options.small or any("data" in needs or "card" in needs for needs in not_run.values()):
        say("Timing a few images in each network, for a forecast of the hours.")
        hours, card_hours = forecast_hours(_whole_trainings(experiment, options), device, options.seeds)
    result = Reproduction(
        methods=[row.name for row in experiment.rows],
        figures=[one for row in experiment.rows for one in _figures(row, experiment, measured, whole=not piece)],
        not_run=not_run,
        piece=piece,
        hours=hours,
        card_hours=card_hours,
        notes=_notes(experiment, piece, device if hours else "", small=options.small),
    )
    if dataset is not None:
        write_json(out / f"{REPRODUCTION}.json", asdict(result))
        with atomic_file(out / f"{REPRODUCTION}.md") as temporary:
            temporary.write_text(result.markdown(), "utf-8")
    return result


def check_rows(experiment: Experiment, names: Sequence[str]) -> None:
    """Check names of methods that are to be run."""
    known = [row.name for row in experiment.rows if not row.quoted]
    for name in names:
        row = experiment.row(name)
        if row is None:
            raise UserError(f"Unknown row {name!r}.{did_you_mean(name, known)} Known: {quoted_list(known)}.")
        if row.quoted:
            raise UserError(f"The row {name!r} is not trained by cml, leave it out of 'rows'. {row.quoted}")


def _row_config(
    config: TrainConfig, row: PublishedRow, changed: Mapping[str, Any], options: ReproduceOptions
) -> TrainConfig:
    """The options of a method; options that the user changed hold for all methods."""
    made = with_changes(config, {key: row.changes[key] for key in row.changes if key not in changed})
    weights = options.bn_inception
    if weights is not None and _is_bn_inception(made.backbone) and made.weights == "imagenet":
        made = replace(made, weights=str(weights))
    if row.is_frozen:
        made = replace(made, **_WITHOUT_TRAINING)
        return replace(made, backbone=_PACKAGED, weights="imagenet", image_size=(64, 64)) if options.small else made
    if options.small:
        given = {name: getattr(config, name) for name in changed}
        made = replace(_make_small(made), **given)
    return made


def _make_small(config: TrainConfig) -> TrainConfig:
    """The same method for two steps on small images and batches, with random weights."""
    sampler = Choice.parse(config.sampler)
    batch = min(max(8, sampler.settings["batch_size"] // 6), _SMALL_ITEMS["train"] // 2)
    height, width = (32 * max(1, round(side / _SMALLER / 32)) for side in config.image_size)
    return replace(
        config,
        weights="none",
        image_size=(height, width),
        sampler=str(Choice(sampler.name, {**sampler.settings, "batch_size": batch})),
        steps=_SMALL_STEPS,
        head_first=min(config.head_first, 1),
        workers=0,
    )


def _is_bn_inception(backbone: str) -> bool:
    return Choice.parse(backbone).name == _BN_INCEPTION


def _missing_parts(config: TrainConfig, options: ReproduceOptions) -> dict[str, str]:
    """What a method needs beside data and device."""
    needs = _missing_network(config.backbone)
    if _is_bn_inception(config.backbone) and config.weights == "imagenet" and not options.small:
        needs |= _NEED_WEIGHTS
    return needs


def _missing_network(backbone: str) -> dict[str, str]:
    """What a network needs to be made; nothing if it can be."""
    if _is_bn_inception(backbone) and find_spec("pretrainedmodels") is None:
        return {"extra": f"BN-Inception needs the extra '{_BN_INCEPTION}': {install_hint(_BN_INCEPTION)}."}
    try:
        models.has_published_weights(backbone)
    except UserError:
        return {"backbone": f"There is no backbone {backbone!r}; a plugin may register it."}
    return {}


def _list_needs(
    experiment: Experiment, chosen: Mapping[str, TrainConfig], general: Mapping[str, str], options: ReproduceOptions
) -> dict[str, Mapping[str, str]]:
    """What each method that cannot be run needs; ``general`` is what all of them need."""
    needs: dict[str, Mapping[str, str]] = {}
    for row in experiment.rows:
        if row.quoted:
            needs[row.name] = {QUOTED: row.quoted}
        elif options.rows and row.name not in options.rows:
            needs[row.name] = {LEFT_OUT: "--rows does not name them."}
        elif lacking := {**_missing_parts(chosen[row.name], options), **general}:
            needs[row.name] = lacking
    return needs


def _open_dataset(
    experiment: Experiment, data: Path | None, out: Path, options: ReproduceOptions
) -> tuple[PreparedDataset | None, list[str]]:
    """The dataset, if there is one, and in what it is not the published one; that of --small is drawn once."""
    if options.small:
        dataset = prepare_source(data_prep.get(experiment.drawn, **_SMALL_ITEMS), out / "drawn")
        drawn = f"{sum(dataset.info.counts.values())} drawn images ({experiment.drawn})"
        return dataset, [f"--small takes {_SMALL_STEPS} steps from random weights on {drawn}"]
    if data is None:
        return None, []
    dataset = PreparedDataset.open(data)
    if dataset.info.name != experiment.dataset:
        raise UserError(f"{data} holds {dataset.info.name!r}, not {experiment.dataset!r}: {experiment.prepare}.")
    return dataset, _fewer(experiment, dataset)


def _whole_trainings(experiment: Experiment, options: ReproduceOptions) -> dict[str, TrainConfig]:
    """The published options of each method whose network can be made here."""
    in_full = replace(options, small=False)
    trainings = {
        row.name: _row_config(experiment.config, row, {}, in_full)
        for row in experiment.rows
        if not row.quoted and not row.is_frozen
    }
    return {name: training for name, training in trainings.items() if not _missing_network(training.backbone)}


def _train_rows(
    experiment: Experiment,
    rows: Sequence[PublishedRow],
    chosen: Mapping[str, TrainConfig],
    dataset: PreparedDataset,
    out: Path,
    options: ReproduceOptions,
    *,
    dimension: int,
) -> dict[str, Mapping[str, Any]]:
    """Figures of each method by its name; methods with equal options share their runs."""
    task = tasks.get(experiment.task)
    measured: dict[str, Mapping[str, Any]] = {}
    trained: dict[str, str] = {}  # options to the method that is trained with them
    for row in rows:
        if not row.is_frozen:
            trained.setdefault(str(chosen[row.name]), row.name)
    if trained:
        methods = [Row(name, chosen[name]) for name in trained.values()]
        how = CompareOptions(options.seeds, dimensions=options.dimensions, protocol=experiment.protocol)
        compared = run_comparison(task, dataset, methods, out, how, dimension=dimension)
        figures = _join_figures(compared.comparison)
        measured = {row.name: figures[trained[str(chosen[row.name])]] for row in rows if not row.is_frozen}
    for row in rows:
        if row.is_frozen:
            beside = [Row(row.name, chosen[row.name])]
            how = CompareOptions(seeds=1)
            compared = run_comparison(task, dataset, beside, out / _FROZEN, how, dimension=chosen[row.name].dimension)
            frozen = [name for name in compared.comparison.reference_names if name.startswith("frozen ")]
            if frozen:
                measured[row.name] = compared.comparison.rows()[frozen[0]]
    return measured


def _join_figures(comparison: Comparison) -> dict[str, dict[str, Interval]]:
    """The metrics of each row, and what a protocol measured of it."""
    figures = {row: dict(metrics) for row, metrics in comparison.rows().items()}
    if isinstance(comparison, MeasuredComparison):
        for row, measured in comparison.measured.figures.items():
            figures[row] |= {name: (figure.value, figure.low, figure.high) for name, figure in measured.items()}
    return figures


def _fewer(experiment: Experiment, dataset: PreparedDataset) -> list[str]:
    """The parts of the dataset that have other sizes than the published ones."""
    train = dataset.info.counts["train"]
    ours = {"training": train, "test": sum(dataset.info.counts.values()) - train}
    sizes = zip(ours.items(), experiment.sizes, strict=True)
    return [f"{many:,} {part} images, not {own:,}" for (part, many), own in sizes if own not in (0, many)]


def _figures(row: PublishedRow, experiment: Experiment, measured: Rows, *, whole: bool) -> list[Figure]:
    """A method's figures; of a measure that a small gallery does not have, that with the largest K of its kind."""
    ours = measured.get(row.name, {})
    published: dict[str, float | None] = {}
    for measure in row.figures or ({} if row.quoted else dict.fromkeys(experiment.measures)):
        largest = [key for key in ours if key.startswith(measure.partition("@")[0])]
        published[measure] = row.figures.get(measure)
        if ours and measure not in ours and largest:
            published.setdefault(largest[-1], None)
    figures = []
    for measure, figure in published.items():
        own = ours.get(measure)
        if figure is not None or own is not None or not ours:
            apart = own[0] - figure if whole and own is not None and figure is not None else None
            figures.append(Figure(row.name, measure, figure, own, apart))
    return figures


def _notes(experiment: Experiment, piece: Sequence[str], device: str, *, small: bool) -> list[str]:
    """Sentences that say what the figures are; ``device`` is that of a forecast, "" without one."""
    notes = [f"{experiment.paper}.", f"Claim: {experiment.claim}"]
    sources: dict[str, int] = {}
    for row in experiment.rows:
        if row.source:
            sources[row.source] = sources.get(row.source, 0) + 1
    notes += [f"Published figures of {count} rows: {source}." for source, count in sources.items()]
    if piece:
        notes.append(f"This is a piece, which says nothing of the published figures: {'; '.join(piece)}.")
    if small:
        notes.append(
            f"The whole experiment needs a graphics card and the data: {experiment.get}. Here, ImageNet features are "
            f"those of {_PACKAGED}, whose weights are installed."
        )
    if device:
        here = "this processor" if device == "cpu" else f"this {device}"
        notes.append(
            f"Hours are those of the whole training: on a card that trains the first network on {CARD:,} images a "
            f"second, and on {here}, where a few images were timed."
        )
    return [*notes, *experiment.notes]
