"""What a version of the benchmark measures: sets, sizes of their parts, training budget, methods with their ranges."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from cml.distances.label_distance import Float32
from cml.errors import UserError, did_you_mean
from cml.registry import Choice
from cml.runs.search_space import parse_search_space, with_settings
from cml.runs.trials import draw_settings
from cml.storage.provenance import as_json
from cml.training.config import TrainConfig

T = TypeVar("T")
OWN = "own-"  # how the names of the user's own sets begin
NO_BACKBONE = "none"  # that of vectors, on which heads are trained as they are
TRACKS = ("A", "B", "C")  # a head on frozen features, a whole network, any embedding that was made elsewhere


@dataclass(frozen=True)
class SetSpec:
    """A data set of the suite."""

    source: str  # the data source as text; {count} is how many pictures the suite has drawn
    kind: str  # of label, for tables
    group: str = ""  # column of metadata.jsonl whose items stay together when validation items are split off, if any
    cell: float = 0.0  # degrees of latitude and longitude: the places of the column in one cell are one group
    # whether training and test items are whole groups too: of so many classes or places, single items would hardly
    # ever have another one of theirs
    whole: bool = False
    variable: str = ""  # environment variable with the folder of the raw files, where they are the user's own
    files: Mapping[str, str] = field(default_factory=lambda: {"source": ""})  # setting of the source to its path there
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the source, beside
    tier: str = "offline"  # or download, or own
    folder: str = ""  # of a prepared dataset of the user's own
    features: str = ""  # folder of the feature store whose rows take the place of its items, if any
    input_kind: str = "images"  # or vectors

    def source_settings(self) -> dict[str, Any]:
        """The settings of the source that its text does not have; an error if the raw files are missing."""
        if not self.variable:
            return dict(self.settings)
        folder, source = os.environ.get(self.variable), self.source.partition("(")[0]
        if not folder or not Path(folder).exists():
            wrong = (
                f"{self.variable} is {folder!r}, which does not exist" if folder else "its raw files are the user's own"
            )
            raise UserError(
                f"{wrong}: set {self.variable} to their folder, which cml prepare {source} --help describes."
            )
        return {**self.settings, **{name: Path(folder) / path for name, path in self.files.items()}}


def _download(source: str, kind: str, variable: str, **fields: Any) -> SetSpec:  # noqa: ANN401 - those of SetSpec
    return SetSpec(source, kind, variable=f"CML_{variable}", tier="download", **fields)


_MPII_POSES, _CITIES = "mpii_human_pose_v1_u12_1.mat", ("amsterdam", "boston", "cph", "sf")
SETS: dict[str, SetSpec] = {  # own sets are added to it
    "people": SetSpec("people(count={count})", "poses"),
    "rooms": SetSpec("rooms(count={count})", "layouts"),
    "scenes": SetSpec("scenes(count={count})", "captions"),
    "heads": SetSpec("heads(count={count})", "rotations"),
    "digits": SetSpec("digits", "classes"),
    "elpv": SetSpec("elpv", "probability"),
    "earth": SetSpec("earth", "places", group="region"),
    "steering": SetSpec("donkeycar", "angles", variable="CML_TUB"),
    "mpii": _download("mpii", "poses", "MPII", files={"annotations": _MPII_POSES, "images": "images"}),
    "lsun": _download("lsun_layout", "layouts", "LSUN"),
    "zind": _download("zind_layouts", "layouts", "ZIND"),
    "coco": _download("coco_captions", "captions", "COCO", files={"source": "", "karpathy": "dataset_coco.json"}),
    "agedb": _download("agedb", "ages", "AGEDB"),
    "msls": _download("msls", "views", "MSLS", group="value", cell=0.002, whole=True, settings={"cities": _CITIES}),
    "cub": _download("cub", "classes", "CUB"),
    "cars": _download("cars", "classes", "CARS"),
    "sop": _download("sop", "classes", "SOP", group="class", whole=True),
    "in-shop": _download("in_shop", "classes", "IN_SHOP", group="class", whole=True),
}


@dataclass(frozen=True)
class Suite:
    """The sizes and the budget of one version."""

    version: str
    count: int  # pictures that a drawn set has
    train: int  # training items of a set at most
    validation: int  # validation items at most: a fifth of the groups
    queries: int  # test queries at most
    gallery: int  # test gallery items at most
    trials: int  # of every loss, drawn by seed
    seeds: int  # final runs
    heads: TrainConfig  # how heads on frozen features are trained
    network: TrainConfig  # how whole networks are
    short: int  # steps of a trial of a whole network, a third of its final run's: it takes minutes, a head seconds

    def config(self, track: str, backbone: str = "") -> TrainConfig:
        """The options that all methods of a track share."""
        config = self.network if track == "B" else self.heads
        if backbone == NO_BACKBONE:
            return replace(config, backbone=backbone, weights="none")
        return replace(config, backbone=backbone) if backbone else config

    def trial(self, track: str, config: TrainConfig) -> TrainConfig:
        """The options of a trial whose final run would have these."""
        return replace(config, steps=self.short) if track == "B" else config


_HEADS = TrainConfig(
    sampler="random(batch_size=64)",
    dimension=64,
    image_size=(128, 128),
    steps=300,
    freeze_backbone=True,
    head_start="random",  # heads that are trained at once share their start, whatever the loss
    workers=0,
)
_NETWORK = replace(
    _HEADS, backbone="small-cnn", weights="none", image_size=(32, 32), precision="bfloat16", freeze_backbone=False
)
LATEST = "2026.1"
_SHORT = replace(_HEADS, steps=100), replace(_NETWORK, steps=30)
SUITES: Mapping[str, Suite] = {
    LATEST: Suite(LATEST, 3000, 1600, 400, 100, 500, 20, 5, _HEADS, _NETWORK, 100),
    # to see that everything works: its figures say little
    f"{LATEST}-quick": Suite(f"{LATEST}-quick", 900, 480, 120, 100, 200, 5, 2, *_SHORT, 10),
}

SPLITS: Mapping[str, Mapping[str, str]] = {  # sha256 of the parts of the sets that everybody can make
    "2026.1": {
        "people": "a224cb71d1974145a45f4488ffdb48ee905029408304656e45e861b0cdbc06ba",
        "rooms": "63f16b14d8b050c4f653abdbd0131a9b7f94da0b3aaa3bd24eae3fef934c0762",
        "scenes": "113100dffb9c9b6f29c2371d16ed301f130e068ee4a21558df4cb8286416b8af",
        "heads": "c7471901ecf39bacce43f698fe57054c98a9aad534059d47c966e69ad85874f8",
        "digits": "932b27490da9076c617f2c9730631eed509c0a839af94100134d5bf2e8723904",
        "elpv": "d81b6df1e6af56755bc1087c1cc40cccebeb844c572aa7a6df8ecb2942168e11",
        "earth": "85a15aeb296530292a958c8d449936109abe08a25d2f57ddbb6309437aa72dae",
    },
    "2026.1-quick": {
        "people": "3a2cd262064dd8176937989d2e70a7a689bec4cb7d90f03ef928e02b2d0957e2",
        "rooms": "485cfecf3749882c7938afc7106106f02741731e73a1423088397d6e12508787",
        "scenes": "af144a21210f6c63d12e75eaf19ae486d92b0656031f9a2bbc3d5c9da54da8cd",
        "heads": "a1fd2d70a9598cecafc6999310bd73c9f96ab7b13b27ac4d0517feae0188d67a",
        "digits": "11c0e7a67738541c4acf2b2ca83a0441411432de5c3f33584033e72905eec7f5",
        "elpv": "15a276382483d7edba2b093fc182835671a2b4bdf6902d30a9c2b049d6a3c378",
        "earth": "0383f195bf0fb242029b5424f58335c64c12b48bcbde20c95425dc8930299281",
    },
}

UNTRAINED = ("oracle", "random")
RULES = (*UNTRAINED, "frozen", "label-mds")  # the rows that every set has: no trials, no seeds
_RATES = {"A": "3e-4..3e-2:log", "B": "1e-4..1e-2:log"}  # a whole network takes lower rates than a head
_DECAY = "1e-4..1.0:log"
_TEMPERATURE = {"loss.temperature": "0.02..1.0:log"}
_LOG_RATIO = {"loss.weights": "rank,uniform", "loss.floor_quantile": "0.0,0.02,0.1", "loss.rank_offset": "1..20"}
_GRADED = {"loss.temperature": "0.01..0.5:log", "loss.neighbors": "3..30"}


@dataclass(frozen=True)
class Method:
    """A loss of the benchmark, with the ranges of its settings beside learning rate and weight decay."""

    loss: str  # as the command line takes it
    vary: Mapping[str, str]
    vectors: bool = False  # whether it predicts labels that are vectors
    earlier: str = ""  # the same loss in results of before its defaults changed, if they did

    def settings(self, trial: int, track: str) -> dict[str, Any]:
        """What a trial sets: nothing in the first, the defaults; the others are drawn by their number."""
        ranges = {"learning_rate": _RATES[track], "weight_decay": _DECAY, **self.vary}
        settings: dict[str, Any] = as_json(draw_settings(parse_search_space(ranges), trial, seed=0)) if trial else {}
        return settings

    def options(self, shared: TrainConfig, vectors: Float32 | None) -> TrainConfig:
        """The options of all methods with its loss; one that predicts labels embeds into their space."""
        size = vectors.shape[1] if self.vectors and vectors is not None else shared.dimension
        return replace(shared, loss=self.loss, dimension=size)


# log-ratio of the suite 2026.1: equal labels count as the floor, and nothing bounds the exponent. Its row
# "log-ratio-paper" leaves pairs of equal labels out, as cml's published form did then; the authors' code keeps them.
_FIRST_LOG_RATIO = "log-ratio(zero_factor=1.0, largest_exponent=1000.0)"
METHODS: Mapping[str, Method] = {
    "log-ratio": Method(_FIRST_LOG_RATIO, _LOG_RATIO, earlier="log-ratio"),
    "log-ratio-paper": Method(
        "log-ratio(label_exponent=1.0, floor_quantile=0.0, weights=uniform, normalize=False)",
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
    "cosent": Method("cosent(scale=20.0)", {"loss.scale": "1.0..50.0:log"}, earlier="cosent"),
    "h-ap": Method("h-ap", _GRADED),
    "lambda-ndcg": Method("lambda-ndcg", _GRADED),
    "sum": Method(
        f"sum({_FIRST_LOG_RATIO}, 0.3*cosent(scale=2.0))", {}, earlier="sum(log-ratio, 0.3*cosent(scale=2.0))"
    ),
    "regression": Method("regression", {"loss.penalty": "squared,absolute,huber"}, vectors=True),
}
# by version: methods of a later suite that differ from those above, since defaults have changed
CHANGED: Mapping[str, Mapping[str, Method]] = {
    "2026.2": {
        "log-ratio": Method("log-ratio", _LOG_RATIO),
        "log-ratio-paper": Method(
            "log-ratio(label_exponent=1.0, floor_quantile=0.0, weights=uniform, normalize=False, "
            "published_offsets=True)",
            {"loss.label_exponent": "0.5..2.0"},
        ),
        "cosent": Method("cosent", {"loss.scale": "1.0..50.0:log"}),
        "sum": Method("sum", {}),
    }
}
# by version: settings that label distances have in it unless they are given, since defaults have changed
LABEL_SETTINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {"2026.1": {"captions": {"stop_words": "english"}}}
QUICK = ("log-ratio", "binary-nearest", "rank-n-contrast", "rkd-distance", "soft-target", "cosent")


def methods(names: Iterable[str], quick: bool = False) -> list[str]:
    """The rows that every set has, then the losses of these names, all of the suite's if there are none."""
    return [*RULES, *(name for name in dict.fromkeys(names or (QUICK if quick else METHODS)) if method(name))]


