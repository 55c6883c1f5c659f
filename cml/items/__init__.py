"""Labelled items: the one noun that flows from the doors of cml to everything behind them."""

from cml.items.labelled_items import LabelledItems

__all__ = ["LabelledItems"]
