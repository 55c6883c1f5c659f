"""cml inside sentence-transformers: losses over label distances, an evaluator and saved models (extra ``sentences``).

- ``LabelDistanceLoss`` is a loss for ``SentenceTransformerTrainer``: any loss of cml, any label distance.
- ``LabelSampler`` draws the batches of that trainer by labels, as the samplers of cml do.
- ``RetrievalEvaluator`` reports the metrics of cml during its training, and chooses the best checkpoint.
- ``Embedding`` is a model of cml as a module, by which ``SentenceTransformer(folder)`` loads it.
"""

try:
    import sentence_transformers.base  # noqa: F401 - older versions lack it
except ModuleNotFoundError:
    raise ImportError(
        "cml.sentence_transformers needs sentence-transformers 5.4 or newer: pip install -U sentence-transformers"
    ) from None

from cml.sentence_transformers.evaluator import RetrievalEvaluator
from cml.sentence_transformers.loss import LabelDistanceLoss
from cml.sentence_transformers.module import Embedding
from cml.sentence_transformers.sampler import LabelSampler

__all__ = ["Embedding", "LabelDistanceLoss", "LabelSampler", "RetrievalEvaluator"]
