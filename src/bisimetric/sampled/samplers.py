"""How pairs of transitions are chosen. All of them reach the same table, some of them sooner.

What turns a sampler into updates of a table: the same key gives the same run, from anywhere.
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
    """The paper's: any transition, and any other with the same action.

    `weights` say how often each is drawn: (S, A) for an MDP, (n,) for n transitions, where equal
    ones add up. Without them, all different ones are drawn alike, however often they were seen.
    The theorem asks that all weights are above 0.
    """

    weights: ArrayLike | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Trajectories:
    """What an agent meets, in its order, each step with an earlier one of the same action.

    In an MDP a walk follows `policy`, (S,) actions or (S, A) probabilities, by default any
    action; it starts anew in any state with probability `restart` a step. A data set is read in
    its own order, again and again.
    """

    policy: ArrayLike | None = None
    restart: float = 0.01


@dataclasses.dataclass(frozen=True, eq=False)
class AllActions:
    """Any two states, all of their actions at once (Comanici, Panangaden & Precup 2012).

    Each action counts as one step. `weights` as in `Uniform`; a state has those of its actions.
    """

    weights: ArrayLike | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Prioritised:
    """The pairs that would rise, in proportion to how much they would.

    After an entry has changed, all pairs that lead to it are ranked anew by the change that it
    brings to them (prioritised sweeping, Moore & Atkeson 1993). A share `explore` of the draws
    takes any pair, so that all are drawn for ever.
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
    """What a sampler is called, also on the command line.

    >>> name_of(AllActions())
    'all-actions'
    """
    return next(name for name, each in SAMPLERS.items() if isinstance(sampler, each))


