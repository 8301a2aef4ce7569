"""Training on several devices: the same results, and batches that are shared."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("jax")

FOUR = """
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_disable_most_optimizations", True)
from bisimetric import worlds
from bisimetric.learned import fit, paper
from bisimetric.learned.build_sources import of_mdp
from bisimetric.learned.training import started

assert len(jax.devices()) == 4
source = of_mdp("bisimulation", worlds.load("mirrored-rooms", discount=0.9), noise=0.1)
small = paper.Settings((8,), batch=16, period=5)


def same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def run(keys, **options):
    return fit("bisimulation", source, discount=0.9, steps=12, keys=keys, settings=small, every=6,
               **options)


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

# One seed on four devices: a step follows the mean of four batches.
shared = fit("bisimulation", source, discount=0.9, steps=1, keys=[3], settings=small, share=True)
assert shared.mesh.shape == {"seeds": 1, "batches": 4}
first = started(small, small.network, source.scale.features, jnp.stack([jax.random.key(3)]))
start = jax.tree.map(lambda leaf: leaf[0], first._replace(step=first.step[None]))
learner = small.learner(source, small.network, "bisimulation", 0.9)
frozen = learner.frozen(start.parameters, start.step)
drawn = jax.random.split(start.key)[1]
slopes = [
    jax.grad(learner.loss)(start.parameters, frozen, jax.random.fold_in(drawn, each))
    for each in range(4)
]
mean = jax.tree.map(lambda *each: sum(each) / 4, *slopes)
# Adam's first step is the rate, in the direction of the slope.
wanted = jax.tree.map(
    lambda w, by: w - small.learning_rate * by / (jnp.abs(by) + small.epsilon),
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
        [sys.executable, "-c", FOUR],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("all is well\n")
