# %% [markdown]
# # A first metric
#
# How similar are two states of a Markov decision process? This tutorial computes bisimulation
# metrics of a small grid, reads them, and uses them to bound differences in value. It takes ten
# minutes to read and needs `pip install bisimetric`.
#
# ## An MDP
#
# A grid is drawn as text: `*` is a wall, a space is floor and `g` is a goal. The four actions move
# by one cell. Entering the goal pays 1; walking into a wall pays -1.

# %%
import matplotlib.pyplot as plt
import numpy as np

from bisimetric import exact, planning, relation, views, worlds

GRID = """
*********
*   *   *
*      g*
*   *   *
*********
"""
mdp = worlds.grid(GRID, discount=0.9)
print(mdp, "with actions", mdp.actions)

# %% [markdown]
# States are named `row,column`. Any other MDP works the same way: `MDP(P, R, discount=0.9)` takes
# arrays, `worlds.load("FrozenLake-v1")` takes an environment of Gymnasium.
#
# ## Which states behave alike?
#
# Two states are *bisimilar* if every action pays the same in both and leads to bisimilar states.
# No two cells of this grid are bisimilar: "up" hits a wall in the first row only.
#
# *Lax* bisimulation may match an action of one state with another action of the other state. Then
# the upper and the lower half of the grid are mirror images: "up" here corresponds to "down" there.

# %%
classes = relation.lax(mdp)
print("classes of bisimilar states:", relation.bisimulation(mdp).max() + 1)
print("classes of lax bisimilar states:", classes.max() + 1)
views.plot_classes(mdp, classes, title="lax bisimulation classes")

# %% [markdown]
# ## From yes or no to a number
#
# A relation says yes or no. A *bisimulation metric* says how different two states are, in units of
# reward. It is 0 exactly for bisimilar states. `exact.bisimulation` computes the metric
# `d~` of Ferns et al. (2004), `exact.lax` the lax metric `d_lax` of Taylor et al. (2009).

# %%
d = exact.bisimulation(mdp)
d_lax = exact.lax(mdp)
print(f"d~:    {d('1,1', '3,1'):.3f}, proven to {d.error:.0e}")
print(f"d_lax: {d_lax('1,1', '3,1'):.3f}, proven to {d_lax.error:.0e}")

# %% [markdown]
# Both have a matrix `d.values` and a proven error bound `d.error`: no entry is further from the
# true distance. `nearest` lists the neighbours of a state, and a map shows its distances to all
# states.

# %%
print("nearest to 1,1 by d_lax:", d_lax.nearest("1,1", k=4, names=True))
views.plot_distances_from(d_lax, "1,1")

# %% [markdown]
# ## Why are two states far apart?
#
# A distance is a discounted sum of reward differences, along the actions that separate the two
# states most. `explain` lists them. Each row is one step taken in both copies of the MDP.

# %%
print(d.explain("1,1", "3,1"))

# %% [markdown]
# One hits a wall where the other does not, again and again. Under `d_lax` the second state
# answers with another action:

# %%
print(d_lax.explain("1,1", "1,7"))

# %% [markdown]
# ## What a distance says about values
#
# Optimal values differ by no more than the distance:
# `|V*(s) - V*(t)| <= d_lax(s, t) <= d~(s, t)`. Each point below is a pair of states. No point is
# to the left of the line.

# %%
V = planning.optimal_values(mdp).values
pairs = np.triu_indices(mdp.num_states, 1)
difference = np.abs(V[:, None] - V)[pairs]

figure, axes = plt.subplots(figsize=(5, 3.6), layout="constrained")
axes.scatter(d.values[pairs], difference, s=14, alpha=0.5, label="d~")
axes.scatter(d_lax.values[pairs], difference, s=14, alpha=0.5, label="d_lax")
axes.axline((0, 0), slope=1, color="0.5", lw=1)
axes.set(xlim=(-0.5, None), ylim=(-0.1, 2.6), xlabel="distance", ylabel="difference of V*")
axes.legend()
plt.show()

# %% [markdown]
# The bound holds for every pair, and it is loose. Both metrics compare *all* actions, also bad
# ones such as walking into a wall, while V\* depends on the best action only.
#
# ## Compare states under one policy
#
# If one policy is fixed, the on-policy metric `d^pi` compares what *this policy* does in both
# states. It bounds differences of V^pi.

# %%
policy = planning.greedy_policy(mdp, V)
d_pi = exact.on_policy(mdp, policy)
V_pi = planning.policy_values(mdp, policy).values
worst = np.max(np.abs(V_pi[:, None] - V_pi) - d_pi.values)
print(f"largest violation of |V^pi(s) - V^pi(t)| <= d^pi(s, t): {max(worst, 0):.1e}")
print(f"d^pi(1,1; 3,1) = {d_pi('1,1', '3,1'):.3f}")
views.plot_distances_from(d_pi, "1,1")

# %% [markdown]
# `d^pi` alternates like a chessboard: this policy enters the goal on every second step, and two
# states whose turns coincide are near.
#
# ## The discount sets the scale
#
# Distances are sums of discounted rewards, so they grow with the horizon 1 / (1 - discount).
# Multiply by 1 - discount to compare discounts: the result is at most the range of the rewards.
# Near discount 1, almost all distances are equally large, because the same reward difference is
# collected over and over. Discounts around 0.9 separate states better.

# %%
for discount in (0.5, 0.9, 0.99):
    scaled = (1 - discount) * exact.lax(mdp.replace(discount=discount)).values[pairs]
    low, middle, high = np.quantile(scaled[scaled > 1e-9], [0.05, 0.5, 0.95])
    print(f"discount {discount}: (1 - discount) d_lax from {low:.2f} to {high:.2f}")

# %% [markdown]
# ## Save and load

# %%
d.save("rooms.npz")
print(type(d).load("rooms.npz"))

# %% [markdown]
# The same from a shell, for a grid in a text file:
# `bisimetric exact bisimulation rooms.txt --discount 0.9 -o rooms.npz --plot-map map.png`.
#
# ## Exercises
#
# 1. Move the goal into a corner. How many lax bisimulation classes remain, and why?
# 2. Which two cells are the farthest apart under `d_pi`? What does the policy do there?
# 3. Replace the wall in column 4 by floor. Do the distances in the left half change?
#
# ## Next steps
#
# - [A Gymnasium environment](gymnasium_environment.md): stochastic transitions.
# - [Bisimulation and its metrics](../concepts/bisimulation.md): definitions and theorems.
# - [Aggregate states](../how-to/aggregate.md): solve a smaller MDP, with a regret bound.
