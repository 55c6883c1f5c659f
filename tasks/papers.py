"""Published experiments as data: network, lists, optimiser, steps, and the figures that ``cml reproduce`` sets ours by.

What a paper leaves open is chosen here and said in ``notes``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cml.task import Task
from cml.tasks import caption, classes, layout, pose
from cml.tasks.baselines import published_log_ratio
from cml.training.config import TrainConfig


@dataclass(frozen=True)
class PublishedRow:
    """A method of a paper.

    Attributes:
        name: Its name.
        changes: Training options that differ from the experiment's.
        figures: Measure to published figure.
        source: Where the figures were published.
    """

    name: str
    changes: Mapping[str, Any]
    figures: Mapping[str, float] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True)
class Experiment:
    """The experiment of a paper on one data set.

    Attributes:
        paper: Title, authors, venue and year.
        claim: What the paper claims of all its data sets.
        task: Name of the task.
        dataset: Name of the prepared dataset.
        sizes: Number of training images, and of queries and gallery together; 0 where the paper's is not known.
        config: Training options.
        rows: The methods.
        measures: Metrics that are shown of a row without published figures.
        get: Where the data can be obtained.
        prepare: The command that prepares it.
        notes: Where this differs from the paper, and why.
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


def _lists(task: Task, dataset: str, sizes: tuple[int, int], get: str, prepare: str, *notes: str) -> Experiment:
    """An experiment of the paper on lists with one anchor."""
    people, captions = task is pose.TASK, task is caption.TASK
    exponent = 2.0 if people else 1.0  # the published loss squares distances of joints, and the task's are not squared
    loss = published_log_ratio(exponent)
    binary = {"loss": "binary-triplet(rule=nearest, k=5, margin=0.2)", "sampler": "binary(positives=5, pool=30)"}
    return Experiment(
        "Deep Metric Learning Beyond Binary Supervision, Kim, Seo, Laptev, Cho, Kwak, CVPR 2019",
        "Log-ratio on dense lists is ahead of triplets on all three data sets, most of all at low dimensions.",
        task.name,
        dataset,
        sizes,
        replace(
            task.recipe,
            # the inventors of the Word Mover's Distance leave out the words of a list much like this one
            label_distance="captions(stop_words=english)" if captions else task.recipe.label_distance,
            sampler="dense(batch_size=150, nearest=5)",
            backbone="resnet34" if people else "resnet101",
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
        (_CURVES, *(() if people else (_CHOSEN,)), *notes),
    )


def _epochs(images: int, batch: int, head: int, every: int) -> dict[str, Any]:
    """60 epochs, of which the first ``head`` train the head alone; the rate falls every ``every`` epochs."""
    epoch = images // batch
    steps = {"steps": 60 * epoch, "head_first": head * epoch, "decay_every": every * epoch}
    return {"sampler": f"random(batch_size={batch})", **steps}


_IN_SHOP = "http://mmlab.ie.cuhk.edu.hk/projects/DeepFashion.html: In-shop Clothes Retrieval, by agreement"
_FIGURES: Mapping[str, tuple[Mapping[int, float], Mapping[int, float]]] = {  # K to Recall@K: BN-Inception, ResNet-50
    "cub": ({1: 0.684, 2: 0.792, 4: 0.868}, {1: 0.699, 2: 0.796, 4: 0.866, 8: 0.914}),
    "cars": ({1: 0.861, 2: 0.917, 4: 0.950}, {1: 0.877, 2: 0.927, 4: 0.955, 8: 0.973}),
    "sop": ({1: 0.791, 10: 0.908, 100: 0.962}, {}),
    "in-shop": ({1: 0.915, 10: 0.981, 20: 0.988}, {}),
}


def _classes(dataset: str, sizes: tuple[int, int], every: int, source: str, get: str) -> Experiment:
    """An experiment of Proxy-Anchor; figures of ResNet-50, if there are any, came with the authors' code."""
    published, own = ({f"recall@{k}": share for k, share in recall.items()} for recall in _FIGURES[dataset])
    bn, chosen = _epochs(sizes[0], 180, 1, every), _epochs(sizes[0], 120, 5, every // 2)
    small = {"decay": 0.5, "batch_norm": "fixed", **chosen}
    large = {"learning_rate": 6e-4, "decay": 0.25, "batch_norm": "batch", **bn}
    second = PublishedRow("ResNet-50", {}, own, "README of the authors' code" if own else "")
    return Experiment(
        "Proxy Anchor Loss for Deep Metric Learning, Kim, Kim, Cho, Kwak, CVPR 2020",
        "A standard network with this loss is state of the art on four data sets, and converges most quickly.",
        "classes",
        dataset,
        sizes,
        replace(classes.RECIPE, warmup=0, schedule="step", **small if own else large),
        (PublishedRow("BN-Inception", {"backbone": "bn-inception", **bn}, published, "the paper"), second),
        tuple(published),
        get,
        f"cml prepare {dataset.replace('-', '_')} --source {source} --out DATA",
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
            pose.TASK,
            "mpii",
            (_POSES, 9_919),
            "http://human-pose.mpi-inf.mpg.de: the images and mpii_human_pose_v1_u12_1.mat",
            "cml prepare mpii --annotations mpii_human_pose_v1_u12_1.mat --images images --full-body "
            "--split people.txt --out DATA",
            "people.txt lists the people of the paper; without it, leave --split out: the split is by hash.",
            "The loss takes squared distances of joints; tables show them unsquared.",
        ),
        "lsun": _lists(
            layout.TASK,
            "lsun_layout",
            (4_000, 394),
            "the room layouts of the LSUN challenge, with the corrected labels (the 'surface relabel' release)",
            "cml prepare lsun_layout --source lsun --out DATA",
            "The labels of the 1,000 test rooms are hidden: the 394 validation rooms are queries and gallery.",
        ),
        "coco": _lists(
            caption.TASK,
            "coco-captions-2014",
            (0, 0),
            "https://cocodataset.org: train2014, val2014 and their annotations",
            "cml prepare coco_captions --source coco --year 2014 --out DATA",
            "The paper's word vectors, stop words and queries are not known here: GloVe, gensim's list of stop words, "
            "and photographs of val2014.",
            "Neighbour lists of 82,783 images take half a day on a core: cml distances computes them before.",
        ),
    },
    "proxy-anchor": {
        "cub": _classes(
            "cub", (5_864, 5_924), 10, "CUB_200_2011", "https://www.vision.caltech.edu/datasets/cub_200_2011"
        ),
        "cars": _classes(
            "cars", (8_054, 8_131), 20, "cars196", "Cars-196 of Krause and others, 2013: car_ims and cars_annos.mat"
        ),
        "sop": _classes(
            "sop", (59_551, 60_502), 20, "Stanford_Online_Products", "https://cvgl.stanford.edu/projects/lifted_struct"
        ),
        "in-shop": _classes("in-shop", (25_882, 26_830), 20, "In-shop", _IN_SHOP),
    },
}
