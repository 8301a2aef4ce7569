"""Repeated states in recorded data: mean rewards, episodes, and whether their outcomes differ.

States are equal where their ids are, or, without ids, where their observations are equal in every
number. Observations that never repeat say nothing about randomness.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.learned.losses import LearnedKind
from bisimetric.transitions import Transitions

MIN_REPETITIONS = 2.0
"""States repeat if each is recorded so often, in the mean."""

HASH_BLOCK = 2**14
"""Rows that are hashed or compared at once, to bound the scratch memory."""


def describe_randomness(
    kind: LearnedKind, data: Transitions, policy: ArrayLike | None
) -> str | None:
    """Return the warning for repeated states with different outcomes; None where there are none.

    For d~, transitions of equal states and actions must have equal rewards and successors, for
    d^pi those of equal states; a stochastic policy shows there as different actions. MICo is
    defined for stochastic data.

    Args:
        kind: the distance.
        data: the transitions.
        policy: (S,) actions that select transitions, or None.

    Returns:
        What was found, what it does to the distances, and the remedy.

    >>> data = Transitions([0, 0], [0, 0], [1.0, 2.0], [1, 1], [True, True])
    >>> describe_randomness("bisimulation", data, None)[:68]
    'learned.bisimulation: 1 of 2 transitions repeats a state and action,'
    """
    if kind == "mico":
        return None
    rows = np.flatnonzero(select_policy_steps(kind, data, policy))
    same_actions = kind == "bisimulation" and data.actions.ndim == 1
    states = data.observations if data.states is None else np.asarray(data.states)
    first = find_first_occurrences(states[rows])
    if same_actions:
        # An action and the first row of its state identify the pair.
        first = find_first_occurrences(np.stack([first, data.actions[rows]], axis=1))
    repeats = np.flatnonzero(first != np.arange(len(rows)))
    row, earlier = rows[repeats], rows[first[repeats]]
    terminated = data.terminated[row]
    same_end = terminated == data.terminated[earlier]
    successors = data.next_observations if data.next_states is None else data.next_states
    same = (data.rewards[row] == data.rewards[earlier]) & same_end
    same &= terminated | _are_rows_equal(successors, row, earlier)
    different = np.flatnonzero(~same)
    if not len(different):
        return None
    taken = data.actions[row[different]] != data.actions[earlier[different]]
    by_policy = not same_actions and bool(np.any(taken))
    verb = "repeats" if len(different) == 1 else "repeat"
    model = f"exact.{kind}(data.to_mdp()) or "
    alternative = ", or give the policy" if by_policy and policy is None else ""
    return (
        f"learned.{kind}: {len(different):,} of {len(rows):,} transitions {verb} "
        f"{'a state and action' if same_actions else 'a state'}, and have different outcomes"
        f"{', also under different actions' if by_policy else ''}; the loss averages over pairs of "
        "them, and distances come out too large; use "
        f"{model if data.states is not None and kind == 'bisimulation' else ''}"
        f"a learned.ModelBasedConfig{alternative}."
    )


def covers_all_actions(
    kind: LearnedKind, data: Transitions, policy: ArrayLike | None, max_states: int
) -> bool:
    """Return whether every action was recorded in every visited state, of at most `max_states`.

    For d^pi, whether every visited state was left. States must be recorded twice, in the mean.

    >>> data = Transitions([0, 1, 0, 1], [0, 0, 1, 0], [0.0] * 4, [1, 0, 1, 0], [False] * 4)
    >>> covers_all_actions("bisimulation", data, None, 10)
    False
    >>> covers_all_actions("on_policy", data, None, 10)
    True
    """
    selected = select_policy_steps(kind, data, policy)
    left = data.observations if data.states is None else np.asarray(data.states)
    entered = data.next_observations if data.next_states is None else np.asarray(data.next_states)
    # Data of too many states show it early.
    early = left[selected][: 2 * max_states]
    if len(np.unique(find_first_occurrences(early))) > max_states:
        return False
    entered = entered[selected & ~data.terminated]
    both = find_first_occurrences(np.concatenate([left[selected], entered]))
    states, num_left = both[: int(selected.sum())], len(np.unique(both[: int(selected.sum())]))
    num_visited = len(np.unique(both))
    if num_visited > max_states or len(states) < MIN_REPETITIONS * num_left:
        return False
    if kind != "bisimulation":
        return num_left == num_visited
    actions = data.actions[selected]
    num_actions = int(actions.max()) + 1
    return len(np.unique(states * num_actions + actions)) == num_visited * num_actions


def average_repeated_rewards(
    observations: NDArray[Any], rewards: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the mean reward of all rows with the same observation, (n,).

    Args:
        observations: (n, ...).
        rewards: (n,).

    >>> average_repeated_rewards(np.array([3, 5, 3]), np.array([1.0, 7.0, 2.0])).tolist()
    [1.5, 7.0, 1.5]
    """
    first = find_first_occurrences(observations)
    count = np.bincount(first, minlength=len(rewards))
    total = np.bincount(first, rewards, minlength=len(rewards))
    return np.asarray(total[first] / count[first])


