"""Hostile files, paths and options by mutation, read by the commands: ``python tests/hostile/hostile_inputs.py``.

Every input is sound files of which one was changed, or a command line of which one word was. A finding is a traceback,
an error that is not one line, a hang, a dead process, a file that appears or changes outside of the output, or an input
that is refused only after 10 seconds of computing or in over 1 GB of memory. Commands run in one process after another,
which is replaced when it hangs or dies. The mutations of JSON are those of fuzz_parsers.py, files in the formats of
other programs those of foreign_files.py. Not for: fuzzing a parser by coverage (fuzz.py).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import os
import random
import re
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreign_files import CHANGES, FOREIGN, make_foreign_files

SECONDS, LONGEST = 120, 4000  # of a command on a busy machine; characters of an error
MEMORY = 12 << 30
REFUSED_SECONDS, REFUSED_BYTES = 10, 1 << 30  # of a command that refuses its input: computing time, memory with torch
_INPUTS_A_PROCESS = 100  # libraries keep memory, in which a large input would not be seen
SMALL = (
    "--backbone small-cnn --weights none --dimension 8 --image-size 16 16 --steps 2 --checkpoint-every 1 "
    "--sampler random(batch_size=8) --workers 0 --device cpu"
)
TRAIN = f"train value --data data {SMALL}"
COMPARE = f"compare value --data data --out compared --losses log-ratio --seeds 1 {SMALL}"
LISTS = "distances data --neighbors 3 --out lists"
MATRIX = "distances data --matrix --out matrix"
WORDS = "distances spoken --summary --role all --label-distance captions(vectors='{}')"
BEGIN = {  # how the sound files are made; those with a bad image or an interruption are left half-made
    "data": "prepare folder --images photos --labels labels.csv --out data",
    "spoken": "prepare folder --images photos --labels spoken.jsonl --kind captions --out spoken",
    "run": f"{TRAIN} --out run",
    "run evaluated": "evaluate run --device cpu",
    "begun": f"{TRAIN} --evaluate-every 1 --validation-fraction 0.4 --out begun",
    "compared": COMPARE,
    "index": "index run photos --out index --device cpu",
    "embedded": "embed run --images photos --out embedded --device cpu",
    "lists": LISTS,
    "matrix": MATRIX,
    "hub": "export hub run --out hub",
    "halfway": "embed run --images mixed --out halfway --batch-size 1 --device cpu",
    "features": "export captioning run --images numbered --out features --batch-size 1 --device cpu",
    "half-prepared": "prepare folder --images mixed --labels mixed.csv --out half-prepared",
}
RESUMED = "train value --out {} --resume"


@dataclass(frozen=True)
class Target:
    """A file that is changed.

    Attributes:
        needs: Folders and files that the commands read.
        file: The one that is changed; a pattern.
        how: json | journal | bytes | state | npy | tensors, or one of ``foreign_files.CHANGES``.
        commands: What reads it.
    """

    needs: str
    file: str
    how: str
    commands: tuple[str, ...]


_RUN = (
    "evaluate run --device cpu",
    "report run --queries 2 --k 2 --device cpu",
    "embed run --images few --out out/e",
    "export hub run --out out/h --data data",
    RESUMED.format("run"),
    "export captioning run --images numbered --out out/c",
)
_SEARCH = tuple(
    f"search {{0}} photos/00.png --run run --k 3{more}" for more in ("", " --exact", " --json --html out/p.html")
)
_FIND = (*_SEARCH, "index run other --out {0} --add --device cpu", "index run photos --out {0} --device cpu")
_DATA = (
    "check data",
    f"{TRAIN} --out out/r",
    "distances data --summary --out out/s",
    "evaluate run --data data",
    "embed run --images data --out out/e",
    "compare value --out out/cc --losses log-ratio --seeds 1 --data data " + SMALL,
)


TARGETS = [
    *[Target("data run few numbered", "run/config.json", "json", _RUN)] * 6,
    Target("data run few numbered", "run/model.safetensors", "tensors", _RUN[:4]),
    Target(
        "data hub few", "hub/config.json", "json", ("embed hub --images few --out out/e", "evaluate hub --data data")
    ),
    Target("data run few numbered", "run/evaluation.json", "json", (_RUN[0], _RUN[3])),
    Target("data run", "run/metrics.jsonl", "json", (RESUMED.format("run"), _RUN[0])),
    *[Target("data begun", "begun/config.json", "json", (RESUMED.format("begun"), f"{TRAIN} --out begun"))] * 4,
    *[Target("data begun", "begun/metrics.jsonl", "json", (RESUMED.format("begun"),))] * 3,
    *[Target("data begun", "begun/checkpoints/last.pt", "state", (RESUMED.format("begun"),))] * 8,
    *[Target("data compared", f"compared/**/{file}", "json", (COMPARE,)) for file in ("metrics.jsonl", "config.json")],
    *[Target("data compared", "compared/**/evaluation.json", "json", (COMPARE,))] * 2,
    *[Target("run photos other index", "index/index.sqlite", "bytes", tuple(one.format("index") for one in _FIND))] * 8,
    *[
        Target("run photos embedded", f"embedded/{file}", how, tuple(one.format("embedded") for one in _SEARCH))
        for file, how in (("manifest.json", "json"), ("items.jsonl", "json"), ("embeddings.npy", "npy"))
    ],
    *[Target("run mixed halfway", "halfway/.manifest.partial-work/journal.jsonl", "journal", (BEGIN["halfway"],))] * 4,
    *[Target("run mixed halfway", "halfway/.manifest.partial-work/*.npy", "npy", (BEGIN["halfway"],))],
    *[Target("run numbered features", "features/.*partial-work/journal.jsonl", "journal", (BEGIN["features"],))] * 2,
    *[
        Target(
            "mixed mixed.csv .half-prepared.partial",
            ".half-prepared.partial/journal.jsonl",
            "journal",
            (BEGIN["half-prepared"],),
        )
    ]
    * 2,
    *[Target("data run", "data/dataset.json", "json", _DATA)] * 2,
    *[Target("data run", f"data/{name}/metadata.jsonl", "json", _DATA) for name in ("train", "test")] * 2,
    *[
        Target(
            "photos labels.csv",
            "labels.csv",
            "bytes",
            (
                "prepare folder --images photos --labels labels.csv --out out/d",
                "prepare folder --images photos --labels labels.csv --skip-bad --out out/d2",
            ),
        )
    ]
    * 2,
    *[
        Target(
            "photos spoken.jsonl",
            "spoken.jsonl",
            "json",
            tuple(
                f"prepare folder --images photos --labels spoken.jsonl --kind {kind} --out out/d"
                for kind in (
                    "captions",
                    "numbers --label-columns number",
                    "keypoints",
                    "classes --label-columns caption",
                )
            ),
        )
    ]
    * 2,
    *[
        Target("spoken vectors", f"vectors/{file}", "bytes", (WORDS.format(f"vectors/{file}"),))
        for file in ("glove.txt", "word2vec.txt", "word2vec.bin")
    ]
    * 2,
    Target("spoken vectors", "vectors/array.npy", "npy", (WORDS.format("vectors/array.npy"),)),
    Target("spoken vectors", "vectors/array.txt", "bytes", (WORDS.format("vectors/array.npy"),)),
    *[
        Target(
            "run numbered ids.json",
            "ids.json",
            "json",
            ("export captioning run --images numbered --ids ids.json --out out/c --device cpu",),
        )
    ]
    * 2,
    *[
        Target(
            f"data {name}",
            f"{name}/{file}",
            how,
            (
                command,
                f"{command} --verify",
                f"{TRAIN} --out out/r --label-distance precomputed(path='{name}{'/matrix.npy' * (name == 'matrix')}')",
            ),
        )
        for name, command, files in (
            ("lists", LISTS, ("ids.npy", "distances.npy")),
            ("matrix", MATRIX, ("matrix.npy",)),
        )
        for file, how in (("job.json", "json"), ("items.json", "json"), *((file, "npy") for file in files))
    ],
]

TARGETS += [Target(*fields) for fields in FOREIGN]

ODD_WORDS = (
    *(
        "os:system",
        "../canary/a.txt",
        "{root}/canary/a.txt",
        "/dev/zero",
        "/dev/stdin",
        ".",
        "..",
        "/",
        "a\nb",
        "'",
        '"',
        "''",
    ),
    *(
        "1" + "0" * 30,
        "9" * 5000,
        "-1",
        "1e308",
        "nan",
        "inf",
        "meta",
        "cuda:99",
        "None",
        "none",
        "é±漢",
        "\udcff\udc80",
        "x" * 300,
    ),
    *(
        "y" * 200_000,
        "a(b=" + "[" * 300,
        "log-ratio(",
        "captions",
        "precomputed(path='/dev/zero')",
        "\x1b[2J",
        "100000",
        "--",
        "-",
    ),
)
COMMANDS = (
    *_DATA[:4],
    *_RUN,
    *(command.format("index") for command in _FIND[:4]),
    LISTS,
    MATRIX,
    BEGIN["data"],
    f"{WORDS.format('vectors/glove.txt')}",
    "losses log-ratio",
    "export hub run --out out/h",
    "compare",
    "export onnx run --out out/o",
    "distances data --summary",
    COMPARE.replace("compared", "out/compared"),
    "demo classes --steps 1 --out out/demo",
)


def make_files(root: Path) -> None:
    """Pictures, labels, word vectors: what the commands of ``BEGIN`` start from."""
    import numpy as np
    from export_runs import draw_images

    draw_images(root / "photos", 60, name="{:02}.png", size=20)
    draw_images(root / "few", 3, size=20)
    draw_images(root / "other", 3, name="other-{}.png", size=20, seed=1)
    for name, count in (("mixed", 20), ("numbered", 140)):
        last = draw_images(root / name, count, name="{:03}.png", size=20)[-1]
        last.write_bytes(b"no image")
    number = [(7 * item) % 60 / 3 for item in range(60)]
    (root / "labels.csv").write_text(
        "file_name,value\n" + "".join(f"{item:02}.png,{number[item]}\n" for item in range(60))
    )
    (root / "mixed.csv").write_text("file_name,value\n" + "".join(f"{item:03}.png,{item}\n" for item in range(20)))
    words = ["a", "dog", "runs", "on", "the", "green", "grass", "with", "two", "red", "balls", "in", "park"]
    rng = random.Random(0)
    lines = [
        {
            "file_name": f"{item:02}.png",
            "caption": " ".join(rng.choices(words, k=5)),
            "number": [number[item], 1.5],
            "keypoints": [[rng.random() * 9, 4, 1] for _ in range(4)],
        }
        for item in range(60)
    ]
    (root / "spoken.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    images = [{"id": item + 100, "file_name": f"{item:03}.png"} for item in range(6)]
    (root / "ids.json").write_text(json.dumps({"images": images}))
    vectors = np.random.default_rng(0).normal(size=(len(words), 4)).astype("<f4")
    text = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, vectors, strict=True))
    (root / "vectors").mkdir()
    (root / "vectors/glove.txt").write_text(text)
    (root / "vectors/word2vec.txt").write_text(f"{len(words)} 4\n{text}")
    packed = b"".join(word.encode() + b" " + row.tobytes() + b"\n" for word, row in zip(words, vectors, strict=True))
    (root / "vectors/word2vec.bin").write_bytes(f"{len(words)} 4\n".encode() + packed)
    make_foreign_files(root)
    np.save(root / "vectors/array.npy", vectors)
    (root / "vectors/array.txt").write_text("\n".join(words) + "\n")


# ---- the process that runs commands


def serve(answers: int) -> None:
    """Run the commands that come on stdin, a JSON list of words a line, and answer each by a line of JSON."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    import torch
    import torchvision  # noqa: F401 - before the first command, whose memory they would be

    import cml.cli

    assert torch
    libraries = memory("VmRSS")
    requests = sys.stdin
    sys.stdin = open(os.devnull)  # noqa: SIM115
    with os.fdopen(answers, "w") as out:
        for request in requests:
            words, encoding = json.loads(request)
            texts = [io.TextIOWrapper(io.BytesIO(), encoding, errors) for errors in ("strict", "backslashreplace")]
            code: Any = None
            trace = ""
            Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
            began, before = time.process_time(), memory("VmRSS")
            with contextlib.redirect_stdout(texts[0]), contextlib.redirect_stderr(texts[1]):
                try:
                    code = cml.cli.main(words)
                    sys.stdout.flush()
                except SystemExit as stop:
                    code = stop.code
                except BaseException:
                    trace = traceback.format_exc()
            said = [
                text.buffer.getvalue().decode("utf-8", "replace")
                for text in texts
                if not text.closed and not text.flush()
            ]
            used = [time.process_time() - began, libraries + memory("VmHWM") - before]
            print(json.dumps([code, trace, *said, used]), file=out, flush=True)


