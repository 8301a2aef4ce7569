"""Coverage: what the seen transitions can tell of the distances, and what they cannot."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.distance._explain import describe_unseen
from bisimetric.errors import InputError, require_integer

if TYPE_CHECKING:
    from bisimetric.mdp import MDP

MAX_NAMED_STATES = 4
"""States with unseen actions that are named, before the others are counted."""


@dataclasses.dataclass(frozen=True, eq=False)
class Coverage:
    """What was seen of an MDP, and which entries of a table that determines.

    The known transitions compare two states by the actions known in both:
    d'(s, t) = max_a |R(s, a) - R(t, a)| + discount * d'(s', t') is never above d~(s, t), and equals
    it where the pair is determined. Arrays are read-only.

    Attributes:
        known: (S, A), whether it was seen what an action does in a state; (S, 1) for a policy.
        determined: (S, S), the pairs from which all that can be reached, until both are in the same
            state, is known; symmetric, True on the diagonal.
        error: a proven bound on the error of the determined pairs; infinite where there is none.
        rounding: no entry of the table lies above the true distance by more than this.
        met: pairs of known transitions that were drawn together at least once.
        pairs: how many of those there are.
        lived: (S,), whether a state was left, or entered other than by ending; all, if not given.
            Nothing is said of the others, such as ids that only the last observation of an
            episode had.

    >>> seen = Coverage(np.array([[True], [False]]), np.eye(2, dtype=bool), 0.0, 0.0, 0, 0)
    >>> seen
    Coverage(1 of 2 states seen, 0 of 1 pair proven, 0 of 0 drawn)
    >>> print(seen)
    seen       1 of 2 states
    unseen     the step from 1 was never seen
    proven     0 of 1 pair of states
    bounds     1 of 1 pair of states: lower bounds, for what was not seen may set them apart
    drawn      0 of 0 pairs of known transitions
    next       collect more; when it covers the model, let exact solve Transitions.to_mdp()
    """

    known: NDArray[np.bool_]
    determined: NDArray[np.bool_]
    error: float
    rounding: float
    num_paired: int
    num_transition_pairs: int
    visited: NDArray[np.bool_] = None  # type: ignore[assignment] # an array once it is made

    def __post_init__(self) -> None:
        put = object.__setattr__
        known, determined = (
            _validate_mask(name, getattr(self, name)) for name in ("known", "determined")
        )
        states = len(known)
        if determined.shape != (states, states):
            raise InputError(
                f"Coverage: determined has shape {determined.shape} and known {known.shape}; "
                f"determined must be ({states}, {states})."
            )
        wrong = np.argwhere(determined != determined.T)
        if len(wrong):
            s, t = wrong[0]
            raise InputError(
                f"Coverage: determined[{s}, {t}] is {determined[s, t]} and determined[{t}, {s}] "
                "is not; it must be symmetric."
            )
        if not determined.diagonal().all():
            s = int(np.argmin(determined.diagonal()))
            raise InputError(
                f"Coverage: determined[{s}, {s}] is False and must be True: a state and itself are "
                "always compared."
            )
        lived = np.ones(states, np.bool_) if self.visited is None else np.asarray(self.visited)
        if lived.shape != (states,) or lived.dtype != np.bool_:
            raise InputError(
                f"Coverage: lived is {lived.dtype} of shape {lived.shape} and must be bool, "
                f"({states},)."
            )
        lived.flags.writeable = False
        put(self, "visited", lived)
        put(self, "known", known)
        put(self, "determined", determined)
        put(self, "error", _validate_bound("error", self.error))
        put(self, "rounding", _validate_bound("rounding", self.rounding, finite=True))
        put(self, "num_paired", require_integer("Coverage", "met", self.num_paired))
        put(
            self,
            "num_transition_pairs",
            require_integer("Coverage", "pairs", self.num_transition_pairs),
        )
        if self.num_paired > self.num_transition_pairs:
            raise InputError(
                f"Coverage: met is {self.num_paired} and must be at most pairs, which is {self.num_transition_pairs}."
            )

    @property
    def complete(self) -> bool:
        """Whether the known transitions determine every distance of states that were lived in."""
        return bool(self.determined[np.ix_(self.visited, self.visited)].all())

    @property
    def jointly_known(self) -> NDArray[np.bool_]:
        """(S, S), whether all actions are known in both states."""
        whole = self.known.all(axis=1)
        return np.outer(whole, whole)

    @property
    def unseen(self) -> NDArray[np.int64]:
        """(n, 2), the states that were lived in and the actions never seen in them, by id."""
        return np.argwhere(self._unseen_mask)

    @property
    def _unseen_mask(self) -> NDArray[np.bool_]:
        return ~self.known & self.visited[:, None]

    @property
    def summary(self) -> str:
        """How much was seen, in words: `38 of 64 state-action pairs`."""
        noun = "state" if self.known.shape[1] == 1 else "state-action pair"
        return format_fraction(
            int(np.count_nonzero(self.known)), self.known[self.visited].size, noun
        )

    @property
    def num_state_pairs(self) -> int:
        """How many pairs of two states there are, of those that were lived in."""
        states = int(np.count_nonzero(self.visited))
        return states * (states - 1) // 2

    @property
    def num_proven(self) -> int:
        """How many pairs of two states have a proven error."""
        if math.isinf(self.error):
            return 0
        held = self.determined[np.ix_(self.visited, self.visited)]
        return (int(np.count_nonzero(held)) - len(held)) // 2

    def format_lines(self, mdp: MDP | None = None) -> Iterator[str]:
        """What the numbers can mean, in a few lines; states and actions by name, given an MDP."""
        yield f"seen       {self.summary}"
        gaps = self._unseen_mask
        some, all_ = gaps.any(axis=1), gaps.all(axis=1)
        # Where a single action is missing it is the more telling.
        unseen = np.concatenate([np.flatnonzero(some & ~all_), np.flatnonzero(all_)])
        if len(unseen):
            yield f"unseen     {'; '.join(self._describe_unseen(unseen, mdp))}"
        if not self.visited.all():
            ids = format_fraction(int((~self.visited).sum()), len(self.visited), "id")
            yield f"unlived    {ids}: never left, and entered by ending only, if at all"
        to = f", to {self.error:.2g}" if self.num_proven else ""
        yield f"proven     {format_fraction(self.num_proven, self.num_state_pairs, 'pair')} of states{to}"
        bounds = self.num_state_pairs - self.num_proven
        if bounds:
            yield (
                f"bounds     {format_fraction(bounds, self.num_state_pairs, 'pair')} of states: lower bounds, for "
                "what was not seen may set them apart"
            )
        yield f"drawn      {format_fraction(self.num_paired, self.num_transition_pairs, 'pair')} of known transitions"
        todo = "draw on; or let exact solve the model, which Transitions.to_mdp() makes of data"
        if not self.complete:
            todo = "collect more; when it covers the model, let exact solve Transitions.to_mdp()"
        yield f"next       {todo}"

    def __str__(self) -> str:
        return "\n".join(self.format_lines())

    def __repr__(self) -> str:
        to = f" to {self.error:.2g}" if self.num_proven else ""
        return (
            f"Coverage({self.summary} seen, {format_fraction(self.num_proven, self.num_state_pairs, 'pair')} proven{to}, "
            f"{self.num_paired:,} of {self.num_transition_pairs:,} drawn)"
        )

    def _describe_unseen(self, states: NDArray[np.intp], mdp: MDP | None) -> Iterator[str]:
        """The first few states in which something was not seen, and what."""
        for s in states[:MAX_NAMED_STATES].tolist():
            name = str(s) if mdp is None else mdp.state_name(s)
            yield describe_unseen(name, self.known[s], str if mdp is None else mdp.action_name)
        if len(states) > MAX_NAMED_STATES:
            yield f"and so on in {len(states) - MAX_NAMED_STATES:,} more"


def format_fraction(count: int, total: int, noun: str) -> str:
    """A count, out of how many.

    >>> share(78, 136, "pair"), share(0, 1, "pair")
    ('78 of 136 pairs', '0 of 1 pair')
    """
    return f"{count:,} of {total:,} {noun}{'' if total == 1 else 's'}"


def _validate_mask(name: str, mask: Any) -> NDArray[np.bool_]:
    array = np.asarray(mask)
    if array.dtype != np.bool_ or array.ndim != 2 or 0 in array.shape:
        raise InputError(
            f"Coverage: {name} is {array.dtype} of shape {array.shape} and must be bool, "
            f"{'(states, actions)' if name == 'known' else '(states, states)'}."
        )
    array.flags.writeable = False
    return array


def _validate_bound(name: str, bound: Any, *, finite: bool = False) -> float:
    try:
        value = float(bound)
    except (TypeError, ValueError):
        value = math.nan
    if not value >= 0 or (finite and math.isinf(value)):
        must = "a finite number, at least 0" if finite else "a number, at least 0"
        raise InputError(f"Coverage: {name} is {bound!r} and must be {must}.")
    return value
