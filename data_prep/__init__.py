"""Sources of prepared datasets, one module each: ``data_prep.get("lspet", source=Path("lspet")).prepare(Path("out"))``.

A source is a frozen dataclass; its fields are the flags of ``cml prepare SOURCE``. Not for: the format they write,
which is cml.data's.
"""

from cml.registry import Registry
from data_prep.source import DataSource

registry: Registry[DataSource] = Registry(
    "data source",
    {
        "donkeycar": "data_prep.donkeycar:Donkeycar",
        "folder": "data_prep.folder:Folder",
        "lspet": "data_prep.lspet:Lspet",
        "people": "data_prep.people:People",
    },
)
get = registry.get
register = registry.register
names = registry.names

__all__ = ["DataSource", "get", "names", "register", "registry"]
