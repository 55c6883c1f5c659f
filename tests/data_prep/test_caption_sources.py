"""COCO captions and Flickr8k: real photographs, small files in the true format, and everything that can be wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cml import data_prep
from cml.data.prepared import PreparedDataset
from cml.data_prep.shrink import Shrink
from cml.data_prep.sources import coco_sentences
from cml.data_prep.sources.coco_captions import CocoCaptions, read_captions, read_karpathy
from cml.data_prep.sources.coco_cxc import CocoCxc, read_pairs
from cml.data_prep.sources.flickr8k import Flickr8k, read_tokens
from cml.errors import DataError, UserError

Content = dict[str, Any]
NAMES = {2014: "COCO_{part}2014_{number:012d}.jpg", 2017: "{number:012d}.jpg"}


def photo(path: Path, size: tuple[int, int] = (64, 48)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(len(path.name)).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(noise).save(path, quality=80)


def coco_file(numbers: list[int], part: str, year: int) -> Content:
    """A caption file as COCO publishes it: two captions an image, in mixed order."""
    images = [
        {"license": 3, "file_name": NAMES[year].format(part=part, number=n), "height": 48, "width": 64, "id": n}
        for n in numbers
    ]
    annotations = [
        {"image_id": n, "id": 10 * n + turn, "caption": f"A photo of {n},\nfor the {turn}. time. "}
        for turn in (1, 2)
        for n in reversed(numbers)
    ]
    info = {"description": f"COCO {year} Dataset", "version": "1.0", "year": year}
    return {"info": info, "licenses": [], "images": images, "annotations": annotations}


def coco_folder(root: Path, year: int = 2017, **parts: list[int]) -> Path:
    for part, numbers in parts.items():
        content = coco_file(numbers, part, year)
        write(root / "annotations" / f"captions_{part}{year}.json", content)
        for image in content["images"]:
            photo(root / f"{part}{year}" / image["file_name"])
    return root


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def karpathy(root: Path, splits: dict[int, str]) -> Path:
    images = [
        {
            "filepath": "val2014",
            "sentids": [n],
            "filename": NAMES[2014].format(part="val", number=n),
            "imgid": place,
            "split": split,
            "sentences": [{"tokens": ["a"], "raw": "A.", "imgid": place, "sentid": n}],
            "cocoid": n,
        }
        for place, (n, split) in enumerate(splits.items())
    ]
    return write(root / "dataset_coco.json", {"images": images, "dataset": "coco"})


def roles(dataset: PreparedDataset) -> dict[str, str]:
    return {item: role for role in ("train", "query", "gallery") for item in dataset.split(role).item_ids}


def labels(dataset: PreparedDataset) -> dict[str, list[str]]:
    splits = [dataset.split(role) for role in ("train", "query", "gallery")]
    return {item: label for split in splits for item, label in zip(split.item_ids, split.labels, strict=True)}


def edited(root: Path, edit: Callable[[Content], None], part: str = "val") -> Path:
    """Change the caption file of a part; its path."""
    path = root / "annotations" / f"captions_{part}2017.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    edit(content)
    return write(path, content)


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    return coco_folder(tmp_path / "coco", train=list(range(100, 108)), val=list(range(200, 220)))


def test_real_photographs(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    source = real_data("coco_mini")
    dataset = CocoCaptions(source, query_fraction=0.5).prepare(tmp_path / "out")
    counts = dict(dataset.info.counts)
    assert counts["train"] == 80
    assert counts["query"] + counts["gallery"] == 79
    assert 25 < counts["query"] < 55
    published = json.loads((source / "annotations" / "captions_val2017.json").read_text(encoding="utf-8"))
    found = labels(dataset)
    for image in published["images"]:
        said = [a["caption"] for a in published["annotations"] if a["image_id"] == image["id"]]
        assert found[str(image["id"])] == [" ".join(text.split()) for text in said]
    for split in map(dataset.split, ("train", "query", "gallery")):
        for path, item in zip(split.paths, split.item_ids, strict=True):
            assert path.stem == item
            with Image.open(path) as image:
                assert min(image.size) == 256
                assert max(image.size) <= 640
    assert dataset.info.task == "caption"


def test_official_split(coco: Path, tmp_path: Path) -> None:
    dataset = CocoCaptions(coco, short_side=None).prepare(tmp_path / "out")
    found = roles(dataset)
    assert {int(item) for item, role in found.items() if role == "train"} == set(range(100, 108))
    assert set(found.values()) == {"train", "query", "gallery"}
    assert labels(dataset)["203"] == ["A photo of 203, for the 1. time.", "A photo of 203, for the 2. time."]
    stored = dataset.split("train").paths[0]
    assert stored.read_bytes() == (coco / "train2017" / "000000000100.jpg").read_bytes()  # kept as it is
    again = CocoCaptions(coco, short_side=None).prepare(tmp_path / "out")
    assert again.fingerprint == dataset.fingerprint


def test_one_file_is_split_by_a_hash_of_its_ids(tmp_path: Path) -> None:
    one = coco_folder(tmp_path / "one", val=list(range(300, 340)))
    two = coco_folder(tmp_path / "two", val=list(range(300, 350)))
    first, second = (roles(CocoCaptions(root).prepare(root / "out")) for root in (one, two))
    assert first.items() <= second.items()  # other photographs move nobody
    assert set(first.values()) == {"train", "query", "gallery"}


@pytest.mark.parametrize("year", [2014, 2017])
def test_karpathys_split(tmp_path: Path, year: int) -> None:
    root = coco_folder(tmp_path / "coco", year, train=[1, 2], val=list(range(10, 30)))
    splits = {1: "train", 2: "train", 10: "restval", 11: "val", **dict.fromkeys(range(12, 30), "test"), 99: "train"}
    dataset = CocoCaptions(root, year=year, karpathy=karpathy(tmp_path, splits)).prepare(tmp_path / "out")
    found = roles(dataset)
    assert {item for item, role in found.items() if role == "train"} == {"1", "2", "10"}
    assert "11" not in found
    assert len(found) == 21
    assert dataset.info.details["left_out"] == {
        "validation photographs of Karpathy's split": 1,
        "photographs of Karpathy's split without an annotation file": 1,
    }


def test_large_photographs_are_shrunk_once(coco: Path, tmp_path: Path) -> None:
    photo(coco / "train2017" / "000000000100.jpg", (400, 300))
    photo(coco / "train2017" / "000000000101.jpg", (900, 100))
    dataset = CocoCaptions(coco, short_side=50, long_side=180).prepare(tmp_path / "out")
    sizes = {}
    for item, path in zip(dataset.split("train").item_ids, dataset.split("train").paths, strict=True):
        with Image.open(path) as image:
            sizes[item] = image.size
    assert sizes["100"] == (67, 50)
    assert sizes["101"] == (180, 20)  # the longer side decides
    assert sizes["102"] == (64, 48)  # never enlarged


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(16, 600), st.integers(0, 600))
def test_shrinking_keeps_the_sides_limits_and_shape(height: int, width: int, short: int, more: int) -> None:
    size = Shrink(short, short + more).size((height, width))
    assert max(size) <= max(short + more, 1)
    assert min(size) <= max(short, 1)
    assert size[0] <= height
    assert size[1] <= width
    if min(height, width) <= short and max(height, width) <= short + more:
        assert size == (height, width)
    scale = min(1, short / min(height, width), (short + more) / max(height, width))
    assert np.abs(np.array(size) - scale * np.array([height, width])).max() <= 1


def drop_captions(content: Content) -> None:
    content["annotations"] = [entry for entry in content["annotations"] if entry["image_id"] != 205]


def repeat_image(content: Content) -> None:
    content["images"].append(content["images"][0])


def repeat_annotation(content: Content) -> None:
    content["annotations"].append(content["annotations"][0])


def orphan(content: Content) -> None:
    content["annotations"].append({"image_id": 777, "id": 9, "caption": "A stray cat."})


def blank(content: Content) -> None:
    content["annotations"][0]["caption"] = "  \n"


def number(content: Content) -> None:
    content["annotations"][0]["caption"] = 7


def other_year(content: Content) -> None:
    content["images"][0]["file_name"] = "COCO_val2014_000000000200.jpg"


def other_name(content: Content) -> None:
    content["images"][0]["file_name"] = "../../etc/passwd"


def texts_as_ids(content: Content) -> None:
    content["images"][0]["id"] = "200"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (drop_captions, r"captions_val2017.json: image 205: has no caption; every image needs one at least\."),
        (repeat_image, r"captions_val2017.json: the image id 200 is listed twice\."),
        (repeat_annotation, r"captions_val2017.json: the annotation id 2191 is listed twice\."),
        (orphan, r"captions_val2017.json: annotation 9: no entry of images has its image_id 777\."),
        (blank, r"captions_val2017.json: annotation 2191: the caption should be a text, but is '  \\n'\."),
        (number, r"captions_val2017.json: annotation 2191: the caption should be a text, but is 7\."),
        (
            other_year,
            r"image 200: its file_name 'COCO_val2014_0+200.jpg' is of COCO 2014; this should be .* COCO 2017\.",
        ),
        (other_name, r"image 200: its file_name '../../etc/passwd' is none of COCO's names"),
        (texts_as_ids, r"image 200: should have a whole number as id and a text as file_name\."),
    ],
)
def test_wrong_annotations_are_named(coco: Path, tmp_path: Path, edit: Callable[[Content], None], message: str) -> None:
    edited(coco, edit)
    with pytest.raises(DataError, match=message):
        CocoCaptions(coco).prepare(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_bad_photographs_are_skipped_and_counted_when_asked(coco: Path, tmp_path: Path) -> None:
    edited(coco, drop_captions)
    edited(coco, lambda content: content["annotations"][0].update(caption=""))  # of image 219
    (coco / "val2017" / "000000000210.jpg").unlink()
    (coco / "val2017" / "000000000211.jpg").write_bytes(b"\xff\xd8\xff\xe0 half")
    dataset = CocoCaptions(coco).prepare(tmp_path / "out", skip_bad=True)
    assert {str(item) for item in range(200, 220)} - set(roles(dataset)) == {"205", "219", "210", "211"}
    assert dataset.info.details["skipped"]["count"] == 4


def test_missing_photograph_is_named(coco: Path, tmp_path: Path) -> None:
    (coco / "val2017" / "000000000210.jpg").unlink()
    with pytest.raises(DataError, match=r"captions_val2017.json: image 210: the image .*000000000210.jpg is missing"):
        CocoCaptions(coco).prepare(tmp_path / "out")


def test_half_a_photograph_is_named(coco: Path, tmp_path: Path) -> None:
    path = coco / "val2017" / "000000000210.jpg"
    path.write_bytes(path.read_bytes()[:800])
    for short_side in (None, 32):
        with pytest.raises(DataError, match=r"000000000210\.jpg"):
            CocoCaptions(coco, short_side=short_side).prepare(tmp_path / "out")


def test_years_are_not_mixed(tmp_path: Path) -> None:
    root = coco_folder(tmp_path / "coco", 2014, train=[1, 2], val=[3, 4])
    with pytest.raises(DataError, match=r"captions_train2017.json is missing.*captions_train2014.json: give its year"):
        CocoCaptions(root).prepare(tmp_path / "out")
    (root / "train2014").rename(root / "train2017")
    with pytest.raises(DataError, match=r"folder .*train2014 is missing: captions of 2014 .* not those of train2017"):
        CocoCaptions(root, year=2014).prepare(tmp_path / "out")
    (root / "train2017").rename(root / "train2014")
    renamed = root / "annotations" / "captions_train2014.json"
    renamed.rename(root / "annotations" / "captions_train2017.json")
    (root / "train2014").rename(root / "train2017")
    with pytest.raises(DataError, match=r"image 1: its file_name 'COCO_train2014_0+1.jpg' is of COCO 2014"):
        CocoCaptions(root).prepare(tmp_path / "out")


def test_a_photograph_has_one_role(tmp_path: Path) -> None:
    root = coco_folder(tmp_path / "coco", train=[1, 2, 3], val=[3, 4])
    with pytest.raises(DataError, match=r"captions_val2017.json: image 3 is already in .*captions_train2017.json"):
        CocoCaptions(root).prepare(tmp_path / "out")


def test_photographs_outside_karpathys_split_are_named(coco: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"captions_train2017.json: image 101 is not in the split file .*dataset_coco"):
        CocoCaptions(coco, karpathy=karpathy(tmp_path, {100: "train"})).prepare(tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"images": [{"cocoid": 7, "spl', "should (be|hold) Karpathy's dataset_coco.json"),
        ('{"images": [{"cocoid": 7}]}', "should be Karpathy's dataset_coco.json.*split"),
        ('{"images": [{"cocoid": 7, "split": "dev"}]}', "should be Karpathy's dataset_coco.json.*dev"),
        ("[1]", "should (be|hold) Karpathy's dataset_coco.json"),
        ('{"images": [{"cocoid": 7, "split": "val"}, {"cocoid": 7, "split": "val"}]}', "cocoid 7 is listed twice"),
    ],
)
def test_wrong_split_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "dataset_coco.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_karpathy(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "should hold COCO annotations as JSON"),
        ('{"images": [', "should hold COCO annotations as JSON"),
        ("[]", "should be COCO's JSON"),
        ('{"images": [], "annotations": [7]}', "should be COCO's JSON"),
        ('{"images": [7], "annotations": []}', "should be COCO's JSON"),
        ('{"annotations": []}', "should be COCO's JSON"),
        ('{"images": [], "annotations": [{"id": 1, "image_id": 1, "bbox": []}]}', "should be a captions_"),
    ],
)
def test_files_that_are_no_caption_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "captions_val2017.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_captions(path, tmp_path, 2017)


def test_real_keypoints_are_no_captions(real_data: Callable[[str], Path]) -> None:
    path = real_data("coco_mini") / "annotations" / "person_keypoints_val2017.json"
    with pytest.raises(DataError, match="annotations without a caption; it should be a captions_"):
        read_captions(path, path.parent, 2017)


def test_all_captions_of_real_images_are_read(real_data: Callable[[str], Path]) -> None:
    path = real_data("coco_captions") / "captions_val2017_4000.json"
    photos = read_captions(path, path.parent, 2017)
    assert len(photos) == 4000
    assert sum(len(photo.captions) for photo in photos.values()) == 20_012
    assert not any(photo.fault for photo in photos.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"year": 2015}, "year should be 2014 or 2017"),
        ({"short_side": 8}, "short_side should be at least 16"),
        ({"short_side": 300, "long_side": 200}, "long_side no less"),
        ({"query_fraction": 1.0}, r"query_fraction \(--query-fraction\) should be above 0 and below 1"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        CocoCaptions(Path("coco"), **options)


def test_a_wrong_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"captions_train2017.json is missing: .* should be a folder of COCO 2017\.$"):
        CocoCaptions(tmp_path).prepare(tmp_path / "out")


def flickr(root: Path, names: list[str], extra: str = "") -> Flickr8k:
    """A caption file as it is published, and its photographs."""
    lines = [f"{name}#{k}\tA dog runs past number {k} of {name} ." for name in names for k in range(5)]
    root.mkdir(parents=True, exist_ok=True)
    (root / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n" + extra, encoding="utf-8")
    for name in names:
        photo(root / "images" / name)
    return Flickr8k(root / "Flickr8k.token.txt", root / "images")


PHOTOS = [f"{1000268201 + 7 * n}_693b08cb0e.jpg" for n in range(40)]


def test_flickr8k(tmp_path: Path) -> None:
    lost = "".join(f"2258277193_586949ec62.jpg.1#{k}\tPeople on ATVs .\n" for k in range(5))
    dataset = flickr(tmp_path / "flickr", PHOTOS, lost).prepare(tmp_path / "out")
    found = labels(dataset)
    assert set(found) == {name.removesuffix(".jpg") for name in PHOTOS}
    assert found["1000268201_693b08cb0e"][2] == "A dog runs past number 2 of 1000268201_693b08cb0e.jpg ."
    assert set(roles(dataset).values()) == {"train", "query", "gallery"}
    assert dataset.info.details["left_out"] == {"captions of a photograph that was never published": 5}


def test_flickr8k_lists(tmp_path: Path) -> None:
    source = flickr(tmp_path / "flickr", PHOTOS)
    train, test = tmp_path / "Flickr_8k.trainImages.txt", tmp_path / "Flickr_8k.testImages.txt"
    train.write_text("\n".join(PHOTOS[:10]) + "\n", encoding="utf-8")
    test.write_text("\n".join(PHOTOS[10:35]), encoding="utf-8")
    split = Flickr8k(source.captions, source.images, train_list=train, test_list=test, query_fraction=0.4)
    dataset = split.prepare(tmp_path / "out")
    found = roles(dataset)
    assert {item for item, role in found.items() if role == "train"} == {name[:-4] for name in PHOTOS[:10]}
    assert len(found) == 35
    assert dataset.info.details["left_out"] == {"photographs in neither list": 5}
    test.write_text("\n".join(PHOTOS[9:35]), encoding="utf-8")
    with pytest.raises(DataError, match=f"testImages.txt: {PHOTOS[9]} is also in .*trainImages.txt"):
        split.prepare(tmp_path / "other")
    test.write_text("\n".join([PHOTOS[12], "who.jpg"]), encoding="utf-8")
    with pytest.raises(DataError, match=r"testImages.txt:2: 'who.jpg' has no captions"):
        split.prepare(tmp_path / "other")
    with pytest.raises(UserError, match="go together"):
        Flickr8k(source.captions, source.images, train_list=train)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("1.jpg A cat .\n", r"token.txt:201: should read NAME.jpg#NUMBER<TAB>CAPTION, but is '1.jpg A cat \.'"),
        ("../1.jpg#0\tA cat .\n", r"token.txt:201: should read NAME"),
        (f"{PHOTOS[3]}#1\tA cat .\n", rf"token.txt:201: caption 1 of {PHOTOS[3]} is already in line 17\."),
        (f"{PHOTOS[3]}#7\t \n", r"token.txt:201: the caption should be a text, but is ' '"),
        ("1.jpg#0\tA cat .\n", r"token.txt:201: the image .*1.jpg is missing"),
    ],
)
def test_wrong_lines_are_named_or_skipped(tmp_path: Path, extra: str, message: str) -> None:
    source = flickr(tmp_path / "flickr", PHOTOS, extra)
    with pytest.raises(DataError, match=message):
        source.prepare(tmp_path / "out")
    assert source.prepare(tmp_path / "out", skip_bad=True).info.details["skipped"]["count"] == 1


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "holds no caption"), (b"\xff\xfe\x00", "be UTF-8 text"), (b"x\n", "1:")]
)
def test_files_that_are_no_caption_lists_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    from collections import Counter

    path = tmp_path / "Flickr8k.token.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_tokens(path, tmp_path, Counter())


def test_sources_are_found_by_name() -> None:
    assert {"coco_captions", "flickr8k", "scenes"} <= set(data_prep.names())


# ---- Crisscrossed Captions

HEADER = "image1,image2,agg_score,sampling_method"


def judged(folder: Path, *pairs: tuple[int, int, object], part: str = "test") -> Path:
    folder.mkdir(exist_ok=True)
    lines = [f"COCO_val2014_{a:012}.jpg,COCO_val2014_{b:012}.jpg,{score},i2i_csim" for a, b, score in pairs]
    (folder / f"sis_{part}.csv").write_text("\n".join([HEADER, *lines, ""]))
    return folder


def judged_coco(tmp_path: Path) -> tuple[Path, Path]:
    numbers = list(range(100, 112))
    root = coco_folder(tmp_path / "coco", train=numbers[:4], val=numbers[4:])
    splits = {n: "train" if n < 104 else "test" if n < 110 else "val" for n in numbers}
    return root, karpathy(tmp_path, splits)


def test_judged_pairs_lie_beside_the_captions(tmp_path: Path) -> None:
    root, split = judged_coco(tmp_path)
    cxc = judged(tmp_path / "cxc", (105, 104, 2.5), (104, 105, 2.5), (106, 107, 4), (106, 999, 1))
    source = CocoCxc(root, karpathy=split, cxc=cxc, query_fraction=0.5)
    dataset = source.prepare(tmp_path / "out")
    path = dataset.folder / "pairs.csv"
    assert path.read_text() == "item,other,similarity\n104,105,2.5\n106,107,4\n"
    assert dataset.info.counts["query"] + dataset.info.counts["gallery"] == 6
    path.unlink()  # as of a process killed before its last step
    assert source.prepare(tmp_path / "out").fingerprint == dataset.fingerprint
    assert path.exists()


def test_the_judged_validation_part_can_be_tested_on(tmp_path: Path) -> None:
    root, split = judged_coco(tmp_path)
    cxc = judged(tmp_path / "cxc", (110, 111, 0), part="val")
    dataset = CocoCxc(root, karpathy=split, cxc=cxc, part="val", query_fraction=0.5).prepare(tmp_path / "out")
    assert (dataset.folder / "pairs.csv").read_text().endswith("110,111,0\n")
    assert dataset.info.details["left_out"] == {"test photographs of Karpathy's split": 6}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("agg_score", "score", "sis_test.csv:1: should have a column 'agg_score'"),
        ("2.5", "5.5", "sis_test.csv:2: agg_score should be from 0 to 5. Got 5.5"),
        ("2.5", "nan", "sis_test.csv:2: agg_score should be a finite number. Got 'nan'"),
        (
            "COCO_val2014_000000000104",
            "104",
            "sis_test.csv:2: should name two photographs of COCO 2014. Got '104.jpg' and",
        ),
        ("0104", "0105", "sis_test.csv:2: should name two photographs"),
        (",i2i_csim", "", "sis_test.csv:2: should have 4 cells"),
    ],
)
def test_judgements_that_are_listed_wrongly(tmp_path: Path, old: str, new: str, said: str) -> None:
    root, split = judged_coco(tmp_path)
    cxc = judged(tmp_path / "cxc", (104, 105, 2.5), (106, 107, 4))
    path = cxc / "sis_test.csv"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=said):
        CocoCxc(root, karpathy=split, cxc=cxc, query_fraction=0.5).prepare(tmp_path / "out")
    if "column" not in said:
        assert [one for one in read_pairs(path) if not isinstance(one, DataError)] == [("106", "107", 4.0)]


def count_letters(model: str, texts: list[str]) -> np.ndarray[Any, Any]:
    """Vectors of texts that need no model: counts of digits."""
    return np.array([[text.count(digit) for digit in "0123456789"] for text in texts], np.float32)


def test_captions_without_photographs_are_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coco_sentences, "sentence_vectors", count_letters)
    content = coco_file(list(range(300, 340)), "val", 2017)
    content["annotations"].append({"image_id": 300, "id": 9, "caption": "2 more"})
    source = write(tmp_path / "captions_val2017.json", content)
    dataset = data_prep.get("coco_sentences", source=source).prepare(tmp_path / "out")
    assert dataset.info.task == "caption"
    assert sum(dataset.info.counts.values()) == 40
    for role in dataset.info.roles:
        split = dataset.split(role)
        assert split.vectors is not None
        for item, vector, captions in zip(
            split.item_ids, split.vectors.read(np.arange(len(split))), split.labels, strict=True
        ):
            assert len(captions) == (3 if item == "300" else 2)
            np.testing.assert_allclose(vector, count_letters("", captions).mean(axis=0), rtol=1e-6)

    content["annotations"] = [one for one in content["annotations"] if one["image_id"] != 305]
    content["annotations"][0]["caption"] = 7
    source = write(tmp_path / "bad.json", content)
    with pytest.raises(DataError, match=r"bad\.json: image 305: has no caption"):
        data_prep.get("coco_sentences", source=source).prepare(tmp_path / "bad")
    skipped = data_prep.get("coco_sentences", source=source).prepare(tmp_path / "skipped", skip_bad=True)
    assert sum(skipped.info.counts.values()) == 38
    with pytest.raises(UserError, match="year should be 2014 or 2017"):
        data_prep.get("coco_sentences", source=source, year=2015)
