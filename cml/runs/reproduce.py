"""A published experiment run again: its methods trained as published, their figures beside the published ones."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from cml import models, sampling, tasks
from cml.console.durations import format_duration
from cml.data.prepared import PreparedDataset
from cml.errors import UserError
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.processes.device import pick_device
from cml.retrieval import text_table
from cml.retrieval.comparison import Interval, Rows, interval_text
from cml.retrieval.metrics import describe
from cml.runs.rows import Row, with_changes
from cml.runs.train_comparison import CompareOptions, run_comparison
from cml.storage.atomic import atomic_file
from cml.storage.json_file import write_json
from cml.tasks.papers import Experiment, PublishedRow
from cml.training.config import TrainConfig

REPRODUCTION = "reproduction"
_CARD = 1000  # images a second, of the forecast for a graphics card
_NO_DATA = "the data is missing"
_NO_CARD = "there is no graphics card: --device cpu trains nevertheless, --steps N a piece of it"


@dataclass(frozen=True)
class Figure:
    """A figure of a method.

    Attributes:
        method: Name of the method.
        measure: Name of the metric.
        published: The published figure; None if there is none.
        ours: Ours, with its interval; None if the method was not run.
        difference: Ours less the published one; None where only a part of the experiment was run.
    """

    method: str
    measure: str
    published: float | None
    ours: Interval | None
    difference: float | None


@dataclass(frozen=True)
class Reproduction:
    """The result of an experiment.

    Attributes:
        figures: Its figures beside the published ones.
        not_run: Method to the reason why it was not run.
        piece: In what this is not the whole published experiment, a clause each.
        hours: Method that was not run to the hours of its whole training on this device, estimated from a few images.
        notes: Sentences that say what the figures are.
    """

    figures: Sequence[Figure]
    not_run: Mapping[str, str]
    piece: Sequence[str]
    hours: Mapping[str, float]
    notes: Sequence[str]

    def grid(self) -> list[list[str]]:
        """Header and rows as text."""
        lines = [["method", "measure", "published", "ours", "difference"]]
        for figure in self.figures:
            published = "" if figure.published is None else f"{figure.published:.3f}"
            ours = "not run" if figure.ours is None else interval_text(figure.ours, describe(figure.measure))
            difference = "" if figure.difference is None else f"{figure.difference:+.3f}"
            lines.append([figure.method, figure.measure, published, ours, difference])
        return lines

    def markdown(self) -> str:
        """Table and notes as Markdown."""
        return "\n".join([text_table.markdown(self.grid()), "", *(f"- {line}" for line in self.notes), ""])

    def __str__(self) -> str:
        return "\n".join([text_table.align_columns(self.grid()), *self.notes])


def reproduce(
    experiment: Experiment,
    config: TrainConfig,
    data: Path | None,
    out: Path,
    *,
    seeds: int = 1,
    dimensions: Sequence[int] = (),
) -> Reproduction:
    """Train what can be trained here, and write ``reproduction.json`` and ``.md`` beside the runs, if there is data.

    The whole experiment needs a graphics card.

    Args:
        experiment: The experiment.
        config: Its options, some of which may be changed; a changed option holds for all methods.
        data: Folder of the prepared dataset; None trains nothing.
        out: Folder for the runs and the result.
        seeds: Runs per method, with seeds 0, 1, and so on.
        dimensions: Further dimensions of the embedding to train every method at.

    Returns:
        The figures, what was not run, and a forecast of the time that it takes.

    Raises:
        UserError: ``data`` holds another dataset.
    """
    device = pick_device(config.device).type
    changed, rows = experiment.config.difference(config), experiment.rows
    variants = {row.name: {key: row.changes[key] for key in row.changes if key not in changed} for row in rows}
    missing = {name: _missing_backbone(with_changes(config, changes).backbone) for name, changes in variants.items()}
    reason = ""
    if data is None:
        reason = _NO_DATA
    elif not changed and device == "cpu" and config.device == "auto":
        reason = _NO_CARD
    not_run = {name: fault or reason for name, fault in missing.items() if fault or reason}
    piece = [f"{name} is {ours}, not {own}" for name, (own, ours) in changed.items()]
    measured: Rows = {}
    if data is not None:
        dataset = PreparedDataset.open(data)
        if dataset.info.name != experiment.dataset:
            raise UserError(f"{data} holds {dataset.info.name!r}, not {experiment.dataset!r}: {experiment.prepare}.")
        piece += _fewer(experiment, dataset)
        if chosen := {name: changes for name, changes in variants.items() if name not in not_run}:
            methods = [Row(name, with_changes(config, changes)) for name, changes in chosen.items()]
            how = CompareOptions(seeds, dimensions=dimensions)
            task = tasks.get(experiment.task)
            compared = run_comparison(task, dataset, methods, out, how, dimension=config.dimension)
            measured = compared.comparison.rows()
    waiting = {
        row.name: with_changes(experiment.config, row.changes) for row in experiment.rows if not missing[row.name]
    }
    hours, forecasts = _forecast(waiting if reason else {}, device, seeds)
    notes = [f"{experiment.paper}.", f"Claim: {experiment.claim}"]
    notes += [f"Published figures of {row.name}: {row.source}." for row in experiment.rows if row.source]
    notes += [f"{name} was not run: {fault}." for name, fault in not_run.items()]
    if piece:
        notes.append(f"This is a piece, which says nothing of the published figures: {'; '.join(piece)}.")
    figures: list[Figure] = []
    for row in experiment.rows:
        figures += _figures(row, experiment, measured, whole=not piece)
    result = Reproduction(figures, not_run, piece, hours, [*notes, *forecasts, *experiment.notes])
    if data is not None:
        write_json(out / f"{REPRODUCTION}.json", asdict(result))
        with atomic_file(out / f"{REPRODUCTION}.md") as temporary:
            temporary.write_text(result.markdown(), "utf-8")
    return result


def _missing_backbone(backbone: str) -> str:
    """Why a network cannot be had, or ""."""
    try:
        models.has_published_weights(backbone)
    except UserError:
        return f"neither cml nor torchvision has the backbone {backbone!r}; a plugin may register it"
    return ""


def _fewer(experiment: Experiment, dataset: PreparedDataset) -> list[str]:
    """The parts of the dataset that have other sizes than the published ones."""
    train = dataset.info.counts["train"]
    ours = {"training": train, "test": sum(dataset.info.counts.values()) - train}
    sizes = zip(ours.items(), experiment.sizes, strict=True)
    return [f"{many:,} {part} images, not {own:,}" for (part, many), own in sizes if own not in (0, many)]


def _figures(row: PublishedRow, experiment: Experiment, measured: Rows, *, whole: bool) -> list[Figure]:
    """A method's figures; of a measure that a small gallery does not have, that with the largest K of its kind."""
    ours, figures = measured.get(row.name, {}), []
    for measure in row.figures or experiment.measures:
        largest = [key for key in ours if key.startswith(measure.partition("@")[0])]
        name = measure if measure in ours or not largest else largest[-1]
        published, own = row.figures.get(name), ours.get(name)
        apart = own[0] - published if whole and own is not None and published is not None else None
        figures.append(Figure(row.name, name, published, own, apart))
    return figures


