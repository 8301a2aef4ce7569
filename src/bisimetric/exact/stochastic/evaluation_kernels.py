"""Kernels of policy evaluation: products with the matrix P of couplings, and BiCGSTAB's vectors.

A vector has one entry per pair, and its entries outside the current pairs are 0. The pairs are
processed in blocks of a fixed size, with one partial sum per block, so that sums are the same for
any number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bisimetric._transport import NO_ALLOCATION
from bisimetric.exact._intrinsics import pack_rows
from bisimetric.exact.stochastic.coupling_kernels import decode_choice
from bisimetric.exact.stochastic.distance_kernels import find_next_pair
from bisimetric.exact.stochastic.move_cache import locate_pair

BLOCK = 1024
"""Pairs per partial sum."""
SHADOW_LEVELS = 127
"""The shadow residual of BiCGSTAB is the initial one, rounded to 8 bits."""


@njit(nogil=True, **NO_ALLOCATION)
def multiply(model, choice, costs, couplings, vector, image, shadow, sums, pairs, low, high):
    """Set image = (I - discount * P) vector in some blocks.

    The sums of a block: image * shadow, image * vector, image * image.
    """
    actions, states, starts = model.reward.shape[1], model.successors, model.row_starts
    successors, masses, shift = couplings.successors, couplings.masses, couplings.shift
    factor, mask = model.discount * couplings.unit, (1 << shift) - 1
    some, count = costs.pair_codes.size > 0, (pairs.size if pairs.size > 0 else len(vector))
    for block in range(low, high):
        by_shadow, by_vector, squares = 0.0, 0.0, 0.0
        first, s, t = block * BLOCK, 0, 0
        for row in range(first, min(first + BLOCK, count)):
            pair, s, t = find_next_pair(costs, pairs, row, first, s, t)
            a, b = decode_choice(model, choice, pair)
            p, q = starts[s * actions + a], starts[t * actions + b]
            at = locate_pair(couplings.layout, pair, s, t)
            end = at + starts[s * actions + a + 1] - p + starts[t * actions + b + 1] - q - 1
            total = 0.0
            while at < end:
                mass = masses[at]
                if mass == 0:
                    break
                successor = np.int64(successors[at])
                if not some:
                    x = np.int64(states[p + (successor >> shift)])
                    y = np.int64(states[q + (successor & mask)])
                    larger, smaller = (x, y) if x > y else (y, x)
                    successor = larger * (larger - 1) // 2 + smaller
                total += mass * vector[successor]
                at += 1
            old = np.float64(vector[pair])
            new = old - factor * total
            image[pair] = new
            by_shadow += new * shadow[pair]
            by_vector += new * old
            squares += new * new
        sums[block, 0], sums[block, 1], sums[block, 2] = by_shadow, by_vector, squares


@njit(nogil=True, **NO_ALLOCATION)
def start(residual, shadow, direction, solution, scale, sums, pairs, low, high):
    """Start BiCGSTAB at 0; the sums of a block: residual * shadow, residual * residual."""
    count = pairs.size if pairs.size > 0 else len(residual)
    for block in range(low, high):
        by_shadow, squares = 0.0, 0.0
        for row in range(block * BLOCK, min((block + 1) * BLOCK, count)):
            pair = np.int64(pairs[row]) if pairs.size > 0 else row
            value = np.float64(residual[pair])
            rounded = np.rint(value * scale)
            shadow[pair] = np.int8(rounded)
            direction[pair], solution[pair] = value, 0.0
            by_shadow += value * rounded
            squares += value * value
        sums[block, 0], sums[block, 1] = by_shadow, squares


@njit(nogil=True, **NO_ALLOCATION)
def reduce_residual(residual, image, shadow, alpha, sums, pairs, low, high):
    """Subtract alpha * image from the residual; the sums of a block are those of `start`."""
    count = pairs.size if pairs.size > 0 else len(residual)
    for block in range(low, high):
        by_shadow, squares = 0.0, 0.0
        for row in range(block * BLOCK, min((block + 1) * BLOCK, count)):
            pair = np.int64(pairs[row]) if pairs.size > 0 else row
            value = residual[pair] - alpha * image[pair]
            residual[pair] = value
            by_shadow += value * shadow[pair]
            squares += value * value
        sums[block, 0], sums[block, 1] = by_shadow, squares


@njit(nogil=True, **NO_ALLOCATION)
def finish_step(
    solution, residual, direction, image, product, alpha, omega, beta, sums, pairs, low, high
):
    """Update the solution, the residual and the direction at the end of a step of BiCGSTAB.

    x += alpha * p + omega * s, r = s - omega * A s and p = r + beta * (p - omega * A p), where
    `residual` holds s, `image` A p and `product` A s. The sum of a block: residual * residual.
    """
    count = pairs.size if pairs.size > 0 else len(residual)
    for block in range(low, high):
        squares = 0.0
        for row in range(block * BLOCK, min((block + 1) * BLOCK, count)):
            pair = np.int64(pairs[row]) if pairs.size > 0 else row
            old, half = direction[pair], residual[pair]
            solution[pair] += alpha * old + omega * half
            value = half - omega * product[pair]
            residual[pair] = value
            direction[pair] = value + beta * (old - omega * image[pair])
            squares += value * value
        sums[block, 0] = squares


@njit(nogil=True, **NO_ALLOCATION)
def relax(solution, residual, image, pairs, low, high):
    """Set solution += residual - image: a step of value iteration, with image = A solution."""
    count = pairs.size if pairs.size > 0 else len(residual)
    for first in range(low * BLOCK, min(high * BLOCK, count), BLOCK):
        for row in range(first, min(first + BLOCK, count)):
            pair = np.int64(pairs[row]) if pairs.size > 0 else row
            solution[pair] += residual[pair] - image[pair]


@njit(nogil=True, **NO_ALLOCATION)
def add_to_distances(solution, distances, extremes, pairs, low, high):
    """Add the solution to the distances, clipped at 0; the extremes of a block are the largest
    increase and decrease."""
    count = pairs.size if pairs.size > 0 else len(solution)
    for block in range(low, high):
        increase = decrease = 0.0
        for row in range(block * BLOCK, min((block + 1) * BLOCK, count)):
            pair = np.int64(pairs[row]) if pairs.size > 0 else row
            before = distances[1 + pair]
            after = max(before + solution[pair], 0.0)
            distances[1 + pair] = after
            increase = max(increase, after - before)
            decrease = max(decrease, before - after)
        extremes[block, 0], extremes[block, 1] = increase, decrease


@njit(cache=True)
def prepare_multiply(pack, *arguments):
    return pack_rows(multiply, pack, arguments)


@njit(cache=True)
def prepare_start(pack, *arguments):
    return pack_rows(start, pack, arguments)


@njit(cache=True)
def prepare_reduce_residual(pack, *arguments):
    return pack_rows(reduce_residual, pack, arguments)


@njit(cache=True)
def prepare_finish_step(pack, *arguments):
    return pack_rows(finish_step, pack, arguments)


@njit(cache=True)
def prepare_relax(pack, *arguments):
    return pack_rows(relax, pack, arguments)


@njit(cache=True)
def prepare_add_to_distances(pack, *arguments):
    return pack_rows(add_to_distances, pack, arguments)
