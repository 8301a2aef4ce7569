"""Training that cannot fit into memory is refused before anything is allocated."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from bisimetric.errors import InsufficientMemory
from bisimetric.learned import PairQConfig, castro2020, fit, source_from_mdp
from bisimetric.learned.networks.metric_networks import FreeNetwork, MetricNetwork, PairQEnsemble
from bisimetric.learned.networks.pair_network import PairNetwork
from bisimetric.learned.training import count_weights
from tests.learned_references import STATES, TRIANGLE

HUGE = 10**9
NOISY = source_from_mdp("bisimulation", TRIANGLE, points=np.eye(3), noise=0.1, noise_clip=0.3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            PairQConfig(batch_size=10 * HUGE),
            "a batch of 10,000,000,000 needs .* lower the batch of",
        ),
        (PairQConfig(batch_size=HUGE), "a batch of 1,000,000,000 needs .* lower the batch of"),
        (PairQConfig(MetricNetwork((HUGE,))), "a network of .* weights .* give fewer hidden units"),
        (PairQConfig(MetricNetwork((HUGE, 10**30))), "a network of .* weights with the optimiser"),
        (PairQConfig(MetricNetwork(num_groups=HUGE)), "a network of .* weights with the optimiser"),
        (PairQConfig(MetricNetwork(group_size=HUGE)), "a network of .* weights with the optimiser"),
        (
            PairQConfig(MetricNetwork(fourier_features=HUGE)),
            "a network of .* weights with the optimiser",
        ),
        (PairQConfig(FreeNetwork((100 * HUGE,))), "a network of .* weights with the optimiser"),
        (PairQConfig(num_networks=HUGE), "a network of .* weights with the optimiser"),
        (castro2020.Castro2020Config(batch_size=100 * HUGE), "a batch of 100,000,000,000 needs"),
        (
            castro2020.Castro2020Config(network=PairNetwork((10 * HUGE,))),
            "a network of .* weights with the optimiser",
        ),
        (
            castro2020.Castro2020Config(network=PairNetwork((10**6, 10**6))),
            "a network of .* weights with the optimiser",
        ),
    ],
)
@pytest.mark.parametrize("source", [STATES, NOISY])
def test_sizes_that_cannot_fit_raise(settings: Any, message: str, source: Any) -> None:
    with pytest.raises(InsufficientMemory, match=f"^learned.bisimulation: {message}"):
        fit("bisimulation", source, discount=0.5, updates=1, config=settings)


def test_a_batch_of_pairs_raises_even_if_its_rows_fit() -> None:
    with pytest.raises(InsufficientMemory, match=r"a batch of 10,000,000 needs \d+ TiB"):
        fit(
            "bisimulation",
            NOISY,
            discount=0.5,
            updates=1,
            config=castro2020.Castro2020Config(batch_size=10**7),
        )


def test_memory_that_xla_cannot_get_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if the estimate had been too low.
    monkeypatch.setattr("bisimetric.learned._fit.require_training_memory", lambda *_: None)

    def raise_out_of_memory(*_: Any) -> None:
        raise jax.errors.JaxRuntimeError("INTERNAL: Out of memory allocating 44004583000 bytes.")

    monkeypatch.setattr("bisimetric.learned._fit._advance", raise_out_of_memory)
    with pytest.raises(
        InsufficientMemory, match="a batch of 16 ran out of memory; lower batch_size"
    ):
        fit("bisimulation", STATES, discount=0.5, updates=1, config=PairQConfig(batch_size=16))


def test_too_many_seeds_raise() -> None:
    wide = castro2020.Castro2020Config(network=PairNetwork((10**5,)))
    with pytest.raises(
        InsufficientMemory, match=r"100,000 networks of 800,001 weights .* state need"
    ):
        fit("bisimulation", STATES, discount=0.5, updates=1, config=wide, seeds=range(10**5))


@pytest.mark.parametrize(
    "network",
    [
        PairNetwork((5, 4)),
        PairQEnsemble(MetricNetwork((5, 4), num_groups=3, group_size=2), 3, 1.0, 1.0, 3),
        PairQEnsemble(MetricNetwork((5,), fourier_features="random"), 2, 1.0, 1.0, 2),
        PairQEnsemble(FreeNetwork((7,)), 2, 1.0, 1.0, 1),
    ],
)
def test_weights_are_counted_as_they_are_made(network: Any) -> None:
    made = jax.eval_shape(lambda key: network.init(key, 2), jax.random.key(0))
    size = sum(leaf.size for leaf in jax.tree.leaves(made))
    assert count_weights(network, 2)[0] == size
