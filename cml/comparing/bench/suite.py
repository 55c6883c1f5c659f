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
    steps=300,
    freeze_backbone=True,
    head_start="random",  # the same start for every loss
    workers=0,
)
_NETWORK = replace(
    _HEADS, backbone="small-cnn", weights="none", image_size=(32, 32), precision="bfloat16", freeze_backbone=False
)
VERSION = "2026.2"
QUICK = f"{VERSION}-quick"  # to see that everything works: its figures say little
SUITES: Mapping[str, Suite] = {
    VERSION: Suite(VERSION, 3000, 1600, 400, 100, 500, 20, 5, _HEADS, _NETWORK, 100),
    QUICK: Suite(QUICK, 900, 480, 120, 100, 200, 5, 2, replace(_HEADS, steps=100), replace(_NETWORK, steps=30), 10),
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
