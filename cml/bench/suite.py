"""What a version of the benchmark measures: sets, sizes of their parts, training budget, methods with their ranges."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from cml.array_types import Float32
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
UNTRAINED = ("oracle", "random")
_FIRST_FIXED_ROWS = (*UNTRAINED, "frozen", "label-mds")
FIXED_ROWS = (*_FIRST_FIXED_ROWS, "ridge", "tune")  # rows without trials and seeds; ridge: where labels are vectors


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
    tier: str = "offline"  # or vectors, download, or own
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


def _vectors(source: str, kind: str, **fields: Any) -> SetSpec:  # noqa: ANN401 - those of SetSpec
    return SetSpec(source, kind, tier="vectors", input_kind="vectors", **fields)


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
    "diabetes": _vectors("diabetes", "progression"),
    "melting-points": _vectors("molecules(count={count})", "melting points", group="scaffold"),
    "structure": _vectors("molecules(count={count}, label=structure)", "substructures", group="scaffold"),
    "frequency": _vectors("series(count={count})", "frequencies"),
    "phase": _vectors("series(count={count}, label=phase)", "phases"),
    "sentences": _vectors("coco_sentences", "captions", variable="CML_COCO_CAPTIONS"),
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
    fixed_rows: tuple[str, ...] = _FIRST_FIXED_ROWS

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
LATEST = "2026.2"
_FIRST = Suite("2026.1", 3000, 1600, 400, 100, 500, 20, 5, _HEADS, _NETWORK, 100)
# to see that everything works: its figures say little
_FIRST_QUICK = Suite(
    "2026.1-quick", 900, 480, 120, 100, 200, 5, 2, replace(_HEADS, steps=100), replace(_NETWORK, steps=30), 10
)
SUITES: Mapping[str, Suite] = {  # the latest first
    LATEST: replace(_FIRST, version=LATEST, fixed_rows=FIXED_ROWS),
    f"{LATEST}-quick": replace(_FIRST_QUICK, version=f"{LATEST}-quick", fixed_rows=FIXED_ROWS),
    "2026.1": _FIRST,
    "2026.1-quick": _FIRST_QUICK,
}

SPLITS: Mapping[str, Mapping[str, str]] = {  # sha256 of the parts of the sets that everybody can make
    "2026.2": {
        "people": "266168828942a2e6a66186dfb608e15c3501a028d8221b781c0bfdc2fa54739e",
        "rooms": "a823c1e57b23c24e0a34e19d99ccb4d0f87bb0c9a875b2e6f0220b16a37b43ba",
        "scenes": "d9e183eeac362a437714d76d48233879012fb645352bccd1f301a5223445be9f",
        "heads": "e7b42e279d39a3ef8119f206b6ca62e7a5350e31212e99141d2a47ffefafaae5",
        "digits": "09de6ceeed279d1be40884c2ce33699aeb7723bebffafb391a1082011b87c9ce",
        "elpv": "10ec173d35b5eb979cab6ccd5c7b9e0d3462f49f3d7193cf69be4eae65a03bcf",
        "earth": "95eef455262e94bf4fe45eb1e345d199ee08b7c49877c8ebbfd71743fb0f195f",
        "diabetes": "f2f28e85d423cabc7c5896fb2161bf1947bed04133bf2b116db3ad639262dc15",
        "melting-points": "fc05a46442c72ed3acccb9b6c0b6bb0f3a524bfe5f481a536e16a7b331226b1d",
        "structure": "950d1983c38b651e1499173b54934073800def12b32a2f378fa8c1b31f6a123c",
        "frequency": "ba3e3968d4f2916f33aa5f5b3236b26ae96cc1ec517ce7254d76eabfd6062923",
        "phase": "61fff8a3e6e9a77e7fddc73b4f645729fd94d63eaaf29e567b59749d8531b3d6",
    },
    "2026.2-quick": {
        "people": "477243f272af94ffa6fcfc4b3169402f8334f89321793ef8cbf8afc922678714",
        "rooms": "0ae85477d926e9105d1ecd3c9be61fabd4a4918e55a121e060be3f7f83b2e4dd",
        "scenes": "6dc4c28eb2bf83501bf08ba43c67ebf0319d71a45ee7289099efed78e1008826",
        "heads": "43615fa76948c77618fdaec6fef64b84b109ffc837de82c10b8077d32a06fd74",
        "digits": "8f623a29b3b88ebc33ee358d2d0607c7eca51f4391e9c54f4dc66627cea0da96",
        "elpv": "47d3f3411009bb391379a4b9421a6b1f35526054061bdccda570d53434bccbb5",
        "earth": "3852c74ed2b6ef38fda148de7d0599363fa3823eb032b7154d61ec20eabcf073",
        "diabetes": "0c2892f928a23bfa11f2d283bd061c5160faddf9d9799dcc4734fee321379b07",
        "melting-points": "24e96c5faa2afb79baca076b60b6f92645f29f5c0ef0c09f355b5313a4b2114b",
        "structure": "c5be18a5ef3e96c3ac7170416b1b4fc32e073411a06d8fbf2850ac5113dc9e7b",
        "frequency": "7a608fd43fd29babe8569bf7b771ae042a7e4b7c3b7096d73188f9620ebb9fc9",
        "phase": "12f0acfde585ca1ff559548aa7d60dde3c5bb50e86981c904fb608923e8678a7",
    },
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


# log-ratio of the suite 2026.1: equal labels count as the floor, and nothing bounds the exponent. Its row
# "log-ratio-paper" leaves pairs of equal labels out, as cml's published form did then; the authors' code keeps them.
_FIRST_LOG_RATIO = "log-ratio(zero_factor=1.0, largest_exponent=1000.0)"
# docs/results/losses.md says on which sets the defaults of a loss were chosen: log-ratio's zeros and bound and CoSENT's
# scale later, on further sets
_FIRST_CHOSEN_ON = ("people", "scenes", "steering")
_CHOSEN_ON = (*_FIRST_CHOSEN_ON, "rooms", "digits", "sentences")
_SCALE_CHOSEN_ON = ("heads", "digits", "elpv")
# the same of the rows without trials: candidates and averages of tune (docs/howto/tune.md)
FIXED_CHOSEN_ON: Mapping[str, tuple[str, ...]] = {
    "tune": ("people", "rooms", "heads", "digits", "elpv", "steering", "diabetes", "sentences")
}
METHODS: Mapping[str, Method] = {
    "log-ratio": Method(_FIRST_LOG_RATIO, _LOG_RATIO, earlier="log-ratio", chosen_on=_FIRST_CHOSEN_ON),
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
        f"sum({_FIRST_LOG_RATIO}, 0.3*cosent(scale=2.0))",
        {},
        earlier="sum(log-ratio, 0.3*cosent(scale=2.0))",
        chosen_on=_FIRST_CHOSEN_ON,
    ),
    "regression": Method("regression", {"loss.penalty": "squared,absolute,huber"}, vectors=True),
}
# by version: methods of a later suite that differ from those above, since defaults have changed
CHANGED: Mapping[str, Mapping[str, Method]] = {
    "2026.2": {
        "log-ratio": Method("log-ratio", _LOG_RATIO, chosen_on=_CHOSEN_ON),
        "log-ratio-paper": Method(
            "log-ratio(label_exponent=1.0, floor_quantile=0.0, weights=uniform, normalize=False, "
            "published_offsets=True)",
            {"loss.label_exponent": "0.5..2.0"},
        ),
        "cosent": Method("cosent", {"loss.scale": "1.0..50.0:log"}, chosen_on=_SCALE_CHOSEN_ON),
        "sum": Method("sum", {}, chosen_on=tuple(dict.fromkeys((*_CHOSEN_ON, *_SCALE_CHOSEN_ON)))),
    }
}
# by version: settings that label distances have in it unless they are given, since defaults have changed
LABEL_SETTINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {"2026.1": {"captions": {"stop_words": "english"}}}
QUICK = ("log-ratio", "binary-nearest", "rank-n-contrast", "rkd-distance", "soft-target", "cosent")


def methods(names: Iterable[str], suite: Suite, quick: bool = False) -> list[str]:
    """List the rows of a suite.

    Args:
        names: The losses that are wanted; none for all of the suite's.
        suite: The suite.
        quick: Whether few of its losses will do, if none are named.

    Returns:
        The rows without trials, then the losses.
    """
    wanted = dict.fromkeys(names or (QUICK if quick else METHODS))
    return [*suite.fixed_rows, *(name for name in wanted if method(name, suite.version))]


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
    if name in FIXED_ROWS or name in known:
        return known.get(name)
    from cml import losses

    choice = Choice.parse(name)
    if choice.name not in losses.names():
        raise UserError(
            f"Unknown method {name!r}.{did_you_mean(name, METHODS)} Known: {', '.join([*FIXED_ROWS, *METHODS])}, and "
            "every loss as --loss takes it; give --plugin FILE_OR_MODULE for a loss of your own."
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
