"""Datasets of class labels with published protocols: which classes train, what is searched, the K of Recall@K."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cml.data.prepared_writer import Item
from cml.data_prep.listed import Listed, ListedSource, split_lines
from cml.data_prep.mat_file import read_variables
from cml.data_prep.source import Content, DatasetSource, made_with
from cml.errors import DataError

_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_SHOP_HEADER = ["image_name", "item_id", "evaluation_status"]
_SHOP_ROLES = ("train", "query", "gallery")
_SOP_HEADER = ["image_id", "class_id", "super_class_id", "path"]
_SOP_LISTS: Mapping[str, str] = {"Ebay_train.txt": "train", "Ebay_test.txt": "query"}


def protocol(*recall_ks: int, own_gallery: bool = False) -> dict[str, Any]:
    """What dataset.json says of the K of Recall@K; without a gallery each test image is searched among all others."""
    return {"recall_ks": list(recall_ks), **({} if own_gallery else {"gallery": "queries"})}


@dataclass(frozen=True)
class Cars(ListedSource):
    """Cars of Cars-196 with their model, split as zero-shot retrieval has it: 98 models train, 98 test.

    Command: cml prepare cars --source cars196 --out DIR

    Input: a folder with cars_annos.mat and car_ims/. Every test image is a query that is searched among all other test
    images; Recall@1, 2, 4, 8.

    Licence: none is stated; use it for research only.
    """

    task = "classes"
    published = "Cars-196, Krause and others, 3DRR 2013"
    licence = "none stated; research use only"
    lists = ("cars_annos.mat",)
    images = "car_ims"
    details = protocol(1, 2, 4, 8)

    def _listed(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        cars, names = read_annotations(lists[0])
        half = max(number for _, number in cars) // 2
        for position, (name, number) in enumerate(cars, 1):
            label = names[number - 1] if number <= len(names) else f"class {number}"
            yield Listed(f"{lists[0]}: annotation {position}", name, label, "train" if number <= half else "query")


def read_annotations(path: Path) -> tuple[list[tuple[str, int]], list[str]]:
    """Read cars_annos.mat: path and class, from 1, of every image, and the classes' names, none if it has none."""
    content = read_variables(path, ("annotations", "class_names"), squeeze_me=True)
    table = np.atleast_1d(content.get("annotations", np.empty(0)))
    fields = ("relative_im_path", "class")
    missing = [field for field in fields if field not in (table.dtype.names or ())]
    if missing or not len(table):
        raise DataError(f"{path} should hold a struct array 'annotations' with the field {(missing or fields)[0]!r}.")
    cars = []
    for position, (name, number) in enumerate(zip(table[fields[0]], table[fields[1]], strict=True), 1):
        whole = isinstance(number, int | np.integer) or (isinstance(number, float) and number.is_integer())
        if not isinstance(name, str) or not whole or number < 1:
            what, got = "a path and a class from 1 on", f"{name!r} and {number!r}"
            raise DataError(f"{path}: annotation {position} should have {what}. Got {got} instead.")
        cars.append((name, int(number)))
    return cars, [str(name) for name in np.atleast_1d(content.get("class_names", np.empty(0, object)))]


