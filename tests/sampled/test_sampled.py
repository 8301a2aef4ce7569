"""The sampled algorithm: equation 3 as written, its theorem, its samplers, its runs."""

from __future__ import annotations

import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import MDP, Distance, InputError, NotConverged, exact, sampled, worlds
from bisimetric.sampled import (
    AllActions,
    Prioritised,
    SampledRun,
    Trajectories,
    Uniform,
    kernels,
    sum_tree,
)
from bisimetric.sampled.samplers import PAIRS_PER_BLOCK, PrioritisedUpdater
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps

SAMPLERS: list[Any] = [Uniform(), Trajectories(), AllActions(), Prioritised()]
NAMES = [type(sampler).__name__ for sampler in SAMPLERS]
each_sampler = pytest.mark.parametrize("sampler", SAMPLERS, ids=NAMES)
QUICK = [0.0, 0.3, 0.9, 0.99]


def grid(kind: str) -> tuple[MDP, Distance]:
    """The paper's 31 states, and their exact distance."""
    if kind == "bisimulation":
        mdp = worlds.load("mirrored-rooms", discount=0.99)
        return mdp, exact.bisimulation(mdp, tol=1e-9)
    mdp = worlds.load("mirrored-rooms-policy", discount=0.99)
    return mdp, exact.on_policy(mdp, tol=1e-9)


def plain_loop(run: SampledRun, pairs: list[tuple[int, int]]) -> np.ndarray[Any, Any]:
    """Equation 3 as the paper writes it, one pair of transitions at a time."""
    rows = run.source.table.rows
    d = np.zeros((run.source.table.num_states,) * 2)
    for i, j in pairs:
        s, t = rows.state[i], rows.state[j]
        ahead = d[rows.successor[i], rows.successor[j]]
        value = abs(rows.reward[i] - rows.reward[j]) + run.discount * ahead
        d[s, t] = d[t, s] = max(d[s, t], value)
    return d


def sample_next(run: SampledRun, steps: int) -> list[tuple[int, int]]:
    """Return the pairs that a run will sample next, without advancing it."""
    updater: Any = SampledRun(run.kind, run.source, sampler=run.sampler, seed=run.seed)._updater
    pairs = []
    for first in range(0, steps, PAIRS_PER_BLOCK):
        i, j = (np.empty(min(PAIRS_PER_BLOCK, steps - first), np.int32) for _ in range(2))
        updater.sample_pairs(first, i, j)
        pairs += list(zip(i.tolist(), j.tolist(), strict=True))
    return pairs


@pytest.mark.parametrize("sampler", SAMPLERS[:3], ids=NAMES[:3])
@pytest.mark.parametrize("kind", ["bisimulation", "on_policy"])
def test_the_kernels_implement_equation_3(sampler: Any, kind: Any) -> None:
    mdp, _ = grid(kind)
    run = SampledRun(kind, mdp, sampler=sampler, seed=3)
    pairs = sample_next(run, 20_000)
    run.advance(20_000)
    assert np.array_equal(run.values, plain_loop(run, pairs))
    rows = run.source.table.rows
    met = {
        (int(rows.group[i]), *sorted((int(rows.state[i]), int(rows.state[j])))) for i, j in pairs
    }
    assert run.compute_coverage().num_paired == sum(s != t for _, s, t in met)
    assert all(rows.group[i] == rows.group[j] for i, j in pairs)


@each_sampler
@pytest.mark.parametrize("kind", ["bisimulation", "on_policy"])
def test_the_grid_converges_for_ten_seeds_and_never_exceeds_the_metric(
    sampler: Any, kind: Any
) -> None:
    mdp, truth = grid(kind)
    for seed in range(10):
        run = SampledRun(kind, mdp, sampler=sampler, seed=seed)
        before = np.zeros_like(truth.values)
        while np.abs(run.values - truth.values).max() > 1e-3:
            assert run.steps < 10_000_000
            run.advance(100_000)
            assert (run.values >= before).all()
            assert (
                run.values <= truth.values + truth.error + run.compute_coverage().rounding
            ).all()
            before = run.values.copy()
        assert np.array_equal(run.values, run.values.T)
        assert not run.values.diagonal().any()
        distance = run.to_distance()
        assert np.abs(distance.values - truth.values).max() <= distance.error + truth.error


