"""Four float64 numbers that a compiled loop handles at once, for short loops that the compiler leaves scalar.

numba turns long loops into vector instructions by itself. A few running sums that are read and written again at every
step are not such a loop. ``Lanes`` are a vector of LLVM: of a flat float64 array, ``load`` takes four entries and
``store`` puts them back.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, models, register_model

_VECTOR = ir.VectorType(ir.DoubleType(), 4)
_INDEX = ir.IntType(32)
_FLAGS = ("nnan", "ninf", "nsz", "reassoc", "contract")  # as ``compile_loop.FREE``


class Lanes(types.Type):
    """The type of four float64 numbers in compiled code."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


LANES = Lanes()


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, of: Lanes) -> None:  # noqa: ANN401 - numba has no type
        super().__init__(manager, of, _VECTOR)  # type: ignore[no-untyped-call]


def _operation(build: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Make an operation of compiled code from what gives its types and writes its instructions."""
    return intrinsic(build)


def _place(context: Any, builder: Any, kind: Any, array: Any, start: Any) -> Any:  # noqa: ANN401
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [start]), _VECTOR.as_pointer())


def _spread(builder: Any, number: Any) -> Any:  # noqa: ANN401
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    one = builder.insert_element(nothing, number, ir.Constant(_INDEX, 0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_INDEX, 4), [0] * 4))


@_operation
def load(_: Any, array: Any, start: Any) -> Any:  # noqa: ANN401
    """The entries start, ..., start + 3 of a flat array."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        lanes = builder.load(_place(context, builder, signature.args[0], *arguments))
        lanes.align = 8
        return lanes

    return LANES(array, types.intp), build


@_operation
def store(_: Any, array: Any, start: Any, lanes: Any) -> Any:  # noqa: ANN401
    """Write the entries start, ..., start + 3 of a flat array."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        place = _place(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], place).align = 8
        return context.get_dummy_value()

    return types.void(array, types.intp, LANES), build


@_operation
def four(_: Any, a: Any, b: Any, c: Any, d: Any) -> Any:  # noqa: ANN401
    """Lanes of four numbers."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        lanes = ir.Constant(_VECTOR, ir.Undefined)
        for place, number in enumerate(arguments):
            lanes = builder.insert_element(lanes, number, ir.Constant(_INDEX, place))
        return lanes

    return LANES(*[types.float64] * 4), build


@_operation
def times(_: Any, lanes: Any, others: Any) -> Any:  # noqa: ANN401
    """The products of lanes with others, or with one number."""
    is_number = others != LANES

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        right = _spread(builder, arguments[1]) if is_number else arguments[1]
        return builder.fmul(arguments[0], right, flags=_FLAGS)

    return LANES(LANES, types.float64 if is_number else LANES), build


@_operation
def plus(_: Any, lanes: Any, others: Any) -> Any:  # noqa: ANN401
    """The sums of lanes."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.fadd(*arguments, flags=_FLAGS)

    return LANES(LANES, LANES), build


@_operation
def total(_: Any, lanes: Any) -> Any:  # noqa: ANN401
    """The sum of the four numbers."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        a, b, c, d = (builder.extract_element(arguments[0], ir.Constant(_INDEX, place)) for place in range(4))
        return builder.fadd(builder.fadd(a, c, flags=_FLAGS), builder.fadd(b, d, flags=_FLAGS), flags=_FLAGS)

    return types.float64(LANES), build


@_operation
def first(_: Any, lanes: Any) -> Any:  # noqa: ANN401
    """The first of the four numbers."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.extract_element(arguments[0], ir.Constant(_INDEX, 0))

    return types.float64(LANES), build
