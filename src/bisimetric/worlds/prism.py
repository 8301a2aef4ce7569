"""MDPs from PRISM's explicit files."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bisimetric._memory import require_memory
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.worlds.explicit_models import (
    ExplicitTransitions,
    StormModel,
    add_deadlock_loops,
)
from bisimetric.worlds.prism_files import read_labels, read_rewards, read_states, read_transitions
from bisimetric.worlds.uniformisation import build_model_mdp

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
    model_type: str | None = None,
    uniformisation_rate: float | str | None = None,
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

    Probabilities that sum to 1 within 1e-5, as PRISM allows, are normalised. The files of a CTMC
    do not say that they hold rates: pass `model_type="ctmc"`; it is uniformised as in `from_drn`.

    Args:
        tra: path of the transitions of an MDP, or of a DTMC or CTMC (one action, "step"). The other
            files are found beside it by their extensions, unless given.
        sta: path of the states, which names them.
        lab: path of the labels.
        srew: path of the state rewards.
        trew: path of the transition rewards.
        observe: labels to observe, as a list or as "goal,fail". None observes no label, or, without
            rewards, all but "init" and "deadlock". "exit_rate" observes the exit rates of a CTMC.
        discount: of the MDP.
        model_type: "ctmc" where the numbers of the transitions are rates; None: the first line
            says whether it is an MDP or a DTMC.
        uniformisation_rate: of a CTMC, at least its largest exit rate, the default. To compare
            CTMCs, read them with the same one.

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
    if model_type not in (None, "ctmc"):
        raise InputError(f"{path}: model_type is {model_type!r} and must be 'ctmc' or left out.")
    paths = {"sta": sta, "lab": lab, "srew": srew, "trew": trew}
    files = {kind: _find_file(path, kind, each) for kind, each in paths.items()}
    has_rewards = bool(files["srew"] or files["trew"])
    if observe is None and not has_rewards:
        _reject_ambiguous_rewards(path)
    transitions = read_transitions(path, is_ctmc=model_type == "ctmc")
    states = transitions.num_states
    num_choices = 1 + int(transitions.rows.ids[:, 1].max(initial=0))
    require_memory(
        f"{path}: the first line says {states:,} states, which need",
        64.0 * states * num_choices,
        f"is it right? the file has {len(transitions.rows.value):,} transitions",
    )
    transitions = add_deadlock_loops(transitions)
    labels = read_labels(files["lab"], transitions) if files["lab"] else {}
    state_rewards, transition_rewards = np.zeros(states), np.zeros(len(transitions.rows.value))
    if files["srew"]:
        by_state = read_rewards(files["srew"], transitions, by_state=True)
        state_rewards += np.bincount(by_state.ids[:, 0], weights=by_state.value, minlength=states)
    if files["trew"]:
        transition_rewards += _read_transition_rewards(files["trew"], transitions)
    no_rewards: dict[str, NDArray[np.float64]] = {}
    model = StormModel(
        transitions,
        labels,
        {"reward": state_rewards} if has_rewards else no_rewards,
        no_rewards,
        {"reward": transition_rewards} if has_rewards else no_rewards,
        tuple(read_states(files["sta"], transitions)) if files["sta"] else None,
        is_ctmc=model_type == "ctmc",
        label_source="there is no .lab file beside it",
    )
    return build_model_mdp(model, observe, None, discount, uniformisation_rate)


def _find_file(path: str, kind: str, explicit_path: OptionalPath) -> str | None:
    """Return the given path of a kind of file, or the one beside the transitions, if any."""
    if explicit_path is not None:
        return os.fspath(explicit_path)
    stem = os.path.splitext(path)[0]
    return next(filter(os.path.isfile, (stem + each for each in EXTENSIONS[kind])), None)


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


def _read_transition_rewards(path: str, transitions: ExplicitTransitions) -> NDArray[np.float64]:
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
