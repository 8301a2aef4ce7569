"""Read matrices in pymdptoolbox's layout, one per action: a forest that is cut or grows.

Run it with `python examples/toolbox_matrices.py`.
"""

import numpy as np

from bisimetric import exact, planning, worlds

AGES = 6
wait = np.eye(AGES, k=1)
wait[-1, -1] = 1.0
cut = np.zeros((AGES, AGES))
cut[:, 0] = 1.0
rewards = np.zeros((AGES, 2))
rewards[-1, 0] = 4.0  # an old forest is worth keeping
rewards[1:, 1] = 1.0
rewards[-1, 1] = 2.0

mdp = worlds.from_matrices(
    [wait, cut],
    rewards,
    discount=0.9,
    names=[f"age {age}" for age in range(AGES)],
    actions=["wait", "cut"],
)
print(mdp)
d = exact.bisimulation(mdp)
V = planning.optimal_values(mdp).values
print("from a young forest, the distance bounds the difference of values:")
for age in range(AGES):
    print(f"  {mdp.state_name(age)}: d~ {d(0, age):7.4f}, gap {abs(V[0] - V[age]):7.4f}")

np.savez("forest.npz", P=[wait, cut], R=rewards, discount=0.9)
print("the same from a file:", worlds.load("forest.npz"))
