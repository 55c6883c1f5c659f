"""Sources of prepared datasets, one module each: ``data_prep.get("lspet", source=Path("lspet")).prepare(Path("out"))``.

A source is a frozen dataclass; its fields are the flags of ``cml prepare SOURCE``. Not for: the format they write,
which is cml.data's.
"""

from cml.data_prep.source import DataSource
from cml.registry import Registry

registry: Registry[DataSource] = Registry(
    "data source",
    {
        "agedb": "cml.data_prep.agedb:Agedb",
        "biwi": "cml.data_prep.biwi:Biwi",
        "cars": "cml.data_prep.cars:Cars",
        "cub": "cml.data_prep.cub:Cub",
        "digits": "cml.data_prep.digits:Digits",
        "coco_captions": "cml.data_prep.coco_captions:CocoCaptions",
        "coco_cxc": "cml.data_prep.coco_cxc:CocoCxc",
        "coco_keypoints": "cml.data_prep.coco_keypoints:CocoKeypoints",
        "donkeycar": "cml.data_prep.donkeycar:Donkeycar",
        "flickr8k": "cml.data_prep.flickr8k:Flickr8k",
        "earth": "cml.data_prep.earth:Earth",
        "elpv": "cml.data_prep.elpv:Elpv",
        "folder": "cml.data_prep.folder:Folder",
        "heads": "cml.data_prep.drawn.source:Heads",
        "things": "cml.data_prep.drawn.source:Things",
        "hf": "cml.data_prep.hugging_face:HuggingFace",
        "in_shop": "cml.data_prep.in_shop:InShop",
        "lspet": "cml.data_prep.lspet:Lspet",
        "lsun_layout": "cml.data_prep.lsun_layout:LsunLayout",
        "mpii": "cml.data_prep.mpii:Mpii",
        "msls": "cml.data_prep.msls:Msls",
        "people": "cml.data_prep.drawn.source:People",
        "rooms": "cml.data_prep.drawn.source:Rooms",
        "scenes": "cml.data_prep.drawn.source:Scenes",
        "zind_layouts": "cml.data_prep.zind_layouts:ZindLayouts",
        "sop": "cml.data_prep.sop:Sop",
    },
    group="cml.sources",
)
get = registry.get
register = registry.register
names = registry.names

__all__ = ["DataSource", "get", "names", "register", "registry"]
