"""Coverage and width of confidence bounds: `python benchmarks/confidence.py [--write]`.

Coverage: on random MDPs, how often `exact.confidence_bounds` holds for *all* pairs at once, with
samples whose numbers were fixed, and with recorded steps of a greedy agent, whose choices depend on
what it observed. Then with the slack multiplied by a factor below 1, which shows how conservative
the bounds are. Width: the mean width of the bounds by the number of samples per state and action,
and the uniform PAC bound beside it. `--write` puts both tables into docs/concepts/confidence.md.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

import report
from bisimetric import MDP, Distance, DistanceBounds, Transitions, exact
from bisimetric.exact import _concentration
from bisimetric.exact.stochastic.interval_kernels import Slack

PAGE = Path(__file__).parents[1] / "docs" / "concepts" / "confidence.md"
KINDS: tuple[Literal["bisimulation", "on_policy", "lax"], ...] = (
    "bisimulation", "on_policy", "lax",
)  # fmt: skip
Sampling = Literal["fixed", "adaptive"]
TITLES = {"bisimulation": "d~", "on_policy": "d^pi", "lax": "d_lax"}
MAX_STEPS = 6_000
"""Recorded steps per MDP."""
FACTORS = (1.0, 0.5, 0.3, 0.2, 0.1)
WIDTH_SAMPLES = (10, 100, 1_000, 10_000, 100_000)
WIDTH_DISCOUNTS = (0.5, 0.9, 0.99)
WIDTH_OPTIONS: dict[str, dict[str, Any]] = {
    "adaptive": {},
    "fixed": {"sampling": "fixed"},
    "fixed, observed, deterministic": {
        "sampling": "fixed", "support": "observed", "rewards": "deterministic",
    },
}  # fmt: skip
"""The columns of the table of widths."""


def random_mdp(rng: np.random.Generator) -> MDP:
    """3 to 8 states, 1 to 3 actions, 1 to 4 successors; rewards in [0, 1]; perhaps an end."""
    states, actions = int(rng.integers(3, 9)), int(rng.integers(1, 4))
    P = np.zeros((states, actions, states))
    for row in P.reshape(-1, states):
        successors = rng.choice(states, int(rng.integers(1, 5)), replace=states < 4)
        row[successors] += rng.dirichlet(np.ones(len(successors)))
        row /= row.sum()
    R = rng.random((states, actions))
    if rng.random() < 0.5:
        P[-1], R[-1] = np.eye(states)[-1], 0.0
    return MDP(P, R, float(rng.choice([0.3, 0.5, 0.7, 0.9])))


def has_end(mdp: MDP) -> bool:
    """Whether the last state is absorbing and pays 0."""
    last = mdp.P.toarray().reshape(*mdp.R.shape, -1)[-1]
    return bool((last[:, -1] == 1).all() and (mdp.R[-1] == 0).all())


def pay(mdp: MDP, row: Any, successor: Any, noise: str, rng: np.random.Generator) -> Any:
    """Sample rewards with the expectation R: constant, 0 or 1, or correlated with the successor."""
    mean = mdp.R.ravel()[row]
    if noise == "constant":
        return mean
    if noise == "binary":
        return (rng.random(np.shape(row)) < mean).astype(float)
    # 0 or 1, more often 1 after successors of an odd number: the expectation is still R.
    P = mdp.P.toarray()
    odd = P[:, 1::2].sum(axis=1)[row]
    shift = np.minimum(mean, 1 - mean) * np.where(np.asarray(successor) % 2 == 1, 1 - odd, -odd)
    return (rng.random(np.shape(row)) < mean + shift).astype(float)


def sample_rows(mdp: MDP, samples: int, noise: str, rng: np.random.Generator) -> Transitions:
    """Sample every state and action equally often; the end is no state but terminates."""
    P, actions = mdp.normalised_probabilities.toarray(), mdp.num_actions
    counts = rng.multinomial(samples, P / P.sum(axis=1, keepdims=True))
    pair, next_state = np.nonzero(counts)
    repeats = counts[pair, next_state]
    row, successor = np.repeat(pair, repeats), np.repeat(next_state, repeats)
    return record(mdp, row // actions, row % actions, successor, noise, rng)


def record(
    mdp: MDP, state: Any, action: Any, successor: Any, noise: str, rng: np.random.Generator
) -> Transitions:
    """Build transitions; if the last state is an end, steps into it terminate."""
    rewards = pay(mdp, state * mdp.num_actions + action, successor, noise, rng)
    states, terminated = mdp.num_states, np.zeros(len(state), bool)
    if has_end(mdp):
        living = state < states - 1
        state, action, successor, rewards = (x[living] for x in (state, action, successor, rewards))
        terminated, states = successor == states - 1, states - 1
    return Transitions(
        state, action, rewards, np.where(terminated, state, successor), terminated,
        num_states=states, num_actions=mdp.num_actions,
    )  # fmt: skip


def sample_greedily(mdp: MDP, steps: int, noise: str, rng: np.random.Generator) -> Transitions:
    """Record an agent that prefers the action with the best reward so far: numbers are random."""
    P, (states, actions) = mdp.normalised_probabilities.toarray(), mdp.R.shape
    totals, sums = np.zeros((states, actions)), np.zeros((states, actions))
    s, taken = 0, []
    for _ in range(steps):
        if rng.random() < 0.05 or (has_end(mdp) and s == states - 1):
            s = int(rng.integers(states - has_end(mdp)))
        means = sums[s] / np.maximum(totals[s], 1)
        a = int(rng.integers(actions)) if rng.random() < 0.3 else int(means.argmax())
        row = P[s * actions + a]
        x = int(rng.choice(states, p=row / row.sum()))
        sums[s, a] += pay(mdp, s * actions + a, x, noise, rng)
        totals[s, a] += 1
        taken.append((s, a, x))
        s = x
    state, action, successor = np.array(taken).T
    return record(mdp, state, action, successor, noise, rng)


@contextlib.contextmanager
def multiply_slack(factor: float) -> Iterator[None]:
    """Multiply every slack by a factor; bounds with a factor below 1 are not proven."""
    compute = _concentration.RowSlack.compute

    def scaled(self: Any, upper: Any) -> Slack:
        slack = compute(self, upper)
        square = np.minimum(slack.square, 1e300) * factor**2
        square = np.where(np.isinf(slack.square), np.inf, square)
        return Slack(slack.row * factor, slack.linear * factor, square, slack.level)

    _concentration.RowSlack.compute = scaled  # type: ignore[method-assign]
    try:
        yield
    finally:
        _concentration.RowSlack.compute = compute  # type: ignore[method-assign]


def holds(bounds: DistanceBounds, reference: Distance) -> bool:
    """Whether all distances lie between their bounds; the end may be missing in the data."""
    size = bounds.mdp.num_states
    d, error = reference.values[:size, :size], reference.error
    return bool(((bounds.lower <= d + error) & (d - error <= bounds.upper)).all())


def measure_case(case: int, sampling: Sampling, seed: int) -> dict[str, Any]:
    """Return, for one random MDP and its data, what holds and how wide the bounds are."""
    rng = np.random.default_rng([seed, case, sampling == "fixed"])
    mdp = random_mdp(rng)
    noise = str(rng.choice(["constant", "binary", "correlated"]))
    size = int(np.exp(rng.uniform(np.log(20), np.log(3_000))))
    if sampling == "fixed":
        data = sample_rows(mdp, size, noise, rng)
    else:
        data = sample_greedily(mdp, min(size * mdp.R.size // 2, MAX_STEPS), noise, rng)
    policy = rng.dirichlet(np.ones(mdp.num_actions), mdp.num_states)
    found: dict[str, Any] = {}
    for kind in KINDS:
        reference = {
            "bisimulation": exact.bisimulation, "lax": exact.lax,
            "on_policy": lambda mdp: exact.on_policy(mdp, policy),
        }[kind](mdp)  # fmt: skip
        for factor in FACTORS if kind == "bisimulation" else FACTORS[:1]:
            with multiply_slack(factor):
                bounds = exact.confidence_bounds(
                    data, reward_range=(0, 1), kind=kind, discount=mdp.discount, sampling=sampling,
                    num_states=mdp.num_states,
                    policy=policy[: data.num_states] if kind == "on_policy" else None,
                )  # fmt: skip
            found[f"{kind} {factor}"] = (
                holds(bounds, reference),
                bounds.metadata["vacuous"] < 1,
                bounds.metadata["mean_width"] * (1 - mdp.discount),
            )
    return found


def tabulate_coverage(mdps: int, seed: int) -> list[tuple[str, ...]]:
    """Return one row per way of sampling and distance."""
    rows = []
    for sampling in get_args(Sampling):
        found = [measure_case(case, sampling, seed) for case in range(mdps)]
        for kind in KINDS:
            held, informative, width = np.array([case[f"{kind} 1.0"] for case in found]).T
            cells = [sampling, TITLES[kind], f"{int(held.sum()):,} of {mdps:,}"]
            cells += [f"{informative.mean():.0%}", f"{width.mean():.2f}"]
            for factor in FACTORS[1:]:
                scaled = [
                    case[f"{kind} {factor}"][0] for case in found if f"{kind} {factor}" in case
                ]
                cells.append(f"{np.mean(scaled):.1%}" if scaled else "")
            rows.append(tuple(cells))
    return rows


def tabulate_width(seed: int) -> list[tuple[str, ...]]:
    """Widths relative to the diameter bound: 10 states, 2 actions, 3 successors."""
    rows = []
    for discount, samples in itertools.product(WIDTH_DISCOUNTS, WIDTH_SAMPLES):
        rng = np.random.default_rng(seed)
        P = np.zeros((20, 10))
        for row in P:
            row[rng.choice(10, 3, replace=False)] = rng.dirichlet(np.ones(3))
        mdp = MDP(P, rng.random((10, 2)), discount)
        mean = exact.bisimulation(mdp).values[np.tril_indices(10, -1)].mean()
        cells = [f"{discount}", f"{samples:,}", f"{mean * (1 - discount):.3f}"]
        data = sample_rows(mdp, samples, "constant", rng)
        for options in WIDTH_OPTIONS.values():
            bounds = exact.confidence_bounds(
                data, reward_range=(0, 1), discount=discount, **options
            )
            cells.append(f"{bounds.metadata['mean_width'] * (1 - discount):.3f}")
        width = 2 * exact.sampling_error(mdp, samples) * (1 - discount)
        cells.append(f"{min(width, 1.0):.3f}")
        rows.append(tuple(cells))
    return rows


def main() -> None:
    """Measure, print and perhaps write both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mdps", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    start = time.perf_counter()
    lines = format_table(
        ["discount", "samples", "mean distance", *WIDTH_OPTIONS, "PAC"],
        tabulate_width(given.seed),
    )
    lines += [
        "",
        "*Means over all pairs, relative to the diameter bound: distances, and widths of bounds.*",
        "",
    ]
    print("\n".join(lines), flush=True)
    coverage = format_table(
        ["sampling", "distance", "all bounds held", "informative", "mean width",
         *(f"slack x {factor:g}" for factor in FACTORS[1:])],
        tabulate_coverage(given.mdps, given.seed),
    )  # fmt: skip
    coverage += ["", f"*Confidence 0.95, {given.mdps:,} random MDPs per row.*"]
    print("\n".join(coverage))
    print(f"{time.perf_counter() - start:.0f} s")
    if given.write:
        report.write_results(PAGE, ["", *lines, *coverage, ""])


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return [
        report.format_row(header),
        report.format_row(["---"] + ["---:"] * (len(header) - 1)),
        *(report.format_row(row) for row in rows),
    ]


if __name__ == "__main__":
    main()