def describe_sampler(sampler: Sampler) -> str:
    """A sampler in words, its options included; arrays by a fingerprint.

    >>> described(Trajectories(restart=0.1))
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
    """The sampler, `Uniform()` where there is none, or a clear error."""
    if sampler is None:
        return Uniform()
    if not isinstance(sampler, Sampler):
        raise InputError(
            f"sampled.{kind}: sampler is {sampler!r} and must be one such as sampled.Uniform()."
        )
    for name in ("restart", "explore"):
        share = getattr(sampler, name, 1.0)
        if not (isinstance(share, numbers.Real) and 0 < float(share) <= 1):
            raise InputError(
                f"sampled.{kind}: {name} is {share!r} and must be above 0 and at most 1."
            )
    return sampler


PAIRS_PER_BLOCK = 1 << 14
"""Pairs that are drawn before they are applied."""

SamplerState = dict[str, NDArray[Any]]


class PairUpdater(Protocol):
    """Applies equation 3 to n pairs of transitions, the first of which has the number `first`.

    `memory` is all that it remembers besides the number of steps: arrays, changed in place.
    """

    state: SamplerState

    def advance(
        self,
        values: NDArray[np.float64],
        paired: NDArray[np.uint8],
        first_step: int,
        num_steps: int,
    ) -> float: ...


def build_updater(
    sampler: Sampler,
    table: TransitionTable,
    discount: float,
    seed: int,
    order: NDArray[np.int64] | None,
    state: SamplerState | None = None,
) -> PairUpdater:
    """The engine of a sampler; `order` are the rows of a data set as they came, else None."""
    if isinstance(sampler, Prioritised):
        return PrioritisedUpdater(table, discount, seed, sampler.explore)
    if isinstance(sampler, Trajectories):
        return TrajectoryUpdater(table, discount, seed, sampler, order, state)
    if isinstance(sampler, AllActions):
        return AllActionsUpdater(table, discount, seed, state)
    return WeightedUpdater(table, discount, seed)


class WeightedUpdater:
    """Pairs drawn by weight."""

    def __init__(self, table: TransitionTable, discount: float, seed: int) -> None:
        self.state: SamplerState = {}
        self.table, self.discount, self.kernel_seed = table, discount, kernels.derive_seed(seed)
        whole = np.array([0, len(table.weight)])
        self.row_alias = kernels.AliasTable(*kernels.build_alias_table(table.weight, whole))
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
        rise = 0.0
        for done in range(0, num_steps, PAIRS_PER_BLOCK):
            size = min(PAIRS_PER_BLOCK, num_steps - done)
            i, j = self.i[:size], self.j[:size]
            self.sample_pairs(first_step + done, i, j)
            found = kernels.apply_updates(values, paired, self.table.rows, self.discount, i, j)
            rise = max(rise, found)
        return rise

    def sample_pairs(self, first_step: int, i: NDArray[np.int32], j: NDArray[np.int32]) -> None:
        kernels.sample_weighted_pairs(
            self.table.rows, self.row_alias, self.group_alias, self.kernel_seed, first_step, i, j
        )


class AllActionsUpdater(WeightedUpdater):
    """Pairs of states, all their actions one after the other."""

    def __init__(
        self, table: TransitionTable, discount: float, seed: int, state: SamplerState | None
    ) -> None:
        super().__init__(table, discount, seed)
        self.state = state or {"position": np.zeros(2, np.int64)}

    def sample_pairs(self, first_step: int, i: NDArray[np.int32], j: NDArray[np.int32]) -> None:
        known, position = self.table, self.state["position"]
        kernels.sample_state_pairs(
            known.rows, known.row_index, self.row_alias, self.kernel_seed, position, i, j
        )


class TrajectoryUpdater(WeightedUpdater):
    """The steps of a walk or of a record, each with one that was seen before."""

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
        rows, place = self.table.rows, self.table.row_index
        seen, count, at = (self.state[name] for name in ("seen", "count", "at"))
        if self.order is not None:
            kernels.sample_recorded_pairs(
                rows, place, self.order, self.kernel_seed, first_step, at, seen, count, i, j
            )
        else:
            kernels.sample_walk_pairs(
                rows,
                place,
                self.cumulative_policy,
                self.restart,
                self.kernel_seed,
                first_step,
                at,
                seen,
                count,
                i,
                j,
            )


class PrioritisedUpdater:
    """Pairs drawn by the rise that they would make."""

    def __init__(self, table: TransitionTable, discount: float, seed: int, explore: float) -> None:
        self.state: SamplerState = {}
        self.table, self.discount, self.kernel_seed = table, discount, kernels.derive_seed(seed)
        self.explore = explore
        size = np.diff(table.rows.start)
        self.group_offsets = np.concatenate([[0], np.cumsum(size * (size - 1) // 2)])
        self.tree: NDArray[np.float64] | None = None
        require_memory(
            f"sampled: ranking {table.num_pairs:,} pairs of transitions needs",
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
        known, rows = self.table, self.table.rows
        if not known.num_pairs:
            return 0.0
        if self.tree is None:
            self.tree = sum_tree.build_tree(values, rows, self.discount, self.group_offsets)
        rise: float = sum_tree.apply_prioritised_updates(
            values,
            paired,
            rows,
            known.row_index,
            self.discount,
            self.tree,
            self.group_offsets,
            *known.predecessors,
            self.explore,
            self.kernel_seed,
            first_step,
            num_steps,
        )
        return rise


def enlarge_state(
    state: SamplerState, before: TransitionTable, after: TransitionTable
) -> SamplerState:
    """The memory of an engine once more is known: ids stay, but for the end, which is the last."""
    if "seen" not in state:
        return state
    fresh = _initial_state(after)
    states = after.num_states
    for g, count in enumerate(state["count"]):
        was = state["seen"][0, g, :count]
        first = fresh["seen"][0, g, : fresh["count"][g]]
        met = np.unique(np.concatenate([first, was[was != before.terminal]]))
        rest = np.setdiff1d(np.arange(states), met)
        order = np.concatenate([met, rest])
        fresh["seen"][0, g] = order
        fresh["seen"][1, g, order] = np.arange(states)
        fresh["count"][g] = len(met)
    return fresh


def _initial_state(table: TransitionTable) -> SamplerState:
    """No state was seen, but for the end, which everyone knows."""
    states = np.arange(table.num_states, dtype=np.int32)
    seen = np.tile(states, (2, table.num_groups, 1))
    count = np.zeros(table.num_groups, np.int64)
    if table.terminal is not None:
        seen[:, :, [0, table.terminal]] = seen[:, :, [table.terminal, 0]]
        count[:] = 1
    return {"seen": seen, "count": count, "at": np.full(1, -1, np.int64)}


def _cumulate_policy(table: TransitionTable, sampler: Trajectories) -> NDArray[np.float64]:
    """The probabilities (S, G) of the actions of a walk, added up."""
    mdp = table.mdp
    if mdp is None or sampler.policy is None:
        chosen = (table.row_index.T >= 0) * 1.0
    else:
        policy = validate_policy(mdp, sampler.policy)
        chosen = np.eye(mdp.num_actions)[policy] if policy.ndim == 1 else policy
    added = np.ascontiguousarray(np.cumsum(chosen, axis=1) / chosen.sum(axis=1, keepdims=True))
    last = table.num_groups - 1 - np.argmax(chosen[:, ::-1] > 0, axis=1)
    added[np.arange(table.num_groups) >= last[:, None]] = (
        2.0  # rounding must not choose what is not
    )
    return added
