"""Instructions of the processor that Numba has no functions for."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def claim_part(typing_context: Any, counter: Any) -> Any:
    """Return the first entry of an int64 array, and increase it by 1, atomically."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        one = context.get_constant(types.int64, 1)
        return builder.atomic_rmw("add", array.data, one, "monotonic")

    return types.int64(counter), generate


@intrinsic
def order_memory(typing_context: Any) -> Any:
    """Order reads and writes of this thread, as other threads see them."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("acq_rel")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Begin to read an entry of a contiguous array into the cache."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        form = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", (byte,), form)
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        # To be read; into the first cache; data, not instructions.
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate
