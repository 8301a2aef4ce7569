"""Read the variables of a TensorFlow 1 checkpoint without TensorFlow, and without running code.

A checkpoint `NAME` is a tensor bundle: `NAME.index` is a sorted table (the SSTable of LevelDB,
blocks not compressed) from names of variables to records of type, shape, offset, size and checksum,
and `NAME.data-00000-of-00001` holds their bytes. Records are messages in the wire format of
protocol buffers. Everything read is bounded by the sizes of the files, and checked by its CRC-32C.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric.errors import InputError

INDEX_SUFFIX = ".index"
MAX_INDEX_BYTES = 2**26
"""The index of a Rainbow agent has a few kilobytes."""

MAX_DIMENSIONS = 8
FOOTER_BYTES, TRAILER_BYTES = 48, 5
TABLE_MAGIC = 0xDB4775248B80FB57
CRC_MASK = 0xA282EAD8
DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8"}
"""Numbers of the types of TensorFlow that are read: float32, float64, int32 and int64."""


class _FormatError(ValueError):
    """Something is not as the format requires."""


@dataclasses.dataclass(frozen=True)
class TensorRecord:
    """Where a variable is stored.

    Attributes:
        dtype: number of its type in TensorFlow.
        shape: its shape.
        shard: number of its data file.
        offset: of its first byte.
        size: in bytes.
        checksum: masked CRC-32C of its bytes.
        sliced: whether it is stored in parts.
    """

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    sliced: bool


@dataclasses.dataclass(frozen=True)
class TensorBundle:
    """The variables of a checkpoint.

    Attributes:
        prefix: the name of its files without their suffixes.
        records: by name of the variable.
        num_shards: number of data files.
    """

    prefix: Path
    records: dict[str, TensorRecord]
    num_shards: int

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TensorBundle:
        """Read the index of a checkpoint.

        Args:
            path: `NAME`, or the path of `NAME.index`.

        Returns:
            The bundle; no variable is read yet.

        Raises:
            InputError: if there is no such file, it is damaged, or it is of another format.
        """
        text = os.fspath(path)
        prefix = Path(text.removesuffix(INDEX_SUFFIX))
        index = Path(f"{prefix}{INDEX_SUFFIX}")
        if not index.is_file():
            raise InputError(f"{index}: there is no such file; name a checkpoint of TensorFlow.")
        if index.stat().st_size > MAX_INDEX_BYTES:
            raise InputError(f"{index} is too large for the index of a checkpoint.")
        try:
            return cls(prefix, *_read_index(index.read_bytes()))
        except _FormatError as error:
            raise InputError(
                f"{index} is no readable index of a TensorFlow checkpoint: {error}."
            ) from None

    def read(self, name: str, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
        """Read a variable.

        Args:
            name: its name.
            shape: the expected shape; None for any.

        Returns:
            The array.

        Raises:
            InputError: if there is no such variable, its shape is another one, its type is not a
                number, or its bytes are missing or damaged.
        """
        record = self.records.get(name)
        where = f"{self.prefix}: the variable {name}"
        if record is None:
            raise InputError(f"{self.prefix}: there is no variable {name} in this checkpoint.")
        if shape is not None and record.shape != shape:
            raise InputError(f"{where} has the shape {record.shape} and must have {shape}.")
        if record.dtype not in DTYPES or record.sliced:
            raise InputError(f"{where} is not a plain array of numbers.")
        dtype = np.dtype(DTYPES[record.dtype])
        if record.size != math.prod(record.shape) * dtype.itemsize:
            raise InputError(f"{where} has {record.size} bytes, which do not fit its shape.")
        file = Path(f"{self.prefix}.data-{record.shard:05d}-of-{self.num_shards:05d}")
        if not file.is_file():
            raise InputError(f"{where} is in {file.name}, which is missing beside the index.")
        if record.offset + record.size > file.stat().st_size:
            raise InputError(f"{where} is beyond the end of {file.name}, which is incomplete.")
        with open(file, "rb") as stream:
            stream.seek(record.offset)
            data = stream.read(record.size)
        if mask_checksum(compute_crc32c(data)) != record.checksum:
            raise InputError(f"{where} has another checksum than recorded; {file.name} is damaged.")
        return np.frombuffer(data, dtype).reshape(record.shape)


def _read_index(data: bytes) -> tuple[dict[str, TensorRecord], int]:
    """Return the records and the number of data files of an index."""
    if len(data) < FOOTER_BYTES:
        raise _FormatError("it is too short")
    footer = data[-FOOTER_BYTES:]
    if int.from_bytes(footer[-8:], "little") != TABLE_MAGIC:
        raise _FormatError("it has another format")
    _, position = _read_handle(footer, 0)
    (offset, size), _ = _read_handle(footer, position)
    records: dict[str, TensorRecord] = {}
    num_shards = None
    for _, handle in _iterate_block(_read_block(data, offset, size)):
        (block_offset, block_size), _ = _read_handle(handle, 0)
        for key, value in _iterate_block(_read_block(data, block_offset, block_size)):
            if not key:
                num_shards = _read_header(value)
                continue
            name = key.decode("utf-8", "replace")
            if name in records:
                raise _FormatError(f"it has the variable {name[:80]} twice")
            records[name] = _read_record(value)
    if num_shards is None:
        raise _FormatError("it has no header")
    return records, num_shards


def _read_block(data: bytes, offset: int, size: int) -> bytes:
    """Return the contents of a block; its trailer is a compression type and a checksum."""
    end = offset + size
    if end + TRAILER_BYTES > len(data):
        raise _FormatError("a block is beyond its end")
    if data[end] != 0:
        raise _FormatError("a block is compressed, which TensorFlow does not do")
    expected = int.from_bytes(data[end + 1 : end + TRAILER_BYTES], "little")
    if mask_checksum(compute_crc32c(data[offset : end + 1])) != expected:
        raise _FormatError("a block has another checksum than recorded")
    return data[offset:end]


def _iterate_block(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values; a key shares its first bytes with the one before."""
    if len(block) < 4:
        raise _FormatError("a block is too short")
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if end < 0:
        raise _FormatError("a block is too short for its restart points")
    position, key = 0, b""
    while position < end:
        shared, position = _read_varint(block, position)
        own, position = _read_varint(block, position)
        length, position = _read_varint(block, position)
        if shared > len(key) or position + own + length > end:
            raise _FormatError("an entry is beyond the end of its block")
        key = key[:shared] + block[position : position + own]
        position += own
        yield key, block[position : position + length]
        position += length


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return an unsigned number of at most 64 bits, 7 per byte, and the position after it."""
    value = 0
    for shift in range(0, 64, 7):
        if position >= len(data):
            raise _FormatError("a number is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), position
    raise _FormatError("a number has too many bytes")


def _read_handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Return offset and size of a block, and the position after them."""
    offset, position = _read_varint(data, position)
    size, position = _read_varint(data, position)
    return (offset, size), position


