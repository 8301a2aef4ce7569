"""What every solver compares besides rewards: the table of docs/how-to/own-mdp.md, cell by cell.

A cell is supported, and then agrees with `exact`, or raises InputError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, Distance, InputError, Transitions, exact, relation, sampled
from bisimetric.exact import gaps
from bisimetric.exact.gpu import couplings, cuda
from tests.emulated_cuda import COMPILER, EmulatedDevice

STATES, ACTIONS = 12, 2


def build_mdp(deterministic: bool = True) -> MDP:
    rng = np.random.default_rng(0)
    size = (STATES, ACTIONS)
    P = np.eye(STATES)[rng.integers(STATES, size=size)]
    if not deterministic:
        P = rng.multinomial(3, np.ones(STATES) / STATES, size=size) / 3
    return MDP(P, rng.integers(3, size=size), 0.6, policy=rng.integers(ACTIONS, size=STATES))


def build_metric(seed: int, shape: tuple[int, ...] = (STATES,)) -> Any:
    points = np.random.default_rng(seed).integers(4, size=(*shape, 2))
    return np.abs(points[:, None] - points[None]).sum(axis=-1).astype(float)


PLAIN = build_mdp()
POLICY: Any = PLAIN.policy
LABELS = [("x",) if s % 5 == 0 else () for s in range(STATES)]
X = np.random.default_rng(1).integers(3, size=(STATES, 2))
GROUND = build_metric(2)
BY_ACTION = np.stack([build_metric(3 + a) for a in range(ACTIONS)], axis=2)

FEATURES: dict[str, tuple[dict[str, Any], Any]] = {
    "labels": ({"labels": LABELS}, None),
    "choice labels": ({"choice_labels": ["go"] * ACTIONS}, None),
    "observations": ({"observations": X, "ground_distance": "l1"}, None),
    "gap": ({}, GROUND),
    "gap function": ({}, lambda s, a, t, b: GROUND[s, t]),
    "gap by action": ({}, BY_ACTION),
    "rewards": ({}, gaps.rewards([PLAIN.R, PLAIN.R**2], weights=[1, 0.5])),
    "policies": ({}, gaps.policies(PLAIN, POLICY)),
    "all": ({"labels": LABELS, "observations": X}, GROUND),
}


def query(kind: Any) -> Callable[..., Any]:
    def compute(mdp: MDP, **options: Any) -> Any:
        pairs = [(s, t) for s in range(STATES) for t in range(STATES)]
        found = exact.query(mdp, pairs, kind=kind, **options)
        return Distance(found.values.reshape(STATES, STATES).copy(), found.error, kind, mdp)

    return compute


def shard(kind: str) -> Callable[..., Any]:
    def compute(mdp: MDP, **options: Any) -> Any:
        sharded = pytest.importorskip("bisimetric.exact.sharded")
        pytest.importorskip("jax")
        return getattr(sharded, kind)(mdp, **options)

    return compute


def learn(kind: Any) -> Callable[..., Any]:
    def compute(mdp: MDP, **options: Any) -> Any:
        pytest.importorskip("jax")
        from bisimetric import learned

        source = learned.source_from_model(kind, mdp, discount=mdp.discount, **options)
        return Distance(np.asarray(source.values, np.float64), 0.01, kind, mdp)

    return compute


def run_on_gpu(compute: Any) -> Callable[..., Any]:
    def on_gpu(mdp: MDP, **options: Any) -> Any:
        return compute(mdp, device="gpu", **options)

    return on_gpu


def on_policy(mdp: MDP, **options: Any) -> Any:
    return exact.on_policy(mdp, **options)


SOLVERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "query d~": (query("bisimulation"), exact.bisimulation),
    "query d^pi": (query("on_policy"), on_policy),
    "query d_lax": (query("lax"), exact.lax),
    "sampled d~": (sampled.bisimulation, exact.bisimulation),
    "sampled d^pi": (sampled.on_policy, on_policy),
    "gpu d~": (run_on_gpu(exact.bisimulation), exact.bisimulation),
    "gpu d^pi": (run_on_gpu(exact.on_policy), on_policy),
    "gpu d_lax": (run_on_gpu(exact.lax), exact.lax),
    "sharded d~": (shard("bisimulation"), exact.bisimulation),
    "sharded d^pi": (shard("on_policy"), on_policy),
    "model-based d~": (learn("bisimulation"), exact.bisimulation),
    "model-based d^pi": (learn("on_policy"), on_policy),
}
SETS = "choice labels"
BY_ACTIONS = "no action changes"
ERRORS = {
    ("choice labels", "query d~"): SETS,
    ("choice labels", "sampled d~"): SETS,
    ("choice labels", "sharded d~"): SETS,
    ("gap by action", "sharded d~"): BY_ACTIONS,
    ("rewards", "sharded d~"): BY_ACTIONS,
    ("gap by action", "query d_lax"): r"must be \(12, 12\) or \(12, 2, 12, 2\)",
    ("gap by action", "gpu d_lax"): r"must be \(12, 12\) or \(12, 2, 12, 2\)",
    ("gap by action", "query d^pi"): r"must be \(12, 12\)",
    ("gap by action", "sampled d^pi"): r"must be \(12, 12\)",
    ("gap by action", "gpu d^pi"): r"must be \(12, 12\)",
    ("gap by action", "sharded d^pi"): r"must be \(12, 12\)",
    ("gap by action", "model-based d^pi"): r"must be \(12, 12\)",
}
"""The cells that raise; a gap of a policy has no actions."""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "find_device", lambda: EmulatedDevice())
    monkeypatch.setattr(couplings, "SUPPORTS", (6,))  # compiled once


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("feature", FEATURES)
def test_deterministic_mdps(feature: str, solver: str) -> None:
    if solver.startswith("gpu") and COMPILER is None:
        pytest.skip("there is no C++ compiler here")
    attributes, gap = FEATURES[feature]
    options = {} if gap is None else {"gap": gap}
    mdp = PLAIN.replace(**attributes)
    compute, reference = SOLVERS[solver]
    if (feature, solver) in ERRORS:
        with pytest.raises(InputError, match=ERRORS[feature, solver]):
            compute(mdp, **options)
        return
    d, expected = compute(mdp, **options), reference(mdp, **options)
    assert np.abs(d.values - expected.values).max() <= d.error + expected.error
    plain = reference(PLAIN)
    differs = np.abs(plain.values - expected.values).max() > 0.1
    assert differs == (feature != "choice labels" or ("lax" not in solver and "pi" not in solver))


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    "solver",
    [each for each in SOLVERS if each.startswith(("query", "gpu")) or each == "model-based d~"],
)
@pytest.mark.parametrize("feature", FEATURES)
def test_stochastic_mdps(feature: str, solver: str) -> None:
    if solver.startswith("gpu") and COMPILER is None:
        pytest.skip("there is no C++ compiler here")
    if (feature, solver) in ERRORS:
        pytest.skip("raises for deterministic MDPs too")
    attributes, gap = FEATURES[feature]
    options = {} if gap is None else {"gap": gap}
    mdp = build_mdp(deterministic=False).replace(**attributes)
    compute, reference = SOLVERS[solver]
    d, expected = compute(mdp, **options), reference(mdp, **options)
    assert np.abs(d.values - expected.values).max() <= d.error + expected.error


@pytest.mark.parametrize("feature", ["labels", "choice labels", "observations"])
def test_relations(feature: str) -> None:
    attributes, _ = FEATURES[feature]
    mdp = PLAIN.replace(R=np.zeros(PLAIN.R.shape), **attributes)
    for classes, d in (
        (relation.bisimulation(mdp), exact.bisimulation(mdp)),
        (relation.on_policy(mdp, POLICY), exact.on_policy(mdp)),
        (relation.lax(mdp), exact.lax(mdp)),
    ):
        np.testing.assert_array_equal(classes[:, None] == classes, d.values <= d.error)
    assert (relation.bisimulation(mdp).max() > 0) == (feature != "choice labels")


def test_monte_carlo_estimates() -> None:
    mdp = build_mdp(deterministic=False)
    for feature in ("labels", "observations"):
        attributes, _ = FEATURES[feature]
        observed = mdp.replace(**attributes)
        d, expected = exact.bisimulation(observed, samples=200), exact.bisimulation(observed)
        assert np.abs(d.values - expected.values).max() <= 0.1 * expected.values.max()
    with pytest.raises(InputError, match="gap and samples do not go together"):
        exact.bisimulation(mdp, samples=3, gap=GROUND)
    with pytest.raises(InputError, match="choice labels"):
        exact.bisimulation(mdp.replace(choice_labels=["go"] * ACTIONS), samples=3)


def test_gaps_of_recorded_data() -> None:
    s, a = (each.ravel() for each in np.indices((STATES, ACTIONS)))
    next_s = PLAIN.next_state[s, a]
    done = np.zeros(len(s), bool)
    data = Transitions(s, a, PLAIN.R[s, a], next_s, done, states=s, next_states=next_s)
    for gap in (GROUND, BY_ACTION, FEATURES["rewards"][1]):
        d = sampled.bisimulation(data, gap=gap, discount=PLAIN.discount)
        expected = exact.bisimulation(PLAIN, gap=gap)
        assert np.abs(d.values - expected.values).max() <= d.error + expected.error
        assert not d.bounds_values
    with pytest.raises(InputError, match="a stream adds states"):
        sampled.bisimulation([data], gap=GROUND)
    run = sampled.SampledRun("bisimulation", data, gap=GROUND)
    with pytest.raises(InputError, match="cannot be added to a run with a gap"):
        run.add_transitions(data)


def test_implicit_mdps_take_no_gap() -> None:
    from bisimetric import ImplicitMDP

    walk = ImplicitMDP(lambda x, a: (0.0, x), actions=(0,), discount=0.5, reward_range=(0, 1))
    with pytest.raises(InputError, match="states of an implicit MDP have no ids"):
        exact.query(walk, [(0, 1)], gap=GROUND)
