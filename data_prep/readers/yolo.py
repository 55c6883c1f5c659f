"""YOLO's folder of text files, one for each image: boxes, and joints where there are some, as shares of the sides."""

from collections.abc import Iterator
from pathlib import Path

from cml.data.images import native_size
from cml.data_prep.readers.image_names import list_images
from cml.data_prep.readers.reader import Reader
from cml.data_prep.row_files import Misread, Quote, Row
from cml.data_prep.text_lines import read_lines
from cml.errors import DataError, UserError

_BOX = 5  # numbers of a line: class, x and y of the middle, width, height
_ROOM = 0.2  # of a side, by which joints may lie beyond the box, twice
_LISTS = ("classes.txt", "obj.names")  # files beside the labels that name the classes, one a line


class Yolo(Reader):
    """A folder of .txt files with the names of the images. Names of classes are those of a classes.txt beside them."""

    title = "YOLO's text files"

    def recognizes(self, path: Path, head: str, kind: str) -> bool:
        """See ``Reader.recognizes``."""
        return path.is_dir() and next(path.glob("*.txt"), None) is not None

    def read(self, path: Path, images: Path | None, quote: Quote) -> Iterator[tuple[str, Row | DataError]]:
        """See ``Reader.read``."""
        if images is None:
            raise UserError("YOLO's labels are shares of the sides of images: give the folder of the images.")
        files = {Path(name).stem: images / name for name in list_images(images)}
        lists = [place / name for place in (path, path.parent) for name in _LISTS if (place / name).is_file()]
        classes = [line.strip() for _, line in read_lines(lists[0])] if lists else []
        for labels in sorted(path.glob("*.txt")):
            if labels.name in _LISTS:
                continue
            if (file := files.get(labels.stem)) is None:
                fault = f"no image in {images} has the name {labels.stem!r}"
                yield str(labels), DataError(f"{labels}: {fault}; add it, or delete the file.")
                continue
            name, (height, width) = file.relative_to(images).as_posix(), native_size(file)
            for where, line in read_lines(labels):
                try:
                    yield where, {"file_name": name, **_read_line(line, classes, width, height, where)}
                except DataError as error:
                    yield where, error


def _read_line(line: str, classes: list[str], width: int, height: int, where: str) -> Row:
    try:
        number, x, y, w, h, *joints = map(float, line.split())
        kind = classes[int(number)] if classes else str(int(number))
    except (ValueError, IndexError, OverflowError):
        rule = "should be the number of a class, x and y of the middle, width, height, and joints"
        raise DataError(f"{where}: {rule}. Got {line!r:.80} instead.") from None
    if max(map(abs, (x, y, w, h))) > 1:
        raise DataError(f"{where}: x, y, width and height should be shares of the sides, 0 to 1. Got {line!r:.80}.")
    box = {"x0": (x - w / 2) * width, "y0": (y - h / 2) * height, "x1": (x + w / 2) * width, "y1": (y + h / 2) * height}
    sides = {"x0": width, "x1": width, "y0": height, "y1": height}
    kept = {name: min(max(value, 0.0), float(sides[name])) for name, value in box.items()}  # rounded beyond the border
    step = 3 if len(joints) % 3 == 0 and set(joints[2::3]) <= {0.0, 1.0, 2.0} else 2
    if len(joints) == 1:
        raise DataError(f"{where}: a sixth number, such as a confidence, is no joint: leave it out. Got {line!r:.80}.")
    if len(joints) % step:
        raise DataError(f"{where}: joints should have 2 or 3 numbers each. Got {len(joints)} numbers.")
    places = [joints[start : start + step] for start in range(0, len(joints), step)]
    seen = [place for place in places if any(place[:2]) and place[2:] != [0]]
    if any(2 * abs(place[0] - x) > w + _ROOM or 2 * abs(place[1] - y) > h + _ROOM for place in seen):
        fault = "some joints lie outside of the box; the corners of an outline are to be replaced by its box"
        raise Misread(f"{where}: should be a box and its joints, but {fault}. Got {line!r:.80}.")
    keypoints = [[place[0] * width, place[1] * height, *place[2:]] for place in places]
    return {"class": kind, **kept, **({"keypoints": keypoints} if keypoints else {})}
