"""MDPs of the benchmark: dynamics, renderings of their states, policies and exact metrics.

Rewards are divided by their range, so that distances are at most 1 / (1 - discount). Terminal
states are merged into one absorbing state, whose observation no loss sees; scores are of the other
states. Distractors are exogenous: neither rewards, nor dynamics, nor policies depend on them, so
two renderings of a state are at distance 0 and the metrics of states are those of renderings.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bisimetric import exact, planning, worlds
from bisimetric._io import read_record, write_record
from bisimetric.errors import ExpectedRewardWarning, InputError
from bisimetric.mdp import MDP
from bisimetric.paper.loss_benchmark import references
from bisimetric.paper.loss_benchmark.protocol import DISCOUNT, POLICIES
from bisimetric.worlds.gymnasium_envs import make_environment

FORMAT = "bisimetric loss benchmark environment 1"
FEATURES, DISTRACTORS = 32, 16
"""Coordinates of a vector observation: features, padded by zeros, and distractors."""
CHANNELS = ("wall", "goal", "lava", "east", "south", "west", "north")
"""Planes of an image; one more holds the distractors."""
MAX_STATES, MAX_SUCCESSORS = 64, 8
METRICS = ("bisimulation", "on_policy", "mico")


@dataclasses.dataclass(frozen=True, eq=False)
class Environment:
    """An MDP of the benchmark, ready for training and scoring; n states that are not terminal.

    Attributes:
        name: in files and on the command line.
        features: (n, 32) or (n, height, width, 7), the rendering of each state, without
            distractors.
        successors: (n, A, k), where n is the terminal state.
        probabilities: (n, A, k), of the successors.
        rewards: (n, A), divided by their range.
        policies: (2, n, A), probabilities, in the order of `POLICIES`.
        values: (3, n): V^pi of each policy, and V*.
        distances: (n, n) each: "bisimulation", and per policy "greedy on_policy" and so on; see
            `get_distance`.
        errors: proven error of each exact distance.
    """

    name: str
    features: NDArray[np.float32]
    successors: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    rewards: NDArray[np.float64]
    policies: NDArray[np.float64]
    values: NDArray[np.float64]
    distances: dict[str, NDArray[np.float64]]
    errors: dict[str, float]

    @property
    def num_states(self) -> int:
        """The number of states that are not terminal."""
        return len(self.features)

    @property
    def num_actions(self) -> int:
        """The number of actions."""
        return int(self.rewards.shape[1])

    @property
    def is_image(self) -> bool:
        """Whether observations are images."""
        return self.features.ndim == 4

    def get_distance(self, metric: str, policy: str) -> NDArray[np.float64]:
        """Return a reference (n, n) by name, under a policy where it depends on one."""
        return self.distances[metric if metric in self.distances else f"{policy} {metric}"]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one .npz file, atomically."""
        names = list(self.distances)
        arrays = {field: getattr(self, field) for field in _ARRAYS}
        arrays["distances"] = np.stack([self.distances[name] for name in names])
        header = {"format": FORMAT, "name": self.name, "metrics": names, "errors": self.errors}
        write_record(path, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Environment:
        """Read a file that `save` wrote."""

        def build(
            *, metrics: list[str], distances: NDArray[np.float64], **fields: Any
        ) -> Environment:
            return cls(distances=dict(zip(metrics, distances, strict=True)), **fields)

        return read_record(path, FORMAT, build, "no environment of the benchmark ({}).")


_ARRAYS = ("features", "successors", "probabilities", "rewards", "policies", "values")


@dataclasses.dataclass(frozen=True)
class Specification:
    """How an MDP of the benchmark is built.

    Attributes:
        title: in tables and figures.
        build: returns the MDP and the features (S, ...) of its states.
        held_out: whether it is unused for hyperparameter selection.
    """

    title: str
    build: Callable[[], tuple[MDP, NDArray[np.float32]]]
    held_out: bool = False


def build(name: str) -> Environment:
    """Build an MDP of the benchmark, with its exact metrics.

    Args:
        name: in `ENVIRONMENTS`.

    Raises:
        InputError: if a package is missing.

    >>> environment = build("inventory")
    >>> environment.num_states, environment.num_actions, environment.features.shape
    (48, 4, (48, 32))
    """
    mdp, features = ENVIRONMENTS[name].build()
    mdp, features = _merge_terminal_states(mdp, features)
    size = mdp.num_states - _count_terminal(mdp)
    P = np.asarray(mdp.P.todense()).reshape(mdp.num_states, mdp.num_actions, mdp.num_states)
    successors, probabilities = _list_successors(P[:size])
    greedy = planning.greedy_policy(mdp, planning.optimal_values(mdp, tol=1e-9))
    policies = {
        "greedy": np.eye(mdp.num_actions)[np.asarray(greedy)],
        "uniform": np.full(mdp.R.shape, 1 / mdp.num_actions),
    }
    values = [planning.policy_values(mdp, policies[each], tol=1e-9).values for each in POLICIES]
    values.append(planning.optimal_values(mdp, tol=1e-9).values)
    distances, errors = _compute_distances(mdp, P, policies)
    return Environment(
        name=name,
        features=features[:size],
        successors=successors,
        probabilities=probabilities,
        rewards=mdp.R[:size],
        policies=np.stack([policies[each][:size] for each in POLICIES]),
        values=np.stack(values)[:, :size],
        distances={key: matrix[:size, :size] for key, matrix in distances.items()},
        errors=errors,
    )


def _compute_distances(
    mdp: MDP, P: NDArray[np.float64], policies: Mapping[str, NDArray[np.float64]]
) -> tuple[dict[str, NDArray[np.float64]], dict[str, float]]:
    """Return exact metrics and fixed points of losses, and the proven errors of the former."""
    distance = exact.bisimulation(mdp)
    distances, errors = {"bisimulation": distance.values}, {"bisimulation": distance.error}
    R = np.asarray(mdp.R)
    distances["product"] = references.solve_product(P.transpose(1, 0, 2), R, DISCOUNT)
    for name, policy in policies.items():
        for metric in ("on_policy", "mico"):
            distance = getattr(exact, metric)(mdp, policy)
            distances[f"{name} {metric}"] = distance.values
            errors[f"{name} {metric}"] = distance.error
        gaps = references.compute_expected_gaps(R, policy)
        chain = np.einsum("sa,sat->st", policy, P)
        sampled = references.solve_independent(chain, gaps, DISCOUNT)
        distances[f"{name} sampled_mico"] = sampled
        distances[f"{name} sampled_reduced_mico"] = references.reduce(sampled)
        for steps in (1, LOOKAHEAD):
            distances[f"{name} independent_{steps}"] = references.solve_independent(
                chain, gaps, DISCOUNT, num_steps=steps, self_distances=False
            )
    return {key: np.asarray(matrix, np.float64) for key, matrix in distances.items()}, errors


def _find_terminal(mdp: MDP) -> NDArray[np.bool_]:
    """Return which states are absorbing with reward 0 for every action, (S,)."""
    loops = np.asarray(mdp.P.todense()).reshape(mdp.num_states, mdp.num_actions, -1)
    stays = loops[np.arange(mdp.num_states), :, np.arange(mdp.num_states)]
    return np.asarray((stays == 1).all(axis=1) & (mdp.R == 0).all(axis=1))


def _count_terminal(mdp: MDP) -> int:
    return int(_find_terminal(mdp).sum())


def _merge_terminal_states(
    mdp: MDP, features: NDArray[np.float32]
) -> tuple[MDP, NDArray[np.float32]]:
    """Merge the terminal states into one, the last, and divide the rewards by their range."""
    terminal = _find_terminal(mdp)
    kept = np.flatnonzero(~terminal)
    order = kept if not terminal.any() else np.append(kept, np.flatnonzero(terminal)[0])
    column = np.searchsorted(kept, np.arange(mdp.num_states))
    column[terminal] = len(kept)
    P = np.asarray(mdp.P.todense()).reshape(mdp.num_states, mdp.num_actions, mdp.num_states)
    merged = np.zeros((len(order), mdp.num_actions, len(order)))
    for state in range(mdp.num_states):
        merged[:, :, column[state]] += P[order, :, state]
    R = np.asarray(mdp.R)[order]
    return MDP(merged, R / np.ptp(R), DISCOUNT), features[order]


def _list_successors(
    P: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the successors and their probabilities, (n, A, k), padded by probability 0."""
    successors = np.argsort(-P, axis=2, kind="stable")[:, :, :MAX_SUCCESSORS]
    probabilities = np.take_along_axis(P, successors, axis=2)
    if not np.allclose(probabilities.sum(axis=2), 1, atol=1e-9):
        raise InputError(f"loss benchmark: a state has more than {MAX_SUCCESSORS} successors.")
    return successors, probabilities


def encode_coordinates(*coordinates: NDArray[Any]) -> NDArray[np.float32]:
    """Encode integer coordinates one-hot, one after the other, padded to `FEATURES`.

    >>> encode_coordinates(np.array([0, 1]), np.array([2, 0]))[:, :5].tolist()
    [[1.0, 0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0, 0.0]]
    """
    columns = []
    for coordinate in coordinates:
        integers = np.asarray(coordinate, np.int64) - int(np.min(coordinate))
        columns.append(np.eye(int(integers.max()) + 1)[integers])
    encoded = np.concatenate(columns, axis=1)
    return np.pad(encoded, ((0, 0), (0, FEATURES - encoded.shape[1]))).astype(np.float32)


def _load_grid(world: str, **options: Any) -> tuple[MDP, NDArray[np.float32]]:
    with warnings.catch_warnings():
        # The protocol takes the expected reward of a state and action.
        warnings.simplefilter("ignore", ExpectedRewardWarning)
        mdp = worlds.load(world, discount=DISCOUNT, **options)
    row, column = np.asarray(mdp.positions).T
    return mdp, encode_coordinates(row, column)


def _load_minigrid(world: str) -> tuple[MDP, NDArray[np.float32]]:
    """Return a MiniGrid room with its actions left, right and forward, and images of its states."""
    full = worlds.load(world, discount=DISCOUNT)
    size, moves = full.num_states, 3
    P = np.asarray(full.P.todense()).reshape(size, full.num_actions, size)[:, :moves]
    environment, _ = make_environment(world, {})
    environment.reset(seed=0)
    cells = environment.grid
    background = np.zeros((cells.height, cells.width, len(CHANNELS)), np.float32)
    for row in range(cells.height):
        for column in range(cells.width):
            cell = cells.get(column, row)
            if cell is not None and cell.type in CHANNELS:
                background[row, column, CHANNELS.index(cell.type)] = 1.0
    images = np.repeat(background[None], size, axis=0)
    for state in range(size):
        place, _, direction = full.state_name(state).partition(" ")
        if direction:
            row, column = map(int, place.split(","))
            images[state, row, column, CHANNELS.index(direction)] = 1.0
    return MDP(P, full.R[:, :moves], DISCOUNT), images


def build_inventory() -> tuple[MDP, NDArray[np.float32]]:
    """Build an inventory with a lead time of one period: states (stock, on order).

    The order of the last period arrives, demand min(Poisson(1.5), 7) is served as far as the stock
    of at most 11 allows, and the rest is lost. Price 1, holding cost 0.1 per unit and period,
    ordering cost 0.4 per unit; orders are 0 to 3 units. States with the same sum of stock and order
    are bisimilar up to the capacity.
    """
    capacity, orders = 11, 4
    demand = stats.poisson.pmf(np.arange(MAX_SUCCESSORS), 1.5)
    demand[-1] = 1 - demand[:-1].sum()
    stock, ordered = (each.ravel() for each in np.indices((capacity + 1, orders)))
    size = len(stock)
    P, R = np.zeros((size, orders, size)), np.zeros((size, orders))
    for state in range(size):
        available = min(stock[state] + ordered[state], capacity)
        for wanted, probability in enumerate(demand):
            sold = min(wanted, available)
            for order in range(orders):
                P[state, order, (available - sold) * orders + order] += probability
                R[state, order] += probability * (sold - 0.1 * (available - sold))
        R[state] -= 0.4 * np.arange(orders)
    return MDP(P, R, DISCOUNT), encode_coordinates(stock, ordered)


def build_queue() -> tuple[MDP, NDArray[np.float32]]:
    """Build a queue with bursts of arrivals: states (jobs, phase).

    A job arrives with probability 0.1, 0.3, 0.5 or 0.7 by phase, and the phase advances cyclically
    with probability 0.2. Action a serves a job with probability 0.3 a at cost a^2 / 4; waiting
    costs 0.2 per job, and a job that arrives at a full queue of 11 costs 5.
    """
    capacity, arrivals, rates = 11, np.array([0.1, 0.3, 0.5, 0.7]), 0.3 * np.arange(4)
    jobs, phase = (each.ravel() for each in np.indices((capacity + 1, len(arrivals))))
    size, actions = len(jobs), len(rates)
    P, R = np.zeros((size, actions, size)), np.zeros((size, actions))
    for state in range(size):
        for action, rate in enumerate(rates):
            R[state, action] = -0.2 * jobs[state] - action**2 / 4
            for served, share in ((0, 1 - rate), (1, rate)):
                rest = max(jobs[state] - served, 0)
                for arrived in (0, 1):
                    p = share * (arrivals[phase[state]] if arrived else 1 - arrivals[phase[state]])
                    R[state, action] -= 5 * p * (rest + arrived > capacity)
                    following = min(rest + arrived, capacity) * len(arrivals)
                    P[state, action, following + phase[state]] += 0.8 * p
                    P[state, action, following + (phase[state] + 1) % len(arrivals)] += 0.2 * p
    return MDP(P, R, DISCOUNT), encode_coordinates(jobs, phase)


LOOKAHEAD = 3
"""Steps of the n-step targets whose fixed point is computed."""

ENVIRONMENTS: dict[str, Specification] = {
    "rooms": Specification("31 rooms", lambda: _load_grid("mirrored-rooms")),
    "walls": Specification(
        "grid with walls",
        lambda: _load_grid("open-grid", rows=9, columns=9, obstacles=0.25),
    ),
    "minigrid": Specification("MiniGrid images", lambda: _load_minigrid("MiniGrid-Empty-6x6-v0")),
    "frozen-lake": Specification(
        "slippery FrozenLake", lambda: _load_grid("FrozenLake-v1", map_name="8x8")
    ),
    "inventory": Specification("inventory", build_inventory),
    "lava": Specification(
        "MiniGrid images with lava", lambda: _load_minigrid("MiniGrid-LavaGapS6-v0"), held_out=True
    ),
    "queue": Specification("queue with bursts", build_queue, held_out=True),
}
"""The last two are held out."""
TUNING = tuple(name for name, each in ENVIRONMENTS.items() if not each.held_out)
