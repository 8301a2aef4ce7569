"""Write checkpoints of TensorFlow 1, to test their reader; it shares no code with it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

NUMBERS = {"float32": 1, "float64": 2, "int32": 3, "int64": 9}


@njit(cache=True)
def _compute_crc(data: Any) -> int:
    """Compute a CRC-32C bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def checksum(data: bytes) -> int:
    """Compute the masked CRC-32C."""
    crc = int(_compute_crc(np.frombuffer(data, np.uint8).astype(np.int64)))
    return (((crc >> 15) | (crc << 17) & 0xFFFFFFFF) + 0xA282EAD8) % 2**32


def varint(value: int) -> bytes:
    out = b""
    while value >= 128:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


def field(number: int, value: int | bytes) -> bytes:
    """Encode a field of a message: a number, or a message of its own."""
    if isinstance(value, int):
        return varint(number * 8) + varint(value)
    return varint(number * 8 + 2) + varint(len(value)) + value


def entry(array: NDArray[Any], offset: int, **changes: Any) -> bytes:
    """Encode the record of an array."""
    sizes = b"".join(field(2, field(1, int(size))) for size in array.shape)
    data = array.tobytes()
    values = {"dtype": NUMBERS[array.dtype.name], "size": len(data)} | changes
    return (
        field(1, values["dtype"])
        + field(2, sizes)
        + (field(4, offset) if offset else b"")
        + field(5, values["size"])
        + varint(6 * 8 + 5)
        + struct.pack("<I", values.get("crc", checksum(data)))
    )


def block(entries: list[tuple[bytes, bytes]], compression: int = 0) -> bytes:
    """Encode a block with shared prefixes, one restart point, and its trailer."""
    body, before = b"", b""
    for key, value in entries:
        shared = 0
        while shared < min(len(key), len(before)) and key[shared] == before[shared]:
            shared += 1
        body += varint(shared) + varint(len(key) - shared) + varint(len(value))
        body += key[shared:] + value
        before = key
    body += struct.pack("<II", 0, 1)
    kind = bytes([compression])
    return body + kind + struct.pack("<I", checksum(body + kind))


def write_bundle(
    prefix: Path, arrays: Mapping[str, NDArray[Any]], *, compression: int = 0, **changes: Any
) -> Path:
    """Write a checkpoint; its index has at most three variables per block."""
    entries, data = [(b"", field(1, 1))], b""
    for name in sorted(arrays):
        entries.append((name.encode(), entry(arrays[name], len(data), **changes)))
        data += arrays[name].tobytes()
    index, handles = b"", []
    for start in range(0, len(entries), 3):
        part = entries[start : start + 3]
        encoded = block(part, compression)
        handles.append((part[-1][0] + b"~", varint(len(index)) + varint(len(encoded) - 5)))
        index += encoded
    empty, offset = block([]), len(index)
    index += empty
    top = block(handles)
    footer = varint(offset) + varint(len(empty) - 5)
    footer += varint(len(index)) + varint(len(top) - 5)
    index += top + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    Path(f"{prefix}.index").write_bytes(index)
    Path(f"{prefix}.data-00000-of-00001").write_bytes(data)
    return prefix
