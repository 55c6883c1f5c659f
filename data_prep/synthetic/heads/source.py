"""The data source ``heads``."""

from dataclasses import dataclass

from cml.data_prep.synthetic.synthetic_source import Drawing, SyntheticSource


@dataclass(frozen=True)
class Heads(SyntheticSource):
    """Drawn heads in random orientations on photographic backgrounds, with exact rotations.

    Command: cml prepare heads --out DIR

    Input: none; every picture follows from the seed. Labels are quaternions, compared by the angle between two
    rotations.

    Licence: the drawings are free; the two photographs behind them are scikit-learn's sample images (CC BY).
    """

    task = "value"
    label_unit = "rotation"
    frame = "quaternion x, y, z, w from the head to the camera: x to the right, y down, z away from the camera"

    def _draw(self) -> Drawing:
        from cml.data_prep.synthetic.heads.heads import draw_heads

        images, rotations = self._draw_with(draw_heads, self.count)
        return Drawing(images, rotations.round(6).tolist(), {"label_distance": "rotation"})
