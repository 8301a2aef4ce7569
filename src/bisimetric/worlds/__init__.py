"""MDPs by name, from Gymnasium environments, from files and from matrices.

The built-in collection holds the paper's examples and random families; `load` is the one entry
point for all sources.

>>> from bisimetric import worlds
>>> worlds.load("mirrored-rooms", discount=0.9)
MDP(31 states, 4 actions, deterministic, discount 0.9)
>>> worlds.load("open-grid", rows=5, columns=5, obstacles=0.0).num_states
25
>>> worlds.load("CliffWalking-v1").num_states
48
"""

from __future__ import annotations

from bisimetric.worlds._load import World, describe, list_names, load
from bisimetric.worlds.composition import compose
from bisimetric.worlds.drn import from_drn, to_drn
from bisimetric.worlds.enumeration import enumerate_environment
from bisimetric.worlds.grids import grid, read_grid
from bisimetric.worlds.gymnasium_envs import from_gymnasium
from bisimetric.worlds.matrices import from_matrices, read_matrices
from bisimetric.worlds.prism import from_prism
from bisimetric.worlds.stormpy_models import from_stormpy, read_program, to_stormpy

__all__ = [
    "World",
    "compose",
    "describe",
    "enumerate_environment",
    "from_drn",
    "from_gymnasium",
    "from_matrices",
    "from_prism",
    "from_stormpy",
    "grid",
    "list_names",
    "load",
    "read_grid",
    "read_matrices",
    "read_program",
    "to_drn",
    "to_stormpy",
]
