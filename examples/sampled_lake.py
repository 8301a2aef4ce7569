"""From steps to distances: a frozen lake is walked at random; what was seen says what is proven.

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

# The holes and the goal only end episodes, and then one is in "end": no step starts from them, and
# nothing is said of them. All others are proven to be what exact finds in the MDP that the same
# steps make.
truth = exact.bisimulation(lake.to_mdp(discount=0.9))
ids = np.arange(d.mdp.num_states)
proven = np.isfinite(d.bounds(ids[:, None], ids)[1])
gap = np.abs(d.values - truth.values)[proven].max()
print(
    f"after {d.metadata['steps']:,} pairs of steps the proven distances are off by {gap:.1e} at most"
)
print(d.explain("0,0", "2,0"))
