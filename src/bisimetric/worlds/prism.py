"""MDPs from PRISM's explicit files: choices become actions, labels may be observed."""

from __future__ import annotations

import dataclasses
import glob
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric._memory import require_memory
from bisimetric.errors import InputError, suggest_names
from bisimetric.mdp import MDP, PROBABILITY_TOL
from bisimetric.worlds._warnings import compute_expected_rewards, warn_missing_actions
from bisimetric.worlds.prism_files import (
    PrismRows,
    PrismTransitions,
    read_labels,
    read_rewards,
    read_states,
    read_transitions,
)

PRISM_PROBABILITY_TOL = 1e-5
"""PRISM's own tolerance for the sum of the probabilities of a choice."""

UNLABELLED = "unlabelled"
BUILT_IN_LABELS = ("init", "deadlock")
EXTENSIONS = {
    "sta": (".sta",),
    "lab": (".lab",),
    "srew": (".srew", ".rews"),
    "trew": (".trew", ".rewt"),
}

OptionalPath = str | os.PathLike[str] | None


def from_prism(
    tra: str | os.PathLike[str],
    *,
    sta: OptionalPath = None,
    lab: OptionalPath = None,
    srew: OptionalPath = None,
    trew: OptionalPath = None,
    observe: str | Sequence[str] | None = None,
    discount: float = 0.99,
) -> MDP:
    """Build the MDP in files that PRISM exports (`prism model.nm -exportmodel model.all`).

    R(s, a) = srew(s) + sum_t P(s, a, t) trew(s, a, t); an `ExpectedRewardWarning` says, once, where
    a reward depends on the successor. Actions are the labels of choices, or their numbers if no
    choice has one; a choice without a label among labelled ones is "unlabelled". If one label names
    several choices of a state, the second is "a#2", and so on, in the order of their numbers. A
    state that lacks an action of other states is at the largest possible distance from those: see
    `MDP.available` and the `MissingActionsWarning`. A deadlock has self-loops under every action,
    whether PRISM has added one (label "deadlock") or it has no line at all.

    Each observed label adds an action "label goal" with a self-loop that pays 1 where the label
    holds. So states that differ in it are at least 1 / (1 - discount) apart; without rewards,
    (1 - discount) d is the usual distance of labelled Markov chains: 1 where labels differ, else
    the discounted one of the successors. These actions are `MDP.label_actions`; d_lax, which would
    match them with others, raises for them.

    Probabilities that sum to 1 within 1e-5, as PRISM allows, are normalised.

    Args:
        tra: path of the transitions of an MDP or a DTMC (one action, "step"). The other files are
            found beside it by their extensions, unless given.
        sta: path of the states, which names them.
        lab: path of the labels.
        srew: path of the state rewards.
        trew: path of the transition rewards.
        observe: labels to observe, as a list or as "goal,fail". None observes no label, or, without
            rewards, all but "init" and "deadlock".
        discount: of the MDP.

    Returns:
        The MDP.

    Raises:
        InputError: a file is missing, malformed or of another model, or there is no such label.
        InsufficientMemory: the model does not fit into memory.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "chain.tra")
    ...     _ = path.write_text("2 3\\n0 0 0.5\\n0 1 0.5\\n1 1 1\\n")
    ...     from_prism(path)
    MDP(2 states, 1 action, 3 transitions, discount 0.99)
    """
    path = os.fspath(tra)
    paths = {"sta": sta, "lab": lab, "srew": srew, "trew": trew}
    files = {kind: _find_file(path, kind, each) for kind, each in paths.items()}
    has_rewards = bool(files["srew"] or files["trew"])
    if observe is None and not has_rewards:
        _reject_ambiguous_rewards(path)
    transitions = read_transitions(path)
    states = transitions.num_states
    num_choices = 1 + int(transitions.rows.ids[:, 1].max(initial=0))
    require_memory(
        f"{path}: the first line says {states:,} states, which need",
        64.0 * states * num_choices,
        f"is it right? the file has {len(transitions.rows.value):,} transitions",
    )
    labels = read_labels(files["lab"], transitions) if files["lab"] else {}
    observed = _select_labels(path, labels, observe, has_rewards)
    state_rewards, transition_rewards = np.zeros(states), np.zeros(len(transitions.rows.value))
    if files["srew"]:
        by_state = read_rewards(files["srew"], transitions, by_state=True)
        state_rewards += np.bincount(by_state.ids[:, 0], weights=by_state.value, minlength=states)
    if files["trew"]:
        transition_rewards += _read_transition_rewards(files["trew"], transitions)

    deadlocks = _find_deadlocks(transitions, labels.get("deadlock"))
    loops = deadlocks[transitions.rows.ids[:, 0]]
    state_rewards += np.bincount(
        transitions.rows.ids[loops, 0], weights=transition_rewards[loops], minlength=states
    )
    moving, transition_rewards = _select_rows(transitions, ~loops), transition_rewards[~loops]
    pairs, pair_of = _index_choices(moving)
    action, actions = _assign_actions(moving, pairs, pair_of)
    row = (pairs[:, 0] * len(actions) + action)[pair_of]
    probability = _normalise_probabilities(moving, pairs, pair_of)
    mean = compute_expected_rewards(
        path, row, probability, transition_rewards, states * len(actions)
    )
    rewards = mean.reshape(states, len(actions)) + state_rewards[:, None]
    available = np.repeat(deadlocks[:, None], len(actions), axis=1)
    available.ravel()[row] = True
    warn_missing_actions(path, available)

    observed_labels = (
        np.array([labels[name] for name in observed], dtype=np.bool_).reshape(-1, states).T
    )
    P = _add_self_loops(
        (row, moving.rows.ids[:, 2], probability), deadlocks, len(actions), observed_labels.shape[1]
    )
    return MDP(
        P,
        np.hstack([rewards, observed_labels]),
        discount,
        names=tuple(read_states(files["sta"], transitions)) if files["sta"] else None,
        actions=(*actions, *(f"label {name}" for name in observed)),
        available=np.hstack([available, np.ones_like(observed_labels)]),
        label_actions=tuple(range(len(actions), len(actions) + len(observed))),
    )


