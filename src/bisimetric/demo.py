"""The demo: compute three distances on the paper's 31-state grid, check their bounds, save them."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bisimetric import exact, planning, views, worlds
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.planning import ValueFunction

__all__ = ["run"]

INTRODUCTION = """\
Two rooms and a hallway: 31 cells, four moves, discount 0.9; a goal pays 1, a wall -1.
How similar are two cells? d~ compares them action by action, d_lax matches each action with the
closest action of the other cell, d^pi follows one policy. Each bounds a difference of values.
Computing (the first run compiles for some seconds) ...
"""
WORLD = "mirrored-rooms-policy"
HALLWAY = "4,3"
PAIRS = (
    ("1,5", "5,5", "the two goals"),
    ("1,1", "5,1", "the same corner of both rooms"),
    ("2,2", "2,3", "neighbours in one room"),
    (HALLWAY, "3,3", "the hallway and the cell above"),
    (HALLWAY, "1,5", "the hallway and a goal"),
)


@dataclasses.dataclass(frozen=True)
class DemoResults:
    """The optimal and the policy's value function of the 31 states, and the three distances."""

    mdp: MDP
    V: ValueFunction
    V_pi: ValueFunction
    lax: Distance
    bisimulation: Distance
    on_policy: Distance


@dataclasses.dataclass(frozen=True, eq=False)
class BoundCheck:
    """The claim smaller(s, t) <= larger(s, t) for all pairs, both (S, S).

    `slack` is the sum of their proven errors; an excess beyond it disproves the claim.
    """

    claim: str
    smaller: NDArray[np.floating]
    larger: NDArray[np.floating]
    slack: float

    def find_violations(self) -> NDArray[np.intp]:
        """Return the pairs (n, 2) that disprove the claim.

        >>> one = np.ones((1, 1))
        >>> BoundCheck("1 <= 2", one, 2 * one, 0.0).find_violations().tolist()
        []
        >>> BoundCheck("2 <= 1", 2 * one, one, 0.5).find_violations().tolist()
        [[0, 0]]
        """
        rounding = 4 * np.spacing(np.abs(self.larger).max())
        return np.argwhere(self.smaller - self.larger > self.slack + rounding)


def run(output: Path, *, program: str = "bisimetric") -> int:
    """Run the demo and save its results.

    Args:
        output: the folder for the results.
        program: the name of the command in the suggestions at the end.

    Returns:
        0, or 1 if a bound is violated.
    """
    if output.exists() and not output.is_dir():
        raise NotADirectoryError(f"cannot save into {output}: it is a file; name a folder.")
    output.mkdir(parents=True, exist_ok=True)
    print(INTRODUCTION, flush=True)
    results = compute_results()
    all_hold = True
    for bound in build_bound_checks(results):
        violations = bound.find_violations()
        all_hold = all_hold and not len(violations)
        print(_format_verdict(bound, violations, results.mdp))
    print("", *_format_table(results), "", sep="\n")
    print(views.format_terminal_map(results.lax, HALLWAY))
    print("", *_save_results(results, output), sep="\n")
    print("", *_suggest_commands(output, program), sep="\n")
    return 0 if all_hold else 1


def compute_results() -> DemoResults:
    """Compute the value functions and the three distances."""
    mdp = worlds.load(WORLD, discount=0.9)
    policy = mdp.policy
    if policy is None:
        raise InputError(f"demo: the world {WORLD} has no policy.")
    return DemoResults(
        mdp=mdp,
        V=planning.optimal_values(mdp),
        V_pi=planning.policy_values(mdp, policy),
        lax=exact.lax(mdp),
        bisimulation=exact.bisimulation(mdp),
        on_policy=exact.on_policy(mdp, policy),
    )


def build_bound_checks(results: DemoResults) -> list[BoundCheck]:
    """Return the checks |V*(s) - V*(t)| <= d_lax <= d~, and |V^pi(s) - V^pi(t)| <= d^pi."""
    d, lax, on_policy = results.bisimulation, results.lax, results.on_policy
    V, V_pi = results.V, results.V_pi
    return [
        BoundCheck(
            "|V*(s) - V*(t)| <= d_lax", value_differences(V), lax.values, 2 * V.error + lax.error
        ),
        BoundCheck("d_lax <= d~", lax.values, d.values, lax.error + d.error),
        BoundCheck(
            "|V^pi(s) - V^pi(t)| <= d^pi",
            value_differences(V_pi),
            on_policy.values,
            2 * V_pi.error + on_policy.error,
        ),
    ]


def value_differences(V: ValueFunction) -> NDArray[np.float64]:
    """Return |V(s) - V(t)|, (S, S)."""
    return np.abs(V.values[:, None] - V.values[None, :])


def _format_verdict(bound: BoundCheck, violations: NDArray[np.intp], mdp: MDP) -> str:
    """Format the result of a check."""
    if not len(violations):
        pairs = mdp.num_states * (mdp.num_states - 1) // 2
        return f"  holds   {bound.claim:<28} for all {pairs} pairs, proven errors {bound.slack:.0e}"
    s, t = map(int, violations[0])
    return (
        f"  BROKEN  {bound.claim:<28} for {mdp.state_name(s)} and {mdp.state_name(t)}: "
        f"{bound.smaller[s, t]:.9g} > {bound.larger[s, t]:.9g}"
    )


def _format_table(results: DemoResults) -> Iterator[str]:
    """Yield the rows of the table of example pairs."""
    optimal, own = value_differences(results.V), value_differences(results.V_pi)
    yield "  s    t     |V* gap|     d_lax        d~  |V^pi gap|      d^pi"
    for first, second, description in PAIRS:
        s, t = results.mdp.state(first), results.mdp.state(second)
        yield (
            f"  {first:<4} {second:<4} {optimal[s, t]:9.4f} {results.lax(s, t):9.4f} "
            f"{results.bisimulation(s, t):9.4f} {own[s, t]:11.4f} {results.on_policy(s, t):9.4f}"
            f"  {description}"
        )


def _save_results(results: DemoResults, output: Path) -> Iterator[str]:
    """Save distances and figures; yield a line per file."""
    d = results.lax
    for distance in (results.bisimulation, d, results.on_policy):
        path = output / f"{distance.kind.replace('_', '-')}.npz"
        metadata = {**distance.metadata, "world": WORLD}
        dataclasses.replace(distance, metadata=metadata).save(path)
        yield f"saved {path}"
    for name, figure in (
        ("hallway.png", views.plot_distances_from(d, HALLWAY)),
        ("all-maps.png", views.plot_all_maps(d)),
        ("heatmap.png", views.plot_heatmap(d)),
    ):
        views.save_figure(figure, output / name)
        yield f"saved {output / name}"


def _suggest_commands(output: Path, program: str) -> Iterator[str]:
    """Yield commands to try next."""
    yield "next:"
    for words in (
        ["explain", str(output / "bisimulation.npz"), "1,5", "5,5"],
        ["show", str(output / "lax.npz"), "--from", HALLWAY],
        ["relation", "on-policy", "mirrored-rooms-policy"],
        ["exact", "bisimulation", "open-grid", "--set", "rows=20", "columns=30", "-o", "d.npz"],
        ["worlds"],
    ):
        yield "  " + shlex.join([program, *words])
