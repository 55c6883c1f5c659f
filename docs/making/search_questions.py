"""Questions as users type them, and the pages that the search of the built site shall show first.

    python docs/making/search_questions.py build/docs

It needs playwright and a Chromium on the PATH.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import threading
from pathlib import Path
from urllib.parse import quote

QUESTIONS: dict[str, tuple[str, ...]] = {
    "photos with angle labels": ("tutorials/angles",),
    "embedding distance does not match label distance": ("tutorials/calibration",),
    "which loss for age": ("choose/index", "choose/loss"),
    "custom label distance": ("tutorials/own_distance",),
    "out of memory": ("howto/memory",),
    "resume training": ("howto/resume",),
    "search with filter": ("howto/search",),
    "how many labels do I need": ("start/your_csv",),
    "is log-ratio better than triplet loss": ("choose/loss", "results/losses"),
    "multi-GPU training": ("howto/several_processes",),
    "export ONNX": ("howto/onnx",),
    "sentence similarity scores 0-5": ("howto/graded_texts",),
    "group split leakage": ("start/your_csv",),
    "predict the label from neighbours": ("howto/predict",),
    "serve as REST API": ("tutorials/service", "generated/commands/cml-serve"),
    "load model in sentence-transformers": ("coming_from/sentence_transformers", "howto/share"),
    "AgeDB MAE": ("howto/protocols",),
    "missing labels": ("start/your_csv",),
    "fine-tune backbone or freeze": ("choose/backbone",),
    "noisy labels": ("tutorials/audit",),
}
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FIRST = "document.querySelector('#search-results li > a')?.getAttribute('href')"
DONE = f"{FIRST} || /did not match/.test(document.querySelector('.search-summary')?.textContent)"


class _Site(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Print nothing."""


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, address: object) -> None:
        """Say nothing of a browser that leaves the page before it has loaded everything."""


def first_pages(site: Path) -> dict[str, str]:
    """Search each question in a built site, and return the page that is shown first."""
    from playwright.sync_api import sync_playwright

    server = _Server(("127.0.0.1", 0), functools.partial(_Site, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    program = next(path for path in map(shutil.which, CHROMIUM) if path)
    found: dict[str, str] = {}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=60_000)
        page = browser.new_page()
        for question in QUESTIONS:
            page.goto(f"http://127.0.0.1:{server.server_port}/search.html?q={quote(question)}")
            page.wait_for_function(DONE, timeout=60_000)
            found[question] = (page.evaluate(FIRST) or "nothing").partition(".html")[0]  # without the heading
        browser.close()
    server.shutdown()
    return found


def main() -> None:
    """Print the questions that lead elsewhere, and fail if there are any."""
    found = first_pages(Path(sys.argv[1]))
    wrong = {question: page for question, page in found.items() if page not in QUESTIONS[question]}
    for question, page in wrong.items():
        print(f"{question!r} leads to {page}, and not to {' or '.join(QUESTIONS[question])}.")
    print(f"{len(found) - len(wrong)} of {len(found)} questions lead to their page.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
