"""Convert rollouts of parallel environments, time-major arrays (T, N, ...), into steps (n, ...)."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.mdp._validation import freeze
from bisimetric.transitions._validation import require_finite

CALLER = "Transitions.from_batches"
DONES_REFER_TO = ("step", "observation")
AUTORESET_MODES = ("same_step", "next_step")
DISCOUNT_TOLERANCE = 1e-6
"""Largest relative difference between discounts that count as equal: float32 rounding."""


class EpisodeEnds(NamedTuple):
    """How each step ends its episode.

    Attributes:
        terminated: (T, N), whether the episode terminated with the step.
        truncated: (T, N), whether it was truncated after the step.
        known: (T, N), whether both are known; False only in the last row.
        first_resets: (N,), whether the first row only resets, if resets are steps of their own.
    """

    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    known: NDArray[np.bool_]
    first_resets: NDArray[np.bool_]


def flatten_batches(
    observations: Any,
    actions: Any,
    rewards: Any,
    *,
    terminated: Any,
    truncated: Any,
    dones: Any,
    dones_refer_to: Literal["step", "observation"] | None,
    discounts: Any,
    next_observations: Any,
    last_observations: Any,
    last_dones: Any,
    autoreset: Literal["same_step", "next_step"],
) -> dict[str, Any]:
    """Return the columns of the steps; see `Transitions.from_batches`."""
    if autoreset not in AUTORESET_MODES:
        raise InputError(
            f'{CALLER}: autoreset is {autoreset!r} and must be "same_step" or "next_step".'
        )
    reward = _as_batch("rewards", rewards)
    shape = (reward.shape[0], reward.shape[1])
    current, last = _split_observations(observations, last_observations, shape)
    chosen = _as_actions(actions, shape)
    ends = _find_ends(shape, terminated, truncated, dones, dones_refer_to, discounts, last_dones)
    following, recorded = None, np.ones(shape, np.bool_)
    if next_observations is not None:
        following = _as_next_observations(next_observations, current, last)
    else:
        recorded[-1] = last is not None
    if last is not None and not ends.known.all():
        raise InputError(
            f"{CALLER}: whether the last step ended its episode is unknown; give last_dones, or "
            "leave out the observations after it."
        )
    ended, keep = ends.terminated | ends.truncated, ends.known
    if autoreset == "next_step":
        keep = keep & ~_find_resets(ended, ends.first_resets)
    elif following is None:
        # The next row is the first observation of the next episode.
        recorded &= ~ended
    keep = keep & (recorded | ends.terminated)
    if not keep.any():
        raise InputError(
            f"{CALLER}: none of the {keep.size} steps has a known successor; give "
            "last_observations or next_observations."
        )
    # Environment by environment, so that the steps of an episode are consecutive.
    environments, times = np.nonzero(keep.T)
    rows = (times, environments)
    at_end = np.append((np.diff(times) != 1) | (np.diff(environments) != 0), True)
    return {
        "observations": freeze(current[rows]),
        "actions": freeze(chosen[rows]),
        "rewards": freeze(reward[rows]),
        "next_observations": freeze(
            _select_successors(current, last, rows, recorded[rows])
            if following is None
            else following[rows]
        ),
        "terminated": freeze(ends.terminated[rows]),
        "truncated": freeze(ends.truncated[rows] | (at_end & ~ends.terminated[rows])),
    }


def _select_successors(
    current: NDArray[Any],
    last: NDArray[Any] | None,
    rows: tuple[NDArray[np.int64], NDArray[np.int64]],
    recorded: NDArray[np.bool_],
) -> NDArray[Any]:
    """Return the observation in the next row, or the step's own where none was recorded.

    Those steps terminated: the terminal state follows, whatever the observation.
    """
    times, environments = rows
    next_times = np.where(recorded, times + 1, times)
    successors = current[np.minimum(next_times, len(current) - 1), environments]
    if last is not None:
        in_last = next_times == len(current)
        successors[in_last] = last[environments[in_last]]
    return successors


def _find_ends(
    shape: tuple[int, int],
    terminated: Any,
    truncated: Any,
    dones: Any,
    dones_refer_to: Any,
    discounts: Any,
    last_dones: Any,
) -> EpisodeEnds:
    """Combine the flags and discounts into the ends of episodes."""
    if terminated is not None and discounts is not None:
        raise InputError(
            f"{CALLER}: terminated and discounts both mark termination; give one of them."
        )
    if last_dones is not None and (dones is None or dones_refer_to != "observation"):
        raise InputError(
            f'{CALLER}: last_dones needs dones with dones_refer_to="observation"; leave it out.'
        )
    known, first_resets = np.ones(shape, np.bool_), np.zeros(shape[1], np.bool_)
    done = None
    if dones is not None:
        done = _as_flags("dones", _as_batch("dones", dones, shape))
        if dones_refer_to not in DONES_REFER_TO:
            raise InputError(
                f'{CALLER}: dones_refer_to is {dones_refer_to!r}; give "step" where dones[t] '
                'means that step t ended the episode, or "observation" where it means that '
                "observations[t] follows the end of one, as in CleanRL."
            )
        if dones_refer_to == "observation":
            first_resets = done[0]
            known[-1] = last_dones is not None
            unknown = np.zeros(shape[1], np.bool_)
            after = _as_array("last_dones", unknown if last_dones is None else last_dones)
            _require_shape("last_dones", after, shape[1:])
            done = np.concatenate([done[1:], _as_flags("last_dones", after)[None]])
    cut = np.zeros(shape, np.bool_)
    if truncated is not None:
        cut = _as_flags("truncated", _as_batch("truncated", truncated, shape))
        _require_done("truncated", cut, done, known)
    if terminated is not None:
        ended = _as_flags("terminated", _as_batch("terminated", terminated, shape))
        _require_done("terminated", ended, done, known)
    elif discounts is not None:
        ended = _as_discounts(discounts, shape) == 0
        _require_done("discounts", ended, done, known)
    elif done is not None:
        ended = done & ~cut
    else:
        raise InputError(
            f"{CALLER}: nothing marks the ends of episodes; give terminated, dones or discounts."
        )
    if done is not None:
        cut = cut | (done & ~ended)
    return EpisodeEnds(ended, cut, known, first_resets)


def _find_resets(ended: NDArray[np.bool_], first_resets: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rows only reset the environment: those after the end of an episode."""
    resets = np.concatenate([first_resets[None], ended[:-1]])
    wrong = np.argwhere(resets & ended)
    if len(wrong):
        t, n = wrong[0]
        raise InputError(
            f"{CALLER}: environment {n} ends an episode at step {t}, which resets it if autoreset "
            'is "next_step"; use "same_step".'
        )
    return resets


