"""Runs commands in odd environments: each gives the result of a plain one, or ends with one line of error.

Run: python tests/hostile/environments.py [--seed 0] [--only "index add" propose] [--environments "no HOME" ascii]

Every command is a process of its own. Its variables, working folder, limits, umask or standard streams are changed.
After an error the command is given again in a plain environment and has to end as an undisturbed one does. Not for:
other systems (tests/platforms), full disks (full_disks.py).
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import faults


@dataclass(frozen=True)
class Environment:
    """What is odd where a command runs.

    Attributes:
        variables: Environment variables; None takes one away. FOLDER stands for a folder that is empty.
        begin: What the process does before it becomes the command.
        options: Further arguments of ``subprocess.Popen``.
    """

    variables: Mapping[str, str | None] = field(default_factory=dict)
    begin: Callable[[], object] | None = None
    options: Mapping[str, object] = field(default_factory=dict)


def _leave_working_folder() -> None:
    place = tempfile.mkdtemp()
    os.chdir(place)
    os.rmdir(place)


def _limit(kind: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


ENVIRONMENTS: dict[str, Environment] = {
    "no HOME": Environment({"HOME": None, "XDG_CACHE_HOME": None}),
    "HOME is missing": Environment({"HOME": "/nowhere/home"}),
    "HOME is a file": Environment({"HOME": "/etc/hostname"}),
    "no PATH": Environment({"PATH": ""}),
    "ascii": Environment({"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "ascii streams": Environment({"PYTHONIOENCODING": "ascii:strict"}),
    "latin-1 streams": Environment({"PYTHONIOENCODING": "latin-1"}),
    "unknown locale": Environment({"LC_ALL": "xx_YY.UTF-8", "LANGUAGE": "tlh"}),
    "no TMPDIR": Environment({"TMPDIR": "/nowhere/tmp"}),
    "TMPDIR with spaces": Environment({"TMPDIR": "FOLDER/a b\u00e9"}),
    "cache is missing": Environment({"CML_CACHE": "FOLDER/new/cache"}),
    "cache is a file": Environment({"CML_CACHE": "/etc/hostname"}),
    "cache cannot be written": Environment({"CML_CACHE": "/proc/cache"}),
    "relative cache": Environment({"CML_CACHE": "cache here"}),
    "empty cache": Environment({"CML_CACHE": ""}),
    "numba cannot cache": Environment({"NUMBA_CACHE_DIR": "/proc/numba"}),
    "no matplotlib folder": Environment({"MPLCONFIGDIR": "/proc/mpl", "MPLBACKEND": "nonsense"}),
    "one column": Environment({"COLUMNS": "1", "LINES": "1", "TERM": "dumb"}),
    "no terminal": Environment({"TERM": None, "COLUMNS": "x", "NO_COLOR": "1"}),
    "strange threads": Environment({"OMP_NUM_THREADS": "0", "MKL_NUM_THREADS": "-1", "NUMBA_NUM_THREADS": "1"}),
    "many threads": Environment({"OMP_NUM_THREADS": "64"}),
    "optimised": Environment({"PYTHONOPTIMIZE": "2", "PYTHONHASHSEED": "4711"}),
    "warnings are errors": Environment({"PYTHONWARNINGS": "error::UserWarning"}),
    "development mode": Environment({"PYTHONDEVMODE": "1"}),
    "far time zone": Environment({"TZ": "Pacific/Kiritimati"}),
    "traces of a cluster": Environment({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "LOCAL_RANK": "3"}),
    "world of one": Environment({"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}),
    "working folder is gone": Environment(begin=_leave_working_folder),
    "working folder cannot be written": Environment(options={"cwd": "/proc"}),
    "few files": Environment(begin=_limit(resource.RLIMIT_NOFILE, 64)),
    "no core, small stack": Environment(begin=_limit(resource.RLIMIT_STACK, 1 << 20)),
    "strict umask": Environment(begin=lambda: os.umask(0o077)),
    "open umask": Environment(begin=lambda: os.umask(0)),
    "no input": Environment(begin=lambda: os.close(0)),
    "no output": Environment(begin=lambda: os.close(1)),
    "ignored signals": Environment(begin=lambda: [signal.signal(one, signal.SIG_IGN) for one in (1, 2, 13, 15)]),
}


def run_in(environment: Environment, arguments: list[str], log: Path, folder: Path) -> int:
    """Run a command; its exit code."""
    folder.mkdir(exist_ok=True)
    variables = {**os.environ, **{name: value for name, value in environment.variables.items() if value is not None}}
    variables = {name: value.replace("FOLDER", str(folder)) for name, value in variables.items()}
    for name, value in environment.variables.items():
        if value is None:
            variables.pop(name, None)
        if name == "TMPDIR" and "FOLDER" in (value or ""):
            Path(variables[name]).mkdir(exist_ok=True)
    options = {"cwd": folder, **environment.options}
    with log.open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "cml", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=variables,
            preexec_fn=environment.begin,
            timeout=faults.LIMIT,
            check=False,
            **options,  # type: ignore[call-overload]
        )
    return int(done.returncode)


def main_script() -> int:
    """Run all commands; 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=None)
    parser.add_argument("--environments", nargs="+", default=list(ENVIRONMENTS), choices=list(ENVIRONMENTS))
    options = parser.parse_args()
    bad = tried = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CML_CACHE"] = f"{folder}/cache"
        for name, case in faults.every_case(Path(folder)).items():
            if (options.only and name not in options.only) or case.arguments(Path())[0] in faults.PROGRAMS:
                continue
            place = Path(folder) / f"{name} environments"
            whole, log = place / "whole" / "out", place / "log"
            whole.parent.mkdir(parents=True)
            case.start(whole)
            assert run_in(Environment(), case.arguments(whole), log, place / "empty") == 0, log.read_text()
            wanted = faults.content(whole, case)
            for number, kind in enumerate(options.environments):
                out = place / str(number) / "out"
                out.parent.mkdir()
                case.start(out)
                code = run_in(ENVIRONMENTS[kind], case.arguments(out), log, place / "empty")
                wrong = faults.errors_of(log, code)
                if code and not wrong:
                    refused += 1
                    print(f"  {name}, {kind}: {log.read_text(errors='replace').splitlines()[-1]}")
                if code and not (case.refuses and out.exists()):
                    again = place / "again.log"
                    if run_in(Environment(), faults._command(case, out), again, place / "empty"):
                        wrong.append(f"fails afterwards: {again.read_text()[-1000:]}")
                left = faults.content(out, case) if out.exists() else {}
                if left != wanted:
                    differs = [path for path in {*left, *wanted} if left.get(path) != wanted.get(path)]
                    wrong.append(f"another result: {sorted(differs)[:5]}")
                tried, bad = tried + 1, bad + bool(wrong)
                if wrong:
                    print(
                        f"  {name}, {kind}: {', '.join(wrong)}\n{log.read_text(errors='replace')[-2500:]}", flush=True
                    )
                shutil.rmtree(out.parent)
                shutil.rmtree(place / "empty")
            print(f"{name:<17} {len(options.environments)} environments", flush=True)
    print(f"{tried} environments, {refused} refused in one line, {bad} with a traceback or another result")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main_script())
