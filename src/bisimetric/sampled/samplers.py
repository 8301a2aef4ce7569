"""Samplers of pairs of transitions, and the updates of a distance matrix that they drive.

All samplers converge to the same matrix, at different speeds. A run is a function of the seed and
the number of the step, so that it can be resumed anywhere.
"""

from __future__ import annotations

import dataclasses
import hashlib
import numbers
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._memory import require_memory
from bisimetric.errors import InputError
from bisimetric.mdp import validate_policy
from bisimetric.sampled import kernels, sum_tree
from bisimetric.sampled.transition_table import TransitionTable

SamplerName = Literal["uniform", "trajectories", "all-actions", "prioritised"]


@dataclasses.dataclass(frozen=True, eq=False)
class Uniform:
    """Sample any transition, and any other with the same action (Castro 2020).

    Args:
        weights: relative sampling frequencies, (S, A) for an MDP, (n,) for n transitions, where
            those of equal ones are summed; default: all distinct transitions alike. Convergence
            needs positive weights.

    >>> from bisimetric import sampled, worlds
    >>> mdp = worlds.load("pessimism", discount=0.9)
    >>> sampled.bisimulation(mdp, sampler=Uniform()).metadata["sampler"]
    'uniform'
    """

    weights: ArrayLike | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Trajectories:
    """Sample the steps of a trajectory, each with an earlier one of the same action.

    In an MDP the trajectory is a random walk. A data set is read in its own order, cyclically.

    Args:
        policy: the policy of the walk, (S,) actions or (S, A) probabilities; default: uniform.
        restart: probability per step that the walk restarts in a random state.

    >>> Trajectories(restart=0.1).restart
    0.1
    """

    policy: ArrayLike | None = None
    restart: float = 0.01


@dataclasses.dataclass(frozen=True, eq=False)
class AllActions:
    """Sample two states, and all of their actions (Comanici, Panangaden & Precup 2012).

    Each action counts as one step.

    Args:
        weights: relative sampling frequencies, (S, A) for an MDP, (n,) for n transitions; a state
            has the sum of those of its actions; default: all distinct transitions alike.

    >>> AllActions().weights is None
    True
    """

    weights: ArrayLike | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Prioritised:
    """Sample pairs in proportion to the increase that they would make.

    After an entry increases, the priorities of its predecessor pairs are updated (prioritised
    sweeping, Moore & Atkeson 1993).

    Args:
        explore: fraction of the samples that are uniform, so that every pair is sampled infinitely
            often.

    >>> Prioritised(explore=0.2).explore
    0.2
    """

    explore: float = 0.1


Sampler = Uniform | Trajectories | AllActions | Prioritised
SAMPLERS: dict[SamplerName, type[Any]] = {
    "uniform": Uniform,
    "trajectories": Trajectories,
    "all-actions": AllActions,
    "prioritised": Prioritised,
}


def get_sampler_name(sampler: Sampler) -> SamplerName:
    """Return the name of a sampler, as on the command line.

    >>> get_sampler_name(AllActions())
    'all-actions'
    """
    return next(name for name, cls in SAMPLERS.items() if isinstance(sampler, cls))


def describe_sampler(sampler: Sampler) -> str:
    """Describe a sampler and its options in one line; arrays by a hash.

    >>> describe_sampler(Trajectories(restart=0.1))
    'trajectories(restart=0.1)'
    """
    options = []
    for field in dataclasses.fields(sampler):
        value = getattr(sampler, field.name)
        if value is not None and not isinstance(value, numbers.Real):
            value = hashlib.sha256(np.asarray(value, np.float64).tobytes()).hexdigest()[:8]
        if value is not None:
            options.append(f"{field.name}={value}")
    return f"{get_sampler_name(sampler)}({', '.join(options)})"


def validate_sampler(kind: str, sampler: Sampler | None) -> Sampler:
    """Return a valid sampler, `Uniform()` for None, or raise InputError."""
    if sampler is None:
        return Uniform()
    if not isinstance(sampler, Sampler):
        raise InputError(
            f"sampled.{kind}: sampler is {sampler!r} and must be a sampler such as "
            "sampled.Uniform()."
        )
    for name in ("restart", "explore"):
        fraction = getattr(sampler, name, 1.0)
        if not (isinstance(fraction, numbers.Real) and 0 < float(fraction) <= 1):
            raise InputError(
                f"sampled.{kind}: {name} is {fraction!r} and must be above 0 and at most 1."
            )
    return sampler


