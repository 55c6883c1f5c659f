"""The base class of the options of commands: types are checked when they are made, whoever makes them."""

from dataclasses import dataclass

from cml.option_types import convert_options


@dataclass(frozen=True)
class CommandOptions:
    """Options of a command: a frozen dataclass whose fields are its flags.

    Raises:
        UserError: An option has a value of another type than its annotation.
    """

    def __post_init__(self) -> None:
        import tyro

        if not any(value is tyro.MISSING for value in vars(self).values()):  # defaults of a command that asks for more
            convert_options(self)
