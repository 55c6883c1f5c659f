"""Published experiments as data: network, lists, optimiser, steps, and the figures that ``cml reproduce`` sets ours by.

What a paper leaves open is chosen here and said in ``notes``. Not for: running them (cml.runs.reproduce).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cml.tasks import caption, classes, layout, pose
from cml.training.config import TrainConfig


@dataclass(frozen=True)
class PublishedRow:
    """A method: its name, the options it changes, measure to published figure, and the paper's table of these."""

    name: str
    changes: Mapping[str, Any]
    figures: Mapping[str, float] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True)
class Experiment:
    """One data set of a paper.

    Attributes:
        paper: Its title, authors, place and year.
        claim: What it says of all its data sets.
        task: Name of the task.
        dataset: Name of the prepared dataset.
        sizes: Training images, and queries and gallery together; 0 where the paper's number is not known.
        config: The published options.
        rows: The methods.
        measures: What is shown of a row without published figures.
        get: Where the data is to be had.
        prepare: The command that prepares it.
        notes: Where this is not the paper's, and why.
    """

    paper: str
    claim: str
    task: str
    dataset: str
    sizes: tuple[int, int]
    config: TrainConfig
    rows: tuple[PublishedRow, ...]
    measures: tuple[str, ...]
    get: str
    prepare: str
    notes: tuple[str, ...]


_CURVES = "The paper shows curves over K and over the dimension; no number of them is known here."
_CHOSEN = "Optimiser, lists and dimension are those of the pose experiment, whose code is public; the steps are chosen."
_POSES = 12_366  # training images of the pose experiment; each is the anchor of a list once an epoch


def _lists(
    task: str, recipe: TrainConfig, dataset: str, sizes: tuple[int, int], get: str, prepare: str, *notes: str
) -> Experiment:
    """An experiment of the paper on lists with one anchor."""
    pose = task == "pose"
    exponent = 2.0 if pose else 1.0  # the published loss squares distances of joints, and the task's are not squared
    loss = f"log-ratio(label_exponent={exponent}, floor_quantile=0.0, weights=uniform, normalize=False)"
    binary = {"loss": "binary-triplet(rule=nearest, k=5, margin=0.2)", "sampler": "binary(positives=5, pool=30)"}
    return Experiment(
        "Deep Metric Learning Beyond Binary Supervision, Kim, Seo, Laptev, Cho, Kwak, CVPR 2019",
        "Log-ratio on dense lists is ahead of triplets on all three data sets, most of all at low dimensions.",
        task,
        dataset,
        sizes,
        replace(
            recipe,
            sampler="dense(batch_size=150, nearest=5)",
            backbone="resnet34" if pose else "resnet101",
            dimension=128,
            steps=30 * (sizes[0] or _POSES),
            optimizer="sgd",
            learning_rate=0.01,
            schedule="inverse",
            decay=1e-4,
            weight_decay=5e-4,
        ),
        (
            PublishedRow("log-ratio, dense lists", {"loss": loss}),
            PublishedRow("triplet, dense lists", {"loss": "dense-triplet(margin=0.03)"}),
            PublishedRow("triplet, binary lists", binary),
        ),
        ("label_distance@1", "label_distance@10", "ndcg@100"),
        get,
        prepare,
        (_CURVES, *(() if pose else (_CHOSEN,)), *notes),
    )


def _epochs(images: int, batch: int, head: int, every: int) -> dict[str, Any]:
    """60 epochs, of which the first ``head`` train the head alone; the rate falls every ``every`` epochs."""
    epoch = images // batch
    steps = {"steps": 60 * epoch, "head_first": head * epoch, "decay_every": every * epoch}
    return {"sampler": f"random(batch_size={batch})", **steps}


