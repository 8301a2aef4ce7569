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
def count_cycles(typing_context: Any) -> Any:
    """Return a counter of cycles of the processor, or 0 where programs cannot read it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if platform.machine().lower() not in ("x86_64", "amd64"):
            return ir.IntType(64)(0)
        form = ir.FunctionType(ir.IntType(64), [])
        return builder.call(
            cgutils.get_or_insert_function(builder.module, form, "llvm.readcyclecounter"),  # type: ignore[no-untyped-call]
            [],
        )

    return types.int64(), generate


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
def sleep_briefly(typing_context: Any) -> Any:
    """Sleep for some tens of microseconds, or the shortest time that the system can."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(32)
        if sys.platform == "win32":
            form, name, amount = ir.FunctionType(ir.VoidType(), [number]), "Sleep", 1
        else:
            form, name, amount = ir.FunctionType(number, [number]), "usleep", 50
        function = cgutils.get_or_insert_function(builder.module, form, name)  # type: ignore[no-untyped-call]
        builder.call(function, [number(amount)])
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


PACK_BYTES = 2**13
"""Memory for the arguments of a packed call."""
FAILED = -2
"""What a packed call returns after an error."""


@intrinsic
def pack_call(typing_context: Any, kernel: Any, pack: Any, arguments: Any) -> Any:
    """Store the arguments (progress, parts, ...) of `kernel(progress, part, parts, ...)` in `pack`.

    Returns the address of a function for `call_packed`. Arrays are stored without references, so
    that callers must keep them.
    """
    progress, *rest = arguments.types
    called = kernel.get_call_type(typing_context, (progress, types.int64, *rest), {})

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _store_packed(context, builder, pack, arguments, values)
        return _build_call(
            context,
            builder,
            arguments,
            (kernel, called),
            1,
            lambda each, numbers: [each[0], *numbers, *each[1:]],
        )

    return types.int64(kernel, pack, arguments), generate


@intrinsic
def pack_rows(typing_context: Any, kernel: Any, pack: Any, arguments: Any) -> Any:
    """Store all arguments of `kernel(..., low, high)` but the last two in `pack`, as `pack_call`
    does; returns the address of a function for `call_rows`."""
    called = kernel.get_call_type(typing_context, (*arguments.types, types.int64, types.int64), {})

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _store_packed(context, builder, pack, arguments, values)
        return _build_call(
            context,
            builder,
            arguments,
            (kernel, called),
            2,
            lambda each, numbers: [*each, *numbers],
        )

    return types.int64(kernel, pack, arguments), generate


def _store_packed(context: Any, builder: Any, pack: Any, arguments: Any, values: Any) -> None:
    """Store a tuple at the beginning of an array."""
    kind = context.get_value_type(arguments)
    assert context.get_abi_sizeof(kind) <= PACK_BYTES
    data = context.make_array(pack)(context, builder, values[1]).data
    address = builder.bitcast(data, kind.as_pointer())
    builder.store(_remove_references(context, builder, arguments, values[2]), address)


def _build_call(
    context: Any, builder: Any, arguments: Any, target: Any, num_numbers: int, order: Any
) -> Any:
    """Build a function that calls another with packed arguments, and with numbers among them."""
    kernel, called = target
    result = kernel.dispatcher.get_compile_result(called)
    kind, number = context.get_value_type(arguments), ir.IntType(64)
    form = ir.FunctionType(number, [kind.as_pointer(), *[number] * num_numbers])
    function = ir.Function(builder.module, form, builder.module.get_unique_name("call_packed"))
    function.linkage = "internal"
    inner = ir.IRBuilder(function.append_basic_block())
    stored = inner.load(function.args[0])
    each = [inner.extract_value(stored, k) for k in range(len(arguments.types))]
    context.active_code_library.add_linking_library(result.library)
    status, value = context.call_internal_no_propagate(
        inner, result.fndesc, called, order(each, function.args[1:])
    )
    value = value if called.return_type == types.int64 else number(0)
    inner.ret(inner.select(status.is_ok, value, number(FAILED)))
    return builder.ptrtoint(function, number)


def _remove_references(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return arrays, also those in tuples, that are not counted as references."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        for field in ("meminfo", "parent"):
            null = cgutils.get_null_value(getattr(array, field).type)  # type: ignore[no-untyped-call]
            setattr(array, field, null)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        for k, each in enumerate(kind):  # type: ignore[arg-type, var-annotated]
            part = _remove_references(context, builder, each, builder.extract_value(value, k))
            value = builder.insert_value(value, part, k)
    return value


@intrinsic
def call_packed(typing_context: Any, function: Any, pack: Any, part: Any) -> Any:
    """Call a function from `pack_call`, at an address, for a part; returns the next one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(64)
        form = ir.FunctionType(number, [number, number]).as_pointer()
        return builder.call(builder.inttoptr(arguments[0], form), arguments[1:])

    return types.int64(types.int64, types.int64, types.int64), generate


@intrinsic
def call_rows(typing_context: Any, function: Any, pack: Any, low: Any, high: Any) -> Any:
    """Call a function from `pack_rows`, at an address; returns `FAILED` after an error."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(64)
        form = ir.FunctionType(number, [number] * 3).as_pointer()
        return builder.call(builder.inttoptr(arguments[0], form), arguments[1:])

    return types.int64(types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def add(typing_context: Any, array: Any, index: Any, amount: Any) -> Any:
    """Add to an entry of an int64 array, atomically, and return it as it was before. All threads
    see these additions in the same order."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.gep(data, [arguments[1]])
        return builder.atomic_rmw("add", address, arguments[2], "seq_cst")

    return types.int64(array, types.int64, types.int64), generate


@intrinsic
def load_at(typing_context: Any, address: Any) -> Any:
    """Return an int64 at an address, with all writes before the `increase` that it shows."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic
def store_at(typing_context: Any, address: Any, value: Any) -> Any:
    """Store an int64 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        builder.store_atomic(arguments[1], pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate
