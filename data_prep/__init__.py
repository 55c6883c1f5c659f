"""Sources of prepared datasets: ``data_prep.get("lspet", source=Path("lspet")).prepare(Path("out"))``.

A source is a frozen dataclass; its fields are the flags of ``cml prepare SOURCE``.
"""

from pathlib import Path
from string import capwords
from typing import TYPE_CHECKING, Protocol

from cml.registry import Registry

if TYPE_CHECKING:
    from cml.data.prepared import PreparedDataset


class DataSource(Protocol):
    """Makes a prepared dataset. A frozen dataclass whose fields are its settings and its command's flags."""

    def prepare(self, out: Path, *, skip_bad: bool = False) -> "PreparedDataset":
        """Write the dataset to ``out``; do nothing if it is there already, made from the same input and settings.

        Args:
            out: Where it shall lie; absent or empty. A killed process is continued.
            skip_bad: Leave out items whose image or label is bad, and count them; otherwise the first one is the
                error. A file that is bad as a whole is an error either way.

        Raises:
            UserError: ``out`` holds something else, or a setting is out of its range.
            DataError: the input is not what the source promises; names file and line.
        """


_MODULES = {  # of this package, and their sources
    "captioned": ("flickr8k",),
    "class_labels": ("cars", "cub", "digits", "in_shop", "sop"),
    "coco_captions": ("coco_captions", "coco_cxc"),
    "drawn.source": ("heads", "people", "rooms", "scenes", "things"),
    "number_labels": ("agedb", "biwi", "elpv", "msls"),
    "room_layouts": ("lsun_layout", "zind_layouts"),
    **{name: (name,) for name in ("coco_keypoints", "donkeycar", "earth", "folder", "lspet", "mpii")},
}
_CLASSES = {
    name: f"cml.data_prep.{module}:{capwords(name, '_').replace('_', '')}"
    for module, sources in _MODULES.items()
    for name in sources
}
registry: Registry[DataSource] = Registry(
    "data source", {**_CLASSES, "hf": "cml.data_prep.hugging_face:HuggingFace"}, group="cml.sources"
)
get = registry.get
register = registry.register
names = registry.names

__all__ = ["DataSource", "get", "names", "register", "registry"]
