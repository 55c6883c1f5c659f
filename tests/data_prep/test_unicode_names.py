"""Names of files with accents: composed in the labels and decomposed on the disk, or the other way round."""

from __future__ import annotations

import io
import json
import tarfile
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from PIL import Image

from cml.data.pair_judgements import PairJudgements
from cml.data.prepared import ROLES, PreparedDataset
from cml.data_prep.hf_tar import read_samples
from cml.data_prep.sources.flickr8k import Flickr8k
from cml.data_prep.sources.folder import Folder
from cml.data_prep.sources.hf import HuggingFace
from cml.data_prep.sources.judgements import Judgements
from cml.doors.judged_report import read_pairs
from cml.errors import DataError
from cml.storage.safe_paths import file_inside, look_up, unicode_forms

Spell = Callable[[str], str]
NAMES = ("café", "Grüße", "한국", "Ångström", "chó đang chạy", "résumé", "Ünal", "naïve")


def composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


FORMS = pytest.mark.parametrize(
    ("in_labels", "on_disk"), [(composed, decomposed), (decomposed, composed), (composed, composed)]
)


def draw(path: Path, number: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 12), (number * 9, 80, 10)).save(path)


def draw_all(folder: Path, names: Iterable[str], spell: Spell, suffix: str = ".png") -> None:
    for number, name in enumerate(names):
        draw(folder / (spell(name) + suffix), number)


def ids_of(dataset: PreparedDataset) -> set[str]:
    return {composed(item) for role in ROLES for item in dataset.split(role).item_ids}


@FORMS
@pytest.mark.parametrize("name", ["café/Ångström.jpg", "한국.png", "chó/đang/chạy.png"])
def test_files_and_folders_are_found_in_either_form(
    name: str, in_labels: Spell, on_disk: Spell, tmp_path: Path
) -> None:
    draw(tmp_path / on_disk(name))
    assert file_inside(tmp_path, in_labels(name), "labels.csv:2").samefile(tmp_path / on_disk(name))


def test_folder_and_file_may_differ_in_form(tmp_path: Path) -> None:
    name = f"{composed('café')}/{decomposed('Grüße.png')}"
    draw(tmp_path / name)
    for spelled in (composed(name), decomposed(name), f"{decomposed('café')}/{composed('Grüße.png')}"):
        assert file_inside(tmp_path, spelled, "labels.csv:2").samefile(tmp_path / name)


def test_a_file_in_neither_form_is_missing_under_its_name(tmp_path: Path) -> None:
    draw(tmp_path / composed("café.png"))
    with pytest.raises(DataError, match=r"labels\.csv:2: the image .*cafe\.png is missing"):
        file_inside(tmp_path, "cafe.png", "labels.csv:2")
    with pytest.raises(DataError, match=r"the image .*Café\.png is missing"):
        file_inside(tmp_path, "Café.png", "labels.csv:2")


def test_another_form_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    draw(tmp_path / "outside.png")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / decomposed("é.png")).symlink_to(tmp_path / "outside.png")
    with pytest.raises(DataError, match="leads out of"):
        file_inside(tmp_path / "photos", composed("é.png"), "labels.csv:2")


@FORMS
def test_a_folder_with_numbers(in_labels: Spell, on_disk: Spell, tmp_path: Path) -> None:
    draw_all(tmp_path / "photos", NAMES, on_disk)
    lines = [f"{in_labels(name)}.png,{number}" for number, name in enumerate(NAMES)]
    (tmp_path / "labels.csv").write_text("\n".join(["file_name,value", *lines]), encoding="utf-8")
    dataset = Folder(tmp_path / "photos", tmp_path / "labels.csv").prepare(tmp_path / "set")
    assert ids_of(dataset) == {composed(name) + ".png" for name in NAMES}


def test_one_file_in_both_forms_is_listed_twice(tmp_path: Path) -> None:
    draw_all(tmp_path / "photos", NAMES, decomposed)
    lines = [f"{decomposed(name)}.png,{number}" for number, name in enumerate(NAMES)]
    lines.append(f"{composed(NAMES[0])}.png,3")
    (tmp_path / "labels.csv").write_text("\n".join(["file_name,value", *lines]), encoding="utf-8")
    with pytest.raises(DataError, match=r"labels\.csv:10: .* is already in .*labels\.csv:2"):
        Folder(tmp_path / "photos", tmp_path / "labels.csv").prepare(tmp_path / "set")


@FORMS
def test_masks_of_the_same_names(in_labels: Spell, on_disk: Spell, tmp_path: Path) -> None:
    draw_all(tmp_path / "photos", NAMES, on_disk, ".jpg")
    for name in NAMES:
        (tmp_path / "masks").mkdir(exist_ok=True)
        Image.new("L", (16, 12), 1).save(tmp_path / "masks" / f"{in_labels(name)}.png")
    dataset = Folder(tmp_path / "photos", kind="masks", masks=tmp_path / "masks").prepare(tmp_path / "set")
    assert len(ids_of(dataset)) == len(NAMES)


