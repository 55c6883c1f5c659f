"""``cml serve``: what it answers, what it refuses and with which status, what it tells of itself."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from service_attacks import encode

import cml
from cml.commands import serve
from cml.data.input_form import InputForm
from cml.retrieval.novelty import Novelty
from cml.serving.answer import Searcher
from cml.serving.query import Limits, Refusal, read_query

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("fastapi_offline")

LIMITS = Limits(bytes=20_000, pixels=10_000, inputs=8, found=20)


class Client:
    """Asks a service on a port of this machine."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, method: str, path: str, body: Any = None, kind: str = "", **options: Any) -> tuple[int, Any]:  # noqa: ANN401
        """Status and answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {"Content-Type": kind} if kind else {}, **options)
            response = connection.getresponse()
            content = response.read()
            is_json = response.headers.get_content_type() == "application/json"
            return response.status, json.loads(content) if is_json else content.decode()
        finally:
            connection.close()

    def search(self, vectors: Any, path: str = "/search") -> tuple[int, Any]:  # noqa: ANN401
        """Search for vectors."""
        return self.ask("POST", path, json.dumps({"vectors": vectors}), "application/json")


@contextmanager
def serving(searcher: Searcher, limits: Limits = LIMITS) -> Iterator[Client]:
    """A service in a thread."""
    from cml.serving.app import create_app

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(create_app(searcher, limits, 5), log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        try:
            yield Client(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(30)


ROWS = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> cml.Index:
    sampler = "random(batch_size=50)"
    model = cml.fit(ROWS[:100], ROWS[:100, 0], steps=5, dimension=4, sampler=sampler, quiet=True, device="cpu")
    with pytest.warns(UserWarning, match="60 items"):
        model.calibrate(ROWS[100:160], ROWS[100:160, 0])
    index = cml.Index.create(tmp_path_factory.mktemp("index") / "mine", model)
    trained = [{"trained on": "yes"}] * 100 + [{"trained on": ""}] * 60
    index.add(ROWS[:160], ids=range(160), labels=ROWS[:160, 0], columns=trained)
    return index


@pytest.fixture(scope="module")
def client(index: cml.Index) -> Iterator[Client]:
    assert isinstance(index.model, cml.Model)
    with serving(Searcher(index, index.model)) as client:
        yield client


def test_it_finds_what_the_index_finds_with_intervals_and_novelty(client: Client, index: cml.Index) -> None:
    status, answer = client.search(ROWS[160:164].tolist(), "/search?k=3")
    model = index.model
    assert isinstance(model, cml.Model)
    calibration = model.calibration
    assert status == 200
    assert calibration is not None
    assert (answer["unit"], answer["level"]) == (calibration.unit, calibration.level)
    known = Novelty(model.embed(ROWS[100:160]))  # those that it was not trained on
    for row, result in enumerate(answer["results"], 160):
        (hits,) = index.search(ROWS[row : row + 1], 3)
        assert [found["id"] for found in result["found"]] == [hit.item_id for hit in hits]
        for found, hit in zip(result["found"], hits, strict=True):
            assert found["label"] == pytest.approx(hit.label)
            assert found["distance"] == pytest.approx(hit.distance, abs=1e-5)
            assert found["columns"] == dict(hit.columns)
            expected = calibration.expect(np.array(found["distance"]))
            assert (found["expected"], found["low"], found["high"]) == pytest.approx(tuple(map(float, expected)))
        score = known.score(model.embed(ROWS[row : row + 1]))[0]
        assert result["novelty"] == pytest.approx(score, abs=1 / 30 + 1e-5)  # embedded in another batch


def test_within_bounds_the_expected_label_distance(client: Client) -> None:
    every = client.search(ROWS[160:161].tolist(), "/search?k=20")[1]["results"][0]["found"]
    bound = every[9]["expected"]
    near = client.search(ROWS[160:161].tolist(), f"/search?k=20&within={bound}")[1]["results"][0]["found"]
    assert [one["id"] for one in near] == [one["id"] for one in every if one["expected"] <= bound]


def test_clients_at_the_same_time_get_their_own_answers(client: Client) -> None:
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda row: client.search([ROWS[row].tolist()], "/search?k=1"), range(100)))
    assert [answer["results"][0]["found"][0]["id"] for _, answer in answers] == [str(row) for row in range(100)]


def test_wrong_requests_are_refused_with_their_reason(client: Client) -> None:
    vector = ROWS[0].tolist()
    for body, path, status, reason in [
        ({"vectors": [vector[:2]]}, "/search", 400, "each of shape (3,)"),
        ({"vectors": [vector, [1.0]]}, "/search", 400, "each of shape (3,)"),
        ({"vectors": [["a", "b", "c"]]}, "/search", 400, "each of shape (3,)"),
        ({"vectors": [[1e300, 0, 0]]}, "/search", 400, "finite"),
        ({"vectors": []}, "/search", 400, "1 to 8 inputs"),
        ({"vectors": [vector] * 9}, "/search", 413, "1 to 8 inputs. Got 9"),
        ({"vectors": [[9**20] * 3] * 400}, "/search", 413, "20,000 bytes"),
        ({"vector": [vector]}, "/search", 400, "vector"),
        ("[" * 5000, "/search", 400, "must be JSON"),
        ({"vectors": [vector]}, "/search?k=0", 400, "greater than"),
        ({"vectors": [vector]}, "/search?k=21", 400, "less than"),
        ({"vectors": [vector]}, "/search?within=nan", 400, "finite"),
        ({"vectors": [vector]}, "/search?kk=3", 400, "no parameter 'kk'"),
    ]:
        text = body if isinstance(body, str) else json.dumps(body)
        got, answer = client.ask("POST", path, text, "application/json")
        assert (got, reason in str(answer["detail"])) == (status, True), (body, got, answer)
    assert client.ask("POST", "/search", b"x", "multipart/form-data; boundary=x")[0] == 415
    parts = iter([b"x" * 5000] * 10)  # whose length nobody states
    assert client.ask("POST", "/search", parts, encode_chunked=True)[0] == 413
    assert client.ask("GET", "/search")[0] == 405
    assert client.search([vector])[0] == 200


def test_it_tells_of_its_health_and_counts_what_it_did(client: Client) -> None:
    client.search(ROWS[:1].tolist())
    status, health = client.ask("GET", "/health")
    assert (status, health["items"], health["inputs"], health["waiting"]) == (200, 160, "3 numbers", 0)
    status, page = client.ask("GET", "/metrics")
    assert status == 200
    assert 'cml_requests_total{status="200"}' in page
    assert "cml_held_bytes 0.0" in page
    status, described = client.ask("GET", "/openapi.json")
    assert "vectors" in str(described["paths"]["/search"]["post"]["requestBody"])
    status, page = client.ask("GET", "/docs")
    assert status == 200
    assert "https://" not in page  # the page loads nothing from elsewhere
    assert '<html lang="en">' in page
    assert page.count("<main id=") == page.count("</main>") == 1
    assert client.ask("GET", "/")[0] == 307  # to that page


def test_faults_of_its_own_are_500_and_logged_and_it_answers_afterwards(
    index: cml.Index, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(index.model, cml.Model)
    searcher = Searcher(cml.Index.open(index.folder, index.model), index.model)
    with serving(searcher) as client:
        place = index.folder.rename(index.folder.with_name("away"))
        try:
            status, answer = client.search(ROWS[:1].tolist())
            assert (status, answer["detail"]) == (500, "The search failed; the log of the service says why.")
            assert client.ask("GET", "/health")[0] == 503
        finally:
            place.rename(index.folder)
        assert client.search(ROWS[:1].tolist())[0] == 200
        assert client.ask("GET", "/health")[0] == 200
    assert [record.message for record in caplog.records if "a search failed: DataError" in record.message]


def test_requests_beyond_what_may_wait_or_last_are_told_to_ask_again(index: cml.Index) -> None:
    assert isinstance(index.model, cml.Model)
    searcher, go_on = Searcher(index, index.model), threading.Event()
    plain = searcher.answer
    searcher.answer = lambda queries: plain(queries) if go_on.wait(30) else []  # type: ignore[method-assign]
    with serving(searcher, Limits(waiting=1, seconds=1.0)) as client, ThreadPoolExecutor(2) as clients:
        first = clients.submit(client.search, ROWS[:1].tolist())
        while client.ask("GET", "/health")[1]["waiting"] == 0:
            time.sleep(0.01)
        assert client.search(ROWS[:1].tolist()) == (503, {"detail": "The service is busy; ask again later."})
        status, answer = first.result()
        assert status == 503
        assert "within 1 seconds" in answer["detail"]
        go_on.set()


def test_images_are_sent_as_files(tmp_path: Path) -> None:
    tiles = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3), np.uint8)
    options: dict[str, Any] = {"backbone": "small-cnn", "weights": "none", "image_size": (16, 16), "dimension": 4}
    sampler = "random(batch_size=20)"
    model = cml.fit(tiles, np.arange(20.0), steps=1, sampler=sampler, workers=0, quiet=True, device="cpu", **options)
    index = cml.Index.create(tmp_path / "index", model)
    index.add(tiles, ids=[f"\ud800{row}" for row in range(20)])  # a name of a file may be no Unicode
    with serving(Searcher(index, model)) as client:
        image = encode(Image.fromarray(tiles[7]))
        for kind in ("", "image/png", "application/x-www-form-urlencoded"):  # the last one is curl's
            status, answer = client.ask("POST", "/search?k=1", image, kind)
            assert (status, answer["results"][0]["found"][0]["id"]) == (200, "\ud8007")
            assert answer["results"][0]["novelty"] is None
        bomb = encode(Image.new("1", (9000, 9000)))
        for body, kind, status, reason in [
            (b"no image", "", 400, "The image cannot be read: it is none of"),
            (image[:-40], "", 400, "cannot be read"),
            (encode(Image.new("1", (200, 60))), "", 413, "10,000 pixels. Got 12,000"),
            (bomb, "", 413, "pixels"),
            (b"{}", "application/json", 415, "the body of a request is an image file"),
            (image, "multipart/form-data; boundary=x", 415, "--data-binary"),
        ]:
            assert len(body) < LIMITS.bytes
            got, answer = client.ask("POST", "/search", body, kind)
            assert (got, reason in answer["detail"]) == (status, True), (body[:20], got, answer)
        assert client.ask("POST", "/search?within=3", image)[1]["detail"].startswith("'within' needs a calibrated run")


def test_texts_and_tokens_are_read() -> None:
    query = read_query(b'{"texts": ["a dog", "two"]}', "", InputForm("texts"), LIMITS, 5, None)
    assert (query.inputs, len(query)) == (["a dog", "two"], 2)
    tokens = read_query(b'{"vectors": [[1, 2]]}', "", InputForm("tensors", (2,), whole=True), LIMITS, 5, None)
    assert tokens.inputs.dtype == np.int64
    missing = read_query(b'{"vectors": [[1, null]]}', "", InputForm("vectors", (2,), missing="mean"), LIMITS, 5, None)
    assert np.isnan(missing.inputs).tolist() == [[False, True]]
    for body in (b'{"texts": "a dog"}', b'{"texts": [" "]}', b"\xff", b'{"texts": [1]}'):
        with pytest.raises(Refusal) as refused:
            read_query(body, "", InputForm("texts"), LIMITS, 5, None)
        assert refused.value.status == 400


def test_the_command_refuses_what_it_cannot_do_in_one_line(index: cml.Index) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(cml.UserError, match=rf"127\.0\.0\.1:{port} cannot be listened on .* another --port"):
            serve.run([str(index.folder), "--port", port])
    for words, message in [
        (["--k", "0"], "'--k' must be 1 or more"),
        (["--max-k", "3"], "'--max-k' must be 5 or more"),
        (["--max-seconds", "nan"], "must be above 0"),
        (["--port", "70000"], "from 0 to 65535"),
        (["--port", "0"], "does not know its model's run"),
    ]:
        with pytest.raises(cml.UserError, match=message):
            serve.run([str(index.folder), *words])
