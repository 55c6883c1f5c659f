"""A user's YAML, by PyYAML's safe loader (the extra ``yaml``): no duplicate keys, and ``1e-3`` is a number."""

import re
from typing import Any

from cml.errors import require_extra

_FLOAT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")


def parse_yaml(raw: bytes) -> Any:  # noqa: ANN401 - any YAML
    """Read one YAML document."""
    with require_extra("yaml", "Reading YAML"):
        from yaml import MappingNode, SafeLoader, YAMLError
    loader_type: Any = type("Loader", (SafeLoader,), {})  # a subclass, so that the library's own does not change
    loader_type.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, [*"+-0123456789"])
    try:
        loader = loader_type(raw)
        node = loader.get_single_node()
        keys = [key.value for key, _ in node.value] if isinstance(node, MappingNode) else []
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise YAMLError(f"it names the key {twice!r} twice")
        return None if node is None else loader.construct_document(node)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        parts = [getattr(error, "context", ""), getattr(error, "problem", "")]
        reason = ", ".join(part for part in parts if part) or error
        raise ValueError(f"is not YAML: {reason}{f' in line {mark.line + 1}' if mark else ''}") from None
    except RecursionError:
        raise ValueError("is nested too deep") from None
    except (ValueError, TypeError, OverflowError) as error:  # an impossible date or number
        raise ValueError(f"holds a value that cannot be read: {error}") from None
