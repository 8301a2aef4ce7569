"""The MDP: what it accepts, what it makes of it, and what it says of the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import sparse

from bisimetric import MDP, InputError
from tests.strategies import deterministic_mdps

NEXT = [[1, 2], [2, 0], [2, 2]]
REWARDS = [[0.0, 1.0], [2.0, 0.0], [0.0, 0.0]]
DENSE = np.array(
    [
        [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]],
        [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]],
    ]
)


def forms_of_P() -> dict[str, Any]:
    flat = sparse.csr_array(DENSE.reshape(6, 3))
    cube = sparse.coo_array(DENSE)
    by_action = [sparse.csr_array(DENSE[:, a]) for a in range(2)]
    return {
        "dense": DENSE,
        "nested lists": DENSE.tolist(),
        "dense rows": DENSE.reshape(6, 3),
        "flat": flat,
        "cube": cube,
        "by action": by_action,
    }


@pytest.mark.parametrize("form", list(forms_of_P()))
def test_every_form_of_P_makes_the_same_mdp(form: str) -> None:
    mdp = MDP(forms_of_P()[form], REWARDS, discount=0.9)
    assert mdp.is_deterministic
    np.testing.assert_array_equal(mdp.next_state, NEXT)
    np.testing.assert_array_equal(mdp.P.toarray(), DENSE.reshape(6, 3))


def test_stochastic_is_stored_sparse_and_has_no_next_state() -> None:
    mdp = MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[1.0], [0.0]], discount=0.5)
    assert not mdp.is_deterministic
    assert mdp.P.nnz == 3
    with pytest.raises(InputError, match=r"P\[0, 0\] has several successors"):
        _ = mdp.next_state


def test_zero_probabilities_are_no_successors() -> None:
    P = sparse.csr_array(([1.0, 0.0, 1.0], [0, 1, 1], [0, 2, 3]), (2, 2))
    assert P.nnz == 3
    assert MDP(P, [[0.0], [0.0]], discount=0.5).is_deterministic


@settings(deadline=None)
@given(deterministic_mdps())
def test_deterministic_and_matrices_agree(mdp: MDP) -> None:
    states, actions = mdp.R.shape
    P = np.zeros((states, actions, states))
    for s in range(states):
        for a in range(actions):
            P[s, a, mdp.next_state[s, a]] = 1
    again = MDP(P, mdp.R, discount=mdp.discount)
    np.testing.assert_array_equal(again.next_state, mdp.next_state)


def test_it_is_immutable_and_copies_its_input() -> None:
    rewards = np.array(REWARDS)
    mdp = MDP.deterministic(NEXT, rewards, discount=0.9)
    rewards[:] = 7
    np.testing.assert_array_equal(mdp.R, REWARDS)
    for array in (mdp.R, mdp.next_state, mdp.P.data):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        mdp.discount = 0.5  # type: ignore[misc]


def test_apply_policy() -> None:
    mdp = MDP.deterministic(NEXT, REWARDS, discount=0.9, names="xyz")
    chain = mdp.apply_policy([1, 0, 0])
    assert (chain.num_actions, chain.names, chain.discount) == (1, ("x", "y", "z"), 0.9)
    np.testing.assert_array_equal(chain.next_state[:, 0], [2, 2, 2])
    np.testing.assert_array_equal(chain.R[:, 0], [1, 2, 0])
    mixed = mdp.apply_policy([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(
        mixed.P.toarray(), [[0.0, 0.25, 0.75], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    )
    np.testing.assert_allclose(mixed.R[:, 0], [0.75, 2, 0])


def test_states_by_id_and_name() -> None:
    mdp = MDP.deterministic(NEXT, REWARDS, discount=0.9, names=["start", "middle", "2"])
    assert [mdp.state(s) for s in ("start", "middle", "2", 2, np.int64(1), "0")] == [
        0,
        1,
        2,
        2,
        1,
        0,
    ]
    with pytest.raises(InputError, match="did you mean 'middle'"):
        mdp.state("midle")
    for wrong in (3, -1, "17"):
        with pytest.raises(InputError, match="ids go from 0 to 2"):
            mdp.state(wrong)
    with pytest.raises(InputError, match=r"no state 0\.5"):
        mdp.state(0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"next_state": [[0, 3], [0, 0], [0, 0]]}, r"next_state\[0, 1\] is 3 .* from 0 to 2"),
        ({"next_state": [[0, -1], [0, 0], [0, 0]]}, r"next_state\[0, 1\] is -1"),
        ({"next_state": [[0, 0.5], [0, 0], [0, 0]]}, "next_state must be .* whole numbers"),
        ({"next_state": [[0, 1], [0]]}, "next_state must be an array of numbers"),
        ({"next_state": [0, 1, 2]}, r"next_state has shape \(3,\)"),
        ({"rewards": [[0, np.nan], [0, 0], [0, 0]]}, r"rewards\[0, 1\] is nan and must be finite"),
        ({"rewards": [[0, 0], [0, np.inf], [0, 0]]}, r"rewards\[1, 1\] is inf"),
        ({"rewards": [["a", 0], [0, 0], [0, 0]]}, "rewards must be an array of numbers"),
        ({"next_state": [], "rewards": []}, "at least one of each"),
        ({"discount": 1.0}, "discount is 1.0 and must be at least 0 and below 1"),
        ({"discount": -0.1}, "discount is -0.1"),
        ({"discount": float("nan")}, "discount is nan"),
        ({"discount": "high"}, "discount is 'high'"),
        ({"names": ["a", "b"]}, "there are 2 state names and must be 3"),
        ({"names": ["a", "b", "a"]}, "the state name 'a' occurs twice"),
        ({"actions": ["up"]}, "there are 1 action names and must be 2"),
        ({"positions": [[0, 0], [0, 1]]}, r"positions have shape \(2, 2\)"),
        ({"positions": [[0, 0], [0, 1], [0, np.nan]]}, r"positions\[2, 1\] is nan"),
        ({"features": [1, 2, 3]}, r"features have shape \(3,\)"),
        ({"policy": [0, 1]}, r"policy has shape \(2,\) and must be \(3,\) actions"),
        ({"policy": [0, 1, 2]}, r"policy\[2\] is 2 and must be an action from 0 to 1"),
        ({"policy": [[1, 0], [0.5, 0.6], [1, 0]]}, r"policy\[1\] is .* sum to 1"),
        ({"policy": [[1, 0], [1.5, -0.5], [1, 0]]}, r"policy\[1\] is .* probabilities"),
        ({"policy": [[1, 0], [np.nan, 1], [1, 0]]}, r"policy\[1, 0\] is nan"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], complaint: str) -> None:
    good: dict[str, Any] = {"next_state": NEXT, "rewards": REWARDS, "discount": 0.9}
    with pytest.raises(InputError, match=complaint):
        MDP.deterministic(**{**good, **change})


@pytest.mark.parametrize(
    ("P", "complaint"),
    [
        (DENSE * 0.97, r"P\[0, 0\] sums to 0.97 and must sum to 1"),
        (DENSE * [2.0, 1.0, 0.0] + [-1.0, 0.0, 1.0], r"P\[0, 0, 0\] is -1.0"),
        (DENSE[:, :1], r"P has shape \(3, 1, 3\) and R \(3, 2\)"),
        (DENSE.swapaxes(0, 1), r"P has shape \(2, 3, 3\) .*worlds.from_matrices"),
        (sparse.csr_array(DENSE[:, 0]), r"P has shape \(3, 3\)"),
        ([sparse.csr_array(DENSE[:, 0])], "P holds 1 matrices .* must hold 2"),
        (np.where(DENSE == 1, np.nan, DENSE), "is nan and must be a probability"),
    ],
)
def test_bad_probabilities_are_named(P: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        MDP(P, REWARDS, discount=0.9)


def test_copies_and_chains_of_estimates_are_estimates() -> None:
    mdp = MDP.deterministic(NEXT, REWARDS, discount=0.9, is_empirical=True)
    assert mdp.is_empirical
    assert mdp.replace(discount=0.5).is_empirical
    assert mdp.apply_policy([0, 0, 0]).is_empirical
    assert not MDP.deterministic(NEXT, REWARDS, discount=0.9).is_empirical
