# %% [markdown]
# # From a PRISM model to a quotient
#
# This tutorial reads a probabilistic model in PRISM's explicit format, computes its bisimulation
# quotient, and then asks what a quotient cannot answer: how much changes if a probability is
# slightly off? It needs `pip install bisimetric`; PRISM itself is not needed.
#
# ## The model
#
# Knuth and Yao simulate a die by tosses of a fair coin. `prism dice.pm -exportmodel dice.all`
# writes the three files below: transitions, states and labels. State `(s,d)` is the position `s` in
# the algorithm and the number `d` on the die, 0 until it is known.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from bisimetric import MDP, exact, relation, uses, views, worlds

TRANSITIONS = """\
13 20
0 1 0.5
0 2 0.5
1 3 0.5
1 4 0.5
2 5 0.5
2 6 0.5
3 1 0.5
3 7 0.5
4 8 0.5
4 9 0.5
5 10 0.5
5 11 0.5
6 2 0.5
6 12 0.5
7 7 1
8 8 1
9 9 1
10 10 1
11 11 1
12 12 1
"""
STATES = """\
(s,d)
0:(0,0)
1:(1,0)
2:(2,0)
3:(3,0)
4:(4,0)
5:(5,0)
6:(6,0)
7:(7,1)
8:(7,2)
9:(7,3)
10:(7,4)
11:(7,5)
12:(7,6)
"""
LABELS = """\
0="init" 1="deadlock" 2="done" 3="six"
0: 0
7: 2
8: 2
9: 2
10: 2
11: 2
12: 2 3
"""


def write_model(name: str, transitions: str) -> Path:
    """Write a model with the states and labels of the die; return the path of its .tra file."""
    Path(f"{name}.sta").write_text(STATES)
    Path(f"{name}.lab").write_text(LABELS)
    path = Path(f"{name}.tra")
    path.write_text(transitions)
    return path


fair = write_model("fair", TRANSITIONS)
worlds.from_prism(fair, observe=["done", "six"], discount=0.9)

# %% [markdown]
# A model without nondeterminism has one action, `step`. Observed labels become labels of the
# states, `MDP.labels`: states with different labels are never bisimilar.
#
# ## The quotient
#
# Bisimilar states have the same labels and move to the same classes with the same probabilities.
# What is bisimilar depends on what is observed.


# %%
def list_classes(mdp: MDP) -> list[str]:
    """Return the bisimulation classes, each as the names of its states."""
    classes = relation.bisimulation(mdp)
    return [
        " ".join(mdp.state_name(int(s)) for s in np.flatnonzero(classes == number))
        for number in range(classes.max() + 1)
    ]


for observed in (["done"], ["six"], ["done", "six"]):
    mdp = worlds.from_prism(fair, observe=observed, discount=0.9)
    classes = list_classes(mdp)
    print(f"\nobserve {' and '.join(observed)}: {len(classes)} classes")
    print("\n".join("  " + names for names in classes))

# %% [markdown]
# If only "six" is observed, every state that can no longer reach a six is one class, finished or
# not. If only "done" is observed, the two halves of the algorithm are equal: only the time until
# the end is observed.
#
# The quotient is an MDP with one state per class. The distance between two classes
# is that between their states.

# %%
die = worlds.from_prism(fair, observe=["done"], discount=0.9)
small = relation.quotient(die, relation.bisimulation(die))
print(die)
print(small, "states:", *small.names or ())
d, d_small = exact.bisimulation(die), exact.bisimulation(small)
print(f"{d('(0,0)', '(7,1)'):.6f} {d_small('(0,0)', '(7,1)'):.6f}")

# %% [markdown]
# ## Distances
#
# `(1 - discount) d` is the usual distance of labelled Markov chains: 1 if the labels differ at
# once, less if a difference appears later or with a small probability, 0 for bisimilar states.

# %%
scaled = (1 - die.discount) * d.values
for name in small.names or ():
    print(f"(0,0) and {name}: {scaled[die.state('(0,0)'), die.state(name)]:.3f}")
views.plot_heatmap(d)

# %% [markdown]
# ## A biased coin
#
# Bisimulation is brittle. Let the coin in state 6 be slightly biased: heads, which restarts that
# half of the algorithm, has probability 0.51.

# %%
biased = write_model("biased", TRANSITIONS.replace("6 2 0.5\n6 12 0.5", "6 2 0.51\n6 12 0.49"))
other = worlds.from_prism(biased, observe=["done"], discount=0.9)
print(
    "classes:", len(list_classes(die)), "with a fair coin,", len(list_classes(other)), "with a bias"
)

# %% [markdown]
# States 3 and 6, and 1 and 2, are no longer bisimilar, and the quotient has two more states. The
# metric changes little: it is continuous in the probabilities.

# %%
d_biased = exact.bisimulation(other)
for pair in (("(3,0)", "(6,0)"), ("(1,0)", "(2,0)")):
    print(*pair, f"fair {0.1 * d(*pair):.5f}, biased {0.1 * d_biased(*pair):.5f}")

# %% [markdown]
# To compare the two models with each other, form their disjoint union. The distance between the
# two initial states bounds the difference of their expected discounted time in "done" states.

# %%
biases = np.array([0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3])
distances = []
for bias in biases:
    lines = f"6 2 {0.5 + bias}\n6 12 {0.5 - bias}"
    path = write_model("biased", TRANSITIONS.replace("6 2 0.5\n6 12 0.5", lines))
    union = uses.disjoint_union(die, worlds.from_prism(path, observe=["done"], discount=0.9))
    distances.append(0.1 * exact.bisimulation(union)("source (0,0)", "target (0,0)"))

figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
axes.plot(biases, distances, "o-")
axes.set(xlabel="bias of the coin in state 6", ylabel="(1 - discount) d~ of the initial states")
plt.show()

# %% [markdown]
# ## Merge what is nearly bisimilar
#
# Clustering by distance restores the five classes of the fair die. `radius` bounds the distance
# from a state to the representative of its class.

# %%
labels = uses.cluster(d_biased, radius=0.2)
print("clusters:", labels.max() + 1)
for label in range(labels.max() + 1):
    print("  " + " ".join(other.state_name(int(s)) for s in np.flatnonzero(labels == label)))

# %% [markdown]
# ## Exercises
#
# 1. Add labels "one" to "five" and observe all six. How many classes remain?
# 2. Bias the coin in state 0 instead of state 6. Which distances change?
# 3. Export a model of your own with `prism model.nm -exportmodel model.all`, and load its `.tra`
#    file. Rewards in `.srew` and `.trew` files are read as well.
#
# ## Next steps
#
# - [Environments](../reference/environments.md): how PRISM files are read, and their limits.
# - [Bisimulation and its metrics](../concepts/bisimulation.md): definitions and theorems.
# - [Aggregate states](../how-to/aggregate.md): solve the smaller MDP, with a regret bound.
