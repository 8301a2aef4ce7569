"""The paper, claim by claim: listed names exist, verdicts follow runs, the page the record."""

from __future__ import annotations

import dataclasses
import importlib
import json
import operator
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, exact
from bisimetric.cli._main import COMMANDS
from bisimetric.errors import InputError
from bisimetric.learned.castro2020 import PairNetwork
from bisimetric.paper import claims, learning_claims, sampling_claims, stability, theory_claims
from bisimetric.paper.gridworld import PAPER_CONFIG
from bisimetric.paper.gridworld_curves import GridworldCurves
from bisimetric.paper.theory_claims import Outcome
from tests.commands import Run

ROOT = Path(__file__).parents[2]
CLAIMS = {claim.name: claim for claim in claims.load_claims()}
THEORY = [each.outcome for each in CLAIMS.values() if each.outcome.startswith("check_")]
TINY = learning_claims.Sizes(
    updates=4,
    seeds=2,
    noise_seeds=2,
    noise_variants=("paper", "no-beta"),
    batch_size=8,
    draws=1,
    samples=2,
    log_every=2,
)


def test_names_of_claims_differ() -> None:
    assert len(CLAIMS) == len(claims.load_claims()) > 50


@pytest.mark.parametrize("name", CLAIMS)
def test_code_and_tests_of_a_claim_exist(name: str) -> None:
    claim = CLAIMS[name]
    for path in claim.tests:
        assert (ROOT / path).exists(), path
    for dotted in claim.code:
        parts = dotted.split(".")
        for length in range(len(parts), -1, -1):
            try:
                found: Any = importlib.import_module(".".join(["bisimetric", *parts[:length]]))
            except ModuleNotFoundError:
                continue
            if parts[length:]:
                operator.attrgetter(".".join(parts[length:]))(found)
            break


@pytest.mark.parametrize("name", [each.name for each in CLAIMS.values() if each.command])
def test_the_command_of_a_claim_exists(name: str) -> None:
    program, *words = shlex.split(CLAIMS[name].command)
    if program == "python":
        assert (ROOT / words[0]).exists()
        return
    assert program == "bisimetric"
    known = {*COMMANDS, *((("atari", each)) for each in ("learn", "show", "evaluate", "sweep"))}
    assert tuple(words[:2]) in known


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_has_a_recorded_outcome_or_a_result(name: str) -> None:
    claim, record = CLAIMS[name], claims.load_record()
    assert bool(claim.outcome) != bool(claim.result)
    if claim.outcome:
        assert record[claim.outcome].text
        assert record[claim.outcome].runs


def test_recorded_outcomes_are_of_full_runs() -> None:
    metadata = json.loads(claims.RECORD_FILE.read_text(encoding="utf-8"))["metadata"]
    assert metadata["quick"] is False
    assert set(claims.load_record()) == {claim.outcome for claim in CLAIMS.values()} - {""}


def test_the_page_has_the_recorded_tables() -> None:
    text = (ROOT / "docs" / "reports" / "paper.md").read_text(encoding="utf-8")
    assert claims.render_page(text, claims.load_record()) == text


def test_outcomes_on_learning_are_those_of_the_stored_runs() -> None:
    runs = learning_claims.run(ROOT / "docs" / "reports" / "paper" / "runs")
    recorded = claims.load_record()
    for name, outcome in learning_claims.judge_all(runs).items():
        # Distances of samples depend on the machine in their last digits.
        if name != "pseudometric":
            assert recorded[name] == outcome


def test_a_page_without_a_section_is_an_error() -> None:
    with pytest.raises(InputError, match="the page has no <!-- claims: Background -->"):
        claims.render_page("# Page", {})


def test_a_damaged_record_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "claims.json").write_text('{"outcomes": {"a": {"wrong": 1}}}')
    with pytest.raises(InputError, match="holds no outcomes of claims"):
        claims.load_record(tmp_path / "claims.json")


FAST = [name for name in THEORY if name not in ("check_convergence", "check_fixed_point")]


@pytest.mark.parametrize("name", FAST)
def test_theorems_and_examples_have_the_recorded_verdict(name: str) -> None:
    module = theory_claims if hasattr(theory_claims, name) else sampling_claims
    outcome = getattr(module, name)(6)
    assert outcome.verdict == claims.load_record()[name].verdict, outcome.text


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(THEORY) - set(FAST)))
def test_slow_theorems_have_the_recorded_verdict(name: str) -> None:
    module = theory_claims if hasattr(theory_claims, name) else sampling_claims
    outcome = getattr(module, name)(4)
    assert outcome.verdict == claims.load_record()[name].verdict, outcome.text


def test_wrong_distances_do_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = exact.on_policy

    def halve(mdp: MDP, policy: Any, **options: Any) -> Any:
        d = honest(mdp, policy, **options)
        return dataclasses.replace(d, values=d.values / 2)

    monkeypatch.setattr(exact, "on_policy", halve)
    found = theory_claims.check_on_policy(10)
    assert found.verdict == "does not hold"
    record = {"check_on_policy": Outcome("holds", "", "")}
    assert claims.find_contradictions({"check_on_policy": found}, record) == ["check_on_policy"]


