"""The experiment of "Rank-N-Contrast" (Zha and others, NeurIPS 2023) on faces."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cml.tasks import value
from cml.tasks.published_experiment import Experiment, PublishedRow

_STORED = 256  # pixels of the shorter side of a stored image, of which the network sees 224
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


EXPERIMENTS: Mapping[str, Experiment] = {"agedb": _ages()}
"""Dataset to its experiment."""
