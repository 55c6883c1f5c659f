"""Backbones by name, ``cml.models.get("timm/resnet18")``, and the embedding model that uses one."""

from cml.models.backbone import CUSTOM, Backbone, as_backbone, get, has_published_weights, registry

register = registry.register
names = registry.names

__all__ = ["CUSTOM", "Backbone", "as_backbone", "get", "has_published_weights", "names", "register", "registry"]


def __dir__() -> list[str]:
    return __all__
