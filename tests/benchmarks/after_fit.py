"""Life after fit: training in two parts against one, and whether ``model.novelty`` tells foreign items from known ones.

Run by hand: ``python tests/benchmarks/after_fit.py --data DATA [--parts continue novelty] [--json FILE]``. DATA is a
folder with ``donkeycar_tub/tub.tar.gz`` (frames of a model car, label: steering angle), ``lspet400`` (photographs of
people, label: pose), ``nir_tablets/Data_Tablet.mat`` (spectra, label: assay) and ``coco_captions`` (sentences; label:
the other captions of the photograph).

continue: score@10 of new items after all steps in one go, after two halves, the second one by ``start=``, and after one
half. Each half has a learning rate schedule of its own, so that both ways are also compared at a constant rate. For
"new distance" the first half has another label, and one half alone is the figure to beat.
novelty: AUROC of new items of the same kind against foreign ones, by ``model.novelty`` and by the same measure on the
raw numbers; and the share of new items of the same kind with a novelty of at most .05.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file
from PIL import Image
from scipy.io import loadmat
from sklearn.metrics import roc_auc_score

import cml
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.novelty import Novelty

HOW = EvaluateOptions(distance_ks=(10,), whole_ranking=False)
BACKBONE = "sentence-transformers/all-MiniLM-L6-v2"


@dataclass(frozen=True)
class Kind:
    """Items of one kind, foreign ones, and how a model is trained on them."""

    items: Any  # inputs of N items, an array or a list
    labels: Any  # (N, ..) or a list
    train: Sequence[int]
    new: Sequence[int]
    steps: int
    options: dict[str, Any]
    raw: Callable[[Any], np.ndarray]  # numbers of items, without a network
    foreign: dict[str, Any] = field(default_factory=dict)
    distance: str = "euclidean"
    other_labels: Any = None  # those of a first half with another label
    other_distance: str = "euclidean"

    def fit(
        self,
        seed: int,
        part: float = 1,
        start: cml.Model | None = None,
        *,
        other: bool = False,
        schedule: str = "cosine",
    ) -> cml.Model:
        """Train for a part of the steps."""
        labels = self.other_labels if other else self.labels
        options = self.options if start is None else {k: v for k, v in self.options.items() if k != "backbone"}
        return cml.fit(
            choose(self.items, self.train),
            choose(labels, self.train),
            label_distance=self.other_distance if other else self.distance,
            steps=round(self.steps * part),
            seed=seed + (start is not None) * 1000,
            start=start,
            schedule=schedule,
            device="cpu",
            quiet=True,
            **options,
        )

    def score(self, model: cml.Model) -> float:
        """score@10 of new items among each other."""
        found = model.evaluate(choose(self.items, self.new), choose(self.labels, self.new), options=HOW)
        return float(found.rows["embedding"]["score@10"].mean)


def choose(items: Any, rows: Sequence[int]) -> Any:  # noqa: ANN401 - a list or an array
    return [items[row] for row in rows] if isinstance(items, list) else items[np.asarray(rows)]


def spectra(data: Path) -> Kind:
    """Spectra of tablets by one instrument; the other label is the fifth of all assays that it is in, as a class."""
    file = loadmat(data / "nir_tablets" / "Data_Tablet.mat")
    train, new, more = (file[name].astype(np.float32) for name in ("Xcal1", "Xtest1", "Xtrans1"))
    rows = np.concatenate([train, new, more])
    labels = np.concatenate([file[name].ravel() for name in ("ycal", "ytest", "ytrans")]).astype(float)
    known = np.random.default_rng(0).permutation(len(rows))
    rng = np.random.default_rng(1)
    return Kind(
        items=rows,
        labels=labels,
        other_labels=np.digitize(labels, np.quantile(labels, [0.2, 0.4, 0.6, 0.8])),
        other_distance="classes",
        train=known[:400],
        new=known[400:],
        steps=300,
        options={"sampler": "random(batch_size=60)"},
        raw=np.asarray,
        foreign={
            "permuted columns": np.stack([rng.permutation(column) for column in rows[:240].T], axis=1),
            "other instrument": file["Xtest2"].astype(np.float32),
        },
    )


def frames(data: Path) -> list[np.ndarray]:
    """Every frame of the model car at 80 x 60."""
    found = {}
    with tarfile.open(data / "donkeycar_tub" / "tub.tar.gz") as archive:
        for member in archive:
            name = Path(member.name).name
            if name.endswith(".jpg") and not name.startswith("._") and (file := archive.extractfile(member)):
                image = Image.open(io.BytesIO(file.read())).convert("RGB").resize((80, 60))
                found[int(name.partition("_")[0])] = np.asarray(image)
    return [found[number] for number in sorted(found)]


def angles(data: Path) -> np.ndarray:
    """Steering angle of each frame."""
    found = {}
    with tarfile.open(data / "donkeycar_tub" / "tub.tar.gz") as archive:
        for member in archive:
            name = Path(member.name).name
            if name == "catalog_0.catalog" and (file := archive.extractfile(member)):
                entries = map(json.loads, file.read().decode().splitlines())
                found = {entry["_index"]: entry["user/angle"] for entry in entries}
    return np.array([found[number] for number in sorted(found)])


def steering(data: Path) -> Kind:
    """Frames of a model car, new ones from other stretches of the track; the other label is the place in time."""
    images, labels = frames(data), angles(data)
    rows = np.arange(len(images))
    is_new = rows // 50 % 4 == 3
    return Kind(
        items=images,
        labels=labels,
        other_labels=rows.astype(float),
        train=rows[~is_new],
        new=rows[is_new],
        steps=300,
        options={
            "backbone": "small-cnn",
            "weights": "none",
            "image_size": (64, 64),
            "sampler": "random(batch_size=60)",
        },
        raw=pixels,
    )


def people(data: Path) -> Kind:
    """Photographs of people."""
    images = [
        np.asarray(Image.open(path).convert("RGB").resize((224, 224)))
        for path in sorted((data / "lspet400").rglob("*.jpg"))
    ]
    rng = np.random.default_rng(0)
    order = rng.permutation(len(images))
    joints = loadmat(next((data / "lspet400").rglob("joints.mat")))["joints"].transpose(2, 0, 1)[:, :, :2]
    return Kind(
        items=images,
        labels=joints[: len(images)].reshape(len(images), -1).astype(float),
        train=order[:260],
        new=order[260:],
        steps=30,
        options={"backbone": "efficientnet-lite0", "sampler": "random(batch_size=30)"},
        raw=pixels,
        foreign={
            "noise": list(rng.integers(0, 256, (140, 224, 224, 3)).astype(np.uint8)),
            "frames of a car": [np.asarray(Image.fromarray(one).resize((224, 224))) for one in frames(data)[::7]],
            "rooms": [
                np.asarray(Image.open(path).convert("RGB").resize((224, 224)))
                for path in sorted((data / "zind_layouts").rglob("*.jpg"))[:140]
            ],
        },
    )


def pixels(images: Any) -> np.ndarray:  # noqa: ANN401 - a list of images
    """32 x 32 pixels of each image."""
    return np.stack([np.asarray(Image.fromarray(one).resize((32, 32)), np.float32).ravel() for one in images])


def sentences(data: Path) -> Kind:
    """Captions of photographs; foreign texts are German sentences, code and lines of a table."""
    captions: dict[int, list[str]] = {}
    file = data / "coco_captions" / "captions_val2017_4000.json"
    for annotation in json.loads(file.read_text(encoding="utf-8"))["annotations"]:
        captions.setdefault(annotation["image_id"], []).append(annotation["caption"].strip())
    pictures = [captions[image] for image in sorted(captions)][:900]
    order = np.random.default_rng(0).permutation(len(pictures))
    rng = np.random.default_rng(1)
    who = ["Ein Mann", "Eine Frau", "Ein Hund", "Zwei Kinder", "Ein Zug", "Eine Katze", "Ein Bus"]
    does = ["steht", "sitzt", "wartet", "schläft", "liegt"]
    where = ["auf der Straße", "neben einem Tisch", "im Schnee", "am Strand", "vor dem Haus", "in der Küche"]
    code = Path(__file__).read_text(encoding="utf-8").splitlines()
    return Kind(
        items=[picture[0] for picture in pictures],
        labels=[picture[1:5] for picture in pictures],
        other_labels=np.array([float(len(picture[0])) for picture in pictures]),
        train=order[:600],
        new=order[600:],
        steps=60,
        options={"backbone": BACKBONE, "sampler": "random(batch_size=32)"},
        raw=count_words,
        distance="captions(vectors=glove-6b-50d)",
        foreign={
            "German": [f"{rng.choice(who)} {rng.choice(does)} {rng.choice(where)}." for _ in range(200)],
            "code": [line.strip() for line in code if len(line) > 30][:200],
            "figures": [", ".join(f"{value:.3f}" for value in rng.normal(size=8)) for _ in range(200)],
        },
    )


def count_words(texts: Any) -> np.ndarray:  # noqa: ANN401 - a list of texts
    """Counts of words, hashed to 256 places."""
    from sklearn.feature_extraction.text import HashingVectorizer

    return np.asarray(HashingVectorizer(n_features=256, alternate_sign=False).transform(texts).todense(), np.float32)


KINDS = {"spectra": spectra, "steering": steering, "people": people, "sentences": sentences}


def compare_halves(kind: Kind, seeds: int) -> dict[str, list[float]]:
    """Scores of each way to spend the steps."""
    ways: dict[str, Callable[[int], cml.Model]] = {
        "in one go": lambda seed: kind.fit(seed),
        "two halves": lambda seed: kind.fit(seed, 0.5, kind.fit(seed, 0.5)),
        "one half": lambda seed: kind.fit(seed, 0.5),
        "new distance": lambda seed: kind.fit(seed, 0.5, kind.fit(seed, 0.5, other=True)),
        "in one go, constant rate": lambda seed: kind.fit(seed, schedule="constant"),
        "two halves, constant rate": lambda seed: kind.fit(
            seed, 0.5, kind.fit(seed, 0.5, schedule="constant"), schedule="constant"
        ),
    }
    return {name: [kind.score(way(seed)) for seed in range(seeds)] for name, way in ways.items()}


def tell_foreign(kind: Kind, seeds: int) -> dict[str, Any]:
    """AUROC by novelty and by raw numbers, false alarms."""
    new = choose(kind.items, kind.new)
    raw = Novelty(kind.raw(choose(kind.items, kind.train)))
    known_raw = raw.score(kind.raw(new))
    result: dict[str, Any] = {"false alarms": [], "auroc": {}, "raw": {}}
    for name, foreign in kind.foreign.items():
        result["raw"][name] = auroc(known_raw, raw.score(kind.raw(foreign)))
        result["auroc"][name] = []
    for seed in range(seeds):
        model = kind.fit(seed)
        known = model.novelty(new)
        result["false alarms"].append(float((known <= 0.05).mean()))
        for name, foreign in kind.foreign.items():
            result["auroc"][name].append(auroc(known, model.novelty(foreign)))
    return result


def auroc(known: np.ndarray, foreign: np.ndarray) -> float:
    return float(roc_auc_score(np.repeat([0, 1], [len(known), len(foreign)]), -np.concatenate([known, foreign])))


PARTS = {"continue": compare_halves, "novelty": tell_foreign}
WITHOUT = {"continue": ["people"], "novelty": ["steering"]}  # frames of one video resemble those before


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, default=os.environ.get("CML_DATA"), help="by default that of CML_DATA")
    options.add_argument("--steps", type=int, help="by default those of each kind")
    options.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    options.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    options.add_argument("--seeds", type=int, default=5)
    add_json_option(options)
    chosen = options.parse_args(arguments)
    figures: dict[str, Any] = {part: {} for part in chosen.parts}
    for name in chosen.kinds:
        kind = KINDS[name](chosen.data)
        kind = replace(kind, steps=chosen.steps or kind.steps)
        for part in chosen.parts:
            if name in WITHOUT.get(part, []):
                continue
            figures[part][name] = PARTS[part](kind, chosen.seeds)
            print(part, name, json.dumps(figures[part][name]), flush=True)
    write_figures(chosen.json, figures)


if __name__ == "__main__":
    main()
