"""Protocols by name: how a field measures an embedding, beside the rankings that ``cml evaluate`` measures.

``cml.protocols.get("verification(folds=10)")`` makes one; ``Model.measure`` and ``cml evaluate --protocol`` take it.
"""

from cml.protocols.compact_codes import CompactCodes
from cml.protocols.few_shot import FewShot
from cml.protocols.figures import Figure, ProtocolResult
from cml.protocols.protocol import EmbeddedItems, Protocol
from cml.protocols.re_identification import ReIdentification
from cml.protocols.regression import Regression
from cml.protocols.verification import Verification
from cml.registry import Registry

registry: Registry[Protocol] = Registry(
    "protocol",
    {
        "compact-codes": "cml.protocols.compact_codes:CompactCodes",
        "few-shot": "cml.protocols.few_shot:FewShot",
        "re-identification": "cml.protocols.re_identification:ReIdentification",
        "regression": "cml.protocols.regression:Regression",
        "verification": "cml.protocols.verification:Verification",
    },
    group="cml.protocols",
)
get = registry.get
names = registry.names
register = registry.register

__all__ = [
    "CompactCodes",
    "EmbeddedItems",
    "FewShot",
    "Figure",
    "Protocol",
    "ProtocolResult",
    "ReIdentification",
    "Regression",
    "Verification",
    "get",
    "names",
    "register",
    "registry",
]
