"""The words of large text files, line by line, read in blocks and turned into arrays at once."""

from __future__ import annotations

import dataclasses
import fractions
from collections.abc import Iterator
from typing import IO

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError

BLOCK = 1 << 22
"""Bytes read at a time."""

MOST_DIGITS = 18
_GAPS = np.isin(np.arange(256), np.frombuffer(b" \t\r\n\f\v", dtype=np.uint8))


@dataclasses.dataclass(frozen=True)
class Words:
    """The words of some whole lines of a file.

    `first` and `count` (lines,) are, for each line that is not empty, the index of its first
    word and how many it has; `line` is its number in the file, from 1. `start` and `length`
    (words,) are where the words lie in `text`.
    """

    where: str
    text: NDArray[np.uint8]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    first: NDArray[np.int64]
    count: NDArray[np.int64]
    line: NDArray[np.int64]

    def line_of(self, word: int) -> int:
        """The number of the line that a word stands in."""
        return int(self.line[np.searchsorted(self.first, word, side="right") - 1])

    def texts(self, words: NDArray[np.int64]) -> NDArray[np.bytes_]:
        """Some words as bytes."""
        letters, width = self._letters(words)
        return np.ascontiguousarray(letters).view(f"S{width}").ravel()

    def integers(self, words: NDArray[np.int64], what: str) -> NDArray[np.int64]:
        """Some words as whole numbers, at least 0; `what` names them in errors."""
        letters, width = self._letters(words)
        inside = np.arange(width) < self.length[words][:, None]
        digits = letters.astype(np.int64) - ord("0")
        wrong = (((digits < 0) | (digits > 9)) & inside).any(axis=1)
        if width > MOST_DIGITS:
            wrong |= self.length[words] > MOST_DIGITS
        if wrong.any():
            self._refuse(words[np.argmax(wrong)], f"no {what}")
        value = np.zeros(len(words), dtype=np.int64)
        for place in range(width):
            value = np.where(inside[:, place], value * 10 + digits[:, place], value)
        return value

    def numbers(self, words: NDArray[np.int64], what: str) -> NDArray[np.float64]:
        """Some words as numbers, such as 0.5, 5e-6 or 1/3; `what` names them in errors."""
        texts = self.texts(words)
        try:
            values = texts.astype(np.float64)
        except ValueError:
            values = self._fractions(words, texts, what)
        wrong = ~np.isfinite(values)
        if wrong.any():
            self._refuse(words[np.argmax(wrong)], f"no {what}")
        return values

    def _fractions(
        self, words: NDArray[np.int64], texts: NDArray[np.bytes_], what: str
    ) -> NDArray[np.float64]:
        different, back = np.unique(texts, return_inverse=True)
        values = np.full(len(different), np.nan)
        for index, each in enumerate(different.tolist()):
            try:
                values[index] = fractions.Fraction(each.decode("ascii"))
            except (ValueError, ZeroDivisionError):
                self._refuse(words[np.argmax(back == index)], f"no {what}")
        return values[back]

    def _letters(self, words: NDArray[np.int64]) -> tuple[NDArray[np.uint8], int]:
        """Some words as rows of bytes, filled up with 0, and how wide the rows are."""
        length = self.length[words]
        width = int(length.max(initial=1))
        place = np.arange(width)
        index = np.minimum(self.start[words][:, None] + place, len(self.text) - 1)
        return np.where(place < length[:, None], self.text[index], np.uint8(0)), width

    def _refuse(self, word: np.int64, what: str) -> None:
        start = self.start[word]
        text = bytes(self.text[start : start + self.length[word]]).decode("utf-8", "replace")
        raise InputError(f"{self.where}: line {self.line_of(int(word))}: {text[:40]!r} is {what}.")


def words_of(file: IO[bytes], where: str, line: int, gaps: bytes = b"") -> Iterator[Words]:
    """The words of the rest of a file, in blocks of whole lines; `line` is the next line's number.

    Words are what lies between white space, and the bytes of `gaps`.

    >>> import io
    >>> [block] = words_of(io.BytesIO(b"10 0.5\\n\\n7 1/4\\n"), "doc", 1)
    >>> block.integers(block.first, "state"), block.numbers(block.first + 1, "probability")
    (array([10,  7]), array([0.5 , 0.25]))
    >>> block.line
    array([1, 3])
    """
    is_gap = _GAPS.copy()
    is_gap[np.frombuffer(gaps, dtype=np.uint8)] = True
    rest = b""
    while True:
        read = file.read(BLOCK)
        block = rest + read
        cut = block.rfind(b"\n") + 1 if read else len(block)
        block, rest = block[:cut], block[cut:]
        if block:
            found = _split(np.frombuffer(block, dtype=np.uint8), where, line, is_gap)
            line += block.count(b"\n")
            if len(found.first):
                yield found
        if not read:
            return


def _split(text: NDArray[np.uint8], where: str, line: int, is_gap: NDArray[np.bool_]) -> Words:
    inside = np.zeros(len(text) + 2, dtype=np.int8)
    inside[1:-1] = ~is_gap[text]
    edges = np.diff(inside)
    start, end = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    row = np.searchsorted(np.flatnonzero(text == ord("\n")), start)
    first = np.flatnonzero(np.diff(row, prepend=-1))
    count = np.diff(first, append=len(start))
    return Words(where, text, start, end - start, first, count, row[first] + line)
