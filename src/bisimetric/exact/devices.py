"""Where a table is computed: on the processor, or on a GPU."""

from __future__ import annotations

from typing import Any, Literal

from bisimetric.errors import InputError
from bisimetric.exact.classes import Solver
from bisimetric.exact.table import Request
from bisimetric.mdp import MDP


def check_device(kind: str, device: str | None, **others: Any) -> None:
    """Refuses a device that is none, or that does not do what else is asked for."""
    if device not in (None, "cpu", "gpu"):
        raise InputError(f"exact.{kind}: device is {device!r} and must be 'cpu' or 'gpu'.")
    asked = [name for name, value in others.items() if value is not None]
    if device == "gpu" and asked:
        raise InputError(
            f"exact.{kind}: device='gpu' is for whole tables; leave {asked[0]} out, or the device."
        )


def solver_on(
    device: str | None,
    request: Request,
    dynamics: MDP,
    here: Solver,
    there: Literal["rising", "levels"],
) -> Solver:
    """The solver `here`, of the processor, or that of `exact.gpu` with the name `there`."""
    if device != "gpu":
        return here
    if not dynamics.is_deterministic:
        raise InputError(
            f"exact.{request.kind}: states of this MDP branch, and device='gpu' is for "
            "deterministic MDPs; leave device out."
        )
    from bisimetric.exact.gpu import cuda, levels, rising

    cuda.found()
    # What it takes is of the GPU; here is only the table that comes back.
    return Solver({"rising": rising, "levels": levels}[there].solve, 1, 0.0, toy=False)
