"""Policy evaluation of the chosen actions and couplings: one step of Newton's method.

For chosen couplings with transition matrix P between pairs, F(d) - d = r, and the infinite-horizon
value is d + x with

    (I - discount * P) x = r.

Only r is computed in float64, by every sweep. The correction x is solved to a fraction of r with
BiCGSTAB (van der Vorst 1992), so that float32 vectors and masses of 16 bits are enough; the next
sweep computes what they missed. At discounts near 1 both are float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._transport import Costs
from bisimetric.exact._phases import share_rows
from bisimetric.exact.stochastic import evaluation_kernels
from bisimetric.exact.stochastic.coupling_kernels import KernelMDP
from bisimetric.exact.stochastic.evaluation_kernels import BLOCK, SHADOW_LEVELS
from bisimetric.exact.stochastic.move_cache import ChosenCouplings, PairLayout

EVALUATION_TOLERANCE = 1e-2
"""The relative residual of a policy evaluation."""
MAX_LINEAR_STEPS = 200
"""Iterations of the linear solver in one evaluation."""
MAX_SINGLE_DISCOUNT = 0.999
"""The largest discount with float32 vectors and masses of 16 bits: above, their rounding, over
1 - discount, is no longer far below EVALUATION_TOLERANCE."""
MIN_SINGLE_TOLERANCE = 1e-25
"""The least residual tolerance with float32 vectors, far above their least number."""
MASS_LEVELS = 2**16 - 1
MIN_PARALLEL_BLOCKS, MIN_PARALLEL_VECTOR_BLOCKS = 4, 32
"""Blocks of pairs that are worth several threads: of a product with P, and of a sum of vectors."""


def choose_vector_dtype(discount: float, residual_tolerance: float) -> type[np.floating[Any]]:
    """Return the dtype of the vectors of an evaluation."""
    single = discount <= MAX_SINGLE_DISCOUNT and residual_tolerance >= MIN_SINGLE_TOLERANCE
    return np.float32 if single else np.float64


def compute_bytes(dtype: type[np.floating[Any]]) -> tuple[int, int]:
    """Return the bytes of vectors per pair, and of a mass."""
    return 5 * np.dtype(dtype).itemsize + 1, 2 if dtype == np.float32 else 8


class PolicyEvaluation:
    """The chosen couplings, which sweeps write, and the vectors of the linear solver."""

    def __init__(
        self,
        model: KernelMDP,
        costs: Costs,
        layout: PairLayout,
        size: int,
        position_dtype: type[np.unsignedinteger[Any]],
        dtype: type[np.floating[Any]],
    ) -> None:
        self._model, self._costs = model, costs
        num_pairs = len(costs.values) - 1
        single = dtype == np.float32
        self.couplings = ChosenCouplings(
            np.zeros(size, position_dtype),
            np.zeros(size, np.uint16 if single else np.float64),
            layout,
            1 / MASS_LEVELS if single else 1.0,
            4 * np.dtype(position_dtype).itemsize,
        )
        # The residual r receives F(d) - d of the current pairs from a sweep; x is the correction.
        self.residual, self.correction, self._direction, self._image, self._product = (
            np.zeros(num_pairs, dtype) for _ in range(5)
        )
        self._shadow = np.zeros(num_pairs, np.int8)
        self._sums = np.zeros((-(-num_pairs // BLOCK), 3))

    def clear(self, pairs: NDArray[Any]) -> None:
        """Set the vectors to 0 at some pairs, which are no longer current."""
        for vector in (self.residual, self.correction, self._direction):
            vector[pairs] = 0

    def solve(self, choice: NDArray[Any], pairs: NDArray[Any], residual: float, tol: float) -> bool:
        """Compute the correction of the current pairs; return whether the solver converged.

        Args:
            choice: of each pair, in the last sweep.
            pairs: the current pairs; empty: all.
            residual: the largest |r|.
            tol: the residual that is small enough.

        Returns:
            False if r is not smaller in the end: r is lost then.
        """
        scale = min(SHADOW_LEVELS / residual, 1e300) if residual > 0 else 0.0
        r, x, p, shadow = self.residual, self.correction, self._direction, self._shadow
        rho, initial = self._sum(evaluation_kernels.prepare_start, pairs, r, shadow, p, x, scale)[
            :2
        ]
        squares, target = initial, max(EVALUATION_TOLERANCE * math.sqrt(initial), tol / 8) ** 2
        for _ in range(MAX_LINEAR_STEPS):
            if squares <= target:
                break
            by_shadow = self._multiply(choice, pairs, p, self._image)[0]
            if not math.isfinite(squares) or by_shadow == 0:
                break
            alpha = rho / by_shadow
            half_rho, squares = self._sum(
                evaluation_kernels.prepare_reduce_residual, pairs, r, self._image, shadow, alpha
            )[:2]
            omega = beta = 0.0
            if squares > target:
                by_shadow, by_vector, norm = self._multiply(choice, pairs, r, self._product)
                omega = by_vector / norm if norm > 0 else 0.0
                # The product of shadow and residual after this step.
                new_rho = half_rho - omega * by_shadow
                beta = new_rho / rho * (alpha / omega) if rho != 0 and omega != 0 else 0.0
                rho = new_rho
            squares = self._sum(
                evaluation_kernels.prepare_finish_step, pairs, x, r, p, self._image, self._product,
                alpha, omega, beta,
            )[0]  # fmt: skip
            if beta == 0:
                break
        return squares < initial or initial == 0

    def iterate_values(self, choice: NDArray[Any], pairs: NDArray[Any]) -> None:
        """Compute the correction by value iteration of the chosen couplings, from r."""
        self.correction[:] = self.residual
        for _ in range(MAX_LINEAR_STEPS):
            self._multiply(choice, pairs, self.correction, self._image)
            self._map(
                evaluation_kernels.prepare_relax, pairs, MIN_PARALLEL_VECTOR_BLOCKS,
                self.correction, self.residual, self._image,
            )  # fmt: skip

    def apply(self, step: NDArray[np.floating], pairs: NDArray[Any]) -> tuple[float, float]:
        """Add a step to d at the current pairs, clipped at 0; return its extremes.

        Returns:
            The largest increase, and the largest decrease.
        """
        extremes = np.zeros((self._count_blocks(pairs), 2))
        self._map(
            evaluation_kernels.prepare_add_to_distances, pairs, MIN_PARALLEL_VECTOR_BLOCKS, step,
            self._costs.values, extremes,
        )  # fmt: skip
        increase, decrease = extremes.max(axis=0, initial=0.0).tolist()
        return increase, decrease

    def _count_blocks(self, pairs: NDArray[Any]) -> int:
        return -(-(pairs.size or len(self.residual)) // BLOCK)

    def _map(
        self, prepare: Callable[..., int], pairs: NDArray[Any], min_blocks: int, *inputs: Any
    ) -> None:
        """Call a kernel(*inputs, pairs, low, high) for ranges of all blocks."""
        blocks = self._count_blocks(pairs)
        share_rows(prepare, (*inputs, pairs), blocks, BLOCK, min_blocks * BLOCK)

    def _sum(
        self,
        prepare: Callable[..., int],
        pairs: NDArray[Any],
        *inputs: Any,
        min_blocks: int = MIN_PARALLEL_VECTOR_BLOCKS,
    ) -> list[float]:
        """Call a kernel, and return its sums over all blocks."""
        self._map(prepare, pairs, min_blocks, *inputs, self._sums)
        found: list[float] = self._sums[: self._count_blocks(pairs)].sum(axis=0).tolist()
        return found

    def _multiply(
        self, choice: NDArray[Any], pairs: NDArray[Any], vector: Any, image: Any
    ) -> list[float]:
        return self._sum(
            evaluation_kernels.prepare_multiply, pairs, self._model, choice, self._costs,
            self.couplings, vector, image, self._shadow, min_blocks=MIN_PARALLEL_BLOCKS,
        )  # fmt: skip
