"""The solver of d_lax for deterministic MDPs: choices, their values, and its fallbacks."""

from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest
from numba import njit

from bisimetric import MDP, exact, worlds
from bisimetric._rounding import UNIT
from bisimetric.exact._intrinsics import transpose_block
from bisimetric.exact.deterministic import evaluation_kernels, lax_kernels, table_kernels
from bisimetric.exact.deterministic.pair_kernels import decode_choice
from bisimetric.exact.deterministic.problem import build_problem
from tests.oracles import apply_lax_operator, solve_lax_fixed_point
from tests.rationals import compute_residual

lax_solver = importlib.import_module("bisimetric.exact.deterministic.lax_solver")
DISCOUNT = 0.9


def random_problem(
    states: int, actions: int, seed: int, *, ties: bool = False
) -> tuple[MDP, np.ndarray, np.ndarray, np.ndarray]:
    """A random MDP, its transposed successors and rewards, and a symmetric matrix."""
    rng = np.random.default_rng(seed)
    rewards = rng.random((states, actions))
    mdp = MDP.deterministic(
        rng.integers(states, size=(states, actions)),
        rewards.round() if ties else rewards,
        discount=DISCOUNT,
    )
    d = rng.random((states, states)) * 5
    d = d + d.T
    np.fill_diagonal(d, 0.0)
    return (
        mdp,
        np.ascontiguousarray(mdp.next_state.T, dtype=np.uint32),
        np.ascontiguousarray(mdp.R.T),
        d,
    )


def sweep(
    d: np.ndarray,
    successor: np.ndarray,
    reward: np.ndarray,
    choice: np.ndarray,
    classes: np.ndarray | None = None,
    *,
    hold_actions: bool = False,
    discount: float = DISCOUNT,
) -> tuple[np.ndarray, np.ndarray]:
    """Return F(d) below the diagonal by `lax_kernels.sweep`, and its statistics."""
    states, actions = len(d), len(successor)
    backup, stats = np.zeros((states, states)), np.zeros((states, 3))
    classes = np.zeros(states, np.int64) if classes is None else classes
    operator = lax_kernels.LaxOperator(successor, reward, discount, classes, 50.0)
    lax_kernels.sweep(
        d, backup, operator, stats, choice, write=False,
        code_bits=lax_kernels.count_code_bits(actions), hold_actions=hold_actions,
    )  # fmt: skip
    return backup, stats


@pytest.mark.parametrize("actions", [1, 2, 4, 12])
@pytest.mark.parametrize("ties", [False, True])
def test_recorded_choices_attain_the_operator(actions: int, ties: bool) -> None:
    mdp, successor, reward, d = random_problem(30, actions, 1, ties=ties)
    choice = np.full((30, 30), 2**16 - 1, np.uint16)
    backup, stats = sweep(d, successor, reward, choice)
    image = apply_lax_operator(mdp, d)
    bits = lax_kernels.count_code_bits(actions)
    slack = 2 ** (bits + 2) * UNIT * image.max()
    for s in range(30):
        assert stats[s, 2] == s  # all choices changed
        for t in range(s):
            assert image[s, t] - slack <= backup[s, t] <= image[s, t]
            a, b = decode_choice(choice[s, t], actions)
            value = (
                abs(reward[a, s] - reward[b, t]) + DISCOUNT * d[successor[a, s], successor[b, t]]
            )
            assert abs(value - image[s, t]) <= slack


