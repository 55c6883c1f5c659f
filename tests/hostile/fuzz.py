"""Coverage-guided fuzzing of one parser: ``python tests/hostile/fuzz.py metadata --seconds 600``.

Needs the extra ``fuzz`` (atheris). A finding is any exception but cml's own (UserError, LabelError), an input that
takes over 10 seconds or over 2 GB, or a crash of the process; each kind is kept once, as a file below ``--out``, and
the run goes on; ``--replay FILE`` reads one again. Not for: the parsers and their first inputs (fuzz_parsers.py), nor
for the test suite, which replays what was found (test_fuzz_findings.py).
"""

from __future__ import annotations

import argparse
import contextlib
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

COMPILED = [  # by numba, which cannot read instrumented functions
    *("cml.retrieval.top_k", "cml.retrieval.rank_correlation", "cml.losses.dense_triplet", "cml.losses.hinge_counts"),
    *("cml.distances.captions.transport", "cml.distances.layout.kernel"),
    *("cml.distances.captions.workspace", "cml.distances.captions.wmd_lower_bound", "cml.distances.captions.distance"),
    "cml.distances.poses.keypoint_products",
]
SECONDS_AN_INPUT, MEGABYTES = 10, 2048


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parser", help="name of the parser, or 'list'")
    options.add_argument("--seconds", type=int, default=600)
    options.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "cml-fuzz")
    options.add_argument("--replay", type=Path, help="read this one input, and print the megabytes that it took")
    options.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen, _ = options.parse_known_args()
    if chosen.parser == "list":
        from fuzz_parsers import PARSERS

        print("\n".join(PARSERS))
    elif chosen.replay:
        replay(chosen.parser, chosen.replay)
    elif chosen.child:
        fuzz(chosen.parser, chosen.out)
    else:
        supervise(chosen.parser, chosen.seconds, chosen.out / chosen.parser)


def supervise(parser: str, seconds: int, out: Path) -> None:
    """Run the fuzzer in a process of its own; one that dies of an input is started again for the time that is left."""
    corpus = out / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    began, executions, slow = time.monotonic(), 0, 0
    while (left := round(seconds - (time.monotonic() - began))) > 0:
        with (out / "log.txt").open("w+", errors="replace") as log:
            command = [
                sys.executable, __file__, parser, "--child", "--out", str(out.parent), str(corpus),
                f"-max_total_time={left}", f"-timeout={SECONDS_AN_INPUT}", f"-rss_limit_mb={MEGABYTES}",
                f"-malloc_limit_mb={MEGABYTES}", "-max_len=65536", f"-artifact_prefix={out}/",
                f"-dict={out / 'words.dict'}", "-print_final_stats=1",
            ]  # fmt: skip
            limit = left + 10 * SECONDS_AN_INPUT
            code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, timeout=limit).returncode
            log.seek(0)
            text = log.read()
        counts = re.findall(r"stat::number_of_executed_units: (\d+)|^#(\d+)\t", text, re.MULTILINE)
        executions += max((int(one or other) for one, other in counts), default=0)
        if code == 0:
            break
        slow += 1
        for kept in out.glob("oom-*"):  # the fuzzer's own memory grows too, with every input before this one
            alone = [sys.executable, __file__, parser, "--replay", str(kept)]
            said = subprocess.run(alone, stdout=subprocess.PIPE, text=True, timeout=10 * SECONDS_AN_INPUT).stdout
            if said and int(said) < MEGABYTES:
                kept.unlink()
        (out / f"died-{slow}.txt").write_text(text[-20_000:])
        if not counts:  # it does not even start
            sys.exit(text[-2000:])
    took = time.monotonic() - began
    found = sorted(
        path.name for path in out.iterdir() if path.name.startswith(("found-", "crash-", "timeout-", "oom-"))
    )
    print(f"{parser}: {took:.0f} s, {executions} inputs, {executions / took:.0f} a second, {len(found)} findings")
    print("".join(f"  {name}\n" for name in found), end="")


def replay(name: str, path: Path) -> None:
    """Give a parser one input, in a process of its own, and print the megabytes that this took."""
    from fuzz_parsers import PARSERS

    from cml.errors import UserError

    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(UserError):
        PARSERS[name].run(path.read_bytes(), Path(folder))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def fuzz(name: str, out: Path) -> None:
    """Feed libFuzzer's inputs to a parser; exceptions are written down, the process goes on."""
    import atheris

    out = out / name
    folder = Path(tempfile.mkdtemp(prefix=f"cml-fuzz-{name}-", dir="/dev/shm"))
    known: set[str] = set()

    def one(data: bytes) -> None:
        try:
            parser.run(data, folder)
        except UserError:
            pass
        except Exception as error:
            trace = traceback.extract_tb(error.__traceback__)
            last = next((frame for frame in reversed(trace) if _is_ours(frame.filename)), trace[-1])
            key = f"{type(error).__name__}-{Path(last.filename).stem}-{last.lineno}"
            if key not in known:
                known.add(key)
                (out / f"found-{key}").write_bytes(data)
                (out / f"trace-{key}.txt").write_text(traceback.format_exc())

    with atheris.instrument_imports(include=["cml", "data_prep"], exclude=COMPILED):
        import fuzz_parsers

        from cml.errors import UserError

        parser = fuzz_parsers.PARSERS[name]
        for number, seed in enumerate(parser.seeds()):
            (out / "corpus" / f"seed-{number}").write_bytes(seed)
            one(seed)  # what is imported at its first use has to be imported, and instrumented, now
    (out / "words.dict").write_text("".join(f'"{_escaped(word)}"\n' for word in parser.words))
    arguments = [sys.argv[0], *(arg for arg in sys.argv if arg.startswith("-") and "=" in arg), str(out / "corpus")]
    atheris.Setup(arguments, one, **({"custom_mutator": fuzz_parsers.changed_json} if parser.is_json else {}))
    atheris.Fuzz()


def _is_ours(path: str) -> bool:
    return any(f"/{package}/" in path for package in ("cml", "data_prep", "tasks"))


def _escaped(word: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