@settings(max_examples=scaled(60), deadline=None)
@given(data=st.data(), mdp=deterministic_mdps(discounts=QUICK))
def test_the_theorem(data: st.DataObject, mdp: MDP) -> None:
    """Any distribution that is positive everywhere reaches the metric."""
    size = mdp.R.size
    weights = data.draw(st.lists(st.floats(0.05, 1.0), min_size=size, max_size=size))
    shape = mdp.R.shape
    sampler: Any = data.draw(
        st.sampled_from(
            [
                Uniform(np.reshape(weights, shape)),
                AllActions(np.reshape(weights, shape)),
                Trajectories(restart=0.2),
                Prioritised(),
            ]
        )
    )
    truth = exact.bisimulation(mdp, tol=1e-9)
    run = SampledRun("bisimulation", mdp, sampler=sampler, seed=data.draw(st.integers(0, 100)))
    while np.abs(run.values - truth.values).max() > 1e-6:
        assert run.steps < 20_000_000, "the error stays above 1e-6"
        run.advance(50_000)
    distance = run.to_distance()
    far = np.abs(distance.values - truth.values).max()
    assert far <= distance.error + truth.error
    assert (run.values <= truth.values + truth.error + distance.coverage.rounding).all()  # type: ignore[union-attr]


@settings(max_examples=scaled(40), deadline=None)
@given(data=st.data(), mdp=deterministic_mdps(discounts=QUICK))
def test_the_theorem_on_policy(data: st.DataObject, mdp: MDP) -> None:
    states, actions = mdp.R.shape
    policy = data.draw(st.lists(st.integers(0, actions - 1), min_size=states, max_size=states))
    truth = exact.on_policy(mdp, policy, tol=1e-9)
    d = sampled.on_policy(mdp, policy, tol=1e-6, seed=data.draw(st.integers(0, 100)))
    assert d.error <= 1e-6
    assert np.abs(d.values - truth.values).max() <= d.error + truth.error


@settings(max_examples=scaled(40), deadline=None)
@given(mdp=deterministic_mdps(discounts=[0.0, 0.9, 0.999]), steps=st.integers(0, 3000))
def test_the_bound_holds_at_any_time(mdp: MDP, steps: int) -> None:
    truth = exact.bisimulation(mdp, tol=1e-7)
    run = SampledRun("bisimulation", mdp, seed=steps)
    run.advance(steps)
    lower, upper = run.to_distance().bounds(*np.indices(truth.values.shape))
    assert (lower <= truth.values + truth.error).all()
    assert (truth.values <= upper + truth.error).all()


def test_states_with_different_actions_are_at_the_diameter_bound() -> None:
    mask = np.array([[True, True], [True, False], [True, False]])
    mdp = MDP.deterministic(
        [[1, 2], [2, 0], [0, 0]],
        [[0.0, 1.0], [0.5, 0.0], [0.25, 0.0]],
        discount=0.9,
        available=mask,
    )
    truth = exact.bisimulation(mdp, tol=1e-9)
    for sampler in SAMPLERS:
        d = sampled.bisimulation(mdp, sampler=sampler, tol=1e-6)
        assert d(0, 1) == pytest.approx(10.0)
        assert np.abs(d.values - truth.values).max() <= d.error + truth.error


def test_one_state_has_nothing_to_learn() -> None:
    alone = MDP.deterministic([[0]], [[1.0]], discount=0.9)
    for sampler in SAMPLERS:
        d = sampled.bisimulation(alone, sampler=sampler)
        assert d.values.tolist() == [[0.0]]
        assert d.error < 1e-12


