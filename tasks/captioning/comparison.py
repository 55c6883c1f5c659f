"""``cml compare captioning``: one captioner on two representations of the same images, with one budget.

*Img*: the trunk as ImageNet left it. *Cap*: the same trunk after training on caption distances. XE: the captioner after
cross-entropy, RL: after self-critical training. A seed draws the same batches for Img and Cap.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import print_json, print_text
from cml.console.messages import resume_hint, say, say_warning
from cml.data.image_list import ImageList
from cml.data.prepared import PreparedDataset
from cml.distances.captions.tokens import WORDS, tokenize
from cml.errors import DataError, UserError
from cml.export.captioning import CaptioningFeatures, export_captioning
from cml.export.trunk import open_trunk
from cml.models.embedding import EmbeddingModel
from cml.processes.device import pick_device
from cml.retrieval.comparison import over_seeds
from cml.storage.atomic import atomic_file
from cml.storage.json_file import read_json, write_json
from cml.storage.saved_options import difference
from cml.tasks.captioning.scores import score, unavailable
from cml.tasks.captioning.training import Captioned, CaptionerConfig, caption, train_captioner
from cml.training.saved_model import RunConfig

Interval = tuple[float, float, float]  # mean and the two ends of its 95 % interval
_Items = dict[str, list[list[str]]]  # image to its tokenised captions
_LEAD = "Cap - Img"
SCORES = ("BLEU-1", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")


@dataclass(frozen=True)
class CompareCaptioning:
    """Train captioners on ImageNet features and on the features of caption-trained runs, and score their captions."""

    data: Path
    """Folder of the prepared dataset with captions: train items to learn from, queries and gallery to score."""
    runs: tuple[Path, ...]
    """Runs of cml train caption on that dataset. The captioner with seed s uses run s modulo their number. One run is
    enough."""
    out: Path
    """Folder for features, captions and the table."""
    config: CaptionerConfig
    features: CaptioningFeatures
    seeds: int = 3
    """Number of captioners trained on each set of features."""
    device: str = "auto"
    """Device for features and captioners: auto | cpu | cuda | mps ..."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Sequence[str]) -> None:
    """Compare captioners on ImageNet features with captioners on features of caption-trained runs."""
    import tyro

    defaults = CompareCaptioning(
        tyro.MISSING, tyro.MISSING, tyro.MISSING, CaptionerConfig(), CaptioningFeatures(dtype="float16")
    )
    about = CompareCaptioning.__doc__ or ""
    options = parse(CompareCaptioning, arguments, prog="cml compare captioning", description=about, default=defaults)
    rows = compare(options)
    if options.json:
        print_json(rows)
        return
    print_text(markdown(rows))
    over = f"mean and 95 % interval over {options.seeds} seeds" if options.seeds > 1 else "one seed"
    print_text(f"\n{over}; all captions and scores in {options.out}")


@resume_hint()
def compare(options: CompareCaptioning) -> dict[str, dict[str, Interval]]:
    """Rows such as "Cap XE", and "Cap - Img XE" of captioners of one seed, to score to 95 % interval (Student's t)."""
    if not options.runs or options.seeds < 1:
        raise UserError("Give at least one run with --runs, and at least one seed.")
    for line in unavailable().values():
        say(line)
    dataset = PreparedDataset.open(options.data)
    if dataset.info.label_column != "captions":
        raise DataError(f"{options.data} has no captions: its label is {dataset.info.label_column!r}.")
    train, test = _items(dataset, ("train",)), _items(dataset, ("query", "gallery"))
    folders = _features(options, dataset)
    by_row: dict[str, list[dict[str, float]]] = {}
    for seed in range(options.seeds):
        for name, of_runs in folders.items():
            features = of_runs[seed % len(of_runs)]
            for method, scores in _scores(options, name, seed, features, train, test).items():
                by_row.setdefault(f"{name} {method}", []).append(scores)
    methods = [method for method in ("XE", "RL") if f"Cap {method}" in by_row]
    for method in methods:
        pairs = zip(by_row[f"Cap {method}"], by_row[f"Img {method}"], strict=True)
        by_row[f"{_LEAD} {method}"] = [{key: cap[key] - img[key] for key in cap if key in img} for cap, img in pairs]
    order = [f"{name} {method}" for method in methods for name in ("Img", "Cap")]
    order += [f"{_LEAD} {method}" for method in methods]
    rows = {row: {key: over_seeds([scores[key] for scores in by_row[row]]) for key in by_row[row][0]} for row in order}
    write_json(options.out / "comparison.json", {"seeds": options.seeds, "rows": rows})
    with atomic_file(options.out / "table.md") as temporary:
        temporary.write_text(markdown(rows) + "\n", encoding="utf-8")
    return rows


