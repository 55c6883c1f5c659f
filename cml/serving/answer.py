"""What the service computes: the items of an index that are nearest to queries, what to expect of them, novelty."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cml.array_types import Float32
from cml.doors.model import Model
from cml.errors import UserError
from cml.retrieval.calibration import Calibration
from cml.retrieval.search import check_size
from cml.searching.embedding_folder import EmbeddingFolder
from cml.searching.hit import Hit
from cml.searching.index import Index
from cml.searching.index_novelty import compare_with_new
from cml.serving.query import Query, Refusal

Result = Mapping[str, Any]  # of an input: ``novelty``, and ``found``, nearest first


class Searcher:
    """An index with its model, which answers queries, several at a time."""

    def __init__(self, index: Index | EmbeddingFolder, model: Model) -> None:
        self.index, self.model, self.form = index, model, model.form
        if self.form.kind == "items":
            raise UserError("The model takes inputs of a function of your own, which no request can hold.")
        self.calibration: Calibration | None = model.calibration
        self.novelty = compare_with_new(index)

    def __len__(self) -> int:
        return len(self.index)

    def warm(self) -> None:
        """Search once, so that what is loaded and compiled at first is there before a client waits for it."""
        one: Any = ["warm"]
        if self.form.has_shape:
            shape = (1, 8, 8, self.form.channels) if self.form.kind == "images" else (1, *self.form.shape)
            one = np.zeros(shape, np.uint8 if self.form.kind == "images" else np.float32)
        if self.form.whole:
            one = one.astype(np.int64)
        self.answer([Query(one, 1, None)])

    def answer(self, queries: Sequence[Query]) -> list[list[Result]]:
        """Answer queries: for each a result for each of its inputs."""
        parts = [query.inputs for query in queries]
        arrays = [part for part in parts if isinstance(part, np.ndarray)]
        inputs = np.concatenate(arrays) if arrays else [one for part in parts for one in part]
        try:
            rows = self.model.embed(inputs)
            check_size(float(np.einsum("nd,nd->n", rows, rows, dtype=np.float64).max(initial=0)))
        except UserError as error:
            raise Refusal(400, str(error)) from None
        most = min(max(query.k for query in queries), len(self.index))
        hits: list[list[Hit]] = [[] for _ in rows]
        if most:
            hits = self._search(rows, most)
        novelty = None if self.novelty is None else self.novelty.score(rows).tolist()
        results: list[list[Result]] = []
        row = 0
        for query in queries:
            radius = self._radius(query.within)
            results.append([])
            for _ in range(len(query)):
                found = [
                    self._describe(hit) for hit in hits[row][: query.k] if radius is None or hit.distance <= radius
                ]
                results[-1].append({"novelty": None if novelty is None else round(novelty[row], 6), "found": found})
                row += 1
        return results

    def _search(self, rows: Float32, k: int) -> list[list[Hit]]:
        if isinstance(self.index, Index):
            return self.index.search(rows, k, digest=self.index.digest)  # which says that these are embeddings
        return self.index.search(rows, k)

    def _radius(self, within: float | None) -> float | None:
        return None if within is None or self.calibration is None else self.calibration.radius(within)

    def _describe(self, hit: Hit) -> dict[str, Any]:
        shown = {"id": hit.item_id, "label": hit.label, "distance": hit.distance, "columns": dict(hit.columns)}
        if self.calibration is not None:
            expected, low, high = self.calibration.expect(np.array(hit.distance))
            shown |= {"expected": float(expected), "low": float(low), "high": float(high)}
        return shown