PAIRS_PER_BLOCK = 1 << 14
"""Pairs that are sampled before they are applied."""

SamplerState = dict[str, NDArray[Any]]


class PairUpdater(Protocol):
    """Samples pairs of transitions and applies equation 3 to them, in place.

    `state` is everything that a run needs besides the number of steps: arrays, changed in place.
    """

    state: SamplerState

    def advance(
        self,
        values: NDArray[np.float64],
        paired: NDArray[np.uint8],
        first_step: int,
        num_steps: int,
    ) -> float:
        """Apply `num_steps` updates, the first with number `first_step`; return the largest."""


def build_updater(
    sampler: Sampler,
    table: TransitionTable,
    discount: float,
    seed: int,
    order: NDArray[np.int64] | None,
    state: SamplerState | None = None,
) -> PairUpdater:
    """Build the updater of a sampler; `order` are the rows of a data set in their order."""
    if isinstance(sampler, Prioritised):
        return PrioritisedUpdater(table, discount, seed, sampler.explore)
    if isinstance(sampler, Trajectories):
        return TrajectoryUpdater(table, discount, seed, sampler, order, state)
    if isinstance(sampler, AllActions):
        return AllActionsUpdater(table, discount, seed, state)
    return WeightedUpdater(table, discount, seed)


class WeightedUpdater:
    """Samples pairs by weight."""

    def __init__(self, table: TransitionTable, discount: float, seed: int) -> None:
        self.state: SamplerState = {}
        self.table, self.discount, self.kernel_seed = table, discount, kernels.derive_seed(seed)
        all_rows = np.array([0, len(table.weight)])
        self.row_alias = kernels.AliasTable(*kernels.build_alias_table(table.weight, all_rows))
        self.group_alias = kernels.AliasTable(
            *kernels.build_alias_table(table.weight, table.rows.start)
        )
        self.i, self.j = np.empty(PAIRS_PER_BLOCK, np.int32), np.empty(PAIRS_PER_BLOCK, np.int32)

    def advance(
        self,
        values: NDArray[np.float64],
        paired: NDArray[np.uint8],
        first_step: int,
        num_steps: int,
    ) -> float:
        increase = 0.0
        for offset in range(0, num_steps, PAIRS_PER_BLOCK):
            size = min(PAIRS_PER_BLOCK, num_steps - offset)
            i, j = self.i[:size], self.j[:size]
            self.sample_pairs(first_step + offset, i, j)
            largest = kernels.apply_updates(values, paired, self.table.rows, self.discount, i, j)
            increase = max(increase, largest)
        return increase

    def sample_pairs(self, first_step: int, i: NDArray[np.int32], j: NDArray[np.int32]) -> None:
        kernels.sample_weighted_pairs(
            self.table.rows, self.row_alias, self.group_alias, self.kernel_seed, first_step, i, j
        )


class AllActionsUpdater(WeightedUpdater):
    """Samples pairs of states, and all their actions in turn."""

    def __init__(
        self, table: TransitionTable, discount: float, seed: int, state: SamplerState | None
    ) -> None:
        super().__init__(table, discount, seed)
        self.state = state or {"position": np.zeros(2, np.int64)}

    def sample_pairs(self, first_step: int, i: NDArray[np.int32], j: NDArray[np.int32]) -> None:
        table, position = self.table, self.state["position"]
        kernels.sample_state_pairs(
            table.rows, table.row_index, self.row_alias, self.kernel_seed, position, i, j
        )


