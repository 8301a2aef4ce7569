"""`bisimetric relation`: the classes of states that behave exactly alike."""

from __future__ import annotations

from bisimetric.cli.options import OutputArg, PolicyArg, WorldArg, load_world, resolve_policy
from bisimetric.cli.output import write_relation


def bisimulation(world: WorldArg, output: OutputArg = None) -> None:
    """The classes of states that behave alike under every action.

    Args:
        output: save the class of every state as a .npy file

    Examples:
        bisimetric relation bisimulation mirrored-rooms
        bisimetric relation bisimulation random --set states=100000 -o labels.npy
    """
    mdp = load_world(world, output)
    from bisimetric import relation

    write_relation(mdp, relation.bisimulation(mdp), world, output)


def on_policy(world: WorldArg, policy: PolicyArg = None, output: OutputArg = None) -> None:
    """The classes of states that behave alike under a policy.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action a state
        output: save the class of every state as a .npy file

    Examples:
        bisimetric relation on-policy mirrored-rooms-policy
        bisimetric relation on-policy mirrored-rooms --policy optimal -o labels.npy
    """
    mdp = load_world(world, output)
    actions, called = resolve_policy(mdp, policy)
    from bisimetric import relation

    write_relation(mdp, relation.on_policy(mdp, actions), world, output, policy=called)


def lax(world: WorldArg, output: OutputArg = None) -> None:
    """The classes of states that behave alike when actions may be renamed state by state.

    Args:
        output: save the class of every state as a .npy file

    Examples:
        bisimetric relation lax pessimism
    """
    mdp = load_world(world, output)
    from bisimetric import relation

    write_relation(mdp, relation.lax(mdp), world, output)
