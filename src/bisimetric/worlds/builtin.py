"""The built-in worlds: examples of the paper, and random families of any size.

The examples are those of Castro (2020), "Scalable methods for computing state similarity in
deterministic Markov decision processes": the mirrored rooms, the duplicated grid, the pessimism
example. The families are open grids with obstacles and random MDPs. The first line of each
docstring is shown by `worlds.describe`.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage, sparse

from bisimetric._memory import require_memory
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.worlds.grids import FLOOR, GOAL, WALL, from_cells, grid, read_grid

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

# An optimal policy: each room moves to its own goal, which is nearest or, in the last row of the
# upper room, equally near; the hallway moves down. At a goal: down and back.
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
    grids by name, the path of a grid file, or the text of a grid (any text of several lines).
    Positions put the lower level below the upper; features add the level.

    >>> mdp = duplicated_grid()
    >>> mdp
    MDP(62 states, 4 actions, 496 transitions, discount 0.99)
    >>> mdp.state_name(0), mdp.state_name(31)
    ('lower 1,1', 'upper 1,1')
    """
    if base in PAPER_GRIDS:
        one = grid(PAPER_GRIDS[base], discount=discount)
    elif "\n" in base:
        one = grid(base, discount=discount)
    else:
        one = read_grid(base, discount=discount)
    row, column = np.array(one.positions, dtype=np.int64).T
    below = row + (np.ptp(row) + 3)
    level = np.repeat([0.0, 1.0], one.num_states)
    both_levels = sparse.hstack([one.P, one.P]) * 0.5
    return MDP(
        sparse.vstack([both_levels, both_levels]),
        np.tile(one.R, (2, 1)),
        discount=discount,
        names=[f"{which} {name}" for which in ("lower", "upper") for name in one.names or ()],
        actions=one.actions,
        positions=np.stack([np.concatenate([below, row]), np.tile(column, 2)], axis=1),
        features=np.column_stack([np.tile(row, 2) + 0.5, np.tile(column, 2) + 0.5, level]),
        policy=None if one.policy is None else np.tile(one.policy, 2),
    )


def pessimism(*, K: float = 1.0, discount: float = 0.9) -> MDP:
    """Three states where bisimulation is pessimistic: V*(s) = V*(t), yet s and t are far apart

    Action a leads from s to t and action b from t to s, each with reward K; all other transitions
    lead to u with reward 0, and u is absorbing.

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


CELL_BYTES = 400
"""Memory per cell while the MDP is built: its id, four transitions and name."""
ENTRY_BYTES = 40
"""Memory per successor while the MDP is built."""


def open_grid(
    *,
    rows: int = 70,
    columns: int = 70,
    obstacles: float = 0.1,
    seed: int = 0,
    discount: float = 0.99,
) -> MDP:
    """One open room of any size with random obstacles and one goal

    Of the rows x columns cells inside the outer wall, the fraction `obstacles` becomes walls. The
    states are the largest connected component of the rest, so that all can reach each other; the
    goal is the one nearest to the top right corner.

    >>> open_grid(rows=3, columns=4, obstacles=0.0).num_states
    12
    """
    _require_at_least(1, world="open-grid", rows=rows, columns=columns)
    _require_at_least(0, world="open-grid", seed=seed)
    if not 0 <= obstacles < 1:
        raise InputError(
            f"world 'open-grid': option obstacles is {obstacles} and must be a fraction, "
            "at least 0 and below 1."
        )
    size = rows * columns
    require_memory(
        f"world 'open-grid': {rows:,} rows of {columns:,} columns need",
        CELL_BYTES * size,
        "take fewer",
    )
    count = min(round(obstacles * size), size - 1)
    blocked = np.zeros(size, dtype=bool)
    blocked[np.random.default_rng(seed).permutation(size)[:count]] = True
    parts, _ = ndimage.label(~blocked.reshape(rows, columns))
    sizes = np.bincount(parts.ravel())
    sizes[0] = 0
    row, column = np.nonzero(parts == sizes.argmax())
    corner = np.argmin(row + (columns - 1 - column))
    cells = np.full((rows + 2, columns + 2), ord(WALL), dtype=np.uint32)
    cells[row + 1, column + 1] = ord(FLOOR)
    cells[row[corner] + 1, column[corner] + 1] = ord(GOAL)
    return from_cells(cells, discount=discount)


def random_mdp(
    *,
    states: int = 1000,
    actions: int = 4,
    successors: int = 1,
    seed: int = 0,
    discount: float = 0.99,
) -> MDP:
    """Uniformly random successors, one or more per state and action, and rewards in [0, 1]

    Several successors are distinct, and their probabilities are uniform on the simplex.

    >>> random_mdp(states=5, actions=2)
    MDP(5 states, 2 actions, deterministic, discount 0.99)
    >>> random_mdp(states=5, actions=2, successors=3)
    MDP(5 states, 2 actions, 30 transitions, discount 0.99)
    """
    _require_at_least(1, world="random", states=states, actions=actions, successors=successors)
    _require_at_least(0, world="random", seed=seed)
    if successors > states:
        raise InputError(
            f"world 'random': option successors is {successors} and must be at most the "
            f"{states} states."
        )
    require_memory(
        f"world 'random': {states:,} states with {actions:,} actions need",
        ENTRY_BYTES * states * actions * successors,
        "take fewer",
    )
    rng = np.random.default_rng(seed)
    if successors == 1:
        next_state = rng.integers(states, size=(states, actions))
        return MDP.deterministic(next_state, rng.random((states, actions)), discount=discount)
    rows = states * actions
    there = np.concatenate([rng.choice(states, successors, replace=False) for _ in range(rows)])
    share = rng.dirichlet(np.ones(successors), rows).ravel()
    starts = np.arange(0, rows * successors + 1, successors)
    P = sparse.csr_array((share, there, starts), (rows, states))
    return MDP(P, rng.random((states, actions)), discount)


def _require_at_least(minimum: int, *, world: str, **options: int) -> None:
    for option, value in options.items():
        if value < minimum:
            raise InputError(
                f"world {world!r}: option {option} is {value} and must be at least {minimum}."
            )
