"""MDPs from and to the models of stormpy, and from PRISM programs and JANI models through it.

Only these functions import stormpy, the Python package of the model checker Storm.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.mdp import DEFAULT_DISCOUNT, MDP
from bisimetric.worlds.drn import format_choice_labels, to_drn
from bisimetric.worlds.drn_files import INTERVAL, PARAMETRIC, UNSUPPORTED_TYPES
from bisimetric.worlds.explicit_models import ExplicitRows, ExplicitTransitions, StormModel
from bisimetric.worlds.uniformisation import build_model_mdp

PROGRAM_EXTENSIONS = (".prism", ".nm", ".pm", ".sm", ".ma", ".jani", ".umb")
"""Files in the PRISM language, JANI models, and explicit models in the format UMB."""


def from_stormpy(
    model: Any,
    *,
    observe: str | Sequence[str] | None = None,
    reward_model: str | None = None,
    discount: float = DEFAULT_DISCOUNT,
    uniformisation_rate: float | str | None = None,
) -> MDP:
    """Build the MDP of a sparse DTMC, CTMC or MDP of stormpy.

    Actions, choice labels, labels, names, deadlocks and uniformised CTMCs are those of `from_drn`.
    Exact (rational) values are rounded. Rewards of transitions enter by their expectation.

    Args:
        model: a sparse DTMC, CTMC or MDP, as `stormpy.build_model` returns it.
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
        InputError: the model is of another type, or there is no such label or reward model.
        InsufficientMemory: the model does not fit into memory.

    >>> from_stormpy({})
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: worlds.from_stormpy: the model is of type dict and must be a
    sparse DTMC, CTMC or MDP of stormpy.
    """
    found = _read_model("worlds.from_stormpy", model)
    return build_model_mdp(found, observe, reward_model, discount, uniformisation_rate)


def to_stormpy(mdp: MDP, *, initial: int | str = 0, reward_model: str = "reward") -> Any:
    """Build the sparse DTMC or MDP of stormpy that `to_drn` describes.

    Needs stormpy 2.

    Args:
        mdp: the MDP.
        initial: the state with the label "init", unless `MDP.labels` has this label.
        reward_model: the name of the reward model.

    Returns:
        The model.

    Raises:
        InputError: stormpy is not installed, or the MDP cannot be written as DRN.

    >>> mdp = MDP.deterministic([[1], [1]], [[0], [1]], discount=0.9)
    >>> to_stormpy(mdp).nr_states  # doctest: +SKIP
    2
    """
    stormpy = _import_stormpy("worlds.to_stormpy")
    options = stormpy.io.DirectEncodingParserOptions()
    options.build_choice_labeling = format_choice_labels(mdp) is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.drn")
        to_drn(mdp, path, initial=initial, reward_model=reward_model)
        return stormpy.build_model_from_drn(path, options=options)


def read_program(
    path: str | os.PathLike[str],
    *,
    constants: str | Mapping[str, bool | int | float] | None = None,
    observe: str | Sequence[str] | None = None,
    reward_model: str | None = None,
    discount: float = DEFAULT_DISCOUNT,
    uniformisation_rate: float | str | None = None,
) -> MDP:
    """Build the MDP of a file in the PRISM language, of a JANI or a UMB model, with stormpy 2.

    The model is built with all labels, reward models, choice labels and state valuations, and read
    by `from_stormpy`. UMB is the binary format of explicit models that Storm and PRISM share
    (`storm --prism model.nm --exportbuild model.umb`).

    Args:
        path: of a .prism, .nm, .pm, .sm, .jani or .umb file of a DTMC, a CTMC or an MDP.
        constants: values of undefined constants, as "N=16,MAX=2" or as a mapping.
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
        InputError: stormpy is not installed or cannot build the model, or as in `from_stormpy`.
        InsufficientMemory: the model does not fit into memory.

    >>> read_program("none.prism")
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: none.prism: there is no such file; check the path.
    """
    source = os.fspath(path)
    if not os.path.isfile(source):
        raise InputError(f"{source}: there is no such file; check the path.")
    stormpy = _import_stormpy(source)
    try:
        model = _build_model(stormpy, source, constants)
    except Exception as error:  # Storm raises RuntimeError and its own classes
        reason = " ".join(str(error).split())
        raise InputError(
            f"{source}: stormpy cannot build the model ({reason}); constants=... defines constants."
        ) from None
    found = _read_model(source, model)
    return build_model_mdp(found, observe, reward_model, discount, uniformisation_rate)


def _build_model(
    stormpy: Any, path: str, constants: str | Mapping[str, bool | int | float] | None
) -> Any:
    """Build the sparse model of a file."""
    if path.lower().endswith(".umb"):
        if constants:
            raise ValueError("a UMB file has no constants")
        options = stormpy.io.UmbImportOptions()
        options.build_choice_labeling = options.build_state_valuations = True
        return stormpy.build_model_from_umb(path, options=options)
    if path.lower().endswith(".jani"):
        program, _ = stormpy.parse_jani_model(path)
    else:
        # PRISM's CTMCs have commands without "<>", which Storm reads only on request.
        program = stormpy.parse_prism_program(path, prism_compatibility=True)
    if constants:
        program, _ = stormpy.instantiate_constants(program, constants)
    return stormpy.build_model(program, options=stormpy.BuilderOptions(build_full=True))


def _import_stormpy(caller: str) -> Any:
    try:
        return importlib.import_module("stormpy")
    except ImportError:
        raise InputError(
            f"{caller}: this needs stormpy, which is not installed; pip install 'stormpy>=2', or "
            "export explicit files with PRISM (.tra) or Storm (.drn)."
        ) from None


def _read_model(caller: str, model: Any) -> StormModel:
    """Read the components of a sparse model."""
    kind = _require_type(caller, model)
    matrix = model.transition_matrix
    num_states, is_chain = int(model.nr_states), kind != "mdp"
    has_labels = not is_chain and _get(model, "has_choice_labeling")
    codes: dict[str, int] = {}
    ids: list[tuple[int, int, int]] = []
    values: list[float] = []
    actions: list[int] = []
    choices: list[tuple[int, int]] = []  # the row in Storm's matrix, and the first transition
    for state in range(num_states):
        first, end = matrix.get_row_group_start(state), matrix.get_row_group_end(state)
        number = 0
        for row in range(first, end):
            entries = list(matrix.get_row(row))
            if not entries:
                continue
            names = model.choice_labeling.get_labels_of_choice(row) if has_labels else ()
            # Storm joins several labels of a choice in the same way.
            label = "_".join(sorted(names))
            choices.append((row, len(values)))
            ids.extend((state, number, entry.column) for entry in entries)
            values.extend(float(entry.value) for entry in entries)
            actions += [codes.setdefault(label, len(codes)) if label else -1] * len(entries)
            number += 1
        if number == 0:  # a deadlock
            choices.append((first if first < end else -1, len(values)))
            ids.append((state, 0, state))
            values.append(1.0)
            actions.append(-1)
    rows = ExplicitRows(
        np.array(ids, np.int64).reshape(-1, 3),
        np.array(values, np.float64),
        np.array(actions, np.int64),
        np.zeros(len(values), np.int64),
        list(codes),
    )
    labels = {}
    for name in sorted(model.labeling.get_labels()):
        labels[name] = np.zeros(num_states, np.bool_)
        labels[name][list(model.labeling.get_states(name))] = True
    rewards = {name or "rew0": each for name, each in dict(model.reward_models).items()}
    valuations = model.state_valuations if _get(model, "has_state_valuations") else None
    return StormModel(
        ExplicitTransitions(caller, num_states, is_chain, rows),
        labels,
        {name: _read_state_rewards(each, num_states) for name, each in rewards.items()},
        {name: _read_choice_rewards(each, choices) for name, each in rewards.items()},
        {
            name: _read_transition_rewards(each, choices, rows.ids[:, 2])
            for name, each in rewards.items()
            if _get(each, "has_transition_rewards")
        },
        None
        if valuations is None
        else [valuations.to_string(state).replace("\t&", " &") for state in range(num_states)],
        is_ctmc=kind == "ctmc",
    )


def _require_type(caller: str, model: Any) -> str:
    """Return "dtmc", "ctmc" or "mdp", or raise InputError."""
    kind = getattr(getattr(model, "model_type", None), "name", "").lower()
    if kind in UNSUPPORTED_TYPES:
        raise InputError(f"{caller}: {UNSUPPORTED_TYPES[kind]}.")
    if kind not in ("dtmc", "ctmc", "mdp") or not _get(model, "is_sparse_model"):
        raise InputError(
            f"{caller}: the model is of type {type(model).__name__} and must be a sparse DTMC, "
            "CTMC or MDP of stormpy."
        )
    if _get(model, "has_parameters"):
        raise InputError(f"{caller}: {PARAMETRIC}.")
    if _get(model, "supports_uncertainty"):
        raise InputError(f"{caller}: {INTERVAL}.")
    return kind


def _get(model: Any, name: str) -> bool:
    """Return a flag that some versions have as an attribute and others as a method."""
    value = getattr(model, name, False)
    return bool(value() if callable(value) else value)


def _read_state_rewards(rewards: Any, num_states: int) -> NDArray[np.float64]:
    if not _get(rewards, "has_state_rewards"):
        return np.zeros(num_states)
    return np.array([float(each) for each in rewards.state_rewards])


def _read_choice_rewards(rewards: Any, choices: list[tuple[int, int]]) -> NDArray[np.float64]:
    if not _get(rewards, "has_state_action_rewards"):
        return np.zeros(len(choices))
    found = rewards.state_action_rewards
    return np.array([float(found[row]) if row >= 0 else 0.0 for row, _ in choices])


def _read_transition_rewards(
    rewards: Any, choices: list[tuple[int, int]], successors: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the reward of each transition."""
    found = np.zeros(len(successors))
    ends = [first for _, first in choices[1:]] + [len(found)]
    for (row, first), end in zip(choices, ends, strict=True):
        entries = rewards.transition_rewards.get_row(row) if row >= 0 else ()
        by_successor = {entry.column: float(entry.value) for entry in entries}
        found[first:end] = [by_successor.get(each, 0.0) for each in successors[first:end].tolist()]
    return found
