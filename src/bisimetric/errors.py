"""Errors, warnings, and the validation that all packages share."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bisimetric.distance import Distance, DistanceBounds
    from bisimetric.exact._query import QueryResult
    from bisimetric.learned._fit import FitResult
    from bisimetric.planning import ValueFunction


class InputError(ValueError):
    """Input that cannot be used.

    The message says what was found, where, and what to do. Python names the argument, the command
    line its flag: where `argument` is given, `problem` continues the sentence that it begins.

    Args:
        problem: the whole message, or what follows the argument's name.
        caller: the function that raises it, such as "exact.bisimulation".
        argument: the name of the Python argument at fault.
        remedy: what to do, in Python's terms.

    >>> str(InputError("is -1 and must be above 0", caller="exact.lax", argument="tol"))
    'exact.lax: tol is -1 and must be above 0.'
    """

    def __init__(
        self,
        problem: str,
        *,
        caller: str | None = None,
        argument: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problem, self.caller, self.argument, self.remedy = problem, caller, argument, remedy
        super().__init__(self.describe(caller, argument, remedy))

    def describe(self, caller: str | None, argument: str | None, remedy: str | None) -> str:
        """Return the message with other names, such as those of the command line.

        Args:
            caller: in place of the caller.
            argument: in place of the argument.
            remedy: in place of the remedy.

        Returns:
            The message.
        """
        if not (caller or argument or remedy):
            return self.problem
        before = f"{caller}: " if caller else ""
        subject = f"{argument} " if argument else ""
        return f"{before}{subject}{self.problem}{f'; {remedy}' if remedy else ''}."


class NotConverged(RuntimeError):  # noqa: N818 - reads as a statement, like StopIteration
    """The requested `tol` was not proven.

    Args:
        message: what was proven instead, and the remedy.
        partial: the result with the bound that was proven.
    """

    def __init__(
        self, message: str, partial: Distance | DistanceBounds | ValueFunction | QueryResult
    ) -> None:
        super().__init__(message)
        self.partial = partial


class Diverged(RuntimeError):  # noqa: N818
    """Training diverged or collapsed to 0 for all pairs.

    Args:
        message: when it happened, and the remedy.
        partial: the last good state.
    """

    def __init__(self, message: str, partial: FitResult) -> None:
        super().__init__(message)
        self.partial = partial


class InsufficientMemory(MemoryError):  # noqa: N818
    """A request would not fit into memory; nothing was allocated."""


class StochasticDataWarning(UserWarning):
    """Recorded transitions of one state and action differ; the distance takes them as they come."""


class HorizonWarning(UserWarning):
    """A learned distance does not cover the whole horizon yet: more updates are needed."""


class ExpectedRewardWarning(UserWarning):
    """The rewards of an imported MDP depend on the successor; R(s, a) is their expectation."""


class MissingActionsWarning(UserWarning):
    """Some states of an imported MDP lack actions that others have; see `MDP.available`."""


class NearTieWarning(UserWarning):
    """Rewards that differ by no more than rounding count as different in a relation."""


def require_integer(caller: str, name: str, value: object, minimum: int = 0) -> int:
    """Return an integer that is at least `minimum`.

    Args:
        caller: begins the message.
        name: of the argument.
        value: of the argument.
        minimum: the smallest value to accept.

    Raises:
        InputError: the value is no integer, or too small.

    >>> require_integer("FrozenLake-v1", "steps", 0, 1)
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: FrozenLake-v1: steps is 0 and must be a whole number, at least 1.
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = minimum - 1
    if number < minimum:
        raise InputError(
            f"is {value!r} and must be a whole number, at least {minimum}",
            caller=caller,
            argument=name,
        )
    return number


def suggest_names(name: str, candidates: Iterable[str]) -> str:
    """Return the clause `; did you mean 'a' or 'b'?` for a misspelt name, or "".

    Args:
        name: the misspelt name.
        candidates: the known names.

    >>> suggest_names("miror-rooms", ["mirrored-rooms", "pessimism"])
    "; did you mean 'mirrored-rooms'?"
    """
    close = difflib.get_close_matches(name, list(candidates), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
