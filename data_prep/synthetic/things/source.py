"""The data source ``things``."""

import itertools
from dataclasses import dataclass

from cml.data_prep.class_protocol import protocol
from cml.data_prep.synthetic.synthetic_source import Drawing, SyntheticSource


@dataclass(frozen=True)
class Things(SyntheticSource):
    """Drawn objects on photographic backgrounds, one per image, with classes such as "red ball".

    Command: cml prepare things --out DIR

    Input: none; every picture follows from the seed. A class is a kind of thing in a colour. Half of the classes are
    for training and the others for testing, where every image is a query that is searched among all others; Recall@1,
    2, 4, 8.

    Licence: the drawings are free; the two photographs behind them are scikit-learn's sample images (CC BY).
    """

    task = "classes"

    def _draw(self) -> Drawing:
        from cml.data_prep.synthetic.things.classes import TEST, TRAINING, draw_singles

        halves = ((self._training, TRAINING), (self.count - self._training, TEST))
        drawn = [self._draw_with(draw_singles, count, classes) for count, classes in halves]
        images, classes = (itertools.chain(*parts) for parts in zip(*drawn, strict=True))
        return Drawing(images, classes, protocol(1, 2, 4, 8))
