"""`bisimetric rollout`: collect transitions in an environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from bisimetric.cli.options import (
    SeedArg,
    SetArg,
    parse_count,
    parse_options,
    program_name,
    read_policy,
    validate_files,
)
from bisimetric.errors import InputError

_FLAGS = ("steps", "episodes", "seed", "policy", "max_episode_steps")
_RESERVED_OPTIONS = {flag: f"use --{flag.replace('_', '-')} instead" for flag in _FLAGS} | {
    "environment": "name it as the first word",
    "state_of": "that is a function; use it in Python",
}
"""Arguments of datasets.rollout that --set cannot give, and what to do."""


def rollout(
    environment: Annotated[Positional[str], arg(metavar="ENVIRONMENT")],
    output: Annotated[Path, arg(aliases=["-o"], metavar="DATA.npz")],
    steps: Annotated[
        str | None, arg(metavar="N", help_behavior_hint="(default: 10,000, unless --episodes)")
    ] = None,
    episodes: Annotated[
        str | None, arg(metavar="N", help_behavior_hint="(default: no limit)")
    ] = None,
    seed: SeedArg = 0,
    policy: Annotated[
        Path | None, arg(metavar="FILE", help_behavior_hint="(default: uniformly random)")
    ] = None,
    max_episode_steps: Annotated[
        int | None, arg(metavar="N", help_behavior_hint="(default: the environment's own)")
    ] = None,
    options: SetArg = [],  # noqa: B006 - tyro reads the default, nothing changes it
) -> None:
    """Collect transitions in a Gymnasium or MiniGrid environment.

    Args:
        environment: the id of an environment, such as FrozenLake-v1
        output: where the transitions are saved
        steps: the number of steps; 10000, 10_000, 1e4 or 10k
        episodes: the number of episodes, if that is reached first
        seed: seed of environment and policy; the same seed gives the same steps
        policy: a .npy or .txt file with an action, or the probabilities of all actions, per state
        max_episode_steps: truncate episodes after so many steps
        options: options of the environment, and `environment_seed` and `same_start` of
            datasets.rollout

    Examples:
        bisimetric rollout FrozenLake-v1 --set is_slippery=False -o data.npz
        bisimetric rollout CliffWalking-v1 --steps 100k --seed 3 -o data.npz
        bisimetric rollout MiniGrid-Empty-5x5-v0 --set environment_seed=3 --episodes 500 -o data.npz
        bisimetric rollout Taxi-v4 --policy actions.txt --max-episode-steps 50 -o data.npz
    """
    validate_files(output, content="transitions", suffix=".npz")
    given = parse_options(options)
    for name, remedy in _RESERVED_OPTIONS.items():
        if name in given:
            raise InputError(f"--set {name}={given[name]}: {remedy}.")
    limits: dict[str, Any] = {}
    if steps is not None or episodes is None:
        limits["steps"] = parse_count("--steps", "10k" if steps is None else steps, minimum=1)
    if episodes is not None:
        limits["episodes"] = parse_count("--episodes", episodes, minimum=1)
    actions = None if policy is None else read_policy(policy)
    from bisimetric import datasets
    from bisimetric.cli import data_report, report
    from bisimetric.worlds import _load

    if environment in _load.list_names():
        raise InputError(
            f"{environment} is a built-in world, and rollouts need a Gymnasium environment; "
            f"`bisimetric sampled bisimulation {environment}` samples from the world itself."
        )
    data = datasets.rollout(
        environment,
        actions,
        **limits,
        seed=seed,
        max_episode_steps=max_episode_steps,
        **{name: _load.parse_option(text) for name, text in given.items()},
    )
    data.save(output)
    report.emit(
        data_report.describe_rollout(data, output, str(policy or "random")),
        report.describe_saved([output]),
        data_report.suggest_for_rollout(data, output, program_name()),
    )
