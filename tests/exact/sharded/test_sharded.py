"""Sharded tables on one device: the equation, the error, the store, checkpoints and refusals."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import bisimetric
from bisimetric import MDP, Distance, InputError, InsufficientMemory, NotConverged, exact, worlds
from bisimetric.exact import sharded
from bisimetric.exact.sharded import driver
from bisimetric.exact.sharded.cost import estimate_grid_rows, estimate_random_rows
from bisimetric.exact.sharded.exchange import plan_exchange
from bisimetric.exact.sharded.layout import build_layout, order_states
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps

ROOMS = worlds.load("mirrored-rooms", discount=0.95)
STILL = np.zeros(ROOMS.num_states, int)


def image(mdp: MDP, d: np.ndarray[Any, Any]) -> Any:
    """Compute F(d) of d~ by its definition."""
    ahead = mdp.next_state
    gaps = np.abs(mdp.R[:, None] - mdp.R[None])
    return (gaps + mdp.discount * d[ahead[:, None], ahead[None]]).max(axis=2)


@pytest.mark.slow
@given(deterministic_mdps())
@settings(max_examples=scaled(6), deadline=None)
def test_the_error_is_proven_and_the_answer_is_that_of_exact(mdp: MDP) -> None:
    d, e = sharded.bisimulation(mdp), exact.bisimulation(mdp)
    assert np.abs(image(mdp, d.values) - d.values).max() <= d.error
    assert np.abs(d.values - e.values).max() <= d.error + e.error
    assert np.array_equal(d.values, d.values.T)
    if mdp.discount > 0:
        assert np.array_equal(d.values == 0, e.values == 0)


def test_labels() -> None:
    mdp = ROOMS.replace(labels={"left": np.arange(ROOMS.num_states) < 9})
    for d, e in (
        (sharded.bisimulation(mdp), exact.bisimulation(mdp)),
        (sharded.on_policy(mdp, STILL), exact.on_policy(mdp, STILL)),
    ):
        assert np.abs(d.values - e.values).max() <= d.error + e.error
        assert d(0, 20) == pytest.approx(e(0, 20), abs=d.error + e.error)
    shared = mdp.replace(choice_labels=["move"] * mdp.num_actions)
    with pytest.raises(InputError, match=r"exact.sharded.bisimulation: .* choice labels as sets"):
        sharded.bisimulation(shared)


@given(deterministic_mdps(available=True))
@settings(max_examples=scaled(6), deadline=None)
def test_states_may_lack_actions(mdp: MDP) -> None:
    d, e = sharded.bisimulation(mdp), exact.bisimulation(mdp)
    np.testing.assert_allclose(d.values, e.values, rtol=0, atol=d.error + e.error)
    if mdp.discount > 0:
        assert np.array_equal(d.values == 0, e.values == 0)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_answer_is_that_of_exact_with_either_dtype(dtype: str) -> None:
    for d, e in (
        (sharded.bisimulation(ROOMS, dtype=dtype), exact.bisimulation(ROOMS)),
        (sharded.on_policy(ROOMS, STILL, dtype=dtype), exact.on_policy(ROOMS, STILL)),
    ):
        assert d.values.dtype == dtype
        assert np.abs(d.values - e.values).max() <= d.error + e.error
        assert np.abs(d.values - e.values).max() > 0 or dtype == "float64"
        assert d.error <= (1e-6 if dtype == "float64" else 1e-3)
    if dtype == "float32":
        with pytest.raises(NotConverged, match=r"float32 proves an error of .* not tol=1e-09"):
            sharded.bisimulation(ROOMS, tol=1e-9, dtype=dtype)


def test_many_random_states_and_actions() -> None:
    mdp = worlds.load("random", states=120, actions=5, discount=0.97)
    d, e = sharded.bisimulation(mdp, dtype="float32"), exact.bisimulation(mdp)
    assert d.metadata["cycle_evaluations"] > 0
    assert np.abs(d.values - e.values).max() <= d.error + e.error
    # The error is that of the residual: float32 and the last sweep leave no more than it says.
    table = d.values.astype(np.float64)
    assert 0 < np.abs(image(mdp, table) - table).max() <= d.error * (1 - mdp.discount)


def test_cycle_evaluation_gives_lower_bounds() -> None:
    mdp = worlds.load("random", states=120, actions=5, discount=0.97)
    rough, e = sharded.bisimulation(mdp, tol=10.0), exact.bisimulation(mdp)
    assert rough.metadata["cycle_evaluations"] > 0
    assert 0.01 < np.abs(rough.values - e.values).max() <= rough.error + e.error
    assert (rough.values <= e.values + e.error).all()


def test_batches_of_rows_give_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = sharded.bisimulation(ROOMS), sharded.on_policy(ROOMS, STILL)
    monkeypatch.setattr(
        driver,
        "build_layout",
        lambda *arguments, **options: build_layout(*arguments, **{**options, "batch_rows": 8}),
    )
    batches = sharded.bisimulation(ROOMS), sharded.on_policy(ROOMS, STILL)
    for d, e in zip(one_by_one, batches, strict=True):
        assert np.array_equal(d.values, e.values)


@pytest.mark.parametrize("devices", [1, 2, 5])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_plan_brings_every_row_once(devices: int, batch: int) -> None:
    """Simulate the plan with plain arrays: every (s, a) uses the row of its successor."""
    successor = np.random.default_rng(devices).integers(0, 41, (3, 41))
    split = build_layout(
        41, devices, np.dtype("float64"), block_bytes=3 * 41 * 8 * 4, batch_rows=batch
    )
    plan = plan_exchange(successor, split, list(range(devices)))
    table = np.arange(devices * split.rows_per_device)
    met = set()
    for p in range(devices):
        held = table[p * split.rows_per_device : (p + 1) * split.rows_per_device]
        for step in range(len(plan.shifts) + 1):
            if step:
                q = (p - plan.shifts[step - 1]) % devices
                held = table[q * split.rows_per_device + plan.send_rows[q, step - 1]]
            for job in range(plan.batch_offsets[p, step], plan.batch_offsets[p, step + 1]):
                for slot, row in zip(
                    plan.source_slots[p, job], plan.target_rows[p, job], strict=True
                ):
                    if row < split.rows_per_device:
                        s, a = p * split.rows_per_device + int(row), int(plan.actions[p, job])
                        assert held[slot] == successor[a, s]
                        assert (s, a) not in met
                        met.add((s, a))
    assert len(met) == successor.size


def test_all_processes_compile_the_same_shapes() -> None:
    successor = np.random.default_rng(0).integers(0, 40, (3, 40))
    split = build_layout(40, 4, np.dtype("float64"), block_bytes=3 * 40 * 8 * 2, batch_rows=2)
    plans = [plan_exchange(successor, split, [p]) for p in range(4)]
    assert (
        len(
            {
                (p.send_rows.shape, p.source_slots.shape, p.batch_offsets.shape, p.shifts)
                for p in plans
            }
        )
        == 1
    )
    assert len({int(p.batch_offsets[0, -1]) for p in plans}) > 1


def test_an_order_is_found_in_which_few_rows_travel() -> None:
    grid = worlds.load("open-grid", rows=20, columns=20, obstacles=0.0)
    shuffle = np.random.default_rng(0).permutation(grid.num_states)
    where = np.argsort(shuffle)
    mixed = np.ascontiguousarray(where[grid.next_state[shuffle]].T)
    split = build_layout(grid.num_states, 4, np.dtype("float64"))
    order = order_states(mixed)
    rank = np.argsort(order)
    tidy = rank[mixed[:, order]]
    assert (
        plan_exchange(tidy, split, [0, 1, 2, 3]).max_received_rows
        < plan_exchange(mixed, split, [0, 1, 2, 3]).max_received_rows / 3
    )
    assert np.array_equal(order_states(grid.next_state.T), np.arange(grid.num_states))


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_the_cost_estimate_of_a_run(devices: int) -> None:
    split = build_layout(2500, devices, np.dtype("float32"))
    drawn = np.random.default_rng(0).integers(0, 2500, (3, 2500))
    grid = worlds.load("open-grid", rows=50, columns=50, obstacles=0.0).next_state.T
    assert plan_exchange(grid, split, [0]).max_received_rows == estimate_grid_rows(2500, devices)
    assert plan_exchange(drawn, split, [0]).max_received_rows == pytest.approx(
        estimate_random_rows(2500, 3, devices), rel=0.06
    )
    one, many = (
        sharded.estimate_cost(300_000, 4, devices),
        sharded.estimate_cost(300_000, 4, 16 * devices),
    )
    assert one.device_bytes > 8 * many.device_bytes
    # Rows are padded to whole batches and files.
    assert one.compute_seconds == pytest.approx(16 * many.compute_seconds, rel=0.1)
    assert (
        sharded.estimate_cost(300_000, 4, devices, received_rows=10).exchange_seconds
        < one.exchange_seconds
    )
    with pytest.raises(InputError, match=r"num_devices is 0 and must be a whole number"):
        sharded.estimate_cost(300_000, 4, 0)
    with pytest.raises(InputError, match="received_rows is 301 and must be from 0 to"):
        sharded.estimate_cost(300, 4, 2, received_rows=301)


def test_a_matrix_on_disk_reads_only_the_rows_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d.zarr"
    whole = sharded.bisimulation(ROOMS)
    d = sharded.bisimulation(ROOMS, output=path)
    assert isinstance(d, Distance)
    again = Distance.load(path)
    assert again.error == whole.error
    assert again.metadata["classes"] == whole.metadata["classes"]
    assert repr(again) == repr(whole)
    assert again("1,1", "2,3") == whole("1,1", "2,3")
    assert again.nearest("1,1", k=4) == whole.nearest("1,1", k=4)
    assert str(again.explain(0, 5)) == str(whole.explain(0, 5))
    s, t = np.array([[0], [3]]), np.array([1, 2, 5])
    assert np.array_equal(again(s, t), whole(s, t))
    assert np.array_equal(again.values[2:4], whole.values[2:4])
    assert np.array_equal(again.values[[1, 3]][:, 2], whole.values[[1, 3], 2])
    assert np.array_equal(np.asarray(again), whole.values)
    assert np.array_equal(again.table([1, 2], [3]), whole.table([1, 2], [3]))
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(again, copy=False)
    assert np.argmax(again.values) == np.argmax(whole.values)
    assert np.array_equal(again.values > 20, whole.values > 20)
    assert again.values.min() == whole.values.min()
    assert np.array_equal(np.max(again.values, axis=1), whole.values.max(axis=1))
    with pytest.raises(IndexError, match="states go from 0"):
        again.values[ROOMS.num_states]
    again.save(tmp_path / "d.npz")
    assert np.array_equal(Distance.load(tmp_path / "d.npz").values, whole.values)
    rows = Distance.load(path).values
    read: list[int] = []
    monkeypatch.setattr(rows, "_read_cached", lambda row: read.append(row) or np.zeros(len(rows)))  # type: ignore[func-returns-value]
    assert rows[3, 4] == 0
    assert len(read) == 1


def test_bisimilar_states_share_their_rows_on_disk(tmp_path: Path) -> None:
    twice = MDP.deterministic([[1], [0], [3], [2]], [[0.0], [1.0], [0.0], [1.0]], discount=0.5)
    d = sharded.bisimulation(twice, output=tmp_path / "d.zarr")
    assert json.loads((tmp_path / "d.zarr/values/zarr.json").read_text())["shape"] == [2, 2]
    assert d(0, 2) == 0
    assert d(0, 1) == d(2, 3) == pytest.approx(2.0, abs=d.error)


def test_a_damaged_matrix_is_named(tmp_path: Path) -> None:
    path = tmp_path / "d.zarr"
    sharded.bisimulation(ROOMS, output=path)
    for piece in (path / "values/c").rglob("*"):
        if piece.is_file():
            piece.unlink()
    with pytest.raises(InputError, match="missing or not finite"):
        Distance.load(path)(0, 1)
    (path / "values/zarr.json").unlink()
    with pytest.raises(InputError, match=r"values is not a distance matrix"):
        Distance.load(path)


def test_a_run_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    rough = sharded.bisimulation(ROOMS, tol=20.0, checkpoint=run, checkpoint_every=1e-9)
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["progress"]["sweeps"] == rough.metadata["sweeps"] - 1
    assert [each.name for each in run.glob("matrix-*")] == [manifest["matrix"]]
    fine = sharded.bisimulation(ROOMS, resume=run)
    assert (run / "manifest.json").exists()
    assert fine.metadata["sweeps"] > rough.metadata["sweeps"]
    fine = sharded.bisimulation(ROOMS, checkpoint=run, resume=run, output=tmp_path / "d.npz")
    assert fine.metadata["sweeps"] > rough.metadata["sweeps"]
    assert np.array_equal(fine.values, sharded.bisimulation(ROOMS).values)
    assert list(run.iterdir()) == []


def test_a_run_on_policy_resumes_too(tmp_path: Path) -> None:
    run = tmp_path / "run"
    straight = sharded.on_policy(ROOMS, STILL)
    sharded.on_policy(ROOMS, STILL, tol=0.1, checkpoint=run, checkpoint_every=1e-9)
    d = sharded.on_policy(ROOMS, STILL, checkpoint=tmp_path / "other", resume=run)
    assert (run / "manifest.json").exists()
    assert np.array_equal(d.values, straight.values)


def test_a_checkpoint_of_another_run_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    sharded.bisimulation(ROOMS, checkpoint=run, checkpoint_every=1e-9)
    with pytest.raises(InputError, match="another MDP"):
        sharded.bisimulation(ROOMS.replace(discount=0.8), resume=run)
    with pytest.raises(InputError, match="another dtype"):
        sharded.bisimulation(ROOMS, dtype="float32", resume=run)
    with pytest.raises(InputError, match="another distance"):
        sharded.on_policy(ROOMS, STILL, resume=run)
    monkeypatch.setattr(bisimetric, "__version__", "9.9.9")
    with pytest.raises(InputError, match=r"another version of bisimetric .*this one has 9\.9\.9"):
        sharded.bisimulation(ROOMS, resume=run)
    (run / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="not a manifest of a run"):
        sharded.bisimulation(ROOMS, resume=run)


def test_a_run_is_resumed_or_replaced_on_request_only(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(InputError, match=r"cannot resume from .*run: it holds no checkpoint"):
        sharded.bisimulation(ROOMS, resume=run)
    sharded.bisimulation(ROOMS, checkpoint=run, checkpoint_every=1e-9)
    before = (run / "manifest.json").read_text()
    with pytest.raises(InputError, match=r"run holds a run; resume from it, or"):
        sharded.bisimulation(ROOMS, checkpoint=run, checkpoint_every=1e-9)
    assert (run / "manifest.json").read_text() == before


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    sharded.bisimulation(ROOMS, tol=20.0, checkpoint=run, checkpoint_every=1e-9)
    before = (run / "manifest.json").read_text()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"cannot write .*/matrix-0.*still holds matrix-0"):
            sharded.bisimulation(ROOMS, checkpoint=run, checkpoint_every=1e-9, resume=run)
        with pytest.raises(OSError, match="too large"):
            sharded.bisimulation(ROOMS, output=tmp_path / "d.zarr")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (run / "manifest.json").read_text() == before
    assert [each.name for each in tmp_path.iterdir()] == ["run"]
    d = sharded.bisimulation(ROOMS, checkpoint=run, checkpoint_every=1e-9, resume=run)
    assert np.array_equal(d.values, sharded.bisimulation(ROOMS).values)


def test_invalid_arguments_raise(tmp_path: Path) -> None:
    lake = MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[0.0], [1.0]], discount=0.5)
    with pytest.raises(InputError, match="has several successors, and sharding needs"):
        sharded.bisimulation(lake)
    steep = MDP.deterministic([[0], [1]], [[0.0], [1e38]], discount=0.9)
    with pytest.raises(InputError, match="distances that float32 cannot hold; scale"):
        sharded.bisimulation(steep, dtype="float32")
    with pytest.raises(InputError, match="device is 'gpu9' and must be one that JAX finds: "):
        sharded.bisimulation(ROOMS, device="gpu9")
    with pytest.raises(InputError, match="checkpoint_every is 0 and must be above 0"):
        sharded.bisimulation(ROOMS, checkpoint_every=0)
    with pytest.raises(InputError, match="is a folder without a sharded distance"):
        sharded.bisimulation(ROOMS, output=tmp_path)
    with pytest.raises(OSError, match="make the folder"):
        sharded.bisimulation(ROOMS, output=tmp_path / "no" / "d.zarr")


def test_a_matrix_that_does_not_fit_raises_with_the_number_of_devices() -> None:
    mdp = worlds.load("random", states=2000, actions=2, discount=0.9)
    block, limit = 2**16, 2**23
    with pytest.raises(
        InsufficientMemory, match=r"2,000 states need 61\..* MiB on the one"
    ) as refused:
        sharded.bisimulation(mdp, block_bytes=block, memory_limit=limit)
    enough = int(str(refused.value).split("; use ")[1].split(" ")[0])
    fits = [
        build_layout(2000, n, np.dtype("float64"), block_bytes=block).device_bytes <= limit
        for n in (enough - 1, enough)
    ]
    assert fits == [False, True]
    with pytest.raises(InsufficientMemory, match="a smaller block_bytes"):
        sharded.bisimulation(mdp, block_bytes=block, memory_limit=2**12)
