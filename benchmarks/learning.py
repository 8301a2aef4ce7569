"""Time training updates: `python benchmarks/learning.py`, on a GPU where there is one.

Prints the time per update, the time of the whole run, the memory of an update, and the share of the
peak arithmetic of the device: on a CPU a float32 matrix product, measured in the same run; on an
H200 the 67 TFLOP/s of its plain float32 units, which these sums run on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bisimetric import Transitions, worlds
from bisimetric.learned import (
    FreeNetwork,
    PairQConfig,
    castro2020,
    source_from_mdp,
    source_from_transitions,
    training,
)
from bisimetric.learned.networks.pair_layer import TILE, build_tile_groups
from bisimetric.paper.gridworld import DISCOUNT, NOISE_CLIP, PAPER_CONFIG, SCALING, cell_centres

ATARI = castro2020.Castro2020Config(
    castro2020.PairNetwork((16, 16), output_activation="relu"),
    batch_size=128,
    learning_rate=7.5e-5,
    epsilon=1.5e-4,
    target_update_period=125,
    horizon_growth=0.99,
)
GPU = jax.default_backend() == "gpu"
H200 = 67e12
Row = tuple[str, str, str]


def time_update(
    source: Any, config: Any, kind: Any, num_seeds: int, updates: int
) -> tuple[float, int]:
    """Return the seconds per update, compiled before, and its scratch memory in bytes."""
    keys = jnp.stack([jax.random.key(seed) for seed in range(num_seeds)])
    network = config.build_network(source, kind, DISCOUNT)
    state = training.initialise_state(config, network, source.scaling.num_features, keys)
    arguments: dict[str, Any] = {
        "config": config,
        "network": network,
        "kind": kind,
        "discount": DISCOUNT,
        "updates": updates,
        "total_updates": updates,
    }
    plan = training.plan_updates(0, updates, config.target_update_period)
    program: Any = training._advance_compiled
    lowered = program.lower(
        state, source, jnp.int32(updates), None, config, network, kind, DISCOUNT, plan, None
    )
    analysis: Any = lowered.compile().memory_analysis()
    memory = 0 if analysis is None else analysis.temp_size_in_bytes
    times = []
    for _ in range(3):
        start_time = time.perf_counter()
        jax.block_until_ready(training.advance(state, source, **arguments))
        times.append((time.perf_counter() - start_time) / updates)
    return min(times[1:]), int(memory)


def measure_peak() -> float:
    """Return the peak floating-point operations per second of the device."""
    if GPU:
        return H200
    a = jnp.ones((2048, 2048))
    product = jax.jit(lambda x: x @ x)
    jax.block_until_ready(product(a))
    start_time = time.perf_counter()
    for _ in range(5):
        jax.block_until_ready(product(a))
    return float(5 * 2 * 2048**3 / (time.perf_counter() - start_time))


def count_pairs(source: Any) -> float:
    """Return the pairs of a noisy batch that are computed: on a GPU, tiles with equal actions."""
    if not GPU:
        return float(PAPER_CONFIG.batch_size**2)
    tiles = []
    for key in range(20):
        actions = jnp.sort(source.sample_batch(jax.random.key(key), PAPER_CONFIG.batch_size).action)
        tiles.append(float(build_tile_groups(actions).tiles.sum()) * TILE**2)
    return float(np.mean(tiles))


def time_gridworld() -> Iterator[Row]:
    """Time Castro (2020) on the paper's GridWorld: 31 states, with and without noise."""
    mdp = worlds.load("mirrored-rooms", discount=DISCOUNT)
    peak = measure_peak()
    for noise in (0.1, 0.0):
        source = source_from_mdp(
            "bisimulation",
            mdp,
            points=cell_centres(mdp),
            scaling=SCALING,
            noise=noise,
            noise_clip=NOISE_CLIP if noise else 0.0,
        )
        pairs = count_pairs(source) if noise else float(mdp.num_states**2)
        # Per pair and hidden unit 4 operations forward and 6 backward; with noise two more forward
        # passes of the target network.
        operations = pairs * PAPER_CONFIG.network.hidden[0] * (10 + (8 if noise else 0))  # type: ignore[union-attr]
        for num_seeds in (1, 10) if GPU else (1,):
            updates = 2_000 if GPU else (500 if noise == 0 else 20)
            seconds, memory = time_update(source, PAPER_CONFIG, "bisimulation", num_seeds, updates)
            yield (
                f"GridWorld, noise {'on' if noise else 'off'}, "
                f"{num_seeds} seed{'s' * (num_seeds > 1)}",
                f"{seconds * 1e3:.3g} ms per update, {seconds * 240_000:,.0f} s for 240,000",
                f"{memory / 2**20:,.0f} MiB; {num_seeds * operations / seconds / peak:.0%} of "
                f"{peak / 1e12:.3g} TFLOP/s",
            )


def time_pair_q() -> Iterator[Row]:
    """Time pair Q-learning on the same grid, with either network."""
    mdp = worlds.load("mirrored-rooms", discount=DISCOUNT)
    for noise in (0.1, 0.0):
        source = source_from_mdp("bisimulation", mdp, noise=noise)
        for name, config in (("metric", PairQConfig()), ("free", PairQConfig(FreeNetwork()))):
            for num_seeds in (1, 10) if GPU else (1,):
                updates = 2_000 if GPU else (500 if noise == 0 else 25)
                seconds, memory = time_update(source, config, "bisimulation", num_seeds, updates)
                yield (
                    f"pair-q, {name} network, noise {'on' if noise else 'off'}, "
                    f"{num_seeds} seed{'s' * (num_seeds > 1)}",
                    f"{seconds * 1e3:.3g} ms per update, {seconds * 24_000:,.0f} s for 24,000",
                    f"{memory / 2**20:,.0f} MiB",
                )


def time_atari() -> Iterator[Row]:
    """Time a problem of the size of the paper's Atari games: 512 features, batches of 128."""
    rng = np.random.default_rng(0)
    observations = rng.random((100_001, 512), dtype=np.float32)
    zeros = np.zeros(100_000, dtype=np.int64)
    data = Transitions(observations[:-1], zeros, rng.random(100_000), observations[1:], zeros > 0)
    source = source_from_transitions("on_policy", data)
    b, peak = ATARI.batch_size, measure_peak()
    operations = 3 * 2 * 2 * (2 * b * 512 * 16) + 4 * b * b * (16 * 4 + 2 * 16 * 16 + 2 * 16)
    for num_seeds in (1, 16) if GPU else (1,):
        updates = 20_000 if GPU else 1_000
        seconds, memory = time_update(source, ATARI, "on_policy", num_seeds, updates)
        yield (
            f"Atari-sized, {num_seeds} seed{'s' * (num_seeds > 1)}",
            f"{seconds * 1e6:.3g} microseconds per update, {seconds * 600_000:,.0f} s for 600,000",
            f"{memory / 2**20:,.0f} MiB; {num_seeds * operations / seconds / peak:.1%} of "
            f"{peak / 1e12:.3g} TFLOP/s",
        )


def main() -> None:
    print(f"Device: {jax.devices()[0].device_kind}, JAX {jax.__version__}.\n")
    print("| what | result | memory of an update; share of the peak |\n|---|---|---|")
    for row in (*time_gridworld(), *time_pair_q(), *time_atari()):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
