"""What a value says, as a digest: a label of any form, or a function with everything of your own that it refers to."""
# Of installed packages the name and version count, of your own functions and classes the code, constants, closures and
# the globals that they use. What a function reads from files or the network cannot be seen.

import functools
import hashlib
import pickle
import sys
import types
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))


class Content(NamedTuple):
    """What ``content`` finds."""

    digest: str  # 32 hex digits
    complete: bool  # all of the value is in it


def content(value: object) -> Content:
    """Digest a value, as the head of this file says."""
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
        self._say(f"{kind.__module__}.{kind.__qualname__}")
        if kind in _PLAIN:
            self._say(repr(value))
        elif kind in (list, tuple):
            self._each(value)
        elif kind in (set, frozenset):
            self._say(repr(sorted(content(item) for item in value)))
        elif kind is dict:
            self._each(item for pair in sorted(value.items(), key=lambda pair: content(pair[0])) for item in pair)
        elif isinstance(value, np.ndarray | np.generic):
            self._array(np.asarray(value))
        elif hasattr(value, "detach") and hasattr(value, "numpy"):  # a tensor
            self._array(value.detach().cpu().numpy())
        elif isinstance(value, PurePath):
            self._say(str(value))
        elif id(value) in self._seen:
            self._say(str(list(self._seen).index(id(value))))
        else:
            self._seen[id(value)] = value
            self._code(value)

    def _code(self, value: Any) -> None:  # noqa: ANN401 - anything
        if isinstance(value, types.FunctionType):
            self._each((value.__code__, value.__defaults__, value.__kwdefaults__))
            for cell in value.__closure__ or ():
                self.add(cell.cell_contents)
            for name in sorted(_names(value.__code__) & value.__globals__.keys()):
                self._each((name, value.__globals__[name]))
        elif isinstance(value, types.CodeType):
            self._each((value.co_code, value.co_names, value.co_consts))
        elif isinstance(value, functools.partial):
            self._each((value.func, value.args, value.keywords))
        elif isinstance(value, types.MethodType):
            self._each((value.__func__, value.__self__))
        elif isinstance(value, types.ModuleType):
            if not self._installed(value.__name__):
                self._variables(value)
        elif isinstance(value, type):
            self._say(value.__qualname__)
            if not self._installed(value.__module__):
                self._each(value.__bases__)
                self._variables(value)
        elif isinstance(value, staticmethod | classmethod):
            self.add(value.__func__)
        elif isinstance(value, property):
            self._each((value.fget, value.fset))
        elif isinstance(value, types.BuiltinFunctionType | np.ufunc):
            self._say(f"{getattr(value, '__module__', '')}.{value.__name__}")
        elif (inner := getattr(value, "__wrapped__", getattr(value, "py_func", None))) is not None:
            self.add(inner)  # of a cached or compiled function
        else:
            self.add(type(value))
            try:
                if isinstance(value.__reduce_ex__(5), str):  # it would be pickled as its name alone
                    self.complete = False
                self.hash.update(pickle.dumps(value, protocol=5))
            except Exception:  # pickling runs the value's own code, which may raise anything
                self.complete = False

    def _variables(self, owner: Any) -> None:  # noqa: ANN401 - a module or class
        for name, item in sorted(vars(owner).items()):
            if not (name.startswith("__") and name.endswith("__")) or isinstance(item, types.FunctionType):
                self._each((name, item))

    def _installed(self, module: str) -> bool:
        """Whether a module comes with Python or a package; then its name and version are what is known of it."""
        top = module.partition(".")[0]
        package = sys.modules.get(top)
        file = getattr(package, "__file__", None) or ""
        if top == "__main__" or not (top in sys.stdlib_module_names or top == "cml" or "-packages" in file):
            return False
        version = "" if top == "cml" else getattr(package, "__version__", "")  # cml's numbers stay the same
        self._say(f"{module} {version}")
        return True

    def _array(self, array: np.ndarray[Any, Any]) -> None:
        self._say(f"{array.dtype.str}{array.shape}")
        if array.dtype.hasobject:
            self._each(array.ravel().tolist())
        else:
            self.hash.update(np.ascontiguousarray(array).data)

    def _each(self, items: Iterable[object]) -> None:
        listed = list(items)
        self._say(f"{len(listed)}")
        for item in listed:
            self.add(item)

    def _say(self, text: str) -> None:
        self.hash.update(f"{len(text)}:{text};".encode("utf-8", "surrogatepass"))


def _names(code: types.CodeType) -> set[str]:
    """All names that a function's code uses, and those of the functions within it."""
    inner = (_names(item) for item in code.co_consts if isinstance(item, types.CodeType))
    return set(code.co_names).union(*inner)
