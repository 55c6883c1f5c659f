"""Run every command and example that the given pages show, in order, in a scratch folder per page.

    python .ci/page_commands.py SCRATCH README.md docs/start/*.md ..

Shell blocks are run line by line; setting up an environment and pytest are left to the caller. Long commands get fewer
steps, seeds, drawn pictures and variants through their own documented options. Python blocks are run as they stand; one
that begins with the name of a file is also kept as that file. A block after the comment ``<!-- not run: reason -->`` is
left out. The raw files that pages call ``tub.tar.gz``, ``lspet``, .. are the real ones where they are found; elsewhere
those lines are left out, by name. ``photos``, ``labels.csv``, and ``data/mine`` and ``runs/mine`` where a page does not
make them, are made here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

STEPS, COUNT = "4", "300"
LIMIT = 900  # seconds of one command
LONG = ("cml train", "cml compare", "cml demo")
RAW = {"tub.tar.gz": "donkeycar_tub/tub.tar.gz", "lspet": "lspet400", "zind": "zind_layouts", "coco": "coco_mini"}
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^\n]+ -->\n+)?^```(?P<kind>sh|python)\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE
)
MADE = {
    "data/mine": "cml prepare folder --images photos --labels labels.csv --label-columns age --out data/mine",
    "runs/mine": "cml train value --data data/mine --out runs/mine --freeze-backbone --sampler 'random(batch_size=60)'",
}
ROOT = Path(__file__).resolve().parents[1]


def main(scratch: Path, pages: list[Path]) -> int:
    """Run all pages, two at a time; returns 1 if a command fails or nothing was run."""
    scratch.mkdir(parents=True)
    before = scratch / "before"
    draw_photos(before)
    texts = {page.resolve(): page.read_text(encoding="utf-8") for page in pages}
    for place, command in MADE.items():
        if any(needs(text, place) for text in texts.values()):
            run(shortened(command), before)
    with ThreadPoolExecutor(2) as pool:
        # those with the most training first, so that the two end together
        first = sorted(texts.items(), key=lambda page: -sum(line.startswith(LONG) for line in page[1].splitlines()))
        running = [pool.submit(run_page, page, text, before, scratch) for page, text in first]
    faults = [one.exception() for one in running]
    print(*(fault for fault in faults if fault is not None), sep="\n\n", file=sys.stderr)
    ran = sum(one.result() for one, fault in zip(running, faults, strict=True) if fault is None)
    print(f"{ran} commands of {len(pages)} pages passed")
    return 0 if ran and not any(faults) else 1


def needs(text: str, place: str) -> bool:
    """Whether a page speaks of a folder that it does not make."""
    return place in text and f"--out {place}\n" not in text and f"--out {place} " not in text


def run_page(page: Path, text: str, before: Path, scratch: Path) -> int:
    """Run a page's blocks until one fails, and return how many commands there were."""
    data = Path(os.environ.get("CML_DATA", ROOT.parent / "shared" / "data"))
    folder = scratch / "-".join(page.relative_to(ROOT).with_suffix("").parts)
    folder.mkdir()
    blocks = list(BLOCK.finditer(text))
    if not blocks:
        return 0
    for name, place in RAW.items():
        if (data / place).exists():
            (folder / name).symlink_to(data / place)
    for name in ("photos", "labels.csv", *(place for place in MADE if needs(text, place))):
        (folder / name).parent.mkdir(exist_ok=True)
        if name == "runs/mine":  # commands write into it
            shutil.copytree(before / name, folder / name)
        else:  # one place: the features of its images are computed once
            (folder / name).symlink_to(before / name)
    ran = 0
    for block in blocks:
        commands = [block["text"]]
        if block["kind"] == "sh":
            commands = [line.strip() for line in block["text"].replace("\\\n", " ").splitlines()]
        elif file := re.match(r"# (\w+\.py)\n", block["text"]):  # a file that commands are given
            (folder / file[1]).write_text(block["text"])
        for command in commands:
            if block["kind"] == "sh" and "venv" in command:
                command = command.rpartition("&& ")[2]
            if not command or command.startswith(("#", "pytest", "pip install")):
                continue
            if block["skip"]:
                print(f"{page.name}: not run: {command.splitlines()[0]}", flush=True)
                continue
            if block["kind"] == "sh" and not needed_files_exist(command, folder):
                print(f"{page.name}: left out, its raw data is not at {data}: {command}", flush=True)
                continue
            run(command if block["kind"] == "python" else shortened(command), folder, block["kind"], page.name)
            ran += 1
    return ran


def run(command: str, folder: Path, kind: str = "sh", page: str = "before") -> None:
    """Run one command; what it prints is shown if it fails."""
    words = [sys.executable, "-c", command] if kind == "python" else ["bash", "-c", command]
    began = time.monotonic()
    done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
    print(f"{page}: {time.monotonic() - began:.0f} s + {command}", flush=True)
    if done.returncode != 0:
        raise RuntimeError(f"{done.stdout}\n{page}: failed: {command}")


def shortened(command: str) -> str:
    """A command with few steps, seeds, drawn pictures and variants."""
    if command.startswith("cml compare captioning"):
        return re.sub(r"(--\w+-steps) \d+", rf"\1 {STEPS}", command) + " --seeds 1"
    if re.match(r"cml prepare (scenes|people|rooms|heads)", command):
        return re.sub(r"\s--count \d+", "", command) + f" --count {COUNT}"
    if command.startswith(LONG) and "--resume" not in command:
        command = re.sub(r"\s--steps \d+", "", command) + f" --steps {STEPS}"
        command = re.sub(r"--seeds \d+", "--seeds 1", command)
        counted = re.sub(r"\s--(count|train) \d+", "", command)
        if command.startswith("cml demo"):
            counted += f" --count {COUNT}"
        if re.match(r"cml (demo|compare) (pose|layout|caption|value) ((?!--variants|--losses|--vary).)*$", counted):
            counted += " --variants log-ratio"
        return counted
    return command


def draw_photos(folder: Path) -> None:
    """A folder of images and a CSV, as a user would bring them."""
    from PIL import Image

    (folder / "photos").mkdir(parents=True)
    lines = ["file_name,age"]
    for index in range(300):
        Image.new("RGB", (80, 60), (index % 256, 90, 255 - index % 256)).save(folder / "photos" / f"{index}.jpg")
        lines.append(f"{index}.jpg,{index % 256 / 3:.1f}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")


def needed_files_exist(command: str, folder: Path) -> bool:
    """Whether what the command reads is there: raw files, or what an earlier, left-out command would have made."""
    read = re.findall(r"(?:--(?:source|data|images|labels|runs)|cml distances) (\S+)", command)
    return all((folder / path).exists() for path in read)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]))
