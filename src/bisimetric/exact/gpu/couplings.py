"""Couplings of all pairs of a stochastic MDP in the memory of a GPU, and their evaluation.

A sweep computes F(d), and the action and coupling of every pair that attain it. The
infinite-horizon value of these solves a linear system of all pairs, here by BiCGSTAB in float32
unless the discount is next to 1: what it computes is only the next d, whose residual the next sweep
computes in float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._memory import require_memory
from bisimetric.errors import InputError
from bisimetric.exact.gpu.cuda import COUPLING_KERNELS, GpuDevice, format_c_type
from bisimetric.exact.gpu.workspace import BLOCK_THREADS, RESERVED_BYTES, TILE_SIZE
from bisimetric.exact.stochastic.coupling_kernels import KernelMDP
from bisimetric.mdp import MDP

SUPPORTS: tuple[int, ...] = (2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
"""The numbers of successors of a state and action that kernels are compiled for. Nodes of a
transport problem are the bits of a 64-bit number, so that 32 is the largest."""
SWEEP_THREADS = 64
"""Threads per block of a sweep."""
MIN_SHARED_BLOCKS = 2
"""Blocks that fit into the shared memory of a multiprocessor, or transport problems are in local
memory."""
SWEEP_BLOCKS, VECTOR_BLOCKS = 64, 8
"""Blocks per multiprocessor of a sweep, and of operations on vectors."""
EVALUATION_TOLERANCE = 1e-3
"""The largest residual of a policy evaluation, relative to the first."""
MAX_LINEAR_STEPS = 200
"""Iterations of BiCGSTAB in one evaluation."""
MIN_FLOAT32_GAP = 1e-5
"""The smallest 1 - discount for which policies are evaluated in float32."""


class CouplingWorkspace:
    """The distances d on a GPU, with the chosen move and coupling of every pair.

    Attributes:
        model: the MDP, in the units of d.
        d: (S, S).
        transport_error: a bound on the error of every W1 of the last sweep.
        solved_largest: 0, since all pairs are solved together.
        num_linear_steps: iterations of BiCGSTAB so far.
    """

    def __init__(
        self,
        device: GpuDevice,
        model: KernelMDP,
        initial: NDArray[np.float64],
        dtype: np.dtype[Any],
    ) -> None:
        states, actions = model.reward.shape
        support, pairs = round_support(model.max_support), states * (states - 1) // 2
        arrays = device.arrays
        self.device, self.model, self.dtype = device, model, dtype
        self.num_states, self.num_pairs = states, pairs
        self.block_threads = min(BLOCK_THREADS, device.max_threads)
        self.sweep_threads = min(SWEEP_THREADS, device.max_threads)
        self.shared_bytes = self.sweep_threads * _count_problem_bytes(support)
        if MIN_SHARED_BLOCKS * self.shared_bytes > device.shared_bytes:
            self.shared_bytes = 0
        vector_dtype = choose_vector_dtype(model.discount)
        choice_bits = count_choice_bits(actions, model.match_freely)
        self.kernels = device.compile(
            COUPLING_KERNELS,
            SUPPORT=support,
            MATCH_FREELY=int(model.match_freely),
            CHOICE_BITS=choice_bits,
            VECTOR_TYPE=format_c_type(vector_dtype),
            STRIDE=self.sweep_threads if self.shared_bytes > 0 else 1,
            SWEEP_THREADS=self.sweep_threads,
            BLOCK_THREADS=self.block_threads,
            TILE_SIZE=TILE_SIZE,
        )
        upload = self._upload
        cost_shape = model.cost.shape[:2] if model.cost.size > 0 else (0, 0)
        self._arguments = (
            upload(model.row_starts, np.int32), upload(model.successors, np.int32),
            upload(model.probabilities, np.float64), upload(model.reward, np.float64),
            upload(model.available, np.uint8), upload(model.classes, np.int32),
            upload(model.groups, np.int32),
            upload(model.cost if model.cost.size > 0 else np.zeros(1), np.float64), *cost_shape,
            np.float64(model.discount), np.float64(model.diameter_bound), actions, states,
        )  # fmt: skip
        values = upload(initial, np.float64)
        self.d = arrays.subtract(values[:, None], values[None, :])
        arrays.abs(self.d, out=self.d)
        self._couplings = (
            arrays.zeros(max(1, pairs), f"uint{choice_bits}"),
            arrays.zeros((2 * support - 1) * pairs + 1, np.uint8 if support <= 16 else np.uint16),
            arrays.zeros((2 * support - 1) * pairs + 1, vector_dtype),
        )
        self._residual, self._direction = (
            arrays.zeros((states, states), vector_dtype) for _ in range(2)
        )
        self._image, self._second_image, self._shadow, self._solution = (
            arrays.zeros(max(1, pairs), vector_dtype) for _ in range(4)
        )
        self._has_trees = False
        self.transport_error = self.solved_largest = 0.0
        self.num_linear_steps = 0

    def _upload(self, array: NDArray[Any], dtype: Any) -> Any:
        return self.device.arrays.asarray(np.ascontiguousarray(array, dtype=dtype))

    def _launch(self, name: str, blocks: int, threads: int, *arguments: Any) -> None:
        converted = (np.int32(each) if type(each) is int else each for each in arguments)
        shared_bytes = self.shared_bytes if name == "sweep_pairs" else 0
        self.kernels.launch(name, (blocks,), threads, *converted, shared_bytes=shared_bytes)

    def _launch_pairs(self, name: str, *arguments: Any, num_results: int = 0) -> NDArray[Any]:
        """Launch a kernel over all pairs; return the `num_results` numbers of each block."""
        blocks = self._count_blocks(self.num_pairs, self.block_threads, VECTOR_BLOCKS)
        results = self.device.arrays.zeros(num_results * blocks + 1, np.float64)
        self._launch(
            name, blocks, self.block_threads, *arguments, *([results] if num_results > 0 else [])
        )
        if num_results == 0:
            return np.empty(0)
        return self._fetch(results)[:-1].reshape(num_results, blocks)

    def _fetch(self, array: Any) -> NDArray[Any]:
        return self.device.fetch(array, np.empty(array.shape, array.dtype))

    def _count_blocks(self, work: int, threads: int, per_multiprocessor: int) -> int:
        wanted = max(1, math.ceil(work / threads))
        return min(wanted, per_multiprocessor * self.device.num_multiprocessors)

    @property
    def count(self) -> int:
        """The number of pairs."""
        return int(self.num_pairs)

    def sweep(self, *, hold_actions: bool = False) -> tuple[float, float]:
        """Compute F(d) with its moves and couplings.

        With `hold_actions` each pair keeps its last action, and only couplings (and responses) are
        computed.

        Returns:
            The largest |F(d) - d|, and the largest F(d).
        """
        threads = self.sweep_threads
        blocks = self._count_blocks(self.num_pairs, threads, SWEEP_BLOCKS)
        maxima = self.device.arrays.zeros(3 * blocks, np.float64)
        self._launch(
            "sweep_pairs", blocks, threads, self.d, self._residual, *self._arguments,
            *self._couplings, int(self._has_trees), int(hold_actions), maxima,
        )  # fmt: skip
        self._has_trees = True
        residual, largest, error = self._fetch(maxima).reshape(3, blocks).max(axis=1).tolist()
        self.transport_error = error
        return residual, largest

    def apply_backup(self) -> None:
        """Set d to F(d) of the last sweep: one step of value iteration."""
        self._start_evaluation()
        self._add_change(self._shadow)

    def evaluate(self, residual: float, tolerance: float) -> None:
        """Set d to the infinite-horizon value of the chosen actions and couplings.

        `residual` is what the last sweep returned.
        """
        rho, initial = self._start_evaluation()
        target = max(EVALUATION_TOLERANCE * residual, tolerance / 8)
        factor = weight = 0.0
        largest = initial
        for _ in range(MAX_LINEAR_STEPS):
            if largest <= target:
                break
            self.num_linear_steps += 1
            self._launch_pairs(
                "update_direction", self._direction, self._residual, self._image,
                np.float64(factor), np.float64(weight), self.num_states,
            )  # fmt: skip
            product, _, _ = self._apply_couplings(self._direction, self._image)
            step = _divide(rho, product)
            self._launch_pairs(
                "update_residual", self._residual, self._image, np.float64(step), self.num_states
            )
            _, own_product, square = self._apply_couplings(self._residual, self._second_image)
            weight = _divide(own_product, square)
            products, maxima = self._launch_pairs(
                "update_solution", self._solution, self._direction, self._residual,
                self._second_image, self._shadow, np.float64(step), np.float64(weight),
                self.num_states, num_results=2,
            )  # fmt: skip
            largest, previous, rho = float(maxima.max()), rho, float(products.sum())
            factor = _divide(rho, previous) * _divide(step, weight)
            if factor == 0 or not math.isfinite(factor):  # breakdown
                break
        # Without gain, one step of value iteration.
        self._add_change(self._solution if largest < initial else self._shadow)

    def _start_evaluation(self) -> tuple[float, float]:
        """Reset the vectors; return the square of the residual, and its largest entry."""
        squares, maxima = self._launch_pairs(
            "start_evaluation", self._residual, self._direction, self._shadow, self._image,
            self._solution, self.num_states, num_results=2,
        )  # fmt: skip
        return float(squares.sum()), float(maxima.max())

    def _apply_couplings(self, matrix: Any, image: Any) -> tuple[float, float, float]:
        """Set the image of a matrix; return its products with the shadow, the matrix, itself."""
        self._mirror("mirror_vectors", matrix)
        sums = self._launch_pairs(
            "apply_couplings", matrix, image, self._shadow, *self._arguments, *self._couplings,
            num_results=3,
        )  # fmt: skip
        shadow, own, square = sums.sum(axis=1).tolist()
        return shadow, own, square

    def _add_change(self, change: Any) -> None:
        self._launch_pairs("add_change", self.d, change, self.num_states)
        self._mirror("mirror_doubles", self.d)

    def _mirror(self, name: str, matrix: Any) -> None:
        tiles = math.ceil(self.num_states / TILE_SIZE)
        self.kernels.launch(
            name, (tiles, tiles), self.block_threads, matrix, np.int32(self.num_states)
        )

    def fetch_matrix(
        self, position: NDArray[np.int64], scale: float, floor: float
    ) -> tuple[NDArray[np.floating], float]:
        """Copy scale * d to the host, at least `floor` off the diagonal, in the dtype.

        State s of the result is `position[s]` here. All other arrays are released first.

        Returns:
            The matrix, and the largest change of an entry by rounding.
        """
        del self._residual, self._direction, self._couplings
        del self._image, self._second_image, self._shadow, self._solution
        states = self.num_states
        matrix = self.device.arrays.empty((states, states), self.dtype)
        blocks = self._count_blocks(states**2, self.block_threads, VECTOR_BLOCKS)
        moved = self.device.arrays.zeros(blocks, np.float64)
        name = "write_floats" if self.dtype == np.float32 else "write_doubles"
        self._launch(
            name, blocks, self.block_threads, self.d, matrix, self._upload(position, np.int32),
            np.float64(scale), np.float64(floor), states, moved,
        )  # fmt: skip
        values = self.device.fetch(matrix, np.empty((states, states), self.dtype))
        return values, float(self._fetch(moved).max())


def _divide(numerator: float, denominator: float) -> float:
    """Return a quotient, or 0 where BiCGSTAB breaks down."""
    quotient = numerator / denominator if denominator != 0 else 0.0
    return quotient if math.isfinite(quotient) else 0.0


def count_choice_bits(actions: int, match_freely: bool) -> int:
    """Return the bits of a chosen move, whose largest code is reserved.

    >>> count_choice_bits(1000, False), count_choice_bits(1000, True)
    (16, 32)
    """
    return 16 if (2 * actions**2 if match_freely else actions) < 2**16 else 32


def round_support(support: int) -> int:
    """Return the next number of successors that kernels are compiled for.

    >>> round_support(7)
    8
    """
    return next(each for each in SUPPORTS if each >= support)


def _count_problem_bytes(support: int) -> int:
    """Return the memory of one transport problem in a sweep: costs, flows, potentials, a tree."""
    node_bytes = 8 + 8 + (4 if support <= 16 else 8) + 4 + 2
    return 8 * support**2 + 2 * support * node_bytes


def choose_vector_dtype(discount: float) -> np.dtype[Any]:
    """Return the dtype of policy evaluations, whose relative rounding is far below 1 - discount.

    >>> choose_vector_dtype(0.999).name, choose_vector_dtype(0.999999).name
    ('float32', 'float64')
    """
    return np.dtype(np.float32 if 1 - discount >= MIN_FLOAT32_GAP else np.float64)


def estimate_device_memory(
    states: int, actions: int, support: int, match_freely: bool, discount: float
) -> float:
    """Return the bytes that a `CouplingWorkspace` allocates on the GPU, without a cost.

    >>> estimate_device_memory(10_000, 4, 5, False, 0.99) / (8 * 10_000**2) < 6
    True
    """
    support, vector_bytes = round_support(support), choose_vector_dtype(discount).itemsize
    edge_bytes = vector_bytes + (1 if support <= 16 else 2)
    pair_bytes = count_choice_bits(actions, match_freely) / 8 + (2 * support - 1) * edge_bytes
    pairs = states * (states - 1) / 2
    return pairs * (pair_bytes + 4.0 * vector_bytes) + states**2 * (8 + 2.0 * vector_bytes)


def require_device(
    device: GpuDevice, caller: str, mdp: MDP, match_freely: bool, cost_bytes: float
) -> None:
    """Raise before anything is allocated on a GPU that cannot solve a stochastic MDP.

    Raises:
        InputError: a state and action have too many successors.
        InsufficientMemory: the matrices and couplings do not fit into its memory.
    """
    (states, actions), support = mdp.R.shape, int(np.diff(mdp.P.indptr).max())
    if support > SUPPORTS[-1]:
        raise InputError(
            f"{caller}: a state and action of this MDP have {support} successors, and "
            f"device='gpu' takes at most {SUPPORTS[-1]}; leave device out."
        )
    needed = estimate_device_memory(states, actions, support, match_freely, mdp.discount)
    require_memory(
        f"{caller}: {states:,} states need on {device.name}",
        needed + cost_bytes + RESERVED_BYTES,
        "leave device out, or solve for fewer states, such as bisimetric.relation's classes",
        free=device.free_bytes,
    )
