"""What a query stands on: the rows of an MDP, or those that a successor function is asked for."""

from __future__ import annotations

import math
from collections.abc import Hashable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric.errors import InputError
from bisimetric.exact.queries.pair_search import TransitionRows, decode_pairs
from bisimetric.implicit_mdp import ImplicitMDP, to_integer_weights
from bisimetric.mdp import MDP

INITIAL_CAPACITY = 64


class MDPRowSource:
    """An MDP: every row is known, and the largest possible distance, `farthest`.

    Attributes:
        reward_error: how far its rewards may be from the ones that are meant, such as R^pi.
        mass_error: the same for its rows, in total variation.
    """

    def __init__(self, mdp: MDP, *, reward_error: float = 0.0, mass_error: float = 0.0) -> None:
        self.reward_error, self.mass_error = reward_error, mass_error
        states, actions = mdp.R.shape
        P = mdp.P
        shape = (states, actions)
        self.mdp = mdp
        self.discount = mdp.discount
        self.probability = P.data
        self.reward = mdp.R
        self.diameter_bound = mdp.diameter_bound
        self.actions_may_differ = mdp.available is not None
        self._ground = TransitionRows(
            P.indptr[:-1].reshape(shape),
            P.indptr[1:].reshape(shape),
            P.indices,
            _make_read_only(mdp.normalised_probabilities.data),
            _make_read_only(mdp.action_mask),
            int(np.diff(P.indptr).max()),
            np.empty(0, np.int64),
        )

    def state_id(self, which: Any) -> int:
        """The id of a state."""
        return self.mdp.state(which)

    def load_rows(self, pairs: NDArray[np.int64], *, lax: bool) -> TransitionRows:
        """The rows that these pairs need, and others."""
        return self._ground

    def compute_diameter_bound(self) -> float:
        """The largest possible distance, whatever has been met."""
        return self.diameter_bound