@each_sampler
def test_a_run_does_not_depend_on_how_it_is_split(sampler: Any, tmp_path: Path) -> None:
    mdp = worlds.load("random", states=40, actions=3, seed=5)
    whole = SampledRun("bisimulation", mdp, sampler=sampler, seed=7)
    whole.advance(50_000)
    parts = SampledRun("bisimulation", mdp, sampler=sampler, seed=7)
    for steps in (1, 0, 6, 4321, 20_000):
        parts.advance(steps)
    parts.save(tmp_path / "run.npz")
    again = SampledRun("bisimulation", mdp, sampler=sampler, seed=7).resume(tmp_path / "run.npz")
    assert again.steps == 24_328
    again.advance(50_000 - again.steps)
    assert np.array_equal(again.values, whole.values)
    assert np.array_equal(again.paired, whole.paired)
    other = SampledRun("bisimulation", mdp, sampler=sampler, seed=8)
    other.advance(50_000)
    assert not np.array_equal(other.values, whole.values)


def test_resumed_runs_reach_the_same_values(tmp_path: Path) -> None:
    mdp, _ = grid("bisimulation")
    file = tmp_path / "run.npz"
    sampled.bisimulation(mdp, steps=30_000, checkpoint=file)
    d = sampled.bisimulation(mdp, steps=90_000, resume=file)
    assert np.array_equal(d.values, sampled.bisimulation(mdp, steps=90_000).values)
    assert d.metadata["steps"] == 90_000


def test_an_interrupt_leaves_values_and_steps_consistent() -> None:
    mdp = worlds.load("random", states=300, seed=1)
    run = SampledRun("bisimulation", mdp, sampler=Trajectories(), seed=2)
    run.advance(10)
    timer = threading.Timer(0.3, lambda: __import__("_thread").interrupt_main())
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run.advance(10**12)
    assert 10 < run.steps < 10**12
    again = SampledRun("bisimulation", mdp, sampler=Trajectories(), seed=2)
    again.advance(run.steps)
    assert np.array_equal(again.values, run.values)


def test_rules_to_stop() -> None:
    mdp, truth = grid("bisimulation")
    assert sampled.bisimulation(mdp, steps=1234).metadata["steps"] == 1234
    timed = sampled.bisimulation(mdp, seconds=0.05)
    assert timed.metadata["stopped"] == "seconds"
    proven = sampled.bisimulation(mdp, tol=1e-2, reference=truth)
    assert proven.error <= 1e-2
    assert proven.metadata["stopped"] == "tol"
    assert sampled.bisimulation(mdp).error <= 1e-3
    with pytest.raises(NotConverged, match=r"after 1,000 steps .* more than tol=0.01") as info:
        sampled.bisimulation(mdp, tol=1e-2, steps=1000)
    partial = info.value.partial
    assert isinstance(partial, Distance)
    assert partial.error > 1e-2
    assert np.abs(partial.values - truth.values).max() <= partial.error + truth.error


def test_a_run_stops_where_tol_cannot_be_reached() -> None:
    large = MDP.deterministic([[0], [1]], [[0.0], [1e9]], discount=0.99)
    with pytest.raises(NotConverged, match="a larger tol"):
        sampled.bisimulation(large)
    with pytest.raises(NotConverged, match="a larger tol"):
        sampled.bisimulation(large, tol=1e-20)
    two = MDP.deterministic([[0, 0], [1, 1]], [[0.0, 0.0], [0.0, 2.0]], discount=0.9)
    for sampler in (Uniform([[1, 0], [1, 0]]), Trajectories([0, 0])):
        with pytest.raises(InputError, match="may omit pairs and never reach tol"):
            sampled.bisimulation(two, sampler=sampler)
        d = sampled.bisimulation(two, sampler=sampler, steps=1000)
        assert d(0, 1) == 0
        assert d.bounds(0, 1)[1] >= 20  # the exact distance
    vast = MDP.deterministic([[0], [1]], [[0.0], [1e308]], discount=0.9)
    with pytest.raises(InputError, match="float64 cannot hold; scale the rewards down"):
        sampled.bisimulation(vast)


@pytest.mark.parametrize(("reward", "discount"), [(1e-322, 0.9999), (3e-308, 0.3), (5e-324, 0.9)])
def test_proofs_hold_below_the_normal_numbers(reward: float, discount: float) -> None:
    mdp = MDP.deterministic([[0], [1]], [[0.0], [reward]], discount=discount)
    d = sampled.bisimulation(mdp, steps=10_000)
    truth = Fraction(reward) / (1 - Fraction(discount))
    low, high = d.bounds(0, 1)
    assert Fraction(low) <= truth <= Fraction(high)