def _as_next_observations(
    next_observations: Any, current: NDArray[Any], last: NDArray[Any] | None
) -> NDArray[Any]:
    if last is not None:
        raise InputError(
            f"{CALLER}: next_observations include those after the last step; give no other "
            "observations after it."
        )
    array = _as_array("next_observations", next_observations)
    _require_shape("next_observations", array, current.shape)
    return array


def _split_observations(
    observations: Any, last_observations: Any, shape: tuple[int, int]
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return the observations before each step, (T, N, ...), and those after the last, if any."""
    array = _as_array("observations", observations)
    steps, environments = shape
    if array.ndim < 2 or array.shape[1] != environments or array.shape[0] - steps not in (0, 1):
        raise InputError(
            f"{CALLER}: observations have shape {array.shape} and must have {steps} or "
            f"{steps + 1} steps of {environments} environments, as rewards of shape {shape}."
        )
    if last_observations is None:
        return array[:steps], array[steps] if len(array) > steps else None
    if len(array) > steps:
        raise InputError(
            f"{CALLER}: observations have {steps + 1} rows, of which the last follows the last "
            "step; leave out last_observations."
        )
    last = _as_array("last_observations", last_observations)
    _require_shape("last_observations", last, array.shape[1:])
    return array, last


def _require_done(
    name: str,
    flags: NDArray[np.bool_],
    done: NDArray[np.bool_] | None,
    known: NDArray[np.bool_],
) -> None:
    """Raise InputError where a step ends its episode and is not done."""
    if done is None:
        return
    wrong = np.argwhere(flags & ~done & known)
    if len(wrong):
        t, n = wrong[0]
        raise InputError(
            f"{CALLER}: {name}[{t}, {n}] ends an episode and dones do not; check "
            "dones_refer_to, or give what only marks termination as terminated."
        )


def _as_discounts(discounts: Any, shape: tuple[int, int]) -> NDArray[Any]:
    """Return discounts, which are 0 or one constant."""
    array = _as_batch("discounts", discounts, shape)
    largest = array.max()
    wrong = (array != 0) & ~(np.abs(array - largest) <= DISCOUNT_TOLERANCE * largest)
    wrong |= ~((array >= 0) & (array <= 1))
    if wrong.any():
        t, n = np.argwhere(wrong)[0]
        raise InputError(
            f"{CALLER}: discounts[{t}, {n}] is {array[t, n]:g} and must be 0, which marks "
            f"termination, or the discount of all other steps, here {largest:g}, at most 1."
        )
    return array


def _as_actions(actions: Any, shape: tuple[int, int]) -> NDArray[Any]:
    """Return discrete actions (T, N) or continuous ones (T, N, k)."""
    array = _as_array("actions", actions)
    width: tuple[int, ...] = array.shape[2:3]
    _require_shape("actions", array, (*shape, *width))
    if array.ndim == 2 or array.dtype.kind == "f":
        return array
    if array.shape[2] != 1:
        raise InputError(
            f"{CALLER}: actions are {array.dtype} of shape {array.shape}, several numbers per "
            "step; number their combinations, one action each."
        )
    return array[:, :, 0]


def _as_flags(name: str, array: NDArray[Any]) -> NDArray[np.bool_]:
    """Return booleans; 0 and 1 are accepted."""
    wrong = np.argwhere((array != 0) & (array != 1))
    if len(wrong):
        index = ", ".join(map(str, wrong[0]))
        raise InputError(
            f"{CALLER}: {name}[{index}] is {array[tuple(wrong[0])]} and must be true or false, or "
            "1 or 0."
        )
    return array.astype(np.bool_)


def _as_batch(name: str, values: Any, shape: tuple[int, int] | None = None) -> NDArray[Any]:
    """Return one number per step, (T, N); (T, N, 1) is accepted."""
    array = _as_array(name, values)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 or array.size == 0:
        raise InputError(
            f"{CALLER}: {name} have shape {array.shape} and must be (steps, environments), with "
            "at least one of each; one environment is x[:, None]."
        )
    if shape is not None:
        _require_shape(name, array, shape)
    return array


def _as_array(name: str, values: Any) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{CALLER}: {name} must be an array of numbers ({error}).") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"{CALLER}: {name} are {array.dtype} and must be numbers.")
    require_finite(name, array)
    return array


def _require_shape(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise InputError(f"{CALLER}: {name} have shape {array.shape} and must be {shape}.")
