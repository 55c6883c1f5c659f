"""The experiments of "Proxy Anchor Loss for Deep Metric Learning" (Kim and others, CVPR 2020), on classes.

The figures are in ``published_figures.py``, and how others train the methods beside it in ``published_settings.py``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cml.tasks import classes
from cml.tasks.published_experiment import Experiment, PublishedRow
from cml.tasks.published_figures import BATCH_RECALL, OURS, RECALL_KS, PublishedFigures, published_figures
from cml.tasks.published_settings import AuthorsSettings, authors_settings, why_quoted

_IN_SHOP = "http://mmlab.ie.cuhk.edu.hk/projects/DeepFashion.html: In-shop Clothes Retrieval, by agreement"
_PAPER = "the tables of the paper"
_POOL = "(pooling=mean-max)"
_NETWORKS = {
    "BN-Inception": "bn-inception",
    "GoogleNet": "googlenet",
    "ResNet-50": "resnet50",
    "ResNet-101": "resnet101",
}
_AUTHORS_CODE: Mapping[str, Mapping[str, float]] = {  # of ResNet-50
    "cub": {"recall@1": 0.699, "recall@2": 0.796, "recall@4": 0.866, "recall@8": 0.914},
    "cars": {"recall@1": 0.877, "recall@2": 0.927, "recall@4": 0.955, "recall@8": 0.973},
}
_STORED = 256  # pixels of the shorter side of a stored image, of which the network sees 224


def _epochs(images: int, batch: int, head: int, every: int, decay: float) -> dict[str, Any]:
    """60 epochs, of which the first ``head`` train the head alone; the rate falls every ``every`` epochs."""
    epoch = images // batch
    schedule = f"step(every={every * epoch}, decay={decay})"
    steps = {"steps": 60 * epoch, "head_first": head * epoch, "schedule": schedule}
    return {"sampler": f"random(batch_size={batch})", **steps}


def _table_row(
    published: PublishedFigures, resnet: Mapping[str, Any], settings: AuthorsSettings | None
) -> PublishedRow:
    """A row of the paper's tables.

    ``resnet`` are the options of the deeper networks, ``settings`` those of another method, if they are known.
    """
    size = "" if published.side == 224 else f", {published.side} px"
    parts = [published.method, published.network, f"{published.dimension}-d"]
    name = ", ".join(part for part in parts if part) + size
    if settings is not None:
        changes = {**settings.changes, "dimension": published.dimension}
        return PublishedRow(name, changes, published.recall, f"{_PAPER}, from {settings.paper}")
    if published.method != OURS:
        return PublishedRow(name, {}, published.recall, _PAPER, quoted=why_quoted(published.method))
    changes = {"backbone": _NETWORKS[published.network] + _POOL, "dimension": published.dimension}
    if published.side != 224:
        changes["image_size"] = (published.side, published.side)
    if published.network.startswith("ResNet"):
        changes |= resnet
    return PublishedRow(name, changes, published.recall, _PAPER)


def _classes(dataset: str, sizes: tuple[int, int], every: int, source: str, get: str) -> Experiment:
    """An experiment of Proxy-Anchor; figures of ResNet-50, if there are any, came with the authors' code."""
    is_small = dataset in _AUTHORS_CODE
    common: dict[str, Any] = {"learning_rate": 1e-4, "batch_norm": "fixed"}
    decay = 0.5
    if not is_small:
        common, decay = {"learning_rate": 6e-4, "batch_norm": "batch"}, 0.25
    resnet = _epochs(sizes[0], 120, 5, every // 2, decay)
    table = published_figures(dataset)
    others = {one.method: authors_settings(one.method, dataset, sizes[0]) for one in table}
    rows = [_table_row(published, resnet, others[published.method]) for published in table]
    notes = [settings.note for settings in others.values() if settings is not None]
    main = f"{OURS}, BN-Inception, 512-d"
    if is_small:
        figures = _AUTHORS_CODE[dataset]
        changes = {"backbone": f"resnet50{_POOL}", **resnet}
        rows.append(PublishedRow(f"{OURS}, ResNet-50, authors' code", changes, figures, "README of the authors' code"))
    rows += [
        PublishedRow(
            f"{main}, batches of {batch}",
            _epochs(sizes[0], batch, 1, every, decay),
            {"recall@1": recall},
            "the paper's study of batch sizes",
        )
        for batch, recall in BATCH_RECALL[dataset].items()
    ]
    return Experiment(
        "Proxy Anchor Loss for Deep Metric Learning, Kim, Kim, Cho, Kwak, CVPR 2020",
        "A standard network with this loss is state of the art on four data sets, and converges most quickly.",
        "classes",
        dataset,
        sizes,
        replace(
            classes.RECIPE,
            backbone=f"bn-inception{_POOL}",
            warmup=0,
            crop=224 / _STORED,
            scale_jitter=0.0,
            shift_jitter=0.0,
            random_crop="area",
            clip_gradient_value=10.0,
            **common,
            **_epochs(sizes[0], 180, 1, every, decay),
        ),
        tuple(rows),
        tuple(f"recall@{k}" for k in RECALL_KS[dataset]),
        get,
        f"cml prepare {dataset.replace('-', '_')} --source {source} --out DATA",
        (
            "The published figures of Proxy-Anchor are those of the best epoch on the test images; cml's are of the "
            "last step.",
            "Epochs, rates and batches are those of the authors' code. It trains 60 epochs, where the paper states 40 "
            "for CUB and Cars.",
            "Crops are of random areas and shapes, as in the authors' code. The paper states random crops.",
            "The network sees seven eighths of the stored side at every size. Images of 324 and 448 px need data "
            "prepared with --image-size none.",
            "GoogleNet has the settings of BN-Inception, and ResNet-101 those of ResNet-50: the paper states none.",
            "GoogleNet is torchvision's, whose weights may differ from those of the paper.",
            *notes,
        ),
        "things",
    )


EXPERIMENTS: Mapping[str, Experiment] = {
    "cub": _classes("cub", (5_864, 5_924), 10, "CUB_200_2011", "https://www.vision.caltech.edu/datasets/cub_200_2011"),
    "cars": _classes(
        "cars", (8_054, 8_131), 20, "cars196", "Cars-196 of Krause and others, 2013: car_ims and cars_annos.mat"
    ),
    "sop": _classes(
        "sop", (59_551, 60_502), 20, "Stanford_Online_Products", "https://cvgl.stanford.edu/projects/lifted_struct"
    ),
    "in-shop": _classes("in-shop", (25_882, 26_830), 20, "In-shop", _IN_SHOP),
}
"""Dataset to its experiment."""
