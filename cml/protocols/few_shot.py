"""few-shot: classes told from a few items each, in drawn episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cml.array_types import Float32, Int64
from cml.distances import LabelDistance
from cml.errors import UserError
from cml.protocols.figures import Figure, ProtocolResult
from cml.protocols.protocol import EmbeddedItems, Protocol, read_class_numbers
from cml.settings import check_whole

_WIDE = 1.959963984540054  # standard errors, of a 95 % interval


@dataclass(frozen=True)
class FewShot(Protocol):
    """Episodes of few classes with few items each (Vinyals et al., Matching Networks, NeurIPS 2016).

    An episode draws ``ways`` classes, of each ``shot`` items that are known and ``asked`` others. Each of the others is
    given the class whose known items have the nearest mean (Snell et al., Prototypical Networks, NeurIPS 2017). The
    figure ``accuracy@S`` is the mean over episodes of the share that is right, at S known items a class.

    Attributes:
        shots: The S.
        ways: Classes of an episode.
        asked: Items a class that are asked for, or as many as the class has beside the known ones.
        episodes: Episodes for each S.
        seed: Random seed of the episodes.

    Example:
        >>> import numpy as np
        >>> from cml import distances
        >>> distance = distances.get("classes")
        >>> rows = np.repeat(np.eye(6, dtype=np.float32), 4, axis=0)
        >>> items = EmbeddedItems(rows, distance.encode([name for name in "abcdef" for _ in range(4)]))
        >>> FewShot(shots=(1,), episodes=10).measure(distance, items).figures["embedding"]["accuracy@1"].value
        1.0
    """

    shots: tuple[int, ...] = (1, 5, 20)
    ways: int = 5
    asked: int = 15
    episodes: int = 600
    name: ClassVar[str] = "few-shot"

    def __post_init__(self) -> None:
        super().__post_init__()
        for shot in self.shots:
            check_whole("shots", shot)
        check_whole("ways", self.ways, least=2)
        check_whole("asked", self.asked)
        check_whole("episodes", self.episodes, least=2)

    def measure(
        self, distance: LabelDistance, queries: EmbeddedItems, gallery: EmbeddedItems | None = None
    ) -> ProtocolResult:
        """Draw episodes and count right answers."""
        own, *rest = read_class_numbers(self.name, distance, [queries] if gallery is None else [queries, gallery])
        theirs = rest[0] if rest else own
        known_rows = (queries if gallery is None else gallery).embeddings
        rng = np.random.default_rng(self.seed)
        figures = {}
        for shot in self.shots:
            needed = shot + 1 if gallery is None else shot
            classes = [
                number
                for number in np.unique(own).tolist()
                if (theirs == number).sum() >= needed and (own == number).any()
            ]
            if len(classes) < self.ways:
                figures[f"accuracy@{shot}"] = Figure(float("nan"))
                continue
            members = {number: (np.flatnonzero(own == number), np.flatnonzero(theirs == number)) for number in classes}
            right = np.array(
                [
                    self._run_episode(queries.embeddings, known_rows, members, shot, gallery is None, rng)
                    for _ in range(self.episodes)
                ]
            )
            half = _WIDE * right.std(ddof=1) / len(right) ** 0.5
            mean = float(right.mean())
            figures[f"accuracy@{shot}"] = Figure(mean, max(0.0, mean - float(half)), min(1.0, mean + float(half)))
        if all(np.isnan(figure.value) for figure in figures.values()):
            raise UserError(
                f"The protocol 'few-shot' needs at least {self.ways} classes with {min(self.shots) + 1} items each. "
                "Lower 'ways' or 'shots'."
            )
        note = (
            f"{self.episodes} episodes of {self.ways} classes for each S, classes told by the nearest mean of S items. "
            "95 % intervals over episodes, given these classes."
        )
        return ProtocolResult(self.name, {"embedding": figures}, note)

    def _run_episode(
        self,
        rows: Float32,
        known_rows: Float32,
        members: dict[int, tuple[Int64, Int64]],
        shot: int,
        is_one_side: bool,
        rng: np.random.Generator,
    ) -> float:
        """The share of right answers of one episode."""
        means, asked, truth = [], [], []
        for way, number in enumerate(rng.choice(list(members), self.ways, replace=False).tolist()):
            own, theirs = members[number]
            known = rng.choice(theirs, shot, replace=False)
            others = np.setdiff1d(own, known) if is_one_side else own
            some = rng.choice(others, min(self.asked, len(others)), replace=False)
            means.append(known_rows[known].mean(axis=0, dtype=np.float64))
            asked.append(rows[some].astype(np.float64))
            truth.append(np.full(len(some), way))
        centres, items = np.stack(means), np.concatenate(asked)
        apart = np.square(items[:, None] - centres).sum(axis=2)
        return float((apart.argmin(axis=1) == np.concatenate(truth)).mean())
