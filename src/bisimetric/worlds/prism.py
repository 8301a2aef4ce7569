"""PRISM's explicit files as MDPs: choices become actions, labels may count, deadlocks stay."""

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
"""How far PRISM itself lets the probabilities of a choice sum from 1."""

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
    """The MDP in files that PRISM exports (`prism model.nm -exportmodel model.all`).

    `tra` holds the transitions of an MDP or a DTMC (one action, "step"). The states `sta` (their
    names), the labels `lab`, and the rewards of states `srew` and of transitions `trew` are found
    beside it, under the same name with their own endings, or given.

    R(s, a) = srew(s) + sum_t P(s, a, t) trew(s, a, t); an `ExpectedReward` warning says, once,
    where a reward depends on the successor. Actions are the labels of choices, or their numbers
    where no choice has one; a choice without a label among labelled ones is "unlabelled". Where
    one label names several choices of a state, the second is "a#2", and so on, in the order of
    their numbers. A state that lacks an action that others have is at the largest possible distance
    from those: `MDP.available` and a `MissingActions` warning tell. A deadlock stays where it is
    under every action, whether PRISM has mended it (label "deadlock") or it has no line at all.

    `observe` names labels that count, as a list or "goal,fail": for each, an action "label goal"
    that stays where it is and pays 1 where the label holds. So states that differ in it are at
    least 1 / (1 - discount) apart; without rewards, (1 - discount) d is the usual distance of
    labelled chains, 1 where labels differ and else the discounted one of the successors. By
    default no label counts; where there are no rewards, all but "init" and "deadlock" do. These
    actions are `MDP.label_actions`; d_lax, which would match them with others, raises for them.

    Probabilities that sum to 1 within 1e-5, as PRISM allows, are scaled to do so.
    """
    path = os.fspath(tra)
    given = {"sta": sta, "lab": lab, "srew": srew, "trew": trew}
    files = {kind: _find_file(path, kind, each) for kind, each in given.items()}
    rewarded = bool(files["srew"] or files["trew"])
    if observe is None and not rewarded:
        _reject_ambiguous_rewards(path)
    transitions = read_transitions(path)
    states = transitions.num_states
    choices = 1 + int(transitions.rows.ids[:, 1].max(initial=0))
    require_memory(
        f"{path}: the first line says {states:,} states, which need",
        64.0 * states * choices,
        f"is it right? the file has {len(transitions.rows.value):,} transitions",
    )
    labels = read_labels(files["lab"], transitions) if files["lab"] else {}
    observed = _select_labels(path, labels, observe, rewarded)
    own, paid = np.zeros(states), np.zeros(len(transitions.rows.value))
    if files["srew"]:
        by_state = read_rewards(files["srew"], transitions, by_state=True)
        own += np.bincount(by_state.ids[:, 0], weights=by_state.value, minlength=states)
    if files["trew"]:
        paid += _read_transition_rewards(files["trew"], transitions)

    stuck = _find_deadlocks(transitions, labels.get("deadlock"))
    loops = stuck[transitions.rows.ids[:, 0]]
    own += np.bincount(transitions.rows.ids[loops, 0], weights=paid[loops], minlength=states)
    moving, paid = _select_rows(transitions, ~loops), paid[~loops]
    pairs, pair_of = _index_choices(moving)
    action, actions = _assign_actions(moving, pairs, pair_of)
    row = (pairs[:, 0] * len(actions) + action)[pair_of]
    probability = _normalise_probabilities(moving, pairs, pair_of)
    mean = compute_expected_rewards(path, row, probability, paid, states * len(actions))
    rewards = mean.reshape(states, len(actions)) + own[:, None]
    available = np.repeat(stuck[:, None], len(actions), axis=1)
    available.ravel()[row] = True
    warn_missing_actions(path, available)

    held = np.array([labels[name] for name in observed], dtype=np.bool_).reshape(-1, states).T
    P = _add_self_loops(
        (row, moving.rows.ids[:, 2], probability), stuck, len(actions), held.shape[1]
    )
    return MDP(
        P,
        np.hstack([rewards, held]),
        discount,
        names=tuple(read_states(files["sta"], transitions)) if files["sta"] else None,
        actions=(*actions, *(f"label {name}" for name in observed)),
        available=np.hstack([available, np.ones_like(held)]),
        label_actions=tuple(range(len(actions), len(actions) + len(observed))),
    )


