"""Instructions of the processor that Numba has no functions for."""

from __future__ import annotations

import platform
import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as numba_intrinsic


def intrinsic(function: Any) -> Any:
    """Return a function for compiled code; its callers leave out the typing context."""
    return numba_intrinsic(function)


@intrinsic
def claim_part(typing_context: Any, counter: Any) -> Any:
    """Return the first entry of an int64 array, and increase it by 1, atomically."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        one = context.get_constant(types.int64, 1)
        return builder.atomic_rmw("add", array.data, one, "monotonic")

    return types.int64(counter), generate


@intrinsic
def increase(typing_context: Any, array: Any, index: Any) -> Any:
    """Increase an entry of an int64 array by 1, atomically, after all writes of this thread."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        one = context.get_constant(types.int64, 1)
        builder.atomic_rmw("add", builder.gep(data, [arguments[1]]), one, "release")
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def load(typing_context: Any, array: Any, index: Any) -> Any:
    """Return an entry of an int64 array, with all writes before the `increase` that it shows."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.load_atomic(builder.gep(data, [arguments[1]]), "acquire", 8)

    return types.int64(array, types.int64), generate


@intrinsic
def pause(typing_context: Any) -> Any:
    """Let a core wait for some cycles, where it has an instruction for that."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if platform.machine().lower() in ("x86_64", "amd64"):
            form = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), form), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def yield_core(typing_context: Any) -> Any:
    """Let other threads run on the core of this one, if any wait for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        name = "SwitchToThread" if sys.platform == "win32" else "sched_yield"
        form = ir.FunctionType(ir.IntType(32), [])
        function = cgutils.get_or_insert_function(builder.module, form, name)  # type: ignore[no-untyped-call]
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), generate


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


@intrinsic
def replace_last_bits(typing_context: Any, number: Any, mask: Any, bits: Any) -> Any:
    """Return a float whose last bits, those in an integer mask, are replaced."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(number.bitwidth)
        whole, mask_bits, new_bits = (
            builder.bitcast(arguments[0], integer),
            *(
                builder.trunc(each, integer) if number.bitwidth < 64 else each
                for each in arguments[1:]
            ),
        )
        kept = builder.and_(whole, builder.not_(mask_bits))
        return builder.bitcast(builder.or_(kept, new_bits), arguments[0].type)

    return number(number, types.int64, types.int64), generate


VECTOR_BYTES = 32
"""Bytes that `transpose_block` reads and writes at a time."""


@intrinsic
def transpose_block(
    typing_context: Any,
    source: Any,
    rows: Any,
    first: Any,
    stride: Any,
    column: Any,
    out: Any,
    start: Any,
    out_stride: Any,
) -> Any:
    """Set out[start + j * out_stride + i] = source[rows[first + i] * stride + column + j].

    i and j are less than the numbers in `VECTOR_BYTES`. All arrays are contiguous; `rows` is
    unsigned.
    """
    width = VECTOR_BYTES * 8 // source.dtype.bitwidth

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def get_array(k: int) -> Any:
            return context.make_array(signature.args[k])(context, builder, arguments[k])

        number = ir.IntType(64)
        source_data, row_data, out_data = (get_array(k).data for k in (0, 1, 5))
        vector = ir.VectorType(source_data.type.pointee, width).as_pointer()
        alignment = source.dtype.bitwidth // 8

        def address(data: Any, index: Any) -> Any:
            return builder.bitcast(builder.gep(data, [index]), vector)

        vectors = []
        for i in range(width):
            row = builder.load(builder.gep(row_data, [builder.add(arguments[2], number(i))]))
            row = builder.zext(row, number) if row.type != number else row
            index = builder.add(builder.mul(row, arguments[3]), arguments[4])
            vectors.append(builder.load(address(source_data, index), align=alignment))
        for j, each in enumerate(_transpose(builder, vectors)):
            index = builder.add(arguments[6], builder.mul(arguments[7], number(j)))
            builder.store(each, address(out_data, index), align=alignment)
        return context.get_dummy_value()

    integer = types.int64
    return types.void(source, rows, integer, integer, integer, out, integer, integer), generate


def _transpose(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose a square matrix of vectors: exchange blocks of 1, 2, 4 ... entries."""
    rows, size, block = list(rows), len(rows), 1
    while block < size:
        first = [j if not j & block else size + j - block for j in range(size)]
        second = [j + block if not j & block else size + j for j in range(size)]
        for i in range(size):
            if not i & block:
                pair = rows[i], rows[i + block]
                for k, order in ((i, first), (i + block, second)):
                    mask = ir.Constant(ir.VectorType(ir.IntType(32), size), order)
                    rows[k] = builder.shuffle_vector(*pair, mask)
        block *= 2
    return rows
