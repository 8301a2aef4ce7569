"""`bisimetric rollout`: what happens in an environment, kept in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from bisimetric.cli.options import (
    SetArg,
    parse_count,
    parse_options,
    program_name,
    read_policy,
    validate_outputs,
)
from bisimetric.errors import InputError

_ROLLOUT_FLAGS = ("steps", "episodes", "key", "policy", "max_episode_steps")
_RESERVED_OPTIONS = {flag: f"use --{flag.replace('_', '-')} instead" for flag in _ROLLOUT_FLAGS} | {
    "environment": "name it as the first word",
    "state_of": "that is a function; use it in Python",
}
"""What datasets.rollout takes that is no option, and how it is told."""


def rollout(
    environment: Annotated[Positional[str], arg(metavar="ENVIRONMENT")],
    output: Annotated[Path, arg(aliases=["-o"], metavar="DATA.npz")],
    steps: Annotated[
        str | None, arg(metavar="N", help_behavior_hint="(default: 10,000, unless --episodes)")
    ] = None,
    episodes: Annotated[
        str | None, arg(metavar="N", help_behavior_hint="(default: no limit)")
    ] = None,
    seed: Annotated[int, arg(metavar="K")] = 0,
    policy: Annotated[
        Path | None, arg(metavar="FILE", help_behavior_hint="(default: any action, at random)")
    ] = None,
    max_episode_steps: Annotated[
        int | None, arg(metavar="N", help_behavior_hint="(default: the environment's own)")
    ] = None,
    options: SetArg = [],  # noqa: B006 - tyro reads the default, nothing changes it
) -> None:
    """Collect transitions in a Gymnasium or MiniGrid environment.

    Args:
        environment: the id of an environment, such as FrozenLake-v1
        output: where the transitions go
        steps: how many to take; 10000, 10_000, 1e4 or 10k
        episodes: how many to take, if that is reached first
        key: of the random numbers; the same key gives the same steps
        policy: a .npy or .txt file with an action, or the probabilities of all actions, a state
        max_episode_steps: cut an episode after so many
        options: options of the environment, and `seed` and `same_start` of datasets.rollout

    Examples:
        bisimetric rollout FrozenLake-v1 --set is_slippery=False -o data.npz
        bisimetric rollout CliffWalking-v1 --steps 100k --key 3 -o data.npz
        bisimetric rollout MiniGrid-Empty-5x5-v0 --set seed=3 --episodes 500 -o data.npz
        bisimetric rollout Taxi-v4 --policy actions.txt --max-episode-steps 50 -o data.npz
    """
    validate_outputs(output)
    if output.suffix != ".npz":
        raise InputError(f"cannot save transitions as {output}; the name must end in .npz.")
    given = parse_options(options)
    for name, remedy in _RESERVED_OPTIONS.items():
        if name in given:
            raise InputError(f"--set {name}={given[name]}: {remedy}.")
    limits: dict[str, Any] = {}
    if steps is not None or episodes is None:
        limits["steps"] = parse_count("--steps", "10k" if steps is None else steps, minimum=1)
    if episodes is not None:
        limits["episodes"] = parse_count("--episodes", episodes, minimum=1)
    table = None if policy is None else read_policy(policy)
    from bisimetric import datasets
    from bisimetric.cli import data_report, report
    from bisimetric.worlds import _load

    if environment in _load.list_names():
        raise InputError(
            f"{environment} is a built-in world, and rollouts need an environment of Gymnasium; "
            f"`bisimetric sampled bisimulation {environment}` draws from the world itself."
        )
    data = datasets.rollout(
        environment,
        table,
        **limits,
        seed=seed,
        max_episode_steps=max_episode_steps,
        **{name: _load.parse_option(text) for name, text in given.items()},
    )
    data.save(output)
    report.print_lines(
        data_report.describe_rollout(data, output, str(policy or "random")),
        report.describe_saved([output]),
        data_report.suggest_for_rollout(data, output, program_name()),
    )