@dataclass(frozen=True)
class Cub(ListedSource):
    """Birds of CUB-200-2011 with their species, split as zero-shot retrieval has it: 100 species train, 100 test.

    Command: cml prepare cub --source CUB_200_2011 --out DIR

    Input: the unpacked folder with images.txt, image_class_labels.txt and images/. Every test image is a query that is
    searched among all other test images; Recall@1, 2, 4, 8.

    Licence: non-commercial research and education; the images are their photographers'.
    """

    task = "classes"
    published = "Caltech-UCSD Birds-200-2011, Wah and others, 2011"
    licence = "non-commercial research and education"
    details = protocol(1, 2, 4, 8)

    def _files(self) -> tuple[list[Path], Path]:
        return [self.source / "images.txt", self.source / "image_class_labels.txt"], self.source / "images"

    def _listed(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        images, labels = lists
        numbers: dict[str, int] = {}
        for where, words in split_lines(labels):
            if len(words) != 2 or not words[1].isdecimal() or int(words[1]) < 1:
                raise DataError(f"{where}: should be an image's number and its class, 1 or more. Got {words} instead.")
            numbers[words[0]] = int(words[1])
        half = max(numbers.values()) // 2
        for where, words in split_lines(images):
            if len(words) != 2:
                yield DataError(f"{where}: should be an image's number and its path. Got {words} instead.")
            elif words[0] not in numbers:
                yield DataError(f"{where}: {labels.name} has no class for image {words[0]}.")
            else:
                label = Path(words[1]).parent.name or f"class {numbers[words[0]]}"
                yield Listed(where, words[1], label, "train" if numbers[words[0]] <= half else "query")


@dataclass(frozen=True)
class InShop(ListedSource):
    """Garments of In-Shop Clothes Retrieval, split as published: 3,997 train, 3,985 are queried in a gallery.

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

    def _listed(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        path, lines = lists[0], split_lines(lists[0])
        if len(lines[0][1]) != 1 or len(lines) < 2 or lines[1][1] != _SHOP_HEADER:
            header = " ".join(_SHOP_HEADER)
            raise DataError(f"{path}: should begin with the number of images and the header {header!r}.")
        count, lines = lines[0][1][0], lines[2:]
        if count != str(len(lines)):
            raise DataError(f"{path}: announces {count} images, but lists {len(lines)}. Fetch it again.")
        for where, words in lines:
            if len(words) != 3 or words[2] not in _SHOP_ROLES:
                yield DataError(f"{where}: should have a path, an item and one of {', '.join(_SHOP_ROLES)}.")
            else:
                name, label, role = words
                yield Listed(where, name, label, role)


@dataclass(frozen=True)
class Sop(ListedSource):
    """Products of Stanford Online Products, split as published: 11,318 products train, 11,316 test.

    Command: cml prepare sop --source Stanford_Online_Products --out DIR

    Input: the unpacked folder with Ebay_train.txt, Ebay_test.txt and a folder of images for each kind of product. Every
    test image is a query that is searched among all other test images; Recall@1, 10, 100, 1000. A class is called by
    its kind and number: "bicycle 1".

    Licence: none is stated; use it for research only.
    """

    task = "classes"
    published = "Stanford Online Products, Oh Song and others, CVPR 2016"
    licence = "none stated; research use only"
    lists = _SOP_LISTS
    details = protocol(1, 10, 100, 1000)

    def _listed(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        for path in lists:
            (head, header), *lines = split_lines(path)
            if header != _SOP_HEADER:
                wanted, got = " ".join(_SOP_HEADER), " ".join(header)
                raise DataError(f"{head}: should be the header {wanted!r}. Got {got!r} instead.")
            for where, words in lines:
                if len(words) != 4 or not words[1].isdecimal():
                    yield DataError(f"{where}: should have the numbers of image, class and kind, and a path.")
                else:
                    kind = Path(words[3]).parent.name.removesuffix("_final").replace("_", " ")
                    yield Listed(where, words[3], f"{kind} {words[1]}".strip(), _SOP_LISTS[path.name])


@dataclass(frozen=True)
class Digits(DatasetSource):
    """1,797 handwritten digits; 0 to 4 train, 5 to 9 test, so that no test class was ever seen.

    Command: cml prepare digits --out DIR

    Input: none; scikit-learn brings them (8 x 8 pixels, UCI's optical recognition test set). Every test image is a
    query that is searched among all other test images; Recall@1, 2, 4, 8.

    Licence: CC BY 4.0 (UCI Machine Learning Repository).
    """

    size: int = 32
    """Side in pixels that the images are enlarged to."""

    task = "classes"
    published = "scikit-learn's digits: Alpaydin and Kaynak, UCI, 1998"
    licence = "CC BY 4.0"
    least = (("size", 8),)

    def _origin(self) -> dict[str, Any]:
        return made_with(self, revision=1)

    def _content(self, skip_bad: bool) -> Content:
        from sklearn.datasets import load_digits

        digits = load_digits()
        items = []
        for number, (pixels, digit) in enumerate(zip(digits.images, digits.target.tolist(), strict=True)):
            image = Image.fromarray(np.rint(pixels * (255 / 16)).astype(np.uint8))
            image = image.resize((self.size, self.size), Image.Resampling.BICUBIC)
            role = "train" if digit < 5 else "query"
            items.append(Item(f"{number:04d}", role, image, _DIGITS[digit], quality=None))
        return Content(items, protocol(1, 2, 4, 8))
