"""Measure the claims of Castro (2020) about learning on its GridWorld.

`run` trains what they need, or reads it from its folder; the functions `judge_*` turn the runs into
verdicts.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bisimetric import learned, worlds
from bisimetric._io import write_atomically
from bisimetric._statistics import compute_confidence_interval
from bisimetric.learned import LearnedDistance
from bisimetric.paper import aggregation_claims, gridworld, stability
from bisimetric.paper.aggregation import MIN_OVERLAP
from bisimetric.paper.gridworld_curves import PAPER_TEXT_UPDATES, GridworldCurves
from bisimetric.paper.theory_claims import Outcome, Verdict, judge

SIGNIFICANCE = 0.05
NOISE_SEEDS, NOISE_DRAWS = 5, 5


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is trained.

    Attributes:
        updates: gradient updates per network.
        seeds: networks per variant without noise.
        noise_seeds: networks per variant with noise.
        noise_variants: variants of `stability.VARIANTS` with noise.
        batch_size: of the runs with noise.
        draws: draws of the noise per clustering.
        samples: sampled states per cell.
        log_every: updates between two records.
    """

    updates: int = gridworld.UPDATES
    seeds: int = gridworld.NUM_SEEDS
    noise_seeds: int = NOISE_SEEDS
    noise_variants: tuple[str, ...] = stability.ABLATION
    batch_size: int | None = None
    draws: int = NOISE_DRAWS
    samples: int = 100
    log_every: int = stability.LOG_EVERY


FULL = Sizes()
QUICK = Sizes(
    updates=6_000,
    seeds=2,
    noise_seeds=2,
    noise_variants=("paper",),
    batch_size=32,
    draws=1,
    samples=20,
    log_every=500,
)


@dataclasses.dataclass(frozen=True, eq=False)
class LearningRuns:
    """What the claims are judged by.

    Attributes:
        variants: curves without noise by name of the variant.
        noisy: curves with noise by name of the variant.
        clusterings: records of `aggregation_claims.measure`.
        quality: violations of the metric axioms by the networks with noise.
    """

    variants: dict[str, GridworldCurves]
    noisy: dict[str, GridworldCurves]
    clusterings: list[dict[str, Any]]
    quality: list[dict[str, float]]


def run(folder: str | os.PathLike[str], sizes: Sizes = FULL) -> LearningRuns:
    """Train all variants, cluster, and evaluate; finished parts in the folder are reused.

    Args:
        folder: where files are written; created if missing.
        sizes: how much is trained.

    Returns:
        The runs.

    Raises:
        InputError: if the folder holds runs of other sizes.
    """
    target = Path(folder)
    variants = stability.measure(
        target / "no-noise",
        updates=sizes.updates,
        num_seeds=sizes.seeds,
        log_every=sizes.log_every,
    )
    noisy = stability.measure(
        target / "noise",
        sizes.noise_variants,
        part="noise",
        updates=sizes.updates,
        num_seeds=sizes.noise_seeds,
        log_every=sizes.log_every,
        batch_size=sizes.batch_size,
        num_saved=sizes.noise_seeds,
    )
    names = ["noise", *(f"noise-{seed}" for seed in range(1, sizes.noise_seeds))]
    networks = {
        str(seed): LearnedDistance.load(target / "noise" / "paper" / f"{name}.safetensors")
        for seed, name in enumerate(names)
    }
    path = target / "clusterings.json"
    if not path.exists():
        records = aggregation_claims.measure(
            networks, num_draws=sizes.draws, samples_per_cell=sizes.samples
        )
        with write_atomically(path) as beside:
            beside.write_text(json.dumps(records, indent=0) + "\n", encoding="utf-8")
    mdp = worlds.load("mirrored-rooms", discount=gridworld.DISCOUNT)
    source = learned.source_from_mdp(
        "bisimulation", mdp, points=gridworld.cell_centres(mdp), scaling=gridworld.SCALING
    )
    quality = [each.quality(source)._asdict() for each in networks.values()]
    return LearningRuns(variants, noisy, json.loads(path.read_text(encoding="utf-8")), quality)


def judge_all(runs: LearningRuns) -> dict[str, Outcome]:
    """Return the outcomes of all claims by name.

    Args:
        runs: from `run`.

    Returns:
        The outcomes.
    """
    return {
        "updates": judge_updates(runs.noisy["paper"]),
        "overshoot": judge_overshoot(runs),
        "stability": judge_stability(runs.variants),
        "stability-noise": judge_stability(runs.noisy),
        "relative-distances": judge_relative_distances(runs),
        "noise": judge_noise(runs),
        "pseudometric": judge_pseudometric(runs.quality),
        "loss-average": judge_difference(runs.variants, "compared-pairs"),
        "precision": judge_difference(runs.variants, "float64"),
        "near-goal": judge_near_goal(runs.clusterings),
        "far-from-goal": judge_far_from_goal(runs.clusterings),
        "hallway-alone": judge_hallway(runs.clusterings),
        "printed-clustering": judge_printed(runs.clusterings),
    }


