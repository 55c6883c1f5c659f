"""The explorer in headless Chromium: size, build time, first paint, memory, frames while panning.

    python tests/benchmarks/explorer.py [--items 10000] [--page FILE] [--seconds 4]

Without ``--page`` it makes a page of items that lie in a disc, with noise as pictures: PCA, two embeddings and the
oracle. The pointer drags the first map about for some seconds while Chromium traces itself. A frame's own cost is the
time of its animation callback on the main thread, which other programs on the machine disturb less than the number of
frames a second. Needs playwright and Debian's chromium.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from cml.distances import as_label_distance
from cml.explore.label_side import build_label_side
from cml.explore.page import Items, write_explorer
from cml.explore.views import build_embedding_view, build_oracle_view

PAN = """async ([x, y, length]) => {
  const times = [], root = document.querySelector(".plane"), began = performance.now();
  while (performance.now() - began < length) {
    const now = await new Promise(requestAnimationFrame);
    const clientX = x + 80 * Math.sin(now / 150), clientY = y + 80 * Math.cos(now / 110);
    times.push(now);
    root.dispatchEvent(new PointerEvent("pointermove", { pointerId: 1, clientX, clientY, bubbles: true }));
  }
  return times;
}"""  # a pointer event a frame, while the button of the real mouse is down


def build(path: Path, count: int) -> float:
    """Write a page of ``count`` items; the seconds it took."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(count, 2))
    ours = np.concatenate([values, rng.normal(size=(count, 30)) / 4], axis=1).astype(np.float32)
    blocks = rng.integers(0, 256, (64, 8, 8, 3)).astype(np.uint8)
    pictures = [
        lambda i=i: Image.fromarray(np.roll(blocks[i % 64], i // 64, axis=0)).resize(
            (128, 128), Image.Resampling.BICUBIC
        )
        for i in range(count)
    ]
    began = time.perf_counter()
    distance = as_label_distance("euclidean")
    side = build_label_side(distance, distance.encode(values.tolist()))
    views = [
        build_embedding_view("near", ours, side, ["pca"]),
        build_embedding_view("noise", rng.normal(size=(count, 32)).astype(np.float32), side, ["pca"]),
        build_oracle_view(side, ["pca"]),
    ]
    columns = {"x": (values[:, 0], None), "y": (values[:, 1], None)}
    names = [f"item {number}" for number in range(count)]
    items = Items(names, [""] * count, ["query"] * count, pictures, columns)
    write_explorer(path, items, side, views, title="benchmark")
    return time.perf_counter() - began


def visit(page_file: Path, seconds: float) -> None:
    """Open the page, pan its first map and print what that took."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=60_000)
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(120_000)
        began = time.perf_counter()
        page.goto(page_file.absolute().as_uri())
        page.wait_for_selector("body.ready")
        ready = time.perf_counter() - began
        paint = page.evaluate("performance.getEntriesByName('first-paint')[0]?.startTime ?? NaN")
        box = page.locator(".plane").first.bounding_box()
        assert box is not None
        middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.move(*middle)
        page.mouse.down()
        trace = Path(folder) / "trace.json"
        browser.start_tracing(page=page, path=trace, categories=["devtools.timeline"])
        times = page.evaluate(PAN, [*middle, 1000 * seconds])
        browser.stop_tracing()
        page.mouse.up()
        events = json.loads(trace.read_text("utf-8"))["traceEvents"]
        callbacks = [e["dur"] / 1000 for e in events if e.get("name") == "FireAnimationFrame" and "dur" in e]
        gaps = np.diff(times) if len(times) > 1 else np.array([math.nan])
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        heap = metrics["JSHeapUsedSize"] / 2**20
        print(f"first paint {paint:.0f} ms, ready {ready:.2f} s, script's heap {heap:.0f} MiB")
        spent = callbacks or [math.nan]
        print(
            f"panning: {len(times) / seconds:.0f} frames a second, {np.median(gaps):.1f} ms between two (median), "
            f"callbacks {np.median(spent):.2f} ms (95 %: {np.percentile(spent, 95):.2f})"
        )
        browser.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        page = options.page or Path(folder) / "explorer.html"
        if options.page is None:
            print(f"{options.items} items, built in {build(page, options.items):.1f} s")
        print(f"{page.stat().st_size / 1e6:.1f} MB")
        if shutil.which("chromium") is None:
            print("no chromium on the PATH: nothing more is measured")
            return
        visit(page, options.seconds)


if __name__ == "__main__":
    main()
