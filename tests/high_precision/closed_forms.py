"""Distances of two states that lead to absorbing ones, without any iteration."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction

from tests.high_precision.models import normalise
from tests.high_precision.numbers import ONE, round_to_units


def star_distance(
    first: Mapping[int, float],
    second: Mapping[int, float],
    rewards: Mapping[int, float],
    start: tuple[float, float],
    discount: float,
) -> Fraction:
    """d~ of the two states: absorbing x and y are at |r(x) - r(y)| / (1 - discount), on a line.

    There W1 is the area between the two distribution functions.
    """
    g = Fraction(discount)
    p, q = normalise(first), normalise(second)
    points = sorted({Fraction(rewards[x]) for x in p.masses.keys() | q.masses.keys()})
    jump: dict[Fraction, Fraction] = dict.fromkeys(points, Fraction(0))
    for row, sign in ((p, 1), (q, -1)):
        for x, mass in row.masses.items():
            jump[Fraction(rewards[x])] += sign * Fraction(mass, row.total)
    area, height = Fraction(0), Fraction(0)
    for left, right in itertools.pairwise(points):
        height += jump[left]
        area += abs(height) * (right - left)
    return abs(Fraction(start[0]) - Fraction(start[1])) + g * area / (1 - g)


def star_mico(
    first: Mapping[int, float],
    second: Mapping[int, float],
    rewards: Mapping[int, float],
    start: tuple[float, float],
    discount: float,
) -> Fraction:
    """MICo of the two states: the mean of |r(x) - r(y)| / (1 - discount) over independent x, y."""
    g = Fraction(discount)
    p, q = normalise(first), normalise(second)
    pays = {x: round_to_units(rewards[x]) for x in p.masses.keys() | q.masses.keys()}
    total = sum(
        mass * sum(other * abs(pays[x] - pays[y]) for y, other in q.masses.items())
        for x, mass in p.masses.items()
    )
    gap = abs(Fraction(start[0]) - Fraction(start[1]))
    return gap + g * Fraction(total, p.total * q.total * ONE) / (1 - g)
