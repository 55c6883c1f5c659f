"""The pages on vector databases and on a service of your own: their code runs, and finds what ``cml.Index`` finds."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from export_runs import draw_images, make_run

import cml

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[2] / "docs"


def code_of(page: str, start: str = "```python") -> str:
    """The only block of a page that follows a line."""
    text = (DOCS / page).read_text(encoding="utf-8")
    (block,) = re.findall(rf"^{re.escape(start)}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return block


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    make_run(folder / "runs" / "mine")
    draw_images(folder / "photos", 30)
    cml.index(folder / "runs/mine", folder / "photos", folder / "index/mine", quiet=True, device="cpu")
    return folder


@pytest.fixture(scope="module")
def index(folder: Path) -> cml.Index:
    return cml.Index.open(folder / "index/mine", cml.load(folder / "runs/mine", device="cpu"))


@pytest.mark.parametrize("page", ["howto/lancedb.md", "howto/qdrant.md"])
def test_a_database_finds_what_the_index_finds(folder: Path, index: cml.Index, page: str) -> None:
    code = code_of(page) + "import json\nprint(json.dumps(hits))\n"
    printed = subprocess.check_output([sys.executable, "-c", code], cwd=folder, text=True, timeout=120)
    found = json.loads(printed.splitlines()[-1])
    assert len(code_of(page).splitlines()) < 25
    wanted = index.search([folder / "photos/000.png"], 5)[0]
    assert [Path(path).name for path, _ in found] == [hit.item_id for hit in wanted]
    np.testing.assert_allclose([distance for _, distance in found], [hit.distance for hit in wanted], atol=1e-3)


def test_databases_find_the_neighbours_of_any_distance(tmp_path: Path) -> None:
    text = (DOCS / "howto/any_distance.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    code += "\nprint(*recall.values())\n"
    printed = subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, text=True, timeout=240)
    assert min(map(float, printed.splitlines()[-1].split())) >= 0.95


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    """The service on a free port of this machine."""
    (folder / "service.py").write_text(code_of("tutorials/service.md", "%%writefile service.py"), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "service:app", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--log-level", "warning"], cwd=folder, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    )
    try:
        for _ in range(600):
            assert process.poll() is None
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.2)
        yield port
    finally:
        process.terminate()
        process.wait()


def post(port: int, body: bytes) -> tuple[int, object]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/search", body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_the_service_answers_eight_clients_at_a_time(port: int, folder: Path, index: cml.Index) -> None:
    paths = sorted((folder / "photos").glob("*.png")) * 4
    wanted = index.search(paths, 5)
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda path: post(port, path.read_bytes()), paths))
    for (status, found), hits in zip(answers, wanted, strict=True):
        assert status == 200
        assert [hit["id"] for hit in found] == [hit.item_id for hit in hits]  # type: ignore[attr-defined]
        np.testing.assert_allclose([hit["distance"] for hit in found], [hit.distance for hit in hits], atol=1e-3)  # type: ignore[attr-defined]


def test_a_bad_image_is_refused_and_its_neighbours_are_answered(port: int, folder: Path) -> None:
    good, bad = (folder / "photos/003.png").read_bytes(), b"no image"
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda body: post(port, body), [good, bad, good, bad[:0], good, good, bad, good]))
    assert [status for status, _ in answers] == [200, 400, 200, 400, 200, 200, 400, 200]
    assert "This is no image." in answers[1][1]["detail"]  # type: ignore[index]


def test_what_another_process_adds_is_found_at_once(port: int, folder: Path) -> None:
    image = draw_images(folder / "later", 1, seed=9)[0].read_bytes()
    index = cml.Index.open(folder / "index/mine", cml.load(folder / "runs/mine", device="cpu"))
    index.add([image], ids=["later"], labels=[3.5])
    status, found = post(port, image)
    assert (status, found[0]["id"], found[0]["label"]) == (200, "later", 3.5)  # type: ignore[index]
