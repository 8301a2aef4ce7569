"""d~, d^pi and d_lax of stochastic MDPs on a GPU: policy iteration over actions and couplings.

The algorithm and the proof are those of `exact.stochastic`. One thread solves the transport
problems of a pair, by a transportation simplex that starts from the last coupling of the chosen
move; other moves are given up once a coupling shows that they are not better.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._progress import show_progress
from bisimetric._rounding import TINY, UNIT, choose_scale
from bisimetric.exact._request import SolverResult
from bisimetric.exact.gpu import cuda
from bisimetric.exact.gpu.couplings import CouplingWorkspace, require_device
from bisimetric.exact.gpu.cuda import GpuDevice
from bisimetric.exact.stochastic import policy_iteration
from bisimetric.exact.stochastic.game_iteration import iterate_pairs
from bisimetric.mdp import MDP


def solve(
    mdp: MDP,
    residual_tolerance: float,
    dtype: np.dtype[Any],
    *,
    kind: str = "bisimulation",
    cost: NDArray[np.float64] | None = None,
    diameter_bound: float | None = None,
    device: GpuDevice | None = None,
) -> SolverResult:
    """Compute d~ or d_lax of any MDP, to a residual tolerance; that of a chain is d^pi.

    The initial distance is |V(s) - V(t)|, with states sorted by V, so that the first couplings are
    optimal for it. With a `cost`, (1 or A, 1 or A, S, S), which is added to the differences of
    rewards, it is 0. `diameter_bound` is the distance of states that are not comparable; default
    `mdp.diameter_bound`. Without a cost and at a discount above 0, the distance of different states
    is at least the smallest normal number.
    """
    device = cuda.find_device() if device is None else device
    lax = kind == "lax"
    require_device(
        device, f"exact.{kind}", mdp, lax or mdp.choice_labels is not None,
        0.0 if cost is None else cost.nbytes,
    )  # fmt: skip
    diameter = mdp.diameter_bound if diameter_bound is None else diameter_bound
    scale = choose_scale(diameter)
    mdp = mdp.replace(R=mdp.R / scale)
    initial, order = policy_iteration.sort_states(mdp, has_cost=cost is not None)
    model = policy_iteration.build_kernel_mdp(mdp, order, lax, diameter / scale)
    if cost is not None:
        model = model._replace(cost=cost / scale)  # the order is that of the MDP
    workspace = CouplingWorkspace(device, model, initial, dtype)
    residual, largest, details = _iterate(workspace, residual_tolerance / scale)
    floor = float(np.finfo(dtype).tiny) if cost is None and mdp.discount > 0 else 0.0
    values, moved = workspace.fetch_matrix(np.argsort(order), scale, floor)
    # Rounding the matrix changes d and F(d) in the residual.
    residual = residual * scale + moved * (1 + mdp.discount)
    return SolverResult(values, residual, largest * scale, {**details, "device": device.name})


def _iterate(
    workspace: CouplingWorkspace, residual_tolerance: float
) -> tuple[float, float, dict[str, Any]]:
    """Iterate to the residual tolerance; return the residual, the largest F(d) and statistics."""
    with show_progress(1.0, "couplings: digits of the error") as progress:
        solved = iterate_pairs(workspace, residual_tolerance, progress.set_position)
    details = {
        "method": "policy iteration over couplings",
        "rounds": solved.rounds,
        "linear_steps": workspace.num_linear_steps,
    }
    rounding = _bound_rounding(workspace, solved.residual, solved.largest)
    return solved.residual + rounding, solved.largest, details


def _bound_rounding(workspace: CouplingWorkspace, residual: float, largest: float) -> float:
    """Bound the difference of the computed F(d) and F(d), in units of d.

    Per unit of mass and distance, in roundings: dividing two rows by their sums has 2 * support;
    cancelling common mass 2; flows, one difference per edge of the tree, 2 * support; and the sum
    of their costs 2 * support. `transport_error` has the rest. Below the normal numbers, where
    small rewards may be in this unit, a rounding is TINY / 2: of each term, of both rewards, and of
    a cost. No distance exceeds the largest F(d) by more than the residual.
    """
    terms = 6 * workspace.model.max_support + 8
    rounding = terms * (UNIT * (largest + residual) + TINY)
    rounding += workspace.transport_error * (1 + 8 * UNIT)
    return workspace.model.discount * rounding + 2 * TINY
