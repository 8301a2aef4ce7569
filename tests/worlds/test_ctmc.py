"""CTMCs: uniformised, with the values of continuous time, and the classes of two definitions."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric import MDP, InputError, exact, planning, relation, uses, worlds
from bisimetric.errors import ExpectedRewardWarning

Rates = NDArray[np.float64]


def write(path: Path, rates: Rates, labels: list[str], rewards: str = "") -> Path:
    """Write a CTMC in Storm's layout; `rewards` are state and choice rewards per line."""
    paid = rewards.splitlines() or ["|"] * len(rates)
    lines = ["@type: CTMC", "@parameters", "", "@reward_models", "cost" if rewards else ""]
    lines += ["@nr_states", str(len(rates)), "@nr_choices", str(len(rates)), "@model"]
    for state, (row, pay) in enumerate(zip(rates, paid, strict=True)):
        by_state, _, by_choice = pay.partition("|")
        lines.append(f"state {state} !{row.sum():.9g} {by_state} {labels[state]}")
        lines.append(f"\taction 0 {by_choice}")
        lines += [f"\t\t{t} : {row[t]!r}" for t in np.flatnonzero(row).tolist()]
    path.write_text("\n".join(lines).replace("np.float64(", "").replace(")", "") + "\n")
    return path


def random_rates(rng: np.random.Generator, states: int = 7) -> tuple[Rates, list[str]]:
    """Rates and labels, equal in many states."""
    rates = rng.integers(3, size=(states, states)) * (rng.random((states, states)) < 0.4) / 4
    half = states // 2
    rates[half:] = rates[: states - half].copy()
    rates[rates.sum(axis=1) == 0, 0] = 0.5
    return rates, [str(each) for each in rng.choice(["", "x"], size=states)]


def classes_of(rates: Rates, labels: list[str], own: bool) -> list[int]:
    """Refine by rates into all classes, or into all others, in fractions."""
    signatures: list[Any] = list(labels)
    classes = [-1]
    while True:
        numbers: dict[Any, int] = {}
        refined = [numbers.setdefault(each, len(numbers)) for each in signatures]
        if max(refined) == max(classes):
            return refined
        classes, signatures = refined, []
        for s, row in enumerate(rates):
            sums: dict[int, Fraction] = {}
            for t in np.flatnonzero(row).tolist():
                if own or classes[t] != classes[s]:
                    sums[classes[t]] = sums.get(classes[t], Fraction(0)) + Fraction(row[t])
            signatures.append((classes[s], frozenset(sums.items())))


def test_classes_of_both_definitions(tmp_path: Path) -> None:
    different = 0
    for seed in range(60):
        rates, labels = random_rates(np.random.default_rng(seed))
        path = write(tmp_path / "model.drn", rates, labels)
        observe = ["x"] if "x" in labels else []
        found = relation.bisimulation(worlds.from_drn(path, observe=observe)).tolist()
        assert found == classes_of(rates, labels, own=False)
        rated = relation.bisimulation(worlds.load(path, observe=[*observe, "exit_rate"])).tolist()
        assert rated == classes_of(rates, labels, own=True)
        different += found != rated
    assert different > 5


def test_values_are_those_of_continuous_time(tmp_path: Path) -> None:
    rates = np.array([[0, 3.0, 1.0], [0.5, 1.5, 0], [0, 0, 2.0]])
    path = write(tmp_path / "model.drn", rates, [""] * 3, "[2]|[5]\n[0]|[1]\n[7]|[0]")
    alpha = 0.25
    for q in (None, 10.0):
        rate = 4.0 if q is None else q
        discount = rate / (rate + alpha)
        mdp = worlds.load(path, discount=discount, uniformisation_rate=q)
        V = planning.policy_values(mdp, [0, 0, 0]).values * discount
        # alpha V = rho + sum_t rate(s, t) (V(t) + iota(s) - V(s))
        rho, iota = np.array([2, 0, 7]), np.array([5, 1, 0])
        exits = rates.sum(axis=1)
        expected = np.linalg.solve(np.diag(alpha + exits) - rates, rho + exits * iota)
        assert np.allclose(V, expected, rtol=1e-6)


