"""What the benchmark measures, as data: its sets, the sizes of their parts, the training budget, and its splits.

Prepared datasets of the user's own become sets beside those of the suite.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from cml.data.prepared import PreparedDataset
from cml.errors import UserError, did_you_mean
from cml.feature_store.store import FeatureStore
from cml.training.config import TrainConfig

T = TypeVar("T")
OWN = "own-"  # how the names of the user's own sets begin
NO_BACKBONE = "none"  # that of vectors, on which heads are trained as they are


@dataclass(frozen=True)
class SetSpec:
    """A data set of the suite."""

    source: str  # the data source as text; {count} is how many pictures the suite has drawn
    kind: str  # of label, for tables
    drawn: bool = False  # whether cml draws its items; their labels are exact
    group: str = ""  # column of metadata.jsonl whose items stay together when validation items are split off, if any
    cell: float = 0.0  # degrees of latitude and longitude: the places of the column in one cell are one group
    # whether training and test items are whole groups too: of so many classes or places, single items would hardly
    # ever have another one of theirs
    whole: bool = False
    # whether no class of the test is one of the training: ``tune`` then holds out whole classes
    new_classes: bool = False
    variable: str = ""  # environment variable with the folder of the raw files, where they are the user's own
    files: Mapping[str, str] = field(default_factory=lambda: {"source": ""})  # setting of the source to its path there
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the source, beside
    tier: str = "offline"  # or drawn, vectors, download, or own
    folder: str = ""  # of a prepared dataset of the user's own
    features: str = ""  # folder of the feature store whose rows take the place of its items, if any
    input_kind: str = "images"  # or vectors
    graded: bool = False  # whether labels are grades of documents for queries, which ``graded_sets`` draws
    sampler: str = ""  # the batches that its labels need; "" for those of the suite

    def suit(self, config: TrainConfig) -> TrainConfig:
        """The options of training, with the batches that its labels need."""
        return replace(config, sampler=self.sampler or config.sampler)

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


def _drawn(source: str, kind: str) -> SetSpec:
    return SetSpec(source, kind, drawn=True, tier="drawn")


def _vectors(source: str, kind: str, **fields: Any) -> SetSpec:  # noqa: ANN401 - those of SetSpec
    return SetSpec(source, kind, tier="vectors", input_kind="vectors", **fields)


_MPII_POSES, _CITIES = "mpii_human_pose_v1_u12_1.mat", ("amsterdam", "boston", "cph", "sf")
SETS: dict[str, SetSpec] = {  # own sets are added to it
    "digits": SetSpec("digits", "classes", new_classes=True),
    "elpv": SetSpec("elpv", "probability"),
    "earth": SetSpec("earth", "places", group="region"),
    "steering": SetSpec("donkeycar", "angles", variable="CML_TUB"),
    "people": _drawn("people(count={count})", "poses"),
    "rooms": _drawn("rooms(count={count})", "layouts"),
    "scenes": _drawn("scenes(count={count})", "captions"),
    "heads": _drawn("heads(count={count})", "rotations"),
    "mpii": _download("mpii", "poses", "MPII", files={"annotations": _MPII_POSES, "images": "images"}),
    "lsun": _download("lsun_layout", "layouts", "LSUN"),
    "zind": _download("zind_layouts", "layouts", "ZIND"),
    "coco": _download("coco_captions", "captions", "COCO", files={"source": "", "karpathy": "dataset_coco.json"}),
    "agedb": _download("agedb", "ages", "AGEDB"),
    "msls": _download("msls", "views", "MSLS", group="value", cell=0.002, whole=True, settings={"cities": _CITIES}),
    "cub": _download("cub", "classes", "CUB", new_classes=True),
    "cars": _download("cars", "classes", "CARS", new_classes=True),
    "sop": _download("sop", "classes", "SOP", group="class", whole=True, new_classes=True),
    "in-shop": _download("in_shop", "classes", "IN_SHOP", group="class", whole=True, new_classes=True),
    "diabetes": _vectors("diabetes", "progression"),
    "melting-points": _vectors("molecules(count={count})", "melting points", group="scaffold"),
    "structure": _vectors("molecules(count={count}, label=structure)", "substructures", group="scaffold"),
    "tablets": _vectors("tablets", "milligrams"),
    "vowels": _vectors("vowels", "sequences"),
    "waves": _vectors("series(count={count}, label=shape)", "sequences", drawn=True),
    "search": _vectors("", "grades", drawn=True, graded=True, sampler="queries(batch_size=64, documents=7)"),
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
    trials: int  # of every loss, drawn by their number
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
    steps=200,
    freeze_backbone=True,
    head_start="random",  # the same start for every loss
    workers=0,
)
_NETWORK = replace(
    _HEADS,
    backbone="small-cnn",
    weights="none",
    image_size=(32, 32),
    precision="bfloat16",
    freeze_backbone=False,
    steps=300,
)
VERSION = "2026.3"
QUICK = f"{VERSION}-quick"  # to see that everything works: its figures say little
SUITES: Mapping[str, Suite] = {
    VERSION: Suite(VERSION, 2200, 1000, 250, 150, 500, 3, 3, _HEADS, _NETWORK, 100),
    QUICK: Suite(QUICK, 900, 480, 120, 100, 200, 3, 2, replace(_HEADS, steps=100), replace(_NETWORK, steps=30), 10),
}

SPLITS: Mapping[str, Mapping[str, str]] = {  # sha256 of the parts of the sets that everybody can make
    "2026.3": {
        "digits": "3076698095578dec400751a27e47bc92bfe1c804930f098f7c1dac7751cb670e",
        "elpv": "d255c6c0c7a25a51e57cf04657e041756ac8de9219df6931b1373921605dc582",
        "earth": "270bf2e51502df7963434e07159e8ece1e2e86a08bd8ff8c73a6c405901edfdc",
        "diabetes": "beea311f16fe9b08970d3a678b79a394f2c793f796566bbe6be1b3be75e22a4d",
        "melting-points": "a360f97d5d0b14eca77cf0fa1f8f297eb75c12666f21c6b8d031d7e491c935db",
        "structure": "24e49d3a696284b3cb72224738ac29eb0460ab7d469baa629e86fdcc1f43fa27",
        "tablets": "2299fe9ed170bd7e864701e31670db55bef1e74690460a308250576739cbe529",
        "vowels": "0ea185dc27f3f68e5e0b42debc5d0d1fee708f757b8daff1bebfbe202244e885",
        "waves": "afd316f799620451b3ae6dba206774b9f89f9d896690124580c0304cb18b1af6",
        "search": "548f784de32bba649a63de05d2f698725b7282a896f99d0879e4b9e9ad972a11",
    },
    "2026.3-quick": {
        "digits": "d4c285b6967a93f85a4941426db4d9c5c75696055ba71f3c22dad4d3e04194d7",
        "elpv": "9c9d773ff017be7cde20077bebf4c6baa410b2209da170879387f36e5ff26aff",
        "earth": "47224a06366d631573fbad1b18b302811b7ed1298425c7daf8cbfcec38a1bda9",
        "diabetes": "c0a1f294dae71254624b0c6d0c48972ff99d6cfb988844e6da5201473959e480",
        "melting-points": "d73cfb03ebd1dc20652c8aa4d49dd009bb223d815f22a9d64dcb1488303943f1",
        "structure": "28e1009a4d2abfb7fe9da373031e3100402435832f01df1be5531d8dbe07f2a3",
        "tablets": "06adf03a56d4e6141e586c005241c370e09f387ec4188d9c7e106ba4ec99368d",
        "vowels": "8408863ce40942203ddda7ac353e801d8cc0c245f071e9d17aa83d58b4e00138",
        "waves": "4beb6ae1b4647deffb8e2890a87f434136b838454f3fa245fd530c9997f42458",
        "search": "253c78b3e16807f9ef5f427174f6fa375f3a03554ca62be7b6049dfc7240ffb5",
    },
}


def look_up(kind: str, name: str, there: Mapping[str, T]) -> T:
    """The entry of a table that has a name; an error names the kind of entry, such as "set", and what there is."""
    if name not in there:
        raise UserError(f"Unknown {kind} {name!r}.{did_you_mean(name, there)} Known: {', '.join(there)}.")
    return there[name]


def add_own_sets(folders: Sequence[Path], stores: Sequence[Path] = ()) -> list[str]:
    """Make prepared datasets known as sets, in this process; returns their names, ``own-`` and that of the folder.

    With feature stores, whose rows take the place of the items, each store makes a set of each dataset.
    """
    if stores and not folders:
        raise UserError("--features are those of the items of a dataset of your own: name the dataset with --data.")
    names = []
    for folder in folders:
        dataset = PreparedDataset.open(folder)
        place = dataset.folder.resolve()
        own = SetSpec("", dataset.info.task, tier="own", folder=str(place), input_kind=dataset.info.inputs.kind)
        if not stores:
            names.append(_add_set(place.name, own))
        for store in stores:
            there = FeatureStore.open(store).folder.resolve()
            names.append(
                _add_set(f"{place.name}-{there.name}", replace(own, features=str(there), input_kind="vectors"))
            )
    return names


def _add_set(name: str, spec: SetSpec) -> str:
    """Add a set under a name that file names can have; an error if another set has it."""
    name = OWN + re.sub(r"[^\w.-]", "-", name)
    if name in SETS and (SETS[name].folder, SETS[name].features) != (spec.folder, spec.features):
        raise UserError(
            f"{_describe_place(SETS[name])} and {_describe_place(spec)} would both be the set {name!r}, which is named "
            "after the folder: rename one of them."
        )
    SETS[name] = spec
    return name


def _describe_place(spec: SetSpec) -> str:
    return f"{spec.folder} with {spec.features}" if spec.features else spec.folder


def choose_backbone(sets: Iterable[str], track: str, backbone: str) -> str:
    """The backbone as given for sets of images, and ``none`` for sets of vectors; an error if the two are mixed."""
    of_vectors = [name for name in sets if SETS[name].input_kind == "vectors"]
    if not of_vectors:
        return backbone
    of_images = [name for name in sets if name not in of_vectors]
    if of_images:
        raise UserError(
            f"{of_vectors[0]} holds vectors and {of_images[0]} images, which take different backbones: run them "
            "separately."
        )
    if track != "A" or backbone not in ("", NO_BACKBONE):
        raise UserError(
            f"{of_vectors[0]} holds vectors: the benchmark trains linear heads on them, which is track A with the "
            f"backbone {NO_BACKBONE!r}. Got track {track} and the backbone {backbone!r} instead."
        )
    return NO_BACKBONE


def track_folder(track: str, backbone: str) -> str:
    """The folder of the results of a track: ``A-efficientnet-lite0``."""
    return f"{track}-{backbone.replace('/', '-')}"
