"""Rainbow: replay against the recorded steps, updates against known returns, files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies

from tests.property_testing import scaled

jax = pytest.importorskip("jax")
pytest.importorskip("ale_py")

import jax.numpy as jnp  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

from bisimetric.errors import InputError, InsufficientMemory  # noqa: E402
from bisimetric_atari.agents import rainbow  # noqa: E402
from bisimetric_atari.agents.rainbow import files, learner, replay  # noqa: E402
from bisimetric_atari.agents.rainbow.training import store_row  # noqa: E402
from bisimetric_atari.games.environments import AtariGames  # noqa: E402

NUM_ROWS, NUM_ENVS, LOOKAHEAD, DISCOUNT = 24, 2, 3, 0.9
SMALL = rainbow.RainbowConfig(
    num_envs=2,
    batch_size=4,
    samples_per_insert=2,
    capacity=64,
    learning_starts=16,
    target_update_period=32,
    epsilon_decay_steps=64,
    learning_rate=1e-3,
)


@dataclasses.dataclass
class Step:
    """One recorded step of all games."""

    observations: Any
    action: Any
    reward: Any
    is_first: Any
    is_last: Any
    is_reset: Any


@pytest.fixture(scope="module")
def walk() -> list[Step]:
    """A random walk through episodes that are truncated after 10 steps."""
    games = AtariGames("Pong", NUM_ENVS, seed=3, max_episode_steps=10)
    random = np.random.default_rng(0)
    steps, before = [], games.reset()
    for _ in range(40):
        action = random.integers(0, 6, NUM_ENVS)
        after = games.step(action)
        is_last, is_reset = (each.terminated | each.truncated for each in (after, before))
        reward = random.normal(size=NUM_ENVS)
        steps.append(Step(before.observations, action, reward, before.is_first, is_last, is_reset))
        before = after
    assert sum(step.is_last.sum() for step in steps) > 2
    return steps


def build_row(step: Step) -> replay.ReplayRow:
    return replay.ReplayRow(
        step.observations[:, -1],
        step.action,
        step.reward,
        step.is_first,
        step.is_last,
        step.is_reset,
    )


def fill_buffer(walk: list[Step]) -> replay.ReplayBuffer:
    buffer = replay.create_buffer(NUM_ROWS, NUM_ENVS)
    config = dataclasses.replace(SMALL, lookahead=LOOKAHEAD)
    for step in walk:
        buffer = store_row(config, buffer, build_row(step))
    return buffer


def test_batches_equal_the_recorded_steps(walk: list[Step]) -> None:
    batch = replay.sample_batch(fill_buffer(walk), jax.random.key(0), 64, LOOKAHEAD, DISCOUNT)
    last = len(walk) - 1
    assert len(set(zip(batch.row.tolist(), batch.game.tolist(), strict=True))) > 20
    for each in range(64):
        row, game = int(batch.row[each]), int(batch.game[each])
        # The latest step of the walk in this row.
        time = last - (last - row) % NUM_ROWS
        step = walk[time]
        np.testing.assert_array_equal(batch.observation[each], step.observations[game])
        assert batch.action[each] == step.action[game]
        total, factor = 0.0, 1.0
        for later in walk[time : time + LOOKAHEAD]:
            total += factor * later.reward[game]
            factor *= DISCOUNT
            if later.is_last[game]:
                factor = 0.0
                break
        assert batch.reward[each] == pytest.approx(total, abs=1e-5)
        assert batch.discount[each] == pytest.approx(factor, abs=1e-6)
        if factor:
            np.testing.assert_array_equal(
                batch.next_observation[each], walk[time + LOOKAHEAD].observations[game]
            )


def test_steps_without_frames_or_return_have_no_priority(walk: list[Step]) -> None:
    buffer = fill_buffer(walk)
    times = np.array([len(walk) - 1 - (len(walk) - 1 - row) % NUM_ROWS for row in range(NUM_ROWS)])
    oldest, newest = len(walk) - NUM_ROWS, len(walk) - 1
    whole = (times >= oldest + 3) & (times <= newest - LOOKAHEAD)
    moved = np.stack([~walk[time].is_reset for time in times])
    np.testing.assert_array_equal(np.asarray(buffer.priority > 0), whole[:, None] & moved)


@pytest.mark.slow
def test_sampling_is_proportional_to_priority(walk: list[Step]) -> None:
    buffer = fill_buffer(walk)
    priorities = np.where(
        buffer.priority > 0, np.random.default_rng(1).random((NUM_ROWS, NUM_ENVS)), 0
    )
    buffer = buffer._replace(priority=jnp.asarray(priorities, jnp.float32))
    batch = replay.sample_batch(buffer, jax.random.key(1), 20_000, 1, DISCOUNT)
    found = np.zeros((NUM_ROWS, NUM_ENVS))
    np.add.at(found, (np.asarray(batch.row), np.asarray(batch.game)), 1 / 20_000)
    np.testing.assert_allclose(found, priorities / priorities.sum(), atol=2e-3)
    sampled = priorities[np.asarray(batch.row), np.asarray(batch.game)]
    np.testing.assert_allclose(batch.weight, np.sqrt(sampled.min() / sampled), rtol=1e-4)


def test_unavailable_steps_keep_priority_zero(walk: list[Step]) -> None:
    buffer = fill_buffer(walk)
    batch = replay.sample_batch(buffer, jax.random.key(0), 8, LOOKAHEAD, DISCOUNT)
    after = replay.update_priorities(buffer, batch, jnp.arange(1.0, 9.0))
    assert after.max_priority == 8.0
    np.testing.assert_array_equal(after.priority > 0, buffer.priority > 0)
    assert after.priority[batch.row[7], batch.game[7]] >= 1.0
    assert int((after.priority != buffer.priority).sum()) <= 8


@settings(deadline=None, max_examples=scaled(20))
@given(strategies.lists(strategies.floats(-9.9, 9.9), min_size=3, max_size=3))
def test_projection_keeps_mass_and_mean(returns: list[float]) -> None:
    network = rainbow.RainbowNetwork(num_actions=2)
    probabilities = jnp.array([[0.2, 0.5, 0.3]])
    placed = learner.project_distribution(network, jnp.array([returns]), probabilities)
    assert float(placed.sum()) == pytest.approx(1.0, abs=1e-5)
    mean = float((placed * network.support).sum())
    assert mean == pytest.approx(float(np.dot(returns, probabilities[0])), abs=1e-4)


@pytest.mark.slow
def test_updates_fit_known_returns(walk: list[Step]) -> None:
    """With a discount near 0, values approach the rewards."""
    config = dataclasses.replace(
        SMALL, lookahead=1, discount=1e-6, batch_size=16, samples_per_insert=8, num_envs=2
    )
    network = rainbow.RainbowNetwork(num_actions=6)
    buffer = replay.create_buffer(NUM_ROWS, NUM_ENVS)
    for step in walk:
        paid = dataclasses.replace(step, reward=np.where(step.action > 2, 1.0, -1.0))
        buffer = store_row(config, buffer, build_row(paid))
    state = learner.init_state(network, config, jax.random.key(0))
    update = jax.jit(lambda state, buffer, key: learner.update(network, config, state, buffer, key))
    losses = []
    for each in jax.random.split(jax.random.key(1), 60):
        state, buffer, loss = update(state, buffer, each)
        losses.append(float(loss))
    assert losses[-1] < 0.3 * losses[0]
    batch = replay.sample_batch(buffer, jax.random.key(5), 32, 1, 1e-6)
    logits, _ = network.apply(state.parameters, batch.observation)
    values = np.asarray(network.q_values(logits))[np.arange(32), np.asarray(batch.action)]
    assert np.mean(np.sign(values) == np.asarray(batch.reward)) > 0.9


@pytest.mark.slow
def test_a_run_resumes_and_its_agent_is_saved(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run.safetensors"
    first = rainbow.train("Pong", steps=64, log_every=32, config=SMALL, checkpoint=checkpoint)
    assert first.steps == 64
    assert first.history["step"].tolist() == [32, 64]
    assert np.isfinite(first.history["loss"][-1])
    start = learner.init_state(first.network, SMALL, jax.random.split(jax.random.key(0))[0])
    moved = jax.tree.map(
        lambda a, b: float(jnp.abs(a - b).max()), start.parameters, first.state.parameters
    )
    assert max(jax.tree.leaves(moved)) > 0
    more = rainbow.train("Pong", steps=96, log_every=32, config=SMALL, resume=checkpoint)
    assert more.history["step"].tolist() == [32, 64, 96]
    assert more.seconds > first.seconds

    file = tmp_path / "agent.safetensors"
    rainbow.save(file, more, {"mean": 1.5})
    agent = rainbow.load(file)
    assert agent.metadata["evaluation"] == {"mean": 1.5}
    assert agent.history["step"].tolist() == [32, 64, 96]
    frames = np.random.default_rng(0).integers(0, 256, (3, 4, 84, 84), np.uint8)
    before, _ = more.agent.act(frames, None, np.ones(3, bool))
    after, _ = agent.act(frames, None, np.ones(3, bool))
    np.testing.assert_allclose(before.features, after.features, rtol=0.02, atol=0.02)
    np.testing.assert_array_equal(before.action, after.action)


def test_a_checkpoint_with_former_names_is_read(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run.safetensors"
    network = rainbow.RainbowNetwork(6)
    state = learner.init_state(network, SMALL, jax.random.key(0))
    run = rainbow.RainbowRun("Pong", network, SMALL, 0, state, 8, 1.0, {})
    files.save_checkpoint(checkpoint, run)
    with safe_open(checkpoint, framework="numpy") as opened:
        text = opened.metadata()["about"]
    former = text.replace("num_envs", "num_games").replace("learning_starts", "min_replay_size")
    assert former != text
    save_file(load_file(checkpoint), checkpoint, metadata={"about": former})
    assert files.load_checkpoint(checkpoint, run).steps == 8


@pytest.mark.slow
def test_the_same_seed_trains_the_same_agent() -> None:
    one, two = (rainbow.train("Pong", steps=40, log_every=40, config=SMALL, seed=4) for _ in "ab")
    for a, b in zip(jax.tree.leaves(one.state), jax.tree.leaves(two.state), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_unusable_checkpoints_raise(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run.safetensors"
    rainbow.train("Pong", steps=4, log_every=4, config=SMALL, checkpoint=checkpoint)
    with pytest.raises(InputError, match="another run: its game is Pong and here it is Asterix"):
        rainbow.train("Asterix", steps=8, config=SMALL, resume=checkpoint)
    with pytest.raises(InputError, match=r"steps is 2, .* has 4; give more steps"):
        rainbow.train("Pong", steps=2, config=SMALL, resume=checkpoint)
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(InputError, match="no Rainbow run"):
        rainbow.train("Pong", steps=8, config=SMALL, resume=checkpoint)
    with pytest.raises(InputError, match="no Rainbow agent"):
        rainbow.load(checkpoint)
    with pytest.raises(FileNotFoundError, match="make the folder"):
        rainbow.train("Pong", steps=4, config=SMALL, checkpoint=tmp_path / "no" / "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 3}, "batch_size is 3 and must divide .*, 4"),
        ({"discount": 1.0}, "discount is 1.0 and must be between 0 and 1"),
        ({"num_envs": 0}, "num_envs is 0"),
        ({"capacity": 8}, "capacity is 8 and must be at least learning_starts, 16"),
    ],
)
def test_the_configuration_is_validated(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dataclasses.replace(SMALL, **change)


def test_a_replay_buffer_larger_than_memory_raises_first(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = rainbow.RainbowConfig(capacity=10**9)
    with pytest.raises(InsufficientMemory, match=r"a replay buffer of 1,000,000,\d+ steps needs"):
        rainbow.train("Pong", steps=100, config=huge)

    class Card:
        def memory_stats(self) -> dict[str, int]:
            return {"bytes_limit": 2**32, "bytes_in_use": 2**31}

    monkeypatch.setattr(jax, "devices", lambda: [Card()])
    with pytest.raises(
        InsufficientMemory, match=r"needs 6.59 GiB of memory and 2 GiB are free; lower"
    ):
        rainbow.train("Pong", steps=100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 10**9, "num_envs": 10**9}, "1,000,000,000 parallel games need"),
        (
            {"num_envs": 100, "samples_per_insert": 10**6, "batch_size": 10**8},
            "a batch of 100,000,000 transitions needs",
        ),
    ],
)
def test_games_and_batches_larger_than_memory_raise(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InsufficientMemory, match=f"rainbow.train: {message}"):
        rainbow.train("Pong", steps=100, config=rainbow.RainbowConfig(**change))


def test_a_damaged_agent_raises(tmp_path: Path) -> None:
    pretrained = Path(rainbow.__file__).parents[1] / "trained" / "Pong.safetensors"
    tensors = load_file(pretrained)
    with safe_open(pretrained, framework="numpy") as opened:
        about = json.loads(opened.metadata()["about"])
    file = tmp_path / "agent.safetensors"

    def load_error(change: dict[str, Any], metadata: dict[str, str]) -> str:
        save_file({**tensors, **change}, file, metadata=metadata)
        with pytest.raises(InputError) as found:
            rainbow.load(file)
        assert str(file) in str(found.value)
        return str(found.value)

    plain = {"about": json.dumps(about)}
    broken = np.array(tensors["head.bias"])
    broken[3] = np.nan
    assert "head.bias holds NaN or infinity" in load_error({"head.bias": broken}, plain)
    assert "its checksum does not match" in load_error({}, {**plain, "sha256": "0" * 64})
    for wrong in (True, "6", None, 6.0, -1):
        said = load_error({}, {"about": json.dumps({**about, "actions": wrong})})
        assert f"its actions is {wrong} and must be an integer" in said
    about.pop("actions")
    assert "it has no actions" in load_error({}, {"about": json.dumps(about)})
    whole = tensors["head.bias"].astype(np.int32)
    assert "missing or not" in load_error({"head.bias": whole}, plain)
