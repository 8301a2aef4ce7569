"""Stochastic MDPs on a GPU: `python benchmarks/gpu_stochastic.py [--states 2000 --cpu 2000]`.

Random MDPs: 4 actions, 5 random successors per state and action with probabilities from a uniform
Dirichlet distribution, rewards uniform in [0, 1]; a random policy, one that mixes two actions per
state, so that rows have up to 10 successors, and the uniform one, with up to 20. Times are end to
end through the public interface, the matrix on the host, after a first call on a small MDP that
compiles the kernels. Memory is the largest that CuPy holds, in float64 matrices. Every error is
proven to 1e-6.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from bisimetric import exact
from bisimetric.distance import Distance
from bisimetric.exact.gpu import cuda
from bisimetric.exact.gpu.couplings import CouplingWorkspace
from bisimetric.mdp import MDP

ACTIONS, SUCCESSORS, COMPILED_STATES = 4, 5, 64
Compute = Callable[..., Distance]


def random_mdp(states: int, discount: float, seed: int = 0) -> MDP:
    """Return a random MDP; successors of one state and action may coincide, rarely."""
    rng = np.random.default_rng(seed)
    rows = states * ACTIONS
    successors = rng.integers(0, states, (rows, SUCCESSORS))
    probabilities = rng.dirichlet(np.ones(SUCCESSORS), rows)
    starts = np.arange(0, rows * SUCCESSORS + 1, SUCCESSORS)
    P: Any = sparse.csr_array((probabilities.ravel(), successors.ravel(), starts), (rows, states))
    P.sum_duplicates()
    return MDP(P, rng.random((states, ACTIONS)), discount=discount)


def on_policy(mdp: MDP, **options: Any) -> Distance:
    """Compute d^pi of a random policy."""
    policy = np.random.default_rng(1).integers(0, ACTIONS, mdp.num_states)
    return exact.on_policy(mdp, policy, **options)


def on_mixed_policy(mdp: MDP, **options: Any) -> Distance:
    """Compute d^pi of a policy that takes two actions per state, equally often."""
    first = np.random.default_rng(1).integers(0, ACTIONS, mdp.num_states)
    policy = np.zeros(mdp.R.shape)
    policy[np.arange(mdp.num_states), first] = 0.5
    policy[np.arange(mdp.num_states), (first + 1) % ACTIONS] = 0.5
    return exact.on_policy(mdp, policy, **options)


def on_uniform_policy(mdp: MDP, **options: Any) -> Distance:
    """Compute d^pi of the uniform policy."""
    return exact.on_policy(mdp, np.full(mdp.R.shape, 1 / ACTIONS), **options)


DISTANCES: dict[str, Compute] = {
    "bisimulation": exact.bisimulation,
    "on_policy": on_policy,
    "mixed_policy": on_mixed_policy,
    "uniform_policy": on_uniform_policy,
    "lax": exact.lax,
}


class Profile:
    """The seconds of sweeps and of evaluations, call by call."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {"sweep": [], "evaluate": [], "fetch_matrix": []}
        for name, seconds in self.seconds.items():
            self._replace(name, seconds)

    def _replace(self, name: str, seconds: list[float]) -> None:
        method = getattr(CouplingWorkspace, name)

        def timed(workspace: CouplingWorkspace, *arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            result = method(workspace, *arguments, **options)
            synchronize(workspace.device)
            seconds.append(time.perf_counter() - start)
            return result

        setattr(CouplingWorkspace, name, timed)

    def report(self) -> str:
        """Return the times since the last report."""
        parts = []
        for name, seconds in self.seconds.items():
            parts.append(f"{name} {' '.join(f'{each:.3f}' for each in seconds)}")
            seconds.clear()
        return "    " + "; ".join(parts)


def synchronize(device: cuda.GpuDevice) -> None:
    """Wait for the device."""
    if hasattr(device.arrays, "cuda"):
        device.arrays.cuda.Device().synchronize()


def measure_memory(device: cuda.GpuDevice, compute: Compute, mdp: MDP) -> tuple[Distance, float]:
    """Return the distance, and the device memory that it took in matrices."""
    if not hasattr(device.arrays, "get_default_memory_pool"):
        return compute(mdp, device="gpu"), float("nan")
    pool = device.arrays.get_default_memory_pool()
    pool.free_all_blocks()
    distance = compute(mdp, device="gpu")
    return distance, pool.total_bytes() / (8.0 * mdp.num_states**2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--states", type=int, nargs="+", default=[2000, 10_000])
    parser.add_argument("--discounts", type=float, nargs="+", default=[0.9, 0.99])
    parser.add_argument("--distances", nargs="+", choices=DISTANCES, default=list(DISTANCES))
    parser.add_argument("--cpu", type=int, default=0, help="compare with the CPU up to this size")
    parser.add_argument("--profile", action="store_true", help="print the time of every sweep")
    arguments = parser.parse_args()
    device, profile = cuda.find_device(), Profile() if arguments.profile else None
    print(f"{device.name}; {ACTIONS} actions, {SUCCESSORS} successors, tol 1e-6", flush=True)
    for name in arguments.distances:
        compute = DISTANCES[name]
        compute(random_mdp(COMPILED_STATES, 0.5), device="gpu")
        if profile is not None:
            profile.report()
        for states in arguments.states:
            for discount in arguments.discounts:
                mdp = random_mdp(states, discount)
                start = time.perf_counter()
                d, matrices = measure_memory(device, compute, mdp)
                elapsed = time.perf_counter() - start
                print(
                    f"{name:12} {states:6,} states, discount {discount}: {elapsed:7.3f} s; error "
                    f"{d.error:.1e} of {d.values.max():.2f}; {d.metadata['rounds']} rounds, "
                    f"{d.metadata['linear_steps']} linear steps; {matrices:.1f} matrices",
                    flush=True,
                )
                if profile is not None:
                    print(profile.report(), flush=True)
                if states <= arguments.cpu:
                    compare_with_cpu(compute, mdp, d, elapsed)


def compare_with_cpu(compute: Compute, mdp: MDP, d: Distance, elapsed: float) -> None:
    """Print the time of the CPU for the same distances, and the largest difference."""
    compute(random_mdp(COMPILED_STATES, 0.5))
    start = time.perf_counter()
    other = compute(mdp)
    seconds = time.perf_counter() - start
    difference = float(np.abs(d.values - other.values).max())
    print(
        f"    CPU {seconds:.2f} s, {seconds / elapsed:.1f} times as long; largest difference "
        f"{difference:.1e}, proven {d.error + other.error:.1e}",
        flush=True,
    )


if __name__ == "__main__":
    main()