def test_only_two_kinds_can_be_run() -> None:
    with pytest.raises(InputError, match="kind is 'lax' and must be bisimulation or on_policy"):
        SampledRun("lax", grid("bisimulation")[0])


def test_weights_are_followed() -> None:
    weight = np.array([1.0, 0.0, 3.0, 6.0, 2.0, 2.0, 0.0, 1.0])
    start = np.array([0, 4, 8])
    table = kernels.AliasTable(*kernels.build_alias_table(weight, start))
    u = (np.arange(100_000) + 0.5) / 100_000
    for low, high in ((0, 4), (4, 8)):
        found = [kernels.draw_alias(x, low, high - low, *table) for x in u]
        share = np.bincount(found, minlength=8)[low:high] / len(u)
        assert np.abs(share - weight[low:high] / weight[low:high].sum()).max() < 1e-4


@given(st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=30))
@settings(deadline=None)
def test_zero_weights_are_never_sampled(weights: list[float]) -> None:
    weight = np.array(weights)
    if not weight.sum() > 0:
        return
    keep, other = kernels.build_alias_table(weight, np.array([0, len(weight)]))
    share = np.bincount(other, weights=np.maximum(0, 1 - keep), minlength=len(weight)) + keep
    assert np.allclose(share / len(weight), weight / weight.sum(), atol=1e-12)
    assert not keep[weight == 0].any()
    assert (weight[other[keep < 1]] > 0).all()


def test_random_numbers_are_even_and_without_memory() -> None:
    seed = kernels.derive_seed(0)
    drawn = np.array([kernels.uniform(seed, count) for count in range(20_000)])
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = np.bincount((drawn * 20).astype(int), minlength=20)
    assert ((counts - 1000) ** 2 / 1000).sum() < 50  # chi-squared, 19 degrees: 1 in 10,000
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.03


def test_priorities_are_the_increases_of_the_values() -> None:
    """A prioritised run can be resumed from its values alone."""
    mdp = worlds.load("random", states=25, actions=3, seed=2)
    run = SampledRun("bisimulation", mdp, sampler=Prioritised(), seed=1)
    run.advance(3_000)
    engine = run._updater
    assert isinstance(engine, PrioritisedUpdater)
    rows = run.source.table.rows
    planted = sum_tree.build_tree(run.values.copy(), rows, run.discount, engine.group_offsets)
    assert engine.tree is not None
    assert np.array_equal(planted, engine.tree)
    assert planted[1] == pytest.approx(planted[len(planted) // 2 :].sum())


def test_prioritised_needs_far_fewer_samples() -> None:
    mdp, truth = grid("bisimulation")
    uniform = SampledRun("bisimulation", mdp)
    ranked = SampledRun("bisimulation", mdp, sampler=Prioritised())
    uniform.advance(200_000)
    ranked.advance(200_000)
    assert np.abs(ranked.values - truth.values).max() < 1e-2
    assert np.abs(uniform.values - truth.values).max() > 10


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"seed": -1}, "seed is -1 and must be a whole number"),
    ({"seed": 0.5}, "seed is 0.5 and must be a whole number"),
    ({"steps": -1}, "steps is -1 and must be a whole number"),
    ({"steps": 1.5}, "steps is 1.5 and must be a whole number"),
    ({"seconds": 0}, "seconds is 0 and must be above 0"),
    ({"tol": float("nan")}, "tol is nan and must be above 0"),
    ({"discount": 1.0}, "discount is 1.0 and must be"),
    (
        {"sampler": "uniform"},
        r"sampler is 'uniform' and must be a sampler such as",
    ),
    ({"sampler": Trajectories(restart=0)}, "restart is 0 and must be above 0 and at most 1"),
    ({"sampler": Prioritised(explore=2)}, "explore is 2 and must be above 0"),
    ({"sampler": Uniform(np.ones(3))}, r"weights have shape \(3,\) and must be .* \(31, 4\)"),
    ({"sampler": Uniform(-np.ones((31, 4)))}, "weights must be finite, at least 0"),
    ({"sampler": Uniform(np.zeros((31, 4)))}, "not all of them 0"),
    ({"sampler": Trajectories(policy=np.full(31, 9))}, r"policy\[0\] is 9"),
    ({"checkpoint": "no/such/folder/run.npz"}, "make the folder no/such/folder first"),
    (
        {"updates_per_transition": 0},
        "updates_per_transition is 0 and must be a whole",
    ),
]


