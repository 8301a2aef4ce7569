"""What turns a sampler into updates of a table: the same key gives the same run, from anywhere."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bisimetric.mdp import checked_policy
from bisimetric.memory import require_memory
from bisimetric.sampled import draws, priorities, updates
from bisimetric.sampled.known import Known
from bisimetric.sampled.samplers import AllActions, Prioritised, Sampler, Trajectories

BLOCK = 1 << 14
"""Pairs that are drawn before they are applied."""

Memory = dict[str, NDArray[Any]]


class Engine(Protocol):
    """Applies equation 3 to n pairs of transitions, the first of which has the number `first`.

    `memory` is all that it remembers besides the number of steps: arrays, changed in place.
    """

    memory: Memory

    def advance(
        self, values: NDArray[np.float64], met: NDArray[np.uint8], first: int, n: int
    ) -> float: ...


def engine_of(
    sampler: Sampler,
    known: Known,
    discount: float,
    key: int,
    order: NDArray[np.int64] | None,
    memory: Memory | None = None,
) -> Engine:
    """The engine of a sampler; `order` are the rows of a data set as they came, else None."""
    if isinstance(sampler, Prioritised):
        return Ranked(known, discount, key, sampler.explore)
    if isinstance(sampler, Trajectories):
        return Followed(known, discount, key, sampler, order, memory)
    if isinstance(sampler, AllActions):
        return Whole(known, discount, key, memory)
    return Weighed(known, discount, key)


class Weighed:
    """Pairs drawn by weight."""

    def __init__(self, known: Known, discount: float, key: int) -> None:
        self.memory: Memory = {}
        self.known, self.discount, self.seed = known, discount, draws.seed_of(key)
        whole = np.array([0, len(known.weight)])
        self.everything = draws.Table(*draws.alias(known.weight, whole))
        self.within = draws.Table(*draws.alias(known.weight, known.rows.start))
        self.i, self.j = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.int32)

    def advance(
        self, values: NDArray[np.float64], met: NDArray[np.uint8], first: int, n: int
    ) -> float:
        rise = 0.0
        for done in range(0, n, BLOCK):
            size = min(BLOCK, n - done)
            i, j = self.i[:size], self.j[:size]
            self.fill(first + done, i, j)
            found = updates.apply(values, met, self.known.rows, self.discount, i, j)
            rise = max(rise, found)
        return rise

    def fill(self, first: int, i: NDArray[np.int32], j: NDArray[np.int32]) -> None:
        draws.pairs_by_weight(self.known.rows, self.everything, self.within, self.seed, first, i, j)


class Whole(Weighed):
    """Pairs of states, all their actions one after the other."""

    def __init__(self, known: Known, discount: float, key: int, memory: Memory | None) -> None:
        super().__init__(known, discount, key)
        self.memory = memory or {"position": np.zeros(2, np.int64)}

    def fill(self, first: int, i: NDArray[np.int32], j: NDArray[np.int32]) -> None:
        known, position = self.known, self.memory["position"]
        draws.pairs_of_states(known.rows, known.place, self.everything, self.seed, position, i, j)


class Followed(Weighed):
    """The steps of a walk or of a record, each with one that was seen before."""

    def __init__(
        self,
        known: Known,
        discount: float,
        key: int,
        sampler: Trajectories,
        order: NDArray[np.int64] | None,
        memory: Memory | None,
    ) -> None:
        super().__init__(known, discount, key)
        self.order, self.restart = order, sampler.restart
        self.memory = memory or _nothing_seen(known)
        if order is None:
            self.choices = _choices(known, sampler)

    def fill(self, first: int, i: NDArray[np.int32], j: NDArray[np.int32]) -> None:
        rows, place = self.known.rows, self.known.place
        seen, count, at = (self.memory[name] for name in ("seen", "count", "at"))
        if self.order is not None:
            draws.pairs_of_a_record(
                rows, place, self.order, self.seed, first, at, seen, count, i, j
            )
        else:
            draws.pairs_of_a_walk(
                rows, place, self.choices, self.restart, self.seed, first, at, seen, count, i, j
            )


class Ranked:
    """Pairs drawn by the rise that they would make."""

    def __init__(self, known: Known, discount: float, key: int, explore: float) -> None:
        self.memory: Memory = {}
        self.known, self.discount, self.seed = known, discount, draws.seed_of(key)
        self.explore = explore
        size = np.diff(known.rows.start)
        self.base = np.concatenate([[0], np.cumsum(size * (size - 1) // 2)])
        self.tree: NDArray[np.float64] | None = None
        require_memory(
            f"sampled: ranking {known.num_pairs:,} pairs of transitions needs",
            32 * known.num_pairs,
            "use another sampler, such as Uniform",
        )

    def advance(
        self, values: NDArray[np.float64], met: NDArray[np.uint8], first: int, n: int
    ) -> float:
        known, rows = self.known, self.known.rows
        if not known.num_pairs:
            return 0.0
        if self.tree is None:
            self.tree = priorities.planted(values, rows, self.discount, self.base)
        rise: float = priorities.advance(
            values,
            met,
            rows,
            known.place,
            self.discount,
            self.tree,
            self.base,
            *known.backwards,
            self.explore,
            self.seed,
            first,
            n,
        )
        return rise


def grown(memory: Memory, before: Known, after: Known) -> Memory:
    """The memory of an engine once more is known: ids stay, but for the end, which is the last."""
    if "seen" not in memory:
        return memory
    fresh = _nothing_seen(after)
    states = after.states
    for g, count in enumerate(memory["count"]):
        was = memory["seen"][0, g, :count]
        first = fresh["seen"][0, g, : fresh["count"][g]]
        met = np.unique(np.concatenate([first, was[was != before.end]]))
        rest = np.setdiff1d(np.arange(states), met)
        order = np.concatenate([met, rest])
        fresh["seen"][0, g] = order
        fresh["seen"][1, g, order] = np.arange(states)
        fresh["count"][g] = len(met)
    return fresh


def _nothing_seen(known: Known) -> Memory:
    """No state was seen, but for the end, which everyone knows."""
    states = np.arange(known.states, dtype=np.int32)
    seen = np.tile(states, (2, known.groups, 1))
    count = np.zeros(known.groups, np.int64)
    if known.end is not None:
        seen[:, :, [0, known.end]] = seen[:, :, [known.end, 0]]
        count[:] = 1
    return {"seen": seen, "count": count, "at": np.full(1, -1, np.int64)}


def _choices(known: Known, sampler: Trajectories) -> NDArray[np.float64]:
    """The probabilities (S, G) of the actions of a walk, added up."""
    mdp = known.mdp
    if mdp is None or sampler.policy is None:
        chosen = (known.place.T >= 0) * 1.0
    else:
        policy = checked_policy(mdp, sampler.policy)
        chosen = np.eye(mdp.num_actions)[policy] if policy.ndim == 1 else policy
    added = np.ascontiguousarray(np.cumsum(chosen, axis=1) / chosen.sum(axis=1, keepdims=True))
    last = known.groups - 1 - np.argmax(chosen[:, ::-1] > 0, axis=1)
    added[np.arange(known.groups) >= last[:, None]] = 2.0  # rounding must not choose what is not
    return added