class TrajectoryUpdater(WeightedUpdater):
    """Samples the steps of a random walk or of recorded data, each with an earlier one."""

    def __init__(
        self,
        table: TransitionTable,
        discount: float,
        seed: int,
        sampler: Trajectories,
        order: NDArray[np.int64] | None,
        state: SamplerState | None,
    ) -> None:
        super().__init__(table, discount, seed)
        self.order, self.restart = order, sampler.restart
        self.state = state or _initial_state(table)
        if order is None:
            self.cumulative_policy = _cumulate_policy(table, sampler)

    def sample_pairs(self, first_step: int, i: NDArray[np.int32], j: NDArray[np.int32]) -> None:
        rows, index, seed = self.table.rows, self.table.row_index, self.kernel_seed
        current, seen, num_seen = (self.state[name] for name in ("current", "seen", "num_seen"))
        if self.order is not None:
            kernels.sample_recorded_pairs(
                rows, index, self.order, seed, first_step, current, seen, num_seen, i, j
            )
        else:
            policy, restart = self.cumulative_policy, self.restart
            kernels.sample_walk_pairs(
                rows, index, policy, restart, seed, first_step, current, seen, num_seen, i, j
            )


class PrioritisedUpdater:
    """Samples pairs in proportion to the increase that they would make."""

    def __init__(self, table: TransitionTable, discount: float, seed: int, explore: float) -> None:
        self.state: SamplerState = {}
        self.table, self.discount, self.kernel_seed = table, discount, kernels.derive_seed(seed)
        self.explore = explore
        size = np.diff(table.rows.start)
        self.group_offsets = np.concatenate([[0], np.cumsum(size * (size - 1) // 2)])
        self.tree: NDArray[np.float64] | None = None
        require_memory(
            f"sampled: the priorities of {table.num_pairs:,} pairs of transitions need",
            32 * table.num_pairs,
            "use another sampler, such as Uniform",
        )

    def advance(
        self,
        values: NDArray[np.float64],
        paired: NDArray[np.uint8],
        first_step: int,
        num_steps: int,
    ) -> float:
        table, rows = self.table, self.table.rows
        if not table.num_pairs:
            return 0.0
        if self.tree is None:
            self.tree = sum_tree.build_tree(values, rows, self.discount, self.group_offsets)
        increase: float = sum_tree.apply_prioritised_updates(
            values,
            paired,
            rows,
            table.row_index,
            self.discount,
            self.tree,
            self.group_offsets,
            *table.predecessors,
            self.explore,
            self.kernel_seed,
            first_step,
            num_steps,
        )
        return increase


def enlarge_state(
    state: SamplerState, before: TransitionTable, after: TransitionTable
) -> SamplerState:
    """Return the sampler's state for more states; ids stay, but the terminal state is the last."""
    if "seen" not in state:
        return state
    enlarged = _initial_state(after)
    states = after.num_states
    for g, num_seen in enumerate(state["num_seen"]):
        earlier = state["seen"][0, g, :num_seen]
        initial = enlarged["seen"][0, g, : enlarged["num_seen"][g]]
        seen = np.unique(np.concatenate([initial, earlier[earlier != before.terminal]]))
        unseen = np.setdiff1d(np.arange(states), seen)
        order = np.concatenate([seen, unseen])
        enlarged["seen"][0, g] = order
        enlarged["seen"][1, g, order] = np.arange(states)
        enlarged["num_seen"][g] = len(seen)
    return enlarged


def _initial_state(table: TransitionTable) -> SamplerState:
    """Return a state in which no state but the terminal one was seen."""
    states = np.arange(table.num_states, dtype=np.int32)
    seen = np.tile(states, (2, table.num_groups, 1))
    num_seen = np.zeros(table.num_groups, np.int64)
    if table.terminal is not None:
        seen[:, :, [0, table.terminal]] = seen[:, :, [table.terminal, 0]]
        num_seen[:] = 1
    return {"seen": seen, "num_seen": num_seen, "current": np.full(1, -1, np.int64)}


def _cumulate_policy(table: TransitionTable, sampler: Trajectories) -> NDArray[np.float64]:
    """Compute the cumulative action probabilities (S, G) of a random walk."""
    mdp = table.mdp
    if mdp is None or sampler.policy is None:
        weights = (table.row_index.T >= 0) * 1.0
    else:
        policy = validate_policy(mdp, sampler.policy)
        weights = np.eye(mdp.num_actions)[policy] if policy.ndim == 1 else policy
    sums = np.ascontiguousarray(np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True))
    last = table.num_groups - 1 - np.argmax(weights[:, ::-1] > 0, axis=1)
    # Rounding must not select an action of probability 0 after the last possible one.
    sums[np.arange(table.num_groups) >= last[:, None]] = 2.0
    return sums
