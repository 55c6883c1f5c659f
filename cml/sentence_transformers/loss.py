"""Losses of cml for ``SentenceTransformerTrainer``."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cml import losses
from cml.distances import LabelDistance, LabelError, Labels, as_label_distance
from cml.distributed import gather
from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss as LossOfDistances
from cml.losses.loss import Loss
from cml.losses.wrapped_loss import as_loss
from cml.training.training_targets import BatchTargets, TrainingTargets


class LabelDistanceLoss(nn.Module):
    """A loss of cml over all pairs of a batch, whose targets are distances between labels.

    The data set has one column of inputs, or ``views`` that show the same item, and a column ``label``. In several
    processes each computes the loss of the whole batch, as ``cml.distributed.gather`` says: a batch has the items of
    all of them, and the gradient is that of one process with the whole batch.

    Args:
        model: The ``SentenceTransformer`` that is trained.
        loss: The name of a loss, such as "log-ratio" or "cosent(scale=2.0)", a loss of ``cml.losses``, or a module from
            embeddings (B, D) and label distances (B, B) to a number.
        distance: The label distance of ``label``: a string, a ``LabelDistance``, a function of two labels, or a matrix,
            as ``cml.fit`` takes it.
        labels: None where the column ``label`` holds the labels themselves, numbers or vectors; constants of a loss
            that was not fitted are then those of the first batch. Else the labels of the training set, of any kind;
            ``label`` holds the number of each row in them, and constants and proxies follow from all of them.
        views: Columns of inputs, each of which shows the item that has the label, such as a text and its translation.
            Pairs of different items with a score are no views: see ``cml.PairJudgements``.

    Raises:
        UserError: A loss that needs ``labels`` has none, the labels do not fit the distance, or ``model`` is no
            SentenceTransformer.

    Example:
        >>> from cml.sentence_transformers import LabelDistanceLoss
        >>> loss = LabelDistanceLoss(model, "log-ratio", "euclidean")  # a column "text", a column "label" of numbers
        >>> trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=dataset, loss=loss)
    """

    def __init__(
        self,
        model: Any,  # noqa: ANN401 - a SentenceTransformer
        loss: str | nn.Module = "log-ratio",
        distance: Any = "euclidean",  # noqa: ANN401 - as cml.fit takes it
        labels: Any = None,  # noqa: ANN401 - a sequence of any labels
        views: int = 1,
    ) -> None:
        super().__init__()
        if not hasattr(model, "get_embedding_dimension"):
            raise UserError(
                f"LabelDistanceLoss takes the SentenceTransformer first, then the loss. Got {model!r} first."
            )
        self.model, self.views = model, views
        self.loss: Loss = losses.registry.make(loss) if isinstance(loss, str) else as_loss(loss)
        self.distance: LabelDistance = as_label_distance(distance)
        self._targets: TrainingTargets | None = None
        self._encoded = Labels({})
        if labels is None:
            if not isinstance(self.loss, LossOfDistances) and isinstance(loss, str):
                raise UserError(
                    f"The loss {loss!r} needs more of the training labels than the distances of a batch: give labels=, "
                    "and the number of each row as the column 'label'."
                )
            return
        try:
            self.distance = self.distance.fit(labels)
            encoded = self.distance.encode(labels)
        except LabelError as error:
            raise UserError(f"The 'labels' do not fit the label distance {self.distance.name!r}: {error}") from None
        self._encoded, self._targets = encoded, TrainingTargets(self.distance, encoded)
        self.loss.prepare(
            self.loss.target(self._targets),
            dimension=model.get_embedding_dimension(),
            names=self._targets.class_names(),
            generator=torch.Generator().manual_seed(0),
        )

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None) -> Tensor:
        """The loss of a batch.

        Args:
            sentence_features: What the model makes of each column of inputs.
            labels: The column ``label``: (B,) or (B, V) labels, or (B,) numbers of rows.

        Returns:
            A scalar.

        Raises:
            UserError: There is no column ``label``, it holds no labels of the distance, or no numbers of rows where
                ``labels`` were given; or the data set has another number of columns of inputs.
        """
        if labels is None:
            raise UserError("The data set has no column 'label', whose distances are the targets of the loss.")
        inputs = list(sentence_features)
        if len(inputs) != self.views:
            raise UserError(
                f"The data set has {len(inputs)} columns of inputs, but the loss takes {self.views}: set "
                f"views={len(inputs)} if each row shows one item, with its label. Pairs of two items with a score are "
                "trained by cml.fit(texts, cml.PairJudgements(...))."
            )
        columns = [self.model(features)["sentence_embedding"] for features in inputs]
        own = torch.cat([column if column.dtype == torch.float64 else column.float() for column in columns])
        if self.loss.normalize:
            own = nn.functional.normalize(own, dim=1)
        embeddings = gather(own)
        rows = gather(torch.cat([labels] * len(columns))).cpu().numpy()
        value: Tensor = self.loss(embeddings, self._target(rows).to(embeddings.device))
        return value

    def _target(self, rows: Any) -> Tensor:  # noqa: ANN401 - labels (B,) or (B, V), or numbers of rows
        if self._targets is None:
            encoded = self._encode(rows)
            if isinstance(self.loss, LossOfDistances) and self.loss.open_constants() and not self.loss.constants():
                self.loss.fit(self.distance, rows)  # to the batch of all processes, so that they agree
            return torch.as_tensor(np.asarray(self.distance.pairwise(encoded, encoded)))
        items = rows.astype(np.int64)
        if items.size and not (items.min() >= 0 and items.max() < len(self._encoded)):
            raise UserError(
                f"The column 'label' holds {items.max()}, which is no number of one of {len(self._encoded)} labels."
            )
        batch = BatchTargets(training=self._targets, items=items, labels=self._encoded[items], anchors=len(items))
        return self.loss.target(batch)

    def _encode(self, rows: Any) -> Labels:  # noqa: ANN401 - labels (B,) or (B, V)
        try:
            return self.distance.encode(rows)
        except LabelError as error:
            raise UserError(
                f"The column 'label' does not fit the label distance {self.distance.name!r}: {error} Labels that are "
                "no numbers or vectors are given as labels=; the column holds the number of each row in them."
            ) from None

    def get_config_dict(self) -> dict[str, Any]:
        """What the model card says of the loss."""
        return {"loss": type(self.loss).__name__, "distance": self.distance.name}
