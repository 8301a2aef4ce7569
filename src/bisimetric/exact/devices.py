"""Where a table is computed: on the processor, or on a GPU."""

from __future__ import annotations

from typing import Any, Literal

from bisimetric.errors import InputError
from bisimetric.exact.classes import DeterministicSolver
from bisimetric.exact.table import Request
from bisimetric.mdp import MDP


def validate_device(kind: str, device: str | None, **options: Any) -> None:
    """Refuses a device that is none, or that does not do what else is asked for."""
    if device not in (None, "cpu", "gpu"):
        raise InputError(f"exact.{kind}: device is {device!r} and must be 'cpu' or 'gpu'.")
    asked = [name for name, value in options.items() if value is not None]
    if device == "gpu" and asked:
        raise InputError(
            f"exact.{kind}: device='gpu' is for whole tables; leave {asked[0]} out, or the device."
        )


def select_solver(
    device: str | None,
    request: Request,
    dynamics: MDP,
    cpu_solver: DeterministicSolver,
    gpu_method: Literal["rising", "levels"],
) -> DeterministicSolver:
    """The solver `here`, of the processor, or that of `exact.gpu` with the name `there`."""
    if device != "gpu":
        return cpu_solver
    if not dynamics.is_deterministic:
        raise InputError(
            f"exact.{request.kind}: states of this MDP branch, and device='gpu' is for "
            "deterministic MDPs; leave device out."
        )
    from bisimetric.exact.gpu import cuda, levels, rising

    cuda.find_device()
    # What it takes is of the GPU; here is only the table that comes back.
    return DeterministicSolver(
        {"rising": rising, "levels": levels}[gpu_method].solve, 1, 0.0, needs_warm_up=False
    )