@FORMS
def test_captions_of_flickr_and_its_lists(in_labels: Spell, on_disk: Spell, tmp_path: Path) -> None:
    names = [f"{name} {number}" for name in NAMES for number in range(4)]
    draw_all(tmp_path / "photos", names, on_disk, ".jpg")
    lines = [f"{in_labels(name)}.jpg#{n}\ta dog\n" for name in names for n in range(2)]
    (tmp_path / "tokens.txt").write_text("".join(lines), encoding="utf-8")
    for part, listed in (("train", names[:4]), ("test", names[4:])):
        (tmp_path / part).write_text("".join(f"{on_disk(name)}.jpg\n" for name in listed), encoding="utf-8")
    source = Flickr8k(
        tmp_path / "tokens.txt", tmp_path / "photos", train_list=tmp_path / "train", test_list=tmp_path / "test"
    )
    dataset = source.prepare(tmp_path / "set")
    assert ids_of(dataset) == set(map(composed, names))
    assert len(dataset.split("train")) == 4


@FORMS
def test_members_of_one_sample_of_a_tar_archive(in_labels: Spell, on_disk: Spell, tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    with tarfile.open(tmp_path / "hub" / "train.tar", "w") as archive:
        for number, name in enumerate(NAMES):
            picture = io.BytesIO()
            Image.new("RGB", (16, 12), (number * 9, 80, 10)).save(picture, "PNG")
            for member, content in (
                (f"{on_disk(name)}.png", picture.getvalue()),
                (f"{in_labels(name)}.json", json.dumps({"age": number}).encode()),
            ):
                entry = tarfile.TarInfo(member)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    samples = list(read_samples(tmp_path / "hub" / "train.tar"))
    assert [sample["json"]["age"] for sample in samples] == list(range(len(NAMES)))
    assert all("png" in sample for sample in samples)


@FORMS
def test_metadata_of_a_folder_in_the_form_of_the_hub(in_labels: Spell, on_disk: Spell, tmp_path: Path) -> None:
    draw_all(tmp_path / "hub" / "train", NAMES, on_disk)
    lines = [json.dumps({"file_name": f"{in_labels(name)}.png", "age": n}) for n, name in enumerate(NAMES)]
    (tmp_path / "hub" / "train" / "metadata.jsonl").write_text("\n".join(lines), encoding="utf-8")
    dataset = HuggingFace(str(tmp_path / "hub"), label_columns=("age",)).prepare(tmp_path / "set")
    assert len(ids_of(dataset)) == len(NAMES)


@FORMS
def test_judged_images(in_labels: Spell, on_disk: Spell, tmp_path: Path) -> None:
    names = [f"{name} {number}" for name in NAMES for number in range(4)]
    draw_all(tmp_path / "photos", names, on_disk)
    pairs = [(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]
    lines = [f"{in_labels(a)}.png,{in_labels(b)}.png,{n % 7}" for n, (a, b) in enumerate(pairs)]
    (tmp_path / "pairs.csv").write_text("\n".join(["item,other,distance", *lines]), encoding="utf-8")
    dataset = Judgements(tmp_path / "photos", pairs=tmp_path / "pairs.csv").prepare(tmp_path / "set")
    assert ids_of(dataset) == {composed(name) + ".png" for name in names}


def test_judgements_in_python_and_pairs_of_an_evaluation(tmp_path: Path) -> None:
    rows = {"item": [composed("é"), "b"], "other": ["b", decomposed("é")], "distance": [1, 2]}
    assert PairJudgements(rows, [decomposed("é"), "b"]).questions.tolist() == [[0, 1]]  # one pair, judged twice
    path = tmp_path / "pairs.csv"
    path.write_text(f"item,other,similarity\n{composed('é')},b,3\n", encoding="utf-8")
    assert read_pairs(path, {decomposed("é"): 0, "b": 1}).first.tolist() == [0]
    path.write_text(f"item,other,similarity\n{composed('é')},{decomposed('é')},3\n", encoding="utf-8")
    with pytest.raises(DataError, match="paired with itself"):
        read_pairs(path, {decomposed("é"): 0, "b": 1})


@pytest.mark.parametrize("name", NAMES[:3])
def test_names_of_classes_in_two_forms_are_one_class(name: str, tmp_path: Path) -> None:
    files = [f"{number}.png" for number in range(12)]
    draw_all(tmp_path / "photos", files, str, "")
    spelled = [composed(name), decomposed(name), "b", "c"]
    lines = [f"{file},{spelled[number % 4]}" for number, file in enumerate(files)]
    (tmp_path / "labels.csv").write_text("\n".join(["file_name,class", *lines]), encoding="utf-8")
    dataset = Folder(tmp_path / "photos", tmp_path / "labels.csv", "classes").prepare(tmp_path / "set")
    classes = {label for role in ROLES for label in dataset.split(role).labels}
    assert classes == {composed(name), "b", "c"}


def test_spellings() -> None:
    assert unicode_forms("plain") == ("plain",)
    assert unicode_forms(composed("é")) == (composed("é"), decomposed("é"))
    assert unicode_forms(decomposed("é")) == (decomposed("é"), composed("é"))
    assert look_up(composed("é"), {decomposed("é"): 5}) == 5
    assert look_up("e", {decomposed("é"): 5}) is None
    both = {composed("é"): 1, decomposed("é"): 2}
    assert [look_up(form, both) for form in both] == [1, 2]  # a name that exists as it is goes first
