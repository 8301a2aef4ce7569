"""How fast networks learn here: `python benchmarks/learning.py`, on a GPU where there is one.

Prints the time of a step, what the whole run would take, the memory of a step, and the share that
the arithmetic has of what the device can do: a matrix product in float32, measured in the same run,
on a processor; 67 TFLOP/s of an H200's plain float32 units, which these sums run on.
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
    castro2020.PairNetwork((16, 16), output="relu"),
    batch=128,
    learning_rate=7.5e-5,
    epsilon=1.5e-4,
    target_update_period=125,
    horizon_growth=0.99,
)
GPU = jax.default_backend() == "gpu"
H200 = 67e12
Row = tuple[str, str, str]


def measured(source: Any, settings: Any, kind: Any, keys: int, steps: int) -> tuple[float, int]:
    """Seconds a step, compiled before, and the bytes that a step needs besides its arguments."""
    seeds = jnp.stack([jax.random.key(key) for key in range(keys)])
    network = settings.network_of(source, kind, DISCOUNT)
    state = training.initialise_state(settings, network, source.scale.features, seeds)
    given: dict[str, Any] = {
        "settings": settings,
        "network": network,
        "kind": kind,
        "discount": DISCOUNT,
        "of": steps,
    }
    plan = training.plan_updates(0, steps, settings.period)
    program: Any = training._advance_compiled
    lowered = program.lower(
        state, source, jnp.int32(steps), settings, network, kind, DISCOUNT, plan
    )
    analysis: Any = lowered.compile().memory_analysis()
    memory = 0 if analysis is None else analysis.temp_size_in_bytes
    times = []
    for _ in range(3):
        began = time.perf_counter()
        jax.block_until_ready(training.advance(state, source, updates=steps, **given))
        times.append((time.perf_counter() - began) / steps)
    return min(times[1:]), int(memory)


def peak() -> float:
    """Floating-point operations a second that the device is measured by."""
    if GPU:
        return H200
    a = jnp.ones((2048, 2048))
    product = jax.jit(lambda x: x @ x)
    jax.block_until_ready(product(a))
    began = time.perf_counter()
    for _ in range(5):
        jax.block_until_ready(product(a))
    return float(5 * 2 * 2048**3 / (time.perf_counter() - began))


def compared(source: Any) -> float:
    """How many pairs of a batch with noise are computed: on a GPU, tiles with equal actions."""
    if not GPU:
        return float(PAPER_CONFIG.batch**2)
    tiles = []
    for key in range(20):
        actions = jnp.sort(source.batch(jax.random.key(key), PAPER_CONFIG.batch).action)
        tiles.append(float(build_tile_groups(actions).tiles.sum()) * TILE**2)
    return float(np.mean(tiles))


def grid() -> Iterator[Row]:
    """The paper's GridWorld: 31 states, with and without noise."""
    mdp = worlds.load("mirrored-rooms", discount=DISCOUNT)
    most = peak()
    for noise in (0.1, 0.0):
        source = source_from_mdp(
            "bisimulation",
            mdp,
            points=cell_centres(mdp),
            scaling=SCALING,
            noise=noise,
            noise_clip=NOISE_CLIP if noise else 0.0,
        )
        pairs = compared(source) if noise else float(mdp.num_states**2)
        # A pair and unit takes 4 operations forwards and 6 back; with noise the target network
        # runs forwards twice as well.
        operations = pairs * PAPER_CONFIG.network.hidden[0] * (10 + (8 if noise else 0))  # type: ignore[union-attr]
        for keys in (1, 10) if GPU else (1,):
            steps = 2_000 if GPU else (500 if noise == 0 else 20)
            seconds, memory = measured(source, PAPER_CONFIG, "bisimulation", keys, steps)
            yield (
                f"GridWorld, noise {'on' if noise else 'off'}, {keys} seed{'s' * (keys > 1)}",
                f"{seconds * 1e3:.3g} ms a step, {seconds * 240_000:,.0f} s for 240,000",
                f"{memory / 2**20:,.0f} MiB; {keys * operations / seconds / most:.0%} of "
                f"{most / 1e12:.3g} TFLOP/s",
            )


def recipe() -> Iterator[Row]:
    """The same grid by the recipe of `learned`, with either network."""
    mdp = worlds.load("mirrored-rooms", discount=DISCOUNT)
    for noise in (0.1, 0.0):
        source = source_from_mdp("bisimulation", mdp, noise=noise)
        for name, settings in (("metric", PairQConfig()), ("free", PairQConfig(FreeNetwork()))):
            for keys in (1, 10) if GPU else (1,):
                steps = 2_000 if GPU else (500 if noise == 0 else 25)
                seconds, memory = measured(source, settings, "bisimulation", keys, steps)
                yield (
                    f"`learned`, {name} network, noise {'on' if noise else 'off'}, "
                    f"{keys} seed{'s' * (keys > 1)}",
                    f"{seconds * 1e3:.3g} ms a step, {seconds * 24_000:,.0f} s for 24,000",
                    f"{memory / 2**20:,.0f} MiB",
                )


def atari() -> Iterator[Row]:
    """A problem of the size of the paper's Atari games: 512 features, 16-16-1, batches of 128."""
    rng = np.random.default_rng(0)
    seen = rng.random((100_001, 512), dtype=np.float32)
    nothing = np.zeros(100_000, dtype=np.int64)
    data = Transitions(seen[:-1], nothing, rng.random(100_000), seen[1:], nothing > 0)
    source = source_from_transitions("on_policy", data)
    b = ATARI.batch
    operations = 3 * 2 * 2 * (2 * b * 512 * 16) + 4 * b * b * (16 * 4 + 2 * 16 * 16 + 2 * 16)
    for keys in (1, 16) if GPU else (1,):
        steps = 20_000 if GPU else 1_000
        seconds, memory = measured(source, ATARI, "on_policy", keys, steps)
        yield (
            f"Atari-sized, {keys} seed{'s' * (keys > 1)}",
            f"{seconds * 1e6:.3g} microseconds a step, {seconds * 600_000:,.0f} s for 600,000",
            f"{memory / 2**20:,.0f} MiB; {keys * operations / seconds / peak():.1%} of "
            f"{peak() / 1e12:.3g} TFLOP/s",
        )


def main() -> None:
    print(f"Device: {jax.devices()[0].device_kind}, JAX {jax.__version__}.\n")
    print("| what | result | memory of a step; share of the peak |\n|---|---|---|")
    for row in (*grid(), *recipe(), *atari()):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
