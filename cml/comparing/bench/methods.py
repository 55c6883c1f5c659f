"""The methods of the benchmark: losses with the ranges that their trials vary, and rows that have no trials."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cml import plugins
from cml.array_types import Float32
from cml.comparing.search_space import parse_search_space, with_settings
from cml.comparing.trials import draw_settings
from cml.errors import UserError, did_you_mean
from cml.registry import Choice
from cml.storage.saved_options import as_json
from cml.training.config import TrainConfig

UNTRAINED = ("oracle", "random")
FIXED_ROWS = (*UNTRAINED, "frozen", "label-mds", "ridge", "tune")  # without trials; ridge: where labels are vectors
# a whole network takes lower rates than a head
_RATES = {"A": "3e-4..3e-2:log", "B": "1e-4..1e-2:log"}
_DECAY = "1e-4..1.0:log"
_TEMPERATURE = {"loss.temperature": "0.02..1.0:log"}
_GRADED = {"loss.temperature": "0.01..0.5:log", "loss.neighbors": "3..30"}


@dataclass(frozen=True)
class Method:
    """A loss of the benchmark, with the ranges of its settings beside learning rate and weight decay."""

    loss: str  # as the command line takes it
    vary: Mapping[str, str]
    vectors: bool = False  # whether it predicts labels that are vectors
    chosen_on: tuple[str, ...] = ()  # the sets on which its defaults were chosen

    def settings(self, trial: int, track: str) -> dict[str, Any]:
        """What a trial sets: nothing in the first, the defaults; the others are drawn by their number."""
        ranges = {"learning_rate": _RATES[track], "weight_decay": _DECAY, **self.vary}
        settings: dict[str, Any] = as_json(draw_settings(parse_search_space(ranges), trial, seed=0)) if trial else {}
        return settings

    def options(self, shared: TrainConfig, vectors: Float32 | None) -> TrainConfig:
        """The options of all methods with its loss; one that predicts labels embeds into their space."""
        size = vectors.shape[1] if self.vectors and vectors is not None else shared.dimension
        return replace(shared, loss=self.loss, dimension=size)


# docs/results/losses.md says on which sets the defaults of a loss were chosen: log-ratio's zeros and bound and CoSENT's
# scale later, on further sets
_CHOSEN_ON = ("people", "scenes", "steering", "rooms", "digits", "sentences")
_SCALE_CHOSEN_ON = ("heads", "digits", "elpv")
_TUNE_CHOSEN_ON = ("people", "rooms", "heads", "digits", "elpv", "steering", "diabetes", "sentences")  # howto/tune.md
METHODS: Mapping[str, Method] = {
    "log-ratio": Method(
        "log-ratio",
        {"loss.weights": "rank,uniform", "loss.floor_quantile": "0.0,0.02,0.1", "loss.rank_offset": "1..20"},
        chosen_on=_CHOSEN_ON,
    ),
    "log-ratio-paper": Method(
        "log-ratio(label_exponent=1.0, floor_quantile=0.0, weights=uniform, normalize=False, published_offsets=True)",
        {"loss.label_exponent": "0.5..2.0"},
    ),
    "dense-triplet": Method("dense-triplet", {"loss.margin": "0.01..0.5:log"}),
    "binary-threshold": Method(
        "binary-triplet(rule=threshold, quantile=0.1)",
        {"loss.quantile": "0.01..0.3:log", "loss.margin": "0.05..0.5:log"},
    ),
    "binary-nearest": Method("binary-triplet", {"loss.k": "1..20", "loss.margin": "0.05..0.5:log"}),
    "rank-n-contrast": Method("rank-n-contrast", {"loss.temperature": "0.1..10.0:log", "loss.normalize": "True,False"}),
    "rkd-distance": Method("rkd-distance", {"loss.normalize": "True,False"}),
    "relaxed-contrastive": Method("relaxed-contrastive", {"loss.sigma": "0.1..2.0:log", "loss.delta": "0.5..2.0"}),
    "graded-contrastive": Method("graded-contrastive", {"loss.reach": "0.3..3.0:log", "loss.margin": "0.2..1.5"}),
    "soft-target": Method("soft-target", {"loss.label_temperature": "0.02..1.0:log", **_TEMPERATURE}),
    "kernel-supcon": Method("kernel-supcon", {"loss.bandwidth": "0.05..2.0:log", **_TEMPERATURE}),
    "cosent": Method("cosent", {"loss.scale": "1.0..50.0:log"}, chosen_on=_SCALE_CHOSEN_ON),
    "h-ap": Method("h-ap", _GRADED),
    "lambda-ndcg": Method("lambda-ndcg", _GRADED),
    "sum": Method("sum", {}, chosen_on=tuple(dict.fromkeys((*_CHOSEN_ON, *_SCALE_CHOSEN_ON)))),
    "regression": Method("regression", {"loss.penalty": "squared,absolute,huber"}, vectors=True),
}
# the rows of the published tables: the default, its rivals of the papers, and a regression; others are run by name
PUBLISHED = (
    "log-ratio",
    "dense-triplet",
    "binary-threshold",
    "rank-n-contrast",
    "cosent",
    "h-ap",
    "rkd-distance",
    "regression",
)
_QUICK = ("log-ratio", "binary-threshold", "rank-n-contrast", "cosent")


def list_methods(names: Iterable[str], quick: bool = False) -> list[str]:
    """The rows without trials, then the losses that are named; where none is, the published ones, or few of them."""
    wanted = dict.fromkeys(names or (_QUICK if quick else PUBLISHED))
    return [*FIXED_ROWS, *(name for name in wanted if find_method(name))]


def find_method(name: str) -> Method | None:  # None: a row without trials
    """Find the loss of the suite that has a name, or the registered loss that the name writes.

    Trials of a loss that is no method of the suite vary what those of its method do, or else its own ``search_space``.
    A setting that stands in the brackets stays as it is.
    """
    if name in FIXED_ROWS or name in METHODS:
        return METHODS.get(name)
    from cml import losses

    choice = Choice.parse(name)
    if choice.name not in losses.names():
        raise UserError(
            f"Unknown method {name!r}.{did_you_mean(name, METHODS)} Known: {', '.join([*FIXED_ROWS, *METHODS])}, and "
            "every loss as --loss takes it; give --plugin FILE_OR_MODULE for a loss of your own."
        )
    loss, own = losses.get(name), METHODS.get(choice.name)
    if loss.labels == "classes":
        raise UserError(
            f"The loss {name!r} is over classes, which the benchmark does not give it: take it through a rule, as in "
            f"'binary(loss={choice.name}, rule=nearest, k=5)'."
        )
    ranges = own.vary if own else {f"loss.{key}": values for key, values in loss.search_space.items()}
    ranges = {key: values for key, values in ranges.items() if key.removeprefix("loss.") not in choice.settings}
    for dimension in parse_search_space(ranges):
        losses.get(with_settings(TrainConfig(loss=name), {dimension.name: dimension.ends[0]}).loss)
    return Method(name, ranges, loss.labels == "vectors")


def chosen_on(name: str) -> tuple[str, ...]:
    """The sets on which the defaults of a row were chosen."""
    if name == "tune":
        return _TUNE_CHOSEN_ON
    return METHODS[name].chosen_on if name in METHODS else ()


def find_plugins(loss: str, backbone: str) -> tuple[tuple[str, str], ...]:
    """Name and SHA-256 of the plugins that registered a loss, a part of it or a backbone; "" is none of them."""
    from cml import losses

    names = [Choice.parse(backbone).name.partition("/")[0]] if backbone else []
    if loss:
        names.append(Choice.parse(loss).name)
        of_plugins = [name for name, origin in losses.registry.origins().items() if origin]
        if of_plugins:  # only then is it worth making the loss
            parts = {type(module) for module in losses.get(loss).modules()}
            names += [name for name in of_plugins if losses.registry.entry(name) in parts]
    return plugins.required_plugins(*names)
