"""The inputs that a model accepts, as far as that is known before the inputs are."""

from dataclasses import dataclass

from cml.data.input_form import InputKind, Missing
from cml.data.items import Collate


@dataclass(frozen=True)
class AcceptedInputs:
    """The inputs that a model accepts.

    Attributes:
        kind: Their kind; None to recognise it.
        missing: What becomes of a missing number of a vector.
        own_backbone: Whether the model has a backbone of the user's own, which may take tensors.
        channels: The number of bands of images.
        collate: Joins a list of inputs of any kind to a batch; None for images, vectors and tensors.
    """

    kind: InputKind | None = None
    missing: Missing = "refuse"
    own_backbone: bool = False
    channels: int = 3
    collate: Collate | None = None
