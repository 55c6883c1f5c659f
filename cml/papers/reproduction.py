"""The result of a published experiment: figures beside the published ones, what was not run, and how long it takes."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from cml import sampling
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.retrieval import text_table
from cml.retrieval.comparison import Interval, interval_text
from cml.retrieval.metrics import describe
from cml.training.config import TrainConfig

QUOTED = "quoted"
LEFT_OUT = "left out"


@dataclass(frozen=True)
class Figure:
    """A figure of a method."""

    method: str  # name of the method
    measure: str  # name of the metric
    published: float | None  # the published figure; None if there is none
    ours: Interval | None  # ours, with its interval; None if the method was not run
    difference: float | None  # ours less the published one; None where only a part of the experiment was run


@dataclass(frozen=True)
class Reproduction:
    """The result of an experiment."""

    methods: Sequence[str]  # names of all methods, those of the paper's tables that cml does not train included
    figures: Sequence[Figure]  # their figures beside the published ones
    # method that was not run to what it needs, or why it cannot be run: ``data``, ``card`` (a graphics card),
    # ``weights``, ``extra``, ``backbone``, ``quoted`` or ``left out``, each with a sentence
    not_run: Mapping[str, Mapping[str, str]]
    piece: Sequence[str]  # in what this is not the whole published experiment, a clause each
    # method to the hours of its whole training on this device, estimated from a few images
    hours: Mapping[str, float] = field(default_factory=dict)
    # the same of a graphics card that trains the first method on 1,000 images a second
    card_hours: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()  # sentences that say what the figures are

    def grid(self) -> list[list[str]]:
        """Header and rows as text: up to three rows a method, of published figures, of ours and of their difference."""
        measures = list(dict.fromkeys(figure.measure for figure in self.figures))
        lines = [["method", "figures", *measures, "state", "hours on a card", "hours here"]]
        for method in self.methods:
            cells = {figure.measure: _cells(figure) for figure in self.figures if figure.method == method}
            rows = [
                [kind, *(cells[measure][kind] if measure in cells else "" for measure in measures)]
                for kind in ("published", "ours", "difference")
            ]
            filled = [row for row in rows if any(row[1:])] or rows[:1]
            state = _state(self.not_run[method]) if method in self.not_run else "run"
            times = [f"{hours[method]:.3g}" if method in hours else "" for hours in (self.card_hours, self.hours)]
            lines.append([method, *filled[0], state, *times])
            lines += [["", *row, "", "", ""] for row in filled[1:]]
        return lines

    def reasons(self) -> list[str]:
        """A line for each need or reason, with the word that the table has for it."""
        lines = [f"{word}: {text}" for needs in self.not_run.values() for word, text in needs.items()]
        return list(dict.fromkeys(lines))

    def markdown(self) -> str:
        """Table and notes as Markdown."""
        lines = [*self.reasons(), *self.notes]
        return "\n".join([text_table.markdown(self.grid()), "", *(f"- {line}" for line in lines), ""])

    def __str__(self) -> str:
        return "\n".join([text_table.align_columns(self.grid()), *self.reasons(), *self.notes])


def _state(needs: Mapping[str, str]) -> str:
    """The words of needs; of a method that cannot be run, the reason alone."""
    for word in (QUOTED, LEFT_OUT):
        if word in needs:
            return word
    return f"needs {', '.join(needs)}"


def _cells(figure: Figure) -> Mapping[str, str]:
    """The three texts of a figure."""
    return {
        "published": "" if figure.published is None else f"{figure.published:.3f}",
        "ours": "" if figure.ours is None else interval_text(figure.ours, describe(figure.measure)),
        "difference": "" if figure.difference is None else f"{figure.difference:+.3f}",
    }


CARD = 1000  # images a second of the first training, of the forecast for a graphics card
_HOUR = 3600
_PASSES = 3  # the fastest counts: the first one finds its memory, and others may share the machine


def forecast_hours(
    trainings: Mapping[str, TrainConfig], device: str, seeds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Estimate the hours of trainings.

    Each backbone is timed at the image size of its first training; other sizes take time in proportion to their pixels.
    """
    timed = _first_by_backbone(trainings)
    seconds = {backbone: seconds_an_image(config, device) for backbone, config in timed.items()}
    hours, card_hours = {}, {}
    for name, config in trainings.items():
        images = seeds * config.steps * sampling.registry.make(config.sampler).batch_size * config.views
        # convolutions take time in proportion to the pixels
        rate = seconds[config.backbone] * _pixels(config) / _pixels(timed[config.backbone])
        hours[name] = round(images * rate / _HOUR, 2)
        card_hours[name] = round(images * rate / next(iter(seconds.values())) / CARD / _HOUR, 2)
    return hours, card_hours


def _pixels(config: TrainConfig) -> int:
    height, width = config.image_size
    return height * width


def _first_by_backbone(trainings: Mapping[str, TrainConfig]) -> dict[str, TrainConfig]:
    """The first training of each backbone, in order."""
    first: dict[str, TrainConfig] = {}
    for config in trainings.values():
        first.setdefault(config.backbone, config)
    return first


def seconds_an_image(config: TrainConfig, device: str) -> float:
    """Time an image in a step of a fresh network."""
    model = EmbeddingModel(ModelConfig(config.backbone, "none", config.dimension, False, config.image_size)).to(device)
    images = torch.zeros(2 if device == "cpu" else 64, 3, *config.image_size, dtype=torch.uint8, device=device)
    seconds = []
    for _ in range(_PASSES):
        begun = time.perf_counter()
        model(images).square().sum().backward()
        model.head.weight.sum().item()  # waits for the card
        seconds.append(time.perf_counter() - begun)
    return min(seconds) / len(images)
