"""The transition rows that a query reads: of an MDP, or of an implicit MDP as it is explored."""

from __future__ import annotations

import math
from collections.abc import Hashable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bisimetric._memory import require_memory
from bisimetric._rounding import UNIT
from bisimetric.errors import InputError
from bisimetric.exact._gap_solver import add_ground_distance, bound_diameter, evaluate_gap
from bisimetric.exact.gaps import GapFunction
from bisimetric.exact.queries.pair_search import QueryRows, decode_pairs
from bisimetric.implicit_mdp import ImplicitMDP, to_integer_weights
from bisimetric.mdp import MDP, induce_chain
from bisimetric.mdp._validation import resolve_policy

INITIAL_CAPACITY = 64


class MDPRowSource:
    """The rows of an MDP, all known, with its diameter bound.

    Attributes:
        reward_error: bound on the rounding error of its rewards, such as R^pi.
        mass_error: bound on the rounding error of its rows, in total variation.
        gap: (1 or A, 1 or A, S, S) in place of the differences of rewards, which are 0; or None.
    """

    def __init__(
        self,
        mdp: MDP,
        *,
        reward_error: float = 0.0,
        mass_error: float = 0.0,
        gap: NDArray[np.float64] | None = None,
        lax: bool = False,
    ) -> None:
        self.reward_error, self.mass_error, self.gap = reward_error, mass_error, gap
        if gap is not None:
            mdp, self.reward_error = mdp.replace(R=np.zeros(mdp.R.shape)), 0.0
        states, actions = mdp.R.shape
        P = mdp.P
        shape = (states, actions)
        self.mdp = mdp
        self.discount = mdp.discount
        self.probability = P.data
        self.reward = mdp.R
        self.diameter_bound = mdp.diameter_bound
        if gap is not None:
            table, _ = add_ground_distance(gap, mdp)
            self.diameter_bound = bound_diameter(table, mdp, lax)
        self.actions_may_differ = mdp.available is not None
        self.labels_may_differ = mdp.has_labels
        self._all_rows = QueryRows(
            P.indptr[:-1].reshape(shape),
            P.indptr[1:].reshape(shape),
            P.indices,
            _make_read_only(mdp.normalised_probabilities.data),
            _make_read_only(mdp.action_mask),
            _make_read_only(mdp.label_classes),
            int(np.diff(P.indptr).max()),
            np.empty(0, np.int64),
        )

    def state_id(self, state: Any) -> int:
        """Return the id of a state."""
        return self.mdp.state(state)

    def load_rows(self, pairs: NDArray[np.int64], *, lax: bool) -> QueryRows:
        """Return all rows, whatever the pairs."""
        return self._all_rows

    def compute_diameter_bound(self) -> float:
        """Return the diameter bound."""
        return self.diameter_bound

    @property
    def has_cost(self) -> bool:
        """Whether there are costs besides the differences of rewards."""
        return self.gap is not None or self.mdp.ground_distance is not None

    def bound_cost_rounding(self, largest: float) -> float:
        """Bound the rounding of a ground distance and of adding it, for distances up to a bound."""
        ground = self.mdp.ground_distance
        return 0.0 if ground is None else ground.rounding_error + UNIT * largest

    def compute_costs(self, s: Any, t: Any) -> NDArray[np.float64]:
        """Return the costs of pairs besides rewards, (1 or A, 1 or A, ...) by their actions."""
        cost = np.zeros((1, 1, *np.broadcast_shapes(s.shape, t.shape)))
        if self.gap is not None:
            cost = self.gap[:, :, s, t]
        if self.mdp.ground_distance is not None:
            cost = cost + self.mdp.ground_distance(s, t)
        return cost


