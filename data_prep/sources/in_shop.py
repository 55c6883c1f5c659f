"""In-Shop Clothes Retrieval: photographs of 7,982 garments with published training, query and gallery parts."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cml.data_prep.class_protocol import protocol
from cml.data_prep.listed_source import Listed, ListedSource
from cml.data_prep.text_lines import read_words
from cml.errors import DataError

_HEADER = ["image_name", "item_id", "evaluation_status"]


_ROLES = ("train", "query", "gallery")


@dataclass(frozen=True)
class InShop(ListedSource):
    """In-Shop Clothes Retrieval: garments in the published split (3,997 for training, 3,985 for queries and gallery).

    Command: cml prepare in_shop --source In-shop --out DIR

    Input: a folder with Eval/list_eval_partition.txt (or Anno/..) and the photographs under Img/ (img/WOMEN/..), where
    the archive puts them. Recall@1, 10, 20, 40.

    Licence: non-commercial research use only, by agreement with its makers.
    """

    name = "in-shop"
    task = "classes"
    published = "In-Shop Clothes Retrieval of DeepFashion, Liu and others, CVPR 2016"
    licence = "non-commercial research use only"
    details = protocol(1, 10, 20, 40, own_gallery=True)

    def _files(self) -> tuple[list[Path], Path]:
        places = [self.source / folder / "list_eval_partition.txt" for folder in ("Eval", "Anno", ".")]
        folder = self.source / "Img" if (self.source / "Img").is_dir() else self.source
        return [next((place for place in places if place.is_file()), places[0])], folder

    def _read_lists(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        path, lines = lists[0], read_words(lists[0])
        if len(lines[0][1]) != 1 or len(lines) < 2 or lines[1][1] != _HEADER:
            header = " ".join(_HEADER)
            raise DataError(f"{path}: should begin with the number of images and the header {header!r}.")
        count, lines = lines[0][1][0], lines[2:]
        if count != str(len(lines)):
            raise DataError(f"{path}: announces {count} images, but lists {len(lines)}. Fetch it again.")
        for where, words in lines:
            if len(words) != 3 or words[2] not in _ROLES:
                yield DataError(f"{where}: should have a path, an item and one of {', '.join(_ROLES)}.")
            else:
                name, label, role = words
                yield Listed(where, name, label, role)
