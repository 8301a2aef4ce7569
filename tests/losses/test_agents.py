"""The agents of examples/agents run, and a metric loss changes the gradient of their encoders."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.test_documentation import find_blocks

LOSSES = ("mico", "simsr", "on_policy")
ROOT = Path(__file__).parents[2]


def run_example(module: Any, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["example", *words])
    module.main()


def check_output(text: str, loss: str) -> None:
    """Two lines, without and with the loss, and a number in each."""
    rows = [line.split() for line in text.splitlines()]
    assert [row[0] for row in rows] == ["none", loss]
    assert all(np.isfinite(float(row[3].rstrip(","))) for row in rows)


@pytest.mark.parametrize("name", ["jax_pqn_minatar", "torch_dqn", "sb3_dqn"])
def test_help_has_examples(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = import_example(name)
    with pytest.raises(SystemExit, match="0"):
        run_example(module, monkeypatch, "--help")
    out = capsys.readouterr().out
    assert f"python examples/agents/{name}.py --loss" in out
    assert "{none,mico,simsr,on_policy}" in out


def import_example(name: str) -> Any:
    needed = {"jax_pqn_minatar": "gymnax", "torch_dqn": "torch", "sb3_dqn": "stable_baselines3"}
    pytest.importorskip(needed[name])
    return __import__(name)


class TestTorchDQN:
    def get_gradient(self, loss: str, weight: float) -> Any:
        import torch

        agent = import_example("torch_dqn")
        torch.manual_seed(0)
        network, target = agent.QNetwork(4, 2), agent.QNetwork(4, 2)
        batch = {
            "observations": torch.randn(8, 4),
            "next_observations": torch.randn(8, 4),
            "actions": torch.arange(8) % 2,
            "rewards": torch.rand(8),
            "terminated": torch.arange(8) == 3,
        }
        agent.compute_loss(network, target, batch, loss, weight).backward()
        assert all(each.grad is None for each in target.parameters())
        return network.encoder[0].weight.grad.numpy()

    @pytest.mark.parametrize("loss", LOSSES)
    def test_the_loss_trains_the_encoder(self, loss: str) -> None:
        pytest.importorskip("torch")
        plain = self.get_gradient("none", 1.0)
        np.testing.assert_allclose(self.get_gradient(loss, 0.0), plain, rtol=1e-6)
        change = np.abs(self.get_gradient(loss, 1.0) - plain).max()
        assert change > 0.01 * np.abs(plain).max()

    def test_runs(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run_example(import_example("torch_dqn"), monkeypatch, "--loss", "simsr", "--steps", "300")
        check_output(capsys.readouterr().out, "simsr")


class TestStableBaselines:
    def test_without_a_loss_it_is_dqn(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same weights as `DQN` of Stable-Baselines3 after equal training."""
        agent = import_example("sb3_dqn")
        ours = agent.train(200)
        monkeypatch.setattr(
            agent,
            "MetricDQN",
            lambda *words, loss, weight, **options: agent.DQN(*words, **options),
        )
        plain = agent.train(200)
        assert type(plain) is agent.DQN
        for mine, theirs in zip(ours.policy.parameters(), plain.policy.parameters(), strict=True):
            np.testing.assert_allclose(mine.detach(), theirs.detach(), rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("loss", LOSSES)
    def test_the_loss_trains_the_encoder(self, loss: str) -> None:
        agent = import_example("sb3_dqn").train(100, loss)
        batch, gradients = agent.replay_buffer.sample(32), []
        for weight in (0.0, 1.0):
            agent.weight = weight
            agent.policy.zero_grad()
            agent.compute_loss(batch).backward()
            gradients.append(agent.q_net.features_extractor.layers[0].weight.grad.numpy().copy())
        plain, changed = gradients
        assert np.abs(changed - plain).max() > 1e-3 * np.abs(plain).max()

    def test_runs(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run_example(import_example("sb3_dqn"), monkeypatch, "--loss", "mico", "--steps", "100")
        check_output(capsys.readouterr().out, "mico")

    def test_the_documented_subclass_runs(self) -> None:
        """The block of docs/how-to/losses.md that `make test` leaves out."""
        pytest.importorskip("stable_baselines3")
        text = (ROOT / "docs" / "how-to" / "losses.md").read_text("utf-8")
        (block,) = [each for each in find_blocks(text) if "MetricDQN" in each.code]
        names: dict[str, Any] = {}
        exec(block.code, names)
        agent = names["MetricDQN"]("MlpPolicy", "CartPole-v1", learning_starts=8, device="cpu")
        agent.learn(16)
        before = [each.detach().clone() for each in agent.q_net.parameters()]
        agent.train(1, batch_size=8)
        after = list(agent.q_net.parameters())
        assert any((old != new).any() for old, new in zip(before, after, strict=True))


class TestPQN:
    def build_batch(self, size: int, config: Any, num_planes: int) -> dict[str, Any]:
        import jax.numpy as jnp

        rng = np.random.default_rng(0)
        n = config.lookahead
        return {
            "observations": jnp.asarray(rng.random((size, 10, 10, num_planes)) < 0.2),
            "actions": jnp.asarray(rng.integers(3, size=size)),
            "targets": jnp.asarray(rng.normal(size=size), jnp.float32),
            "rewards": jnp.asarray(rng.random((size, n)) < 0.3, jnp.float32),
            "terminated": jnp.zeros((size, n), bool).at[2, 1].set(True),
            "steps": jnp.asarray(rng.integers(1, n + 1, size=size)),
            "next_features": jnp.asarray(rng.random((size, n, 16)), jnp.float32),
            "next_z": jnp.asarray(rng.random((size, n, 8)), jnp.float32),
            "partner": jnp.asarray(rng.permutation(size)),
        }

    @pytest.mark.parametrize("term", [*LOSSES, "self_prediction", "layer_norm"])
    def test_each_term_trains_the_encoder(self, term: str) -> None:
        import jax

        agent = import_example("jax_pqn_minatar")
        config = agent.Config(losses=LOSSES, num_features=16, num_coordinates=8, lookahead=3)
        params = agent.create_params(jax.random.key(0), config, 5, 3)
        # Embeddings of the first update are nearly equal, by design.
        params["metric"]["w"] += jax.random.normal(jax.random.key(1), (16, 8))
        batch = self.build_batch(6, config, 5)
        differentiate = jax.jit(jax.grad(agent.compute_loss), static_argnums=2)
        gradients = []
        for weight in (0.0, 1.0):
            weights = {name: weight * (name == term) for name in LOSSES}
            options = agent.Options(
                weight * (term == "layer_norm"), weight * (term == "self_prediction"), weights
            )
            gradient = differentiate(params, options, config, batch)
            gradients.append([np.asarray(gradient[name]["w"]) for name in ("conv", "dense")])
            if term in LOSSES:
                assert np.any(gradient["metric"]["w"]) == bool(weight)
        for plain, changed in zip(*gradients, strict=True):
            assert np.abs(changed - plain).max() > 1e-3 * np.abs(plain).max()

    def test_returns_are_those_of_q_lambda(self) -> None:
        """By hand: a termination, and a truncation that is bootstrapped."""
        import jax.numpy as jnp

        agent = import_example("jax_pqn_minatar")
        config = agent.Config(discount=0.5, trace_decay=0.5)
        column = [jnp.array(each)[:, None] for each in (
            [1.0, 2.0, 4.0, 8.0], [False, True, False, False], [False, False, True, False],
            [10.0, 20.0, 40.0, 80.0])]  # fmt: skip
        rewards, terminated, truncated, values = column
        batch = agent.Batch(None, None, rewards, terminated, truncated, None, values)
        # 8 + 80/2; 4 + 40/2; 2; 1 + (10/2 + 2/2)/2
        assert agent.compute_returns(batch, config)[:, 0].tolist() == [4.0, 2.0, 24.0, 48.0]
        assert agent.count_steps(batch)[:, 0].tolist() == [2, 1, 1, 1]

    def test_windows_follow_their_environment_until_the_end(self) -> None:
        """Three steps of two environments, numbered 10 * time + environment, lookahead 2."""
        import jax.numpy as jnp

        agent = import_example("jax_pqn_minatar")
        numbers = 10.0 * jnp.arange(3)[:, None] + jnp.arange(2)
        never = jnp.zeros((3, 2), bool)
        batch = agent.Batch(
            numbers, numbers, numbers, never, never.at[0, 1].set(True), numbers[..., None], numbers
        )
        steps = agent.count_steps(batch)
        found = agent.gather_minibatch(batch, -numbers, steps, jnp.array([1, 2, 5]), 2)
        assert found["observations"].tolist() == [1, 10, 21]
        assert found["targets"].tolist() == [-1, -10, -21]
        assert found["rewards"].tolist() == [[1, 11], [10, 20], [21, 21]]
        assert found["next_features"][..., 0].tolist() == [[1, 11], [10, 20], [21, 21]]
        assert found["steps"].tolist() == [1, 2, 1]  # truncated; two; the last one

    def test_distractors_change_only_their_planes(self) -> None:
        import jax

        agent = import_example("jax_pqn_minatar")
        game = agent.Game("Freeway")
        key = jax.random.key(0)
        shown, _ = game.reset(key, 1.0)
        hidden, _ = game.reset(key, 0.0)
        assert shown.shape == (10, 10, 11)
        assert (shown[..., :7] == hidden[..., :7]).all()
        assert not hidden[..., 7:].any()
        assert 0.1 < shown[..., 7:].mean() < 0.3
        planes = shown[..., 7:]
        changed = (game.draw_planes(key, planes) != planes).mean((0, 1))
        assert changed[:2].min() > 2 * changed[2:].max()

    def test_runs(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        agent = import_example("jax_pqn_minatar")
        words = ("--loss", "on_policy", "--steps", "256", "--num-envs", "4", "--seeds", "1")
        run_example(agent, monkeypatch, *words)
        rows = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
        assert rows == ["none", "on_policy"]  # no episode need end within so few steps
