"""Records of results: the figures of finished runs, unrounded, with what it takes to obtain them again.

    python docs/making/records.py make NAME KIND PATH [PATH ..] --commands FILE [--work FOLDER]

KIND is ``comparison`` (the output folders of ``cml compare``) or ``benchmark`` (files that a script of tests/benchmarks
wrote with ``--json``). ``make`` reads the figures and writes ``docs/results/records/NAME.json``. FILE has one shell
command a line. Commands find raw data in the folder that the variable ``CML_DATA`` names, and cml in ``CML_ROOT``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs" / "results" / "records"
LIBRARIES = ("torch", "torchvision", "numpy", "scipy", "numba")
Cells = list[list[str]]


@dataclass(frozen=True)
class Record:
    """The figures of a run and their origin.

    Attributes:
        commands: Shell commands that produce the figures, in order, in an empty folder.
        kind: ``comparison`` or ``benchmark``.
        paths: Where the commands leave the figures, relative to that folder.
        values: The figures, unrounded, with the value of each seed.
        settings: Sizes that the pages state: training items, queries, gallery items, seeds.
        commit: The commit of cml.
        date: Day of the run.
        machine: Processor, cores, memory and accelerator.
        versions: Versions of Python and of the libraries that compute.
        legacy: Why the figures have no such origin: they were recorded as rounded text and their run is too long to
            repeat now. Empty for all others.
        table: The rounded table of a legacy record: the header and the rows.
    """

    commands: list[str]
    kind: str = ""
    paths: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, float] = field(default_factory=dict)
    commit: str = ""
    date: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    legacy: str = ""
    table: Cells = field(default_factory=list)


def read_record(name: str) -> Record:
    """Read a record.

    Args:
        name: Its name: the file is ``docs/results/records/NAME.json``.

    Returns:
        The record.

    Raises:
        ValueError: A field is missing that the kind of record needs.
    """
    record = Record(**json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8")))
    origin = (
        ("legacy", "table") if record.legacy else ("kind", "paths", "values", "commit", "date", "machine", "versions")
    )
    missing = [key for key in ("commands", *origin) if not getattr(record, key)]
    if missing:
        raise ValueError(f"The record {name!r} has no {', '.join(missing)}.")
    return record


def write_record(name: str, record: Record) -> None:
    """Write a record, without its empty fields.

    Args:
        name: Its name.
        record: The record.
    """
    content = {key: value for key, value in asdict(record).items() if value}
    RECORDS.mkdir(exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (RECORDS / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def make_record(kind: str, paths: Sequence[str], commands: Sequence[str], work: Path) -> Record:
    """Make a record of finished runs.

    Args:
        kind: ``comparison`` or ``benchmark``.
        paths: Where the figures are, relative to ``work``.
        commands: The commands that were run there.
        work: The folder in which they were run.

    Returns:
        The record, with the commit, the machine and the versions of now.
    """
    values, settings = SOURCES[kind]([work / path for path in paths])
    return Record(
        commands=list(commands),
        kind=kind,
        paths=list(paths),
        values=without_sizes(values),
        settings=settings,
        commit=read_commit(),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        machine=describe_machine(),
        versions={"python": platform.python_version(), **{name: metadata.version(name) for name in LIBRARIES}},
    )


def without_sizes(values: dict[str, Any]) -> dict[str, Any]:
    """Leave the image size out of the names of frozen features: the pages state it once.

    Args:
        values: Figures by names, in any depth.

    Returns:
        The same figures.
    """
    return {
        re.sub(r"^(frozen .*) at \d+ x \d+ pixels$", r"\1", name): without_sizes(value)
        if isinstance(value, dict)
        else value
        for name, value in values.items()
    }


def read_comparisons(folders: Sequence[Path]) -> tuple[dict[str, Any], dict[str, float]]:
    """Read the figures of comparisons on one dataset: the methods of all of them, then the references of the first.

    Args:
        folders: Output folders of ``cml compare``.

    Returns:
        The unit of label distances and, for each method and dimension, the mean of each metric in the table with the
        ends of its interval and the values of its seeds; and the sizes of the dataset.
    """
    trained: dict[str, Any] = {}
    references: dict[str, Any] = {}
    dimensions: dict[str, Any] = {}
    unit = ""
    for folder in folders:
        comparison = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
        header = (folder / "table.md").read_text(encoding="utf-8").splitlines()[0]
        metrics = [cell.strip() for cell in header.strip("| ").split("|")][1:]
        unit = unit or comparison["unit"]
        for method, row in comparison["rows"].items():
            seeds = {metric: comparison["values"][metric].get(method) for metric in metrics}
            figures = {metric: describe_interval(row[metric], seeds[metric]) for metric in metrics}
            (trained if seeds[metrics[0]] else references).setdefault(method, figures)
        for size, rows in comparison["dimensions"].items():
            methods = dimensions.setdefault(size, {})
            for method, row in rows.items():
                if method not in references:
                    methods[method] = {metric: describe_interval(row[metric], None) for metric in metrics}
    values = {"unit": unit, "trained": trained, "references": references}
    if len(dimensions) > 1:
        values["dimensions"] = dimensions
    return values, read_sizes(folders[0])


def describe_interval(interval: Sequence[float], seeds: Sequence[float] | None) -> dict[str, Any]:
    """Name the mean and the ends of an interval, and add the values of the seeds where there are any."""
    mean, low, high = interval
    return {"mean": mean, "low": low, "high": high, **({"seeds": list(seeds)} if seeds else {})}


def read_sizes(folder: Path) -> dict[str, float]:
    """Count the items, queries, gallery items and seeds of a comparison."""
    comparison = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    evaluation = json.loads(next(folder.rglob("evaluation.json")).read_text(encoding="utf-8"))
    config = json.loads(next(folder.rglob("config.json")).read_text(encoding="utf-8"))
    from cml.data.prepared import PreparedDataset

    train = len(PreparedDataset.open(Path(config["dataset"])).split("train"))
    sizes = {"train": train, "queries": evaluation["queries"], "gallery": evaluation["gallery"]}
    return {**sizes, "seeds": comparison["seeds"], "dimension": comparison["dimension"]}


def read_benchmarks(files: Sequence[Path]) -> tuple[dict[str, Any], dict[str, float]]:
    """Read the figures of benchmark scripts.

    Args:
        files: The files that they wrote, named after the scripts.

    Returns:
        Name of a script to its figures; and no sizes.
    """
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}, {}


Source = Callable[[Sequence[Path]], tuple[dict[str, Any], dict[str, float]]]
SOURCES: Mapping[str, Source] = {"comparison": read_comparisons, "benchmark": read_benchmarks}


def read_commit() -> str:
    """Return the commit of the checkout, followed by "+" where cml differs from it."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    code = ["cml", "tasks", "data_prep"]
    is_same = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *code], check=False).returncode == 0
    return commit if is_same else f"{commit}+"


