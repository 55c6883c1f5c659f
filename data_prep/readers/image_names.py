"""The images of a folder that labels without paths belong to: by the names without endings, or in order."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from cml.console.messages import say
from cml.errors import DataError


def list_images(images: Path) -> list[str]:
    """The paths of the images below a folder, in order."""
    suffixes = Image.registered_extensions()
    files = sorted(path for path in images.rglob("*") if path.suffix.lower() in suffixes)
    return [path.relative_to(images).as_posix() for path in files]


def match_stems(names: Sequence[str], images: Path) -> list[str]:
    """The image of each name, with or without its ending; a name without an image stays."""
    by_stem = {Path(path).stem: path for path in list_images(images)}
    return [name if (images / name).is_file() else by_stem.get(Path(name).name, name) for name in names]


def name_in_order(path: Path, images: Path, count: int) -> list[str]:
    """The images in the order of their names, one for each of the rows of a file that names none."""
    names = list_images(images)
    if len(names) != count:
        raise DataError(
            f"{path} has {count} rows and names no images, of which {images} has {len(names)}: they cannot be joined "
            "in order. Add an array file_name with the path of each row's image."
        )
    say(f"{path} names no images: its rows are those of {images} in the order of their names, from {names[0]}.")
    return names