class ImplicitRowSource:
    """A successor function: a state gets an id when it is met, and rows when they are needed.

    Its rows are rounded once, each number to the nearest float. Without a bound on distances no
    mass may be left aside, so that the exact shares are numbered too.

    Attributes:
        reward_error: how far the rewards that were met are from the exact ones, such as R^pi.
        mass_error: 0; how shares are rounded is in what every row is allowed (`queries._proven`).
    """

    def __init__(self, source: ImplicitMDP) -> None:
        self.source = source
        self.discount = source.discount
        self.actions_may_differ = callable(source.actions)
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
        self._first, self._last = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        self._has, self._reward = np.zeros(shape, np.bool_), np.zeros(shape)
        self._met, self._rows = (
            np.zeros(INITIAL_CAPACITY, np.bool_),
            np.zeros(INITIAL_CAPACITY, np.bool_),
        )
        self._successors = np.zeros(INITIAL_CAPACITY, np.int32)
        self._share, self._exact = np.zeros(INITIAL_CAPACITY), np.zeros(INITIAL_CAPACITY, np.int64)
        self._numbers: dict[tuple[int, int], int] = {}
        self._entries, self._widest = 0, 1
        self.reward_error, self.mass_error = 0.0, 0.0

    @property
    def probability(self) -> NDArray[np.float64]:
        return self._share

    @property
    def reward(self) -> NDArray[np.float64]:
        return _make_read_only(self._reward)

    def state_id(self, which: Any) -> int:
        """The id of a state, which it gets when it is first met."""
        try:
            found = self._ids.setdefault(which, len(self._states))
        except TypeError:
            raise InputError(f"Successors: the state {which!r} must be hashable.") from None
        if found == len(self._states):
            self._states.append(which)
            if found == len(self._met):
                for name in ("_first", "_last", "_has", "_reward", "_met", "_rows"):
                    setattr(self, name, _double_capacity(getattr(self, name)))
        return found

    def load_rows(self, pairs: NDArray[np.int64], *, lax: bool) -> TransitionRows:
        """Asks for the rows that these pairs need, each once."""
        s, t = decode_pairs(pairs)
        both = np.unique(np.concatenate([s, t]))
        for i in both[~self._met[both]].tolist():
            self._discover_actions(i)
        if not lax:
            alike = (self._has[s] == self._has[t]).all(axis=1)
            if self.diameter_bound is None and not alike.all():
                at = int(np.argmin(alike))
                raise InputError(
                    f"Successors: the states {self._states[s[at]]!r} and {self._states[t[at]]!r} "
                    "have different actions, so they are as far apart as can be; pass "
                    "Successors(..., reward_range=...) to say how far that is."
                )
            both = np.unique(np.concatenate([s[alike], t[alike]]))
        for i in both[~self._rows[both]].tolist():
            self._evaluate_actions(i)
        count = len(self._states)
        return TransitionRows(
            _make_read_only(self._first[:count]),
            _make_read_only(self._last[:count]),
            _make_read_only(self._successors[: self._entries]),
            _make_read_only(self._share[: self._entries]),
            _make_read_only(self._has[:count]),
            self._widest,
            _make_read_only(self._exact[: self._entries if self.diameter_bound is None else 0]),
        )

    def compute_diameter_bound(self) -> float:
        """`farthest`, or the largest distance that the rewards met so far allow."""
        if self.diameter_bound is not None:
            return self.diameter_bound
        taken = self._reward[self._has & self._rows[:, None]]
        with np.errstate(over="ignore"):
            return float(np.ptp(taken)) / (1 - self.discount) if len(taken) else 0.0

    def _discover_actions(self, i: int) -> None:
        """Finds out which actions a state has."""
        for action in self.source.available_actions(self._states[i]):
            a = self._actions.setdefault(action, len(self._actions))
            if a == self._has.shape[1]:
                for name in ("_first", "_last", "_has", "_reward"):
                    setattr(self, name, _double_capacity(getattr(self, name), axis=1))
            self._has[i, a] = True
        self._met[i] = True

    def _evaluate_actions(self, i: int) -> None:
        """Takes every action of a state once."""
        state, has = self._states[i], self._has[i].copy()
        for action, a in self._actions.items():
            if not has[a]:
                continue
            reward, outcome = self.source.exact_outcome(state, action)
            weights = to_integer_weights(outcome.values())
            total = sum(weights)
            found = sorted(zip(map(self.state_id, outcome), weights, strict=True))
            begin, end = self._entries, self._entries + len(found)
            while end > len(self._successors):
                for name in ("_successors", "_share", "_exact"):
                    setattr(self, name, _double_capacity(getattr(self, name)))
            for at, (successor, weight) in enumerate(found, begin):
                self._successors[at] = successor
                self._share[at] = weight / total
                if self.diameter_bound is None:
                    self._exact[at] = self._number_fraction(weight, total)
            self._first[i, a], self._last[i, a] = begin, end
            self._reward[i, a] = rounded = float(reward)
            if reward != rounded:
                off = float(abs(Fraction(reward) - Fraction(rounded)))
                # Rounded itself: `proven_error` adds more than UNIT of it, and more than TINY.
                self.reward_error = max(self.reward_error, off)
            self._entries, self._widest = end, max(self._widest, len(found))
        self._rows[i] = True

    def _number_fraction(self, weight: int, total: int) -> int:
        """A number for weight / total, the same for equal fractions."""
        shared = math.gcd(weight, total)
        return self._numbers.setdefault((weight // shared, total // shared), len(self._numbers))


def extract_mdp(
    source: MDPRowSource | ImplicitRowSource, ground: TransitionRows, pairs: NDArray[np.int64]
) -> tuple[MDP, NDArray[np.int64]]:
    """A small MDP in which these pairs, in rising order, move as they do in the source.

    Its states are those of the pairs, with their rows, and their successors, in the same order; a
    successor of no pair stays where it is and gets 0. Returns it with the pairs as s * S + t.
    """
    s, t = decode_pairs(pairs)
    inner = np.unique(np.concatenate([s, t]))
    actions = np.flatnonzero(ground.has[inner].any(axis=0))
    first, last = ground.first[inner][:, actions], ground.last[inner][:, actions]
    support = (last - first).ravel().astype(np.int64)
    starts = np.cumsum(support) - support
    entries = np.repeat(first.ravel() - starts, support) + np.arange(support.sum())
    leads_to = ground.states[entries]
    met = np.unique(np.concatenate([inner, leads_to]))
    count, width = len(met), len(actions)
    place = np.searchsorted(met, inner)
    rows = (place[:, None] * width + np.arange(width)).ravel()

    sizes = np.ones(count * width, np.int64)
    sizes[rows] = support
    row_of = np.repeat(np.arange(count * width), sizes)
    given = np.zeros(count * width, np.bool_)
    given[rows] = True
    given = given[row_of]
    successors, masses = row_of // width, np.ones(len(row_of))
    successors[given] = np.searchsorted(met, leads_to)
    masses[given] = source.probability[entries]
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    P = sparse.csr_array((masses, successors, bounds), (count * width, count))
    R, available = np.zeros((count, width)), np.ones((count, width), np.bool_)
    R[place] = source.reward[inner][:, actions]
    available[place] = ground.has[inner][:, actions]
    mdp = MDP(P, R, source.discount, available=available)
    return mdp, np.searchsorted(met, s) * count + np.searchsorted(met, t)


def _double_capacity(array: NDArray[Any], axis: int = 0) -> NDArray[Any]:
    return np.concatenate([array, np.zeros_like(array)], axis=axis)


def _make_read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
