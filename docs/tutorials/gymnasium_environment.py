# %% [markdown]
# # A Gymnasium environment
#
# This tutorial computes distances between the states of three environments: FrozenLake, whose
# transitions are stochastic, Taxi, and a MiniGrid room. The question in each: which states
# behave alike, and what does it cost to treat them as one? It needs
# `pip install 'bisimetric[worlds]'`.
#
# ## FrozenLake
#
# Environments with a transition table `env.unwrapped.P` are converted exactly. Options are those
# of `gymnasium.make`. Holes and the goal are absorbing states with reward 0.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np

from bisimetric import exact, planning, relation, uses, views, worlds
from bisimetric.errors import ExpectedRewardWarning

warnings.simplefilter("ignore", ExpectedRewardWarning)
lake = worlds.load("FrozenLake-v1", map_name="8x8", is_slippery=True, discount=0.9)
print(lake)

# %% [markdown]
# On slippery ice the reward depends on the successor. A metric compares expected rewards, so the
# loader takes the expectation and warns about it; the cell above turns the warning off.
#
# Which states are bisimilar? Expected rewards of 1/3 are rounded in two ways; `reward_tol` merges
# them.

# %%
labels = relation.bisimulation(lake, reward_tol=1e-12)
largest = np.bincount(labels).argmax()
members = [lake.state_name(int(s)) for s in np.flatnonzero(labels == largest)]
print(f"{labels.max() + 1} classes of {lake.num_states} states; the largest:", *members)

# %% [markdown]
# All holes and the goal are one class: an absorbing state with reward 0. Every other state is
# alone. A relation cannot say that two neighbouring cells are *nearly* the same; a metric can.

# %%
d = exact.bisimulation(lake)
print(d)
views.plot_distances_from(d, "0,0")

# %% [markdown]
# The start is near every cell from which the goal is far, holes included: what distinguishes
# states here is the only reward, at the goal.
#
# ### Distances and values
#
# Values differ by no more than the distance. In this environment the bound is nearly tight for
# many pairs, since few actions distinguish states except by the goal.

# %%
V = planning.optimal_values(lake).values
pairs = np.triu_indices(lake.num_states, 1)
difference = np.abs(V[:, None] - V)[pairs]
distance = d.values[pairs]

figure, axes = plt.subplots(figsize=(4.6, 4), layout="constrained")
axes.scatter(distance, difference, s=6, alpha=0.4)
axes.axline((0, 0), slope=1, color="0.4", lw=1, label="difference = distance")
axes.set(xlabel="d~", ylabel="difference of V*")
axes.legend()
plt.show()
print(f"correlation {np.corrcoef(distance, difference)[0, 1]:.2f}")

# %% [markdown]
# ### Why is a cell far from the start?
#
# Successor distributions are compared by optimal transport. An explanation lists the most
# distinguishing action and how the successors are matched.

# %%
print(d.explain("7,5", "0,0"))

# %% [markdown]
# ### Merge similar states
#
# `uses.aggregate` clusters the states, solves the smaller MDP and lifts its policy back. It reports
# the regret of that policy, and a bound that is known before anything is measured.

# %%
d_lax = exact.lax(lake)
print(f"largest V*: {V.max():.3f}")
print("classes  regret  proven bound")
for clusters in (54, 50, 45, 40, 30, 20):
    merged = uses.aggregate(lake, d_lax, clusters=clusters, rule="medoids")
    print(f"{clusters:7} {merged.regret:7.4f} {merged.regret_bound:13.4f}")

# %% [markdown]
# Merging 64 states into 45 classes provably costs less than 0.1, and really 0.003. No policy loses
# more than the largest V\*, because rewards are not negative: a bound above it is *vacuous*, as in
# the last row.

# %%
merged = uses.aggregate(lake, d_lax, clusters=20, rule="medoids")
views.plot_classes(lake, merged.labels, merged.representatives, title="20 classes by d_lax")

# %% [markdown]
# ## Taxi
#
# In Taxi a state is the cell of the taxi, the location of the passenger and the destination.
# `d_lax` may match "north" in one state with "south" in another.

# %%
taxi = worlds.load("Taxi-v4", discount=0.9)
d_taxi = exact.lax(taxi)
print(taxi, "-", relation.lax(taxi).max() + 1, "lax bisimulation classes")
for name, distance_to in d_taxi.nearest("taxi 0,0 passenger aboard to R", k=3, names=True):
    print(f"{distance_to:7.2f}  {name}")

# %% [markdown]
# The nearest states are those in which a passenger is about to be delivered to another place:
# the same task, elsewhere in the grid.
#
# ## MiniGrid
#
# MiniGrid has no table. Its states are enumerated by breadth-first search from `reset(seed=seed)`;
# determinism is checked on the way. A state consists of the cell and direction of the agent, what
# it carries, and all changes of the grid.

# %%
room = worlds.load("MiniGrid-DoorKey-5x5-v0", seed=3, discount=0.9)
d_room = exact.lax(room)
V_room = planning.optimal_values(room).values
policy = planning.greedy_policy(room, V_room)
print(room)
print("lax bisimulation classes:", relation.lax(room).max() + 1)
print("classes under an optimal policy:", relation.on_policy(room, policy).max() + 1)

# %% [markdown]
# The agent stands behind the open door and has dropped the key. Does it matter where?

# %%
pose = "1,3 west, yellow door open"
for key in ("yellow key at 2,1", "yellow key at 2,3"):
    state = room.state(f"{pose}, {key}")
    print(f"{key}: V* = {V_room[state]:.3f}")
print(f"d_lax = {d_room(f'{pose}, yellow key at 2,1', f'{pose}, yellow key at 2,3'):.3f}")

# %% [markdown]
# At 2,3 the key blocks the way to the goal. The explanation lists the actions that show the
# difference:

# %%
print(d_room.explain(f"{pose}, yellow key at 2,1", f"{pose}, yellow key at 2,3"))

# %% [markdown]
# ## Exercises
#
# 1. Load `FrozenLake-v1` with `is_slippery=False`. How many states can be merged at regret 0?
# 2. In Taxi, compare `exact.bisimulation` with `exact.lax`. Which pairs differ most, and why?
# 3. Load `CliffWalking-v1`. Which cells are nearest to the start?
#
# ## Next steps
#
# - [From a replay buffer to bounds](replay_buffer.md): when there is no table.
# - [Environments](../reference/environments.md): all sources of MDPs and their options.
# - [Aggregate states](../how-to/aggregate.md): clustering rules and the theorem.
