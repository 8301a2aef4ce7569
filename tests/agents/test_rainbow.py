"""Rainbow: its replay against what really happened, its updates against slow ones, its files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies

jax = pytest.importorskip("jax")
pytest.importorskip("ale_py")

import jax.numpy as jnp  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

from bisimetric.agents import rainbow  # noqa: E402
from bisimetric.agents.rainbow import learner as learning
from bisimetric.agents.rainbow import replay  # noqa: E402
from bisimetric.agents.rainbow.training import store_row  # noqa: E402
from bisimetric.errors import (
    InputError,
    InsufficientMemory,
)
from bisimetric.games.environments import AtariGames  # noqa: E402

LENGTH, COUNT, AHEAD, DISCOUNT = 24, 2, 3, 0.9
SMALL = rainbow.RainbowConfig(
    num_games=2,
    batch=4,
    samples_per_insert=2,
    capacity=64,
    min_replay_size=16,
    target_update_period=32,
    epsilon_decay_steps=64,
    learning_rate=1e-3,
)


@dataclasses.dataclass
class Seen:
    """One step of all games, as it happened."""

    observations: Any
    action: Any
    reward: Any
    began: Any
    ended: Any
    rested: Any


@pytest.fixture(scope="module")
def walk() -> list[Seen]:
    """A random walk through games that are cut after 10 steps each, and begin again."""
    games = AtariGames("Pong", COUNT, seed=3, max_episode_steps=10)
    random = np.random.default_rng(0)
    steps, before = [], games.reset()
    for _ in range(40):
        action = random.integers(0, 6, COUNT)
        after = games.step(action)
        over, rested = (each.terminated | each.truncated for each in (after, before))
        reward = random.normal(size=COUNT)
        steps.append(Seen(before.observations, action, reward, before.is_first, over, rested))
        before = after
    assert sum(step.ended.sum() for step in steps) > 2
    return steps


def row(step: Seen) -> replay.ReplayRow:
    return replay.ReplayRow(
        step.observations[:, -1],
        step.action,
        step.reward,
        step.began,
        step.ended,
        step.rested,
    )


def filled(walk: list[Seen]) -> replay.ReplayBuffer:
    kept = replay.create_buffer(LENGTH, COUNT)
    how = dataclasses.replace(SMALL, lookahead=AHEAD)
    for step in walk:
        kept = store_row(how, kept, row(step))
    return kept


def test_what_is_drawn_is_what_happened(walk: list[Seen]) -> None:
    draw = replay.sample_batch(filled(walk), jax.random.key(0), 64, AHEAD, DISCOUNT)
    last = len(walk) - 1
    assert len(set(zip(draw.row.tolist(), draw.game.tolist(), strict=True))) > 20
    for each in range(64):
        place, which = int(draw.row[each]), int(draw.game[each])
        # The step of this walk that stands in the row, the latest one.
        time = last - (last - place) % LENGTH
        step = walk[time]
        np.testing.assert_array_equal(draw.observation[each], step.observations[which])
        assert draw.action[each] == step.action[which]
        total, factor = 0.0, 1.0
        for later in walk[time : time + AHEAD]:
            total += factor * later.reward[which]
            factor *= DISCOUNT
            if later.ended[which]:
                factor = 0.0
                break
        assert draw.reward[each] == pytest.approx(total, abs=1e-5)
        assert draw.discount[each] == pytest.approx(factor, abs=1e-6)
        if factor:
            np.testing.assert_array_equal(
                draw.next_observation[each], walk[time + AHEAD].observations[which]
            )


def test_only_steps_whose_frames_and_return_are_there_can_be_drawn(walk: list[Seen]) -> None:
    kept = filled(walk)
    times = np.array([len(walk) - 1 - (len(walk) - 1 - place) % LENGTH for place in range(LENGTH)])
    oldest, newest = len(walk) - LENGTH, len(walk) - 1
    whole = (times >= oldest + 3) & (times <= newest - AHEAD)
    moved = np.stack([~walk[time].rested for time in times])
    np.testing.assert_array_equal(np.asarray(kept.priority > 0), whole[:, None] & moved)


@pytest.mark.slow
def test_a_step_is_drawn_as_often_as_its_priority_says(walk: list[Seen]) -> None:
    kept = filled(walk)
    chances = np.where(kept.priority > 0, np.random.default_rng(1).random((LENGTH, COUNT)), 0)
    kept = kept._replace(priority=jnp.asarray(chances, jnp.float32))
    draw = replay.sample_batch(kept, jax.random.key(1), 20_000, 1, DISCOUNT)
    found = np.zeros((LENGTH, COUNT))
    np.add.at(found, (np.asarray(draw.row), np.asarray(draw.game)), 1 / 20_000)
    np.testing.assert_allclose(found, chances / chances.sum(), atol=2e-3)
    drawn = chances[np.asarray(draw.row), np.asarray(draw.game)]
    np.testing.assert_allclose(draw.weight, np.sqrt(drawn.min() / drawn), rtol=1e-4)


def test_priorities_change_only_where_something_can_be_drawn(walk: list[Seen]) -> None:
    kept = filled(walk)
    draw = replay.sample_batch(kept, jax.random.key(0), 8, AHEAD, DISCOUNT)
    after = replay.update_priorities(kept, draw, jnp.arange(1.0, 9.0))
    assert after.max_priority == 8.0
    np.testing.assert_array_equal(after.priority > 0, kept.priority > 0)
    assert after.priority[draw.row[7], draw.game[7]] >= 1.0
    assert int((after.priority != kept.priority).sum()) <= 8


@settings(deadline=None, max_examples=20)
@given(strategies.lists(strategies.floats(-9.9, 9.9), min_size=3, max_size=3))
def test_projection_keeps_mass_and_mean(returns: list[float]) -> None:
    network = rainbow.RainbowNetwork(num_actions=2)
    chances = jnp.array([[0.2, 0.5, 0.3]])
    placed = learning.project_distribution(network, jnp.array([returns]), chances)
    assert float(placed.sum()) == pytest.approx(1.0, abs=1e-5)
    mean = float((placed * network.support).sum())
    assert mean == pytest.approx(float(np.dot(returns, chances[0])), abs=1e-4)


@pytest.mark.slow
def test_updates_make_the_network_say_what_was_earned(walk: list[Seen]) -> None:
    """On a replay whose returns are known, discount nearly 0: values come near the rewards."""
    how = dataclasses.replace(
        SMALL, lookahead=1, discount=1e-6, batch=16, samples_per_insert=8, num_games=2
    )
    network = rainbow.RainbowNetwork(num_actions=6)
    kept = replay.create_buffer(LENGTH, COUNT)
    for step in walk:
        paid = dataclasses.replace(step, reward=np.where(step.action > 2, 1.0, -1.0))
        kept = store_row(how, kept, row(paid))
    learner = learning.init_state(network, how, jax.random.key(0))
    update = jax.jit(lambda learner, kept, key: learning.update(network, how, learner, kept, key))
    losses = []
    for each in jax.random.split(jax.random.key(1), 60):
        learner, kept, loss = update(learner, kept, each)
        losses.append(float(loss))
    assert losses[-1] < 0.3 * losses[0]
    draw = replay.sample_batch(kept, jax.random.key(5), 32, 1, 1e-6)
    logits, _ = network.apply(learner.parameters, draw.observation)
    said = np.asarray(network.q_values(logits))[np.arange(32), np.asarray(draw.action)]
    assert np.mean(np.sign(said) == np.asarray(draw.reward)) > 0.9


@pytest.mark.slow
def test_a_run_goes_on_and_its_agent_comes_back(tmp_path: Path) -> None:
    kept = tmp_path / "run.safetensors"
    first = rainbow.train("Pong", steps=64, log_every=32, config=SMALL, checkpoint=kept)
    assert first.steps == 64
    assert first.history["step"].tolist() == [32, 64]
    assert np.isfinite(first.history["loss"][-1])
    start = learning.init_state(first.network, SMALL, jax.random.split(jax.random.key(0))[0])
    moved = jax.tree.map(
        lambda a, b: float(jnp.abs(a - b).max()), start.parameters, first.state.parameters
    )
    assert max(jax.tree.leaves(moved)) > 0
    more = rainbow.train("Pong", steps=96, log_every=32, config=SMALL, resume=kept)
    assert more.history["step"].tolist() == [32, 64, 96]
    assert more.seconds > first.seconds

    file = tmp_path / "agent.safetensors"
    rainbow.save(file, more, {"mean": 1.5})
    agent = rainbow.load(file)
    assert agent.metadata["evaluation"] == {"mean": 1.5}
    assert agent.history["step"].tolist() == [32, 64, 96]
    look = np.random.default_rng(0).integers(0, 256, (3, 4, 84, 84), np.uint8)
    ours, _ = more.agent.act(look, None, np.ones(3, bool))
    theirs, _ = agent.act(look, None, np.ones(3, bool))
    np.testing.assert_allclose(ours.features, theirs.features, rtol=0.02, atol=0.02)
    np.testing.assert_array_equal(ours.action, theirs.action)


def test_the_same_key_trains_the_same_agent() -> None:
    one, two = (rainbow.train("Pong", steps=40, log_every=40, config=SMALL, seed=4) for _ in "ab")
    for a, b in zip(jax.tree.leaves(one.state), jax.tree.leaves(two.state), strict=True):
        np.testing.assert_array_equal(a, b)


def test_bad_runs_are_refused(tmp_path: Path) -> None:
    kept = tmp_path / "run.safetensors"
    rainbow.train("Pong", steps=4, log_every=4, config=SMALL, checkpoint=kept)
    with pytest.raises(InputError, match="another run: its game is Pong and here it is Asterix"):
        rainbow.train("Asterix", steps=8, config=SMALL, resume=kept)
    with pytest.raises(InputError, match="holds 4 steps and 2 are asked for"):
        rainbow.train("Pong", steps=2, config=SMALL, resume=kept)
    kept.write_bytes(kept.read_bytes()[:1000])
    with pytest.raises(InputError, match="cut short or no Rainbow run"):
        rainbow.train("Pong", steps=8, config=SMALL, resume=kept)
    with pytest.raises(InputError, match="cut short or no Rainbow agent"):
        rainbow.load(kept)
    with pytest.raises(FileNotFoundError, match="make the folder"):
        rainbow.train("Pong", steps=4, config=SMALL, checkpoint=tmp_path / "no" / "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 3}, "choose a batch that divides 4"),
        ({"discount": 1.0}, "discount is 1.0 and must be between 0 and 1"),
        ({"count": 0}, "count is 0"),
        ({"capacity": 8}, "capacity is 8 and start 16"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dataclasses.replace(SMALL, **change)


def test_a_replay_larger_than_memory_is_refused_before(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = rainbow.RainbowConfig(capacity=10**9)
    with pytest.raises(InsufficientMemory, match=r"a replay of 1,000,000,\d+ steps needs"):
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
        ({"batch": 10**9, "count": 10**9}, "1,000,000,000 games at once need"),
        ({"count": 100, "reuse": 10**6, "batch": 10**8}, "a batch of 100,000,000 steps needs"),
    ],
)
def test_games_and_batches_larger_than_memory_are_refused(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InsufficientMemory, match=f"rainbow.train: {message}"):
        rainbow.train("Pong", steps=100, config=rainbow.RainbowConfig(**change))


def test_a_damaged_agent_is_refused(tmp_path: Path) -> None:
    shipped = Path(rainbow.__file__).parents[1] / "trained" / "Pong.safetensors"
    tensors = load_file(shipped)
    with safe_open(shipped, framework="numpy") as opened:
        about = json.loads(opened.metadata()["about"])
    file = tmp_path / "agent.safetensors"

    def refused(change: dict[str, Any], metadata: dict[str, str]) -> str:
        save_file({**tensors, **change}, file, metadata=metadata)
        with pytest.raises(InputError) as found:
            rainbow.load(file)
        assert str(file) in str(found.value)
        return str(found.value)

    plain = {"about": json.dumps(about)}
    broken = np.array(tensors["head.bias"])
    broken[3] = np.nan
    assert "head.bias holds NaN or infinity" in refused({"head.bias": broken}, plain)
    assert "its checksum does not match" in refused({}, {**plain, "sha256": "0" * 64})
    for wrong in (True, "6", None, 6.0, -1):
        said = refused({}, {"about": json.dumps({**about, "actions": wrong})})
        assert f"its actions is {wrong} and must be an integer" in said
    about.pop("actions")
    assert "it has no actions" in refused({}, {"about": json.dumps(about)})
    whole = tensors["head.bias"].astype(np.int32)
    assert "missing or not" in refused({"head.bias": whole}, plain)