def test_a_state_of_the_largest_rate_has_no_self_loop(tmp_path: Path) -> None:
    rates = np.array([[0, 0.1, 0.2, 0.3], [0.6, 0, 0, 0], [0.1, 0, 0, 0], [0, 0, 0, 0.6]])
    mdp = worlds.load(write(tmp_path / "model.drn", rates, ["a", "b", "", ""]))
    P = mdp.P.toarray()
    assert np.allclose(P[0], [0, 1 / 6, 1 / 3, 1 / 2])
    assert P[0, 0] == P[1, 1] == 0
    assert P[2, 2] == pytest.approx(5 / 6)
    assert mdp.actions == ("step",)


def test_prisms_files(tmp_path: Path) -> None:
    (tmp_path / "m.tra").write_text("3 3\n0 1 3\n1 2 0.5\n1 0 1.5\n")  # state 2 is a deadlock
    (tmp_path / "m.srew").write_text("3 1\n0 6\n")
    (tmp_path / "m.trew").write_text("3 1\n1 2 4\n")
    with pytest.warns(ExpectedRewardWarning):
        mdp = worlds.from_prism(tmp_path / "m.tra", model_type="ctmc")
    expected = np.array([[0, 1, 0], [0.5, 1 / 3, 1 / 6], [0, 0, 1]])
    assert np.allclose(mdp.P.toarray(), expected)
    assert mdp.R.ravel() == pytest.approx(np.array([6 / 3, 4 * 0.5 / 3, 0]))
    wrong: dict[str, Any]
    for wrong, message in (
        ({}, "3 is no probability; rates"),
        ({"model_type": "mdp"}, "model_type is 'mdp'"),
        ({"model_type": "ctmc", "uniformisation_rate": 2}, "at least the largest exit rate, 3"),
        ({"model_type": "ctmc", "uniformisation_rate": "x"}, "uniformisation_rate is x"),
    ):
        with pytest.raises(InputError, match=message):
            worlds.from_prism(tmp_path / "m.tra", **wrong)


def test_two_ctmcs_are_compared_at_one_rate(tmp_path: Path) -> None:
    fast = write(tmp_path / "fast.drn", np.array([[0, 2.0], [0, 1.0]]), ["", "done"])
    slow = write(tmp_path / "slow.drn", np.array([[0, 1.0], [0, 1.0]]), ["", "done"])
    models = [worlds.load(path, discount=0.9, uniformisation_rate=2) for path in (fast, fast, slow)]
    same = exact.bisimulation(uses.disjoint_union(models[0], models[1]))
    other = exact.bisimulation(uses.disjoint_union(models[0], models[2]))
    assert same("source 0", "target 0") == 0
    # The slow one stays with probability 1/2, and labels are at distance 10.
    assert other("source 0", "target 0") == pytest.approx(4.5)


def test_mistakes(tmp_path: Path) -> None:
    path = write(tmp_path / "model.drn", np.array([[0, 2.0], [1.0, 0]]), ["", "x"])
    text = path.read_text()
    for old, new, message in (
        ("!2", "!3", "state 0 has the exit rate 3 and rates that sum to 2"),
        ("!2", "!two", "line 11: 'two' is no exit rate"),
        (": 2.0", ": -2", "line 13: -2 is no rate"),
        ("CTMC", "DTMC", "line 13: 2 is no probability"),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(InputError, match=message):
            worlds.load(path)
    path.write_text(text.replace("!2", "").replace("1 : 2.0", "1 : 1e308\n\t\t0 : 1e308"))
    with pytest.raises(InputError, match="rates of a state sum to inf"):
        worlds.load(path)
    path.write_text(text)
    with pytest.raises(InputError, match="there is no label 'y'"):
        worlds.load(path, observe="y,exit_rate")
    worlds.to_drn(MDP.deterministic([[0]], [[0]], discount=0.5), tmp_path / "chain.drn")
    with pytest.raises(InputError, match="uniformisation_rate is for CTMCs"):
        worlds.load(tmp_path / "chain.drn", uniformisation_rate=2)
