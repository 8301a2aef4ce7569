"""One update of Rainbow: the distribution of returns moves towards that of what came next.

    target = reward + discount^n * support, by the target network's best action, put on the support
    loss   = weight * cross-entropy(target, what the network says)

Priorities are the square root of the loss. As in Dopamine: 3 steps, Adam, no double learning.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from bisimetric.agents.rainbow.network import Network, Parameters
from bisimetric.agents.rainbow.replay import Drawn, Replay, drawn, ranked
from bisimetric.agents.rainbow.settings import Settings


class Learner(NamedTuple):
    """What learns: the network, the target network, and Adam's memory."""

    parameters: Parameters
    target: Parameters
    optimiser: Any


def started(network: Network, settings: Settings, key: Array) -> Learner:
    """A learner that knows nothing."""
    parameters = network.init(key)
    kept = jax.tree.map(jnp.copy, parameters)
    return Learner(parameters, kept, adam(settings).init(parameters))


def adam(settings: Settings) -> Any:
    return optax.adam(settings.learning_rate, eps=settings.epsilon)


def updated(
    network: Network, settings: Settings, learner: Learner, replay: Replay, key: Array
) -> tuple[Learner, Replay, Array]:
    """After one batch; with its mean loss."""
    draw = drawn(replay, key, settings.batch, settings.ahead, settings.discount)
    goal = towards(network, learner.target, draw)

    def loss(parameters: Parameters) -> tuple[Array, Array]:
        logits, _ = network.apply(parameters, draw.here)
        said = jax.nn.log_softmax(_of(logits, draw.action))
        losses = -(goal * said).sum(axis=1)
        return (draw.weight * losses).mean(), losses

    (mean, losses), slope = jax.value_and_grad(loss, has_aux=True)(learner.parameters)
    moves, optimiser = adam(settings).update(slope, learner.optimiser)
    parameters = optax.apply_updates(learner.parameters, moves)
    replay = ranked(replay, draw, jnp.sqrt(losses + 1e-10))
    return learner._replace(parameters=parameters, optimiser=optimiser), replay, mean


def towards(network: Network, target: Parameters, draw: Drawn) -> Array:
    """The distributions (b, atoms) of what was earned and what the target network expects next."""
    logits, _ = network.apply(target, draw.there)
    best = network.values(logits).argmax(axis=1)
    chances = jax.nn.softmax(_of(logits, best))
    returns = draw.reward[:, None] + draw.discount[:, None] * network.support
    return projected(network, returns, chances)


def projected(network: Network, returns: Array, chances: Array) -> Array:
    """Distributions (b, atoms) at any returns (b, k), shared between the two nearest atoms.

    >>> network = Network(actions=2, atoms=3, reach=1.0)
    >>> projected(network, jnp.array([[0.5, 7.0]]), jnp.array([[0.5, 0.5]])).tolist()
    [[0.0, 0.25, 0.75]]
    """
    gap = 2 * network.reach / (network.atoms - 1)
    kept = jnp.clip(returns, -network.reach, network.reach)
    near = 1 - jnp.abs(kept[:, None, :] - network.support[None, :, None]) / gap
    return (jnp.clip(near, 0, 1) * chances[:, None, :]).sum(axis=2)


def _of(logits: Array, action: Array) -> Array:
    """The logits (b, atoms) of one action each."""
    return jnp.take_along_axis(logits, action[:, None, None], axis=1)[:, 0]
