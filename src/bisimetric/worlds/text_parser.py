"""Parse large text files of numbers: tokens are read in blocks and converted as arrays."""

from __future__ import annotations

import dataclasses
import fractions
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError

BLOCK_BYTES = 1 << 22
"""Bytes read at a time."""

MIN_COMPILED_BYTES = 1 << 15
"""Smaller blocks are not worth compiled kernels, whose first call takes a second."""

MAX_DIGITS = 18
_WHITESPACE = np.isin(np.arange(256), np.frombuffer(b" \t\r\n\f\v", dtype=np.uint8))


@dataclasses.dataclass(frozen=True)
class TokenBlock:
    """The tokens of some whole lines of a file.

    Attributes:
        path: of the file, for messages.
        text: the bytes.
        start: (tokens,), where each token begins in `text`.
        length: (tokens,), its number of bytes.
        first_token: (lines,), the index of the first token of each line that is not empty.
        num_tokens: (lines,), its number of tokens.
        line_number: (lines,), its number in the file, from 1.
    """

    path: str
    text: NDArray[np.uint8]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    first_token: NDArray[np.int64]
    num_tokens: NDArray[np.int64]
    line_number: NDArray[np.int64]

    def find_line(self, token: int) -> int:
        """Return the number of the line of a token."""
        return int(self.line_number[np.searchsorted(self.first_token, token, side="right") - 1])

    def to_bytes(self, tokens: NDArray[np.int64]) -> NDArray[np.bytes_]:
        """Return some tokens as bytes."""
        letters, width = self._gather_bytes(tokens)
        return np.ascontiguousarray(letters).view(f"S{width}").ravel()

    def to_integers(self, tokens: NDArray[np.int64], name: str) -> NDArray[np.int64]:
        """Parse some tokens as integers of at least 0; `name` names them in errors."""
        if self._is_large:
            from bisimetric.worlds import text_kernels

            values, wrong_token = text_kernels.parse_integers(
                self.text, self.start, self.length, tokens, MAX_DIGITS
            )
            if wrong_token >= 0:
                self._reject(tokens[wrong_token], f"no {name}")
            return np.asarray(values)
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
        """Parse some tokens as numbers, such as 0.5, 5e-6 or 1/3; `name` names them in errors."""
        if self._is_large:
            from bisimetric.worlds import text_kernels

            values, parsed = text_kernels.parse_decimals(
                self.text, self.start, self.length, tokens, text_kernels.POWERS_OF_TEN
            )
            if not parsed.all():
                values[~parsed] = self._parse_texts(tokens[~parsed], name)
        else:
            values = self._parse_texts(tokens, name)
        wrong = ~np.isfinite(values)
        if wrong.any():
            self._reject(tokens[np.argmax(wrong)], f"no {name}")
        return values

    @property
    def _is_large(self) -> bool:
        return len(self.text) >= MIN_COMPILED_BYTES

    def _parse_texts(self, tokens: NDArray[np.int64], name: str) -> NDArray[np.float64]:
        """Parse some tokens by NumPy, or as fractions where it cannot."""
        texts = self.to_bytes(tokens)
        try:
            return np.asarray(texts.astype(np.float64))
        except ValueError:
            return self._parse_fractions(tokens, texts, name)

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
        """Return some tokens as rows of bytes, padded with 0, and the width of the rows."""
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


@contextmanager
def open_file(path: str) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes; InputError names a file that cannot be read."""
    try:
        with open(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; check the path.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from None


def read_tokens(
    file: IO[bytes], path: str, line_number: int, separators: bytes = b""
) -> Iterator[TokenBlock]:
    """Yield the tokens of the rest of a file in blocks of whole lines; `line_number` is the next.

    Tokens are separated by white space and by the bytes of `separators`.

    >>> import io
    >>> [block] = read_tokens(io.BytesIO(b"10 0.5\\n\\n7 1/4\\n"), "doc", 1)
    >>> block.to_integers(block.first_token, "state")
    array([10,  7])
    >>> block.to_floats(block.first_token + 1, "probability")
    array([0.5 , 0.25])
    >>> block.line_number
    array([1, 3])
    """
    is_separator = _WHITESPACE.copy()
    is_separator[np.frombuffer(separators, dtype=np.uint8)] = True
    remainder = b""
    while True:
        read = file.read(BLOCK_BYTES)
        block = remainder + read
        cut = block.rfind(b"\n") + 1 if read else len(block)
        block, remainder = block[:cut], block[cut:]
        if block:
            tokens = _tokenize(
                np.frombuffer(block, dtype=np.uint8), path, line_number, is_separator
            )
            line_number += block.count(b"\n")
            if len(tokens.first_token):
                yield tokens
        if not read:
            return


def _tokenize(
    text: NDArray[np.uint8], path: str, line_number: int, is_separator: NDArray[np.bool_]
) -> TokenBlock:
    if len(text) >= MIN_COMPILED_BYTES:
        from bisimetric.worlds import text_kernels

        num_lines = int(np.count_nonzero(text == ord("\n")))
        start, length, first, count, lines = text_kernels.tokenize(text, is_separator, num_lines)
        return TokenBlock(path, text, start, length, first, count, lines + line_number)
    inside = np.zeros(len(text) + 2, dtype=np.int8)
    inside[1:-1] = ~is_separator[text]
    edges = np.diff(inside)
    start, end = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    row = np.searchsorted(np.flatnonzero(text == ord("\n")), start)
    first = np.flatnonzero(np.diff(row, prepend=-1))
    count = np.diff(first, append=len(start))
    return TokenBlock(path, text, start, end - start, first, count, row[first] + line_number)