def test_held_actions_stay_and_responses_are_the_best() -> None:
    _, successor, reward, d = random_problem(25, 3, 2)
    rng = np.random.default_rng(0)
    before = rng.integers(18, size=(25, 25)).astype(np.uint8)
    choice = before.copy()
    _, stats = sweep(d, successor, reward, choice, hold_actions=True)
    lower = np.tril_indices(25, -1)
    assert (choice[lower] // 3 == before[lower] // 3).all()
    assert stats[:, 2].sum() == (choice[lower] != before[lower]).sum() > 0
    for s, t in zip(lower[0].tolist(), lower[1].tolist(), strict=True):
        turn = int(choice[s, t]) // 3 * 3

        def value(code: int, s: int = s, t: int = t) -> float:
            a, b = decode_choice(code, 3)
            gap = abs(reward[a, s] - reward[b, t])
            return float(gap + DISCOUNT * d[successor[a, s], successor[b, t]])

        best = min(value(turn + response) for response in range(3))
        assert value(int(choice[s, t])) <= best * (1 + 256 * UNIT)


@pytest.mark.parametrize("trace_decay", [1.0, 0.7, 0.0])
@pytest.mark.parametrize(("dtype", "slack"), [("float64", 1e-13), ("float32", 1e-5)])
def test_values_of_choices_solve_their_linear_system(
    dtype: str, slack: float, trace_decay: float
) -> None:
    states = 20
    _, successor, reward, d = random_problem(states, 2, 3)
    d = d.astype(dtype)
    rng = np.random.default_rng(1)
    choice = rng.integers(8, size=(states, states)).astype(np.uint8)
    bits = lax_kernels.count_code_bits(2)
    without = rng.random((states, states)) < 0.1
    choice[without] = 2**bits - 1
    system, constant = np.eye(states * states), np.zeros(states * states)
    for s in range(states):
        for t in range(s):
            if without[s, t]:
                constant[s * states + t] = d[s, t]
                continue
            a, b = decode_choice(choice[s, t], 2)
            x, y = int(successor[a, s]), int(successor[b, t])
            constant[s * states + t] = (
                abs(reward[a, s] - reward[b, t]) + DISCOUNT * (1 - trace_decay) * d[x, y]
            )
            if x != y:
                system[s * states + t, max(x, y) * states + min(x, y)] -= DISCOUNT * trace_decay
    expected = np.linalg.solve(system, constant).reshape(states, states)
    evaluation_kernels.evaluate_choices(d, choice, successor, reward, DISCOUNT, bits, trace_decay)
    lower = np.tril_indices(states, -1)
    np.testing.assert_allclose(d[lower], expected[lower], rtol=slack)
    assert (d == d.T).all()


@pytest.mark.parametrize("width", [4, 8])
def test_blocks_are_transposed(width: int) -> None:
    source = np.arange(300.0, dtype=f"float{256 // width}")
    rows = np.random.default_rng(0).permutation(20).astype(np.uint32)
    out = np.zeros(300, source.dtype)

    @njit
    def run(source, rows, out):  # type: ignore[no-untyped-def]
        transpose_block(source, rows, 3, 14, 2, out, 5, 11)

    run(source, rows, out)
    expected = np.zeros_like(out)
    for i in range(width):
        for j in range(width):
            expected[5 + j * 11 + i] = source[int(rows[3 + i]) * 14 + 2 + j]
    assert (out == expected).all()


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1.0])
def test_a_start_in_single_precision_saves_rounds_in_double_precision(scale: float) -> None:
    rng = np.random.default_rng(5)
    mdp = MDP.deterministic(
        rng.integers(300, size=(300, 3)), scale * (1e3 + rng.random((300, 3))), discount=0.99
    )
    problem = build_problem(mdp, np.dtype(np.float64), 1e-9 * scale, mdp.diameter_bound, lax=True)
    iteration = lax_solver._LaxIteration(problem)
    assert iteration.can_start_in_single_precision
    assert not iteration.start_in_single_precision()
    assert 0 < iteration.residual < 5e-3 * scale
    before = iteration.num_evaluations
    assert not iteration.run_rounds()
    assert before > 8 > iteration.num_evaluations - before


def test_no_start_in_single_precision_where_rounding_errors_add_up() -> None:
    mdp = worlds.load("random", states=300)
    for discount, expected in ((0.99, True), (0.9995, False)):
        problem = build_problem(
            mdp.replace(discount=discount), np.dtype(np.float64), 1e-9, 1e3, lax=True
        )
        iteration = lax_solver._LaxIteration(problem)
        assert iteration.can_start_in_single_precision is expected


@pytest.mark.parametrize("kind", ["random", "ties", "1e-12", "offset"])
def test_starts_in_single_precision_prove_their_error_in_rationals(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lax_solver, "MAX_SERIAL_STATES", 0)
    for seed, discount in itertools.product(range(4), (0.0, 0.9, 0.995)):
        mdp, *_ = random_problem(11, 3, seed, ties=kind == "ties")
        rewards = mdp.R * (1e-12 if kind == "1e-12" else 1.0) + 1e6 * (kind == "offset")
        mdp = MDP.deterministic(mdp.next_state, rewards, discount=discount)
        for dtype in ("float64", "float32"):
            d = exact.lax(mdp, dtype=dtype, tol=0.1)
            assert compute_residual(d) <= d.error * (1 - discount)


@pytest.mark.parametrize("discount", [0.999, 0.9999])
def test_rounds_are_few_for_discounts_near_one(discount: float) -> None:
    mdp = worlds.load("random", states=300, discount=discount)
    d = exact.lax(mdp)
    assert d.metadata["sweeps"] < 120  # value iteration takes thousands
    assert d.error <= 1e-6


@pytest.mark.parametrize("actions", [3, 9])
def test_float32_matrices_end_at_their_precision_floor(actions: int) -> None:
    rng = np.random.default_rng(actions)
    successors = rng.integers(300, size=(300, actions))
    mdp = MDP.deterministic(successors, rng.random((300, actions)), discount=0.99)
    assert exact.lax(mdp, dtype="float32").metadata["sweeps"] < 120


