"""The worlds of Castro (2020), "Scalable methods for computing state similarity in deterministic
Markov decision processes": the mirrored rooms, the duplicated grid, the pessimism example."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from bisimetric.mdp import MDP
from bisimetric.worlds.grids import grid, read_grid

MIRRORED_ROOMS = """\
*******
*    g*
*     *
*     *
*** ***
*    g*
*     *
*     *
*******
"""

# An optimal policy: in the lower half straight to the nearest goal, and in the upper room, whose
# last row is equally far from both, to that room's own. At a goal: step down and back in.
MIRRORED_ROOMS_POLICY = """\
*******
*>>>>g*
*>>>>^*
*>>>>^*
***v***
*>>>>g*
*>>>>^*
*>>>>^*
*******
"""

PAPER_GRIDS = {"mirrored-rooms": MIRRORED_ROOMS, "mirrored-rooms-policy": MIRRORED_ROOMS_POLICY}


def mirrored_rooms(*, discount: float = 0.99) -> MDP:
    """The paper's 31-state grid: two rooms, a hallway, a goal in each room

    >>> mirrored_rooms()
    MDP(31 states, 4 actions, deterministic, discount 0.99)
    """
    return grid(MIRRORED_ROOMS, discount=discount)


def mirrored_rooms_policy(*, discount: float = 0.99) -> MDP:
    """The same 31 states with an optimal policy, for on-policy distances

    >>> mdp = mirrored_rooms_policy()
    >>> mdp.action_name(mdp.policy[mdp.state("4,3")])
    'down'
    """
    return grid(MIRRORED_ROOMS_POLICY, discount=discount)


def duplicated_grid(*, base: str = "mirrored-rooms", discount: float = 0.99) -> MDP:
    """A grid and its copy: every move lands on either level with probability 1/2 (stochastic)

    P'((i, s), a, (j, t)) = P(s, a, t) / 2 and R'((i, s), a) = R(s, a) for levels i, j of lower
    and upper, so that the two copies of a state are bisimilar. `base` is one of the paper's
    grids by name, the path of a grid text file, or the text of a grid (anything of several
    lines). Positions put the upper level to the right of the lower; features add the level.

    >>> mdp = duplicated_grid()
    >>> mdp
    MDP(62 states, 4 actions, 496 transitions, discount 0.99)
    >>> mdp.name(0), mdp.name(31)
    ('lower 1,1', 'upper 1,1')
    """
    if base in PAPER_GRIDS:
        one = grid(PAPER_GRIDS[base], discount=discount)
    elif "\n" in base:
        one = grid(base, discount=discount)
    else:
        one = read_grid(base, discount=discount)
    row, column = np.array(one.positions, dtype=np.int64).T
    beside = column + (np.ptp(column) + 3)
    level = np.repeat([0.0, 1.0], one.num_states)
    both_levels = sparse.hstack([one.P, one.P]) * 0.5
    return MDP.from_matrices(
        sparse.vstack([both_levels, both_levels]),
        np.tile(one.R, (2, 1)),
        discount=discount,
        names=[f"{which} {name}" for which in ("lower", "upper") for name in one.names or ()],
        actions=one.actions,
        positions=np.stack([np.tile(row, 2), np.concatenate([column, beside])], axis=1),
        features=np.column_stack([np.tile(row, 2) + 0.5, np.tile(column, 2) + 0.5, level]),
        policy=None if one.policy is None else np.tile(one.policy, 2),
    )


def pessimism(*, K: float = 1.0, discount: float = 0.9) -> MDP:
    """Three states where bisimulation is pessimistic: V*(s) = V*(t), yet s and t are far apart

    Action a leads from s to t and action b from t to s, each for a reward of K; everything else
    leads to u for nothing, and u keeps for ever.

    >>> pessimism(K=2.0).R.tolist()
    [[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]]
    """
    return MDP.deterministic(
        [[1, 2], [2, 0], [2, 2]],
        [[K, 0.0], [0.0, K], [0.0, 0.0]],
        discount=discount,
        names=["s", "t", "u"],
        actions=["a", "b"],
    )
