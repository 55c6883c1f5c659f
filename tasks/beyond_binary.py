"""The experiments of "Deep Metric Learning Beyond Binary Supervision" (Kim and others, CVPR 2019), on dense lists."""

from collections.abc import Mapping
from dataclasses import replace

from cml.task import Task
from cml.tasks import caption, layout, pose
from cml.tasks.baselines import published_log_ratio
from cml.tasks.published_experiment import Experiment, PublishedRow

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


EXPERIMENTS: Mapping[str, Experiment] = {
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
}
"""Dataset to its experiment."""
