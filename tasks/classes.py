"""Class labels: the field's own case, trained with Proxy-Anchor and tested on classes that were never seen.

Command: cml train classes --data DIR --out RUN
Time: the recipe is 1,950 batches of 180 images, which needs a graphics card; ``cml reproduce proxy-anchor`` forecasts
its time. The small runs of docs/results/proxy_anchor.md take minutes a command on 2 cores.
Expected score: that of small networks on scikit-learn's digits and on drawn things in docs/results/proxy_anchor.md. The
recipe has not been run on the data sets of the paper.

The recipe is Proxy-Anchor's (Kim et al., CVPR 2020), but for cosine instead of step-wise rates, a warm-up instead of an
epoch with a frozen backbone, batch normalisation that keeps learning, torchvision's pooling. SOP and In-Shop took
``--learning-rate 6e-4``.
"""

from cml.task import Task
from cml.tasks import main
from cml.training.config import TrainConfig

RECIPE = TrainConfig(
    label_distance="classes",
    loss="proxy-anchor(alpha=32, delta=0.1)",
    sampler="random(batch_size=180)",
    backbone="resnet50",
    dimension=512,
    # images are stored with a shorter side of 256 px; the network sees 224
    crop=224 / 256,
    scale_jitter=0.1,
    shift_jitter=16 / 256,
    flip="image",
    steps=1950,  # 60 epochs of CUB-200-2011
    optimizer="adamw",
    learning_rate=1e-4,
    proxy_rate=100.0,
    weight_decay=1e-4,
    warmup=33,  # one epoch of it
)

# Pair losses want several items per class in a batch; proxies do not. Settings are the published ones.
PAIRS = "per-class(batch_size=180, per_class=5)"
VARIANTS = {
    "proxy-anchor": {},
    "proxy-nca": {"loss": "proxy-nca"},
    "proxy-nca-pp": {"loss": "proxy-nca-pp"},
    "soft-triple": {"loss": "soft-triple"},
    "proxy-gml": {"loss": "proxy-gml(per_class=3, share=0.5)"},
    "direction proxy-nca": {"loss": "direction-proxy-nca"},
    "multi-similarity": {"loss": "multi-similarity", "sampler": PAIRS},
    "direction multi-similarity": {"loss": "direction-multi-similarity", "sampler": PAIRS},
    "language-guided multi-similarity": {"loss": "language-guidance(loss=multi-similarity)", "sampler": PAIRS},
    "triplet, semi-hard": {"loss": "triplet(mining=semi-hard)", "sampler": PAIRS},
    "triplet, batch-hard": {"loss": "triplet(mining=batch-hard, squared=False)", "sampler": PAIRS},
    "direction triplet": {"loss": "direction-triplet", "sampler": PAIRS},
    "ranked-list": {"loss": "ranked-list", "sampler": PAIRS},
    "contrastive": {"loss": "contrastive", "sampler": PAIRS},
    "lifted structure": {"loss": "lifted-structure", "sampler": "per-class(batch_size=90, per_class=5)"},
    "n-pair": {"loss": "n-pair(regularization=0.02)", "sampler": "per-class(batch_size=180, per_class=2)"},
}

TASK = Task(
    name="classes",
    summary="class labels, tested on classes that do not occur in training",
    recipe=RECIPE,
    draw=lambda image, label, info: image.copy(),  # a class has no place in it; its name is said below
    describe=lambda label, info: f"{label:g}" if isinstance(label, float) else str(label),
    variants=VARIANTS,
    mirror=lambda label, info: label,  # a mirrored bird is the same bird; not so for digits, which need --flip none
)

if __name__ == "__main__":
    main("classes")
