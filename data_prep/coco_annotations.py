"""COCO's own annotation files: which of them are present."""

from pathlib import Path

from cml.errors import DataError


def annotation_files(
    source: Path,  # the folder of COCO, with annotations/
    year: int,
    kind: str,
) -> dict[str, Path]:
    """Find the annotation files of COCO for training and validation."""
    names = [f"{part}{year}" for part in ("train", "val")]
    files = {name: source / "annotations" / f"{kind}_{name}.json" for name in names}
    there = {name: path for name, path in files.items() if path.exists()}
    if not there:
        others = sorted(path.name for path in (source / "annotations").glob(f"{kind}_*.json"))
        hint = f" There is {others[0]}: give its year with --year." if others else ""
        raise DataError(f"{files[names[0]]} is missing: {source} should be a folder of COCO {year}.{hint}")
    return there
