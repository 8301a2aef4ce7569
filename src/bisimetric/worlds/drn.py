"""MDPs from and to Storm's explicit format DRN."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bisimetric._io import write_atomically
from bisimetric.errors import InputError
from bisimetric.mdp import DEFAULT_DISCOUNT, MDP, reject_observations
from bisimetric.mdp._validation import require_mdp
from bisimetric.worlds.drn_files import NO_LABEL, read_drn
from bisimetric.worlds.explicit_models import UNLABELLED
from bisimetric.worlds.uniformisation import build_model_mdp

DTMC_ACTION = "step"
"""The action of a Markov chain."""

PLAIN_LABEL_PATTERN = re.compile(r'[^\s"\[{!]\S*')


def from_drn(
    path: str | os.PathLike[str],
    *,
    observe: str | Sequence[str] | None = None,
    reward_model: str | None = None,
    discount: float = DEFAULT_DISCOUNT,
    uniformisation_rate: float | str | None = None,
) -> MDP:
    """Build the MDP in a DRN file of Storm (`storm --prism model.nm --exportbuild model.drn`).

    R(s, a) is the state reward plus the choice reward of one reward model. Actions are the labels
    of choices, which form sets as in `from_prism`: the second choice of a state with the label "a"
    is "a#2". If the choices of every state are numbered from 0, as Storm writes them where a model
    has no choice labels, they are a set without labels. A state without transitions (a deadlock)
    gets a self-loop without a label. Valuations of states, which Storm writes as comments, become
    their names. Probabilities that sum to 1 within 1e-5 are normalised.

    A CTMC is uniformised: P(s, t) = rate(s, t) / q, and a self-loop has the rest. R is the state
    reward divided by q plus the choice reward times E(s) / q, where E(s) is the exit rate, so that
    `discount` times V is the value at the continuous discount rate q (1 - discount) / discount.
    Bisimilar states have equal rates into all other classes. Storm also compares the rates within
    a class: `observe` "exit_rate" too gives Storm's classes.

    Args:
        path: of the file, a DTMC or a CTMC (one action, "step") or an MDP.
        observe: labels to read into `MDP.labels`, as a list or as "goal,fail". None observes no
            label, or, without rewards, all but "init" and "deadlock". "exit_rate" observes the exit
            rates of a CTMC.
        reward_model: the name of the reward model; "" reads none. None reads the only one; if
            there are several, it raises, unless `observe` is given: then it reads none.
        discount: of the MDP.
        uniformisation_rate: of a CTMC, at least its largest exit rate, the default. To compare
            CTMCs, read them with the same one.

    Returns:
        The MDP.

    Raises:
        InputError: the file is missing, malformed, or of a Markov automaton, a POMDP, a game or a
            parametric model; or there is no such label or reward model.
        InsufficientMemory: the model does not fit into memory.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "chain.drn")
    ...     _ = path.write_text(
    ...         "@type: DTMC\\n@parameters\\n\\n@reward_models\\n\\n@nr_states\\n2\\n@model\\n"
    ...         "state 0 init\\n\\taction 0\\n\\t\\t0 : 0.5\\n\\t\\t1 : 0.5\\n"
    ...         "state 1 goal\\n\\taction 0\\n\\t\\t1 : 1\\n"
    ...     )
    ...     from_drn(path)
    MDP(2 states, 1 action, 3 transitions, discount 0.99, 1 label)
    """
    model = read_drn(os.fspath(path))
    return build_model_mdp(model, observe, reward_model, discount, uniformisation_rate)


def to_drn(
    mdp: MDP,
    path: str | os.PathLike[str],
    *,
    initial: int | str = 0,
    reward_model: str = "reward",
) -> None:
    """Write an MDP, such as a quotient of `relation`, as a DRN file for Storm.

    Numbers are written so that `from_drn` reads the same ones. Choices are labelled by
    `MDP.choice_labels`, or by the names of the actions; missing actions are left out. Rewards are
    those of choices; without any, no reward model is written. An MDP with one action, without a
    name or called "step", becomes a DTMC. The discount, positions, features and policy are not
    part of the format.

    Storm's total rewards are undiscounted, and `from_drn` orders actions by their first use.

    Args:
        mdp: the MDP.
        path: of the file, which is written atomically.
        initial: the state with the label "init", unless `MDP.labels` has this label.
        reward_model: the name of the reward model.

    Raises:
        InputError: a label, a name, the initial state or observations cannot be written.
        OSError: the file cannot be written.

    >>> import tempfile
    >>> from pathlib import Path
    >>> mdp = MDP.deterministic([[1], [1]], [[0.1], [0]], discount=0.9, labels=[(), "goal"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "chain.drn")
    ...     to_drn(mdp, path)
    ...     print(path.read_text().partition("@model\\n")[2].expandtabs(2), end="")
    state 0 [0] init
      action 0 [0.1]
        1 : 1
    state 1 [0] goal
      action 0 [0]
        1 : 1
    """
    require_mdp("worlds.to_drn", mdp)
    reject_observations("worlds.to_drn", mdp)
    if re.fullmatch(r"[^\s,\[\]]+", reward_model) is None:
        raise InputError(
            f"is {reward_model!r} and must be a name without spaces, commas and brackets",
            caller="worlds.to_drn",
            argument="reward_model",
        )
    lines = _format_lines(mdp, reward_model, mdp.state(initial))
    with write_atomically(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def is_chain(mdp: MDP) -> bool:
    """Whether an MDP is written as a DTMC: one action without a name or called "step"."""
    return mdp.num_actions == 1 and mdp.actions in (None, (DTMC_ACTION,))


def format_choice_labels(mdp: MDP) -> list[str] | None:
    """Return the label of each action as DRN has it, or None if choices have none."""
    if is_chain(mdp) or (mdp.choice_labels is not None and set(mdp.choice_labels) == {UNLABELLED}):
        return None
    if mdp.choice_labels is not None:
        labels = [NO_LABEL if each == UNLABELLED else each for each in mdp.choice_labels]
    else:
        labels = [mdp.action_name(action) for action in range(mdp.num_actions)]
        if all(label.isdecimal() for label in labels):
            # Numbers would stand for choices without labels.
            labels = [f"a{label}" for label in labels]
    written = ["_".join(label.split()) for label in labels]
    if "" in written or len(set(written)) < len(set(labels)):
        raise InputError(
            f"worlds.to_drn: the labels of choices {sorted(set(labels))[:8]} cannot be written "
            "without spaces; rename them with mdp.replace(actions=...)."
        )
    return written


def _format_lines(mdp: MDP, reward_model: str, initial: int) -> Iterator[str]:
    """Yield the lines of a DRN file."""
    labels = {} if mdp.labels is None else dict(mdp.labels)
    if "init" not in labels:
        labels["init"] = np.arange(mdp.num_states) == initial
    suffixes = _format_state_labels(labels, mdp.num_states)
    choice_labels = format_choice_labels(mdp)
    has_rewards = bool(mdp.R.any())
    names = mdp.names
    if names is not None and not all(name == " ".join(name.split()) for name in names):
        names = None
    yield "// Exported by bisimetric"
    yield f"@type: {'DTMC' if is_chain(mdp) else 'MDP'}"
    yield from ("@parameters", "", "@reward_models")
    yield reward_model if has_rewards else ""
    yield from ("@nr_states", str(mdp.num_states), "@nr_choices", str(int(mdp.action_mask.sum())))
    yield "@model"
    mask, indptr = mdp.action_mask, mdp.P.indptr
    for state in range(mdp.num_states):
        yield f"state {state}{' [0]' if has_rewards else ''}{suffixes[state]}"
        if names is not None:
            yield f"//{names[state]}"
        for number, action in enumerate(np.flatnonzero(mask[state]).tolist()):
            label = str(number) if choice_labels is None else choice_labels[action]
            reward = f" [{_format(mdp.R[state, action])}]" if has_rewards else ""
            yield f"\taction {label}{reward}"
            row = state * mdp.num_actions + action
            part = slice(indptr[row], indptr[row + 1])
            for successor, probability in zip(mdp.P.indices[part], mdp.P.data[part], strict=True):
                yield f"\t\t{successor} : {_format(probability)}"


def _format_state_labels(labels: dict[str, NDArray[np.bool_]], num_states: int) -> list[str]:
    """Return the labels of each state, each after a space; some are put in quotation marks."""
    suffixes = [""] * num_states
    for label, mask in labels.items():
        if not label or '"' in label or len(label.splitlines()) > 1 or label != label.strip():
            raise InputError(
                f"worlds.to_drn: the label {label!r} cannot be written; labels are not empty, on "
                "one line, and without quotation marks or spaces at their ends."
            )
        text = label if PLAIN_LABEL_PATTERN.fullmatch(label) else f'"{label}"'
        for state in np.flatnonzero(mask).tolist():
            suffixes[state] += f" {text}"
    return suffixes


def _format(value: float) -> str:
    """Return the shortest text that is read as the same number."""
    return repr(float(value)).removesuffix(".0")
