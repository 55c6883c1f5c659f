"""``cml serve`` in a real browser: no id or label runs, and each arrives as it is."""

from __future__ import annotations

import http.client
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from hostile_texts import attacks
from PIL import Image

import cml

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from service import serve

pytestmark = pytest.mark.slow

# JSON of what a page gets for an image, which keeps halves of surrogate pairs
FETCH = """async ([address, body]) => {
  const response = await fetch(address, {method: "POST", body: Uint8Array.from(body)});
  return JSON.stringify([response.status, response.headers.get("content-type"), await response.json()]);
}"""


@dataclass(frozen=True)
class Service:
    """A service that runs.

    Attributes:
        address: Where, without a slash at the end.
        texts: Ids of the items, and labels.
        images: A PNG file for each item, which is its own nearest neighbour.
    """

    address: str
    texts: list[str]
    images: list[bytes]


@pytest.fixture
def service(server: tuple[str, list[str]], tmp_path: Path) -> Iterator[Service]:
    texts, rng, images = attacks(server[0]), np.random.default_rng(0), []
    for _ in texts:
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8)).save(file, "PNG")
        images.append(file.getvalue())
    model = cml.fit(
        images,
        np.arange(float(len(texts))),
        backbone="small-cnn",
        weights="none",
        image_size=(32, 32),
        dimension=8,
        steps=1,
        sampler=f"random(batch_size={len(texts)})",
        out=tmp_path / "runs/mine",
        quiet=True,
    )
    index = cml.Index.create(tmp_path / "index/mine", model, run=tmp_path / "runs/mine")
    index.add(model.embed(images), ids=texts, labels=[[text, f"of {text}"] for text in texts])
    with serve(tmp_path / "index/mine") as port:
        yield Service(f"http://127.0.0.1:{port}", texts, images)


def open_answer(page: Any, address: str, image: bytes) -> None:  # noqa: ANN401
    """Open what the service answers to an image, as a page of its own."""
    page.route(address, lambda route: route.continue_(method="POST", post_data=image))
    page.goto(address)
    page.unroute(address)


def test_no_text_of_an_answer_runs_or_breaks_it(
    service: Service,
    browser: Any,  # noqa: ANN401
    server: tuple[str, list[str]],
) -> None:
    (own, seen), asked = server, list[str]()
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.set_default_timeout(15_000)
    page.goto(f"{service.address}/search")
    found: set[str] = set()
    for text, image in zip(service.texts, service.images, strict=True):
        status, kind, answer = json.loads(page.evaluate(FETCH, [f"{service.address}/search", list(image)]))
        hits = answer["results"][0]["found"]
        assert (status, kind) == (200, "application/json")
        assert hits[0]["id"] == text
        assert all(hit["label"] == [hit["id"], f"of {hit['id']}"] for hit in hits)
        found |= {hit["id"] for hit in hits}
    assert found == set(service.texts)

    # an answer that is opened itself is shown as text
    for image in service.images:
        open_answer(page, f"{service.address}/search", image)
        assert page.evaluate("document.contentType") == "application/json"
        assert page.locator("script, img, svg, iframe, base, meta[http-equiv], style, form").count() == 0
        assert json.loads(page.locator("pre").inner_text())["results"][0]["found"][0]["id"] in found
        assert page.title() == ""
    for text in service.texts:
        page.goto(f"{service.address}/{text[:500].encode(errors='replace').decode()}".replace("\0", ""))
        if urlsplit(page.url).path == "/docs":  # a text that begins a query or a fragment leads to the start
            continue
        assert page.evaluate("document.contentType") == "application/json"
        assert page.title() == ""
    assert seen == []
    assert [url for url in asked if not url.startswith(f"{service.address}/")] == []

    # a page of another place may not read answers
    page.goto(service.address.replace("127.0.0.1", "localhost"))
    with pytest.raises(Exception, match="Failed to fetch"):
        page.evaluate(FETCH, [f"{service.address}/search", list(service.images[0])])

    # and the test can fail: the same answer as HTML would run
    connection = http.client.HTTPConnection(service.address.removeprefix("http://"), timeout=60)
    connection.request("POST", "/search", service.images[0])
    body = connection.getresponse().read().replace(b'\\"', b'"')
    connection.close()
    page.route("**/search", lambda route: route.fulfill(body=body, content_type="text/html"))
    page.goto(f"{service.address}/search")
    page.wait_for_timeout(300)
    assert page.title() == "ran"
    assert f"{own}/ran" in asked
    page.close()
