"""Sources of prepared datasets, one module each: ``data_prep.get("lspet", source=Path("lspet")).prepare(Path("out"))``.

A source is a frozen dataclass; its fields are the flags of ``cml prepare SOURCE``. Not for: the format they write,
which is cml.data's.
"""

from cml.registry import Registry
from data_prep.source import DataSource

registry: Registry[DataSource] = Registry(
    "data source",
    {
        "cars": "data_prep.cars:Cars",
        "cub": "data_prep.cub:Cub",
        "digits": "data_prep.digits:Digits",
        "coco_captions": "data_prep.coco_captions:CocoCaptions",
        "coco_keypoints": "data_prep.coco_keypoints:CocoKeypoints",
        "donkeycar": "data_prep.donkeycar:Donkeycar",
        "flickr8k": "data_prep.flickr8k:Flickr8k",
        "folder": "data_prep.folder:Folder",
        "in_shop": "data_prep.in_shop:InShop",
        "lspet": "data_prep.lspet:Lspet",
        "lsun_layout": "data_prep.lsun_layout:LsunLayout",
        "mpii": "data_prep.mpii:Mpii",
        "people": "data_prep.people:People",
        "rooms": "data_prep.rooms:Rooms",
        "scenes": "data_prep.scenes:Scenes",
        "zind_layouts": "data_prep.zind_layouts:ZindLayouts",
        "sop": "data_prep.sop:Sop",
    },
)
get = registry.get
register = registry.register
names = registry.names

__all__ = ["DataSource", "get", "names", "register", "registry"]
