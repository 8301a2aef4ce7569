"""An MDP from your own arrays: which states are bisimilar, and how far apart are the others?

A machine with five conditions and two actions. Run it with `python examples/own_arrays.py`.
"""

import numpy as np

from bisimetric import MDP, exact, relation

names = ("new", "good", "also good", "worn", "broken")
actions = ("run", "repair")
next_state = np.array([[1, 0], [3, 0], [3, 0], [4, 1], [4, 2]])
rewards = np.array([[2.0, -1.0], [2.0, -1.0], [2.0, -1.0], [1.0, -1.0], [0.0, -3.0]])
mdp = MDP.deterministic(next_state, rewards, discount=0.9, names=names, actions=actions)

labels = relation.bisimulation(mdp)
for label in range(labels.max() + 1):
    members = [mdp.state_name(int(s)) for s in np.flatnonzero(labels == label)]
    print(f"class {label}: {', '.join(members)}")

d = exact.bisimulation(mdp)
print(f"distances, each proven to {d.error:.1e}:")
print(np.array2string(d.values, precision=3, suppress_small=True))
print(d.explain("new", "broken"))