def methods_of(version: str) -> Mapping[str, Method]:
    """List the methods of a version of the suite.

    Args:
        version: Such as "2026.1" or "2026.1-quick".

    Returns:
        The methods by name. Every version has the same names.
    """
    return {**METHODS, **CHANGED.get(version.partition("-")[0], {})}


def method(name: str, version: str = LATEST) -> Method | None:
    """Look up the loss of a suite that has a name, or the registered loss that the name writes.

    Trials of a loss that is no method of the suite vary what those of its method do, or else its own ``search_space``.
    A setting that stands in the brackets stays as it is.

    Args:
        name: Name of a row, or a loss as ``--loss`` takes it.
        version: Version of the suite.

    Returns:
        The method. None: a row without trials.

    Raises:
        UserError: there is no such loss, or it is over classes.
    """
    known = methods_of(version)
    if name in RULES or name in known:
        return known.get(name)
    from cml import losses

    choice = Choice.parse(name)
    if choice.name not in losses.names():
        raise UserError(
            f"Unknown method {name!r}.{did_you_mean(name, METHODS)} Known: {', '.join([*RULES, *METHODS])}, and every "
            "loss as --loss takes it; give --plugin FILE_OR_MODULE for a loss of your own."
        )
    loss, own = losses.get(name), known.get(choice.name)
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


