"""`bisimetric relation`: classes of states with exactly the same behaviour."""

from __future__ import annotations

from bisimetric.cli.options import OutputArg, PolicyArg, WorldOptions, load_world, resolve_policy
from bisimetric.cli.output import write_relation


def bisimulation(world: WorldOptions, output: OutputArg = None) -> None:
    """Classes of states with the same behaviour under every action.

    Args:
        output: save the class of every state as a .npy file

    Examples:
        bisimetric relation bisimulation mirrored-rooms
        bisimetric relation bisimulation random --set states=100000 -o labels.npy
    """
    mdp = load_world(world, output)
    from bisimetric import relation

    write_relation(mdp, relation.bisimulation(mdp), world, output)


def on_policy(world: WorldOptions, policy: PolicyArg = None, output: OutputArg = None) -> None:
    """Classes of states with the same behaviour under a policy.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action per state
        output: save the class of every state as a .npy file

    Examples:
        bisimetric relation on-policy mirrored-rooms-policy
        bisimetric relation on-policy mirrored-rooms --policy optimal -o labels.npy
    """
    mdp = load_world(world, output)
    actions, name = resolve_policy(mdp, policy)
    from bisimetric import relation

    write_relation(mdp, relation.on_policy(mdp, actions), world, output, policy=name)


def lax(world: WorldOptions, output: OutputArg = None) -> None:
    """Classes of states with the same behaviour up to a renaming of actions per state.

    Args:
        output: save the class of every state as a .npy file

    Examples:
        bisimetric relation lax pessimism
    """
    mdp = load_world(world, output)
    from bisimetric import relation

    write_relation(mdp, relation.lax(mdp), world, output)