def test_an_unreachable_tolerance_ends_at_the_precision_floor() -> None:
    # The residual of sweeps with choices stayed just above the floor, for thousands of sweeps.
    rng = np.random.default_rng(0)
    mdp = MDP.deterministic(
        rng.integers(400, size=(400, 4)), 1e200 * rng.random((400, 4)), discount=0.99
    )
    assert exact.lax(mdp, tol=1e190).metadata["sweeps"] < 120


def test_a_cycle_longer_than_the_stored_path() -> None:
    # The pairs of two rings, 257 and 256 states long, are one cycle of 65,792 pairs.
    sizes = 257, 256
    assert sizes[0] * sizes[1] > evaluation_kernels.PATH_CAPACITY
    starts = np.repeat([0, sizes[0]], sizes)
    position = np.arange(sum(sizes)) - starts
    successor = starts + (position + 1) % np.repeat(sizes, sizes)
    rewards = np.random.default_rng(0).random(len(successor))
    mdp = MDP.deterministic(successor[:, None], rewards[:, None], discount=0.999)
    d, expected = exact.lax(mdp), exact.bisimulation(mdp)
    assert d.metadata["evaluations"] > 0
    np.testing.assert_allclose(d.values, expected.values, rtol=0, atol=d.error + expected.error)


@pytest.mark.parametrize("threads", [2, 4, 9])
def test_threads_that_meet_on_a_cycle_agree_to_the_bit(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Threads that are on a cycle while another evaluates it must not replace its first value: that
    # happened in 4% of the evaluations, so that they are repeated.
    states = 300
    mdp = worlds.load("random", states=states)
    successor = np.ascontiguousarray(mdp.next_state.T, dtype=np.uint32)
    reward, d = np.ascontiguousarray(mdp.R.T), np.zeros((states, states))
    choice = np.zeros((states, states), np.uint8)
    for _ in range(30):
        backup, _ = sweep(d, successor, reward, choice, discount=0.99)
        d = np.tril(backup, -1) + np.tril(backup, -1).T
    bits = lax_kernels.count_code_bits(4)
    evaluation_kernels.evaluate_choices(d, choice, successor, reward, 0.99, bits)
    alone = d.tobytes()
    monkeypatch.setattr(table_kernels, "MIN_PARALLEL_ENTRIES", 1)
    monkeypatch.setattr("numba.get_num_threads", lambda: threads)
    for _ in range(150):
        evaluation_kernels.evaluate_choices(d, choice, successor, reward, 0.99, bits)
        assert d.tobytes() == alone


def test_the_number_of_threads_changes_no_bit_of_choices_and_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mdp = worlds.load("random", states=150, discount=0.99)

    def solve() -> list[bytes]:
        return [exact.lax(mdp, dtype=dtype).values.tobytes() for dtype in ("float64", "float32")]

    alone = solve()
    monkeypatch.setattr(table_kernels, "MIN_PARALLEL_ENTRIES", 1)
    for threads in (2, 4, 7, 16):
        monkeypatch.setattr("numba.get_num_threads", lambda threads=threads: threads)
        assert solve() == alone


@pytest.mark.parametrize("patience", [(24, 200), (0, 200), (0, 0)])
@pytest.mark.parametrize("discount", [0.9, 0.999])
@pytest.mark.parametrize("ties", [False, True])
def test_every_fallback_proves_its_error_in_rationals(
    patience: tuple[int, int], discount: float, ties: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without patience the actions are held at once, or value iteration does everything.
    monkeypatch.setattr(lax_solver, "PATIENCE", patience[0])
    monkeypatch.setattr(lax_solver, "HOLD_PATIENCE", patience[1])
    for seed in range(3):
        mdp, *_ = random_problem(9, 3, seed, ties=ties)
        mdp = MDP.deterministic(mdp.next_state, mdp.R, discount=discount)
        for dtype in ("float64", "float32"):
            d = exact.lax(mdp, dtype=dtype)
            assert compute_residual(d) <= d.error * (1 - discount)
            floor = 4 * np.finfo(np.float32).eps * d.values.max() / (1 - discount)
            assert d.error <= (1e-6 if dtype == "float64" else floor)


def test_states_of_different_labels_keep_the_diameter() -> None:
    mdp = worlds.load("random", states=40, discount=0.9)
    labels = {"left": np.arange(40) % 3 == 0}
    labelled = MDP.deterministic(mdp.next_state, mdp.R, discount=0.9, labels=labels)
    d = exact.lax(labelled)
    first = np.arange(40) % 3 == 0
    apart = first[:, None] != first
    np.testing.assert_allclose(d.values[apart], labelled.diameter_bound, rtol=1e-12)
    assert d.error <= 1e-6
    assert (d.values[~apart] >= solve_lax_fixed_point(mdp)[~apart] - d.error - 1e-9).all()
