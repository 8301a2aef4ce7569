"""Find, split, sample and concatenate the episodes of recordings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError, require_integer
from bisimetric.mdp._validation import freeze

if TYPE_CHECKING:
    from bisimetric.transitions import Transitions

NUM_SPLIT_TRIALS = 32
"""Random assignments of episodes to parts, of which the closest to the fractions is taken."""

FRACTION_TOLERANCE = 1e-8
"""Largest deviation from 1 of the sum of the fractions."""


def find_episode_boundaries(ended: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the first step of each episode, then n: (episodes + 1,).

    Args:
        ended: (n,), whether the episode ends with this step.

    >>> find_episode_boundaries(np.array([False, True, False])).tolist()
    [0, 2, 3]
    """
    stops = np.flatnonzero(ended[:-1]) + 1
    return np.concatenate([[0], stops, [len(ended)]])


def assign_episodes(
    lengths: NDArray[np.int64], fractions: tuple[float, ...], seed: Any
) -> NDArray[np.int64]:
    """Return the part of each episode, (episodes,); every part gets at least one."""
    normalised = _validate_fractions(fractions)
    episodes, parts = len(lengths), len(fractions)
    if episodes < parts:
        raise InputError(
            f"Transitions: {episodes} episodes cannot be split into {parts} parts of whole "
            "episodes; collect more, or ask for fewer parts."
        )
    rng = np.random.default_rng(require_integer("Transitions.split", "seed", seed))
    total = lengths.sum()
    targets = np.minimum(np.cumsum(normalised) * total, total)
    closest, smallest_deviation = np.zeros(episodes, np.int64), np.inf
    for _ in range(NUM_SPLIT_TRIALS):
        order = rng.permutation(episodes)
        steps = np.concatenate([[0], np.cumsum(lengths[order])])
        cuts = _place_cuts(steps, targets[:-1])
        deviation = np.abs(np.diff(steps[cuts]) - normalised * total).sum()
        if deviation < smallest_deviation:
            smallest_deviation = deviation
            closest[order] = np.repeat(np.arange(parts), np.diff(cuts))
        if deviation < 1:
            break
    return closest


