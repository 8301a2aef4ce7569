"""d~ of several hundred states, learned from sampled transitions alone.

    python benchmarks/sampled_grids.py                   # all MDPs, ten seeds
    python benchmarks/sampled_grids.py walls --seeds 0   # one of them, one seed

Transitions start in uniform states with uniform actions. Observations are positions, or one-hot
vectors for Taxi; they repeat, so that the recorded transitions are a graph, whose distances are the
targets. All hyperparameters were chosen on `obstacles`; the other MDPs are held out. A constant is
the mean distance of different states.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bisimetric import MDP, Transitions, exact, learned, worlds
from bisimetric.learned.evaluation import compute_errors

DISCOUNT = 0.99
WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "obstacles": ("open-grid", {"rows": 24, "columns": 24, "obstacles": 0.15}),
    "walls": ("open-grid", {"rows": 18, "columns": 34, "obstacles": 0.25}),
    "wide": ("open-grid", {"rows": 16, "columns": 36, "obstacles": 0.2}),
    "taxi": ("Taxi-v4", {}),
}


class Errors(NamedTuple):
    """The largest error, the normalised error, and the correlations of all and distinct pairs."""

    largest: float
    normalised: float
    correlation: float
    distinct: float


def describe_states(mdp: MDP) -> NDArray[Any]:
    """Return the positions of the states, or one-hot vectors where positions are not unique."""
    positions = mdp.positions
    if positions is None or len(np.unique(positions, axis=0)) < mdp.num_states:
        return np.eye(mdp.num_states)
    return np.asarray(positions)


def sample(mdp: MDP, steps: int, seed: int) -> Transitions:
    """Return transitions from uniform states with uniform actions."""
    rng = np.random.default_rng(seed)
    states, actions = (rng.integers(size, size=steps) for size in mdp.R.shape)
    successors = mdp.next_state[states, actions]
    points = describe_states(mdp)
    return Transitions(
        points[states],
        actions,
        mdp.R[states, actions],
        points[successors],
        np.zeros(steps, bool),
    )


def measure(reference: NDArray[Any], table: NDArray[Any]) -> Errors:
    """Return the errors of a matrix of distances."""
    errors = compute_errors(jnp.asarray(reference, jnp.float32), jnp.asarray(table, jnp.float32))
    apart = reference > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        distinct = float(np.corrcoef(reference[apart], table[apart])[0, 1])
    largest, normalised, correlation = (float(each) for each in errors.values())
    return Errors(largest, normalised, correlation, distinct)


def format_row(name: str, label: str, errors: list[Errors], seconds: float) -> str:
    """Return one row of the table: mean and standard deviation over the seeds."""
    columns = np.array(errors)
    mean, spread = columns.mean(axis=0), columns.std(axis=0, ddof=1) if len(errors) > 1 else None
    scale = (1.0, 1e3, 1.0, 1.0)
    cells = [
        f"{mean[i] * scale[i]:.4g}" + ("" if spread is None else f" ± {spread[i] * scale[i]:.2g}")
        for i in range(4)
    ]
    return f"| {name} | {label} | {' | '.join(cells)} | {seconds:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", default=list(WORLDS))
    parser.add_argument("--seeds", type=int, nargs="*", default=list(range(10)))
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--updates", type=int, default=8_000)
    options = parser.parse_args()
    print(
        "| MDP | method | largest error | normalised error, 10^-3 | correlation | "
        "correlation, distances above 0 | seconds |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in options.names:
        world, arguments = WORLDS[name]
        mdp = worlds.load(world, discount=DISCOUNT, **arguments)
        reference = np.asarray(exact.bisimulation(mdp).values)
        points = describe_states(mdp)
        constant = np.where(reference > 0, reference[reference > 0].mean(), 0.0)
        title = f"{name}: {mdp.num_states} states, d~ up to {reference.max():.4g}"
        print(format_row(title, "constant", [measure(reference, constant)], 0.0), flush=True)
        errors, start = [], time.perf_counter()
        for seed in options.seeds:
            d = learned.bisimulation(
                sample(mdp, options.steps, seed),
                discount=DISCOUNT,
                updates=options.updates,
                seed=seed,
                config=learned.ModelBasedConfig(),
            )
            errors.append(measure(reference, d.table(points)))
            print(f"    seed {seed}: {errors[-1]}", flush=True)
        seconds = (time.perf_counter() - start) / len(options.seeds)
        print(format_row(title, "model-based", errors, seconds), flush=True)


if __name__ == "__main__":
    main()
