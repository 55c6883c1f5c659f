"""Sources of prepared datasets: ``data_prep.get("lspet", source=Path("lspet")).prepare(Path("out"))``.

A source is a frozen dataclass; its fields are the flags of ``cml prepare SOURCE``. One of your own is a subclass of
``DatasetSource``, registered by ``@cml.data_prep.register("name")``.
"""

from typing import TYPE_CHECKING, Any

from cml.registry import Registry

if TYPE_CHECKING:
    from cml.data.prepared_writer import Item
    from cml.data_prep.dataset_source import Content, DatasetSource
    from cml.data_prep.hash_split import split_by_hash
    from cml.data_prep.provenance import record_provenance

_PARTS = {  # of a source of one's own, imported when they are asked for
    "Content": "cml.data_prep.dataset_source",
    "DatasetSource": "cml.data_prep.dataset_source",
    "Item": "cml.data.prepared_writer",
    "record_provenance": "cml.data_prep.provenance",
    "split_by_hash": "cml.data_prep.hash_split",
}

registry: "Registry[DatasetSource]" = Registry(
    "data source",
    {
        "agedb": "cml.data_prep.sources.agedb:Agedb",
        "biwi": "cml.data_prep.sources.biwi:Biwi",
        "cars": "cml.data_prep.sources.cars:Cars",
        "coco_captions": "cml.data_prep.sources.coco_captions:CocoCaptions",
        "coco_cxc": "cml.data_prep.sources.coco_cxc:CocoCxc",
        "coco_keypoints": "cml.data_prep.sources.coco_keypoints:CocoKeypoints",
        "coco_sentences": "cml.data_prep.sources.coco_sentences:CocoSentences",
        "cub": "cml.data_prep.sources.cub:Cub",
        "diabetes": "cml.data_prep.sources.diabetes:Diabetes",
        "digits": "cml.data_prep.sources.digits:Digits",
        "donkeycar": "cml.data_prep.sources.donkeycar:Donkeycar",
        "earth": "cml.data_prep.sources.earth:Earth",
        "elpv": "cml.data_prep.sources.elpv:Elpv",
        "flickr8k": "cml.data_prep.sources.flickr8k:Flickr8k",
        "folder": "cml.data_prep.sources.folder:Folder",
        "heads": "cml.data_prep.synthetic.heads.source:Heads",
        "hf": "cml.data_prep.sources.hf:HuggingFace",
        "in_shop": "cml.data_prep.sources.in_shop:InShop",
        "judgements": "cml.data_prep.sources.judgements:Judgements",
        "lspet": "cml.data_prep.sources.lspet:Lspet",
        "lsun_layout": "cml.data_prep.sources.lsun_layout:LsunLayout",
        "molecules": "cml.data_prep.sources.molecules:Molecules",
        "mpii": "cml.data_prep.sources.mpii:Mpii",
        "msls": "cml.data_prep.sources.msls:Msls",
        "people": "cml.data_prep.synthetic.people.source:People",
        "rooms": "cml.data_prep.synthetic.rooms.source:Rooms",
        "scenes": "cml.data_prep.synthetic.scenes.source:Scenes",
        "series": "cml.data_prep.sources.series:Series",
        "sop": "cml.data_prep.sources.sop:Sop",
        "table": "cml.data_prep.sources.table:Table",
        "tablets": "cml.data_prep.sources.tablets:Tablets",
        "text": "cml.data_prep.sources.text:Text",
        "things": "cml.data_prep.synthetic.things.source:Things",
        "vowels": "cml.data_prep.sources.vowels:Vowels",
        "zind_layouts": "cml.data_prep.sources.zind_layouts:ZindLayouts",
    },
    group="cml.sources",
)
get = registry.get
register = registry.register
names = registry.names

__all__ = [
    "Content",
    "DatasetSource",
    "Item",
    "get",
    "names",
    "record_provenance",
    "register",
    "registry",
    "split_by_hash",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a part of any type
    """Import a part when it is asked for: listing sources stays fast."""
    if name not in _PARTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_PARTS[name]), name)