@pytest.mark.parametrize(("options", "complaint"), REFUSED)
def test_invalid_options_raise(options: dict[str, Any], complaint: str) -> None:
    mdp, _ = grid("bisimulation")
    with pytest.raises((InputError, OSError), match=complaint):
        sampled.bisimulation(mdp, **options)


def test_stochastic_mdps_raise() -> None:
    slippery = MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[0.0], [1.0]], discount=0.9)
    with pytest.raises(
        InputError, match=r"several successors of state 0 under action 0 .* exact.bisimulat"
    ):
        sampled.bisimulation(slippery)
    mixed = MDP.deterministic([[0, 1], [1, 0]], [[0, 0], [1, 1]], discount=0.9)
    with pytest.raises(InputError, match="takes several actions in state 0"):
        sampled.on_policy(mixed, [[0.5, 0.5], [1.0, 0.0]])
    with pytest.raises(InputError, match="comes with no policy"):
        sampled.on_policy(mixed)
    with pytest.raises(InputError, match="source is int and must be an MDP"):
        sampled.bisimulation(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="reference has 2 states and the source 31"):
        sampled.bisimulation(grid("bisimulation")[0], reference=exact.bisimulation(mixed))
    with pytest.raises(InputError, match="the random walk follows policy"):
        sampled.on_policy(mixed, [0, 0], sampler=Trajectories(policy=[0, 0]))


def test_checkpoints_of_other_runs_raise(tmp_path: Path) -> None:
    mdp, truth = grid("bisimulation")
    file = tmp_path / "run.npz"
    run = SampledRun("bisimulation", mdp, seed=1)
    run.advance(100)
    run.save(file)
    others: list[tuple[SampledRun, str]] = [
        (SampledRun("bisimulation", mdp, seed=2), "its seed is 1 and must be 2"),
        (
            SampledRun("bisimulation", mdp, seed=1, discount=0.9),
            "its discount is 0.99 and must be 0.9",
        ),
        (
            SampledRun("bisimulation", mdp, seed=1, sampler=AllActions()),
            r"its sampler is uniform\(\)",
        ),
        (SampledRun("on_policy", mdp, policy=[0] * 31, seed=1), "its kind is bisimulation"),
        (
            SampledRun("bisimulation", worlds.load("pessimism", discount=0.99), seed=1),
            "its states is 31",
        ),
        (
            SampledRun("bisimulation", mdp.replace(R=mdp.R * 2), seed=1),
            "its transitions or their weights differ",
        ),
        (
            SampledRun("bisimulation", mdp, seed=1, sampler=Uniform(mdp.R + 2)),
            r"its sampler is uniform\(\) and must be uniform\(weights=",
        ),
    ]
    for other, complaint in others:
        with pytest.raises(InputError, match=complaint):
            other.resume(file)
        assert other.steps == 0
    truth.save(tmp_path / "distance.npz")
    (tmp_path / "cut.npz").write_bytes(file.read_bytes()[:1000])
    with np.load(file) as archive:
        arrays = dict(archive)
    arrays["values"] = arrays["values"] + 1.0
    np.savez(tmp_path / "changed.npz", **arrays)
    with pytest.raises(InputError, match="its checksum does not match"):
        run.resume(tmp_path / "changed.npz")
    for wrong in ("distance.npz", "cut.npz"):
        with pytest.raises(InputError, match="truncated or not a checkpoint of bisimetric"):
            run.resume(tmp_path / wrong)
    with pytest.raises(FileNotFoundError, match="cannot read"):
        run.resume(tmp_path / "missing.npz")
    assert run.steps == 100
