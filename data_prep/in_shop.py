"""In-Shop Clothes Retrieval (DeepFashion): photographs of 7,982 garments from a shop, with queries and a gallery.

Not for: its boxes, landmarks and attributes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cml.data.prepared import PreparedDataset
from cml.data.prepared_writer import Item, already_prepared
from cml.data_prep.class_labels import Protocol, check_image_size, check_roles, image_item, text_lines, write_classes
from cml.data_prep.source import input_folders, made_with
from cml.errors import DataError

_HEADER = ["image_name", "item_id", "evaluation_status"]
_ROLES = ("train", "query", "gallery")


@dataclass(frozen=True)
class InShop:
    """Garments of In-Shop Clothes Retrieval, split as published: 3,997 train, 3,985 are queried in a gallery.

    Command: cml prepare in_shop --source In-shop --out DIR

    Input: a folder with Eval/list_eval_partition.txt (or Anno/..) and the photographs under Img/ (img/WOMEN/..), where
    the archive puts them. Recall@1, 10, 20, 40.

    Licence: non-commercial research use only, by agreement with its makers.
    """

    source: Path
    """The folder with Eval/ and Img/."""
    image_size: int | None = 256
    """Larger images are shrunk once so that their shorter side has so many pixels; none keeps the files."""

    def __post_init__(self) -> None:
        check_image_size(self.image_size)

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset; see ``DataSource.prepare``."""
        places = [self.source / folder / "list_eval_partition.txt" for folder in ("Eval", "Anno", ".")]
        path = next((place for place in places if place.is_file()), places[0])
        images = self.source / "Img" if (self.source / "Img").is_dir() else self.source
        origin = made_with(self, revision=1, files=[path], images=images)
        if (done := already_prepared(out, origin)) is not None:
            return done
        items = self._items(path, images)
        check_roles(items, _ROLES, str(path))
        return write_classes(
            out,
            items,
            Protocol((1, 10, 20, 40), own_gallery=True),
            name="in-shop",
            source="In-Shop Clothes Retrieval of DeepFashion, Liu and others, CVPR 2016",
            licence="non-commercial research use only",
            made_with=origin,
            skip_bad=skip_bad,
            within=input_folders(self),
        )

    def _items(self, path: Path, images: Path) -> list[Item | DataError]:
        lines = text_lines(path)
        if len(lines[0][1]) != 1 or len(lines) < 2 or lines[1][1] != _HEADER:
            raise DataError(f"{path}: should begin with the number of images and the header {' '.join(_HEADER)!r}.")
        count, lines = lines[0][1][0], lines[2:]
        if count != str(len(lines)):
            raise DataError(f"{path}: announces {count} images, but lists {len(lines)}. Fetch it again.")
        items: list[Item | DataError] = []
        seen: dict[str, str] = {}
        for where, words in lines:
            try:
                if len(words) != 3 or words[2] not in _ROLES:
                    raise DataError(f"{where}: should have a path, an item and one of {', '.join(_ROLES)}.")
                items.append(
                    image_item(
                        images,
                        words[0],
                        label=words[1],
                        role=words[2],
                        where=where,
                        image_size=self.image_size,
                        seen=seen,
                    )
                )
            except DataError as error:
                items.append(error)
        return items
