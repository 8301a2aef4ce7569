"""Learning d^pi from features with the paper's algorithm, its exact reference, and the sweep."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bisimetric.errors import InputError, InsufficientMemory
from bisimetric.learned import LearnedDistance
from bisimetric.learned.castro2020 import PairNetwork
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions
from bisimetric_atari.paper import exact_returns, learning, sweep, sweep_results
from recorded_game import CYCLE, make_game
from tests.learned_references import compile_quickly  # noqa: F401 - a fixture

QUICK = dataclasses.replace(
    learning.PAPER_CONFIG,
    network=PairNetwork((32, 32), output_activation="open"),
    batch_size=32,
    learning_rate=1e-2,
    target_update_period=10,
    horizon_growth=0.8,
)


def sum_reward_gaps(data: Transitions, i: int, j: int, discount: float) -> float:
    """Sum the discounted reward gaps along two recorded games, step by step."""
    total, weight = 0.0, 1.0
    finished = [False, False]
    while weight > 1e-12 and not all(finished):
        rewards = [
            0.0 if out else float(data.rewards[row])
            for row, out in zip((i, j), finished, strict=True)
        ]
        total += weight * abs(rewards[0] - rewards[1])
        finished = [
            out or bool(data.terminated[row]) for row, out in zip((i, j), finished, strict=True)
        ]
        i, j, weight = i + 1, j + 1, weight * discount
    return total


def test_recorded_futures_give_the_exact_distance() -> None:
    data, discount = make_game(200), 0.8
    horizon = exact_returns.compute_horizon(discount)
    rows = exact_returns.find_complete_steps(data.terminated, data.truncated, horizon)
    # The last game is truncated, and the horizon is 42 steps.
    assert rows.max() == 5 * 3 * CYCLE - 1
    selected = rows[::17]
    found = exact_returns.compute_distances(
        exact_returns.gather_futures(data.rewards, data.terminated, selected, horizon), discount
    )
    for a, i in enumerate(selected):
        for b, j in enumerate(selected):
            assert found[a, b] == pytest.approx(sum_reward_gaps(data, i, j, discount), abs=1e-3)


def test_the_exact_distance_bounds_the_difference_of_values() -> None:
    rng = np.random.default_rng(0)
    future = rng.choice([-1.0, 0.0, 1.0], size=(20, 50)).astype(np.float32)
    V = exact_returns.compute_returns(future, 0.9)
    d = exact_returns.compute_distances(future, 0.9)
    assert (np.abs(V[:, None] - V) <= d + 1e-6).all()
    assert (np.diag(d) == 0).all()
    assert d.max() > 0


def test_the_exact_distance_equals_that_of_the_markov_chain() -> None:
    """Compare with `exact.on_policy` on the finite MDP of 36 states and the terminal state."""
    from bisimetric import exact

    data, count = make_game(3 * CYCLE), 3 * CYCLE
    P = np.eye(count + 1, k=1)
    P[count, count] = 1
    R = np.append(data.rewards, 0.0)[:, None]
    real = exact.on_policy(
        MDP(sparse.csr_array(P), R, discount=0.8), np.zeros(count + 1, int)
    ).values[:-1, :-1]
    future = exact_returns.gather_futures(
        data.rewards, data.terminated, np.arange(count), exact_returns.compute_horizon(0.8)
    )
    np.testing.assert_allclose(exact_returns.compute_distances(future, 0.8), real, atol=1e-3)


@pytest.mark.parametrize("cut", [0, 10])
def test_steps_before_a_truncation_are_incomplete(cut: int) -> None:
    terminated, truncated = np.zeros((2, 30), bool)
    truncated[19] = True
    terminated[cut] = True
    found = exact_returns.find_complete_steps(terminated, truncated, horizon=5)
    assert found.tolist() == [*range(16), *range(20, 26)]


@pytest.mark.slow
def test_a_metric_of_features_is_learned() -> None:
    found = learning.learn(
        make_game(), config=QUICK, updates=1_500, discount=0.8, replay_growth=(100, 4), device="cpu"
    )
    assert found.kind == "on_policy"
    assert found.scaling.has_terminal
    assert found.history["correlation"][-1] > 0.9
    assert found.history["error"][-1] < 0.3
    assert found.history["distance"][-1] > 0
    assert found.metadata["game"] == "x"
    assert found.metadata["growing"] == [100, 4]
    assert found.metadata["learning_rate"] == QUICK.learning_rate
    features = make_game().observations
    assert found(features[0], features[5]) > 0
    assert found(features[0], None) > 0


def test_a_metric_is_saved_and_loaded(tmp_path: Path) -> None:
    found = learning.learn(make_game(120), config=QUICK, discount=0.8)
    # By default, one update per four steps.
    assert found.metadata["updates"] == 30
    found.save(tmp_path / "metric.safetensors")
    again = LearnedDistance.load(tmp_path / "metric.safetensors")
    x = make_game(120).observations[:9]
    np.testing.assert_array_equal(found.table(x), again.table(x))
    assert again.metadata == found.metadata


def test_terminations_can_be_ignored() -> None:
    found = learning.learn(
        make_game(), config=QUICK, updates=30, discount=0.8, terminal_state=False
    )
    assert not found.scaling.has_terminal
    assert found.metadata["ends"] is False
    with pytest.raises(InputError, match="no episode of the data terminated"):
        found(make_game().observations[0], None)
    source = learning.build_source(make_game(), terminal_state=False)
    # The last step of a game leads to its final observation: here, the first of the next game.
    after = np.asarray(source.x)[np.asarray(source.x_next)]
    np.testing.assert_array_equal(after, make_game().next_observations)


def test_the_paper_configuration_is_the_default() -> None:
    config = learning.PAPER_CONFIG
    assert config.network == PairNetwork((16, 16), output_activation="relu")
    assert (config.batch_size, config.target_update_period, config.horizon_growth) == (
        128,
        125,
        0.99,
    )
    assert (config.learning_rate, config.epsilon) == (7.5e-5, 1.5e-4)
    assert (learning.INITIAL_STEPS, learning.STEPS_PER_UPDATE) == (10_000, 4)


def test_features_larger_than_memory_raise_first(monkeypatch: Any) -> None:
    monkeypatch.setattr("bisimetric._memory.fits_in_memory", lambda needed: False)
    with pytest.raises(
        InsufficientMemory, match="the features of 600 steps, 6 numbers per step, need"
    ):
        learning.build_source(make_game())


def test_state_indices_raise() -> None:
    with pytest.raises(InputError, match="must be the features of an agent"):
        learning.build_source(Transitions([0, 1], [0, 0], [0, 0], [1, 0], [False, True]))


SHAPES = [
    sweep_results.SweepShape(batch=16, target_update_period=40, layers=layers, units=4)
    for layers in (1, 2)
]
SWEEP: dict[str, Any] = {
    "selected_shapes": SHAPES,
    "learning_rates": (1e-3, 1e-2),
    "num_seeds": 2,
    "updates": 60,
    "discount": 0.8,
    "replay_growth": (100, 4),
}


@pytest.mark.slow
def test_a_sweep_reuses_finished_shapes(tmp_path: Path, monkeypatch: Any) -> None:
    found = sweep.run_sweep(tmp_path, make_game(), **SWEEP)
    assert [each.shape for each in found] == SHAPES
    assert found[0].seeds.tolist() == [0, 1, 0, 1]
    assert found[0].learning_rates.tolist() == [1e-3, 1e-3, 1e-2, 1e-2]
    assert found[0].correlation.shape == found[0].loss.shape == (4, len(found[0].updates))
    assert found[0].updates[-1] == 60
    # Another rate is another network, another seed too.
    assert len(np.unique(found[0].loss[:, -1])) == 4
    (tmp_path / f"{SHAPES[1].name}.npz").unlink()
    trained = []
    real = learning.fit_networks

    def record_network(*args: Any, **options: Any) -> Any:
        trained.append(options["config"].network.hidden)
        return real(*args, **options)

    monkeypatch.setattr(learning, "fit_networks", record_network)
    again = sweep.run_sweep(tmp_path, make_game(), **SWEEP)
    assert trained == [(4, 4)]
    np.testing.assert_array_equal(again[1].correlation, found[1].correlation)


def test_a_folder_of_another_sweep_raises(tmp_path: Path) -> None:
    one = {**SWEEP, "selected_shapes": SHAPES[:1], "updates": 10}
    sweep.run_sweep(tmp_path, make_game(), **one)
    for change, complaint in (
        ({"updates": 12}, "of another sweep: its updates differ"),
        ({"num_seeds": 1}, "of another sweep: its num_seeds differ"),
    ):
        with pytest.raises(InputError, match=complaint):
            sweep.run_sweep(tmp_path, make_game(), **{**one, **change})
    with pytest.raises(InputError, match="of another sweep: its data differ"):
        sweep.run_sweep(tmp_path, make_game(seed=1), **one)


def test_the_grid_is_that_of_the_supplement() -> None:
    shapes = sweep.list_shapes()
    assert len(shapes) == 6 * 7 * 3 * 4
    assert len(sweep.LEARNING_RATES) == 7
    quick = sweep.list_shapes(quick=True)
    assert quick[0] == sweep.PAPER_SHAPE
    assert set(quick) < set(shapes)
    for shape in quick[1:]:
        assert sum(a != b for a, b in zip(shape, sweep.PAPER_SHAPE, strict=True)) == 1
    assert sweep.build_config(sweep.PAPER_SHAPE) == learning.PAPER_CONFIG


def make_result(
    shape: sweep_results.SweepShape, correlation: float, *, dead: int = 0, rates: Any = (1e-3,)
) -> sweep_results.SweepResult:
    """Make results of two seeds per learning rate around a correlation; some networks are dead."""
    count = 2 * len(rates)
    middle = np.repeat(correlation * np.array(rates) / rates[0], 2)
    last = middle + np.tile([-0.1, 0.1], len(rates))
    distance = np.where(np.arange(count) < dead, 0.0, 1.0)
    late, far = (np.stack([each, each], axis=1) for each in (last, distance))
    metadata = {"game": "Pong", "updates": 60, "num_seeds": 2}
    seeds, updates = np.tile([0, 1], len(rates)), np.array([30, 60])
    return sweep_results.SweepResult(
        shape, seeds, np.repeat(rates, 2), updates, late, far, late, late, metadata
    )


def test_the_table_has_the_best_first_and_counts_the_dead(tmp_path: Path) -> None:
    found = [
        make_result(SHAPES[0], 0.2, dead=1),
        make_result(SHAPES[1], 0.7),
        make_result(sweep.PAPER_SHAPE, 0.1),
    ]
    table = sweep_results.tabulate(found)
    assert [row.correlation for row in table] == pytest.approx([0.7, 0.2, 0.1])
    assert [row.num_dead for row in table] == [0, 1, 0]
    assert table[0].correlation_std == pytest.approx(0.1 * 2**0.5)
    sweep_results.write_table(tmp_path / "sweep.csv", table)
    text = (tmp_path / "sweep.csv").read_text().splitlines()
    assert text[0].startswith(
        "batch,target_update_period,layers,units,learning_rate,num_seeds,num_dead,correlation"
    )
    assert text[1].startswith("16,40,2,4,0.001,2,0,0.7")
    shown = list(sweep_results.format_table(table, sweep.get_paper_choice("Pong"), num_shown=1))
    assert "3 of 3" in shown[2]
    assert shown[3].startswith("*")
    assert "0.100 +- 0.14" in shown[3]


def test_the_figure_varies_one_hyperparameter_at_a_time(tmp_path: Path) -> None:
    rates = (1e-3, 5e-4)
    found = [make_result(sweep.PAPER_SHAPE, 0.5, rates=rates)]
    found += [
        make_result(sweep.PAPER_SHAPE._replace(batch=each), 0.3, rates=rates) for each in (64, 8)
    ]
    found += [make_result(sweep.PAPER_SHAPE._replace(batch=4, units=32), 0.9, rates=rates)]
    panels = dict(sweep.compute_slices(found, sweep.get_paper_choice("Pong")))
    assert {name: list(each) for name, each in panels.items()} == {
        "batch": ["8", "64", "128"],
        "target_update_period": ["500"],
        "layers": ["2"],
        "units": ["16"],
        "learning_rate": ["0.0005", "0.001"],
    }
    assert panels["batch"]["128"] == pytest.approx([0.4, 0.6])
    paths = sweep.write_outputs(tmp_path, found)
    assert [path.name for path in paths] == ["sweep.csv", "sweep.png"]
    assert all(path.stat().st_size > 100 for path in paths)


def test_dead_networks_are_a_result(tmp_path: Path) -> None:
    """With almost no reward the output ReLU is soon 0 for all pairs."""
    data = make_game()
    flat = dataclasses.replace(data, rewards=np.where(np.arange(600) % 2, 1e-3, 0.0))
    found = sweep.run_sweep(
        tmp_path,
        flat,
        **{**SWEEP, "learning_rates": (1.0,), "selected_shapes": SHAPES[:1], "updates": 100},
    )
    assert sweep_results.tabulate(found)[0].num_dead + np.isnan(found[0].distance[:, -1]).sum() == 2


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    path = tmp_path / f"{SHAPES[0].name}.npz"
    path.write_bytes(b"PK not an archive")
    with pytest.raises(InputError, match="holds no result of a sweep"):
        sweep.run_sweep(tmp_path, make_game(), **SWEEP)
