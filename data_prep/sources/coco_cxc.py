"""Crisscrossed Captions: how similar people find two photographs of COCO, beside the prepared captions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cml.console.messages import say
from cml.data.prepared import PreparedDataset
from cml.data.prepared_writer import bad_item_error
from cml.data_prep.published_table import read_published_rows, read_within
from cml.data_prep.row_errors import read_each
from cml.data_prep.row_files import Row
from cml.data_prep.sources.coco_captions import CocoCaptions
from cml.errors import DataError
from cml.storage.atomic import atomic_file

PAIRS = "pairs.csv"  # where cml evaluate looks for them
_NAME = re.compile(r"COCO_(?:train|val)2014_(\d{12})\.jpg")
_COLUMNS = ("image1", "image2", "agg_score")


@dataclass(frozen=True)
class CocoCxc(CocoCaptions):
    """COCO with captions, and human similarity ratings of pairs of test photographs (Crisscrossed Captions).

    Command: cml prepare coco_cxc --source COCO --karpathy dataset_coco.json --cxc CXC --out DIR

    Input: COCO as for coco_captions; Karpathy's dataset_coco.json, whose parts val and test were judged; a folder with
    sis_val.csv and sis_test.csv (columns image1, image2, agg_score), from data/ of
    github.com/google-research-datasets/Crisscrossed-Captions. The pairs are written as pairs.csv beside
    dataset.json, where cml evaluate finds them: item, other, and similarity from 0 to 5, where 5 is most alike.

    Licence: judgements CC BY 4.0; annotations CC BY 4.0; the photographs have their owners' Flickr licences.
    """

    karpathy: Path = field(kw_only=True)
    """Karpathy's dataset_coco.json."""
    cxc: Path = field(kw_only=True)
    """Folder with sis_val.csv and sis_test.csv."""
    part: Literal["val", "test"] = "test"
    """The part of Karpathy's split that is tested on; the other is left out."""

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset and the pairs beside it; see ``DatasetSource.prepare``."""
        pairs: dict[tuple[str, str], float] = {}
        for pair in read_pairs(self._judged):
            if not isinstance(pair, DataError):
                first, second, score = pair
                pairs.setdefault((min(first, second), max(first, second)), score)  # the first line of a repeated pair
            elif not skip_bad:
                raise bad_item_error(str(pair))
        dataset = super().prepare(out, skip_bad=skip_bad)
        if not (out / PAIRS).exists():
            known = {item for role in dataset.info.roles[1:] for item in dataset.split(role).item_ids}
            lines = [f"{a},{b},{score:g}" for (a, b), score in pairs.items() if a in known and b in known]
            with atomic_file(out / PAIRS) as file:
                file.write_text("\n".join(["item,other,similarity", *lines, ""]))
            say(f"{out / PAIRS}: {len(lines)} of {len(pairs)} judged pairs")
        return dataset

    @property
    def _judged(self) -> Path:
        return self.cxc / f"sis_{self.part}.csv"

    def origin(self, *more: Path) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        return super().origin(self._judged, *more)


def read_pairs(path: Path) -> Iterator[tuple[str, str, float] | DataError]:
    """The pairs of a sis_*.csv, or what is wrong with one: two COCO ids and the mean score from 0 to 5."""
    return read_each(read_published_rows(path, _COLUMNS), _pair)


def _pair(where: str, row: Row) -> tuple[str, str, float]:
    matches = [_NAME.fullmatch(row[column]) for column in _COLUMNS[:2]]
    first, second = (match and str(int(match[1])) for match in matches)
    if not first or not second or first == second:
        names = " and ".join(repr(row[column]) for column in _COLUMNS[:2])
        raise DataError(f"{where}: should name two photographs of COCO 2014. Got {names} instead.")
    return first, second, read_within(row["agg_score"], "agg_score", where, 0, 5)
