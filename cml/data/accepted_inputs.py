"""The inputs that a model accepts, as far as that is known before the inputs are."""

from dataclasses import dataclass

from cml.data.input_form import InputKind, Missing
from cml.data.items import Collate


@dataclass(frozen=True)
class AcceptedInputs:
    """The inputs that a model accepts."""

    kind: InputKind | None = None  # their kind; None to recognise it
    missing: Missing = "refuse"  # what becomes of a missing number of a vector
    own_backbone: bool = False  # whether the model has a backbone of the user's own, which may take tensors
    channels: int = 3  # the number of bands of images
    # joins a list of inputs of any kind to a batch; None for images, vectors and tensors
    collate: Collate | None = None
