"""Coverage: which distances the observed transitions determine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._text import pluralise
from bisimetric.distance.explanation import describe_unseen
from bisimetric.errors import InputError, require_integer

if TYPE_CHECKING:
    from bisimetric.mdp import MDP

MAX_NAMED_STATES = 4
"""States with unseen actions that are listed by name; the others are counted."""


@dataclasses.dataclass(frozen=True, eq=False)
class Coverage:
    """What was observed of an MDP, and which distances that determines.

    Two states are compared by the actions observed in both:

    d'(s, t) = max_a |R(s, a) - R(t, a)| + discount * d'(s', t')

    is never above d~(s, t), and equals it where the pair is determined. Arrays are read-only.

    Attributes:
        known: (S, A), whether the action was observed in the state; (S, 1) for a policy.
        determined: (S, S), whether every reachable pair is fully observed or has merged; symmetric,
            True on the diagonal.
        error: a proven bound on the error of the determined pairs; infinite if there is none.
        rounding: a bound on how far any entry lies above the true distance.
        num_paired: pairs of known transitions that were sampled together at least once.
        num_transition_pairs: pairs of known transitions in total.
        visited: (S,), whether a state was exited, or entered by a step that does not terminate;
            default: all. Nothing is claimed for other ids, such as those that only occur as the
            last observation of an episode.

    Raises:
        InputError: if shapes, types or numbers do not fit together.

    >>> seen = Coverage(np.array([[True], [False]]), np.eye(2, dtype=bool), 0.0, 0.0, 0, 0)
    >>> seen
    Coverage(1 of 2 states seen, 0 of 1 pair proven, 0 of 0 sampled)
    >>> print(seen)
    seen       1 of 2 states
    unseen     the step from 1 was never seen
    proven     0 of 1 pair of states
    bounds     1 of 1 pair of states: lower bounds, unseen transitions may increase them
    sampled    0 of 0 pairs of known transitions
    next       collect more data; once it covers the MDP, use exact on Transitions.to_mdp()
    """

    known: NDArray[np.bool_]
    determined: NDArray[np.bool_]
    error: float
    rounding: float
    num_paired: int
    num_transition_pairs: int
    visited: NDArray[np.bool_] = None  # type: ignore[assignment] # __post_init__ replaces it

    def __post_init__(self) -> None:
        set_field = object.__setattr__
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
                f"Coverage: determined[{s}, {s}] is False and must be True: a state has "
                "distance 0 to itself."
            )
        visited = np.ones(states, np.bool_) if self.visited is None else np.asarray(self.visited)
        if visited.shape != (states,) or visited.dtype != np.bool_:
            raise InputError(
                f"Coverage: visited is {visited.dtype} of shape {visited.shape} and must be bool, "
                f"({states},)."
            )
        visited.flags.writeable = False
        set_field(self, "visited", visited)
        set_field(self, "known", known)
        set_field(self, "determined", determined)
        set_field(self, "error", _validate_bound("error", self.error))
        set_field(self, "rounding", _validate_bound("rounding", self.rounding, finite=True))
        set_field(self, "num_paired", require_integer("Coverage", "num_paired", self.num_paired))
        set_field(
            self,
            "num_transition_pairs",
            require_integer("Coverage", "num_transition_pairs", self.num_transition_pairs),
        )
        if self.num_paired > self.num_transition_pairs:
            raise InputError(
                f"Coverage: num_paired is {self.num_paired} and must be at most "
                f"num_transition_pairs, {self.num_transition_pairs}."
            )

    @property
    def complete(self) -> bool:
        """Whether the known transitions determine all distances between visited states."""
        return bool(self.determined[np.ix_(self.visited, self.visited)].all())

    @property
    def jointly_known(self) -> NDArray[np.bool_]:
        """(S, S), whether all actions are known in both states."""
        fully_known = self.known.all(axis=1)
        return np.outer(fully_known, fully_known)

    @property
    def unseen(self) -> NDArray[np.int64]:
        """(n, 2), the ids of visited states and of the actions never observed in them."""
        return np.argwhere(self._unseen_mask)

    @property
    def _unseen_mask(self) -> NDArray[np.bool_]:
        return ~self.known & self.visited[:, None]

    @property
    def summary(self) -> str:
        """How much was observed, as text: `38 of 64 state-action pairs`."""
        noun = "state" if self.known.shape[1] == 1 else "state-action pair"
        return format_fraction(
            int(np.count_nonzero(self.known)), self.known[self.visited].size, noun
        )

    @property
    def num_state_pairs(self) -> int:
        """The number of pairs of different visited states."""
        states = int(np.count_nonzero(self.visited))
        return states * (states - 1) // 2

    @property
    def num_proven(self) -> int:
        """The number of pairs of different visited states with a proven error."""
        if math.isinf(self.error):
            return 0
        determined = self.determined[np.ix_(self.visited, self.visited)]
        return (int(np.count_nonzero(determined)) - len(determined)) // 2

    def format_lines(self, mdp: MDP | None = None) -> Iterator[str]:
        """Describe the coverage in a few lines of text.

        Args:
            mdp: the MDP that names states and actions; default: ids.

        Returns:
            An iterator over the lines.
        """
        yield f"seen       {self.summary}"
        mask = self._unseen_mask
        some, all_ = mask.any(axis=1), mask.all(axis=1)
        # States that lack only some actions first: they are the more informative ones.
        unseen = np.concatenate([np.flatnonzero(some & ~all_), np.flatnonzero(all_)])
        if len(unseen):
            yield f"unseen     {'; '.join(self._describe_unseen(unseen, mdp))}"
        if not self.visited.all():
            ids = format_fraction(int((~self.visited).sum()), len(self.visited), "id")
            yield f"unvisited  {ids}: never exited, and entered only by terminating, if at all"
        to = f", to {self.error:.2g}" if self.num_proven else ""
        proven = format_fraction(self.num_proven, self.num_state_pairs, "pair")
        yield f"proven     {proven} of states{to}"
        num_bounds = self.num_state_pairs - self.num_proven
        if num_bounds:
            bounds = format_fraction(num_bounds, self.num_state_pairs, "pair")
            yield (
                f"bounds     {bounds} of states: lower bounds, unseen transitions may increase them"
            )
        paired = format_fraction(self.num_paired, self.num_transition_pairs, "pair")
        yield f"sampled    {paired} of known transitions"
        advice = "sample more pairs, or use exact; for data, on Transitions.to_mdp()"
        if not self.complete:
            advice = "collect more data; once it covers the MDP, use exact on Transitions.to_mdp()"
        yield f"next       {advice}"

    def __str__(self) -> str:
        return "\n".join(self.format_lines())

    def __repr__(self) -> str:
        to = f" to {self.error:.2g}" if self.num_proven else ""
        proven = format_fraction(self.num_proven, self.num_state_pairs, "pair")
        return (
            f"Coverage({self.summary} seen, {proven} proven{to}, "
            f"{self.num_paired:,} of {self.num_transition_pairs:,} sampled)"
        )

    def _describe_unseen(self, states: NDArray[np.intp], mdp: MDP | None) -> Iterator[str]:
        """Describe the first few states with unseen actions."""
        for s in states[:MAX_NAMED_STATES].tolist():
            name = str(s) if mdp is None else mdp.state_name(s)
            yield describe_unseen(name, self.known[s], str if mdp is None else mdp.action_name)
        if len(states) > MAX_NAMED_STATES:
            yield f"and in {len(states) - MAX_NAMED_STATES:,} more"


def format_fraction(count: int, total: int, noun: str) -> str:
    """Format a count and the total that it is out of.

    >>> format_fraction(78, 136, "pair"), format_fraction(0, 1, "pair")
    ('78 of 136 pairs', '0 of 1 pair')
    """
    return f"{count:,} of {pluralise(total, noun)}"


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
