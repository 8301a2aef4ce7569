"""Agents of Stable-Baselines3, saved by it after a few steps of Pong; `make test-sb3` runs this."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

WHY = "tests of Stable-Baselines3: run `make test-sb3`, which installs it"
torch: Any = pytest.importorskip("torch", reason=WHY)
sb3: Any = pytest.importorskip("stable_baselines3", reason=WHY)
contrib: Any = pytest.importorskip("sb3_contrib", reason=WHY)
gymnasium: Any = pytest.importorskip("gymnasium", reason=WHY)

from bisimetric.errors import InputError  # noqa: E402
from bisimetric_atari import agents, games  # noqa: E402

# As for the other packages: threads that wait for each other are slow on a busy machine.
torch.set_num_threads(1)

OFF_POLICY = {"buffer_size": 100, "learning_starts": 8, "batch_size": 8}
ON_POLICY = {"n_steps": 8, "batch_size": 8}


class PongEnv(gymnasium.Env):  # type: ignore[misc]
    """One game as a Gymnasium environment with `frames` frames per observation."""

    def __init__(self, name: str = "Pong", frames: int = 4) -> None:
        self.frames, self.games = frames, games.AtariGames(name, 1)
        self.observation_space = gymnasium.spaces.Box(0, 255, (frames, 84, 84), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(self.games.game.actions))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.games.reset().observations[0, -self.frames :], {}

    def step(self, action: Any) -> Any:
        step = self.games.step([int(action)])
        flags = bool(step.terminated[0]), bool(step.truncated[0])
        return step.observations[0, -self.frames :], float(step.rewards[0]), *flags, {}


def train_model(kind: str, world: PongEnv | None = None, **options: Any) -> Any:
    """Train a model from seed 0 for 16 steps; scale its weights, so that observations matter."""
    options = {"seed": 0, **options}
    model = {
        "dqn": lambda: sb3.DQN("CnnPolicy", world or PongEnv(), **OFF_POLICY, **options),
        "qr-dqn": lambda: contrib.QRDQN("CnnPolicy", world or PongEnv(), **OFF_POLICY, **options),
        "ppo": lambda: sb3.PPO("CnnPolicy", world or PongEnv(), **ON_POLICY, **options),
        "a2c": lambda: sb3.A2C("CnnPolicy", world or PongEnv(), **options),
    }[kind]()
    model.learn(16)
    with torch.no_grad():
        for each in model.policy.parameters():
            each.mul_(1.5)
    return model


@pytest.fixture(scope="module")
def observations() -> NDArray[np.uint8]:
    """Observations of 4 random games."""
    played, random = games.AtariGames("Pong", 4, seed=3), np.random.default_rng(0)
    found = [played.reset().observations]
    for _ in range(240):
        found.append(played.step(random.integers(0, 6, 4)).observations)
    together: NDArray[np.uint8] = np.concatenate(found[::15])
    together.setflags(write=False)
    return together


Activations = Callable[[Any, Any], tuple[Any, Any]]


def compute_q(policy: Any, x: Any) -> tuple[Any, Any]:
    net = policy.q_net
    latent = net.q_net[:-1](net.extract_features(x, net.features_extractor))
    return latent, net(x).max(dim=1).values


def compute_quantiles(policy: Any, x: Any) -> tuple[Any, Any]:
    net = policy.quantile_net
    latent = net.quantile_net[:-1](net.extract_features(x, net.features_extractor))
    return latent, net(x).mean(dim=1).max(dim=1).values


def compute_actor(policy: Any, x: Any) -> tuple[Any, Any]:
    found = policy.extract_features(x)
    of_action = found if policy.share_features_extractor else found[0]
    return policy.mlp_extractor.forward_actor(of_action), policy.predict_values(x)[:, 0]


CASES = {
    "dqn": ("dqn", compute_q, {}, 512),
    "dqn with hidden layers": (
        "dqn",
        compute_q,
        {"net_arch": [48, 32], "activation_fn": torch.nn.Tanh},
        32,
    ),
    "qr-dqn": ("qr-dqn", compute_quantiles, {"n_quantiles": 25}, 512),
    "qr-dqn with a hidden layer": ("qr-dqn", compute_quantiles, {"net_arch": [40]}, 40),
    "ppo": ("ppo", compute_actor, {}, 512),
    "ppo with fewer features": (
        "ppo",
        compute_actor,
        {
            "features_extractor_class": sb3.common.torch_layers.NatureCNN,
            "features_extractor_kwargs": {"features_dim": 64},
        },
        64,
    ),
    "ppo with hidden layers": ("ppo", compute_actor, {"net_arch": {"pi": [32], "vf": [16, 8]}}, 32),
    "ppo with a separate feature extractor of the critic": (
        "ppo",
        compute_actor,
        {"share_features_extractor": False, "net_arch": [24], "activation_fn": torch.nn.ELU},
        24,
    ),
    "a2c": ("a2c", compute_actor, {}, 512),
}


@pytest.mark.parametrize("case", CASES)
def test_actions_features_and_values_equal_those_of_sb3(
    case: str, tmp_path: Path, observations: NDArray[np.uint8]
) -> None:
    kind, activations, options, count = CASES[case]
    model = train_model(kind, policy_kwargs=options)
    model.save(tmp_path / "pong")
    agent = agents.load(tmp_path / "pong.zip", "Pong")
    assert (agent.name, agent.num_actions, agent.num_features) == ("pong.zip", 6, count)
    assert agent.initial_state(64) is None
    output, _ = agent.act(observations, None, np.ones(len(observations), bool))
    with torch.no_grad():
        latent, value = activations(model.policy, torch.tensor(observations))
    np.testing.assert_allclose(output.features, latent.numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(output.value, value.numpy(), rtol=1e-5, atol=1e-5)
    assert output.features.std(axis=0).max() > 0.001, (
        "all features are constant: nothing was tested"
    )
    np.testing.assert_array_equal(
        output.action, model.predict(observations.copy(), deterministic=True)[0]
    )
    assert [each.dtype for each in output] == [np.int64, np.float32, np.float32]


@pytest.fixture(scope="module")
def agent_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "pong.zip"
    train_model("ppo").save(path)
    return path


def change_zip(
    agent_file: Path, path: Path, settings: Callable[[Any], Any], weights: Callable[[Any], Any]
) -> Path:
    """Write a zip whose options and weights are changed in place by two functions."""
    with zipfile.ZipFile(agent_file) as old, zipfile.ZipFile(path, "w") as new:
        data, state = json.loads(old.read("data")), torch.load(io.BytesIO(old.read("policy.pth")))
        settings(data)
        weights(state)
        new.writestr("data", json.dumps(data))
        buffer = io.BytesIO()
        torch.save(state, buffer)
        new.writestr("policy.pth", buffer.getvalue())
    return path


def keep(_: Any) -> None:
    """Change nothing."""


def test_pickled_options_are_never_opened(
    agent_file: Path, tmp_path: Path, observations: NDArray[np.uint8]
) -> None:
    def spoil(data: Any) -> None:
        pickled = [each for each in data.values() if isinstance(each, dict)]
        assert sum(":serialized:" in each for each in pickled) > 5
        for each in pickled:
            each[":serialized:"] = "no pickle"

    agent = agents.load(change_zip(agent_file, tmp_path / "spoilt.zip", spoil, keep), "Pong")
    is_first = np.ones(len(observations), bool)
    found, wanted = (
        each.act(observations, None, is_first)[0]
        for each in (agent, agents.load(agent_file, "Pong"))
    )
    np.testing.assert_array_equal(found.features, wanted.features)


def test_unnormalised_images_stay_unnormalised(
    agent_file: Path, tmp_path: Path, observations: NDArray[np.uint8]
) -> None:
    def disable_normalisation(data: Any) -> None:
        data["policy_kwargs"] = {"normalize_images": False}

    agent = agents.load(
        change_zip(agent_file, tmp_path / "raw.zip", disable_normalisation, keep), "Pong"
    )
    is_first = np.ones(len(observations), bool)
    raw, scaled = (
        each.act(observations, None, is_first)[0]
        for each in (agent, agents.load(agent_file, "Pong"))
    )
    assert raw.features.max() > 50 * scaled.features.max()


class Exploit:
    """Make a folder when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def test_code_in_the_weights_raises_and_is_not_executed(agent_file: Path, tmp_path: Path) -> None:
    harm = str(tmp_path / "harm")
    bad = change_zip(
        agent_file, tmp_path / "bad.zip", keep, lambda state: state.update(x=Exploit(harm))
    )
    with pytest.raises(InputError, match=r"bad\.zip: its policy\.pth is damaged or holds code"):
        agents.load(bad, "Pong")
    assert not Path(harm).exists()


