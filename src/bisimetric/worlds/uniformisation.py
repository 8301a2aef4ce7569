"""CTMCs as discrete-time chains: uniformisation, and exit rates as labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bisimetric._memory import require_memory
from bisimetric._rounding import UNIT
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.worlds.explicit_models import ExplicitRows, StormModel, split_names

EXIT_RATE = "exit_rate"
"""In `observe`: the exit rate of each state, as a label."""
EXIT_RATE_TOL = 1e-12
"""Exit rates whose relative difference is at most this have the same label."""


def build_model_mdp(
    model: StormModel,
    observe: str | Sequence[str] | None,
    reward_model: str | None,
    discount: float,
    rate: float | str | None,
) -> MDP:
    """Build the MDP of a DTMC, an MDP, or the uniformised chain of a CTMC.

    Args:
        model: the model.
        observe: labels, and "exit_rate" of a CTMC; None as in `select_labels`.
        reward_model: its name, or None for the only one.
        discount: of the MDP.
        rate: the uniformisation rate of a CTMC, or None: the largest exit rate.

    Returns:
        The MDP.
    """
    if not model.is_ctmc:
        if rate is not None:
            raise InputError(
                f"{model.transitions.path}: uniformisation_rate is for CTMCs, and this is none; "
                "leave it out."
            )
        return model.to_mdp(observe, reward_model, discount)
    chain = uniformise(model, rate)
    names = observe
    if observe is not None:
        names = split_names(observe)
        if EXIT_RATE in names and EXIT_RATE not in model.labels:
            rates = label_exit_rates(model)
            chain = dataclasses.replace(chain, labels={**model.labels, **rates})
            names = [*(name for name in names if name != EXIT_RATE), *rates]
    return chain.to_mdp(names, reward_model, discount)


def uniformise(model: StormModel, rate: float | str | None) -> StormModel:
    """Return the uniformised chain of a CTMC, a DTMC with the same states and labels.

        P(s, t) = rate(s, t) / q  for t != s,    P(s, s) = 1 - (E(s) - rate(s, s)) / q

    where E(s) is the exit rate, the sum of the rates of s, and q >= max E the uniformisation rate.
    A step takes a time of mean 1 / q in every state. Rewards are those of a step: state rewards
    accumulate over time, so that they are divided by q, and rewards of choices are paid by a jump,
    so that they are multiplied by E(s) / q.

    Args:
        model: of a CTMC.
        rate: q, or None: the largest exit rate.

    Returns:
        The chain.
    """
    transitions, rows = model.transitions, model.transitions.rows
    path, num_states = transitions.path, transitions.num_states
    source = rows.ids[:, 0]
    exit_rates = np.bincount(source, weights=rows.value, minlength=num_states)
    q = _validate_rate(path, rate, float(exit_rates.max()))
    stay = 1 - exit_rates / q
    # Rounding of a sum of k rates is no self-loop.
    rounding = 2 * UNIT * (2 + np.bincount(source, minlength=num_states))
    loops = np.flatnonzero(stay > rounding)
    nothing = np.zeros(len(loops), np.int64)
    extended = ExplicitRows(
        np.concatenate([rows.ids, np.stack([loops, nothing, loops], axis=1)]),
        np.concatenate([rows.value / q, stay[loops]]),
        np.concatenate([rows.action, nothing - 1]),
        np.concatenate([rows.line_number, nothing]),
        rows.actions,
    )
    no_rewards = np.zeros(len(loops))
    return dataclasses.replace(
        model,
        transitions=dataclasses.replace(transitions, rows=extended),
        state_rewards={name: each / q for name, each in model.state_rewards.items()},
        choice_rewards={
            name: each * (exit_rates / q) for name, each in model.choice_rewards.items()
        },
        transition_rewards={
            name: np.concatenate([each, no_rewards])
            for name, each in model.transition_rewards.items()
        },
        is_ctmc=False,
    )


def label_exit_rates(model: StormModel) -> Mapping[str, NDArray[np.bool_]]:
    """Return one label per exit rate of a CTMC, with the states (S,) that have it."""
    transitions, num_states = model.transitions, model.transitions.num_states
    rows = transitions.rows
    exit_rates = np.bincount(rows.ids[:, 0], weights=rows.value, minlength=num_states)
    distinct, back = np.unique(exit_rates, return_inverse=True)
    runs = np.cumsum(np.diff(distinct, prepend=distinct[0]) > EXIT_RATE_TOL * distinct)
    num_runs = int(runs[-1]) + 1
    require_memory(
        f"{transitions.path}: {num_runs:,} different exit rates as labels need",
        float(num_runs) * num_states,
        "leave exit_rate out of observe",
    )
    first = np.searchsorted(runs, np.arange(num_runs))
    found = runs[back]
    return {f"{EXIT_RATE} {distinct[first[run]]:.17g}": found == run for run in range(num_runs)}


def _validate_rate(path: str, rate: float | str | None, largest: float) -> float:
    if not np.isfinite(largest):
        raise InputError(f"{path}: the rates of a state sum to {largest:g}; scale the rates down.")
    if rate is None:
        return largest if largest > 0 else 1.0
    try:
        found = float(rate)
    except (TypeError, ValueError):
        found = np.nan
    if not (np.isfinite(found) and found >= largest and found > 0):
        raise InputError(
            f"{path}: uniformisation_rate is {rate} and must be a number that is at least the "
            f"largest exit rate, {largest:g}."
        )
    return found