def describe_runs(curves: GridworldCurves) -> str:
    """Return the number of seeds and updates of curves."""
    return f"{curves.num_seeds} seeds, {int(curves.updates[-1]):,} updates"


def judge_updates(curves: GridworldCurves) -> Outcome:
    """2,500 steps reach a reasonable solution before overshooting."""
    record = int(np.argmin(np.abs(curves.updates - PAPER_TEXT_UPDATES)))
    error, largest = float(curves.error[:, record].mean()), curves.largest
    text = (
        f"absolute error {error:.1f} of {largest:.1f} after {int(curves.updates[record]):,} "
        f"updates, {float(curves.error[:, -1].mean()):.1f} at the end; the configuration has "
        f"{gridworld.UPDATES:,}"
    )
    return Outcome(judge(error < 0.5 * largest, "differs"), text, describe_runs(curves))


def judge_overshoot(runs: LearningRuns) -> Outcome:
    """Networks tend to overshoot."""
    parts = []
    above = total = 0
    for label, curves in (
        ("without noise", runs.variants["paper"]),
        ("with noise", runs.noisy["paper"]),
    ):
        found = stability.summarise(curves)
        above, total = above + sum(found.overshoots), total + len(found.overshoots)
        parts.append(
            f"{label}, {sum(found.overshoots)} of {len(found.overshoots)} seeds end above d~ on "
            f"average, by up to {max(0.0, *found.bias):.1f}"
        )
    runs_text = f"{total} seeds, {int(runs.noisy['paper'].updates[-1]):,} updates"
    return Outcome(judge(above > 0), "; ".join(parts), runs_text)


def judge_stability(variants: Mapping[str, GridworldCurves]) -> Outcome:
    """beta and the target network help to stabilise: the error without them."""
    names = [name for name in stability.ABLATION if name in variants]
    if len(names) < 2:
        return Outcome("not tested", "no ablation in this run", "")
    found = {name: stability.summarise(variants[name]) for name in names}
    text = "; ".join(
        f"{stability.VARIANTS[name].label}: {stability.format_interval(found[name].error)}"
        f" ({sum(found[name].overshoots)} overshoot)"
        + (", diverged" if "diverged" in variants[name].metadata else "")
        for name in names
    )
    worse = [name for name in names[1:] if _is_larger(found[name].error, found["paper"].error)]
    verdict: Verdict = "does not hold"
    if worse:
        verdict = "holds" if len(worse) == len(names) - 1 else "differs"
    return Outcome(verdict, f"final absolute error: {text}", describe_runs(variants["paper"]))


def _is_larger(a: Sequence[float], b: Sequence[float]) -> bool:
    """Return whether the 95% interval of the mean of a lies above that of b."""
    (mean_a, half_a), (mean_b, half_b) = (
        compute_confidence_interval(np.asarray(each)) for each in (a, b)
    )
    return bool(mean_a - half_a > mean_b + half_b)


def judge_relative_distances(runs: LearningRuns) -> Outcome:
    """Relative distances are learned: against one constant for all distinct pairs."""
    curves = runs.variants["paper"]
    distinct = ~np.eye(len(curves.exact), dtype=bool)
    scaled = curves.exact / np.linalg.norm(curves.exact)
    constant = distinct / np.linalg.norm(distinct)
    baseline = float(np.abs(scaled - constant).max())
    found = stability.summarise(curves)
    text = (
        f"normalised error {stability.format_interval(found.normalised)}, of one constant for all "
        f"distinct pairs {baseline:.2g}; correlation over distinct pairs "
        f"{min(found.correlation):.2f} to {max(found.correlation):.2f}"
    )
    ok = float(np.mean(found.normalised)) < baseline
    return Outcome(judge(ok, "differs"), text, describe_runs(curves))


def judge_noise(runs: LearningRuns) -> Outcome:
    """Little difference between learning with noise and without."""
    clean, noisy = (stability.summarise(v["paper"]) for v in (runs.variants, runs.noisy))
    text = (
        f"normalised error {stability.format_interval(noisy.normalised)} with noise, "
        f"{stability.format_interval(clean.normalised)} without; absolute "
        f"{stability.format_interval(noisy.error)} and {stability.format_interval(clean.error)}"
    )
    ok = not _is_larger(noisy.normalised, clean.normalised)
    counts = f"{runs.noisy['paper'].num_seeds} seeds with noise, {runs.variants['paper'].num_seeds}"
    return Outcome(judge(ok), text, f"{counts} without")


def judge_pseudometric(quality: Sequence[Mapping[str, float]]) -> Outcome:
    """psi is not guaranteed to be a pseudometric: the largest violations."""
    largest = {
        name: max(each[name] for each in quality)
        for name in ("symmetry", "identity", "triangle", "max_distance")
    }
    text = (
        f"of a largest distance of {largest['max_distance']:.0f}: asymmetry up to "
        f"{largest['symmetry']:.1f}, psi(x, x) up to {largest['identity']:.1f}, triangle "
        f"inequality violated by up to {largest['triangle']:.1f}"
    )
    return Outcome(judge(largest["symmetry"] > 0), text, f"{len(quality)} networks")