def _forecast(methods: Mapping[str, TrainConfig], device: str, seeds: int) -> tuple[dict[str, float], list[str]]:
    """Hours that each method takes on a device, and what is said of them."""
    networks = {config.backbone: config for config in methods.values()}
    rates = {name: _seconds_an_image(config, device) for name, config in networks.items()}
    hours, sentences = {}, []
    for name, config in methods.items():
        images = seeds * config.steps * sampling.registry.make(config.sampler).batch_size
        seconds = images * rates[config.backbone]
        hours[name] = round(seconds / 3600, 2)
        sentences.append(
            f"{name} sees {images:,} images: {format_duration(images / _CARD)} at {_CARD:,} a second, "
            f"{format_duration(seconds)} on this {'processor' if device == 'cpu' else device}, where a few were timed."
        )
    return hours, sentences


def _seconds_an_image(config: TrainConfig, device: str) -> float:
    """Time of an image in a step of a fresh network, without reading it."""
    model = EmbeddingModel(ModelConfig(config.backbone, "none", config.dimension, False, config.image_size)).to(device)
    images = torch.zeros(4 if device == "cpu" else 64, 3, *config.image_size, dtype=torch.uint8, device=device)
    for _ in range(2):  # the first pass finds its memory
        begun = time.perf_counter()
        model(images).square().sum().backward()
        model.head.weight.sum().item()  # waits for the card
    return (time.perf_counter() - begun) / len(images)