def memory(kind: str) -> int:
    """Bytes that this process holds (VmRSS), or held at most (VmHWM)."""
    match = re.search(rf"{kind}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return 1024 * int(match[1])


class Commands:
    """A process that runs commands, and its successors."""

    def __init__(self, root: Path, place: Path, log: Path) -> None:
        self._root, self._place, self._log, self._process = root, place, log, None

    def run(
        self, words: list[str], encoding: str = "utf-8", seconds: float = SECONDS
    ) -> tuple[Any, str, str, str, tuple[float, int]]:
        """Exit code, traceback, stdout, stderr, seconds of computing and bytes of memory at most.

        The code is "hang" or "died" where there is none.
        """
        if self._process is None:
            self._start()
        self._process.stdin.write(json.dumps([words, encoding]).encode() + b"\n")
        self._process.stdin.flush()
        said = b""
        end = time.monotonic() + seconds
        while not said.endswith(b"\n"):
            if not select.select([self._answers], [], [], max(0, end - time.monotonic()))[0]:
                self.close()
                return "hang", "", "", "", (seconds, 0)
            if not (part := os.read(self._answers, 1 << 20)):
                self.close()
                return "died", self._log.read_text(errors="replace")[-3000:], "", "", (0, 0)
            said += part
        return tuple(json.loads(said))

    def _start(self) -> None:
        self._answers, write = os.pipe()
        env = {
            **os.environ,
            "HOME": str(self._root / "home"),
            "CML_CACHE": str(self._root / "cache"),
            "TMPDIR": str(self._root / "tmp"),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        }
        command = [sys.executable, __file__, "--serve", str(write)]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[write],
                cwd=self._place,
                env=env,
                start_new_session=True,
            )
        os.close(write)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)
            self._process.wait()
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            os.close(self._answers)
            self._process = None