def _iterate_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message of protocol buffers: numbers, or bytes."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        kind, value = tag & 7, b""
        if kind == 0:
            number, position = _read_varint(message, position)
            yield tag >> 3, number
            continue
        if kind in (1, 5):
            length = 8 if kind == 1 else 4
        elif kind == 2:
            length, position = _read_varint(message, position)
        else:
            raise _FormatError("a record has a field of an unknown kind")
        value = message[position : position + length]
        if len(value) < length:
            raise _FormatError("a record is cut off")
        position += length
        yield tag >> 3, value if kind == 2 else int.from_bytes(value, "little")


def _require(value: int | bytes, kind: type) -> Any:
    if not isinstance(value, kind):
        raise _FormatError("a record has a field of another kind")
    return value


def _read_header(message: bytes) -> int:
    """Return the number of data files of a header; field 1, and field 2 is the byte order."""
    fields = dict(_iterate_fields(message))
    if fields.get(2, 0) != 0:
        raise _FormatError("its numbers are big-endian")
    num_shards = int(_require(fields.get(1, 1), int))
    if not 1 <= num_shards <= 99_999:
        raise _FormatError(f"it has {num_shards} data files")
    return num_shards


def _read_record(message: bytes) -> TensorRecord:
    """Return the record of a variable."""
    numbers = {1: 0, 3: 0, 4: 0, 5: 0, 6: 0}
    shape: tuple[int, ...] = ()
    sliced = False
    for field, value in _iterate_fields(message):
        if field in numbers:
            numbers[field] = int(_require(value, int))
        elif field == 2:
            shape = _read_shape(_require(value, bytes))
        elif field == 7:
            sliced = True
    return TensorRecord(
        dtype=numbers[1],
        shape=shape,
        shard=numbers[3],
        offset=numbers[4],
        size=numbers[5],
        checksum=numbers[6],
        sliced=sliced,
    )


def _read_shape(message: bytes) -> tuple[int, ...]:
    """Return a shape: field 2 repeats a dimension, whose field 1 is its size."""
    sizes = []
    for field, value in _iterate_fields(message):
        if field == 2:
            dimension = dict(_iterate_fields(_require(value, bytes)))
            sizes.append(int(_require(dimension.get(1, 0), int)))
    if len(sizes) > MAX_DIMENSIONS or any(size >= 2**63 for size in sizes):
        raise _FormatError("a variable has an impossible shape")
    return tuple(sizes)


def mask_checksum(crc: int) -> int:
    """Return a CRC-32C as LevelDB stores it: rotated by 15 bits, plus a constant.

    >>> hex(mask_checksum(0))
    '0xa282ead8'
    """
    return (((crc >> 15) | (crc << 17)) + CRC_MASK) & 0xFFFFFFFF


def compute_crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of bytes.

    >>> hex(compute_crc32c(b"123456789"))
    '0xe3069283'
    """
    return int(_update_crc(np.frombuffer(data, np.uint8), _build_crc_table()))


def _build_crc_table() -> NDArray[np.uint32]:
    """Return the CRC of each byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ np.where(table & 1, 0x82F63B78, 0).astype(np.uint32)
    return table


@njit(cache=True)
def _update_crc(data: Any, table: Any) -> Any:
    crc = np.uint32(0xFFFFFFFF)
    for byte in data:
        crc = table[(crc ^ byte) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)
