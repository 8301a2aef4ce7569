# %% [markdown]
# # Learn a metric from observations
#
# Where states cannot be listed, a network learns the distance between observations. This tutorial
# learns two metrics, one whose exact values are known and one of CartPole, and shows how to judge
# the result. It needs `pip install 'bisimetric[learn,worlds]'`.
#
# ## A metric with a known answer
#
# Start where the exact metric exists. A grid of two rooms has 31 states; the network does not see
# them as a list, but as row and column.

# %%
import matplotlib.pyplot as plt
import numpy as np

from bisimetric import datasets, exact, learned, views, worlds

rooms = worlds.load("mirrored-rooms", discount=0.9)
reference = exact.bisimulation(rooms)
small = learned.PairQConfig(learned.MetricNetwork((64, 64), num_groups=16), batch_size=64)
d = learned.bisimulation(rooms, updates=2_000, seed=0, config=small, reference=reference)
print(d)

# %% [markdown]
# The default algorithm is pair Q-learning: `d~` is the value function of two copies of the MDP that
# take the same actions and are paid the difference of their rewards. With `reference=` the history
# records errors against the exact metric.

# %%
views.plot_training_curve(d.history)

# %%
pairs = np.triu_indices(rooms.num_states, 1)
error = np.abs(d.values - reference.values)[pairs]
print(f"distances from {reference.values[pairs].min():.2f} to {reference.values[pairs].max():.2f}")
print(f"error: mean {error.mean():.3f}, largest {error.max():.3f}")

figure, axes = plt.subplots(figsize=(4.2, 4), layout="constrained")
axes.scatter(reference.values[pairs], d.values[pairs], s=10, alpha=0.6)
axes.axline((12, 12), slope=1, color="0.5", lw=1)
axes.set(xlabel="exact d~", ylabel="learned d~")
plt.show()

# %% [markdown]
# ## CartPole
#
# CartPole has continuous observations: position and velocity of the cart, angle and angular
# velocity of the pole. A deterministic policy pushes against the motion of the cart.


# %%
def push_back(observation: np.ndarray) -> int:
    """Push to the right if the cart moves to the left."""
    return int(observation[1] < 0)


train = datasets.rollout("CartPole-v1", push_back, steps=5_000, seed=0)
test = datasets.rollout("CartPole-v1", push_back, episodes=20, seed=1)
print(train)

# %% [markdown]
# `learned.on_policy` learns `d^pi`, the metric of this policy, from transitions alone. Its targets
# add up the recorded rewards of the next ten steps. The default settings for recorded data on a CPU
# take about 15 seconds.

# %%
d = learned.on_policy(train, discount=0.9, seed=0)
first, later = test.observations[0], test.observations[30]
print(f"between two observations: {d(first, later):.2f}")
print(f"from one to the terminal state: {d(first, None):.2f}")

# %% [markdown]
# ### Is it any good?
#
# `quality` checks the axioms of a metric and the Bellman equation on held-out transitions. The
# network is a metric by construction, so the first three are 0 up to rounding. The residual must be
# small in comparison with `max_distance`.

# %%
quality = d.quality(test)
for name, value in quality._asdict().items():
    print(f"{name:13} {value:.4f}")

# %% [markdown]
# A small residual is necessary and not sufficient. CartPole allows a stronger check: every step
# pays 1 until the pole falls. So `d^pi(x, y)` is the difference of the two values, and the value
# follows from the number of steps that remain in the recorded episode.

# %%
remaining = np.concatenate([np.arange(len(episode), 0, -1) for episode in test.episodes()])
V = (1 - 0.9**remaining) / (1 - 0.9)
expected = np.abs(V[:, None] - V)
found = d.table(test.observations)
error = np.abs(found - expected)
print(f"correlation {np.corrcoef(found.ravel(), expected.ravel())[0, 1]:.3f}")
print(f"error: mean {error.mean():.2f}, largest {error.max():.2f}, of {expected.max():.2f}")

# %% [markdown]
# ### What does the distance see?
#
# Distances of held-out observations from the first one, over the angle of the pole and its angular
# velocity. Observations are far from the first one where the pole is about to fall.

# %%
figure, axes = plt.subplots(figsize=(5.4, 3.8), layout="constrained")
shown = axes.scatter(
    test.observations[:, 2], test.observations[:, 3], c=found[0], s=12, cmap="viridis"
)
axes.plot(*test.observations[0, 2:], "*", color="#e4007c", markersize=14)
axes.set(xlabel="angle of the pole", ylabel="angular velocity")
figure.colorbar(shown, label="learned distance from the star")
plt.show()

# %% [markdown]
# ### Nearest observations
#
# The distance is a metric, so an index with pivots finds neighbours without comparing everything.

# %%
index = learned.PivotIndex(d, train.observations)
print(index.nearest(test.observations[10], k=3))

# %% [markdown]
# ## Save and load

# %%
d.save("cart.safetensors")
print(learned.LearnedDistance.load("cart.safetensors"))

# %% [markdown]
# ## Limits
#
# - Nothing is proven about a learned distance: `error` does not exist, and its uses have no bounds.
# - Where observations never repeat, as here, transitions must be deterministic, and for `d^pi` the
#   policy too. Otherwise the result is larger than the metric, unless a transition model is
#   estimated: `config=learned.ModelBasedConfig()`.
# - At a discount of 0.99 the horizon is ten times as long, and training takes more updates.
#
# ## Exercises
#
# 1. Look one step ahead: `dataclasses.replace(learned.choose_config("on_policy", train),
#    lookahead=1)` as `config`. How much larger is the error on held-out episodes?
# 2. Train with another seed. How far apart are the two learned distances?
# 3. Replace the policy by one that balances the pole, `int(o[2] + 0.3 * o[3] > 0)`. Why does the
#    check by remaining steps fail there? (Episodes are truncated after 500 steps.)
#
# ## Next steps
#
# - [Learned objectives](../concepts/learned.md): the algorithms and their assumptions.
# - [Use your own encoder](../how-to/encoder.md): images and other features.
# - [Algorithms compared](../reports/algorithms.md): errors against exact metrics, with ablations.
