"""The data source ``people``."""

from dataclasses import dataclass

from cml.data_prep.synthetic.synthetic_source import Drawing, SyntheticSource


@dataclass(frozen=True)
class People(SyntheticSource):
    """Drawn people in random poses on photographic backgrounds, with the 16 MPII joints.

    Command: cml prepare people --out DIR

    Input: none; every picture follows from the seed.

    Licence: the drawings are free; the two photographs behind them are scikit-learn's sample images (CC BY).
    """

    task = "pose"
    frame = "pixels of the image: x to the right, y down, 0 at the outer edge of the first pixel"

    def _draw(self) -> Drawing:
        from cml.data_prep.synthetic.people.people import JOINTS, draw_people

        images, keypoints = self._draw_with(draw_people, self.count)
        return Drawing(images, keypoints.astype(float).round(2), {"joints": list(JOINTS)})
