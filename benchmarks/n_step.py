"""n-step targets for CartPole: `python benchmarks/n_step.py` (about ten minutes on two cores).

Learns d^pi from 5,000 recorded steps at discount 0.9, and compares it with the exact d^pi between
the steps of 40 held-out episodes. First with default settings, for several seeds; then with
3,000 updates for several n, where the recorded policy takes a random action with probability
epsilon. The held-out episodes have no such noise: the reference is always the d^pi of the
deterministic policy. Needs `pip install 'bisimetric[learn,worlds]'`.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from bisimetric import Transitions, datasets, learned

DISCOUNT = 0.9
STEPS = 5_000
UPDATES = 3_000
LOOKAHEADS = (1, 5, 10, 30, math.inf)
NOISES = (0.0, 0.01, 0.05, 0.1)


def record_steps(epsilon: float, seed: int, **length: Any) -> Transitions:
    """Record CartPole under a policy that pushes against the motion of the cart."""
    rng = np.random.default_rng(seed)

    def push_back(observation: NDArray[Any]) -> int:
        if rng.random() < epsilon:
            return int(rng.integers(2))
        return int(observation[1] < 0)

    return datasets.rollout("CartPole-v1", push_back, seed=seed, **length)


def compute_reference(data: Transitions) -> NDArray[np.float64]:
    """Return d(i, j) = |r_i - r_j| + discount * d(i + 1, j + 1), with reward 0 after the end."""
    if not all(episode.terminated[-1] for episode in data.episodes()):
        raise SystemExit("n_step: a held-out episode was truncated; choose another seed.")
    lengths = [len(episode) for episode in data.episodes()]
    remaining = np.concatenate([np.arange(each, 0, -1) for each in lengths])
    rows, total = np.arange(len(data)), np.zeros((len(data), len(data)))
    for k in range(max(lengths)):
        within = k < remaining
        reward = np.where(within, data.rewards[np.where(within, rows + k, 0)], 0.0)
        total += DISCOUNT**k * np.abs(reward[:, None] - reward)
    return total


def measure(
    train: Transitions, test: Transitions, reference: NDArray[np.float64], **options: Any
) -> tuple[float, float, float, float]:
    """Train; return the held-out correlation and mean error, the CPU seconds and the seconds."""
    start_time, start_cpu = time.perf_counter(), time.process_time()
    d = learned.on_policy(train, discount=DISCOUNT, **options)
    seconds, cpu = time.perf_counter() - start_time, time.process_time() - start_cpu
    found = d.table(test.observations)
    correlation = float(np.corrcoef(found.ravel(), reference.ravel())[0, 1])
    return correlation, float(np.abs(found - reference).mean()), cpu, seconds


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    test = record_steps(0.0, 2, episodes=4 if quick else 40)
    reference = compute_reference(test)
    clean = record_steps(0.0, 0, steps=STEPS)
    print(f"Device: {jax.devices()[0].device_kind}, JAX {jax.__version__}.")
    print(f"Held out: {test}, largest distance {reference.max():.2f}.\n")
    print("| seed | correlation | mean error | CPU seconds | seconds |\n|---|---|---|---|---|")
    for seed in range(1 if quick else 3):
        limits = {"updates": 20} if quick else {}
        row = measure(clean, test, reference, seed=seed, **limits)
        print("| {} | {:.4f} | {:.3f} | {:.0f} | {:.0f} |".format(seed, *row), flush=True)
    names = ["infinite" if math.isinf(n) else str(n) for n in LOOKAHEADS]
    print(f"\n| epsilon | n = {' | n = '.join(names)} |\n|---|{'---|' * len(names)}")
    for epsilon in NOISES[:1] if quick else NOISES:
        train = clean if epsilon == 0 else record_steps(epsilon, 0, steps=STEPS)
        cells = []
        for lookahead in LOOKAHEADS:
            config = learned.choose_config("on_policy", train)
            config = dataclasses.replace(config, lookahead=lookahead)
            correlation, error, _, _ = measure(
                train, test, reference, config=config, updates=20 if quick else UPDATES
            )
            cells.append(f"{correlation:.4f}, {error:.3f}")
        print(f"| {epsilon} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
