"""MDPs from PRISM's explicit files: choices become actions, labels are those of the states."""

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
    several choices of a state, the second is "a#2", and so on, in the order of their numbers. Such
    choices, and all those without a label, are sets as in Storm (`MDP.choice_labels`): the order of
    the numbers means nothing. A state that lacks a choice label of other states is at the largest
    possible distance from those: see `MDP.available` and the `MissingActionsWarning`. A deadlock
    has one choice, a self-loop without a label, as PRISM and Storm add it.

    Observed labels become `MDP.labels`: states with different label sets are at the largest
    possible distance and in no relation. Without rewards, (1 - discount) d is the usual distance of
    labelled Markov chains: 1 where labels differ, else the discounted one of the successors.

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
    transitions = _add_deadlock_loops(transitions)
    labels = read_labels(files["lab"], transitions) if files["lab"] else {}
    observed = _select_labels(path, labels, observe, has_rewards)
    state_rewards, transition_rewards = np.zeros(states), np.zeros(len(transitions.rows.value))
    if files["srew"]:
        by_state = read_rewards(files["srew"], transitions, by_state=True)
        state_rewards += np.bincount(by_state.ids[:, 0], weights=by_state.value, minlength=states)
    if files["trew"]:
        transition_rewards += _read_transition_rewards(files["trew"], transitions)

    pairs, pair_of = _index_choices(transitions)
    action, names, choice_labels = _assign_actions(transitions, pairs, pair_of)
    row = (pairs[:, 0] * len(names) + action)[pair_of]
    probability = _normalise_probabilities(transitions, pairs, pair_of)
    mean = compute_expected_rewards(path, row, probability, transition_rewards, states * len(names))
    available = np.zeros((states, len(names)), np.bool_)
    available.ravel()[row] = True
    entries = (probability, (row, transitions.rows.ids[:, 2]))
    mdp = MDP(
        sparse.csr_array(sparse.coo_array(entries, (available.size, states))),
        mean.reshape(states, len(names)) + state_rewards[:, None],
        discount,
        names=tuple(read_states(files["sta"], transitions)) if files["sta"] else None,
        actions=names,
        available=available,
        labels={name: labels[name] for name in observed} or None,
        choice_labels=choice_labels,
    )
    groups = mdp.choice_groups
    offered = [available[:, groups == group].any(axis=1) for group in range(groups.max() + 1)]
    warn_missing_actions(path, np.stack(offered, axis=1))
    return mdp


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
) -> tuple[NDArray[np.int64], list[str], list[str]]:
    """Return the action of each pair (c,), and the names and choice labels of the actions."""
    rows = transitions.rows
    if transitions.is_dtmc:
        return np.zeros(len(pairs), dtype=np.int64), ["step"], ["step"]
    if not rows.actions:
        numbers = range(int(pairs[:, 1].max(initial=0)) + 1)
        return pairs[:, 1], [str(each) for each in numbers], [UNLABELLED] * len(numbers)
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
    found = [divmod(int(each), width) for each in code[by_appearance]]
    labels = [label_names[which] for which, _ in found]
    names = [
        label + (f"#{times + 1}" if times else "")
        for label, (_, times) in zip(labels, found, strict=True)
    ]
    return place[action], names, labels


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


def _add_deadlock_loops(transitions: PrismTransitions) -> PrismTransitions:
    """Add a self-loop without a label to each state without a line."""
    rows = transitions.rows
    has_line = np.zeros(transitions.num_states, np.bool_)
    has_line[rows.ids[:, 0]] = True
    at = np.flatnonzero(~has_line)
    if len(at) == 0:
        return transitions
    loops = np.stack([at, np.zeros_like(at), at], axis=1)
    nothing = np.zeros(len(at), np.int64)
    extended = PrismRows(
        np.concatenate([rows.ids, loops]),
        np.concatenate([rows.value, np.ones(len(at))]),
        np.concatenate([rows.action, nothing - 1]),
        np.concatenate([rows.line_number, nothing]),
        rows.actions,
    )
    return dataclasses.replace(transitions, rows=extended)


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
