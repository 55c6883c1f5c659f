"""Run every command and example that the README shows, in order, in one scratch folder.

Shell blocks are run line by line; lines that set up an environment are left to the caller. Long commands get fewer
steps through their own documented option ``--steps``. Python blocks are run as they stand. The raw files that the
README calls ``tub.tar.gz`` and ``lspet`` are the real ones where they are found; elsewhere those lines are left out,
by name.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

STEPS = "20"
LONG = ("cml train", "cml compare", "cml demo")
RAW = {"tub.tar.gz": "donkeycar_tub/tub.tar.gz", "lspet": "lspet400"}


def main(readme: Path, scratch: Path) -> int:
    """Run all blocks; returns 1 at the first failure."""
    data = Path(os.environ.get("CML_DATA", readme.resolve().parent.parent / "shared" / "data"))
    scratch.mkdir(parents=True)
    for name, place in RAW.items():
        if (data / place).exists():
            (scratch / name).symlink_to(data / place)
    ran = 0
    for language, block in re.findall(r"^```(sh|python)\n(.*?)^```", readme.read_text(), re.DOTALL | re.MULTILINE):
        for command in [block] if language == "python" else block.replace("\\\n", " ").splitlines():
            command = command.strip() if language == "sh" else command
            if not command or command.startswith("#") or "venv" in command:
                continue
            if language == "sh" and not needed_files_exist(command, scratch):
                print(f"left out, its raw data is not at {data}: {command}", flush=True)
                continue
            if command.startswith(LONG):
                command = re.sub(r"\s--steps \d+", "", command) + f" --steps {STEPS}"
            print(f"+ {command}", flush=True)
            words = [sys.executable, "-c", command] if language == "python" else ["bash", "-c", command]
            if subprocess.run(words, cwd=scratch).returncode != 0:
                print(f"failed: {command}", file=sys.stderr)
                return 1
            ran += 1
    print(f"{ran} README commands passed")
    return 0 if ran else 1


def needed_files_exist(command: str, scratch: Path) -> bool:
    """Whether what the command reads is there: raw files, or what an earlier, left-out command would have made."""
    read = re.findall(r"--(?:source|data|images|labels) (\S+)", command)
    return all((scratch / path).exists() for path in read)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
