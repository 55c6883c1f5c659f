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
from cml.runs.comparison import CompareOptions, run_comparison
from cml.runs.rows import Row, with_changes
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
    """A figure of a method; of a piece of the experiment there is no difference."""

    method: str
    measure: str
    published: float | None
    ours: Interval | None
    difference: float | None  # ours less the published one


@dataclass(frozen=True)
class Reproduction:
    """What came of an experiment: its figures, and sentences that say what they are."""

    figures: Sequence[Figure]
    not_run: Mapping[str, str]  # method to why
    piece: Sequence[str]  # in what this is not the whole published experiment
    hours: Mapping[str, float]  # of a method that was not run: of the whole training on this device, by a few images
    notes: Sequence[str]

    def grid(self) -> list[list[str]]:
        """Header and rows as text."""
        lines = [["method", "measure", "published", "ours", "difference"]]
        for one in self.figures:
            published = "" if one.published is None else f"{one.published:.3f}"
            ours = "not run" if one.ours is None else interval_text(one.ours)
            difference = "" if one.difference is None else f"{one.difference:+.3f}"
            lines.append([one.method, one.measure, published, ours, difference])
        return lines

    def markdown(self) -> str:
        """Table and notes as Markdown."""
        return "\n".join([text_table.markdown(self.grid()), "", *(f"- {line}" for line in self.notes), ""])

    def __str__(self) -> str:
        return "\n".join([text_table.aligned(self.grid()), *self.notes])


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

    The whole experiment needs a graphics card. Options of ``config`` that are not the experiment's hold for all.
    """
    device = pick_device(config.device).type
    changed, rows = experiment.config.difference(config), experiment.rows
    variants = {one.name: {key: one.changes[key] for key in one.changes if key not in changed} for one in rows}
    lacking = {name: _lacking(with_changes(config, changes).backbone) for name, changes in variants.items()}
    reason = _NO_DATA if data is None else "" if changed or device != "cpu" or config.device != "auto" else _NO_CARD
    not_run = {name: said or reason for name, said in lacking.items() if said or reason}
    piece = [f"{name} is {ours}, not {own}" for name, (own, ours) in changed.items()]
    found: Rows = {}
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
            found = compared.comparison.rows()
    waiting = {
        row.name: with_changes(experiment.config, row.changes) for row in experiment.rows if not lacking[row.name]
    }
    hours, forecasts = _forecast(waiting if reason else {}, device, seeds)
    notes = [f"{experiment.paper}.", f"Claim: {experiment.claim}"]
    notes += [f"Published figures of {row.name}: {row.source}." for row in experiment.rows if row.source]
    notes += [f"{name} was not run: {said}." for name, said in not_run.items()]
    if piece:
        notes.append(f"This is a piece, which says nothing of the published figures: {'; '.join(piece)}.")
    figures = [one for row in experiment.rows for one in _figures(row, experiment, found, whole=not piece)]
    result = Reproduction(figures, not_run, piece, hours, [*notes, *forecasts, *experiment.notes])
    if data is not None:
        write_json(out / f"{REPRODUCTION}.json", asdict(result))
        with atomic_file(out / f"{REPRODUCTION}.md") as temporary:
            temporary.write_text(result.markdown(), "utf-8")
    return result


def _lacking(backbone: str) -> str:
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


def _figures(row: PublishedRow, experiment: Experiment, found: Rows, *, whole: bool) -> list[Figure]:
    """A method's figures; of a measure that a small gallery does not have, that with the largest K of its kind."""
    ours, figures = found.get(row.name, {}), []
    for measure in row.figures or experiment.measures:
        largest = [one for one in ours if one.startswith(measure.partition("@")[0])]
        name = measure if measure in ours or not largest else largest[-1]
        published, own = row.figures.get(name), ours.get(name)
        apart = own[0] - published if whole and own is not None and published is not None else None
        figures.append(Figure(row.name, name, published, own, apart))
    return figures


def _forecast(methods: Mapping[str, TrainConfig], device: str, seeds: int) -> tuple[dict[str, float], list[str]]:
    """Hours that each method takes on a device, and what is said of them."""
    networks = {config.backbone: config for config in methods.values()}
    rates = {name: _seconds_an_image(config, device) for name, config in networks.items()}
    hours, said = {}, []
    for name, config in methods.items():
        images = seeds * config.steps * sampling.registry.make(config.sampler).batch_size
        seconds = images * rates[config.backbone]
        hours[name] = round(seconds / 3600, 2)
        said.append(
            f"{name} sees {images:,} images: {format_duration(images / _CARD)} at {_CARD:,} a second, "
            f"{format_duration(seconds)} on this {'processor' if device == 'cpu' else device}, where a few were timed."
        )
    return hours, said


def _seconds_an_image(config: TrainConfig, device: str) -> float:
    """Time of an image in a step of a fresh network, without reading it."""
    model = EmbeddingModel(ModelConfig(config.backbone, "none", config.dimension, False, config.image_size)).to(device)
    images = torch.zeros(4 if device == "cpu" else 64, 3, *config.image_size, dtype=torch.uint8, device=device)
    for _ in range(2):  # the first pass finds its memory
        begun = time.perf_counter()
        model(images).square().sum().backward()
        model.head.weight.sum().item()  # waits for the card
    return (time.perf_counter() - begun) / len(images)
