"""One step of SentenceTransformerTrainer with a loss over label distances: ``python sentence_gradients.py FOLDER``.

It writes the gradients of the first batch, of one process with twelve texts or of two with six each.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from tiny_texts import LABELS, TEXTS, tiny_transformer
from transformers import TrainerCallback

import cml
from cml.models.backbones.sentence_transformers import wrap_foreign
from cml.sentence_transformers import LabelDistanceLoss, LabelSampler


class KeepGradients(TrainerCallback):
    """Keeps the gradients of the first step, before the optimiser acts."""

    gradients: dict[str, torch.Tensor]

    def on_pre_optimizer_step(self, *others: Any, model: torch.nn.Module, **more: Any) -> None:  # noqa: ANN401
        named = model.named_parameters()
        self.gradients = {
            name.removeprefix("module."): value.grad.clone() for name, value in named if value.grad is not None
        }


def train() -> dict[str, torch.Tensor]:
    """The gradients of the first batch."""
    model, keep = wrap_foreign(tiny_transformer()).sentence_transformer, KeepGradients()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    settings = SentenceTransformerTrainingArguments(
        output_dir=tempfile.mkdtemp(), max_steps=1, per_device_train_batch_size=12 // processes, report_to=[],
        ddp_backend="gloo" if processes > 1 else None, use_cpu=True, disable_tqdm=True, save_strategy="no",
        max_grad_norm=0.0, batch_sampler=LabelSampler(),
    )  # fmt: skip
    loss = LabelDistanceLoss(model, cml.losses.LogRatioLoss().fit("euclidean", LABELS))
    data = Dataset.from_dict({"text": TEXTS, "label": LABELS})
    trainer = SentenceTransformerTrainer(model=model, args=settings, train_dataset=data, loss=loss, callbacks=[keep])
    trainer.train()
    return keep.gradients


if __name__ == "__main__":
    found = train()
    save_file(found, Path(sys.argv[1]) / f"{os.environ.get('RANK', 'one')}.safetensors")
