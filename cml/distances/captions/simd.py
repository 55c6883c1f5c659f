"""Eight numbers at a time inside numba functions: a type, and the few operations that the caption kernels need.

numba has no vector type, and whether it turns a short loop into vector instructions changes with the code around it.
These values always are vectors: LLVM maps them to whatever the CPU has. The same kernels with plain loops give the same
bits and reach 0.5 times (all words) to 0.6 times (no stop words) the pairs a second, measured by turns on 1,200 images
of COCO. ``tests/benchmarks/captions.py`` has the bars that plain loops miss (128 and 344 times gensim's loop instead of
226 and 502). Inside a compiled function:

    total = splat(0.0)
    for at in range(0, len(a), LANES):
        total = total + load(a, at) * load(b, at)

``+ - * |`` and ``<`` work lane by lane; so do ``minimum`` and ``where``. Lengths are padded to a multiple of LANES.
"""

import functools
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


def _instruction(typed: Callable[..., Any], build: Callable[..., Any]) -> Any:  # noqa: ANN401 - numba's intrinsic
    """An intrinsic: ``typed`` gets numba's context and types, ``build`` the context, builder, types and values."""

    @functools.wraps(typed)  # numba asks for the names of the arguments
    def instruction(context: Any, *kinds: Any) -> Any:  # noqa: ANN401 - numba types in, signature and builder out
        def _generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ANN401 - LLVM values
            return build(context, builder, signature.args, *values)

        return typed(context, *kinds), _generate

    return intrinsic(instruction)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:  # noqa: ANN401 - LLVM values
    start = builder.gep(context.make_array(kind)(context, builder, array).data, [at])
    return builder.bitcast(start, ir.VectorType(_IR[kind.dtype], LANES).as_pointer())


def _splat(builder: Any, number: Any) -> Any:  # noqa: ANN401 - LLVM values
    kind = ir.VectorType(number.type, LANES)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_INT32, LANES), [0] * LANES))


def _store(context: Any, builder: Any, kinds: Any, array: Any, at: Any, lanes: Any) -> Any:  # noqa: ANN401
    builder.store(lanes, _pointer(context, builder, kinds[0], array, at), align=8)
    return context.get_dummy_value()


def _minimum(_: Any, builder: Any, kinds: Any, a: Any, b: Any) -> Any:  # noqa: ANN401
    less = builder.fcmp_ordered("<", a, b) if kinds[0] == REAL else builder.icmp_signed("<", a, b)
    return builder.select(less, a, b)


def _keys(_: Any, builder: Any, kinds: Any, lanes: Any, keep: Any, first: Any) -> Any:  # noqa: ANN401
    bits = builder.and_(builder.bitcast(lanes, _NUMBERS.type), _splat(builder, keep))
    return builder.or_(bits, builder.add(_splat(builder, first), _NUMBERS))


def _least(_: Any, builder: Any, kinds: Any, lanes: Any) -> Any:  # noqa: ANN401
    kind = ir.FunctionType(_IR[types.int64], [_NUMBERS.type])
    declare: Any = cgutils.get_or_insert_function
    return builder.call(declare(builder.module, kind, f"llvm.vector.reduce.smin.v{LANES}i64"), [lanes])


# load(array, at): the LANES numbers of an array from an index on; not checked
load = _instruction(
    lambda _, array, at: Lanes(array.dtype)(array, types.int64),
    lambda context, builder, kinds, array, at: builder.load(_pointer(context, builder, kinds[0], array, at), align=8),
)
# store(array, at, lanes): write them there; not checked
store = _instruction(lambda _, array, at, lanes: types.void(array, types.int64, lanes), _store)


def _splat_type(_: Any, number: Any) -> Any:  # noqa: ANN401
    kind = types.float64 if isinstance(number, types.Float) else types.int64
    return Lanes(kind)(kind)


# splat(number): the same number in every lane
splat = _instruction(_splat_type, lambda _, builder, kinds, number: _splat(builder, number))
# minimum(a, b): the smaller number of each lane
minimum = _instruction(lambda _, a, b: a(a, a), _minimum)
# where(mask, a, b): lanes of a where the mask is true, of b elsewhere
where = _instruction(lambda _, mask, a, b: a(mask, a, a), lambda _, builder, kinds, *values: builder.select(*values))
# keys(lanes, keep, first): bits of float64 lanes >= 0, ``keep`` of them, with the lanes' numbers from ``first`` on in
# the bits below. They order like the numbers, so one minimum finds the least number and where it is.
keys = _instruction(lambda _, lanes, keep, first: WHOLE(lanes, types.int64, types.int64), _keys)
# least(lanes): the smallest of int64 lanes
least = _instruction(lambda _, lanes: types.int64(lanes), _least)


def _operator(symbol: Callable[..., Any], real: str, whole: str, result: Lanes | None = None) -> None:
    """Give lanes the Python operator ``symbol``; ``real`` and ``whole`` name its llvmlite builder method."""

    def _generate(_: Any, builder: Any, kinds: Any, *values: Any) -> Any:  # noqa: ANN401
        method = getattr(builder, real if kinds[0] == REAL else whole)
        return method("<", *values) if result is MASK else method(*values)

    apply = _instruction(lambda _, a, b: (result or a)(a, b), _generate)

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
