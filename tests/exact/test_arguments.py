"""Wrong arguments of exact distances raise errors that name the remedy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, ImplicitMDP, InputError, Transitions, exact, planning, relation

ENVIRONMENT = SimpleNamespace(step=None, reset=None)
IMPLICIT = ImplicitMDP(lambda x, a: (0.0, x), actions=(0,), discount=0.5)
REMEDIES: list[tuple[Any, str]] = [
    ("FrozenLake-v1", r"worlds\.load\('FrozenLake-v1'\)"),
    (ENVIRONMENT, r"worlds\.from_gymnasium"),
    (Transitions([0], [0], [1.0], [0], [False]), r"\.to_mdp"),
    (IMPLICIT, r"exact\.query"),
    (np.eye(2), r"MDP\(P, R"),
    (3, r"worlds\.load"),
]
FUNCTIONS = [
    exact.bisimulation,
    exact.on_policy,
    exact.lax,
    exact.mico,
    relation.bisimulation,
    relation.lax,
    planning.optimal_values,
    planning.greedy_policy,
]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("value", "remedy"), REMEDIES)
def test_anything_but_an_mdp_names_the_remedy(function: Any, value: Any, remedy: str) -> None:
    module = function.__module__.split(".")[1]
    caller = rf"{module}\.{function.__name__}: mdp is .* and must be an MDP; "
    with pytest.raises(InputError, match=caller + f".*{remedy}"):
        function(value)


def test_a_query_takes_implicit_mdps_only_besides_mdps() -> None:
    assert exact.query(IMPLICIT, [(0, 1)]).values.tolist() == [0.0]
    with pytest.raises(InputError, match=r"exact\.query: mdp is 'pessimism' .*worlds\.load"):
        exact.query("pessimism", [(0, 1)])  # type: ignore[arg-type]


def test_errors_name_the_argument() -> None:
    mdp = MDP.deterministic([[0], [1]], [[0.0], [1.0]], discount=0.5)
    for options, argument in (
        ({"tol": 0.0}, "tol"),
        ({"dtype": "int8"}, "dtype"),
        ({"device": "tpu"}, "device"),
    ):
        with pytest.raises(InputError, match=f"exact.bisimulation: {argument} is") as caught:
            exact.bisimulation(mdp, **options)
        assert caught.value.argument == argument


def test_metadata_marks_an_empirical_model() -> None:
    mdp = MDP.deterministic([[0], [1]], [[0.0], [1.0]], discount=0.5)
    assert "model" not in exact.bisimulation(mdp).metadata
    object.__setattr__(mdp, "is_empirical", True)
    assert exact.bisimulation(mdp).metadata["model"] == "empirical"
    assert exact.mico(mdp).metadata["model"] == "empirical"
    assert exact.query(mdp, [(0, 1)]).metadata["model"] == "empirical"