def _classes(
    dataset: str,
    sizes: tuple[int, int],
    get: str,
    prepare: str,
    source: str,
    published: Mapping[str, float],
    every: int,
    own: Mapping[str, float] | None = None,
) -> Experiment:
    """An experiment of Proxy-Anchor; ``own`` are the figures of ResNet-50 that came with the authors' code."""
    bn, chosen = _epochs(sizes[0], 180, 1, every), _epochs(sizes[0], 120, 5, every // 2)
    large = {"learning_rate": 6e-4, "decay": 0.25, "batch_norm": "batch", **bn}
    second = PublishedRow("ResNet-50", {}, own or {}, "README of the authors' code" if own else "")
    return Experiment(
        "Proxy Anchor Loss for Deep Metric Learning, Kim, Kim, Cho, Kwak, CVPR 2020",
        "A standard network with this loss is state of the art on four data sets, and converges most quickly.",
        "classes",
        dataset,
        sizes,
        replace(
            classes.RECIPE,
            warmup=0,
            schedule="step",
            **{"decay": 0.5, "batch_norm": "fixed", **chosen} if own else large,
        ),
        (PublishedRow("BN-Inception", {"backbone": "bn-inception", **bn}, published, source), second),
        tuple(published),
        get,
        prepare,
        (
            "The published figures are those of the best epoch on the test images; cml's are of the last step.",
            "Images are jittered as in the task's recipe, not cropped at random sizes and shapes.",
            "Pooling is the backbone's own, the mean of the last map; the authors add its maximum.",
            "Gradients are not clipped value by value at 10.",
            *(() if own else ("ResNet-50 has the settings of BN-Inception; no figure of it was published.",)),
        ),
    )


PAPERS: Mapping[str, Mapping[str, Experiment]] = {
    "beyond-binary": {
        "mpii": _lists(
            "pose",
            pose.RECIPE,
            "mpii",
            (_POSES, 9_919),
            "http://human-pose.mpi-inf.mpg.de: the images and mpii_human_pose_v1_u12_1.mat",
            "cml prepare mpii --annotations mpii_human_pose_v1_u12_1.mat --images images --full-body "
            "--split people.txt --out DATA",
            "people.txt lists the people of the paper; without it, leave --split out: the split is by hash.",
            "The loss takes squared distances of joints; tables show them unsquared.",
        ),
        "lsun": _lists(
            "layout",
            layout.RECIPE,
            "lsun_layout",
            (4_000, 394),
            "the room layouts of the LSUN challenge, with the corrected labels (the 'surface relabel' release)",
            "cml prepare lsun_layout --source lsun --out DATA",
            "The labels of the 1,000 test rooms are hidden: the 394 validation rooms are queries and gallery.",
        ),
        "coco": _lists(
            "caption",
            caption.RECIPE,
            "coco-captions-2014",
            (0, 0),
            "https://cocodataset.org: train2014, val2014 and their annotations",
            "cml prepare coco_captions --source coco --year 2014 --out DATA",
            "The paper's word vectors and queries are not known here: GloVe, and photographs of val2014.",
            "Neighbour lists of 82,783 images take half a day on a core: cml distances computes them before.",
        ),
    },
    "proxy-anchor": {
        "cub": _classes(
            "cub",
            (5_864, 5_924),
            "https://www.vision.caltech.edu/datasets/cub_200_2011",
            "cml prepare cub --source CUB_200_2011 --out DATA",
            "the paper",
            {"recall@1": 0.684, "recall@2": 0.792, "recall@4": 0.868},
            every=10,
            own={"recall@1": 0.699, "recall@2": 0.796, "recall@4": 0.866, "recall@8": 0.914},
        ),
        "cars": _classes(
            "cars",
            (8_054, 8_131),
            "Cars-196 of Krause and others, 2013: car_ims and cars_annos.mat",
            "cml prepare cars --source cars196 --out DATA",
            "the paper",
            {"recall@1": 0.861, "recall@2": 0.917, "recall@4": 0.950},
            every=20,
            own={"recall@1": 0.877, "recall@2": 0.927, "recall@4": 0.955, "recall@8": 0.973},
        ),
        "sop": _classes(
            "sop",
            (59_551, 60_502),
            "https://cvgl.stanford.edu/projects/lifted_struct",
            "cml prepare sop --source Stanford_Online_Products --out DATA",
            "the paper",
            {"recall@1": 0.791, "recall@10": 0.908, "recall@100": 0.962},
            every=20,
        ),
        "in-shop": _classes(
            "in-shop",
            (25_882, 26_830),
            "http://mmlab.ie.cuhk.edu.hk/projects/DeepFashion.html: In-shop Clothes Retrieval, by agreement",
            "cml prepare in_shop --source In-shop --out DATA",
            "the paper",
            {"recall@1": 0.915, "recall@10": 0.981, "recall@20": 0.988},
            every=20,
        ),
    },
}
