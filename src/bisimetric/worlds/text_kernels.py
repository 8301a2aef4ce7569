"""Compiled twins of `text_parser` for large blocks: tokens, integers and decimal numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

NEWLINE, ZERO, NINE, POINT, PLUS, MINUS = 10, 48, 57, 46, 43, 45
MAX_EXACT_MANTISSA = 2**53
MAX_EXACT_POWER = 22
"""Powers of ten up to this one are floats, so that one division rounds correctly (Clinger 1990)."""
POWERS_OF_TEN = 10.0 ** np.arange(MAX_EXACT_POWER + 1)


@njit(cache=True)
def tokenize(
    text: NDArray[Any], is_separator: NDArray[Any], num_lines: int
) -> tuple[
    NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]
]:
    """Return start and length of each token, and per line that has any: the first, count, index."""
    size = (len(text) + 1) // 2
    start, length = np.empty(size, np.int64), np.empty(size, np.int64)
    first, count = np.empty(num_lines + 1, np.int64), np.zeros(num_lines + 1, np.int64)
    row = np.empty(num_lines + 1, np.int64)
    tokens, lines, line, last = 0, 0, 0, -1
    i = 0
    while i < len(text):
        if is_separator[text[i]]:
            line += text[i] == NEWLINE
            i += 1
            continue
        begin = i
        while i < len(text) and not is_separator[text[i]]:
            i += 1
        start[tokens], length[tokens] = begin, i - begin
        if line != last:
            first[lines], row[lines], last = tokens, line, line
            lines += 1
        count[lines - 1] += 1
        tokens += 1
    return start[:tokens], length[:tokens], first[:lines], count[:lines], row[:lines]


@njit(cache=True)
def parse_integers(
    text: NDArray[Any],
    start: NDArray[Any],
    length: NDArray[Any],
    tokens: NDArray[Any],
    max_digits: int,
) -> tuple[NDArray[np.int64], int]:
    """Return the integers, and the index of the first token that is none, or -1."""
    values = np.empty(len(tokens), np.int64)
    for k in range(len(tokens)):
        begin, size = start[tokens[k]], length[tokens[k]]
        if size > max_digits:
            return values, k
        value = 0
        for i in range(begin, begin + size):
            if text[i] < ZERO or text[i] > NINE:
                return values, k
            value = value * 10 + (int(text[i]) - ZERO)
        values[k] = value
    return values, -1


@njit(cache=True)
def parse_decimals(
    text: NDArray[Any],
    start: NDArray[Any],
    length: NDArray[Any],
    tokens: NDArray[Any],
    powers: NDArray[Any],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Parse decimal numbers such as 0.25, correctly rounded; return which are of that form.

    The digits must make an integer below 2^53, and the exponent be at most 22 in size. Others are
    left to the caller.
    """
    values, parsed = np.zeros(len(tokens)), np.zeros(len(tokens), np.bool_)
    for k in range(len(tokens)):
        i, end = start[tokens[k]], start[tokens[k]] + length[tokens[k]]
        negative = text[i] == MINUS
        if text[i] == MINUS or text[i] == PLUS:
            i += 1
        mantissa, places, digits, seen_point = 0, 0, 0, False
        while i < end:
            if text[i] == POINT and not seen_point:
                seen_point = True
            elif ZERO <= text[i] <= NINE and mantissa < MAX_EXACT_MANTISSA // 10:
                mantissa = mantissa * 10 + (int(text[i]) - ZERO)
                digits += 1
                places += seen_point
            else:
                break
            i += 1
        exponent = 0
        if i < end - 1 and digits > 0 and (text[i] == 101 or text[i] == 69):  # e, E
            i += 1
            sign = -1 if text[i] == MINUS else 1
            if text[i] == MINUS or text[i] == PLUS:
                i += 1
            if i == end:
                continue
            while i < end and ZERO <= text[i] <= NINE and exponent < 1000:
                exponent = exponent * 10 + (int(text[i]) - ZERO)
                i += 1
            exponent *= sign
        power = exponent - places
        if i < end or digits == 0 or abs(power) >= len(powers):
            continue
        value = mantissa * powers[power] if power >= 0 else mantissa / powers[-power]
        values[k], parsed[k] = -value if negative else value, True
    return values, parsed
