"""YAML that a user wrote, by the safe loader of PyYAML, which is an extra: as strict as strict_json.py.

Beyond it a key that stands twice is refused, and ``1e-3`` is a number as in YAML 1.2. Not for: what the values mean.
"""

from __future__ import annotations

import re
from typing import Any

from cml.errors import extra_needed

_FLOAT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")


def parse_yaml(raw: bytes) -> Any:  # noqa: ANN401 - any YAML
    """Read one YAML document.

    Raises:
        ValueError: says what is wrong, to be read after the name of the file.
        UserError: PyYAML is not installed.
    """
    with extra_needed("yaml", "Reading YAML"):
        from yaml import MappingNode, SafeLoader, YAMLError
    made: Any = type("Loader", (SafeLoader,), {})  # its own class: the library's stays as it is
    made.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, [*"+-0123456789"])
    try:
        loader = made(raw)
        node = loader.get_single_node()
        keys = [key.value for key, _ in node.value] if isinstance(node, MappingNode) else []
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise YAMLError(f"it names the key {twice!r} twice")
        return None if node is None else loader.construct_document(node)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = ", ".join(filter(None, (getattr(error, "context", ""), getattr(error, "problem", "")))) or error
        raise ValueError(f"is not YAML: {said}{f' in line {mark.line + 1}' if mark else ''}") from None
    except RecursionError:
        raise ValueError("is nested too deep") from None
    except (ValueError, TypeError, OverflowError) as error:  # a date or number that there is not
        raise ValueError(f"holds a value that cannot be read: {error}") from None