# ---- mutations


def changed(content: bytes, how: str, rng: random.Random, root: Path) -> bytes:
    """A file's content with a change."""
    from fuzz_parsers import changed_json

    kind = rng.random()
    if how in CHANGES:
        return CHANGES[how](content, rng)
    if how == "state" and kind < 0.85:
        return changed_state(content, rng)
    if how == "tensors" and kind < 0.7:
        size = int.from_bytes(content[:8], "little")
        head = changed_json(content[8 : 8 + size], 1 << 22, rng.getrandbits(60))
        return len(head).to_bytes(8, "little") + head + content[8 + size :]
    if how == "npy" and kind < 0.5:
        return other_array(content, rng)
    if how == "journal":  # whose checksums are made to fit
        lines = b"\n".join(line.partition(b" ")[2] for line in content.splitlines())
        lines = changed_json(lines, 1 << 24, rng.getrandbits(60)).replace(b"{root}", os.fsencode(root))
        return b"".join(b"%08x %b\n" % (zlib.crc32(line), line) for line in lines.split(b"\n"))
    if how == "json":
        content = changed_json(content, 1 << 24, rng.getrandbits(60))
        return content.replace(b"{root}", os.fsencode(root))
    start = min(len(content), int(len(content) * rng.choice((rng.random(), rng.random() ** 6))))
    put = rng.choice(
        (
            b"",
            rng.randbytes(rng.choice((1, 4))),
            b"9" * 5000,
            b"\0",
            b"\xff\xfe",
            b'"',
            b",",
            b"\n",
            b" ",
            b"nan",
            b"-1",
            b"1e999",
            content[:100],
            b"../canary/a.txt",
        )
    )
    return content[:start] + put + content[min(len(content), start + rng.choice((0, 1, 4, 40, len(content)))) :]


