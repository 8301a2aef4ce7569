"""Training on several devices: the same results, and data-parallel batches."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("jax")

FOUR_DEVICES = """
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_disable_most_optimizations", True)
from bisimetric import worlds
from bisimetric.learned import RunOptions, castro2020, fit, source_from_mdp
from bisimetric.learned.training import initialise_state

assert len(jax.devices()) == 4
source = source_from_mdp("bisimulation", worlds.load("mirrored-rooms", discount=0.9), noise=0.1)
config = castro2020.Castro2020Config((8,), batch_size=16, target_update_period=5)


def same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def run(seeds, **options):
    return fit("bisimulation", source, discount=0.9, updates=12, seeds=seeds, config=config,
               options=RunOptions(log_every=6), **options)


alone = run([3, 5, 7, 9], devices=jax.devices()[:1])
spread = run([3, 5, 7, 9])
assert spread.mesh.shape == {"seeds": 4, "batches": 1}
assert len(jax.tree.leaves(spread.state.parameters)[0].sharding.device_set) == 4
same(alone.state.parameters, spread.state.parameters)
np.testing.assert_array_equal(alone.history["loss"], spread.history["loss"])
rates = [1e-3, 1e-2, 1e-1, 1e-4, 1e-3, 1e-2]
six = run([0, 1, 2, 3, 4, 5], learning_rates=rates)
assert six.mesh.shape == {"seeds": 2, "batches": 1}
one = run([4], learning_rates=rates[4:5])
assert one.mesh is None
same(six.parameters(4), one.parameters(0))

# One seed on four devices: an update follows the mean gradient of four batches.
shared = fit("bisimulation", source, discount=0.9, updates=1, seeds=[3], config=config,
             options=RunOptions(data_parallel=True))
assert shared.mesh.shape == {"seeds": 1, "batches": 4}
features = source.scaling.num_features
first = initialise_state(config, config.network, features, jnp.stack([jax.random.key(3)]))
start = jax.tree.map(lambda leaf: leaf[0], first._replace(step=first.step[None]))
objective = config.build_objective(source, config.network, "bisimulation", 0.9)
prepared = objective.prepare(start.parameters, start.step)
batch_key = jax.random.split(start.key)[1]
gradients = [
    jax.grad(objective.loss)(start.parameters, prepared, jax.random.fold_in(batch_key, each))
    for each in range(4)
]
mean = jax.tree.map(lambda *each: sum(each) / 4, *gradients)
# Adam's first step is the learning rate, in the direction of the gradient.
wanted = jax.tree.map(
    lambda w, by: w - config.learning_rate * by / (jnp.abs(by) + config.epsilon),
    start.parameters, mean,
)
for a, b in zip(jax.tree.leaves(shared.parameters(0)), jax.tree.leaves(wanted), strict=True):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=1e-6)
print("all is well")
"""


@pytest.mark.slow
def test_four_devices() -> None:
    flags = "--xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-c", FOUR_DEVICES],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("all is well\n")
