"""Parallel composition of two MDPs."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from scipy import sparse

from bisimetric._memory import require_memory
from bisimetric.errors import InputError
from bisimetric.mdp import MDP, reject_labels, reject_observations
from bisimetric.mdp._validation import require_mdp

CompositionMode = Literal["synchronous", "product", "interleaved"]

CALLER = "worlds.compose"


def compose(first: MDP, second: MDP, *, mode: CompositionMode = "synchronous") -> MDP:
    """Compose two MDPs in parallel; their states are pairs, and their rewards are added.

    - "synchronous": both take the same action, R((s, t), a) = R1(s, a) + R2(t, a), and
      P((s, t), a) = P1(s, a) x P2(t, a).
    - "product": each takes its own action, R((s, t), (a, b)) = R1(s, a) + R2(t, b).
    - "interleaved": one of them takes an action and is paid, and the other one stays.

    Composition is non-expansive for d~: d((s, t), (s', t')) <= d1(s, s') + d2(t, t'), see
    `exact.composition_bounds`. Bacci, Bacci, Larsen & Mardare (2013), Computing behavioral
    distances, compositionally, MFCS, call such operators safe.

    Args:
        first: an MDP in which every state has every action, without labels and observations.
        second: another one, of the same discount; for "synchronous" with as many actions.
        mode: the operator.

    Returns:
        The MDP on pairs; (s, t) has the id s * S2 + t and the name `s|t`.

    Raises:
        InputError: the MDPs do not fit together, or have labels, observations or missing actions.
        InsufficientMemory: the composition does not fit into memory.

    >>> coin = MDP([[[0.5, 0.5]], [[0, 1]]], [[1], [0]], discount=0.9, names=["on", "off"])
    >>> both = compose(coin, coin)
    >>> both
    MDP(4 states, 1 action, 9 transitions, discount 0.9)
    >>> both.names[1], both.R[:, 0].tolist()
    ('on|off', [2.0, 1.0, 1.0, 0.0])
    """
    for mdp in (first, second):
        require_mdp(CALLER, mdp)
        reject_labels(CALLER, mdp)
        reject_observations(CALLER, mdp)
        if not mdp.action_mask.all():
            raise InputError(f"{CALLER}: every state must have every action; some lack actions.")
    if mode not in get_args(CompositionMode):
        raise InputError(
            f"is {mode!r} and must be one of {get_args(CompositionMode)}", caller=CALLER,
            argument="mode",
        )  # fmt: skip
    if first.discount != second.discount:
        raise InputError(
            f"{CALLER}: the discounts are {first.discount:g} and {second.discount:g} and must be "
            "equal."
        )
    if mode == "synchronous" and first.num_actions != second.num_actions:
        raise InputError(
            f"{CALLER}: the MDPs have {first.num_actions} and {second.num_actions} actions, and "
            "synchronous composition needs as many in both; use mode='product'."
        )
    num_states = first.num_states * second.num_states
    num_entries = _count_entries(first, second, mode)
    require_memory(
        f"{CALLER}: {num_states:,} states and {num_entries:,} transitions need",
        24.0 * (num_entries + num_states * (first.num_actions + second.num_actions)),
        "compose smaller MDPs, such as quotients of relation.bisimulation",
    )
    matrices, rewards, actions = _compose_actions(first, second, mode)
    return MDP(
        matrices,
        np.stack(rewards, axis=1),
        first.discount,
        names=tuple(
            f"{first.state_name(s)}|{second.state_name(t)}"
            for s in range(first.num_states)
            for t in range(second.num_states)
        ),
        actions=actions,
        is_empirical=first.is_empirical or second.is_empirical,
    )


def _compose_actions(
    first: MDP, second: MDP, mode: str
) -> tuple[list[Any], list[Any], tuple[str, ...] | None]:
    """Return a transition matrix (S, S) and the rewards (S,) of each action, and their names."""
    first_ones, second_ones = np.ones(first.num_states), np.ones(second.num_states)
    if mode == "interleaved":
        stay = [sparse.eye_array(mdp.num_states) for mdp in (first, second)]
        matrices = [sparse.kron(_select(first, a), stay[1]) for a in range(first.num_actions)]
        matrices += [sparse.kron(stay[0], _select(second, b)) for b in range(second.num_actions)]
        rewards = [np.kron(first.R[:, a], second_ones) for a in range(first.num_actions)]
        rewards += [np.kron(first_ones, second.R[:, b]) for b in range(second.num_actions)]
        names = [f"first {first.action_name(a)}" for a in range(first.num_actions)]
        names += [f"second {second.action_name(b)}" for b in range(second.num_actions)]
        return matrices, rewards, tuple(names)
    if mode == "synchronous":
        moves = [(a, a) for a in range(first.num_actions)]
        action_names = first.actions
    else:
        moves = [(a, b) for a in range(first.num_actions) for b in range(second.num_actions)]
        action_names = tuple(f"{first.action_name(a)}|{second.action_name(b)}" for a, b in moves)
    matrices = [sparse.kron(_select(first, a), _select(second, b)) for a, b in moves]
    rewards = [
        np.kron(first.R[:, a], second_ones) + np.kron(first_ones, second.R[:, b]) for a, b in moves
    ]
    return matrices, rewards, action_names


def _select(mdp: MDP, action: int) -> Any:
    """Return P (S, S) of one action."""
    rows = np.arange(mdp.num_states) * mdp.num_actions + action
    return mdp.normalised_probabilities[rows]


def _count_entries(first: MDP, second: MDP, mode: str) -> int:
    if mode == "interleaved":
        return first.P.nnz * second.num_states + second.P.nnz * first.num_states
    product = first.P.nnz * second.P.nnz
    return product if mode == "product" else product // first.num_actions