def changed_state(content: bytes, rng: random.Random) -> bytes:
    """A checkpoint in which one value is another, packed anew with sound checksums."""
    import torch

    state = torch.load(io.BytesIO(content), weights_only=True)
    odd = [
        None,
        -1,
        0,
        1,
        2,
        10**30,
        float("inf"),
        float("nan"),
        -1e308,
        "x",
        "",
        [],
        {},
        [1],
        {"a": 1},
        True,
        torch.zeros(0),
        torch.ones(3, 3),
        torch.zeros((), dtype=torch.int64),
        torch.full((8,), float("nan")),
    ]
    tree: Any = state
    while True:
        keys: list[Any] = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        key = rng.choice(keys)
        inner = tree[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.25:
            break
        tree = inner
    if rng.random() < 0.15:
        del tree[key]
    elif isinstance(inner, torch.Tensor) and rng.random() < 0.4:
        tree[key] = rng.choice(
            [inner.flatten(), inner[None], inner.double(), inner.to(torch.uint8), inner * float("nan"), -inner]
        )
    else:
        tree[key] = rng.choice(odd)
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def other_array(content: bytes, rng: random.Random) -> bytes:
    """An array of another shape or type, or with numbers that are none."""
    import numpy as np

    file = io.BytesIO()
    try:
        array = np.load(io.BytesIO(content))
    except ValueError:  # half-made
        return content[:-1]
    made = [
        array[:-1],
        array[:, :-1],
        array.T,
        array.ravel(),
        array.astype(np.float64),
        array.astype(np.int8),
        array.astype("c8"),
        array[None],
        array * np.float32("nan"),
        array + 1e30,
        array * 0 - 1,
        array[:0],
        np.asfortranarray(array),
        array.astype("S3"),
    ]
    np.save(file, rng.choice(made))
    return file.getvalue()


def replace_file(path: Path, rng: random.Random, root: Path) -> str:
    """Put something else in the place of a file."""
    path.unlink()
    kind = rng.choice(("missing", "link", "folder", "pipe", "device", "loop"))
    if kind == "link":
        path.symlink_to(root / "canary" / "a.txt")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path.name)
    return kind


