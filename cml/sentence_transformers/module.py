"""A model of cml as a module of sentence-transformers, by which ``SentenceTransformer(folder)`` loads it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sentence_transformers.base.modules.input_module import InputModule
from torch import Tensor

from cml.data.augmentation import center_box
from cml.data.images import stored_size
from cml.data.input_sources import open_inputs
from cml.doors.load import load
from cml.doors.model import Model
from cml.errors import UserError
from cml.export.sentence_folder import QUERIES
from cml.processes.device import to_device


class Embedding(InputModule):
    """A trained ``cml.Model`` whose inputs are a list of what ``model.embed`` takes: images, vectors, texts or items.

    ``SentenceTransformer(folder, trust_remote_code=True)`` makes it of a folder of ``model.save``; that library asks
    for ``trust_remote_code`` for modules of all other packages, installed ones too. Of a model with a module of one's
    own, give that and its ``collate``: ``model_kwargs={"backbone": module, "collate": function}``. It can be trained
    further by ``SentenceTransformerTrainer``.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> encoder = SentenceTransformer("models/mine", trust_remote_code=True)
        >>> encoder.encode([image, other]).shape
        (2, 128)
    """

    save_in_root = True
    tokenizer: Any = None  # of texts, the backbone's own

    def __init__(self, model: Model) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model = model
        self.network = model.network

    @property
    def modalities(self) -> list[Any]:
        """Everything: what an input is, is for the model to say."""
        return ["text", "image", "audio", "video"]

    @property
    def max_seq_length(self) -> None:
        """None: there is no common limit."""
        return

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **options: Any) -> dict[str, Any]:  # noqa: ANN401
        """Read B inputs as a batch; a model of cml has no prompt."""
        if prompt:
            raise UserError(f"A model of cml takes no prompt. Got {prompt!r}.")
        config = self.network.config
        opened = open_inputs(
            list(inputs), config.inputs, stored_size(config.image_size, config.crop), self.network.collate
        )
        batch = opened.read(np.arange(len(opened)))
        if config.inputs.kind == "images":
            batch = center_box(batch, config.image_size)
        elif isinstance(batch, np.ndarray):
            batch = torch.from_numpy(batch)
        return {"inputs": batch}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:  # noqa: ANN401 - as the library asks
        """Add the embeddings (B, D) of a batch as ``sentence_embedding``."""
        embeddings: Tensor = self.network(to_device(features["inputs"], self.network.mean.device))
        features["sentence_embedding"] = embeddings.float()
        return features

    def get_embedding_dimension(self) -> int:
        """D, the number of dimensions."""
        return self.network.config.dimension

    def save(self, output_path: str, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - of the library
        """Write the model as ``cml.load`` reads it, into a folder that exists."""
        self.model.save_into(Path(output_path))

    @classmethod
    def load(  # type: ignore[override]
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        model_kwargs: dict[str, Any] | None = None,
        **options: Any,  # noqa: ANN401 - of the library
    ) -> Self:
        """Load a model that ``model.save`` wrote; ``model_kwargs`` may hold ``backbone`` and ``collate``."""
        own = {name: value for name, value in (model_kwargs or {}).items() if name in ("backbone", "collate")}
        if subfolder == QUERIES:  # of two networks, given as (queries, documents)
            own = {name: value[0] for name, value in own.items()}
        folder = Path(model_name_or_path)
        if not folder.is_dir():
            raise UserError(f"{model_name_or_path} is no folder: fetch it by cml.load('hf:{model_name_or_path}').")
        return cls(load(folder / subfolder, device="cpu", **own))
