from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cml import data_prep
from cml.data.prepared import PreparedDataset
from cml.data_prep.sources.cars import Cars, read_annotations
from cml.data_prep.sources.cub import Cub
from cml.data_prep.sources.digits import Digits
from cml.data_prep.sources.in_shop import InShop
from cml.data_prep.sources.sop import Sop
from cml.errors import DataError, UserError


def photo(path: Path, size: tuple[int, int] = (40, 30)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (len(str(path)) % 255, 80, 120)).save(path)


BIRDS = ["001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross", "004.Groove_billed_Ani"]


@pytest.fixture
def cub(tmp_path: Path) -> Path:
    root = tmp_path / "CUB_200_2011"
    names, labels = [], []
    for number in range(1, 13):
        bird = BIRDS[(number - 1) // 3]
        path = f"{bird}/{bird.partition('.')[2]}_{number:04d}_{100 + number}.jpg"
        photo(root / "images" / path)
        names.append(f"{number} {path}\n")
        labels.append(f"{number} {(number - 1) // 3 + 1}\n")
    (root / "images.txt").write_text("".join(names))
    (root / "image_class_labels.txt").write_text("".join(labels))
    return root


@pytest.fixture
def cars(tmp_path: Path) -> Path:
    from scipy.io import savemat

    root = tmp_path / "cars196"
    kind = [(name, "O") for name in ("relative_im_path", "bbox_x1", "class", "test")]
    table = np.empty((1, 8), dtype=kind)
    for number in range(8):
        photo(root / "car_ims" / f"{number + 1:06d}.jpg")
        table[0, number] = (f"car_ims/{number + 1:06d}.jpg", 3, np.uint8(number // 2 + 1), np.uint8(number % 2))
    names = np.array(
        [["AM General Hummer SUV 2000", "Acura RL Sedan 2012", "Ram C/V Cargo Van", "smart fortwo"]], object
    )
    savemat(root / "cars_annos.mat", {"annotations": table, "class_names": names})
    return root


@pytest.fixture
def sop(tmp_path: Path) -> Path:
    root = tmp_path / "Stanford_Online_Products"
    for name, first in (("Ebay_train.txt", 1), ("Ebay_test.txt", 11319)):
        lines = ["image_id class_id super_class_id path\n"]
        for number in range(6):
            kind = "bicycle_final" if number < 4 else "coffee_maker_final"
            path = f"{kind}/{first + number // 2}_{number}.JPG"
            photo(root / path)
            lines.append(f"{first + number} {first + number // 2} {1 if number < 4 else 4} {path}\n")
        (root / name).write_text("".join(lines))
    return root


@pytest.fixture
def in_shop(tmp_path: Path) -> Path:
    root = tmp_path / "In-shop"
    roles = ["train"] * 4 + ["query", "gallery"] * 2
    lines = [f"{len(roles)}\n", "image_name item_id evaluation_status\n"]
    for number, role in enumerate(roles):
        item = f"id_{number // 2 + 2:08d}"
        path = f"img/WOMEN/Dresses/{item}/02_{number}_front.jpg"
        photo(root / "Img" / path)
        lines.append(f"{path}    {item} {role}\n")
    (root / "Eval").mkdir()
    (root / "Eval" / "list_eval_partition.txt").write_text("".join(lines))
    return root


def classes_of(dataset: PreparedDataset, role: str) -> dict[str, int]:
    return dict(Counter(dataset.split(role).labels))


def test_cub(cub: Path, tmp_path: Path) -> None:
    dataset = Cub(cub).prepare(tmp_path / "out")
    assert classes_of(dataset, "train") == {BIRDS[0]: 3, BIRDS[1]: 3}
    assert classes_of(dataset, "query") == {BIRDS[2]: 3, BIRDS[3]: 3}
    assert dataset.info.queries_are_gallery
    assert dataset.info.details["recall_ks"] == [1, 2, 4, 8]
    assert (dataset.info.task, dataset.info.label_column) == ("classes", "class")
    kept = cub / "images" / dataset.split("train").item_ids[0]
    assert dataset.split("train").paths[0].read_bytes() == kept.read_bytes()


def test_the_published_halves_of_cub_and_cars_are_by_class_number(tmp_path: Path) -> None:
    root = tmp_path / "CUB_200_2011"
    chosen = (1, 100, 101, 200)
    for number, bird in enumerate(chosen, 1):
        photo(root / "images" / f"{bird:03d}.Bird" / f"{number}.jpg")
    (root / "images.txt").write_text("".join(f"{n} {b:03d}.Bird/{n}.jpg\n" for n, b in enumerate(chosen, 1)))
    (root / "image_class_labels.txt").write_text("".join(f"{n} {b}\n" for n, b in enumerate(chosen, 1)))
    dataset = Cub(root).prepare(tmp_path / "out")
    assert dataset.split("train").labels == ("001.Bird", "100.Bird")
    assert dataset.split("query").labels == ("101.Bird", "200.Bird")


def test_cars(cars: Path, tmp_path: Path) -> None:
    dataset = Cars(cars).prepare(tmp_path / "out")
    assert classes_of(dataset, "train") == {"AM General Hummer SUV 2000": 2, "Acura RL Sedan 2012": 2}
    assert classes_of(dataset, "query") == {"Ram C/V Cargo Van": 2, "smart fortwo": 2}
    assert dataset.info.details == {"recall_ks": [1, 2, 4, 8], "gallery": "queries"}
    assert dataset.split("train").item_ids[0] == "car_ims/000001.jpg"


def test_sop(sop: Path, tmp_path: Path) -> None:
    dataset = Sop(sop).prepare(tmp_path / "out")
    assert classes_of(dataset, "train") == {"bicycle 1": 2, "bicycle 2": 2, "coffee maker 3": 2}
    assert classes_of(dataset, "query") == {"bicycle 11319": 2, "bicycle 11320": 2, "coffee maker 11321": 2}
    assert dataset.info.details == {"recall_ks": [1, 10, 100, 1000], "gallery": "queries"}


def test_in_shop(in_shop: Path, tmp_path: Path) -> None:
    dataset = InShop(in_shop).prepare(tmp_path / "out")
    assert classes_of(dataset, "train") == {"id_00000002": 2, "id_00000003": 2}
    assert classes_of(dataset, "query") == {"id_00000004": 1, "id_00000005": 1}
    assert classes_of(dataset, "gallery") == {"id_00000004": 1, "id_00000005": 1}
    assert not dataset.info.queries_are_gallery
    assert dataset.info.details == {"recall_ks": [1, 10, 20, 40]}


@pytest.mark.slow
def test_digits(tmp_path: Path) -> None:
    dataset = Digits(size=16).prepare(tmp_path / "out")
    train, test = classes_of(dataset, "train"), classes_of(dataset, "query")
    assert set(train) == {"zero", "one", "two", "three", "four"}
    assert set(test) == {"five", "six", "seven", "eight", "nine"}
    assert (sum(train.values()), sum(test.values())) == (901, 896)
    with Image.open(dataset.split("query").paths[0]) as image:
        assert (image.size, image.format) == ((16, 16), "PNG")
    with pytest.raises(UserError, match="at least 8"):
        Digits(size=4)


SOURCES: dict[str, Callable[[Path], Any]] = {"cub": Cub, "cars": Cars, "sop": Sop, "in_shop": InShop}
every_source = pytest.mark.parametrize("name", SOURCES)


@pytest.fixture
def root(name: str, request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(name)
    return found


@every_source
def test_registered_and_again_a_no_op(
    name: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert data_prep.registry.entry(name) is SOURCES[name]
    first = SOURCES[name](root).prepare(tmp_path / "out")
    again = SOURCES[name](root).prepare(tmp_path / "out")
    assert again.fingerprint == first.fingerprint
    assert "already prepared" in capsys.readouterr().err


@every_source
def test_large_images_are_shrunk_and_small_ones_kept(name: str, root: Path, tmp_path: Path) -> None:
    large = sorted(path for path in root.rglob("*") if path.suffix.lower() == ".jpg")[0]
    photo(large, (80, 60))
    dataset = data_prep.registry.entry(name)(source=root, image_size=30).prepare(tmp_path / "out")  # type: ignore[call-arg]
    sizes = Counter()
    for role in dataset.info.roles:
        for path in dataset.split(role).paths:
            with Image.open(path) as image:
                sizes[image.size] += 1
    assert sizes == {(40, 30): sum(dataset.info.counts.values())}
    with pytest.raises(UserError, match=r"image_size should be at least 16\. Got 8"):
        data_prep.registry.entry(name)(source=root, image_size=8)  # type: ignore[call-arg]


@every_source
def test_a_missing_image_is_named_or_skipped(name: str, root: Path, tmp_path: Path) -> None:
    gone = sorted(path for path in root.rglob("*") if path.suffix.lower() == ".jpg")[0]
    gone.unlink()
    with pytest.raises(DataError, match=rf"the image .*{gone.name} is missing"):
        SOURCES[name](root).prepare(tmp_path / "out")
    dataset = SOURCES[name](root).prepare(tmp_path / "out", skip_bad=True)
    assert dataset.info.details["skipped"]["count"] == 1


def broken(root: Path, file: str, old: str, new: str, count: int = 1) -> Path:
    path = root / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, count))
    return root


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("image_class_labels.txt", "3 1\n", "3 one\n", r"image_class_labels\.txt:3: should be an image's number and"),
        ("image_class_labels.txt", "3 1\n", "3\n", r"image_class_labels\.txt:3: should be an image's number and"),
        ("image_class_labels.txt", "3 1\n", "", "image_class_labels.txt has no class for image 3"),
        ("images.txt", "4 002", "4 x 002", r"images\.txt:4: should be an image's number and its path"),
        ("images.txt", "4 002", "4 ../002", r"images\.txt:4: the image '\.\./002.* without '\.\.'"),
    ],
)
def test_broken_cub(cub: Path, tmp_path: Path, file: str, old: str, new: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Cub(broken(cub, file, old, new)).prepare(tmp_path / "out")


def test_broken_cub_folders(cub: Path, tmp_path: Path) -> None:
    lines = (cub / "images.txt").read_text().splitlines()
    (cub / "images.txt").write_text("\n".join([*lines, "12 " + lines[0].split()[1]]))
    with pytest.raises(DataError, match=r"images\.txt:13: .* is already in .*images\.txt:1;"):
        Cub(cub).prepare(tmp_path / "out")
    (cub / "images.txt").write_text("\n")
    with pytest.raises(DataError, match=r"images\.txt is empty"):
        Cub(cub).prepare(tmp_path / "out")
    (cub / "images.txt").write_bytes(b"1 \xff\n")
    with pytest.raises(DataError, match=r"images\.txt should be UTF-8 text"):
        Cub(cub).prepare(tmp_path / "out")
    (cub / "images.txt").write_text("\n".join(lines[:6]))
    with pytest.raises(DataError, match="list no query images"):
        Cub(cub).prepare(tmp_path / "out")
    with pytest.raises(DataError, match="cannot be read"):
        Cub(tmp_path / "nowhere").prepare(tmp_path / "out")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("Ebay_train.txt", "class_id", "class", r"Ebay_train\.txt:1: should be the header 'image_id class_id"),
        ("Ebay_test.txt", "11319 11319 1", "11319 1", r"Ebay_test\.txt:2: should have the numbers of image, class"),
        ("Ebay_train.txt", "2 1 1 bi", "2 one 1 bi", r"Ebay_train\.txt:3: should have the numbers"),
        ("Ebay_test.txt", "bicycle_final/11319_1.JPG", "bicycle_final/1_1.JPG", r"is already in .*train\.txt:3"),
    ],
)
def test_broken_sop(sop: Path, tmp_path: Path, file: str, old: str, new: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Sop(broken(sop, file, old, new)).prepare(tmp_path / "out")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("8\nimage", "9\nimage", "announces 9 images, but lists 8"),
        ("item_id", "item", "should begin with the number of images and the header"),
        ("8\n", "", "should begin with the number of images and the header"),
        (" train", " val", r"list_eval_partition\.txt:3: should have a path, an item and one of train, query, gallery"),
        (" gallery", " query", "list no gallery images"),
    ],
)
def test_broken_in_shop(in_shop: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    file = "Eval/list_eval_partition.txt"
    with pytest.raises(DataError, match=message):
        InShop(broken(in_shop, file, old, new, 1 if "gallery" not in old else 9)).prepare(tmp_path / "out")


def test_broken_cars(cars: Path, tmp_path: Path) -> None:
    from scipy.io import savemat

    path = cars / "cars_annos.mat"
    whole = path.read_bytes()
    for content in (b"no mat file", whole[: len(whole) // 2], b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"cars_annos\.mat cannot be read as a \.mat file"):
            Cars(cars).prepare(tmp_path / "out")
    savemat(path, {"other": [1]})
    with pytest.raises(DataError, match="should hold a struct array 'annotations' with the field 'relative_im_path'"):
        Cars(cars).prepare(tmp_path / "out")
    for wrong in (0, 1.5, "sedan"):
        table = np.empty((1, 2), dtype=[("relative_im_path", "O"), ("class", "O")])
        table[0, 0], table[0, 1] = ("car_ims/000001.jpg", 1), ("car_ims/000002.jpg", wrong)
        savemat(path, {"annotations": table})
        with pytest.raises(DataError, match="annotation 2 should have a path and a class from 1 on"):
            read_annotations(path)


def test_cars_without_names_are_called_by_their_number(cars: Path, tmp_path: Path) -> None:
    from scipy.io import loadmat, savemat

    path = cars / "cars_annos.mat"
    savemat(path, {"annotations": loadmat(path)["annotations"]})
    assert set(Cars(cars).prepare(tmp_path / "out").split("query").labels) == {"class 3", "class 4"}
