"""The words of large text files, line by line, read in blocks and turned into arrays at once."""

from __future__ import annotations

import dataclasses
import fractions
from collections.abc import Iterator
from typing import IO

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError

BLOCK_BYTES = 1 << 22
"""Bytes read at a time."""

MAX_DIGITS = 18
_WHITESPACE = np.isin(np.arange(256), np.frombuffer(b" \t\r\n\f\v", dtype=np.uint8))


@dataclasses.dataclass(frozen=True)
class TokenBlock:
    """The words of some whole lines of a file.

    `first` and `count` (lines,) are, for each line that is not empty, the index of its first
    word and how many it has; `line` is its number in the file, from 1. `start` and `length`
    (words,) are where the words lie in `text`.
    """

    path: str
    text: NDArray[np.uint8]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    first_token: NDArray[np.int64]
    num_tokens: NDArray[np.int64]
    line_number: NDArray[np.int64]

    def find_line(self, token: int) -> int:
        """The number of the line that a word stands in."""
        return int(self.line_number[np.searchsorted(self.first_token, token, side="right") - 1])

    def to_bytes(self, tokens: NDArray[np.int64]) -> NDArray[np.bytes_]:
        """Some words as bytes."""
        letters, width = self._gather_bytes(tokens)
        return np.ascontiguousarray(letters).view(f"S{width}").ravel()

    def to_integers(self, tokens: NDArray[np.int64], name: str) -> NDArray[np.int64]:
        """Some words as whole numbers, at least 0; `what` names them in errors."""
        letters, width = self._gather_bytes(tokens)
        inside = np.arange(width) < self.length[tokens][:, None]
        digits = letters.astype(np.int64) - ord("0")
        wrong = (((digits < 0) | (digits > 9)) & inside).any(axis=1)
        if width > MAX_DIGITS:
            wrong |= self.length[tokens] > MAX_DIGITS
        if wrong.any():
            self._reject(tokens[np.argmax(wrong)], f"no {name}")
        value = np.zeros(len(tokens), dtype=np.int64)
        for place in range(width):
            value = np.where(inside[:, place], value * 10 + digits[:, place], value)
        return value

    def to_floats(self, tokens: NDArray[np.int64], name: str) -> NDArray[np.float64]:
        """Some words as numbers, such as 0.5, 5e-6 or 1/3; `what` names them in errors."""
        texts = self.to_bytes(tokens)
        try:
            values = texts.astype(np.float64)
        except ValueError:
            values = self._parse_fractions(tokens, texts, name)
        wrong = ~np.isfinite(values)
        if wrong.any():
            self._reject(tokens[np.argmax(wrong)], f"no {name}")
        return values

    def _parse_fractions(
        self, tokens: NDArray[np.int64], texts: NDArray[np.bytes_], name: str
    ) -> NDArray[np.float64]:
        different, back = np.unique(texts, return_inverse=True)
        values = np.full(len(different), np.nan)
        for index, each in enumerate(different.tolist()):
            try:
                values[index] = fractions.Fraction(each.decode("ascii"))
            except (ValueError, ZeroDivisionError):
                self._reject(tokens[np.argmax(back == index)], f"no {name}")
        return values[back]

    def _gather_bytes(self, tokens: NDArray[np.int64]) -> tuple[NDArray[np.uint8], int]:
        """Some words as rows of bytes, filled up with 0, and how wide the rows are."""
        length = self.length[tokens]
        width = int(length.max(initial=1))
        place = np.arange(width)
        index = np.minimum(self.start[tokens][:, None] + place, len(self.text) - 1)
        return np.where(place < length[:, None], self.text[index], np.uint8(0)), width

    def _reject(self, token: np.int64, problem: str) -> None:
        start = self.start[token]
        text = bytes(self.text[start : start + self.length[token]]).decode("utf-8", "replace")
        raise InputError(
            f"{self.path}: line {self.find_line(int(token))}: {text[:40]!r} is {problem}."
        )


def read_tokens(
    file: IO[bytes], path: str, line_number: int, separators: bytes = b""
) -> Iterator[TokenBlock]:
    """The words of the rest of a file, in blocks of whole lines; `line` is the next line's number.

    Words are what lies between white space, and the bytes of `gaps`.

    >>> import io
    >>> [block] = words_of(io.BytesIO(b"10 0.5\\n\\n7 1/4\\n"), "doc", 1)
    >>> block.integers(block.first, "state"), block.numbers(block.first + 1, "probability")
    (array([10,  7]), array([0.5 , 0.25]))
    >>> block.line
    array([1, 3])
    """
    is_gap = _WHITESPACE.copy()
    is_gap[np.frombuffer(separators, dtype=np.uint8)] = True
    rest = b""
    while True:
        read = file.read(BLOCK_BYTES)
        block = rest + read
        cut = block.rfind(b"\n") + 1 if read else len(block)
        block, rest = block[:cut], block[cut:]
        if block:
            found = _tokenize(np.frombuffer(block, dtype=np.uint8), path, line_number, is_gap)
            line_number += block.count(b"\n")
            if len(found.first_token):
                yield found
        if not read:
            return


def _tokenize(
    text: NDArray[np.uint8], path: str, line_number: int, is_separator: NDArray[np.bool_]
) -> TokenBlock:
    inside = np.zeros(len(text) + 2, dtype=np.int8)
    inside[1:-1] = ~is_separator[text]
    edges = np.diff(inside)
    start, end = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    row = np.searchsorted(np.flatnonzero(text == ord("\n")), start)
    first = np.flatnonzero(np.diff(row, prepend=-1))
    count = np.diff(first, append=len(start))
    return TokenBlock(path, text, start, end - start, first, count, row[first] + line_number)
