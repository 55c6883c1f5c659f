"""Formulas as MathML, which browsers render without scripts."""

from __future__ import annotations

import re
from typing import Any, Literal

from latex2mathml.converter import convert

# latex2mathml gives the name of a function as an identifier, which browsers set without space: "p log x" as "plogx"
_FUNCTION = re.compile(r"<mi>(log|exp)</mi>")
_BRACKET = '<mo stretchy="false">&#x00028;'


def inline(translator: Any, node: Any) -> None:  # noqa: ANN401 - Sphinx's
    """Render an inline formula."""
    from docutils.nodes import SkipNode

    translator.body.append(render_formula(node.astext(), "inline"))
    raise SkipNode


def displayed(translator: Any, node: Any) -> None:  # noqa: ANN401 - Sphinx's
    """Render a displayed formula."""
    from docutils.nodes import SkipNode

    translator.body.append(f'<div class="formula">{render_formula(node.astext(), "block")}</div>')
    raise SkipNode


def render_formula(latex: str, display: Literal["inline", "block"]) -> str:
    """Convert a formula to MathML, with the thin space of TeX around names of functions.

    Args:
        latex: The formula.
        display: Whether it stands in a line of text or by itself.

    Returns:
        A ``math`` element.
    """
    element = convert(latex, display=display)

    def space(match: re.Match[str]) -> str:
        after = "0" if element.startswith(_BRACKET, match.end()) else "0.167em"
        return f'<mo lspace="0.167em" rspace="{after}">{match[1]}</mo>'

    return _FUNCTION.sub(space, element)
