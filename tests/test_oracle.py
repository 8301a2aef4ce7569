"""Proven bounds of the library against the oracle: a sample here, the rest in the campaign."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from bisimetric import exact
from tests import oracle_campaign, oracle_properties
from tests.adversarial_mdps import Case
from tests.oracle_properties import Subject, check_table

# Those that compile little that other tests do not; all others are slow.
QUICK = [
    "exact.bisimulation",
    "exact.on_policy",
    "exact.lax",
    "exact.mico",
    "exact.asynchronous lax",
    "pairs bisimulation",
    "ImplicitMDP on_policy",
    "relation.bisimulation",
    "uses.aggregate bisimulation",
    "planning.optimal_values",
    "planning.policy_values",
]


@pytest.mark.parametrize("name", QUICK)
def test_a_sample_of_cases(name: str) -> None:
    found = [each for seed in range(12) for each in oracle_campaign.check(name, seed)]
    assert not found, "\n".join(map(str, found))


@pytest.mark.slow
def test_a_campaign() -> None:
    """Hangs are killed and counted, so that this terminates."""
    report = oracle_campaign.campaign(60, 1, seconds=900.0, verbose=False)
    report.print()
    assert not report.findings, "\n".join(map(str, report.findings))
    # Every property was checked.
    assert len(report.checked) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bisimulation", "on_policy", "lax", "mico"])
@pytest.mark.parametrize(("width", "discount"), [(250, 0.2), (567, 0.5)])
def test_wide_rows(kind: str, width: int, discount: float) -> None:
    for seed in range(4):
        check: Any = oracle_properties.wide_rows
        assert not list(check(Subject(seed), kind, width, discount))


@pytest.mark.parametrize("kind", ["bisimulation", "on_policy", "lax", "mico"])
def test_an_entry_that_is_ten_errors_off_is_detected(kind: Any) -> None:
    subject = Subject(0)
    stay = [[{0: 1.0}], [{1: 1.0}], [{0: 0.5, 1: 0.5}]]
    subject.case = Case(stay, [[1.0], [0.25], [0.0]], 0.5, None, [0, 0, 0])
    d = dataclasses.replace(subject.distance(kind, tol=1e-12), error=1e-9)
    assert not list(check_table(d, subject.reference(kind)))
    values = np.array(d.values)
    values[0, 1] += 1e-8
    values[1, 0] += 1e-8
    found = list(check_table(dataclasses.replace(d, values=values), subject.reference(kind)))
    assert found
    assert ": 10 times" in found[0]
    assert "bounds" in found[1]


def test_a_wrong_error_a_warning_and_an_exception_are_findings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = exact.bisimulation

    def proves_too_much(*given: Any, **options: Any) -> Any:
        d: Any = whole(*given, **options)
        return dataclasses.replace(d, values=d.values + 1e-3 * (1 - np.eye(len(d.values))))

    def is_plain(case: Case) -> bool:
        """Whether distances are near 1, so that 1e-3 is above their error."""
        return case.num_states > 1 and case.discount <= 0.9 and 1e-3 < np.ptp(case.R) < 10

    seed = next(seed for seed in range(100) if is_plain(Subject(seed).case))
    assert not oracle_campaign.check("exact.bisimulation", seed)
    monkeypatch.setattr(exact, "bisimulation", proves_too_much)
    assert {each.what for each in oracle_campaign.check("exact.bisimulation", seed)} == {
        "violation"
    }

    def warns(*given: Any, **options: Any) -> Any:
        np.zeros(1) / np.zeros(1)
        return whole(*given, **options)

    monkeypatch.setattr(exact, "bisimulation", warns)
    assert [each.what for each in oracle_campaign.check("exact.bisimulation", seed)] == ["warning"]

    def fails(*given: Any, **options: Any) -> Any:
        raise ZeroDivisionError("for a test")

    monkeypatch.setattr(exact, "bisimulation", fails)
    assert [each.what for each in oracle_campaign.check("exact.bisimulation", seed)] == [
        "ZeroDivisionError"
    ]


@pytest.mark.slow
def test_a_hang_is_killed_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = oracle_campaign.Worker(limit=0.0)
    try:
        (found,) = worker.check("exact.bisimulation", 1)
        assert found.what == "hang"
        monkeypatch.setattr(worker, "limit", 60.0)
        assert worker.check("planning.optimal_values", 1) == []
    finally:
        worker.end()
