"""MDPs from explicit models of model checkers: choices become actions, labels are those of states.

PRISM's explicit files, Storm's DRN files and stormpy's models are read into the records below.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric._io import name_input_errors
from bisimetric._memory import require_memory
from bisimetric.errors import InputError, suggest_names
from bisimetric.mdp import MDP, PROBABILITY_TOL
from bisimetric.worlds._warnings import compute_expected_rewards, warn_missing_actions

EXPLICIT_PROBABILITY_TOL = 1e-5
"""PRISM's own tolerance for the sum of the probabilities of a choice."""

UNLABELLED = "unlabelled"
BUILT_IN_LABELS = ("init", "deadlock")


@dataclasses.dataclass(frozen=True)
class ExplicitRows:
    """The transitions of a model, or the lines of a file of numbers.

    Attributes:
        ids: (n, k), the integers of each line.
        value: (n,), the number after them.
        action: (n,), the label after that, as an index into `actions` (-1: none).
        line_number: (n,), from 1; 0 where a transition has no line.
        actions: the labels.
    """

    ids: NDArray[np.int64]
    value: NDArray[np.float64]
    action: NDArray[np.int64]
    line_number: NDArray[np.int64]
    actions: list[str]


@dataclasses.dataclass(frozen=True)
class ExplicitTransitions:
    """The transitions of a DTMC or an MDP.

    Attributes:
        path: of the file, or the caller's name; it begins messages.
        num_states: of the model.
        is_dtmc: whether it is a Markov chain; its only choice is 0.
        rows: state, choice and successor.
    """

    path: str
    num_states: int
    is_dtmc: bool
    rows: ExplicitRows

    def locate(self, index: int) -> str:
        """Return the path and the line of a transition, if it has one."""
        line = self.rows.line_number[index]
        return f"{self.path}: line {line}" if line else self.path


@dataclasses.dataclass(frozen=True)
class StormModel:
    """A DTMC or an MDP with labels and named reward models, as Storm has them.

    Choices are numbered from 0 in each state, without gaps.

    Attributes:
        transitions: sorted by state and choice.
        labels: the states (S,) that have each label.
        state_rewards: (S,) by reward model.
        choice_rewards: (c,) by reward model, sorted by state and choice.
        transition_rewards: (n,) by reward model; others have none.
        names: of the states, or None.
        is_ctmc: whether the transitions hold rates in place of probabilities.
        label_source: says in errors why there are no labels.
    """

    transitions: ExplicitTransitions
    labels: Mapping[str, NDArray[np.bool_]]
    state_rewards: Mapping[str, NDArray[np.float64]]
    choice_rewards: Mapping[str, NDArray[np.float64]]
    transition_rewards: Mapping[str, NDArray[np.float64]]
    names: Sequence[str] | None
    is_ctmc: bool = False
    label_source: str = "it has none"

    def to_mdp(
        self, observe: str | Sequence[str] | None, reward_model: str | None, discount: float
    ) -> MDP:
        """Build the MDP of a DTMC or an MDP with the selected labels and rewards."""
        path = self.transitions.path
        selected = self._select_rewards(observe, reward_model)
        has_rewards = selected is not None
        observed = select_labels(path, self.labels, observe, has_rewards, self.label_source)
        name = selected or ""
        return build_mdp(
            self.transitions,
            state_rewards=self.state_rewards.get(name) if selected else None,
            choice_rewards=self.choice_rewards.get(name) if selected else None,
            transition_rewards=self.transition_rewards.get(name) if selected else None,
            labels={label: self.labels[label] for label in observed},
            names=self.names,
            discount=discount,
        )

    def _select_rewards(
        self, observe: str | Sequence[str] | None, reward_model: str | None
    ) -> str | None:
        """Return the name of the reward model to read, or None."""
        path = self.transitions.path
        known = list(self.state_rewards)
        if reward_model is None:
            if len(known) > 1 and observe is None:
                raise InputError(
                    f"{path}: there are several reward models ({', '.join(known[:4])}); choose "
                    "with reward_model=..., or labels with observe=..."
                )
            return known[0] if len(known) == 1 else None
        if reward_model == "":
            return None
        if reward_model not in known:
            existing = f"they are {', '.join(known)}" if known else "it has none"
            raise InputError(
                f"{path}: there is no reward model {reward_model!r}"
                f"{suggest_names(reward_model, known) or ';'} {existing}."
            )
        return reward_model