# ---- inputs


@dataclass
class Input:
    """One hostile input: what is copied, changed and run.

    Attributes:
        what: What it is, for people.
        commands: The commands, as words.
        encoding: Of the terminal.
    """

    what: str
    commands: list[list[str]]
    encoding: str = "utf-8"


class World:
    """The folder in which all happens: sound files, a place that gets a copy of them, and a canary.

    Args:
        root: The folder.
        say: Told what is going on.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.place, self.sound = root, root / "case", root / "sound"
        for name in ("case", "home", "cache", "tmp", "canary"):
            (root / name).mkdir(parents=True)
        for name in ("a.txt", "b.json", "c.npy"):
            (root / "canary" / name).write_text(f"the canary {name} is well")
        self.commands = Commands(root, self.place, root / "log.txt")
        self.slowest, self.largest = 0.0, 0  # seconds and bytes of the commands that refused their input

    def begin(self) -> None:
        """Make the sound files; whatever fails here that should not is an error."""
        make_files(self.place)
        for name, command in BEGIN.items():
            code, trace, _, said, _ = self.commands.run(command.split(), seconds=600)
            half = name in ("halfway", "features", "half-prepared")
            if code != (2 if half else 0):
                raise RuntimeError(f"{command}: {code} {trace} {said}")
        (self.place / "begun" / "model.safetensors").unlink()
        self.place.rename(self.sound)
        self.place.mkdir()
        self.commands.close()  # its folder has moved

    def renew(self, needs: str | None = None) -> None:
        """Empty the place and put copies of sound files there."""
        for entry in os.scandir(self.place):
            shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
        for name in needs.split() if needs is not None else os.listdir(self.sound):
            source = self.sound / name
            shutil.copytree(source, self.place / name) if source.is_dir() else shutil.copy(source, self.place / name)

    def seen(self, but: set[str]) -> dict[str, tuple[int, int, int]]:
        """Every file but those in some folders of the place, and the caches: its size, time and kind."""
        found = {}
        for at, folders, files in os.walk(self.root):
            if at == str(self.root):
                folders[:] = ["canary", "home", "case"]
                files = []
            folders[:] = [name for name in folders if name != ".cache"]  # of libraries, at home
            if at == str(self.place):
                folders[:], files = (list(set(names) - but) for names in (folders, files))
            for name in (*folders, *files):
                state = os.lstat(os.path.join(at, name))
                is_folder = name in folders
                found[os.path.join(at, name)] = (
                    (state.st_mode, 0, 0) if is_folder else (state.st_mode, state.st_size, state.st_mtime_ns)
                )
        return found


def _outputs(words: list[str]) -> set[str]:
    """First parts of the paths that a command may write to."""
    read = {"--images", "--data", "--labels", "--ids"}
    named = {word.split("/")[0] for before, word in zip(["", *words], words, strict=False) if before not in read}
    return named | {f".{name}.partial" for name in named}


def changed_file(world: World, rng: random.Random) -> Input:
    """A file of a target, changed."""
    target = rng.choice(TARGETS)
    world.renew(target.needs)
    path = rng.choice(sorted(world.place.glob(target.file)))
    if rng.random() < 0.05:
        how = replace_file(path, rng, world.root)
    else:
        how = target.how
        path.write_bytes(changed(path.read_bytes(), how, rng, world.root))
    return Input(
        f"{target.file} {how}",
        [command.split() for command in rng.sample(target.commands, min(2, len(target.commands)))],
    )


def changed_words(world: World, rng: random.Random) -> Input:
    """A command line with an odd word in it."""
    world.renew()
    words = rng.choice(COMMANDS).split()
    odd = rng.choice(ODD_WORDS).replace("{root}", str(world.root))
    at = rng.randrange(1, len(words) + 1)
    words[at : at + rng.randrange(2)] = [odd]
    return Input(f"{' '.join(words)[:120]!a}", [words])


ODD_NAMES = (
    b"\xff\xfe",
    b"a\nb",
    "é 漢字".encode(),
    b"-x",
    b"'q\"",
    b"y" * 250,
    b"%s{0}",
    b"\x1b[2Jz",
    b"a b",
    b"$HOME;#",
    b"\xe2\x80\xae",
    b"a,b",
)


def changed_paths(world: World, rng: random.Random) -> Input:
    """A folder, an output or an image with an odd name."""
    world.renew()
    words, name = rng.choice(COMMANDS).split(), os.fsdecode(rng.choice(ODD_NAMES))
    if rng.random() < 0.3:
        folder = world.place / rng.choice(["few", "photos", "numbered", "data/train/images"])
        path = rng.choice(sorted(folder.iterdir()))
        path.rename(path.with_name(name[:100] + ".png"))
    else:
        at = rng.choice(
            [
                at
                for at, word in enumerate(words)
                if (world.place / word.split("/")[0]).exists() or word.startswith("out/")
            ]
            or [0]
        )
        there = words[at]
        if at and (world.place / there).exists():
            (world.place / there).rename(world.place / name)
        if at:
            words = [name if word == there else word for word in words]
    return Input(f"{' '.join(words)[:120]!a} with {name[:20]!a}", [words])


def make_input(world: World, seed: int, number: int) -> Input:
    """The input of a number; the same for the same seed."""
    rng = random.Random(f"{seed} {number}")
    make = rng.choices((changed_file, changed_words, changed_paths), (0.76, 0.14, 0.1))[0]
    made = make(world, rng)
    made.encoding = rng.choice(("utf-8", "utf-8", "ascii"))
    return made


def fault(world: World, words: list[str], encoding: str) -> tuple[str, str] | None:
    """Kind and account of what is wrong about how a command took its input; None if nothing is."""
    outputs = _outputs(words)
    before = world.seen(outputs)
    code, trace, out, said, (seconds, memory) = world.commands.run(words, encoding)
    after = world.seen(outputs)
    written = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    if code in ("hang", "died"):
        return code, trace
    if trace:
        frames = [line for line in trace.splitlines() if line.startswith("  File ") and "/tests/" not in line]
        own = [line for line in frames if any(f"/{package}/" in line for package in ("cml", "data_prep", "tasks"))]
        where = (own or frames)[-1].split('"')[1:]
        return (
            "traceback",
            f"{trace.strip().splitlines()[-1][:200]} {'/'.join(where[0].split('/')[-2:])}{where[1]}\n{trace[-3000:]}",
        )
    if "Traceback (most recent call last)" in out + said:
        return "traceback", "printed " + said[-3000:]
    if written:
        return "written", " ".join(written[:5])
    if code not in (0, None):
        last = said.rpartition("\nerror: ")[2] if "\nerror: " in said else said.removeprefix("error: ")
        if code not in (1, 2) or "error: " not in said or "\n" in last.strip("\n"):
            return "no line", f"{code}: {said[-1500:]}"
        world.slowest, world.largest = max(world.slowest, seconds), max(world.largest, memory)
        if seconds > REFUSED_SECONDS or memory > REFUSED_BYTES:
            return "costly", f"{seconds:.1f} s, {memory >> 20} MiB: {said[-500:]}"
    if longest := max(map(len, (out + said).splitlines()), default=0) > LONGEST:
        return "long", f"{(out + said)[:300]} .. {longest}"
    return None


def series(
    inputs: int, seed: int, *, only: int | None = None, report: Callable[[str], object] = print
) -> dict[str, list[str]]:
    """Try inputs; returns the accounts of what went wrong by kind."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    base = "/dev/shm" if os.path.isdir("/dev/shm") else None
    root = Path(tempfile.mkdtemp(prefix="cml-hostile-", dir=base))
    world = World(root)
    try:
        world.begin()
        for number in range(inputs) if only is None else [only]:
            made = make_input(world, seed, number)
            if number % _INPUTS_A_PROCESS == 0:
                world.commands.close()
            if number % 50 == 0:
                report(f"{number} inputs, {sum(map(len, found.values()))} findings")
            for words in made.commands:
                (world.place / "out").mkdir(exist_ok=True)
                if (wrong := fault(world, words, made.encoding)) is not None:
                    kind, account = wrong
                    found[kind].append(f"{number}: {made.what}: {' '.join(words)[:200]!a}: {account}")
                    report(f"{kind} {found[kind][-1]}")
        report(f"refused after {world.slowest:.1f} s and {world.largest >> 20} MiB at most")
    finally:
        world.commands.close()
        shutil.rmtree(root, ignore_errors=True)
    return dict(found)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--inputs", type=int, default=1300)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", type=int, help="one input, by its number")
    options.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.serve is not None:
        serve(chosen.serve)
        return
    sys.path.append(str(Path(__file__).parents[1] / "scenarios"))  # as pytest does
    began = time.monotonic()
    found = series(chosen.inputs, chosen.seed, only=chosen.only)
    counts = ", ".join(
        f"{len(found.get(kind, ()))} {kind}"
        for kind in ("traceback", "hang", "died", "written", "no line", "long", "costly")
    )
    print(f"{chosen.inputs} inputs in {time.monotonic() - began:.0f} s: {counts}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
