"""Whether queries are like the items of an index: ``cml.retrieval.novelty`` in its embedding."""

from cml.errors import UserError
from cml.retrieval.novelty import FEWEST, Novelty
from cml.searching.embedding_folder import EmbeddingFolder
from cml.searching.hit import TRAINED
from cml.searching.index import Index

MEANING = (
    "Novelty is the fraction of known items that are at least as far from the other known items. Of queries that "
    "resemble the known items, at most 5% have a novelty of 0.05 or less."
)


def compare_with_new(index: Index | EmbeddingFolder) -> Novelty | None:
    """Novelty against the items that the model was not trained on; None where too few are known.

    Items that it was trained on lie nearer to like items than new ones do, so that all queries would seem new.
    """
    if not isinstance(index, Index):
        return None
    try:
        rows = index.select(f"COALESCE(\"{TRAINED}\", '') <> 'yes'")
    except UserError:  # no item has that column
        rows = index.embeddings
    return Novelty(rows) if len(rows) >= FEWEST else None
