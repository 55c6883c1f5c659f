"""Run every command and example that the README shows, in order, in one scratch folder.

Shell blocks are run line by line; setting up an environment and pytest are left to the caller. Long commands get fewer
steps, seeds and drawn pictures through their own documented options. Python blocks are run as they stand; one that
begins with the name of a file is also kept as that file. The raw files that the README calls ``tub.tar.gz``, ``lspet``,
.. are the real ones where they are found; elsewhere those lines are left out, by name. ``photos`` and ``labels.csv``
are drawn here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

STEPS = "4"
LONG = ("cml train", "cml compare", "cml demo")
RAW = {"tub.tar.gz": "donkeycar_tub/tub.tar.gz", "lspet": "lspet400", "zind": "zind_layouts", "coco": "coco_mini"}


def main(readme: Path, scratch: Path) -> int:
    """Run all blocks; returns 1 at the first failure."""
    data = Path(os.environ.get("CML_DATA", readme.resolve().parent.parent / "shared" / "data"))
    scratch.mkdir(parents=True)
    for name, place in RAW.items():
        if (data / place).exists():
            (scratch / name).symlink_to(data / place)
    draw_photos(scratch)
    ran = 0
    for language, block in re.findall(r"^```(sh|python)\n(.*?)^```", readme.read_text(), re.DOTALL | re.MULTILINE):
        for command in [block] if language == "python" else block.replace("\\\n", " ").splitlines():
            command = command.strip() if language == "sh" else command
            if language == "python" and (file := re.match(r"# (\w+\.py)\n", command)):  # a file that commands are given
                (scratch / file[1]).write_text(command)
            if language == "sh" and "venv" in command:
                command = command.rpartition("&& ")[2]
            if not command or command.startswith("#") or command.startswith("pytest"):
                continue
            if language == "sh" and not needed_files_exist(command, scratch):
                print(f"left out, its raw data is not at {data}: {command}", flush=True)
                continue
            if command.startswith("cml compare captioning"):
                command = re.sub(r"(--\w+-steps) \d+", rf"\1 {STEPS}", command) + " --seeds 1"
            elif command.startswith("cml prepare scenes"):
                command = re.sub(r"\s--count \d+", "", command) + " --count 600"
            elif command.startswith(LONG):
                command = re.sub(r"\s--steps \d+", "", command) + f" --steps {STEPS}"
                command = re.sub(r"--seeds \d+", "--seeds 1", command)
                command = re.sub(r"--count \d+", "--count 600", command)
            print(f"+ {command}", flush=True)
            words = [sys.executable, "-c", command] if language == "python" else ["bash", "-c", command]
            if subprocess.run(words, cwd=scratch).returncode != 0:
                print(f"failed: {command}", file=sys.stderr)
                return 1
            ran += 1
    print(f"{ran} README commands passed")
    return 0 if ran else 1


def draw_photos(scratch: Path) -> None:
    """A folder of images and a CSV, as a user would bring them."""
    from PIL import Image

    (scratch / "photos").mkdir()
    lines = ["file_name,age"]
    for index in range(300):
        Image.new("RGB", (80, 60), (index % 256, 90, 255 - index % 256)).save(scratch / "photos" / f"{index}.jpg")
        lines.append(f"{index}.jpg,{index % 256 / 3:.1f}")
    (scratch / "labels.csv").write_text("\n".join(lines) + "\n")


def needed_files_exist(command: str, scratch: Path) -> bool:
    """Whether what the command reads is there: raw files, or what an earlier, left-out command would have made."""
    read = re.findall(r"(?:--(?:source|data|images|labels|runs)|cml distances) (\S+)", command)
    return all((scratch / path).exists() for path in read)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
