"""Published experiments as data: network, lists, optimiser, steps, and the figures that ``cml reproduce`` sets ours by.

What a paper leaves open is chosen here and said in ``notes``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cml.task import Task
from cml.tasks import caption, classes, layout, pose, value
from cml.tasks.baselines import published_log_ratio
from cml.tasks.published_figures import BATCH_RECALL, OURS, RECALL_KS, PublishedFigures, published_figures
from cml.tasks.published_settings import AuthorsSettings, authors_settings, why_quoted
from cml.training.config import TrainConfig


@dataclass(frozen=True)
class PublishedRow:
    """A method of a paper."""

    name: str  # its name
    changes: Mapping[str, Any] = field(default_factory=dict)  # training options that differ from the experiment's
    figures: Mapping[str, float] = field(default_factory=dict)  # measure to published figure
    source: str = ""  # where the figures were published
    quoted: str = ""  # why cml does not train it, as a sentence; "" if it does
    is_frozen: bool = False  # whether it is the features of the pretrained network without any training


@dataclass(frozen=True)
class Experiment:
    """The experiment of a paper on one data set."""

    paper: str  # title, authors, venue and year
    claim: str  # what the paper claims of all its data sets
    task: str  # name of the task
    dataset: str  # name of the prepared dataset
    # number of training images, and of queries and gallery together; 0 where the paper's is not known
    sizes: tuple[int, int]
    config: TrainConfig  # training options
    rows: tuple[PublishedRow, ...]  # the methods
    measures: tuple[str, ...]  # metrics that are shown
    get: str  # where the data can be obtained
    prepare: str  # the command that prepares it
    notes: tuple[str, ...]  # where this differs from the paper, and why
    drawn: str  # the data source that draws a small dataset of the same kind; "" if none does
    protocol: str = ""  # the protocol that measures it; "" for none but retrieval

    def row(self, name: str) -> PublishedRow | None:
        """Find a method by its name; None if there is none of that name."""
        return next((row for row in self.rows if row.name == name), None)


_CURVES = "The paper shows curves over K and over the dimension; no number of them is known here."
_CHOSEN = "Optimiser, lists and dimension are those of the pose experiment, whose code is public; the steps are chosen."
_THRESHOLD = (
    "The threshold of the thresholded triplets is not known here: the 20 % quantile of the label distances, on random "
    "lists."
)
_NAIVE = "Naive lists are chosen as an anchor and 149 others drawn at random, of which none has to be near."
_UNREADABLE = "The published figures of captioners are not readable. cml compare captioning trains such captioners."
_POSES = 12_366  # training images of the pose experiment; each is the anchor of a list once an epoch
_NAIVE_LISTS = "dense(nearest=0)"


def _lists(task: Task, dataset: str, sizes: tuple[int, int], get: str, prepare: str, *notes: str) -> Experiment:
    """An experiment of the paper on lists with one anchor."""
    people, captions = task is pose.TASK, task is caption.TASK
    exponent = 2.0 if people else 1.0  # the published loss squares distances of joints, and the task's are not squared
    loss = published_log_ratio(exponent)
    binary = {"loss": "binary-triplet(rule=nearest, k=5, margin=0.2)", "sampler": "binary(positives=5, pool=30)"}
    threshold = {"loss": "binary-triplet(rule=threshold, quantile=0.2, margin=0.2)", "sampler": _NAIVE_LISTS}
    quoted = []
    if people:
        quoted = [PublishedRow("thin-slicing", quoted="Another paper's method, whose formula is not known here.")]
    if captions:
        quoted = [
            PublishedRow(f"captioner {model}, {features} {training}", quoted=_UNREADABLE)
            for model in ("SCST attention", "top-down")
            for features in ("Img", "Cap")
            for training in ("XE", "RL")
        ]
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
            weight_decay=5e-4,
        ),
        (
            PublishedRow("log-ratio, dense lists", {"loss": loss}),
            PublishedRow("log-ratio, naive lists", {"loss": loss, "sampler": _NAIVE_LISTS}),
            PublishedRow("triplet, dense lists", {"loss": "dense-triplet(margin=0.03)"}),
            PublishedRow("triplet, binary lists", binary),
            PublishedRow("triplet, thresholded", threshold),
            PublishedRow("ImageNet features", is_frozen=True),
            *quoted,
        ),
        ("label_distance@1", "label_distance@10", "ndcg@100"),
        get,
        prepare,
        (_CURVES, _THRESHOLD, _NAIVE, *(() if people else (_CHOSEN,)), *notes),
        task.sample,
    )


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


_AGES, _AGE_BATCH = (12_208, 2_140), 256


def _ages() -> Experiment:
    """The experiment of Rank-N-Contrast on faces: an encoder from scratch, then a linear regressor on it."""
    epoch = _AGES[0] // _AGE_BATCH
    regression: dict[str, Any] = {"loss": "regression(penalty=absolute)", "dimension": 1}
    return Experiment(
        "Rank-N-Contrast: Learning Continuous Representations for Regression, Zha and others, NeurIPS 2023",
        "A regressor on the frozen encoder has a lower error than the network that is trained for the labels.",
        "value",
        "agedb",
        _AGES,
        replace(
            value.TASK.recipe,
            backbone="resnet18",
            weights="none",
            dimension=512,
            sampler=f"random(batch_size={_AGE_BATCH})",
            steps=400 * epoch,
            optimizer="sgd",
            learning_rate=0.5,
            schedule="cosine",
            warmup=0,
            weight_decay=1e-4,
            views=2,
            crop=224 / _STORED,
            scale_jitter=0.0,
            shift_jitter=0.0,
            random_crop="area",
            brightness_jitter=0.4,
        ),
        (
            PublishedRow(
                "Rank-N-Contrast",
                {"loss": "rank-n-contrast(temperature=2.0, normalize=False)"},
                {"probe mae": 6.14},
                "the paper's comparison on AgeDB",
            ),
            PublishedRow("L1 regression", {**regression, "learning_rate": 0.2, "views": 1}),
            PublishedRow("log-ratio", {"loss": "log-ratio"}),
        ),
        ("probe mae", "knn mae", "probe spearman", "label_distance@10"),
        "https://ibug.doc.ic.ac.uk/resources/agedb, by agreement; the list: github.com/YyzHarry/imbalanced-regression",
        "cml prepare agedb --source agedb --out DATA",
        (
            "Errors are of labels that a ridge regression on the frozen embedding predicts, fitted to the training "
            "images as they are. The authors train a linear layer with L1 loss on augmented images.",
            "The embedding is a linear map of the encoder's 512 features, which the authors take as they are.",
            "The L1 regression has the settings of the authors' code; its published figure is not known here. "
            "The probe is fitted to its own prediction.",
            "The rate and the views of log-ratio are those of Rank-N-Contrast, for which they were chosen.",
            "Only brightness is jittered, where the authors also change contrast and hue, and drop colours.",
        ),
        "",
        "regression",
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
    "rank-n-contrast": {"agedb": _ages()},
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
