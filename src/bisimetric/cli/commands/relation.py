"""`bisimetric relation`: classes of states with exactly the same behaviour."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from bisimetric.cli.options import (
    OutputArg,
    PairsArg,
    PolicyArg,
    WorldOptions,
    load_world,
    resolve_policy,
)
from bisimetric.cli.output import write_relation
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.mdp import MDP

AbstractionArg = Annotated[
    Literal["bisimulation", "q-pi", "q-star", "a-star", "pi-star"] | None,
    arg(
        metavar="{bisimulation,q-pi,q-star,a-star,pi-star}",
        help_behavior_hint="(default: the number of classes of each)",
    ),
]

MEANINGS = {
    "bisimulation": "the same rewards and probabilities of classes (model-irrelevance)",
    "q-pi": "the same Q^pi for all policies that are constant on the classes",
    "q-star": "the same Q*",
    "a-star": "the same V* and a common optimal action",
    "pi-star": "a common optimal action",
}


def bisimulation(world: WorldOptions, reward_tol: float = 0.0, output: OutputArg = None) -> None:
    """Classes of states with the same behaviour under every action.

    Args:
        reward_tol: rewards that differ by no more count as equal
        output: save the class of every state as a .npy file

    Examples:
        bisimetric relation bisimulation mirrored-rooms
        bisimetric relation bisimulation random --set states=100000 -o labels.npy
    """
    mdp = load_world(world, output)
    from bisimetric import relation

    write_relation(mdp, relation.bisimulation(mdp, reward_tol=reward_tol), world, output)


def on_policy(
    world: WorldOptions,
    policy: PolicyArg = None,
    reward_tol: float = 0.0,
    output: OutputArg = None,
) -> None:
    """Classes of states with the same behaviour under a policy.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action per state
        reward_tol: rewards that differ by no more count as equal
        output: save the class of every state as a .npy file

    Examples:
        bisimetric relation on-policy mirrored-rooms-policy
        bisimetric relation on-policy mirrored-rooms --policy optimal -o labels.npy
    """
    mdp = load_world(world, output)
    actions, name = resolve_policy(mdp, policy)
    from bisimetric import relation

    classes = relation.on_policy(mdp, actions, reward_tol=reward_tol)
    write_relation(mdp, classes, world, output, policy=name)


def lax(world: WorldOptions, reward_tol: float = 0.0, output: OutputArg = None) -> None:
    """Classes of states with the same behaviour up to a renaming of actions per state.

    Args:
        reward_tol: rewards that differ by no more count as equal
        output: save the class of every state as a .npy file

    Examples:
        bisimetric relation lax pessimism
    """
    mdp = load_world(world, output)
    from bisimetric import relation

    write_relation(mdp, relation.lax(mdp, reward_tol=reward_tol), world, output)


def robust(
    world: WorldOptions,
    lax: bool = False,
    any_support: bool = False,
    reward_tol: float = 0.0,
    output: OutputArg = None,
) -> None:
    """Classes of states that no small change of the probabilities can separate.

    Args:
        lax: perturb the classes of `lax` in place of those of `bisimulation`
        any_support: let probabilities of 0 become positive
        reward_tol: rewards that differ by no more count as equal
        output: save the class of every state as a .npy file

    Examples:
        bisimetric relation robust duplicated-grid
    """
    mdp = load_world(world, output)
    from bisimetric import relation

    classes = relation.robust(mdp, lax=lax, preserve_support=not any_support, reward_tol=reward_tol)
    write_relation(mdp, classes, world, output)


def abstraction(world: WorldOptions, kind: AbstractionArg = None, output: OutputArg = None) -> None:
    """Numbers of classes in Li, Walsh and Littman's hierarchy, or the classes of one kind.

    From fine to coarse: bisimulation (model-irrelevance), equal action values of all policies that
    are constant on the classes, equal optimal action values, equal optimal values and a common
    optimal action, and a common optimal action.

    Args:
        kind: list the classes of this abstraction
        output: save the class of every state as a .npy file; needs --kind

    Examples:
        bisimetric relation abstraction mirrored-rooms
        bisimetric relation abstraction mirrored-rooms --kind a-star -o labels.npy
    """
    if output is not None and kind is None:
        raise InputError("--output saves the classes of one abstraction; give --kind, too.")
    mdp = load_world(world, output)
    from bisimetric import relation
    from bisimetric.cli import report

    compute: dict[str, Callable[[MDP], NDArray[Any]]] = {
        "bisimulation": relation.bisimulation,
        "q-pi": relation.q_pi_irrelevance,
        "q-star": relation.q_star_irrelevance,
        "a-star": relation.a_star_irrelevance,
        "pi-star": relation.pi_star_irrelevance,
    }
    if kind is not None:
        write_relation(mdp, compute[kind](mdp), world, output, kind=kind)
        return
    sizes = {name: int(function(mdp).max()) + 1 for name, function in compute.items()}
    report.emit([report.describe_mdp("world", world.world, mdp), "classes, from fine to coarse:"])
    report.emit([f"  {name:<14} {size:>8,}  {MEANINGS[name]}" for name, size in sizes.items()])
    report.emit_values(classes=sizes)


def distinguish(world: WorldOptions, pairs: PairsArg, lax: bool = False) -> None:
    """A formula that the first state of a pair satisfies and the second does not.

    Formulas are those of probabilistic modal logic: <a>(R >= 1) says that action a pays at least
    1, and <a>(P[...] >= 0.5) that it leads with a probability of at least 0.5 to states that
    satisfy the formula in brackets.

    Args:
        pairs: two states that are not bisimilar, by name or id; may be repeated
        lax: distinguish up to a renaming of actions per state; <*> is any action

    Examples:
        bisimetric relation distinguish mirrored-rooms --pairs 1,5 5,5
        bisimetric relation distinguish pessimism --pairs s u --lax
    """
    if not pairs:
        raise InputError("--pairs is missing; name two states, as in --pairs 1,5 5,5.")
    mdp = load_world(world, None, pairs=pairs)
    from bisimetric import relation
    from bisimetric.cli import report

    found = [relation.distinguish(mdp, *pair, lax=lax) for pair in pairs]
    report.emit([str(witness) for witness in found])
    values = [
        {
            "states": [mdp.state_name(state) for state in witness.states],
            "formula": str(witness.formula),
            "depth": witness.formula.depth,
            "values": witness.values,
        }
        for witness in found
    ]
    report.emit_values(pairs=values)
