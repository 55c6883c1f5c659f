"""Formulas as MathML, which browsers draw by themselves: no script from elsewhere."""

from __future__ import annotations

from typing import Any

from latex2mathml.converter import convert


def inline(translator: Any, node: Any) -> None:  # noqa: ANN401 - Sphinx's
    """A formula within a line."""
    from docutils.nodes import SkipNode

    translator.body.append(convert(node.astext()))
    raise SkipNode


def displayed(translator: Any, node: Any) -> None:  # noqa: ANN401 - Sphinx's
    """A formula on its own line."""
    from docutils.nodes import SkipNode

    translator.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>')
    raise SkipNode
