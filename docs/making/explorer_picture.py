"""The README's picture of the explorer: 1,000 drawn people, embedded by a network that was trained for a minute.

    python docs/making/explorer_picture.py [--out docs/pictures/explorer.webp]

Draws the people, trains, writes the explorer and photographs it in Chromium, light and, as explorer_dark.webp, dark
(extra ``test`` and a chromium on the PATH). All of it follows from seeds, so that the picture changes only with the
code. It takes about two minutes on two cores.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Literal

from PIL import Image

import cml
from cml import data_prep
from cml.comparing.demo import make_small_config

ROOT = Path(__file__).resolve().parents[2]
PEOPLE, TRAINING = 1000, 700
STEPS = 250
WIDTH, HEIGHT = 1400, 985  # of the window and the picture, in pixels


def write_page(folder: Path) -> Path:
    """Draw, train and write explorer.html; all items are shown, by the trained network and by label."""
    dataset = data_prep.get("people", count=PEOPLE, train=TRAINING, size=96).prepare(folder / "people")
    config = make_small_config(STEPS, task="pose", info=dataset.info)
    run = cml.train("pose", dataset, folder / "run", config=config, workers=0, quiet=True)
    return run.explore(maps=["pca"], beside=["oracle"]).path


def photograph(page: Path, out: Path, scheme: Literal["light", "dark"]) -> None:
    """Write the top of a page, as a light or a dark window shows it, as WebP."""
    from playwright.sync_api import sync_playwright

    browsers = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    program = next((path for path in map(shutil.which, browsers) if path), None)
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        window = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
        window.goto(page.resolve().as_uri())
        window.wait_for_selector("body.ready")
        window.check("#pictures")
        window.wait_for_timeout(1500)  # pictures are decoded and drawn in later frames
        window.screenshot(path=f"{folder}/window.png")
        browser.close()
        with Image.open(f"{folder}/window.png") as image:
            image.convert("RGB").save(out, "WEBP", quality=88, method=6)


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures" / "explorer.webp")
    parser.add_argument("--keep", type=Path, help="folder for the dataset, the run and the page; by default temporary")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        page = write_page(options.keep or Path(temporary))
        photograph(page, options.out, "light")
        photograph(page, options.out.with_stem(f"{options.out.stem}_dark"), "dark")
    print(options.out)


if __name__ == "__main__":
    main()
