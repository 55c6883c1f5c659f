"""Digests of content: of a label of any form, or of a function with everything of one's own that it uses.

Of installed packages the name and version count; of one's own functions and classes the code, constants, closures and
the globals that they use. What a function reads from files or the network cannot be seen.
"""

import functools
import hashlib
import pickle
import sys
import types
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from cml.data.tensor_array import tensor_array

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))


class Content(NamedTuple):
    """The digest of a value."""

    digest: str  # 32 hex digits
    complete: bool  # True if all of the value is in the digest


def content_digest(value: object) -> Content:
    """Compute the digest of a value's content."""
    reader = _Reader()
    reader.add(value)
    return Content(reader.hash.hexdigest(), reader.complete)


class _Reader:
    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)
        self.complete = True
        self._seen: dict[int, object] = {}  # what may refer to itself; held, so that no id is used twice

    def add(self, value: Any) -> None:  # noqa: ANN401 - anything
        kind = type(value)
        self._add_text(f"{kind.__module__}.{kind.__qualname__}")
        if kind in _PLAIN:
            self._add_text(repr(value))
        elif kind in (list, tuple):
            self._add_each(value)
        elif kind in (set, frozenset):
            self._add_text(repr(sorted(content_digest(item) for item in value)))
        elif kind is dict:
            self._add_each(
                item for pair in sorted(value.items(), key=lambda pair: content_digest(pair[0])) for item in pair
            )
        elif isinstance(value, np.ndarray | np.generic):
            self._add_array(np.asarray(value))
        elif hasattr(value, "detach") and hasattr(value, "numpy"):  # a tensor
            self._add_array(tensor_array(value))
        elif isinstance(value, PurePath):
            self._add_text(str(value))
        elif id(value) in self._seen:
            self._add_text(str(list(self._seen).index(id(value))))
        else:
            self._seen[id(value)] = value
            self._add_code(value)

    def _add_code(self, value: Any) -> None:  # noqa: ANN401 - anything
        if isinstance(value, types.FunctionType):
            self._add_each((value.__code__, value.__defaults__, value.__kwdefaults__))
            for cell in value.__closure__ or ():
                self.add(cell.cell_contents)
            for name in sorted(_names(value.__code__) & value.__globals__.keys()):
                self._add_each((name, value.__globals__[name]))
        elif isinstance(value, types.CodeType):
            self._add_each((value.co_code, value.co_names, value.co_consts))
        elif isinstance(value, functools.partial):
            self._add_each((value.func, value.args, value.keywords))
        elif isinstance(value, types.MethodType):
            self._add_each((value.__func__, value.__self__))
        elif isinstance(value, types.ModuleType):
            if not self._is_installed(value.__name__):
                self._add_variables(value)
        elif isinstance(value, type):
            self._add_text(value.__qualname__)
            if not self._is_installed(value.__module__):
                self._add_each(value.__bases__)
                self._add_variables(value)
        elif isinstance(value, staticmethod | classmethod):
            self.add(value.__func__)
        elif isinstance(value, property):
            self._add_each((value.fget, value.fset))
        elif isinstance(value, types.BuiltinFunctionType | np.ufunc):
            self._add_text(f"{getattr(value, '__module__', '')}.{value.__name__}")
        else:
            self._add_object(value)

    def _add_object(self, value: Any) -> None:  # noqa: ANN401 - anything
        inner = getattr(value, "__wrapped__", getattr(value, "py_func", None))  # of a cached or compiled function
        if inner is not None:
            self.add(inner)
            return
        self.add(type(value))
        try:
            if isinstance(value.__reduce_ex__(5), str):  # it would be pickled as its name alone
                self.complete = False
            self.hash.update(pickle.dumps(value, protocol=5))
        except Exception:  # pickling runs the value's own code, which may raise anything
            self.complete = False

    def _add_variables(self, owner: Any) -> None:  # noqa: ANN401 - a module or class
        for name, item in sorted(vars(owner).items()):
            if not (name.startswith("__") and name.endswith("__")) or isinstance(item, types.FunctionType):
                self._add_each((name, item))

    def _is_installed(self, module: str) -> bool:
        """Check whether a module comes with Python or a package; if so, its name and version are what is added."""
        top = module.partition(".")[0]
        package = sys.modules.get(top)
        file = getattr(package, "__file__", None) or ""
        if top == "__main__" or not (top in sys.stdlib_module_names or top == "cml" or "-packages" in file):
            return False
        version = "" if top == "cml" else getattr(package, "__version__", "")  # cml's numbers stay the same
        self._add_text(f"{module} {version}")
        return True

    def _add_array(self, array: np.ndarray[Any, Any]) -> None:
        self._add_text(f"{array.dtype.str}{array.shape}")
        if array.dtype.hasobject:
            self._add_each(array.ravel().tolist())
        else:
            self.hash.update(np.ascontiguousarray(array).data)

    def _add_each(self, items: Iterable[object]) -> None:
        listed = list(items)
        self._add_text(f"{len(listed)}")
        for item in listed:
            self.add(item)

    def _add_text(self, text: str) -> None:
        self.hash.update(f"{len(text)}:{text};".encode("utf-8", "surrogatepass"))


def _names(code: types.CodeType) -> set[str]:
    """Collect all names that a function's code uses, and those of the functions within it."""
    inner = (_names(item) for item in code.co_consts if isinstance(item, types.CodeType))
    return set(code.co_names).union(*inner)