def with_settings_of(version: str, label_distance: str) -> str:
    """Give a label distance the settings that it has in a version of the suite.

    Args:
        version: Such as "2026.1" or "2026.1-quick".
        label_distance: The label distance, as on the command line.

    Returns:
        The label distance, in which settings that were given stay.
    """
    choice = Choice.parse(label_distance)
    settings = LABEL_SETTINGS.get(version.partition("-")[0], {}).get(choice.name, {})
    return str(Choice(choice.name, {**choice.settings, **settings, **choice.settings})) if settings else label_distance


def track_folder(track: str, backbone: str) -> str:
    """Name the folder of the results of a track.

    Args:
        track: "A" or "B".
        backbone: The backbone of the methods that are trained.

    Returns:
        The name: ``A-efficientnet-lite0``.
    """
    return f"{track}-{backbone.replace('/', '-')}"


def declare_pretraining(weights: str) -> str:
    """Describe the data on which a backbone was trained before.

    Args:
        weights: Its weights, as ``TrainConfig`` has them.

    Returns:
        What results state; the name of the weights where the data is unknown.
    """
    return "ImageNet-1k, classes" if weights == "imagenet" else weights


def look_up(kind: str, name: str, there: Mapping[str, T]) -> T:
    """Return the entry of a table that has a name.

    Args:
        kind: Kind of entry, for the message: "set" or "suite".
        name: The name.
        there: The table.

    Returns:
        The entry.

    Raises:
        UserError: the table has no such name.
    """
    if name not in there:
        raise UserError(f"Unknown {kind} {name!r}.{did_you_mean(name, there)} Known: {', '.join(there)}.")
    return there[name]