def make_curves(name: str, learned: Any, **metadata: Any) -> GridworldCurves:
    """Make final curves of seeds whose matrices are `learned`, of an exact metric 10, 20, 30."""
    matrices = np.asarray(learned, np.float32)
    error = np.abs(matrices - EXACT).max(axis=(1, 2))[:, None].astype(float)
    norms = np.linalg.norm(matrices, axis=(1, 2), keepdims=True)
    scaled = matrices / norms - EXACT / np.linalg.norm(EXACT)
    normalised = np.abs(scaled).max(axis=(1, 2))[:, None].astype(float)
    return GridworldCurves(
        name, np.array([2500]), error, error, normalised, error, matrices, EXACT, metadata
    )


EXACT = np.array([[0.0, 10, 20], [10, 0, 30], [20, 30, 0]])


def test_stability_is_judged_by_intervals_of_the_error() -> None:
    good = make_curves("no-noise", [EXACT * 0.9, EXACT * 0.92])
    bad = make_curves("no-noise", [EXACT * 9, EXACT * 9.1])
    variants = {"paper": good, "no-beta": good, "no-target": bad, "neither": bad}
    found = learning_claims.judge_stability(variants)
    assert found.verdict == "differs"
    assert "no target network: 242 ± 19 (2 overshoot)" in found.text
    all_worse = {"paper": good, "no-beta": bad, "no-target": bad, "neither": bad}
    assert learning_claims.judge_stability(all_worse).verdict == "holds"
    assert learning_claims.judge_stability({"paper": bad, "neither": good}).verdict == (
        "does not hold"
    )
    assert learning_claims.judge_stability({"paper": good}).verdict == "not tested"


def test_a_summary_has_bias_and_collapse() -> None:
    zero = EXACT.copy()
    zero[0, 1] = 0
    found = stability.summarise(make_curves("no-noise", [EXACT + 3 * (EXACT > 0), zero]))
    assert found.bias == pytest.approx([3, -10 / 6])
    assert found.overshoots == [True, False]
    assert found.collapsed == [False, True]
    assert found.correlation[0] == pytest.approx(1)


def test_a_difference_that_matters_is_told() -> None:
    ours = make_curves("no-noise", [EXACT, EXACT * 1.01])
    theirs = make_curves("no-noise", [EXACT * 2, EXACT * 2.01])
    variants = {"paper": ours, "float64": theirs, "compared-pairs": ours}
    assert learning_claims.judge_difference(variants, "float64").verdict == "differs"
    assert learning_claims.judge_difference(variants, "compared-pairs").verdict == "holds"


def make_record(rule: str, **fields: Any) -> dict[str, Any]:
    base = {"network": "0", "draw": 0, "rule": rule, "threshold": 0.9, "clusters": 8}
    numbers = {"near_goal": 0.2, "near_goal_p": 0.5, "goal_distance": 0.1, "goal_distance_p": 0.4}
    return base | numbers | {"purity": 0.2, "hallway": 0.5, "alone": 0} | fields


def test_clusterings_are_judged_by_their_majority() -> None:
    near = {"near_goal": 0.9, "near_goal_p": 0.01}
    records = [make_record("at most 8", **near, hallway=1.0, alone=1), make_record("at most 31")]
    records += [make_record("exact", near_goal=0.3)]
    assert learning_claims.judge_near_goal(records).verdict == "holds"
    assert learning_claims.judge_hallway(records).verdict == "holds"
    assert learning_claims.judge_far_from_goal(records).verdict == "does not hold"
    records.append(make_record("at most 4", hallway=0.1))
    assert learning_claims.judge_near_goal(records).verdict == "does not hold"
    assert learning_claims.judge_hallway(records).verdict == "differs"


def test_variants_differ_from_the_paper_in_one_thing() -> None:
    period = PAPER_CONFIG.target_update_period
    per_update = stability.VARIANTS["no-target"].config
    assert per_update.target_update_period == 1
    assert per_update.horizon_growth**period == pytest.approx(PAPER_CONFIG.horizon_growth)
    fixed = stability.VARIANTS["no-beta"].config
    assert dataclasses.asdict(fixed) | {"horizon_growth": 0.9} == dataclasses.asdict(PAPER_CONFIG)


@pytest.mark.slow
def test_all_claims_are_measured_by_one_command(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(learning_claims, "QUICK", TINY)
    monkeypatch.setattr(claims, "QUICK_NUM_MDPS", 2)
    # Most variants are the paper's here, which is compiled once.
    network = PairNetwork((8,), output_activation="relu")
    for name, variant in stability.VARIANTS.items():
        config = variant.config if name in ("no-beta", "float64") else PAPER_CONFIG
        form = stability.DoublePairNetwork((8,)) if variant.double else network
        changed = dataclasses.replace(config, network=form)
        monkeypatch.setitem(stability.VARIANTS, name, variant._replace(config=changed))
    code, out, _ = run("reproduce", "claims", "--quick", "-o", "new")
    assert code == 0, out
    for claim in CLAIMS.values():
        assert re.search(rf"^  {claim.name}: ", out, re.MULTILINE), claim.name
    assert "recorded" in out
    record = claims.load_record(tmp_path / "new" / "claims.json")
    assert {"stability", "precision", "near-goal", "check_lemmas"} <= set(record)
