"""The metrics of cml during a training by ``SentenceTransformerTrainer``."""

from typing import Any

from sentence_transformers.base.evaluation import BaseEvaluator

from cml.retrieval.embeddings import EMBEDDING, evaluate_embeddings
from cml.retrieval.evaluate_options import EvaluateOptions


class RetrievalEvaluator(BaseEvaluator):
    """How well held-out inputs find others with near labels, by ``cml.retrieval.evaluate_embeddings``.

    With ``load_best_model_at_end=True`` and ``metric_for_best_model="eval_NAME_score@10"`` the trainer keeps the best
    checkpoint.

    Args:
        inputs: N held-out inputs, such as texts.
        labels: A label for each of them.
        distance: The label distance, as ``cml.fit`` takes it.
        name: A name that stands before each metric; "" for none.
        options: What is measured, and how; the defaults when not given.
        batch_size: Number of inputs per forward pass.

    Attributes:
        evaluation: The last evaluation, whose text is a table with intervals and a verdict; None before the first.

    Example:
        >>> from cml.sentence_transformers import RetrievalEvaluator
        >>> evaluator = RetrievalEvaluator(texts, labels, "euclidean", name="held-out")
        >>> evaluator(model)["held-out_score@10"]
        0.97
    """

    def __init__(
        self,
        inputs: Any,  # noqa: ANN401 - a sequence of what the model encodes
        labels: Any,  # noqa: ANN401 - a sequence of any labels
        distance: Any = "euclidean",  # noqa: ANN401 - as cml.fit takes it
        name: str = "",
        options: EvaluateOptions | None = None,
        batch_size: int = 32,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inputs, self.labels, self.distance, self.name = inputs, labels, distance, name
        self.options, self.batch_size = options, batch_size
        self.evaluation: Any = None
        self.primary_metric = "score@10"

    def __call__(self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1) -> Any:  # noqa: ANN401
        """The mean of each metric over queries, by angle if the ``SentenceTransformer`` compares by cosine."""
        by_angle = str(getattr(model, "similarity_fn_name", None) or "cosine") == "cosine"
        embeddings = model.encode(
            self.inputs, batch_size=self.batch_size, normalize_embeddings=by_angle, show_progress_bar=False
        )
        self.evaluation = evaluate_embeddings(
            embeddings, self.labels, label_distance=self.distance, options=self.options
        )
        row = self.evaluation.rows[EMBEDDING]
        # the last one is that of the largest K; classes have other metrics
        self.primary_metric = next((metric for metric in [*row][::-1] if metric.startswith("score@")), next(iter(row)))
        metrics = self.prefix_name_to_metrics({metric: result.mean for metric, result in row.items()}, self.name)
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics
