"""d^pi and d~ learned from stochastic data, against `exact` of the MDP that generated them.

    python benchmarks/stochastic.py                     # all MDPs, both distances
    python benchmarks/stochastic.py lake --seeds 0 1 2  # one of them, three seeds

The MDPs and the data are those of `stochastic_mico.py`: uniform states and actions. "empirical" is
the exact distance of the empirical MDP, whose error is that of the data. "pair Q-learning" compares
pairs of sampled transitions, and is biased. "model-based" is the default for such data. With noise,
observations are one-hot vectors with Gaussian noise, which never repeat, and a model has
representative states and the outcomes of nearest neighbours.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bisimetric import Transitions, exact, learned
from bisimetric.errors import StochasticDataWarning
from bisimetric.learned.evaluation import compute_errors
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.training import Algorithm
from stochastic_mico import DISCOUNT, Case, build_case

SMALL = learned.MetricNetwork((64, 64), num_groups=64, group_size=1)
METHODS: dict[str, Algorithm] = {
    "pair Q-learning": learned.PairQConfig(SMALL, batch_size=128),
    "model-based": learned.ModelBasedConfig(),
}


def observe(
    points: NDArray[np.float64], states: NDArray[np.int64], noise: float, seed: int
) -> NDArray[np.float64]:
    """Return the points of states, with Gaussian noise."""
    rng = np.random.default_rng(seed)
    return points[states] + noise * rng.normal(size=(len(states), points.shape[1]))


def compute_reference(kind: LearnedKind, case: Case) -> NDArray[np.float64]:
    """Return the exact distance of the MDP, for d^pi under uniform actions."""
    if kind == "bisimulation":
        return np.asarray(exact.bisimulation(case.mdp).values)
    uniform = np.full(case.mdp.R.shape, 1 / case.mdp.num_actions)
    return np.asarray(exact.on_policy(case.mdp, uniform).values)


def measure(
    kind: LearnedKind,
    name: str,
    methods: list[str],
    steps: int,
    updates: int,
    seed: int,
    noise: float,
) -> Iterator[tuple[str, ...]]:
    """Yield the title, the method, and the errors of each method."""
    case = build_case(name, steps, seed)
    reference = compute_reference(kind, case)
    points = np.eye(case.mdp.num_states)
    data = Transitions(
        observe(points, case.states, noise, seed + 1),
        case.actions,
        case.rewards,
        observe(points, case.successors, noise, seed + 2),
        np.zeros(steps, bool),
        states=case.states,
        next_states=case.successors,
    )
    if not noise:
        source = learned.source_from_model(kind, data, discount=DISCOUNT)
        order = np.asarray(source.features).argmax(axis=1).argsort()
        values = np.asarray(source.values)[order][:, order]
        yield describe(kind, name, noise, "empirical", reference, values, 0.0)
    for label in methods:
        start, config = time.perf_counter(), METHODS[label]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StochasticDataWarning)
            d = getattr(learned, kind)(
                data, discount=DISCOUNT, updates=updates, seed=seed, config=config
            )
        seconds = time.perf_counter() - start
        yield describe(kind, name, noise, label, reference, d.table(points), seconds)


def describe(
    kind: str, name: str, noise: float, label: str, reference: Any, table: Any, seconds: float
) -> tuple[str, ...]:
    """Return one row of the table."""
    errors = compute_errors(jnp.asarray(reference, jnp.float32), jnp.asarray(table, jnp.float32))
    off = ~np.eye(len(reference), dtype=bool)
    bias = float((np.asarray(table) - reference)[off].mean() / reference[off].mean())
    return (
        {"bisimulation": "d~", "on_policy": "d^pi"}[kind],
        f"{name}, observations" if noise else name,
        label,
        f"{float(errors['correlation']):.4f}",
        f"{float(errors['error']) / reference.max():.3f}",
        f"{bias:+.3f}",
        f"{seconds:.0f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", default=["inventory", "lake", "random"])
    parser.add_argument("--kinds", nargs="*", default=["on_policy", "bisimulation"])
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--updates", type=int, default=3_000)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--noise", type=float, nargs="*", default=[0.0, 0.05])
    options = parser.parse_args()
    print(
        "| distance | MDP | method | seed | correlation | largest error / largest distance | "
        "mean error / mean distance | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for kind in options.kinds:
        for name in options.names:
            for noise in options.noise:
                for seed in options.seeds:
                    rows = measure(
                        kind, name, options.methods, options.steps, options.updates, seed, noise
                    )
                    for distance, title, label, *numbers in rows:
                        print(
                            "| " + " | ".join((distance, title, label, str(seed), *numbers)) + " |",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