def build_mdp(
    transitions: ExplicitTransitions,
    *,
    state_rewards: NDArray[np.float64] | None,
    transition_rewards: NDArray[np.float64] | None,
    choice_rewards: NDArray[np.float64] | None = None,
    labels: Mapping[str, NDArray[np.bool_]],
    names: Sequence[str] | None,
    discount: float,
) -> MDP:
    """Build the MDP of explicit transitions; every state has at least one.

    Args:
        transitions: of the model.
        state_rewards: (S,), or None.
        transition_rewards: (n,), one per transition, or None.
        choice_rewards: (c,), one per choice, sorted by state and choice, or None.
        labels: the observed labels.
        names: of the states, or None.
        discount: of the MDP.

    Returns:
        The MDP; warns if states lack choice labels of others.
    """
    path, states = transitions.path, transitions.num_states
    pairs, pair_of = _index_choices(transitions)
    action, actions, choice_labels = _assign_actions(transitions, pairs, pair_of)
    require_memory(
        f"{path}: {states:,} states with {len(actions):,} different actions need",
        32.0 * states * len(actions),
        "leave out the labels of choices",
    )
    row = pairs[:, 0] * len(actions) + action
    row_of = row[pair_of]
    probability = _normalise_probabilities(transitions, pairs, pair_of)
    rewards = np.zeros(states * len(actions))
    if transition_rewards is not None:
        rewards += compute_expected_rewards(
            path, row_of, probability, transition_rewards, len(rewards)
        )
    if choice_rewards is not None:
        rewards[row] += choice_rewards
    if state_rewards is not None:
        rewards += np.repeat(state_rewards, len(actions))
    available = np.zeros((states, len(actions)), np.bool_)
    available.ravel()[row] = True
    entries = (probability, (row_of, transitions.rows.ids[:, 2]))
    with name_input_errors(path):
        mdp = MDP(
            sparse.csr_array(sparse.coo_array(entries, (available.size, states))),
            rewards.reshape(available.shape),
            discount,
            names=names,
            actions=actions,
            available=available,
            labels=labels or None,
            choice_labels=choice_labels,
        )
    groups = mdp.choice_groups
    offered = [available[:, groups == group].any(axis=1) for group in range(groups.max() + 1)]
    warn_missing_actions(path, np.stack(offered, axis=1))
    return mdp


def _index_choices(transitions: ExplicitTransitions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted (state, choice) pairs (c, 2) and the pair of each transition (n,)."""
    state, choice, _ = transitions.rows.ids.T
    num_choices = int(choice.max(initial=0)) + 1
    pair, pair_of = np.unique(state * num_choices + choice, return_inverse=True)
    return np.stack(divmod(pair, num_choices), axis=1), pair_of


def _assign_actions(
    transitions: ExplicitTransitions, pairs: NDArray[np.int64], pair_of: NDArray[np.int64]
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
            f"{transitions.locate(index)}: choice {choice} of state {state} "
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
    transitions: ExplicitTransitions, pairs: NDArray[np.int64], pair_of: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the probabilities, normalised per choice if their sum differs from 1 by rounding."""
    rows = transitions.rows
    sums = np.bincount(pair_of, weights=rows.value, minlength=len(pairs))
    off = np.abs(sums - 1)
    if (off > EXPLICIT_PROBABILITY_TOL).any():
        pair = int(np.argmax(off > EXPLICIT_PROBABILITY_TOL))
        state, choice = pairs[pair]
        which = f"state {state}" if transitions.is_dtmc else f"choice {choice} of state {state}"
        raise InputError(
            f"{transitions.locate(int(np.argmax(pair_of == pair)))}: the probabilities "
            f"of {which} sum to {sums[pair]:.9g} and must sum to 1."
        )
    return rows.value / np.where(off > PROBABILITY_TOL, sums, 1.0)[pair_of]


def add_deadlock_loops(transitions: ExplicitTransitions) -> ExplicitTransitions:
    """Add a self-loop without a label to each state without a line."""
    rows = transitions.rows
    has_line = np.zeros(transitions.num_states, np.bool_)
    has_line[rows.ids[:, 0]] = True
    at = np.flatnonzero(~has_line)
    if len(at) == 0:
        return transitions
    loops = np.stack([at, np.zeros_like(at), at], axis=1)
    nothing = np.zeros(len(at), np.int64)
    extended = ExplicitRows(
        np.concatenate([rows.ids, loops]),
        np.concatenate([rows.value, np.ones(len(at))]),
        np.concatenate([rows.action, nothing - 1]),
        np.concatenate([rows.line_number, nothing]),
        rows.actions,
    )
    return dataclasses.replace(transitions, rows=extended)


def split_names(names: str | Sequence[str]) -> list[str]:
    """Return the names in a text such as "goal,fail", or in a list."""
    return [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)


def select_labels(
    path: str,
    labels: Mapping[str, NDArray[np.bool_]],
    observe: str | Sequence[str] | None,
    has_rewards: bool,
    absence: str,
) -> list[str]:
    """Return the labels to observe; `absence` says in errors that the model has none."""
    if observe is None:
        return [] if has_rewards else [name for name in labels if name not in BUILT_IN_LABELS]
    names = split_names(observe)
    for name in names:
        if name not in labels:
            known = f"they are {', '.join(labels)}" if labels else absence
            raise InputError(
                f"{path}: there is no label {name!r}{suggest_names(name, labels) or ';'} {known}."
            )
    return list(dict.fromkeys(names))
