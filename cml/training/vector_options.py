"""The options of the recipe for vectors that differ from those of a task's recipe, which is for images."""

from typing import Any


def vector_options() -> dict[str, Any]:
    """List the options: no backbone, no augmentation and a higher learning rate.

    The rate was chosen on three tables (diabetes, wine, captions).
    """
    return {
        "backbone": "none",
        "weights": "none",
        "learning_rate": 3e-3,
        "crop": 1.0,
        "scale_jitter": 0.0,
        "shift_jitter": 0.0,
        "brightness_jitter": 0.0,
        "random_crop": "none",
        "flip": "none",
    }