def judge_difference(variants: Mapping[str, GridworldCurves], name: str) -> Outcome:
    """Whether a difference from the published code changes a conclusion."""
    ours, theirs = (stability.summarise(variants[each]) for each in ("paper", name))
    text = (
        f"absolute error {stability.format_interval(theirs.error)}, here "
        f"{stability.format_interval(ours.error)}; normalised "
        f"{stability.format_interval(theirs.normalised)} and "
        f"{stability.format_interval(ours.normalised)}"
    )
    changed = any(
        _is_larger(a, b)
        for field in ("error", "normalised")
        for a, b in (
            (getattr(ours, field), getattr(theirs, field)),
            (getattr(theirs, field), getattr(ours, field)),
        )
    )
    text += "; the intervals are disjoint" if changed else "; no conclusion changes"
    return Outcome("differs" if changed else "holds", text, describe_runs(variants["paper"]))


def _select(records: Sequence[Mapping[str, Any]], rule: str) -> list[Mapping[str, Any]]:
    return [each for each in records if str(each["rule"]).startswith(rule)]


def _list_rules(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the rules of clusterings with fewer clusters than cells, in order."""
    rules = dict.fromkeys(str(each["rule"]) for each in records)
    return [rule for rule in rules if rule.startswith("at most") and rule != "at most 31"]


def _describe_clusterings(records: Sequence[Mapping[str, Any]]) -> str:
    learned_ones = [each for each in records if each["rule"] != "exact"]
    networks = len({each["network"] for each in learned_ones})
    draws = len({each["draw"] for each in learned_ones})
    return f"{networks} networks, {draws} noise draws each"


def _test_clusterings(records: Sequence[Mapping[str, Any]], name: str) -> tuple[bool, list[str]]:
    """Return whether most clusterings of every size are significant, and a text per size."""
    parts, holds = [], True
    for rule in _list_rules(records):
        chosen = _select(records, rule)
        significant = sum(each[f"{name}_p"] <= SIGNIFICANCE for each in chosen)
        holds &= significant > 0.5 * len(chosen)
        mean = np.mean([each[name] for each in chosen])
        count = rule.removeprefix("at most ")
        parts.append(f"{count} clusters {mean:.2f} ({significant} of {len(chosen)})")
    return holds, parts


def judge_near_goal(records: Sequence[Mapping[str, Any]]) -> Outcome:
    """A cluster gathers states near a goal: the overlap of the best one, against permuted cells."""
    holds, parts = _test_clusterings(records, "near_goal")
    by_exact = [each["near_goal"] for each in _select(records, "exact")[: len(parts)]]
    text = (
        "Jaccard index of the best cluster with the cells within one step of a goal (significant): "
        f"{', '.join(parts)}; by the exact distances {max(by_exact):.2f} at best"
    )
    return Outcome(judge(holds), text, _describe_clusterings(records))


def judge_far_from_goal(records: Sequence[Mapping[str, Any]]) -> Outcome:
    """Clusters gather states far from goals: the variance of the distance to a goal explained."""
    holds, parts = _test_clusterings(records, "goal_distance")
    text = f"variance of the steps to a goal between clusters (significant): {', '.join(parts)}"
    return Outcome(judge(holds), text, _describe_clusterings(records))


def judge_hallway(records: Sequence[Mapping[str, Any]]) -> Outcome:
    """One cluster holds the hallway alone."""
    parts, found = [], 0
    rules = _list_rules(records)
    for rule in rules:
        chosen = _select(records, rule)
        alone = sum(each["hallway"] >= MIN_OVERLAP for each in chosen)
        others = np.mean([each["alone"] - (each["hallway"] >= MIN_OVERLAP) for each in chosen])
        found += alone > 0.5 * len(chosen)
        parts.append(
            f"{rule.removeprefix('at most ')} clusters: {alone} of {len(chosen)}, "
            f"{others:.1f} other cells"
        )
    text = f"hallway alone (Jaccard index at least 0.9), {'; '.join(parts)}"
    verdict: Verdict = "does not hold"
    if found:
        verdict = "holds" if found == len(rules) else "differs"
    return Outcome(verdict, text, _describe_clusterings(records))


def judge_printed(records: Sequence[Mapping[str, Any]]) -> Outcome:
    """The printed clustering code at the threshold 0.86."""
    printed, ours = _select(records, "printed"), _select(records, "at 0.86")

    def average(chosen: Sequence[Mapping[str, Any]], name: str) -> float:
        return float(np.mean([each[name] for each in chosen]))

    text = (
        f"at the threshold 0.86 the printed code has {average(printed, 'clusters'):.1f} clusters "
        f"on average, of which some lose members to later ones, and the described algorithm "
        f"{average(ours, 'clusters'):.1f}; the hallway is alone in "
        f"{sum(each['hallway'] >= MIN_OVERLAP for each in printed)} and "
        f"{sum(each['hallway'] >= MIN_OVERLAP for each in ours)} of {len(ours)}"
    )
    equal = average(printed, "clusters") == average(ours, "clusters")
    return Outcome(judge(equal, "differs"), text, _describe_clusterings(records))