def _find_file(path: str, kind: str, explicit_path: OptionalPath) -> str | None:
    """The file of a kind: the one that is given, else the one beside the transitions, if any."""
    if explicit_path is not None:
        return os.fspath(explicit_path)
    found = (str(Path(path).with_suffix(ending)) for ending in EXTENSIONS[kind])
    return next(filter(os.path.isfile, found), None)


def _reject_ambiguous_rewards(path: str) -> None:
    """Several reward structures go to model1.srew, model2.srew and so on: one must be chosen."""
    stem = Path(path)
    found = sorted(
        each.name
        for ending in (*EXTENSIONS["srew"], *EXTENSIONS["trew"])
        for each in stem.parent.glob(f"{glob.escape(stem.stem)}[0-9]*{ending}")
        if each.name[len(stem.stem) : -len(ending)].isdigit()
    )
    if found:
        raise InputError(
            f"{path}: there are several rewards beside it ({', '.join(found[:4])}); choose with "
            "srew=... and trew=..., or labels with observe=..."
        )


def _index_choices(transitions: PrismTransitions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The different (state, choice) pairs (c, 2), sorted, and the pair of each transition (n,)."""
    state, choice, _ = transitions.rows.ids.T
    most = int(choice.max(initial=0)) + 1
    pair, pair_of = np.unique(state * most + choice, return_inverse=True)
    return np.stack(divmod(pair, most), axis=1), pair_of


def _assign_actions(
    transitions: PrismTransitions, pairs: NDArray[np.int64], pair_of: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[str]]:
    """The action of each pair (c,), and the names of the actions."""
    rows = transitions.rows
    if transitions.is_dtmc:
        return np.zeros(len(pairs), dtype=np.int64), ["step"]
    if not rows.actions:
        return pairs[:, 1], [str(each) for each in range(int(pairs[:, 1].max(initial=0)) + 1)]
    label = np.empty(len(pairs), dtype=np.int64)
    label[pair_of[::-1]] = rows.action[::-1]
    other = rows.action != label[pair_of]
    if other.any():
        at = int(np.argmax(other))
        state, choice = pairs[pair_of[at]]
        raise InputError(
            f"{transitions.path}: line {rows.line_number[at]}: choice {choice} of state {state} has "
            "another action in the lines above; a choice has one action."
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
    called = [UNLABELLED, *rows.actions]
    names = [
        called[which] + (f"#{times + 1}" if times else "")
        for which, times in (divmod(int(each), width) for each in code[by_appearance])
    ]
    return place[action], names or [UNLABELLED]


def _normalise_probabilities(
    transitions: PrismTransitions, pairs: NDArray[np.int64], pair_of: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The probabilities, those of a choice that sums almost to 1 made to sum to 1."""
    rows = transitions.rows
    sums = np.bincount(pair_of, weights=rows.value, minlength=len(pairs))
    off = np.abs(sums - 1)
    if (off > PRISM_PROBABILITY_TOL).any():
        pair = int(np.argmax(off > PRISM_PROBABILITY_TOL))
        state, choice = pairs[pair]
        which = f"state {state}" if transitions.is_dtmc else f"choice {choice} of state {state}"
        raise InputError(
            f"{transitions.path}: line {rows.line_number[np.argmax(pair_of == pair)]}: the probabilities "
            f"of {which} sum to {sums[pair]:.9g} and must sum to 1."
        )
    return rows.value / np.where(off > PROBABILITY_TOL, sums, 1.0)[pair_of]


def _read_transition_rewards(path: str, transitions: PrismTransitions) -> NDArray[np.float64]:
    """The rewards of a .trew file, one for each line of the .tra file (n,)."""
    rewards = read_rewards(path, transitions, by_state=False)
    there, here = transitions.rows.ids, rewards.ids
    most = max(int(each[:, 1].max(initial=0)) for each in (there, here)) + 1
    known, back = np.unique(
        _encode_triples(there, most, transitions.num_states), return_inverse=True
    )
    wanted = _encode_triples(here, most, transitions.num_states)
    at = np.minimum(np.searchsorted(known, wanted), max(len(known) - 1, 0))
    missing = known[at] != wanted if len(known) else np.ones(len(wanted), dtype=np.bool_)
    if missing.any():
        first = int(np.argmax(missing))
        raise InputError(
            f"{path}: line {rewards.line_number[first]} pays for a transition that {transitions.path} "
            "does not have; export both from one model."
        )
    return np.bincount(at, weights=rewards.value, minlength=len(known))[back].astype(np.float64)


def _encode_triples(ids: NDArray[np.int64], num_choices: int, num_states: int) -> NDArray[np.int64]:
    """Each (state, choice, successor) as one number."""
    return np.asarray((ids[:, 0] * num_choices + ids[:, 1]) * num_states + ids[:, 2])


def _find_deadlocks(
    transitions: PrismTransitions, labelled: NDArray[np.bool_] | None
) -> NDArray[np.bool_]:
    """The deadlocks (S,): states without a line, and those that PRISM has given a loop."""
    rows = transitions.rows
    stuck = np.ones(transitions.num_states, dtype=np.bool_)
    stuck[rows.ids[:, 0]] = False
    if labelled is not None:
        leaves = np.zeros(transitions.num_states, dtype=np.bool_)
        is_loop = (rows.ids[:, 0] == rows.ids[:, 2]) & (rows.value == 1) & (rows.action < 0)
        leaves[rows.ids[~is_loop, 0]] = True
        stuck |= labelled & ~leaves
    return stuck


def _select_rows(transitions: PrismTransitions, mask: NDArray[np.bool_]) -> PrismTransitions:
    """Some of the lines of a .tra file."""
    rows = transitions.rows
    some = PrismRows(
        rows.ids[mask], rows.value[mask], rows.action[mask], rows.line_number[mask], rows.actions
    )
    return dataclasses.replace(transitions, rows=some)


def _select_labels(
    path: str,
    labels: dict[str, NDArray[np.bool_]],
    observe: str | Sequence[str] | None,
    has_rewards: bool,
) -> list[str]:
    """The labels that count."""
    if observe is None:
        return [] if has_rewards else [name for name in labels if name not in BUILT_IN_LABELS]
    wanted = [each.strip() for each in observe.split(",")] if isinstance(observe, str) else observe
    for name in wanted:
        if name not in labels:
            known = f"they are {', '.join(labels)}" if labels else "there is no .lab file beside it"
            raise InputError(
                f"{path}: there is no label {name!r}{suggest_names(name, labels) or ';'} {known}."
            )
    return list(dict.fromkeys(wanted))


def _add_self_loops(
    transitions: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]],
    deadlocks: NDArray[np.bool_],
    num_actions: int,
    num_labels: int,
) -> sparse.csr_array:
    """P from row, successor and probability of the moves, with loops for the actions of states
    that are stuck, and for the actions of labels, which come after the others."""
    states, width = len(deadlocks), num_actions + num_labels
    row, successor, probability = transitions
    loops = np.repeat(deadlocks[:, None], width, axis=1)
    loops[:, num_actions:] = True
    at, _ = np.nonzero(loops)
    rows = np.concatenate([row // num_actions * width + row % num_actions, np.flatnonzero(loops)])
    columns = np.concatenate([successor, at])
    values = np.concatenate([probability, np.ones(len(at))])
    return sparse.csr_array(sparse.coo_array((values, (rows, columns)), (states * width, states)))
