"""The plugins and packages whose code the loss, the backbone and the metrics of a result need."""

from collections.abc import Iterable, Iterator

from cml import plugins
from cml.registry import Choice


def find_needed_plugins(loss: str, backbone: str, metrics: Iterable[str] = ()) -> tuple[tuple[str, str], ...]:
    """Find the plugins that registered what a result is of.

    Args:
        loss: The loss as text; "" for none.
        backbone: The backbone as text; "" for none.
        metrics: Names of metrics of one's own.

    Returns:
        The name and the SHA-256 of each plugin; none for cml's own parts.

    Raises:
        UserError: the loss or the backbone cannot be made.
    """
    return plugins.required_plugins(*_loss_names(loss), *_backbone_names(backbone), *metrics)


def _loss_names(loss: str) -> Iterator[str]:
    """The name of a loss, and those of its parts that plugins registered; no words that are settings."""
    if not loss:
        return
    from cml import losses

    name = Choice.parse(loss).name
    yield name
    origins = {part: origin for part, origin in losses.registry.origins().items() if origin}
    if origins:
        classes = {type(module) for module in losses.get(loss).modules()}
        yield from (part for part in origins if losses.registry.entry(part) in classes)


def _backbone_names(backbone: str) -> Iterator[str]:
    if backbone:
        yield Choice.parse(backbone).name.partition("/")[0]