def _place_cuts(steps: NDArray[np.int64], targets: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number of episodes before each cut; `steps` counts those before each episode."""
    after = np.searchsorted(steps, targets)
    cuts = np.where(steps[after] - targets < targets - steps[after - 1], after, after - 1)
    episodes, parts = len(steps) - 1, len(targets) + 1
    # A cut leaves at least one episode to every part before it and after it.
    for part in range(1, parts):
        before = cuts[part - 2] if part > 1 else 0
        cuts[part - 1] = np.clip(cuts[part - 1], before + 1, episodes - (parts - part))
    return np.concatenate([[0], cuts, [episodes]])


def sample_indices(num_steps: int, n: Any, seed: Any, replacement: bool) -> NDArray[np.int64]:
    """Draw indices (n,) of random steps."""
    size = require_integer("Transitions.sample", "n", n, 1)
    if size > num_steps and not replacement:
        raise InputError(
            f"Transitions.sample: n is {size:,} and there are {num_steps:,} steps; draw fewer, "
            "or pass replacement=True."
        )
    rng = np.random.default_rng(require_integer("Transitions.sample", "seed", seed))
    return rng.choice(num_steps, size, replace=replacement)


def _validate_fractions(fractions: tuple[float, ...]) -> NDArray[np.float64]:
    """Return positive fractions divided by their sum, which must be 1 within the tolerance."""
    try:
        wanted = np.array(fractions, dtype=np.float64)
        if wanted.ndim == 1 and (wanted > 0).all() and abs(wanted.sum() - 1) <= FRACTION_TOLERANCE:
            return np.asarray(wanted / wanted.sum())
    except (TypeError, ValueError):
        pass
    listed = ", ".join(map(str, fractions)) or "none"
    raise InputError(
        f"Transitions.split: the fractions are {listed} and must be positive and sum to 1."
    )


def concatenate_fields(parts: Sequence[Transitions]) -> dict[str, Any]:
    """Return the fields of the concatenation; see `Transitions.concatenate`."""
    if not parts:
        raise InputError("Transitions: there is nothing to concatenate; give at least one.")
    _require_compatible_parts(parts)
    names, new_ids = _match_state_names(parts)
    columns = [_renumber_states(part, ids) for part, ids in zip(parts, new_ids, strict=True)]
    fields: dict[str, Any] = {
        name: freeze(np.concatenate([column[name] for column in columns]))
        for name in columns[0]
        if name != "truncated"
    }
    counts = [part.num_states for part in parts if part.num_states is not None]
    num_states = len(names) if names is not None else max(counts, default=None)
    metadata = [part.metadata for part in parts]
    all_equal = all(each == metadata[0] for each in metadata)
    return {
        **fields,
        "truncated": _mark_truncations(parts, columns),
        "num_states": num_states,
        "num_actions": parts[0].num_actions,
        "names": names,
        "action_names": _merge_action_names(parts),
        "positions": _merge_positions(parts, new_ids, num_states),
        "metadata": metadata[0] if all_equal else {"parts": metadata},
    }


def observations_are_ids(transitions: Transitions) -> bool:
    """Whether the observations equal the ids of states."""
    if (
        transitions.states is None
        or transitions.next_states is None
        or transitions.observations.ndim != 1
    ):
        return False
    return transitions.observations.dtype.kind in "iu" and bool(
        (transitions.observations == transitions.states).all()
        and (transitions.next_observations == transitions.next_states).all()
    )


def _require_compatible_parts(parts: Sequence[Transitions]) -> None:
    """Raise InputError for the first part that differs from part 0 in shape, kind or fields."""
    first = parts[0]
    for number, part in enumerate(parts):
        for name in ("observations", "actions"):
            one, other = getattr(first, name), getattr(part, name)
            if one.shape[1:] != other.shape[1:] or one.dtype.kind != other.dtype.kind:
                raise InputError(
                    f"Transitions: part {number} has {name} {other.shape[1:]} {other.dtype} and "
                    f"part 0 has {one.shape[1:]} {one.dtype}; all must agree."
                )
        if part.num_actions != first.num_actions:
            raise InputError(
                f"Transitions: part {number} has {part.num_actions} actions and part 0 has "
                f"{first.num_actions}; give all of them the same num_actions."
            )
        for name in ("states", "names"):
            if (getattr(part, name) is None) != (getattr(first, name) is None):
                raise InputError(
                    f"Transitions: of part {number} and part 0 only one has {name}; give {name} to "
                    "all of them, or to none."
                )


def _match_state_names(
    parts: Sequence[Transitions],
) -> tuple[tuple[str, ...] | None, list[NDArray[np.int64] | None]]:
    """Return all names, and the new ids of each part, None where its ids stay."""
    if all(part.names == parts[0].names for part in parts):
        return parts[0].names, [None] * len(parts)
    known: dict[str, int] = {}
    new_ids: list[NDArray[np.int64] | None] = []
    for part in parts:
        ids = [known.setdefault(name, len(known)) for name in part.names or ()]
        new_ids.append(np.array(ids, dtype=np.int64))
    return tuple(known), new_ids


def _renumber_states(
    part: Transitions, new_ids: NDArray[np.int64] | None
) -> dict[str, NDArray[Any]]:
    """Return the columns of a part with new ids."""
    columns = {
        "observations": part.observations,
        "actions": part.actions,
        "rewards": part.rewards,
        "next_observations": part.next_observations,
        "terminated": part.terminated,
        "truncated": part.truncated,
    }
    states, following = part.states, part.next_states
    if states is None or following is None:
        return columns
    if new_ids is not None:
        states, following = new_ids[states], new_ids[following]
        if observations_are_ids(part):
            columns |= {"observations": states, "next_observations": following}
    return {**columns, "states": states, "next_states": following}


def _mark_truncations(
    parts: Sequence[Transitions], columns: Sequence[dict[str, NDArray[Any]]]
) -> NDArray[np.bool_]:
    """Mark steps as truncated where the next part does not continue the episode."""
    truncated = np.concatenate([part.truncated for part in parts])
    last = -1
    for one, other in itertools.pairwise(columns):
        last += len(one["rewards"])
        continues = np.array_equal(one["next_observations"][-1], other["observations"][0])
        truncated[last] |= not (continues or one["terminated"][-1])
    return freeze(truncated)


def _merge_action_names(parts: Sequence[Transitions]) -> tuple[str, ...] | None:
    """Return the action names that the parts agree on."""
    given = [part.action_names for part in parts if part.action_names is not None]
    for names in given:
        if names != given[0]:
            raise InputError(
                f"Transitions: the parts name their actions {', '.join(given[0])} and "
                f"{', '.join(names)}; give all of them the same."
            )
    return given[0] if given else None


def _merge_positions(
    parts: Sequence[Transitions],
    new_ids: Sequence[NDArray[np.int64] | None],
    num_states: int | None,
) -> NDArray[np.float64] | None:
    """Return the position of each state, or None where one is unknown; parts must agree."""
    if num_states is None:
        return None
    positions = np.full((num_states, 2), np.nan)
    for index, (part, ids_of_part) in enumerate(zip(parts, new_ids, strict=True)):
        if part.positions is None:
            continue
        ids = np.arange(len(part.positions)) if ids_of_part is None else ids_of_part
        moved = ((positions[ids] != part.positions) & ~np.isnan(positions[ids])).any(axis=1)
        if moved.any():
            s = int(np.argmax(moved))
            raise InputError(
                f"Transitions: part {index} puts state {part.names[s] if part.names else s} at "
                f"{part.positions[s].tolist()} and a part before it at "
                f"{positions[ids[s]].tolist()}; give all of them the same positions."
            )
        positions[ids] = part.positions
    return None if np.isnan(positions).any() else freeze(positions)
