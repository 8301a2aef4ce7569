"""Matrices in pymdptoolbox's order and in files: against its own solvers, and each other."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from bisimetric import exact, planning, worlds
from bisimetric.errors import ExpectedRewardWarning, InputError
from bisimetric.mdp import MDP
from tests.property_testing import scaled

# pymdptoolbox ships no types.
example: Any = importlib.import_module("mdptoolbox.example")
solvers: Any = importlib.import_module("mdptoolbox.mdp")

P3 = np.array(
    [
        [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.25, 0.25, 0.5]],
    ]
)
R3 = np.arange(6.0).reshape(3, 2)


def same(one: MDP, other: MDP) -> None:
    np.testing.assert_allclose(one.P.toarray(), other.P.toarray(), atol=1e-15)
    np.testing.assert_allclose(one.R, other.R, atol=1e-12)
    assert one.discount == other.discount


class TestToolbox:
    def test_the_forest_has_its_values(self) -> None:
        P, R = example.forest(S=6)
        theirs = solvers.PolicyIteration(P, R, 0.9)
        theirs.run()
        mdp = worlds.from_matrices(P, R, discount=0.9)
        ours = planning.optimal_values(mdp, tol=1e-10)
        np.testing.assert_allclose(ours.values, theirs.V, atol=1e-8)
        np.testing.assert_array_equal(planning.greedy_policy(mdp), theirs.policy)
        same(worlds.from_matrices(*example.forest(S=6, is_sparse=True), discount=0.9), mdp)

    def test_rewards_by_transition_have_its_values(self) -> None:
        np.random.seed(3)  # noqa: NPY002 - what pymdptoolbox draws from
        P, R = example.rand(7, 3)
        theirs = solvers.PolicyIteration(P, R, 0.8)
        theirs.run()
        with pytest.warns(ExpectedRewardWarning, match="matrices: the reward depends"):
            mdp = worlds.from_matrices(P, R, discount=0.8)
        ours = planning.optimal_values(mdp, tol=1e-10)
        np.testing.assert_allclose(ours.values, theirs.V, atol=1e-8)

    def test_the_small_example_has_a_distance(self) -> None:
        P, R = example.small()
        mdp = worlds.from_matrices(P, R, discount=0.9)
        np.testing.assert_allclose(mdp.P.toarray()[1], P[1, 0])
        assert mdp.R.tolist() == R.tolist()

    def test_deterministic_matrices_have_a_distance(self) -> None:
        mdp = worlds.from_matrices([np.eye(2), np.eye(2)[::-1]], [0.0, 1.0], discount=0.9)
        d = exact.bisimulation(mdp)
        # Both actions keep the gap of 1 open, or move both: 1 / (1 - 0.9).
        assert d(0, 1) == pytest.approx(10, abs=2 * d.error + 1e-9)


FORMS: dict[str, Callable[[NDArray[np.float64]], Any]] = {
    "array": lambda cube: cube,
    "lists": lambda cube: cube.tolist(),
    "arrays": list,
    "csr": lambda cube: [sparse.csr_array(each) for each in cube],
    "coo matrices": lambda cube: tuple(sparse.coo_matrix(each) for each in cube),
    "objects": lambda cube: as_objects([sparse.csc_matrix(each) for each in cube]),
    "mixed": lambda cube: [sparse.csr_array(cube[0]), *cube[1:]],
}


def as_objects(matrices: list[Any]) -> Any:
    held = np.empty(len(matrices), dtype=object)
    held[:] = matrices
    return held


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_both_is_one_mdp(form: str) -> None:
    expected = MDP(P3.swapaxes(0, 1), R3, discount=0.9)
    same(worlds.from_matrices(FORMS[form](P3), R3, discount=0.9), expected)
    same(worlds.from_matrices(FORMS[form](P3), sparse.csr_array(R3), discount=0.9), expected)
    by_transition = np.broadcast_to(R3.T[:, :, None], (2, 3, 3))
    # Equal for all successors that can happen: nothing to say.
    given_so = FORMS[form](np.where(P3 > 0, by_transition, 99.0))
    same(worlds.from_matrices(P3, given_so, discount=0.9), expected)
    by_state = worlds.from_matrices(FORMS[form](P3), [1.0, 2.0, 3.0], discount=0.9)
    assert by_state.R.tolist() == [[1, 1], [2, 2], [3, 3]]


@settings(deadline=None, max_examples=scaled(60))
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 999))
def test_expected_rewards_and_either_order(actions: int, states: int, key: int) -> None:
    rng = np.random.default_rng(key)
    P = rng.integers(0, 3, (actions, states, states)) + np.eye(states)
    P /= P.sum(axis=2, keepdims=True)
    R = rng.integers(-2, 3, P.shape).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExpectedRewardWarning)
        mdp = worlds.from_matrices(P, R, discount=0.9)
    for s in range(states):
        for a in range(actions):
            slow = sum(P[a, s, t] * R[a, s, t] for t in range(states))
            assert mdp.R[s, a] == pytest.approx(slow)
    other = MDP(P.swapaxes(0, 1), mdp.R, discount=0.9)
    np.testing.assert_allclose(mdp.P.toarray(), other.P.toarray())


def test_names_and_other_attributes_are_preserved() -> None:
    mdp = worlds.from_matrices(
        P3, R3, discount=0.5, names=["a", "b", "c"], actions=["x", "y"], policy=[0, 1, 0]
    )
    assert (mdp.names, mdp.actions) == (("a", "b", "c"), ("x", "y"))
    assert mdp.policy is not None


@pytest.mark.parametrize(
    ("P", "R", "message"),
    [
        (P3, R3.T, r"R has shape \(2, 3\) and must be \(3,\), \(3, 2\) or \(2, 3, 3\)"),
        (P3, P3[:1], r"R has shape \(1, 3, 3\)"),
        (P3, [sparse.csr_array(P3[0])], "R holds 1 matrices of shape .* and must hold 2"),
        (P3, "abc", "R must be numbers"),
        (P3[0], R3, r"P\[0\] has shape \(3,\)"),
        (sparse.csr_array(P3[0]), R3, "P is one csr_array and must hold a matrix per action"),
        ([], R3, "P holds no matrix"),
        (3.0, R3, "P is one float"),
        ([np.eye(3), np.eye(2)], R3, r"P\[1\] has shape \(2, 2\) and must be square"),
        ([np.ones((3, 2))], R3, r"P\[0\] has shape \(3, 2\) and must be square"),
        (["x"], R3, r"P\[0\] is no matrix"),
        (P3 * 0.9, R3, r"P\[0, 0\] sums to 0.9"),
    ],
)
def test_bad_matrices(P: Any, R: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        worlds.from_matrices(P, R, discount=0.9)


class TestFiles:
    expected = MDP(P3.swapaxes(0, 1), R3, discount=0.99)

    def test_the_shape_determines_the_order(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", P=P3, R=R3)
        np.savez(tmp_path / "s.npz", P=P3.swapaxes(0, 1), R=R3)
        for name in ("a.npz", "s.npz"):
            same(worlds.load(tmp_path / name), self.expected)
        same(worlds.load(tmp_path / "a.npz", first_axis="actions"), self.expected)
        with pytest.raises(InputError, match=r"P has shape \(2, 3, 3\) .* with states first"):
            worlds.load(tmp_path / "a.npz", first_axis="states")

    def test_as_many_actions_as_states_need_first_axis(self, tmp_path: Path) -> None:
        P, R = np.array([[[0.5, 0.5], [0.0, 1.0]], np.eye(2)]), np.eye(2)
        path = tmp_path / "square.npz"
        np.savez(path, P=P, R=R)
        with pytest.raises(
            InputError,
            match=r"may be actions or states; say first_axis=actions or first_axis=states",
        ):
            worlds.load(path)
        same(worlds.load(path, first_axis="actions"), worlds.from_matrices(P, R, discount=0.99))
        same(worlds.load(path, first_axis="states"), MDP(P, R, discount=0.99))
        with pytest.raises(InputError, match="first_axis is 'rows' and must be actions or"):
            worlds.load(path, first_axis="rows")

    def test_rewards_by_transition_follow_the_order_of_p(self, tmp_path: Path) -> None:
        R = np.arange(18.0).reshape(P3.shape)
        np.savez(tmp_path / "a.npz", P=P3, R=R)
        np.savez(tmp_path / "s.npz", P=P3.swapaxes(0, 1), R=R.swapaxes(0, 1))
        with pytest.warns(ExpectedRewardWarning):
            one = worlds.load(tmp_path / "a.npz")
        with pytest.warns(ExpectedRewardWarning):
            other = worlds.load(tmp_path / "s.npz")
        same(one, other)
        np.testing.assert_allclose(one.R, (P3 * R).sum(axis=2).T)

    def test_a_sparse_stack(self, tmp_path: Path) -> None:
        states_first = sparse.csr_array(P3.swapaxes(0, 1).reshape(6, 3))
        actions_first = sparse.csr_array(P3.reshape(6, 3))
        for name, stack, first in (
            ("s.npz", states_first, None),
            ("a.npz", actions_first, "actions"),
        ):
            parts = {part: getattr(stack, part) for part in ("data", "indices", "indptr")}
            np.savez(tmp_path / name, **parts, R=R3)
            same(worlds.load(tmp_path / name, first_axis=first), self.expected)

    def test_other_contents_of_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "m.npz"
        about = {"names": ["a", "b", "c"], "actions": ["x", "y"], "policy": [0, 1, 1]}
        available = np.array([[True, True], [True, False], [True, True]])
        np.savez(path, P=P3, R=R3, discount=0.75, available=available, **about)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="takes action y, which state b lacks"):
            worlds.load(path)
        about["policy"] = [0, 0, 1]
        np.savez(path, P=P3, R=R3, discount=0.75, available=available, **about)  # type: ignore[arg-type]
        mdp = worlds.load(path)
        assert (mdp.discount, mdp.names, mdp.actions) == (0.75, ("a", "b", "c"), ("x", "y"))
        assert mdp.available is not None
        assert worlds.load(path, discount=0.5).discount == 0.5

    def test_bad_files(self, tmp_path: Path) -> None:
        path = tmp_path / "bad.npz"

        def expect_error(message: str) -> None:
            with pytest.raises(InputError, match=message) as caught:
                worlds.load(path)
            assert "bad.npz" in str(caught.value)

        expect_error("there is no such file")
        path.write_text("no archive")
        expect_error("cut short or no .npz file")
        np.savez(path, P=P3, R=R3)
        path.write_bytes(path.read_bytes()[:200])
        expect_error("cut short or no .npz file")
        np.savez(path, P=P3)
        expect_error("holds P and must hold P .* and R")
        np.savez(path, P=P3[0], R=R3)
        expect_error(r"P has shape \(3, 3\)")
        np.savez(path, P=np.ones((2, 3, 4)), R=R3)
        expect_error(r"P has shape \(2, 3, 4\)")
        np.savez(path, P=as_objects([sparse.csr_array(each) for each in P3]), R=R3)
        expect_error("no .npz file of plain arrays")
        np.savez(path, data=[1.0], indices=[9], indptr=[0, 1], R=R3)
        expect_error("no CSR matrix|one row per state")
        np.savez(path, data=np.ones(4), indices=np.zeros(4, int), indptr=np.arange(5), R=R3)
        expect_error("has 4 rows and R has 3 states")
        d = exact.bisimulation(worlds.load("pessimism"))
        d.save(path)
        expect_error("is a distance matrix, not an MDP; show it with `bisimetric show")
        path.unlink()
        path.mkdir()
        expect_error("cannot read")

    def test_options(self) -> None:
        with pytest.raises(InputError, match=r"no option 'order'; its options are first_axis\."):
            worlds.load("m.npz", order="states")
