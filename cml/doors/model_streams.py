"""The embeddings of a stream by a ``Model``, in a folder that is written as the stream is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cml.models.forward_pass import ForwardPass
from cml.processes.exactness import Decode, Precision
from cml.searching import embed_stream as searching
from cml.searching.embedding_folder import EmbeddingFolder
from cml.streams.labelled_stream import as_stream

if TYPE_CHECKING:
    from cml.doors.trained_model import TrainedModel


def embed_stream(
    self: TrainedModel,
    stream: Any,  # noqa: ANN401 - a LabelledStream, or what makes one
    out: Path | str,
    *,
    field: str | None = None,
    label: str | None = None,
    batch_size: int | None = None,
    quiet: bool = False,
    decode: Decode = "exact",
    precision: Precision = "float32",
    compile: bool = False,
) -> EmbeddingFolder:
    """Embed the items of one pass over a stream into a folder, which is written as the stream is read.

    Args:
        stream: A ``cml.LabelledStream``, or an iterable data set. With ``skip_bad`` items that cannot be read are
            left out, and listed in skipped.jsonl with the reason.
        out: The folder. A call that was killed starts anew; one for a finished folder of the same tar files
            embeds nothing.
        field: The field that holds the input, such as "jpg"; by default that of the training, or the only one that
            fits.
        label: The field of a number or text to keep with each item.
        batch_size: Inputs per pass; by default 64, or 16 on a CPU.
        quiet: No progress bar.
        decode: As of ``embed``.
        precision: As of ``embed``.
        compile: As of ``embed``.

    Returns:
        The folder, whose items have their keys as ids, or their numbers in the stream.

    Raises:
        UserError: The items do not fit the model, or ``out`` holds other results.
        DataError: An item cannot be read, or two have one key.
    """
    with self.network.use_forward_pass(ForwardPass(decode, precision, compile)):
        return searching.embed_stream(
            self.network,
            as_stream(stream),
            Path(out),
            run="" if self._folder is None else str(self._folder.absolute()),
            field=field,
            label=label,
            batch_size=batch_size,
            quiet=quiet,
        )
