"""The data source ``scenes``."""

from dataclasses import dataclass

from cml.data_prep.synthetic.synthetic_source import Drawing, SyntheticSource


@dataclass(frozen=True)
class Scenes(SyntheticSource):
    """Drawn scenes of two to five objects on photographic backgrounds, with five captions each.

    Command: cml prepare scenes --out DIR

    Input: none; every picture and caption follows from the seed. dataset.json says that the captions' word vectors come
    with cml.

    Licence: the drawings are free; the two photographs behind them are scikit-learn's sample images (CC BY).
    """

    task = "caption"

    def _draw(self) -> Drawing:
        from cml.data_prep.synthetic.scenes.scenes import draw_scenes

        images, captions, _ = self._draw_with(draw_scenes, self.count)
        return Drawing(images, map(list, captions), {"word_vectors": "scene-words"})
