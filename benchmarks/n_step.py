"""n-step targets for CartPole: `python benchmarks/n_step.py` (ten to twenty minutes on two cores).

    python benchmarks/n_step.py defaults    # default settings, 10 seeds
    python benchmarks/n_step.py lookaheads  # several n, data with noise
    python benchmarks/n_step.py limits      # what other methods reach with the same data

Learns d^pi from 5,000 recorded steps at discount 0.9, and compares it with the exact d^pi between
the steps of 40 held-out episodes. With default settings; and with 8,000 updates for several
n, where the recorded policy takes a random action with probability epsilon. Every seed has data,
held-out episodes and a network of its own. The held-out episodes have no noise: the reference is
always the d^pi of the deterministic policy. Needs `pip install 'bisimetric[learn,worlds]'`.

Rewards are 1 until termination, so d^pi(s, t) = |g(s) - g(t)| / (1 - discount), where g is
discount^tau and tau the number of steps to termination. `limits` predicts g by other methods.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from bisimetric import Transitions, datasets, learned

DISCOUNT = 0.9
STEPS = 5_000
UPDATES = 8_000
LOOKAHEADS = (1, 5, 10, math.inf)
NOISES = (0.0, 0.01, 0.1)
HELD_OUT = 1_000
"""Added to the seed of the data for that of the held-out episodes."""


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


def count_down(data: Transitions) -> NDArray[np.int64]:
    """Return the recorded steps from each one to the end of its episode, itself included."""
    return np.concatenate([np.arange(len(each), 0, -1) for each in data.episodes()])


def fit_network(
    x: NDArray[Any], y: NDArray[Any], classify: bool, seed: int, updates: int, activation: Any
) -> Any:
    """Fit a network to y by least squares, or to y in {0, 1} by cross-entropy; return it."""
    sizes = (x.shape[1], 128, 128, 128, y.shape[1])
    keys = jax.random.split(jax.random.key(seed), len(sizes))
    layers = [
        (jax.random.normal(key, (m, n)) * math.sqrt(2 / m), jnp.zeros(n))
        for key, m, n in zip(keys, sizes[:-1], sizes[1:], strict=False)
    ]
    shift, width = x.mean(axis=0), x.std(axis=0)

    def evaluate(layers: Any, x: Any) -> Any:
        for weights, biases in layers[:-1]:
            x = activation(x @ weights + biases)
        return x @ layers[-1][0] + layers[-1][1]

    def compute_loss(layers: Any, x: Any, y: Any) -> Any:
        found = evaluate(layers, x)
        if classify:
            # The weights of the rewards k steps ahead.
            weights = DISCOUNT ** jnp.arange(y.shape[1])
            return jnp.mean(optax.sigmoid_binary_cross_entropy(found, y) @ weights)
        return jnp.mean((found - y) ** 2)

    adam = optax.adamw(
        optax.warmup_cosine_decay_schedule(0.0, 2e-3, updates // 20, updates), weight_decay=0.03
    )
    features, targets = jnp.asarray((x - shift) / width), jnp.asarray(y, jnp.float32)

    def update(state: Any, key: Any) -> tuple[Any, None]:
        layers, optimiser = state
        rows = jax.random.randint(key, (128,), 0, len(features))
        gradient = jax.grad(compute_loss)(layers, features[rows], targets[rows])
        change, optimiser = adam.update(gradient, optimiser, layers)
        return (optax.apply_updates(layers, change), optimiser), None

    start = (layers, adam.init(layers))
    steps = jax.random.split(keys[-1], updates)
    layers = jax.jit(lambda: jax.lax.scan(update, start, steps))()[0][0]
    return lambda x: np.asarray(evaluate(layers, jnp.asarray((x - shift) / width, jnp.float32)))


def step_cart(state: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the next states under the policy, by the equations of CartPole."""
    _, velocity, angle, rate = state.T
    force, cos, sin = np.where(velocity < 0, 10.0, -10.0), np.cos(angle), np.sin(angle)
    push = (force + 0.05 * rate**2 * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    change = np.stack([velocity, push - 0.05 * turn * cos / 1.1, rate, turn], axis=1)
    return np.asarray(state + 0.02 * change)


def predict_returns(
    train: Transitions, test: Transitions, seed: int, updates: int
) -> dict[str, NDArray[Any]]:
    """Return predictions of discount^tau for the held-out steps, by method."""
    keep = np.concatenate(
        [np.full(len(each), each.terminated[-1]) for each in train.episodes()]
    ).astype(bool)
    x, tau = train.observations[keep], count_down(train)[keep]
    held_out, exact_tau = test.observations, count_down(test)
    returns, width = DISCOUNT**tau, x.std(axis=0)
    nearest = cKDTree(x / width).query(held_out / width)[1]
    found: dict[str, NDArray[Any]] = {"nearest recorded step": returns[nearest]}
    for name, activation in (("ReLU", jax.nn.relu), ("tanh", jnp.tanh)):
        network = fit_network(x, 10 * returns[:, None], False, seed, updates, activation)
        found[f"regression, {name}"] = network(held_out)[:, 0]
    horizon = np.arange(60)
    network = fit_network(x, tau[:, None] > horizon, True, seed, updates, jnp.tanh)
    alive = 1 / (1 + np.exp(-network(held_out)))
    found["classification, tanh"] = -(alive @ DISCOUNT**horizon)

    ends = train.next_observations[train.terminated]
    states = np.concatenate([train.observations, ends])
    terminal = np.arange(len(states))[:, None] >= len(train)
    network = fit_network(states, terminal, True, seed, updates, jnp.tanh)
    state, found_tau = held_out.astype(np.float64), np.full(len(held_out), 100)
    correct_tau = found_tau.copy()
    for k in range(1, 100):
        state = np.clip(step_cart(state), -6, 6)
        ended = np.abs(state[:, 2]) > 12 * math.pi / 180
        correct_tau = np.where(ended & (correct_tau == 100), k, correct_tau)
        found_tau = np.where((network(state)[:, 0] > 0) & (found_tau == 100), k, found_tau)
    found["exact dynamics, learned termination"] = DISCOUNT**found_tau
    found["exact dynamics and termination"] = DISCOUNT**correct_tau
    uniform = np.random.default_rng(seed).random(len(exact_tau))
    found["exact tau, uniform noise of one step"] = DISCOUNT ** (exact_tau + uniform - 0.5)
    return found


def report_limits(seeds: range, quick: bool) -> None:
    """Print the held-out correlation of d^pi from predictions of discount^tau."""
    results: dict[str, list[float]] = {}
    for seed in seeds:
        train, test = record_steps(0.0, seed, steps=STEPS), record_held_out(seed, quick)
        reference = compute_reference(test)
        for name, found in predict_returns(train, test, seed, 20 if quick else 20_000).items():
            distances = np.abs(found[:, None] - found)
            correlation = float(np.corrcoef(distances.ravel(), reference.ravel())[0, 1])
            results.setdefault(name, []).append(correlation)
    print("| prediction of discount^tau | correlation | smallest | largest |\n|---|---|---|---|")
    for name, each in results.items():
        print(f"| {name} | {np.mean(each):.4f} | {min(each):.4f} | {max(each):.4f} |", flush=True)


def record_held_out(seed: int, quick: bool) -> Transitions:
    """Record the held-out episodes of a seed."""
    return record_steps(0.0, HELD_OUT + seed, episodes=4 if quick else 40)


def report_defaults(seeds: range, quick: bool) -> None:
    """Print the results with default settings, by seed and number of recorded steps."""
    print("| steps | seed | correlation | mean error | CPU seconds | seconds |")
    print("|---|---|---|---|---|---|")
    for steps, used in ((STEPS, seeds), (8 * STEPS, seeds[:0] if quick else seeds[:3])):
        rows = []
        for seed in used:
            train, test = record_steps(0.0, seed, steps=steps), record_held_out(seed, quick)
            limits = {"updates": 20} if quick else {}
            rows.append(measure(train, test, compute_reference(test), seed=seed, **limits))
            row = "| {:,} | {} | {:.4f} | {:.3f} | {:.0f} | {:.0f} |"
            print(row.format(steps, seed, *rows[-1]), flush=True)
        if rows:
            mean = "| {:,} | mean | {:.4f} | {:.3f} | {:.0f} | {:.0f} |"
            print(mean.format(steps, *np.mean(rows, axis=0)), flush=True)


def report_lookaheads(seeds: range, quick: bool) -> None:
    """Print the mean and range of the correlation, and the mean error, by epsilon and n."""
    names = ["infinite" if math.isinf(n) else str(n) for n in LOOKAHEADS]
    print(f"| epsilon | n = {' | n = '.join(names)} |\n|---|{'---|' * len(names)}")
    tests = {seed: record_held_out(seed, quick) for seed in seeds}
    references = {seed: compute_reference(test) for seed, test in tests.items()}
    for epsilon in NOISES[:1] if quick else NOISES:
        cells = []
        trains = {seed: record_steps(epsilon, seed, steps=STEPS) for seed in seeds}
        for lookahead in LOOKAHEADS:
            rows = []
            for seed, train in trains.items():
                config: Any = learned.choose_config("on_policy", train)
                config = dataclasses.replace(config, lookahead=lookahead)
                updates = 20 if quick else UPDATES
                options = {"config": config, "updates": updates, "seed": seed}
                rows.append(measure(train, tests[seed], references[seed], **options)[:2])
            correlations, errors = np.transpose(rows)
            cells.append(
                f"{correlations.mean():.4f} ({correlations.min():.4f} to "
                f"{correlations.max():.4f}), {errors.mean():.3f}"
            )
        print(f"| {epsilon} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    reports = {
        "defaults": (report_defaults, 10),
        "lookaheads": (report_lookaheads, 3),
        "limits": (report_limits, 3),
    }
    quick = "--quick" in sys.argv[1:]
    print(f"Device: {jax.devices()[0].device_kind}, JAX {jax.__version__}.")
    for name in [each for each in reports if each in sys.argv[1:]] or reports:
        report, num_seeds = reports[name]
        print()
        report(range(1 if quick else num_seeds), quick)


if __name__ == "__main__":
    main()
