"""Sources of prepared datasets: ``data_prep.get("lspet", source=Path("lspet")).prepare(Path("out"))``.

A source is a frozen dataclass; its fields are the flags of ``cml prepare SOURCE``.
"""

from pathlib import Path
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


registry: Registry[DataSource] = Registry(
    "data source",
    {
        "agedb": "cml.data_prep.agedb:Agedb",
        "biwi": "cml.data_prep.biwi:Biwi",
        "cars": "cml.data_prep.cars:Cars",
        "coco_captions": "cml.data_prep.coco_captions:CocoCaptions",
        "coco_cxc": "cml.data_prep.coco_cxc:CocoCxc",
        "coco_keypoints": "cml.data_prep.coco_keypoints:CocoKeypoints",
        "cub": "cml.data_prep.cub:Cub",
        "digits": "cml.data_prep.digits:Digits",
        "donkeycar": "cml.data_prep.donkeycar:Donkeycar",
        "earth": "cml.data_prep.earth:Earth",
        "elpv": "cml.data_prep.elpv:Elpv",
        "flickr8k": "cml.data_prep.flickr8k:Flickr8k",
        "folder": "cml.data_prep.folder:Folder",
        "heads": "cml.data_prep.synthetic.heads.source:Heads",
        "hf": "cml.data_prep.hf:HuggingFace",
        "in_shop": "cml.data_prep.in_shop:InShop",
        "lspet": "cml.data_prep.lspet:Lspet",
        "lsun_layout": "cml.data_prep.lsun_layout:LsunLayout",
        "mpii": "cml.data_prep.mpii:Mpii",
        "msls": "cml.data_prep.msls:Msls",
        "people": "cml.data_prep.synthetic.people.source:People",
        "rooms": "cml.data_prep.synthetic.rooms.source:Rooms",
        "scenes": "cml.data_prep.synthetic.scenes.source:Scenes",
        "sop": "cml.data_prep.sop:Sop",
        "things": "cml.data_prep.synthetic.things.source:Things",
        "zind_layouts": "cml.data_prep.zind_layouts:ZindLayouts",
    },
    group="cml.sources",
)
get = registry.get
register = registry.register
names = registry.names

__all__ = ["DataSource", "get", "names", "register", "registry"]