def describe_machine() -> dict[str, Any]:
    """Return the processor, the cores that may be used, the memory in GiB and the accelerator."""
    import torch

    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": processor or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(pages / 2**30),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }


def numbers(values: Any, path: str = "") -> Iterator[tuple[str, float]]:  # noqa: ANN401 - JSON
    """Yield the path and the value of every number in nested figures.

    Args:
        values: Nested dicts and lists.
        path: The path of ``values`` itself.
    """
    if isinstance(values, dict):
        for key, value in values.items():
            yield from numbers(value, f"{path}/{key}")
    elif isinstance(values, list):
        for position, value in enumerate(values):
            yield from numbers(value, f"{path}/{position}")
    elif isinstance(values, int | float) and not isinstance(values, bool):
        yield path, float(values)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="make the record of finished runs")
    make.add_argument("name")
    make.add_argument("kind", choices=sorted(SOURCES))
    make.add_argument("paths", nargs="+", help="where the figures are, relative to --work")
    make.add_argument("--commands", type=Path, required=True, help="file with one command a line")
    make.add_argument("--work", type=Path, default=Path(), help="the folder in which the commands were run")
    options = parser.parse_args(arguments)
    lines = [line for line in options.commands.read_text(encoding="utf-8").splitlines() if line.strip()]
    write_record(options.name, make_record(options.kind, options.paths, lines, options.work))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