def find_first_occurrences(array: NDArray[Any]) -> NDArray[np.int64]:
    """Return for each row the first row that is equal to it, (n,).

    Rows are grouped by a 64-bit hash, and compared with the first row of their group. A row whose
    hash collides with that of another one counts as its own.

    >>> find_first_occurrences(np.array([[1.0, 0.0], [2.0, 0.0], [1.0, -0.0]])).tolist()
    [0, 1, 0]
    """
    hashes = np.empty(len(array), np.uint64)
    factors = None
    for start in range(0, len(array), HASH_BLOCK):
        block = array[start : start + HASH_BLOCK].reshape(-1, int(np.prod(array.shape[1:])))
        # Adding 0 makes -0.0 and 0.0, which are equal, the same bytes.
        words = _view_words(block + block.dtype.type(0) if block.dtype.kind == "f" else block)
        if factors is None:
            generator = np.random.default_rng(0)
            factors = generator.integers(2**63, size=words.shape[1], dtype=np.uint64) * 2 + 1
        mixed = (words ^ (words >> np.uint64(32))) * factors
        hashes[start : start + len(block)] = (mixed ^ (mixed >> np.uint64(29))).sum(
            axis=1, dtype=np.uint64
        )
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    earlier = first[group].astype(np.int64)
    rows = np.arange(len(array))
    return np.where(_are_rows_equal(array, rows, earlier), earlier, rows)


def select_policy_steps(
    kind: LearnedKind, data: Transitions, policy: ArrayLike | None
) -> NDArray[np.bool_]:
    """Return which transitions follow a policy; all of them without one."""
    if policy is None:
        return np.ones(len(data), dtype=np.bool_)
    actions = np.asarray(policy)
    if data.states is None or data.actions.ndim > 1 or actions.shape != (data.num_states,):
        raise InputError(
            f"must be ({data.num_states},) actions, one per numbered state, for recorded data",
            caller=f"learned.{kind}",
            argument="policy",
        )
    return np.asarray(data.actions == actions[data.states])


def count_remaining_steps(data: Transitions, selected: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return the steps from each selected one to the end of its recorded episode, itself included.

    An episode also ends before a step that is not selected, and where the next observation of a
    step is not the observation of the following one, as in a random sample of steps.

    >>> data = Transitions([0, 1, 0], [0] * 3, [0.0] * 3, [1, 2, 1], [False, True, False])
    >>> count_remaining_steps(data, np.array([True] * 3)).tolist()
    [2, 1, 1]
    """
    ended = data.terminated | data.truncated
    ended[-1] = True
    ended[:-1] |= ~selected[1:]
    if data.states is not None and data.next_states is not None:
        ended[:-1] |= data.next_states[:-1] != data.states[1:]
    else:
        ended[:-1] |= ~find_shared_states(data.observations, data.next_observations)[:-1]
    last = np.flatnonzero(ended[selected])
    rows = np.arange(int(selected.sum()))
    return (last[np.searchsorted(last, rows)] - rows + 1).astype(np.int32)


def find_shared_states(
    observations: NDArray[Any], next_observations: NDArray[Any]
) -> NDArray[np.bool_]:
    """Return for each step whether the following one starts from its next observation, (n,)."""
    steps = len(observations)
    state_bits, next_bits = view_bits(observations), view_bits(next_observations)
    continues = np.zeros(steps, np.bool_)
    for start in range(0, steps - 1, HASH_BLOCK):
        stop = min(start + HASH_BLOCK, steps - 1)
        equal = next_bits[start:stop] == state_bits[start + 1 : stop + 1]
        continues[start:stop] = equal.reshape(stop - start, -1).all(axis=1)
    return continues


def view_bits(array: NDArray[Any]) -> NDArray[Any]:
    """Return half-precision numbers as their bits, on which NumPy is many times faster."""
    return array.view(np.uint16) if array.dtype == np.float16 else array


def _view_words(block: NDArray[Any]) -> NDArray[np.uint64]:
    """Return rows of any numbers as 64-bit words, padded with zeros."""
    plain = np.ascontiguousarray(block)
    octets = plain.view(np.uint8).reshape(len(plain), -1)
    return np.pad(octets, ((0, 0), (0, -octets.shape[1] % 8))).view(np.uint64)


def _are_rows_equal(
    array: NDArray[Any], rows: NDArray[np.int64], others: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether pairs of rows are equal in every number."""
    equal = np.empty(len(rows), np.bool_)
    for start in range(0, len(rows), HASH_BLOCK):
        stop = start + HASH_BLOCK
        pairs = array[rows[start:stop]] == array[others[start:stop]]
        equal[start:stop] = pairs.reshape(len(pairs), -1).all(axis=1)
    return equal
