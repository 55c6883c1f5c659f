"""What evaluation, calibration, audits, proposals and the explorer ask of a model, a ``Model`` or a ``Run``."""

from typing import Any, Protocol

from cml.array_types import Float32
from cml.data.input_form import InputForm
from cml.distances.label_distance import LabelDistance


class Embedder(Protocol):
    """Embeds inputs, and gives the features that it is compared with."""

    @property
    def label_distance(self) -> LabelDistance:
        """The label distance that the embedding mirrors."""
        ...

    @property
    def form(self) -> InputForm:
        """The form of its inputs."""
        ...

    def embed(self, inputs: Any, *, bar: str = "") -> Float32:  # noqa: ANN401 - inputs of any kind
        """Embeddings (N, D) of inputs."""
        ...

    def embed_by_reference(self, inputs: Any, *, bar: str = "") -> Float32:  # noqa: ANN401
        """Features (N, F) of inputs that do not depend on the labels."""
        ...

    def embed_stages(self, inputs: Any) -> dict[int, Float32]:  # noqa: ANN401
        """Embeddings (N, D) of inputs by the models that were kept during training, by their steps."""
        ...

    @property
    def reference_name(self) -> str:
        """What tables and pages call those features; "" if there are none."""
        ...
