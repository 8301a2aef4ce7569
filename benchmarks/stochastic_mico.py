"""MICo learned from stochastic data, against `exact.mico` of the MDP that generated them.

    python benchmarks/stochastic_mico.py            # all MDPs
    python benchmarks/stochastic_mico.py inventory  # one of them

The policy takes uniform actions. Every method gets the same 20,000 transitions; "empirical" is the
exact MICo of the empirical chain, whose error is that of the data. "from the MDP" learns from
expected rewards and successors instead of data. "recorded rewards" compares
rewards as they were recorded, which converges to E|r - r'|. With observations, states are one-hot
vectors with Gaussian noise, which never repeat.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bisimetric import MDP, Transitions, exact, worlds
from bisimetric.errors import ExpectedRewardWarning
from bisimetric.learned import (
    MetricNetwork,
    MicoNetwork,
    PairTDConfig,
    fit,
    source_from_mdp,
    source_from_transitions,
)
from bisimetric.learned.evaluation import compute_errors
from bisimetric.learned.sources import TrainingSource

DISCOUNT = 0.9
EMBEDDING = MetricNetwork((64, 64), num_groups=64, group_size=1)
METHODS = {
    "recorded rewards": PairTDConfig(MicoNetwork(EMBEDDING), reward_head=False),
    "squared": PairTDConfig(MicoNetwork(EMBEDDING)),
    "angular": PairTDConfig(MicoNetwork(EMBEDDING, "angular")),
    "from the MDP": PairTDConfig(MicoNetwork(EMBEDDING)),
}


class Case(NamedTuple):
    """An MDP and transitions (state, action, reward, successor) under uniform actions."""

    mdp: MDP
    states: NDArray[np.int64]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]
    successors: NDArray[np.int64]


def build_inventory(steps: int, seed: int) -> Case:
    """Return a shop with stock 0 to 9: orders, Poisson(4) demand, and costs of orders and storage.

    The recorded reward depends on the demand, and is random given state and action.
    """
    capacity, rng = 9, np.random.default_rng(seed)

    def move(stock: Any, order: Any, demand: Any) -> tuple[Any, Any]:
        level = np.minimum(stock + order, capacity)
        sold, ordered = np.minimum(level, demand), level - stock
        return level - sold, 4.0 * sold - 0.5 * level - 2.0 * ordered - 2.0 * (ordered > 0)

    size = capacity + 1
    P, R = np.zeros((size, size, size)), np.zeros((size, size))
    probability = np.exp(-4.0) * np.cumprod(np.r_[1.0, 4.0 / np.arange(1, 40)])
    for stock in range(size):
        for order in range(size):
            for demand, mass in enumerate(probability / probability.sum()):
                successor, reward = move(stock, order, demand)
                P[stock, order, successor] += mass
                R[stock, order] += mass * reward
    states, actions = (rng.integers(size, size=steps) for _ in range(2))
    successors, rewards = move(states, actions, rng.poisson(4.0, steps))
    return Case(MDP(P, R, discount=DISCOUNT), states, actions, rewards, successors)


def sample(mdp: MDP, steps: int, seed: int, reward_noise: float) -> Case:
    """Return transitions from uniform states, with Gaussian noise on the rewards."""
    rng = np.random.default_rng(seed)
    size, num_actions = mdp.R.shape
    states, actions = rng.integers(size, size=steps), rng.integers(num_actions, size=steps)
    cumulative = mdp.normalised_probabilities.toarray().cumsum(axis=1)
    chosen = cumulative[states * num_actions + actions]
    successors = np.minimum((rng.random(steps)[:, None] > chosen).sum(axis=1), size - 1)
    rewards = mdp.R[states, actions] + reward_noise * rng.normal(size=steps)
    return Case(mdp, states, actions, rewards, successors)


def build_case(name: str, steps: int, seed: int) -> Case:
    """Return one of the MDPs by name."""
    if name == "inventory":
        return build_inventory(steps, seed)
    if name == "lake":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExpectedRewardWarning)
            return sample(worlds.load("FrozenLake-v1", discount=DISCOUNT), steps, seed, 0.0)
    mdp = worlds.load("random", states=20, actions=3, successors=3, seed=seed, discount=DISCOUNT)
    return sample(mdp, steps, seed, 0.5)


def compute_empirical(case: Case) -> NDArray[np.float64]:
    """Return the exact MICo of the empirical chain."""
    size = case.mdp.num_states
    pairs = np.bincount(case.states * size + case.successors, minlength=size**2)
    P = pairs.reshape(size, 1, size).astype(np.float64)
    visits = P.sum(axis=(1, 2))
    rewards = np.bincount(case.states, case.rewards, size) / visits
    chain = MDP(P / visits[:, None, None], rewards[:, None], discount=DISCOUNT)
    return np.asarray(exact.mico(chain).values)


def measure(
    name: str, methods: list[str], steps: int, updates: int, seed: int, noise: float
) -> Iterator[str]:
    """Yield one row of the table per method."""
    case = build_case(name, steps, seed)
    uniform = np.full(case.mdp.R.shape, 1 / case.mdp.num_actions)
    reference = exact.mico(case.mdp, uniform).values
    size, rng = case.mdp.num_states, np.random.default_rng(seed + 1)
    points = np.eye(size)

    def observe(states: NDArray[np.int64]) -> NDArray[np.float64]:
        return points[states] + noise * rng.normal(size=(len(states), size))

    title = name if not noise else f"{name}, observations"
    data = Transitions(
        observe(case.states),
        case.actions,
        case.rewards,
        observe(case.successors),
        np.zeros(steps, bool),
    )
    if not noise:
        yield _format_row(title, "empirical", reference, compute_empirical(case), 0.0)
    source = source_from_transitions("mico", data)
    for label in methods:
        start, config = time.perf_counter(), METHODS[label]
        used: TrainingSource = source
        if label == "recorded rewards":
            used = dataclasses.replace(source, reward=jnp.asarray(case.rewards, jnp.float32))
        elif label == "from the MDP":
            if noise:
                continue
            used = source_from_mdp("mico", case.mdp, uniform, points=points, scaling=source.scaling)
        result = fit("mico", used, discount=DISCOUNT, updates=updates, seeds=[seed], config=config)
        features = source.scaling(points)
        table = result.network.table(result.parameters(0), features, features)
        yield _format_row(title, label, reference, table, time.perf_counter() - start)


def _format_row(title: str, label: str, reference: Any, table: Any, seconds: float) -> str:
    errors = compute_errors(jnp.asarray(reference, jnp.float32), jnp.asarray(table, jnp.float32))
    error, normalised, correlation = (float(errors[name]) for name in errors)
    return (
        f"| {title} | {reference.min():.3g} to {reference.max():.3g} | {label} | "
        f"{correlation:.4f} | {error:.3g} | {normalised:.2g} | {seconds:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", default=["inventory", "lake", "random"])
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--updates", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise", type=float, nargs="*", default=[0.0, 0.05])
    options = parser.parse_args()
    print("| MDP | exact MICo | method | correlation | largest error | normalised | seconds |")
    print("|---|---|---|---|---|---|---|")
    for name in options.names:
        for noise in options.noise:
            for row in measure(
                name, options.methods, options.steps, options.updates, options.seed, noise
            ):
                print(row, flush=True)


if __name__ == "__main__":
    main()
