"""``cml losses``: all losses with the labels that they take, their cost, source and use. ``cml losses NAME``: one."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import print_json
from cml.errors import UserError


@dataclass(frozen=True)
class Losses:
    """List all losses, or describe one."""

    name: Annotated[tuple[str, ...], Positional, arg(metavar="[NAME]")] = ()
    """The loss to describe."""
    markdown: bool = False
    """Print a Markdown table."""
    json: bool = False
    """Print the list as JSON."""


def run(arguments: Sequence[str]) -> None:
    """Print the list, or what one loss is and takes."""
    options = parse(Losses, arguments, prog="cml losses")
    from cml.losses import registry

    if options.name:
        registry.entry(options.name[0])  # refuses an unknown name before the table imports torch
    from cml.losses.loss_table import describe_loss, loss_rows, markdown_table, text_table

    if options.name:
        name, *more = options.name
        if more or options.markdown or options.json:
            raise UserError(f"One loss at a time, as text: cml losses {name}.")
        print(describe_loss(name))
        return
    if options.markdown and options.json:
        raise UserError("Choose one of --markdown and --json.")
    rows = loss_rows()
    if options.json:
        print_json([asdict(row) for row in rows])
    elif options.markdown:
        print(markdown_table(rows))
    else:
        print(text_table(rows))
        print("\nA, B, C: anchors, items and classes of a batch; the products of its vectors come on top of the cost.")
        print("cml losses NAME explains its settings, written as in --loss 'NAME(setting=value, ...)'")
