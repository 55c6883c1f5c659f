"""Eight numbers at a time inside numba functions: a type, and the few operations that the kernels here need.

numba has no vector type, and whether it turns a short loop into vector instructions changes with the code around it.
These values always are vectors: LLVM maps them to whatever the processor has, so they run everywhere. What they gain,
measured by turns in one session (strips of ``tests/benchmarks/distance.py``, the same bits): 23,700 to 25,400 image
pairs a second with all words and 72,000 to 73,000 without stop words; with plain loops in their place 13,000 to 13,400
and 41,000 to 44,000. Inside a compiled function:

    total = splat(0.0)
    for at in range(0, len(a), LANES):
        total = total + load(a, at) * load(b, at)

``+ - * |`` and ``<`` work lane by lane; so do ``minimum`` and ``where``. Not for: lengths that are no multiple of
LANES (pad them).
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, overload, register_model

LANES = 8
_INT32 = ir.IntType(32)
_IR = {types.float64: ir.DoubleType(), types.int64: ir.IntType(64), types.boolean: ir.IntType(1)}


class Lanes(types.Type):
    """The numba type of LANES float64, int64 or boolean values."""

    def __init__(self, number: Any) -> None:  # noqa: ANN401 - a numba type
        super().__init__(name=f"Lanes({number})")
        self.number = number


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Lanes) -> None:  # noqa: ANN401 - numba's data model manager
        super().__init__(manager, kind, ir.VectorType(_IR[kind.number], LANES))  # type: ignore[no-untyped-call]


REAL, WHOLE, MASK = Lanes(types.float64), Lanes(types.int64), Lanes(types.boolean)
_NUMBERS = ir.Constant(ir.VectorType(_IR[types.int64], LANES), list(range(LANES)))


def _pointer(context: Any, builder: Any, array: Any, value: Any, at: Any) -> Any:  # noqa: ANN401 - LLVM values
    start = builder.gep(context.make_array(array)(context, builder, value).data, [at])
    return builder.bitcast(start, ir.VectorType(_IR[array.dtype], LANES).as_pointer())


def _splat(builder: Any, number: Any) -> Any:  # noqa: ANN401 - LLVM values
    kind = ir.VectorType(number.type, LANES)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_INT32, LANES), [0] * LANES))


def _intrinsic(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - what numba makes of it
    return intrinsic(function)


@_intrinsic
def load(_: Any, array: Any, at: Any) -> Any:  # noqa: ANN401 - numba types in, signature and builder out
    """The LANES numbers of ``array`` from index ``at`` on; not checked."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ANN401
        return builder.load(_pointer(context, builder, signature.args[0], *values), align=8)

    return Lanes(array.dtype)(array, types.int64), build


@_intrinsic
def store(_: Any, array: Any, at: Any, lanes: Any) -> Any:  # noqa: ANN401
    """Write ``lanes`` to ``array`` from index ``at`` on; not checked."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ANN401
        builder.store(values[2], _pointer(context, builder, signature.args[0], *values[:2]), align=8)
        return context.get_dummy_value()

    return types.void(array, types.int64, lanes), build


@_intrinsic
def splat(_: Any, number: Any) -> Any:  # noqa: ANN401
    """The same number in every lane."""
    kind = types.float64 if isinstance(number, types.Float) else types.int64

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ANN401
        return _splat(builder, values[0])

    return Lanes(kind)(kind), build


@_intrinsic
def minimum(_: Any, a: Any, b: Any) -> Any:  # noqa: ANN401
    """The smaller number of each lane."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ANN401
        a, b = values
        less = builder.fcmp_ordered("<", a, b) if signature.args[0] == REAL else builder.icmp_signed("<", a, b)
        return builder.select(less, a, b)

    return a(a, a), build


@_intrinsic
def where(_: Any, mask: Any, a: Any, b: Any) -> Any:  # noqa: ANN401
    """Lanes of ``a`` where ``mask`` is true, of ``b`` elsewhere."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ANN401
        return builder.select(*values)

    return a(mask, a, a), build


@_intrinsic
def keys(_: Any, lanes: Any, keep: Any, first: Any) -> Any:  # noqa: ANN401
    """Bits of float64 lanes >= 0, ``keep`` of them, with the lanes' numbers from ``first`` on in the bits below.

    They order like the numbers, so one minimum finds the least number and where it is.
    """

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ANN401
        bits = builder.and_(builder.bitcast(values[0], _NUMBERS.type), _splat(builder, values[1]))
        return builder.or_(bits, builder.add(_splat(builder, values[2]), _NUMBERS))

    return WHOLE(lanes, types.int64, types.int64), build


@_intrinsic
def least(_: Any, lanes: Any) -> Any:  # noqa: ANN401
    """The smallest of int64 lanes."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ANN401
        kind = ir.FunctionType(_IR[types.int64], [_NUMBERS.type])
        declare: Any = cgutils.get_or_insert_function
        return builder.call(declare(builder.module, kind, f"llvm.vector.reduce.smin.v{LANES}i64"), values)

    return types.int64(lanes), build


def _operator(symbol: Callable[..., Any], real: str, whole: str, result: Lanes | None = None) -> None:
    """Give lanes the Python operator ``symbol``; ``real`` and ``whole`` name its llvmlite builder method."""

    @_intrinsic
    def apply(_: Any, a: Any, b: Any) -> Any:  # noqa: ANN401
        def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ANN401
            name = real if signature.args[0] == REAL else whole
            if name.endswith("cmp_ordered") or name.endswith("cmp_signed"):
                return getattr(builder, name)("<", *values)
            return getattr(builder, name)(*values)

        return (result or a)(a, b), build

    @overload(symbol)
    def lanewise(a: Any, b: Any) -> Any:  # noqa: ANN401
        def call(a: Any, b: Any) -> Any:  # noqa: ANN401
            return apply(a, b)

        return call if isinstance(a, Lanes) and a == b else None


_operator(operator.add, "fadd", "add")
_operator(operator.sub, "fsub", "sub")
_operator(operator.mul, "fmul", "mul")
_operator(operator.or_, "", "or_")
_operator(operator.lt, "fcmp_ordered", "icmp_signed", MASK)
