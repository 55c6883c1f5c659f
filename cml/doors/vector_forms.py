"""The forms of vectors that need no training, with which an evaluation compares a model of vectors."""

from typing import Any

from cml.models.embedding import EmbeddingModel
from cml.retrieval.embedding_ranker import Rows
from cml.retrieval.feature_forms import VECTOR_ROWS, NormalizedRows, StandardizedRows


def compute_vector_forms(
    model: EmbeddingModel,
    queries: Any,  # noqa: ANN401 - as ``cml.fit`` takes them
    gallery: Any = None,  # noqa: ANN401
) -> dict[str, tuple[Rows, Rows]]:
    """Compute vectors in each form: as they are, L2-normalised, and standardised.

    They are the forms that ``tune`` compares heads with. A missing number becomes the mean of its column.
    """
    mean, std = (values.cpu().numpy() for values in (model.mean, model.std))

    def compute(inputs: Any) -> tuple[Rows, Rows, Rows]:  # noqa: ANN401
        filled = model.fill_missing_in_parts(inputs)
        return filled, NormalizedRows(filled), StandardizedRows(filled, mean, std)

    of_queries = compute(queries)
    of_gallery = of_queries if gallery is None else compute(gallery)
    return dict(zip(VECTOR_ROWS, zip(of_queries, of_gallery, strict=True), strict=True))
