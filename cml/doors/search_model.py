"""A model of graded search: it embeds queries and documents, with one network for both or one for each."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal, Self

from cml.array_types import Float32, Int64
from cml.doors.model import Model
from cml.errors import UserError
from cml.export.sentence_folder import QUERIES, write_routes
from cml.graded.distance import GradedDistance
from cml.graded.named_side import split_names
from cml.graded.ranking import Ranking
from cml.models.forward_pass import ForwardPass
from cml.processes.exactness import Decode, Precision
from cml.registry import Choice
from cml.storage.atomic import atomic_folder
from cml.training.saved_model import RunConfig

Side = Literal["queries", "documents"]


class SearchModel(Model):
    """A model of queries and documents, as ``cml.fit((queries, documents), grades)`` makes it.

    It is the model of the documents, so that ``cml.Index``, the explorer and exports take it as any other, and knows
    how queries are embedded.

    Example:
        >>> import numpy as np
        >>> documents = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
        >>> queries = np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)
        >>> grades = cml.Grades.from_matrix((queries[:, :1] * documents[:, 0] > 0).astype(float))
        >>> model = cml.fit((queries, documents), grades, steps=5, quiet=True)
        >>> model.embed(queries, side="queries").shape
        (20, 128)
        >>> model.rank(queries, documents).evaluate(grades, ["ndcg@10"]).means["ndcg@10"] > 0.5
        True
    """

    _query_model: Model | None = None  # the network of queries; None if they have that of the documents

    @classmethod
    def of(cls, documents: Model, queries: Model | None = None) -> Self:
        """Join the model of documents and that of queries.

        Args:
            documents: The model of documents.
            queries: That of queries; None where it is the same.

        Returns:
            The model of both.
        """
        model = object.__new__(cls)
        vars(model).update(vars(documents), _query_model=queries)
        return model

    @property
    def query_model(self) -> Model:
        """The model that embeds queries: this one, unless they have a network of their own."""
        return self if self._query_model is None else self._query_model

    def embed(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them
        *,
        side: Side = "documents",
        batch_size: int | None = None,
        bar: str = "",
        decode: Decode = "exact",
        precision: Precision = "float32",
        compile: bool = False,
    ) -> Float32:
        """Embed queries or documents by the network of their ``side``; see ``Model.embed``."""
        if side not in ("queries", "documents"):
            raise UserError(f"'side' should be queries or documents. Got {side!r} instead.")
        network = self.query_model.network if side == "queries" else self.network
        with network.use_forward_pass(ForwardPass(decode, precision, compile)):
            return network.embed(inputs, batch_size=batch_size, bar=bar)

    def shorten(self, dimension: int) -> SearchModel:
        """A model of the first dimensions on both sides; see ``Model.shorten``."""
        queries = None if self._query_model is None else self._query_model.shorten(dimension)
        return SearchModel.of(super().shorten(dimension), queries)

    def search(
        self,
        queries: Any,  # noqa: ANN401 - as cml.fit takes them
        gallery: Any,  # noqa: ANN401
        k: int = 10,
        *,
        exclude: Any = None,  # noqa: ANN401 - positions
    ) -> tuple[Int64, Float32]:
        """Find the k documents nearest to each query; see ``Model.search``."""
        query_model = self.query_model
        if query_model is not self:
            queries = query_model.as_embeddings(queries)
            own = self.config.inputs
            if own.kind == "vectors" and own.shape == queries.shape[1:]:  # which would be taken for documents
                raise UserError(
                    f"Documents are vectors of {own.shape[0]} numbers, as many as embeddings have, so that these would "
                    "be taken for documents: use rank, or another dimension."
                )
        return super().search(queries, gallery, k, exclude=exclude)

    def rank(self, queries: Any, documents: Any, k: int = 1000) -> Ranking:  # noqa: ANN401 - as cml.fit takes them
        """Rank documents for each query, exactly.

        Args:
            queries: Q queries, or a mapping from name to query.
            documents: D documents, or a mapping from name to document.
            k: Documents of each query, all of them where there are fewer.

        Returns:
            The ranking, whose ``evaluate(grades)`` measures it; scores are negative embedding distances.

        Raises:
            UserError: Something is no input of the model, or k is below 1.
        """
        (query_names, plain), (document_names, given) = split_names(queries), split_names(documents)
        embedded = self.embed(plain, side="queries"), self.embed(given, side="documents")
        return Ranking.of_embeddings(*embedded, k, query_names=query_names, document_names=document_names)

    def predict(self, *inputs: Any, **options: Any) -> list[Any]:  # noqa: ANN401
        """Refuse to predict labels, which queries and documents do not have."""
        raise UserError("A model of graded search has no labels to predict: rank documents by model.rank.")

    def save(self, folder: Path | str) -> Path:
        """Write the model into a new folder; with a network for queries, that is in a folder ``queries`` below it."""
        if self._query_model is None:
            return super().save(folder)
        with atomic_folder(Path(folder)) as temporary:
            self.save_both(temporary)
        return Path(folder)

    def save_both(self, folder: Path) -> None:
        """Write what ``save`` writes into a folder that is there, as of a run: first the network of queries.

        Args:
            folder: The folder.
        """
        if self._query_model is not None:
            with atomic_folder(folder / QUERIES) as temporary:
                self._query_model.save_into(temporary)
        self.save_into(folder)
        if self._query_model is not None:
            write_routes(folder)

    def export_hub(self, out: Path | str, *, name: str = "", licence: str = "other", repository: str = "") -> list[str]:
        """Write a folder to share, with both networks where there are two; see ``Model.export_hub``."""
        if self._query_model is None:
            return super().export_hub(out, name=name, licence=licence, repository=repository)
        from cml.export.hub import export_hub

        networks = self.network, self._query_model.network
        with tempfile.TemporaryDirectory() as temporary:
            folder = self.save(Path(temporary) / (name or Path(out).name))
            return export_hub(
                folder,
                Path(out),
                name=name,
                licence=licence,
                repository=repository,
                model=networks[0],
                query_model=networks[1],
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_query_model": self._query_model}


def is_of_search(run: RunConfig) -> bool:
    """Whether a run learned from grades."""
    return Choice.parse(run.label_distance).name == GradedDistance.name