def test_an_agent_of_another_game_raises(agent_file: Path) -> None:
    with pytest.raises(InputError, match=r"pong\.zip: chooses among 6 actions and Asterix has 9"):
        agents.load(agent_file, "Asterix")


def test_an_agent_with_one_frame_raises(tmp_path: Path) -> None:
    train_model("ppo", PongEnv(frames=1)).save(tmp_path / "one.zip")
    with pytest.raises(InputError, match=r"one\.zip: expects observations of shape \(1, 84, 84\)"):
        agents.load(tmp_path / "one.zip", "Pong")


def test_a_truncated_zip_raises(agent_file: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.zip"
    cut.write_bytes(agent_file.read_bytes()[:-1000])
    with pytest.raises(InputError, match=r"cut\.zip is truncated or no zip of Stable-Baselines3"):
        agents.load(cut, "Pong")


def test_truncated_weights_raise(agent_file: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.zip"
    with zipfile.ZipFile(agent_file) as old, zipfile.ZipFile(cut, "w") as new:
        new.writestr("data", old.read("data"))
        new.writestr("policy.pth", old.read("policy.pth")[:-1000])
    with pytest.raises(InputError, match=r"cut\.zip: its policy\.pth is damaged"):
        agents.load(cut, "Pong")


def test_another_zip_raises(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as new:
        new.writestr("readme", "hello")
    with pytest.raises(InputError, match=r"no zip of Stable-Baselines3; write it with model\.save"):
        agents.load(tmp_path / "other.zip", "Pong")


def test_an_agent_without_image_observations_raises(tmp_path: Path) -> None:
    sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu").save(
        tmp_path / "cart.zip"
    )
    with pytest.raises(InputError, match=r"no weights 'features_extractor\.cnn\.0\.weight'"):
        agents.load(tmp_path / "cart.zip", "Pong")


def test_an_agent_with_continuous_actions_raises(agent_file: Path, tmp_path: Path) -> None:
    path = change_zip(
        agent_file, tmp_path / "smooth.zip", lambda data: data["action_space"].pop("n"), keep
    )
    with pytest.raises(
        InputError, match="its number of actions or its observation space is missing"
    ):
        agents.load(path, "Pong")


def test_a_custom_feature_extractor_raises(agent_file: Path, tmp_path: Path) -> None:
    def own(data: Any) -> None:
        data["policy_kwargs"] = {"features_extractor_class": "<class 'mine.NatureCNN'>"}

    path = change_zip(agent_file, tmp_path / "own.zip", own, keep)
    with pytest.raises(InputError, match=r"features come from <class 'mine\.NatureCNN'>, and only"):
        agents.load(path, "Pong")


def test_a_custom_policy_raises(agent_file: Path, tmp_path: Path) -> None:
    def own(data: Any) -> None:
        data["policy_class"]["__module__"] = "mine"

    path = change_zip(agent_file, tmp_path / "own.zip", own, keep)
    with pytest.raises(InputError, match="its policy is of the module mine, and only SB3's own"):
        agents.load(path, "Pong")


def test_an_unknown_activation_raises(agent_file: Path, tmp_path: Path) -> None:
    def own(data: Any) -> None:
        data["policy_kwargs"] = {"activation_fn": "<class 'mine.Bend'>"}

    path = change_zip(agent_file, tmp_path / "own.zip", own, keep)
    with pytest.raises(InputError, match=r"activation is <class 'mine\.Bend'>; known are ReLU"):
        agents.load(path, "Pong")


def test_unknown_layers_raise(agent_file: Path, tmp_path: Path) -> None:
    path = change_zip(
        agent_file, tmp_path / "x.zip", keep, lambda state: state.update({"lstm.w": torch.ones(2)})
    )
    with pytest.raises(InputError, match=r"no CnnPolicy .* has, such as 'lstm\.w'; wrap"):
        agents.load(path, "Pong")


def test_incompatible_layers_raise(agent_file: Path, tmp_path: Path) -> None:
    path = change_zip(
        agent_file,
        tmp_path / "x.zip",
        keep,
        lambda state: state.update({"action_net.weight": torch.ones(6, 3)}),
    )
    with pytest.raises(InputError, match="its layers do not fit one another"):
        agents.load(path, "Pong")
