"""A protocol applied to a model and its items."""

from cml.errors import UserError
from cml.items import LabelledItems
from cml.items.labelled_items import Embedder
from cml.protocols import get
from cml.protocols.figures import ProtocolResult
from cml.protocols.protocol import EmbeddedItems, Protocol


def measure_items(
    model: Embedder,
    protocol: Protocol,
    queries: LabelledItems,  # Q items
    gallery: LabelledItems | None,  # the items that they are compared with; None for themselves
) -> ProtocolResult:
    """Embed items and measure them by a protocol."""
    sides = [_embed(model, items) for items in (queries, gallery) if items is not None]
    return protocol.measure(queries.distance, *sides)


def as_protocol(protocol: Protocol | str) -> Protocol:
    """A protocol itself, or the one that a name with settings makes."""
    chosen = get(protocol) if isinstance(protocol, str) else protocol
    if not isinstance(chosen, Protocol):
        raise UserError(f"A protocol is a name, such as 'regression', or a Protocol. Got {protocol!r} instead.")
    return chosen


def _embed(model: Embedder, items: LabelledItems) -> EmbeddedItems:
    return EmbeddedItems(model.embed(items.inputs, bar="embed"), items.labels, items.groups)