def _find_file(path: str, kind: str, explicit_path: OptionalPath) -> str | None:
    """Return the given path of a kind of file, or the one beside the transitions, if any."""
    if explicit_path is not None:
        return os.fspath(explicit_path)
    candidates = (str(Path(path).with_suffix(extension)) for extension in EXTENSIONS[kind])
    return next(filter(os.path.isfile, candidates), None)


def _reject_ambiguous_rewards(path: str) -> None:
    """Raise if there are several reward structures, model1.srew, model2.srew and so on."""
    stem = Path(path)
    names = sorted(
        file.name
        for extension in (*EXTENSIONS["srew"], *EXTENSIONS["trew"])
        for file in stem.parent.glob(f"{glob.escape(stem.stem)}[0-9]*{extension}")
        if file.name[len(stem.stem) : -len(extension)].isdigit()
    )
    if names:
        raise InputError(
            f"{path}: there are several rewards beside it ({', '.join(names[:4])}); choose with "
            "srew=... and trew=..., or labels with observe=..."
        )


def _index_choices(transitions: PrismTransitions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted (state, choice) pairs (c, 2) and the pair of each transition (n,)."""
    state, choice, _ = transitions.rows.ids.T
    num_choices = int(choice.max(initial=0)) + 1
    pair, pair_of = np.unique(state * num_choices + choice, return_inverse=True)
    return np.stack(divmod(pair, num_choices), axis=1), pair_of


def _assign_actions(
    transitions: PrismTransitions, pairs: NDArray[np.int64], pair_of: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the action of each pair (c,), and the names of the actions."""
    rows = transitions.rows
    if transitions.is_dtmc:
        return np.zeros(len(pairs), dtype=np.int64), ["step"]
    if not rows.actions:
        return pairs[:, 1], [str(each) for each in range(int(pairs[:, 1].max(initial=0)) + 1)]
    label = np.empty(len(pairs), dtype=np.int64)
    label[pair_of[::-1]] = rows.action[::-1]
    inconsistent = rows.action != label[pair_of]
    if inconsistent.any():
        index = int(np.argmax(inconsistent))
        state, choice = pairs[pair_of[index]]
        raise InputError(
            f"{transitions.path}: line {rows.line_number[index]}: choice {choice} of state {state} "
            "has another action in the lines above; a choice has one action."
        )
    # Within a state and label, choices are counted in the order of their numbers.
    order = np.lexsort((pairs[:, 1], label, pairs[:, 0]))
    same = np.diff(pairs[order, 0], prepend=-1) == 0
    same &= np.diff(label[order], prepend=-2) == 0
    rank = np.empty(len(pairs), dtype=np.int64)
    within = np.arange(len(pairs))
    rank[order] = within - np.maximum.accumulate(np.where(same, 0, within))
    width = int(rank.max(initial=0)) + 1
    code, first, action = np.unique(
        (label + 1) * width + rank, return_index=True, return_inverse=True
    )
    by_appearance = np.argsort(first)
    place = np.empty_like(by_appearance)
    place[by_appearance] = np.arange(len(code))
    label_names = [UNLABELLED, *rows.actions]
    names = [
        label_names[which] + (f"#{times + 1}" if times else "")
        for which, times in (divmod(int(each), width) for each in code[by_appearance])
    ]
    return place[action], names or [UNLABELLED]


def _normalise_probabilities(
    transitions: PrismTransitions, pairs: NDArray[np.int64], pair_of: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the probabilities, normalised per choice if their sum differs from 1 by rounding."""
    rows = transitions.rows
    sums = np.bincount(pair_of, weights=rows.value, minlength=len(pairs))
    off = np.abs(sums - 1)
    if (off > PRISM_PROBABILITY_TOL).any():
        pair = int(np.argmax(off > PRISM_PROBABILITY_TOL))
        state, choice = pairs[pair]
        which = f"state {state}" if transitions.is_dtmc else f"choice {choice} of state {state}"
        line = rows.line_number[np.argmax(pair_of == pair)]
        raise InputError(
            f"{transitions.path}: line {line}: the probabilities "
            f"of {which} sum to {sums[pair]:.9g} and must sum to 1."
        )
    return rows.value / np.where(off > PROBABILITY_TOL, sums, 1.0)[pair_of]


def _read_transition_rewards(path: str, transitions: PrismTransitions) -> NDArray[np.float64]:
    """Read the rewards of a .trew file, one for each line of the .tra file (n,)."""
    rewards = read_rewards(path, transitions, by_state=False)
    transition_ids, reward_ids = transitions.rows.ids, rewards.ids
    num_choices = max(int(each[:, 1].max(initial=0)) for each in (transition_ids, reward_ids)) + 1
    known, inverse = np.unique(
        _encode_triples(transition_ids, num_choices, transitions.num_states), return_inverse=True
    )
    codes = _encode_triples(reward_ids, num_choices, transitions.num_states)
    index = np.minimum(np.searchsorted(known, codes), max(len(known) - 1, 0))
    missing = known[index] != codes if len(known) else np.ones(len(codes), dtype=np.bool_)
    if missing.any():
        first = int(np.argmax(missing))
        raise InputError(
            f"{path}: line {rewards.line_number[first]} pays for a transition that "
            f"{transitions.path} does not have; export both from one model."
        )
    return np.bincount(index, weights=rewards.value, minlength=len(known))[inverse].astype(
        np.float64
    )


def _encode_triples(ids: NDArray[np.int64], num_choices: int, num_states: int) -> NDArray[np.int64]:
    """Encode each (state, choice, successor) as one integer."""
    return np.asarray((ids[:, 0] * num_choices + ids[:, 1]) * num_states + ids[:, 2])


def _find_deadlocks(
    transitions: PrismTransitions, labelled: NDArray[np.bool_] | None
) -> NDArray[np.bool_]:
    """Find the deadlocks (S,): states without a line, or with a self-loop that PRISM added."""
    rows = transitions.rows
    deadlocks = np.ones(transitions.num_states, dtype=np.bool_)
    deadlocks[rows.ids[:, 0]] = False
    if labelled is not None:
        has_other_transitions = np.zeros(transitions.num_states, dtype=np.bool_)
        is_loop = (rows.ids[:, 0] == rows.ids[:, 2]) & (rows.value == 1) & (rows.action < 0)
        has_other_transitions[rows.ids[~is_loop, 0]] = True
        deadlocks |= labelled & ~has_other_transitions
    return deadlocks


def _select_rows(transitions: PrismTransitions, mask: NDArray[np.bool_]) -> PrismTransitions:
    """Select some of the lines of a .tra file."""
    rows = transitions.rows
    selected = PrismRows(
        rows.ids[mask], rows.value[mask], rows.action[mask], rows.line_number[mask], rows.actions
    )
    return dataclasses.replace(transitions, rows=selected)


def _select_labels(
    path: str,
    labels: dict[str, NDArray[np.bool_]],
    observe: str | Sequence[str] | None,
    has_rewards: bool,
) -> list[str]:
    """Return the labels to observe."""
    if observe is None:
        return [] if has_rewards else [name for name in labels if name not in BUILT_IN_LABELS]
    names = [each.strip() for each in observe.split(",")] if isinstance(observe, str) else observe
    for name in names:
        if name not in labels:
            known = f"they are {', '.join(labels)}" if labels else "there is no .lab file beside it"
            raise InputError(
                f"{path}: there is no label {name!r}{suggest_names(name, labels) or ';'} {known}."
            )
    return list(dict.fromkeys(names))


def _add_self_loops(
    transitions: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]],
    deadlocks: NDArray[np.bool_],
    num_actions: int,
    num_labels: int,
) -> sparse.csr_array:
    """Build P from row, successor and probability, with self-loops of deadlocks and label actions.

    The label actions come after the others.
    """
    states, width = len(deadlocks), num_actions + num_labels
    row, successor, probability = transitions
    loops = np.repeat(deadlocks[:, None], width, axis=1)
    loops[:, num_actions:] = True
    at, _ = np.nonzero(loops)
    rows = np.concatenate([row // num_actions * width + row % num_actions, np.flatnonzero(loops)])
    columns = np.concatenate([successor, at])
    values = np.concatenate([probability, np.ones(len(at))])
    return sparse.csr_array(sparse.coo_array((values, (rows, columns)), (states * width, states)))
