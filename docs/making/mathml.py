"""Formulas as MathML, which browsers render without scripts."""

from __future__ import annotations

from typing import Any

from latex2mathml.converter import convert


def inline(translator: Any, node: Any) -> None:  # noqa: ANN401 - Sphinx's
    """Render an inline formula."""
    from docutils.nodes import SkipNode

    translator.body.append(convert(node.astext()))
    raise SkipNode


def displayed(translator: Any, node: Any) -> None:  # noqa: ANN401 - Sphinx's
    """Render a displayed formula."""
    from docutils.nodes import SkipNode

    translator.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>')
    raise SkipNode
