"""The policies that `--policy` names: the world's own, an optimal one, or one in a file."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bisimetric.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.mdp import MDP


def resolve_policy(mdp: MDP, choice: str | None) -> tuple[NDArray[Any], str]:
    """The policy that `--policy` means, and how to call it."""
    if choice is None:
        choice = "optimal" if mdp.policy is None else "own"
    if choice == "own":
        if mdp.policy is None:
            raise InputError(
                "--policy own: this world comes with no policy; use `--policy optimal` or a file."
            )
        return mdp.policy, "the world's own"
    if choice == "optimal":
        from bisimetric import planning

        return planning.greedy_policy(mdp), "optimal"
    return append_terminal_action(mdp, read_policy(Path(choice), "'own', 'optimal', or ")), choice


def resolve_data_policy(choice: str | None) -> tuple[NDArray[Any] | None, str]:
    """The policy that `--policy` picks the steps of data by, and how to call it."""
    if choice is None:
        return None, "that of the data"
    if choice in ("own", "optimal"):
        raise InputError(
            f"--policy {choice}: data has no such policy; give a .npy or .txt file with one action "
            "a state, or leave it out where one policy made the data."
        )
    return read_policy(Path(choice)), choice


def append_terminal_action(mdp: MDP, policy: NDArray[Any]) -> NDArray[Any]:
    """Actions of all states but the end of episodes with one for the end, where it has any."""
    import numpy as np

    ends = mdp.names is not None and mdp.names[-1] == "end"
    if not (ends and policy.shape == (mdp.num_states - 1,)):
        return policy
    return np.append(policy, mdp.action_mask[-1].argmax())


def read_policy(path: Path, alternatives: str = "") -> NDArray[Any]:
    """The numbers of a policy file, whole ones as such; `others` may be given in its place."""
    import numpy as np

    from bisimetric.archives import read_npy

    if not path.is_file():
        raise InputError(
            f"--policy {path}: there is no such file; use {alternatives}a .npy or .txt file with one "
            "action a state."
        )
    try:
        if path.suffix == ".npy":
            return _to_integers(read_npy(path))
        with warnings.catch_warnings():
            # An empty file is an array of no actions: the check of policies says it better.
            warnings.simplefilter("ignore", UserWarning)
            return _to_integers(np.loadtxt(path, ndmin=1))
    except (ValueError, EOFError) as error:
        error = ValueError(" ".join(str(error).split()))
        raise InputError(
            f"--policy {path} cannot be read as numbers, one action a state ({error})."
        ) from None


def _to_integers(values: NDArray[Any]) -> NDArray[Any]:
    """Floats that are all whole as integers, others as they are."""
    import numpy as np

    if values.dtype.kind == "f" and (np.abs(values.astype(np.float64)) < 2**31).all():
        return values.astype(np.int64) if (values % 1 == 0).all() else values
    return values
