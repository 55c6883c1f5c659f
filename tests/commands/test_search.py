from __future__ import annotations

import json
import os
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from export_runs import draw_images, make_run
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import cml
from cml.cli import main
from cml.data.image_list import ImageList
from cml.errors import UserError
from cml.models.embedding import EmbeddingModel
from cml.retrieval.gallery import Gallery
from cml.retrieval.novelty import Novelty
from cml.retrieval.search import nearest_embeddings, nearest_others
from cml.searching.hit import Hit
from cml.searching.index import Index
from cml.searching.index_images import index_images
from cml.searching.search_page import SearchPicture, own_label, write_search_page


def slow_nearest(query: np.ndarray, gallery: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Every distance by a sum over dimensions in float64, then a sort by distance and position."""
    distances, positions = [], []
    for q in query.astype(np.float64):
        row = [sum((float(a) - b) ** 2 for a, b in zip(g, q, strict=True)) ** 0.5 for g in gallery]
        order = sorted(range(len(row)), key=lambda item: (row[item], item))[:k]
        distances.append([row[item] for item in order])
        positions.append(order)
    return np.array(distances), np.array(positions)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 60), st.integers(1, 9), st.integers(1, 40))
@settings(deadline=None, max_examples=40)
def test_blocks_and_parts_change_nothing(seed: int, queries: int, items: int, dimension: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    levels = rng.choice([2, 1000])  # few levels: many ties
    gallery = (rng.integers(0, levels, (items, dimension)) / levels).astype(np.float32)
    query = (rng.integers(0, levels, (queries, dimension)) / levels).astype(np.float32)
    k = int(rng.integers(1, items + 1))
    cuts = np.sort(rng.integers(0, items + 1, 2))
    distances, positions = nearest_embeddings(query, np.split(gallery, cuts), k, block=block, threads=2)
    wanted_distances, wanted = slow_nearest(query, gallery, k)
    np.testing.assert_allclose(distances, wanted_distances, atol=1e-6)
    # where two items are equally far but for the rounding of the slow sum, either may come first
    exact = np.square(gallery[positions].astype(np.float64) - query[:, None]).sum(-1)
    np.testing.assert_allclose(
        exact, np.square(gallery[wanted].astype(np.float64) - query[:, None]).sum(-1), atol=1e-12
    )
    for row, places in zip(exact, positions, strict=True):
        assert len(set(places.tolist())) == k
        assert all(a < b for a, b, near in zip(places, places[1:], row[1:] == row[:-1], strict=False) if near)


def test_neighbours_nearer_together_than_float32_can_tell() -> None:
    rng = np.random.default_rng(0)
    angle = np.sort(rng.uniform(0, 1e-2, 3000))
    gallery = np.stack([np.cos(angle), np.sin(angle), *rng.normal(1, 1e-7, (30, 3000))], axis=1).astype(np.float32)
    query = gallery[::100].copy()
    _, positions = nearest_embeddings(query, gallery, 10, block=700)
    squared = np.square(gallery[None].astype(np.float64) - query[:, None]).sum(-1)
    wanted = np.argsort(squared, axis=1, kind="stable")[:, :10]
    np.testing.assert_array_equal(positions, wanted)
    plain = np.argsort(np.square(gallery).sum(1) - 2 * query @ gallery.T, axis=1)[:, :10]
    assert (plain != wanted).any()  # what the float32 formula alone would answer


@given(st.integers(0, 10**6), st.integers(3, 40), st.sampled_from([1, 2, 1000]))
@settings(deadline=None, max_examples=40)
def test_others_are_never_the_item_itself_and_ties_go_to_the_lower_position(seed: int, items: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, levels, (items, 3)).astype(np.float32)  # few levels: many rows at one place
    chosen, k = rng.integers(0, items, 5), int(rng.integers(1, items))
    squared = np.square(rows[chosen, None].astype(np.float64) - rows).sum(axis=-1)  # exact
    squared[np.arange(5), chosen] = np.inf
    wanted = np.argsort(squared, axis=1, kind="stable")[:, :k]
    distances, positions = nearest_others(rows, chosen, k)
    np.testing.assert_array_equal(positions, wanted)
    np.testing.assert_array_equal(distances, np.sqrt(np.take_along_axis(squared, wanted, axis=1)).astype(np.float32))


def nearest_in_float64(query: np.ndarray, gallery: np.ndarray, k: int) -> np.ndarray:
    squared = np.square(gallery[None].astype(np.float64) - query[:, None]).sum(-1)
    return np.argsort(squared, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("ordered", [False, True])
def test_embeddings_along_a_curve(ordered: bool) -> None:
    rng = np.random.default_rng(1)
    angle = rng.uniform(0, 2 * np.pi, 3000)  # hundreds of items lie within the rounding of a float32 score
    angle = np.sort(angle) if ordered else angle
    ends = rng.normal(size=(2, 64)) / 8
    gallery = (np.cos(angle)[:, None] * ends[0] + np.sin(angle)[:, None] * ends[1]).astype(np.float32)
    query = gallery[::97] + np.float32(1e-4)
    for k in (1, 10, 300):
        _, positions = nearest_embeddings(query, gallery, k, block=1111)
        np.testing.assert_array_equal(positions, nearest_in_float64(query, gallery, k))


@pytest.mark.parametrize("scale", [1e-19, 1.0, 1e14])
def test_embeddings_that_float32_scores_cannot_tell_apart(scale: float) -> None:
    rng = np.random.default_rng(2)
    # a far cluster keeps the mean away, so that all scores within the near one round to about the same number
    near = 1 + rng.integers(-3, 4, (900, 24)) * np.float32(2**-22)
    gallery = (np.concatenate([near, -near[:300]]) * np.float32(scale)).astype(np.float32)
    query = gallery[:7].copy()
    _, positions = nearest_embeddings(query, gallery, 20, block=500)
    wanted = nearest_in_float64(query, gallery, 20)
    np.testing.assert_array_equal(positions, wanted)
    scores = np.square(gallery).sum(1) - 2 * query @ gallery.T
    assert (np.argsort(scores, axis=1, kind="stable")[:, :20] != wanted).any()  # float32 alone


def test_embeddings_whose_products_float32_cannot_hold() -> None:
    gallery = np.random.default_rng(4).normal(0, 3e-23, (2000, 24)).astype(np.float32)
    _, positions = nearest_embeddings(gallery[:9], gallery, 20, block=300)
    np.testing.assert_array_equal(positions, nearest_in_float64(gallery[:9], gallery, 20))


def test_one_long_embedding_hides_no_neighbour() -> None:
    rng = np.random.default_rng(3)
    gallery = rng.normal(size=(500, 16)).astype(np.float32)
    gallery[123] *= 1e10
    query = np.concatenate([gallery[120:126], rng.normal(size=(4, 16)).astype(np.float32)])
    _, positions = nearest_embeddings(query, gallery, 499, block=200)
    np.testing.assert_array_equal(positions, nearest_in_float64(query, gallery, 499))


def test_equal_items_are_found_in_their_order() -> None:
    gallery = np.zeros((200, 4), np.float32)
    gallery[150:] = 1
    distances, positions = nearest_embeddings(np.ones((2, 4), np.float32), gallery, 60, block=37)
    assert positions[0].tolist() == [*range(150, 200), *range(10)]
    assert distances[0].tolist() == [0.0] * 50 + [2.0] * 10


def test_the_nearest_item_behind_equal_ones_does_not_let_its_neighbours_in() -> None:
    gallery = np.ones((5000, 4), np.float32)
    gallery[4000] = 0
    _, positions = nearest_embeddings(gallery[4000:4001], gallery, 6)
    assert positions[0].tolist() == [4000, 0, 1, 2, 3, 4]
    _, positions = nearest_embeddings(gallery[:1], gallery[::-1].copy(), 6, block=100)
    assert positions[0].tolist() == [0, 1, 2, 3, 4, 5]


def test_wrong_queries_are_refused() -> None:
    gallery = np.eye(4, dtype=np.float32)
    assert nearest_embeddings(gallery[:0], gallery, 2)[1].shape == (0, 2)
    for query, k, words in (
        (gallery[:, :3], 1, "one D"),
        (gallery, 5, "at most the number of gallery items, 4. Got k=5"),
        (gallery, 0, "k must be at least 1"),
        (gallery * np.nan, 1, "query embeddings must be finite"),
        (gallery * 1e20, 1, "too large"),
    ):
        with pytest.raises(UserError, match=words):
            nearest_embeddings(query, gallery * (1e20 if "large" in words else 1), k)
    with pytest.raises(UserError, match="gallery embeddings must be finite"):
        nearest_embeddings(gallery, np.where(gallery > 0, np.inf, gallery).astype(np.float32), 1)
    with pytest.raises(UserError, match="too large to be compared: a norm is 1e\\+38"):
        nearest_embeddings(gallery * np.float32(1e38), gallery, 1)
    with pytest.raises(UserError, match="'block' and 'threads'"):
        nearest_embeddings(gallery, gallery, 1, block=0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "value")


@pytest.fixture(scope="module")
def model(run: Path) -> EmbeddingModel:
    return cml.load(run, device="cpu")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    draw_images(folder, 30)
    return folder


def failure(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert main([str(one) for one in arguments]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]


def test_index_then_search_by_command(
    run: Path, model: EmbeddingModel, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = tmp_path / "index"
    assert main(["index", str(run), str(photos), "--out", str(index)]) == 0
    assert f"{index}: 30 items, exact" in capsys.readouterr().out
    queries = [photos / "003.png", photos / "017.png"]
    assert main(["search", str(index), *map(str, queries), "--k", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    paths = sorted(photos.glob("*.png"))
    embeddings = model.embed(paths)
    _, wanted = slow_nearest(model.embed(queries), embeddings, 4)
    for query, answer, places in zip(queries, found, wanted.tolist(), strict=True):
        assert answer["image"] == str(query)
        assert [hit["path"] for hit in answer["found"]] == [str(paths[place]) for place in places]
        assert answer["found"][0]["item_id"] == query.name
        assert answer["found"][0]["distance"] < 1e-3

    hits = [Hit("0", queries[0], 0.0, "31 years"), Hit("1", queries[1], 0.5, "7 years")]
    assert own_label(queries[0], hits) == "31 years"  # of a query that is in the index
    assert own_label(tmp_path / "other.png", hits) == ""

    page = tmp_path / "found.html"
    assert main(["search", str(index), str(queries[0]), "--html", str(page)]) == 0
    assert "      distance  item\n   1  0.0000    003.png" in capsys.readouterr().out
    html = page.read_text()
    assert html.count('role="img"') == 6
    assert "<script" not in html
    assert "default-src 'none'" in html


def test_the_first_dimensions_are_indexed_and_searched(
    run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, index = tmp_path / "folder", tmp_path / "index"
    short = cml.load(run, device="cpu").shorten(3)
    assert main(["embed", str(run), "--images", str(photos), "--out", str(folder), "--dimension", "3"]) == 0
    assert main(["index", str(run), str(photos), "--out", str(index), "--dimension", "3"]) == 0
    paths = sorted(photos.glob("*.png"))
    np.testing.assert_allclose(cml.EmbeddingFolder.open(folder).embeddings, short.embed(paths), atol=1e-5)
    _, wanted = slow_nearest(short.embed(paths[5:6]), short.embed(paths), 4)
    for place in (folder, index):
        capsys.readouterr()
        assert main(["search", str(place), str(paths[5]), "--k", "4", "--json"]) == 0
        hits = json.loads(capsys.readouterr().out)[0]["found"]
        assert [hit["path"] for hit in hits] == [str(paths[row]) for row in wanted[0].tolist()]
    words = "error: 'dimension' must be from 1 to"
    assert words in failure(capsys, "index", run, photos, "--out", tmp_path / "other", "--dimension", 4096)


def test_novelty_says_which_queries_are_like_no_item(
    run: Path, model: EmbeddingModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, index, page = tmp_path / "photos", tmp_path / "index", tmp_path / "found.html"
    draw_images(photos, 60)
    noise = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    assert main(["index", str(run), str(photos), "--out", str(index)]) == 0
    capsys.readouterr()
    arguments = ["search", str(index), str(photos / "003.png"), str(tmp_path / "noise.png")]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = Novelty(cml.Index.open(index).embeddings).score(model.embed([photos / "003.png", tmp_path / "noise.png"]))
    assert [answer["novelty"] for answer in found] == pytest.approx(wanted.tolist(), abs=1 / 30 + 1e-6)
    assert main([*arguments, "--html", str(page)]) == 0
    printed = capsys.readouterr().out
    assert "Of queries that resemble the known items, at most 5% have a novelty of 0.05 or less." in printed
    for number, answer in enumerate(found):
        assert f"{arguments[2 + number]}, novelty {answer['novelty']:.3f}" in printed
        assert f"<bdi>novelty</bdi> <bdi>{answer['novelty']:.3f}</bdi>" in page.read_text()


def test_adding_embeds_the_new_ones_alone(
    run: Path,
    model: EmbeddingModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    photos, index = tmp_path / "photos", tmp_path / "index"
    draw_images(photos, 8)
    assert main(["index", str(run), str(photos), "--out", str(index)]) == 0
    draw_images(photos, 5, name="later-{:03}.png", seed=5)
    seen = []
    real = EmbeddingModel.embed

    def counted(self: EmbeddingModel, images: np.ndarray, **settings: int) -> object:
        seen.append(len(images))
        return real(self, images, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddingModel, "embed", counted)
        assert main(["index", str(run), str(photos), "--out", str(index), "--add"]) == 0
    assert sum(seen) == 5
    shown = capsys.readouterr()
    assert "8 of the 13 images were in the index already" in shown.err
    assert f"{index}: 13 items, exact" in shown.out
    made = Index.open(index)
    np.testing.assert_allclose(
        made.embeddings, model.embed(sorted(photos.glob("0*")) + sorted(photos.glob("l*"))), atol=1e-5
    )
    (hit,) = made.search(model.embed([photos / "later-002.png"]), 1)[0]
    assert hit.item_id == "later-002.png"
    before = made.sources()
    assert main(["index", str(run), str(photos), "--out", str(index), "--add"]) == 0  # nothing new
    assert made.sources() == before
    assert capsys.readouterr().err == "all 13 images were in the index already: nothing was added\n"


def test_added_images_that_the_index_holds_under_another_path_are_not_embedded_twice(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index, photos = tmp_path / "index", tmp_path / "photos"
    draw_images(photos, 3)
    (tmp_path / "link").symlink_to(photos)
    add = ("index", run, tmp_path / "link", "--out", index, "--add")
    assert main(["index", str(run), str(photos), "--out", str(index)]) == 0
    assert main([*map(str, add)]) == 0
    assert "all 3 images were in the index already" in capsys.readouterr().err
    photos.rename(tmp_path / "moved")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "moved")
    refusal = failure(capsys, *add)
    assert f"already holds an item '000.png', {photos / '000.png'}, which is gone; " in refusal
    assert "If the images have moved, build a new index. If not, give the new ones other ids with --prefix." in refusal


def test_added_images_that_were_modified_since_are_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index, photos = tmp_path / "index", tmp_path / "photos"
    draw_images(photos, 3)
    add = ["index", str(run), str(photos), "--out", str(index), "--add"]
    assert main(add[:-1]) == 0
    assert main(add) == 0
    assert "changed" not in capsys.readouterr().err
    later = time.time() + 1
    os.utime(photos / "001.png", (later, later))
    assert main(add) == 0
    warning = (
        f"warning: 1 of the 3 images changed after {index} took them in, such as {photos / '001.png'}. It keeps their "
        "earlier embeddings. Give --replace to embed them again.\n"
    )
    assert capsys.readouterr().err.startswith(warning)
    Image.new("RGB", (24, 24), "red").save(photos / "001.png")
    os.utime(photos / "001.png", (later, later))
    red = cml.load(run, device="cpu").embed([photos / "001.png"])
    assert Index.open(index).search(red, 1)[0][0].distance > 1e-3
    assert main([*add, "--replace"]) == 0
    assert [(hit.item_id, hit.distance) for hit in Index.open(index).search(red, 1)[0]] == [("001.png", 0.0)]
    assert len(Index.open(index)) == 3


def test_two_folders_with_equal_names_need_a_prefix(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, name in enumerate(("monday", "tuesday")):
        draw_images(tmp_path / name, 3, seed=number)
    index = tmp_path / "index"
    assert main(["index", str(run), str(tmp_path / "monday"), "--out", str(index)]) == 0
    add = ("index", run, tmp_path / "tuesday", "--out", index, "--add")
    assert "already holds an item '000.png'" in failure(capsys, *add)
    assert main([*map(str, add), "--prefix", "tuesday/"]) == 0
    model = cml.load(run, device="cpu")
    hits = Index.open(index).search(model.embed([tmp_path / "tuesday" / "001.png"]), 6)
    assert hits[0][0].item_id == "tuesday/001.png"
    assert hits[0][0].path == tmp_path / "tuesday" / "001.png"
    assert len(hits[0]) == 6


def test_index_of_another_run_is_refused(
    run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = tmp_path / "index"
    assert main(["index", str(run), str(photos), "--out", str(index)]) == 0
    other = make_run(tmp_path / "other", seed=3)
    words = "is an index of another run"
    assert words in failure(capsys, "search", index, photos / "001.png", "--run", other)
    assert words in failure(capsys, "index", other, photos, "--out", index, "--add")
    assert words in failure(capsys, "index", other, photos, "--out", index)
    (run / "model.safetensors").rename(tmp_path / "kept")
    (run / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes())
    try:
        assert f"{run} was trained again after" in failure(capsys, "search", index, photos / "001.png")
    finally:
        (tmp_path / "kept").rename(run / "model.safetensors")
    assert "is gone; say where it is with --run" in failure(
        capsys, "search", index, photos / "001.png", "--run", tmp_path / "gone"
    )


def test_wrong_indexes_and_images_are_said(
    run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = photos / "001.png"
    assert "is not a search index" in failure(capsys, "search", tmp_path, image)
    assert "is not a search index" in failure(capsys, "index", run, photos, "--out", tmp_path / "none", "--add")
    index = tmp_path / "index"
    assert main(["index", str(run), str(photos), "--out", str(index)]) == 0
    assert main(["index", str(run), str(photos), "--out", str(index)]) == 0  # the same again: nothing to do
    assert "cml search needs INDEX." in failure(capsys, "search")
    assert "cml index needs IMAGES and --out." in failure(capsys, "index", run)
    assert "needs an image" in failure(capsys, "search", index)
    assert f"{tmp_path} is a folder; give images" in failure(capsys, "search", index, tmp_path)
    assert "gone.png is missing. Check its path." in failure(capsys, "search", index, tmp_path / "gone.png")
    assert "no such column: lable. " in (said := failure(capsys, "search", index, image, "--where", "lable > 3"))
    assert said.rstrip().endswith("Did you mean 'label'?")
    assert "'k' must be 1 or more" in failure(capsys, "search", index, image, "--k", "0")
    draw_images(tmp_path / "more", 1)
    assert "already holds an index" in failure(capsys, "index", run, tmp_path / "more", "--out", index)
    (index / "index.sqlite").write_bytes(b"no database" * 1000)
    assert "index.sqlite is damaged (file is not a database)" in failure(capsys, "search", index, image)


def test_a_killed_making_is_resumed_and_is_not_taken_for_whole(
    run: Path,
    model: EmbeddingModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    photos, out = tmp_path / "photos", tmp_path / "index"
    draw_images(photos, 40)
    embed, seen = EmbeddingModel.embed, []

    def killed(self: EmbeddingModel, images: np.ndarray, **settings: int) -> object:
        seen.append(len(images))
        if len(seen) == 18:  # 16 batches are added together
            raise SystemExit
        return embed(self, images, **settings)

    arguments = ["index", str(run), str(photos), "--out", str(out), "--batch-size", "2"]
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddingModel, "embed", killed)
        with pytest.raises(SystemExit):
            main(arguments)
        assert len(Index.open(out)) == 32
        patch.setattr(EmbeddingModel, "embed", embed)
        assert main(["search", str(out), str(photos / "001.png")]) == 0
        assert f"warning: {out} is not finished: give the command that makes it again" in capsys.readouterr().err
        patch.setattr(EmbeddingModel, "embed", killed)
        assert main(arguments) == 0
    assert sum(seen) == 36 + 8
    index = Index.open(out)
    np.testing.assert_allclose(index.embeddings, model.embed(sorted(photos.glob("*"))), atol=1e-5)
    assert main(["search", str(out), str(photos / "001.png")]) == 0
    assert "not finished" not in capsys.readouterr().err


def test_adding_the_same_images_again_adds_none_also_where_bad_ones_were_left_out(
    model: EmbeddingModel, tmp_path: Path
) -> None:
    draw_images(tmp_path / "first", 3, name="a{}.png")
    draw_images(tmp_path / "more", 4, name="b{}.png", seed=1)[2].write_bytes(b"torn")
    out = tmp_path / "index"
    index_images(model, ImageList.open(tmp_path / "first"), out, quiet=True)
    for known in (0, 3):
        more = ImageList.open(tmp_path / "more")
        index, found = index_images(model, more, out, add=True, skip_bad=True, quiet=True)
        assert (len(index), found) == (6, known)


def test_links_in_a_half_made_index_are_not_followed(
    run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/index.sqlite").symlink_to(tmp_path / "elsewhere")
    assert "link" in failure(capsys, "index", run, photos, "--out", tmp_path / "out")
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_of_embeddings_is_searched_like_an_index(
    run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, index = tmp_path / "folder", tmp_path / "index"
    assert main(["embed", str(run), "--images", str(photos), "--out", str(folder)]) == 0
    assert main(["index", str(run), str(photos), "--out", str(index)]) == 0
    found = []
    for place in (folder, index):
        capsys.readouterr()
        assert main(["search", str(place), str(photos / "003.png"), "--k", "7", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    model, embedded = cml.load(run, device="cpu"), cml.EmbeddingFolder.open(folder)
    positions, distances = model.search([photos / "003.png"], embedded, 7)
    assert [f"{position:03}.png" for position in positions[0].tolist()] == [
        hit["item_id"] for hit in found[0][0]["found"]
    ]
    assert distances[0].tolist() == [hit["distance"] for hit in found[0][0]["found"]]
    assert model.search([photos / "003.png"], Gallery(embedded.embeddings), 7)[0].tolist() == positions.tolist()
    hits = embedded.search(model.embed([photos / "003.png"]), within=distances[0, 4] + 1e-6)[0]
    assert [hit.item_id for hit in hits] == [hit["item_id"] for hit in found[0][0]["found"][:5]]
    words = "is a folder of embeddings: --where and --exclude need an index"
    assert words in failure(capsys, "search", folder, photos / "003.png", "--exclude", "003.png")
    other = make_run(tmp_path / "other", seed=3)
    assert "holds embeddings of another model" in failure(capsys, "search", folder, photos / "003.png", "--run", other)


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_page_shows_hostile_text_as_text(tmp_path: Path) -> None:
    hostile = '<script>alert(1)</script>"><img src=x onerror=alert(1)>{{7*7}}\x00'
    image = Image.new("RGB", (8, 6), "red")
    rows = [(SearchPicture(image, hostile), [SearchPicture(image, hostile, 0.25), SearchPicture(None, "gone", 0.5)])]
    write_search_page(tmp_path / "a.html", rows, title=hostile, summary=hostile)
    page = Elements((tmp_path / "a.html").read_text())
    assert not page.names & {"script", "img"}
    assert page.text.count("<script>alert(1)</script>") == 5  # title twice, summary, two captions
    assert "gone (cannot be read)" in page.text
    assert "0.2500" in page.text
    write_search_page(tmp_path / "b.html", [(SearchPicture(image, "a"), [])], title="")
    assert "nothing found" in (tmp_path / "b.html").read_text()
    with pytest.raises(UserError, match="at least one query"):
        write_search_page(tmp_path / "c.html", [], title="")
    with pytest.raises(UserError, match="16 to 1024"):
        write_search_page(tmp_path / "c.html", rows, title="", thumbnail=4)
