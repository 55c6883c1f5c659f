"""How the authors of other methods than Proxy-Anchor train them, from their public code, or from the paper.

The tables of Proxy-Anchor's paper quote the figures of these methods. A method without an entry is only quoted, and
``why_quoted`` says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AuthorsSettings:
    """The settings of a method on a data set."""

    changes: Mapping[str, Any]  # training options that differ from Proxy-Anchor's
    paper: str  # where its figures were published first
    note: str  # where the settings are from, and in what cml's training differs from them, as sentences


_MARGIN = (
    "binary(loss=MarginLoss(margin=0.2, beta=1.2), "
    "miner=DistanceWeightedMiner(cutoff=0.5, nonzero_loss_cutoff=1.4), rule=threshold, distance=0)"
)
_MARGIN_EPOCH = 200  # steps, whatever the number of images
_UNKNOWN = "Figures of other papers, whose settings are not known here."
_QUOTED: Mapping[str, str] = {"RLL-H": "The settings of RLL-H on this data set are not known here; those on CUB are."}
_PROXY_NCA = {"cub": (9.0, 1.0, 20), "cars": (9.0, 1.0, 50), "sop": (12.0, 10.0, 50)}  # scale, rate of proxies, epochs


def authors_settings(method: str, dataset: str, images: int) -> AuthorsSettings | None:
    """The settings of a method on a data set with so many training images; None if they are not known."""
    if method == "Multi-similarity" and dataset == "cub":
        return _multi_similarity()
    if method == "SoftTriple" and dataset in ("cub", "cars"):
        return _soft_triple(images)
    if method == "Margin" and dataset == "cub":
        return _margin()
    if method == "RLL-H" and dataset == "cub":
        return _ranked_list()
    if method == "Proxy-NCA" and dataset in _PROXY_NCA:
        return _proxy_nca(dataset, images)
    return None


def why_quoted(method: str) -> str:
    """Say why cml does not train a method that has no settings."""
    return _QUOTED.get(method, _UNKNOWN)


def _multi_similarity() -> AuthorsSettings:
    changes = {
        "loss": "multi-similarity(alpha=2, beta=40, base=0.5, epsilon=0.1)",
        "sampler": "per-class(batch_size=80, per_class=5)",
        "backbone": "bn-inception(pooling=max)",
        "image_size": (227, 227),
        "crop": 227 / 256,
        "steps": 3000,
        "optimizer": "adam",
        "head_first": 0,
        "learning_rate": 3e-5,
        "backbone_lr_scale": 0.1,
        "weight_decay": 5e-4,
        "schedule": "step(every=1200, decay=0.1)",
        "clip_gradient_value": None,
        "batch_norm": "fixed",
    }
    return AuthorsSettings(
        changes,
        "Wang and others, CVPR 2019",
        "Multi-similarity has the settings of configs/example.yaml in github.com/msight-tech/research-ms-loss. Its "
        "authors' crops take at least 16 % of the area, cml's 8 %. They report the best step on the test images.",
    )


def _soft_triple(images: int) -> AuthorsSettings:
    epoch = -(-images // 32)  # the last, smaller batch is trained on too
    changes = {
        "loss": "soft-triple(centers=10, scale=20, gamma=0.1, margin=0.01, tau=0.2)",
        "sampler": "random(batch_size=32)",
        "backbone": "bn-inception",
        "steps": 50 * epoch,
        "optimizer": "adam(epsilon=0.01)",
        "head_first": 0,
        "learning_rate": 1e-4,
        "proxy_rate": 100.0,
        "weight_decay": 1e-4,
        "schedule": f"step(every={20 * epoch}, first={19 * epoch}, decay=0.1)",
        "clip_gradient_value": None,
        "batch_norm": "fixed",
    }
    return AuthorsSettings(
        changes,
        "Qian and others, ICCV 2019",
        "SoftTriple has the settings of github.com/idstcv/SoftTriple, whose example is Cars-196 with 64 dimensions. "
        "Its authors measure after the last epoch.",
    )


def _margin() -> AuthorsSettings:
    changes = {
        "loss": _MARGIN,
        "sampler": "per-class(batch_size=70, per_class=5)",
        "backbone": "resnet50",
        "random_crop": "place",
        "steps": 20 * _MARGIN_EPOCH,
        "optimizer": "adam",
        "head_first": 0,
        "learning_rate": 1e-4,
        "backbone_lr_scale": 0.01,
        "weight_decay": 1e-4,
        "schedule": f"step(every={2 * _MARGIN_EPOCH}, first={12 * _MARGIN_EPOCH}, decay=0.5)",
        "clip_gradient_value": None,
        "batch_norm": "batch",
    }
    return AuthorsSettings(
        changes,
        "Wu and others, ICCV 2017",
        "Margin has the settings of the authors' example in github.com/apache/mxnet, example/gluon/embedding_learning. "
        "They crop the birds by their bounding boxes for training and test, learn a boundary of each class at a rate "
        "of 0.1, and train batch normalisation at the full rate in a pre-activated ResNet-50. Here the boundary stays "
        "at 1.2, a batch is that of one of their two GPUs, and positives are drawn with replacement. They report the "
        "best epoch on the test images.",
    )


def _ranked_list() -> AuthorsSettings:
    changes = {
        "loss": "ranked-list(alpha=1.4, margin=0.2, temperature=10)",
        "sampler": "per-class(batch_size=60, per_class=3)",
        "backbone": "bn-inception",
        "image_size": (227, 227),
        "crop": 227 / 256,
        "random_crop": "place",
        "steps": 10_000,
        "head_first": 0,
        "optimizer": "sgd(momentum=0.9)",
        "learning_rate": 0.1,
        "backbone_lr_scale": 0.01,
        "weight_decay": 2e-5,
        "schedule": "step(every=2000, decay=0.5)",
        "clip_gradient_value": None,
        "batch_norm": "batch",
    }
    return AuthorsSettings(
        changes,
        "Wang and others, CVPR 2019",
        "RLL-H has the settings of CUB_V01 in github.com/XinshaoAmosWang/Ranked-List-Loss-for-DML. Its authors train "
        "two heads at lower layers with it, pad images to squares, and multiply the push and pull of a pair by its "
        "distance and the gradient of an anchor by the sum of its weights, which the formula of the paper does not.",
    )


def _proxy_nca(dataset: str, images: int) -> AuthorsSettings:
    scale, proxies, epochs = _PROXY_NCA[dataset]
    epoch, rate = images // 32, 0.045
    changes = {
        "loss": f"proxy-nca(scale={scale})",
        "sampler": "random(batch_size=32)",
        "backbone": "bn-inception",
        "image_size": (227, 227),
        "crop": 227 / 256,
        "random_crop": "place",
        "steps": epochs * epoch,
        "head_first": 0,
        "optimizer": "rmsprop(decay=0.9, epsilon=1)",
        "learning_rate": rate,
        "proxy_rate": proxies / rate,
        "weight_decay": 0.0,
        "schedule": f"step(every={epoch}, decay=0.94)",
        "clip_gradient_value": None,
        "batch_norm": "batch",
    }
    return AuthorsSettings(
        changes,
        "Movshovitz-Attias and others, ICCV 2017",
        "Proxy-NCA has the settings of its paper where it states them: RMSprop, batches of 32, crops of 227 px and a "
        "decay by 0.94. The rates, the epochs, the scale and the epsilon of 1 are those of the re-implementation "
        "github.com/dichotomies/proxy-nca, which takes Adam and smooths labels, and the decay of 0.9 in RMSprop is "
        "that with which Inception was trained. The item's own proxy is in the loss's denominator, as there.",
    )