def markdown(rows: Mapping[str, Mapping[str, Interval]]) -> str:
    """The table: scores times 100, as papers print them, also CIDEr-D (Anderson et al., CVPR 2018: 120.1 for 1.201)."""
    names = [name for name in SCORES if all(name in row for row in rows.values())]
    lines = ["| captioner | " + " | ".join(names) + " |", "|" + "---|" * (len(names) + 1)]
    for method, row in rows.items():
        cells = []
        for name in names:
            mean, low, high = (100 * value for value in row[name])
            shown = f"{mean:+.1f}" if method.startswith(_LEAD) else f"{mean:.1f}"
            cells.append(shown if high == low else f"{shown} ± {(high - low) / 2:.1f}")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _items(dataset: PreparedDataset, roles: Sequence[str]) -> _Items:
    splits = [dataset.split(role) for role in roles]
    labels = {item: texts for split in splits for item, texts in zip(split.item_ids, split.labels, strict=True)}
    return {item: [tokenize(text, rule=WORDS, lower=True) for text in texts] for item, texts in labels.items()}


def _features(options: CompareCaptioning, dataset: PreparedDataset) -> dict[str, list[Path]]:
    """Folders of spatial features: one for Img, one per run for Cap, exported where they are not there yet."""
    images = ImageList.open(dataset.folder).with_coco_ids()
    device, features = pick_device(options.device), options.out / "features"
    shapes = []
    for number, run in enumerate(options.runs):
        config = RunConfig.load(run)
        if config.dataset_fingerprint != dataset.fingerprint:
            there = f"{dataset.folder} as it is now"
            raise DataError(f"{run} was not trained on {there}. Train it there, or give its data.")
        shapes.append(config.model)
        say(f"features of {run}")
        trunk = open_trunk(str(run), device=options.device)
        if trunk.warning:
            say_warning(trunk.warning)
        kind = replace(options.features, name=f"cap-{number}")
        export_captioning(trunk.model, images, features, kind, trunk=str(run))
    if len({(shape.backbone, shape.image_size) for shape in shapes}) > 1:
        raise UserError("The runs should have one backbone and image size, so that features differ in training alone.")
    say(f"features of {shapes[0].backbone} as ImageNet left it")
    untouched = EmbeddingModel(shapes[0].published).to(device)
    export_captioning(untouched, images, features, replace(options.features, name="img"))
    return {"Img": [features / "img_att"], "Cap": [features / f"cap-{number}_att" for number in range(len(shapes))]}


def _scores(
    options: CompareCaptioning, name: str, seed: int, features: Path, train: _Items, test: _Items
) -> dict[str, dict[str, float]]:
    """Scores after cross-entropy and after self-critical training, from the file that keeps them or made now."""
    kept = options.out / f"{name.lower()}-seed-{seed}.json"
    manifest = read_json(features.with_name(features.name.removesuffix("_att") + "_manifest.json"), "the features")
    of_features = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    made_with = {**asdict(options.config), "features": of_features}
    if kept.exists():
        there = read_json(kept, "captions and scores")
        if there.get("made_with") != made_with:
            how = difference(there.get("made_with"), made_with)
            raise UserError(f"{options.out} holds captioners of different settings ({how}). Choose another folder.")
        return dict(there["scores"])
    say(f"captioner on {name}, seed {seed}")
    learned = Captioned(_read(features, list(train)), list(train.values()))
    trained = train_captioner(learned, options.config, seed=seed, device=options.device)
    shown = _read(features, list(test))
    references = {image: [" ".join(text) for text in texts] for image, texts in test.items()}
    scores, captions = {}, {}
    for method, captioner in (("XE", trained.xe), ("RL", trained.rl)):
        if captioner is not None:
            texts = [" ".join(words) for words in caption(captioner, trained.vocabulary, shown, options.config)]
            captions[method] = dict(zip(test, texts, strict=True))
            scores[method], failed = score(references, captions[method])
            for line in failed:
                say(line)
    write_json(kept, {"made_with": made_with, "scores": scores, "captions": captions})
    return scores


def _read(folder: Path, ids: Sequence[str]) -> NDArray[np.float16]:
    """Spatial features (N, R, C) of a folder of .npz files."""
    first: NDArray[np.float16] | None = None
    for row, image in enumerate(ids):
        with np.load(folder / f"{int(image)}.npz", allow_pickle=False) as archive:
            places = archive["feat"].reshape(-1, archive["feat"].shape[2])
        if first is None:
            first = np.empty((len(ids), *places.shape), np.float16)
        first[row] = places
    assert first is not None  # a prepared dataset has items of every role
    return first
