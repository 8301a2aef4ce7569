# %% [markdown]
# # From a replay buffer to bounds
#
# An agent has acted in an environment and left a replay buffer. Which states does that data show to
# be similar, and which distances does it *prove*? This tutorial goes from arrays to an empirical
# model, to its coverage, and to intervals that contain the true distance. It needs
# `pip install 'bisimetric[worlds]'`.
#
# ## A replay buffer
#
# A Q-learning agent explores FrozenLake without slipping. Its buffer is a list of plain tuples.

# %%
import warnings

import gymnasium
import matplotlib.pyplot as plt
import numpy as np

from bisimetric import Transitions, datasets, exact, sampled, views, worlds
from bisimetric.errors import ExpectedRewardWarning, InputError

rng = np.random.default_rng(0)
env = gymnasium.make("FrozenLake-v1", map_name="4x4", is_slippery=False)
Q = np.zeros((16, 4))
buffer = []
observation = env.reset(seed=0)[0]
for _ in range(3_000):
    explore = rng.random() < 0.5 or not Q[observation].any()
    action = int(rng.integers(4) if explore else Q[observation].argmax())
    successor, reward, terminated, truncated, info = env.step(action)
    buffer.append((observation, action, reward, successor, terminated, truncated))
    target = reward + 0.9 * Q[successor].max() * (not terminated)
    Q[observation, action] += 0.5 * (target - Q[observation, action])
    observation = env.reset()[0] if terminated or truncated else successor

# %% [markdown]
# `Transitions` takes the six columns. Integer observations are ids of states. Termination and
# truncation are different: a terminated episode moves to an absorbing terminal state, a truncated
# one was only cut.

# %%
data = Transitions(*(np.array(column) for column in zip(*buffer, strict=True)))
print(data)

# %% [markdown]
# Buffers of Stable-Baselines3, Dopamine and Minari have functions of their own:
# [Read SB3, CleanRL and Minari data](../how-to/data.md).
#
# ## What the data prove
#
# `sampled.bisimulation` applies the sampled update of Castro (2020) to pairs of transitions. Its
# result never exceeds `d~`. A distance is *proven* once all pairs of states that it depends on were
# observed under all actions.

# %%
d = sampled.bisimulation(data[:1_000], discount=0.9, seed=0)
print(d)
print(d.coverage)

# %% [markdown]
# After 1,000 steps some actions were never tried. Without them nothing is known about the pairs
# that depend on them, so the upper ends of their intervals are infinite.

# %%
print("1,000 steps:", d.bounds(0, 8))
d = sampled.bisimulation(data, discount=0.9, seed=0)
print("3,000 steps:", d.bounds(0, 8))
print(d.coverage)

# %% [markdown]
# ### How much data is enough?
#
# The fraction of proven pairs jumps: most pairs lead everywhere, so one missing action leaves
# nearly all of them open. The lower bounds are useful long before.

# %%
sizes = [250, 500, 750, 1_000, 1_500, 2_000, 2_500, 3_000]
known, proven, lower = [], [], []
for size in sizes:
    d = sampled.bisimulation(data[:size], discount=0.9, seed=0)
    assert d.coverage is not None
    states = np.flatnonzero(d.coverage.visited)
    known.append(d.coverage.known[states].mean())
    proven.append(d.coverage.num_proven / d.coverage.num_state_pairs)
    lower.append(d.values[0, 8])

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.plot(sizes, known, "o-", label="known transitions")
left.plot(sizes, proven, "s-", label="proven pairs of states")
left.set(xlabel="steps in the buffer", ylabel="fraction", ylim=(-0.05, 1.05))
left.legend()
right.plot(sizes, lower, "o-")
right.set(xlabel="steps in the buffer", ylabel="lower bound on d~(0, 8)", ylim=(0, None))
plt.show()

# %% [markdown]
# ## The empirical model
#
# If the data cover the environment, the empirical MDP is the better tool: `to_mdp` counts
# transitions, and `exact` solves the result. Unvisited actions raise an error that names them.

# %%
try:
    data[:1_000].to_mdp(discount=0.9)
except InputError as error:
    print(error)

# %%
model = data.to_mdp(discount=0.9)
reference = exact.bisimulation(model)
print(model)
print(reference)
ids = np.unique(data.observations)
difference = np.abs(reference.values - d.values)[ids][:, ids].max()
print(f"largest difference to the sampled distance: {difference:.1e}")

# %% [markdown]
# ## Stochastic data
#
# On slippery ice an action has several outcomes. Pairs of single transitions then overestimate
# distances, and `sampled` raises an error:

# %%
warnings.simplefilter("ignore", ExpectedRewardWarning)
ice = datasets.rollout("FrozenLake-v1", steps=30_000, seed=0)
try:
    sampled.bisimulation(ice, discount=0.9)
except InputError as error:
    print(error)

# %% [markdown]
# The empirical model does not need determinism. Its distance has a proven error, but only *with
# respect to the empirical model*: it says nothing about how far the estimated probabilities are
# from the true ones. Here the true model is known, so that can be measured. Where it is not,
# `exact.confidence_bounds` bounds the distances of the environment with some probability.

# %%
reference = exact.bisimulation(worlds.load("FrozenLake-v1", discount=0.9))
visited = np.unique(ice.observations)
block = np.ix_(visited, visited)
print(f"largest distance {reference.values[block].max():.3f}")
for size in (3_000, 10_000, 30_000):
    model = ice[:size].to_mdp(discount=0.9, unseen="missing")
    estimate = exact.bisimulation(model)
    deviation = np.abs(estimate.values[block] - reference.values[block])
    print(f"{size:6} steps: largest error {deviation.max():.3f}, mean {deviation.mean():.3f}")

# %% [markdown]
# The certified error is about arithmetic; the sampling error is about data.
#
# ## Where are the distances?
#
# A map needs positions. `datasets.rollout` records them for FrozenLake.

# %%
lake = datasets.rollout("FrozenLake-v1", steps=2_000, seed=0, is_slippery=False)
views.plot_distances_from(sampled.bisimulation(lake, discount=0.9, seed=0), "0,0")

# %% [markdown]
# No step starts in a hole or at the goal, so these five cells have no distances. `end` is the
# terminal state, to which they all lead.
#
# ## Exercises
#
# 1. Replace the agent by uniformly random actions. Does it take more or fewer steps until all pairs
#    are proven? `d.coverage.unseen` lists what is missing.
# 2. Pass `sampler=sampled.Prioritised()`. How many pairs of transitions does the run need?
# 3. Split the buffer by episodes, `data.split(0.5, 0.5, seed=0)`, and compare the two distances.
#
# ## Next steps
#
# - [Coverage](../concepts/coverage.md): the theorem behind the intervals.
# - [Compress a replay buffer](../how-to/compress.md): keep a coreset of the transitions.
# - [Learn a metric from observations](learned_metric.md): when states have no ids.
