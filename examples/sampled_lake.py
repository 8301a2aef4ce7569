"""Sampled distances on FrozenLake: a random walk, and which distances its transitions prove.

Needs `pip install 'bisimetric[worlds]'`. Run it with `python examples/sampled_lake.py`.
"""

import numpy as np

from bisimetric import datasets, exact, sampled

for steps in (1_000, 2_000):
    lake = datasets.rollout("FrozenLake-v1", steps=steps, seed=0, is_slippery=False)
    d = sampled.bisimulation(lake, discount=0.9, seed=0)
    print(lake)
    if d.coverage is not None:
        print(*d.coverage.format_lines(d.mdp), sep="\n")
    lower, upper = d.bounds("0,0", "2,0")
    print(f"d~ of the start and 2,0 is proven to lie between {lower:.4f} and {upper:.4f}")
    print()

# The holes and the goal terminate episodes: no step starts from them, and nothing is claimed for
# their ids. All other distances are proven, and agree with exact on the empirical MDP.
reference = exact.bisimulation(lake.to_mdp(discount=0.9))
ids = np.arange(d.mdp.num_states)
proven = np.isfinite(d.bounds(ids[:, None], ids)[1])
error = np.abs(d.values - reference.values)[proven].max()
print(f"after {d.metadata['steps']:,} pairs the proven distances are off by {error:.1e} at most")
print(d.explain("0,0", "2,0"))