class ImplicitRowSource:
    """The rows of an implicit MDP: states get ids when discovered, and rows when needed.

    Its rows are rounded once, each number to the nearest float. Without a diameter bound no mass
    may be neglected, so that the exact probabilities are numbered too.

    Attributes:
        reward_error: bound on the rounding error of the rewards seen so far, such as R^pi.
        mass_error: 0; the rounding of probabilities is in `_query._bound_query_error`.
    """

    def __init__(self, source: ImplicitMDP) -> None:
        self.source = source
        self.discount = source.discount
        self.actions_may_differ = callable(source.actions)
        self.labels_may_differ = False
        self.diameter_bound: float | None = None
        if source.reward_range is not None:
            low, high = source.reward_range
            self.diameter_bound = (high - low) / (1 - source.discount)
        self._ids: dict[Hashable, int] = {}
        self._states: list[Hashable] = []
        self._actions: dict[Hashable, int] = {}
        if not callable(source.actions):
            self._actions.update((action, a) for a, action in enumerate(source.actions))
        shape = (INITIAL_CAPACITY, max(1, len(self._actions)))
        self._starts, self._ends = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        self._available, self._reward = np.zeros(shape, np.bool_), np.zeros(shape)
        self._discovered, self._has_rows = (
            np.zeros(INITIAL_CAPACITY, np.bool_),
            np.zeros(INITIAL_CAPACITY, np.bool_),
        )
        self._successors = np.zeros(INITIAL_CAPACITY, np.int32)
        self._probability, self._fraction_ids = (
            np.zeros(INITIAL_CAPACITY),
            np.zeros(INITIAL_CAPACITY, np.int64),
        )
        self._fractions: dict[tuple[int, int], int] = {}
        self._num_entries, self._max_support = 0, 1
        self.reward_error, self.mass_error = 0.0, 0.0

    @property
    def probability(self) -> NDArray[np.float64]:
        return self._probability

    @property
    def reward(self) -> NDArray[np.float64]:
        return _make_read_only(self._reward)

    def state_id(self, state: Any) -> int:
        """Return the id of a state, assigned when it is discovered."""
        try:
            index = self._ids.setdefault(state, len(self._states))
        except TypeError:
            raise InputError(f"ImplicitMDP: the state {state!r} must be hashable.") from None
        if index == len(self._states):
            self._states.append(state)
            if index == len(self._discovered):
                for name in (
                    "_starts",
                    "_ends",
                    "_available",
                    "_reward",
                    "_discovered",
                    "_has_rows",
                ):
                    setattr(self, name, _double_capacity(getattr(self, name)))
        return index

    def load_rows(self, pairs: NDArray[np.int64], *, lax: bool) -> QueryRows:
        """Evaluate the rows that these pairs need, each once, and return all rows so far."""
        s, t = decode_pairs(pairs)
        both = np.unique(np.concatenate([s, t]))
        for i in both[~self._discovered[both]].tolist():
            self._discover_actions(i)
        if not lax:
            alike = (self._available[s] == self._available[t]).all(axis=1)
            if self.diameter_bound is None and not alike.all():
                at = int(np.argmin(alike))
                raise InputError(
                    f"ImplicitMDP: the states {self._states[s[at]]!r} and {self._states[t[at]]!r} "
                    "have different actions, which puts them at the diameter bound; pass "
                    "ImplicitMDP(..., reward_range=...) to define it."
                )
            both = np.unique(np.concatenate([s[alike], t[alike]]))
        for i in both[~self._has_rows[both]].tolist():
            self._evaluate_actions(i)
        count = len(self._states)
        return QueryRows(
            _make_read_only(self._starts[:count]),
            _make_read_only(self._ends[:count]),
            _make_read_only(self._successors[: self._num_entries]),
            _make_read_only(self._probability[: self._num_entries]),
            _make_read_only(self._available[:count]),
            _make_read_only(np.zeros(count, np.int64)),
            self._max_support,
            _make_read_only(
                self._fraction_ids[: self._num_entries if self.diameter_bound is None else 0]
            ),
        )

    def compute_diameter_bound(self) -> float:
        """Return the diameter bound, or that of the rewards seen so far."""
        if self.diameter_bound is not None:
            return self.diameter_bound
        rewards = self._reward[self._available & self._has_rows[:, None]]
        with np.errstate(over="ignore"):
            return float(np.ptp(rewards)) / (1 - self.discount) if len(rewards) else 0.0

    def _discover_actions(self, i: int) -> None:
        """Record which actions a state has."""
        for action in self.source.available_actions(self._states[i]):
            a = self._actions.setdefault(action, len(self._actions))
            if a == self._available.shape[1]:
                for name in ("_starts", "_ends", "_available", "_reward"):
                    setattr(self, name, _double_capacity(getattr(self, name), axis=1))
            self._available[i, a] = True
        self._discovered[i] = True

    def _evaluate_actions(self, i: int) -> None:
        """Evaluate every action of a state once."""
        state, has = self._states[i], self._available[i].copy()
        for action, a in self._actions.items():
            if not has[a]:
                continue
            reward, outcome = self.source.exact_outcome(state, action)
            weights = to_integer_weights(outcome.values())
            total = sum(weights)
            found = sorted(zip(map(self.state_id, outcome), weights, strict=True))
            begin, end = self._num_entries, self._num_entries + len(found)
            while end > len(self._successors):
                for name in ("_successors", "_probability", "_fraction_ids"):
                    setattr(self, name, _double_capacity(getattr(self, name)))
            for at, (successor, weight) in enumerate(found, begin):
                self._successors[at] = successor
                self._probability[at] = weight / total
                if self.diameter_bound is None:
                    self._fraction_ids[at] = self._number_fraction(weight, total)
            self._starts[i, a], self._ends[i, a] = begin, end
            self._reward[i, a] = rounded = float(reward)
            if reward != rounded:
                off = float(abs(Fraction(reward) - Fraction(rounded)))
                # Rounded itself: `bound_error` adds more than UNIT of it, and more than TINY.
                self.reward_error = max(self.reward_error, off)
            self._num_entries, self._max_support = end, max(self._max_support, len(found))
        self._has_rows[i] = True

    def _number_fraction(self, weight: int, total: int) -> int:
        """Return a number for weight / total, the same for equal fractions."""
        divisor = math.gcd(weight, total)
        fraction = (weight // divisor, total // divisor)
        return self._fractions.setdefault(fraction, len(self._fractions))


def build_row_source(
    kind: str, mdp: MDP | ImplicitMDP, policy: Any, gap: ArrayLike | GapFunction | None = None
) -> MDPRowSource | ImplicitRowSource:
    """Return the rows of the MDP, or of the Markov chain that a policy induces."""
    if gap is not None and isinstance(mdp, ImplicitMDP):
        raise InputError(
            "needs an MDP, and the states of an implicit MDP have no ids",
            caller="exact.query",
            argument="gap",
            remedy="leave it out",
        )
    if kind != "on_policy":
        if policy is not None:
            raise InputError(
                f"is given, but kind is {kind!r}",
                caller="exact.query",
                argument="policy",
                remedy="leave it out, or pass kind='on_policy'",
            )
        if not isinstance(mdp, MDP):
            return ImplicitRowSource(mdp)
        if kind == "bisimulation" and mdp.choice_labels is not None:
            raise InputError(
                "exact.query: actions of this MDP share choice labels, which queries do not "
                "compare as sets; use exact.bisimulation, or kind='lax'."
            )
        table = None
        if gap is not None:
            table = evaluate_gap(
                "exact.query", kind, mdp, gap, None, check_triangles=not mdp.is_deterministic
            )
        return MDPRowSource(mdp, gap=table, lax=kind == "lax")
    if isinstance(mdp, ImplicitMDP):
        if policy is None:
            raise InputError(
                "is missing, and an implicit MDP comes with none",
                caller="exact.query",
                argument="policy",
                remedy="pass a function from a state to an action",
            )
        return ImplicitRowSource(mdp.apply_policy(policy))
    actions = resolve_policy("query", mdp, policy)
    chain = induce_chain(mdp, actions)
    table = None
    if gap is not None:
        checks = not chain.mdp.is_deterministic
        table = evaluate_gap("exact.query", kind, mdp, gap, actions, check_triangles=checks)
    return MDPRowSource(
        chain.mdp, reward_error=chain.reward_error, mass_error=chain.mass_error, gap=table
    )


def extract_mdp(
    source: MDPRowSource | ImplicitRowSource, rows: QueryRows, pairs: NDArray[np.int64]
) -> tuple[MDP, NDArray[np.int64], NDArray[np.float64] | None]:
    """Return a small MDP with the same transitions for these sorted pairs, and s * S + t of each.

    Its states are those of the pairs, with their rows, and their successors, in the same order; a
    successor outside all pairs becomes absorbing with reward 0. The third result are the costs
    (1 or A, 1 or A, S, S) besides rewards, or None.
    """
    s, t = decode_pairs(pairs)
    inner = np.unique(np.concatenate([s, t]))
    actions = np.flatnonzero(rows.available[inner].any(axis=0))
    first, last = rows.starts[inner][:, actions], rows.ends[inner][:, actions]
    support = (last - first).ravel().astype(np.int64)
    starts = np.cumsum(support) - support
    entries = np.repeat(first.ravel() - starts, support) + np.arange(support.sum())
    leads_to = rows.successors[entries]
    states = np.unique(np.concatenate([inner, leads_to]))
    num_states, num_actions = len(states), len(actions)
    position = np.searchsorted(states, inner)
    row_index = (position[:, None] * num_actions + np.arange(num_actions)).ravel()

    sizes = np.ones(num_states * num_actions, np.int64)
    sizes[row_index] = support
    row_of = np.repeat(np.arange(num_states * num_actions), sizes)
    is_inner = np.zeros(num_states * num_actions, np.bool_)
    is_inner[row_index] = True
    is_inner = is_inner[row_of]
    successors, masses = row_of // num_actions, np.ones(len(row_of))
    successors[is_inner] = np.searchsorted(states, leads_to)
    masses[is_inner] = source.probability[entries]
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    P = sparse.csr_array((masses, successors, bounds), (num_states * num_actions, num_states))
    R, available = np.zeros((num_states, num_actions)), np.ones((num_states, num_actions), np.bool_)
    R[position] = source.reward[inner][:, actions]
    available[position] = rows.available[inner][:, actions]
    mdp = MDP(P, R, source.discount, available=available)
    cost = None
    if isinstance(source, MDPRowSource) and source.has_cost:
        require_memory(
            f"exact.query: the costs of {num_states:,} explored states need",
            (1 if source.gap is None else num_actions) * 8.0 * num_states**2,
            "pass a larger tol, which explores fewer pairs",
        )
        cost = source.compute_costs(states[:, None], states)
        own, other = (actions if size > 1 else slice(None) for size in cost.shape[:2])
        cost = cost[own][:, other]
    return mdp, np.searchsorted(states, s) * num_states + np.searchsorted(states, t), cost


def _double_capacity(array: NDArray[Any], axis: int = 0) -> NDArray[Any]:
    return np.concatenate([array, np.zeros_like(array)], axis=axis)


def _make_read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
