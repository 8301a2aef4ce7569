"""Dopamine's checkpoints: the network against loops in NumPy, and pickles that mean harm."""

from __future__ import annotations

import math
import os
import pickle
import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric_atari import agents

SHAPES = {
    "Conv_0": (8, 8, 4, 32),
    "Conv_1": (4, 4, 32, 64),
    "Conv_2": (3, 3, 64, 64),
    "Dense_0": (11 * 11 * 64, 512),
    "Dense_1": (512, 6 * 51),
}
Layers = dict[str, dict[str, Any]]


def make_layers(outputs: int = 6 * 51, seed: int = 0) -> Layers:
    """Make random parameters of a Dopamine agent."""
    random, layers = np.random.default_rng(seed), {}
    for name, shape in (SHAPES | {"Dense_1": (512, outputs)}).items():
        width = math.prod(shape[:-1]) ** -0.5
        layers[name] = {
            "kernel": random.normal(0, width, shape).astype(np.float32),
            "bias": random.normal(0, 0.1, shape[-1]).astype(np.float32),
        }
    return layers


def make_checkpoint(found: Layers) -> dict[str, Any]:
    """Make a checkpoint of Dopamine with these parameters."""
    jax_arrays = {
        name: {part: jnp.asarray(each) for part, each in layer.items()}
        for name, layer in found.items()
    }
    return {
        "state": np.zeros((1, 84, 84, 4), np.uint8),
        "training_steps": np.int64(4_000_000),
        "online_params": {"params": jax_arrays},
        "optimizer_state": optax.adam(1e-4, eps=1.5e-4).init({"w": jnp.ones(2)}),
        "target_params": {"params": jax_arrays},
        "current_iteration": 199,
        "logs": OrderedDict(iteration_0={"return": [-21.0], "names": np.array(["a"], object)}),
    }


def write_pickle(path: Path, content: Any, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(content, protocol))
    return path


def compute_by_loops(found: Layers, observation: NDArray[np.uint8]) -> tuple[Any, Any]:
    """Compute features and outputs of one observation (4, 84, 84) with explicit loops."""
    x = np.moveaxis(observation, 0, -1) / 255
    for name, stride in (("Conv_0", 4), ("Conv_1", 2), ("Conv_2", 1)):
        kernel, bias = found[name]["kernel"], found[name]["bias"]
        width, side = len(kernel), len(x)
        out = math.ceil(side / stride)
        beyond = max((out - 1) * stride + width - side, 0)
        x = np.pad(x, ((beyond // 2, beyond - beyond // 2),) * 2 + ((0, 0),))
        y = np.empty((out, out, kernel.shape[-1]))
        for i in range(out):
            for j in range(out):
                window = x[i * stride : i * stride + width, j * stride : j * stride + width]
                y[i, j] = np.einsum("hwc,hwco->o", window, kernel) + bias
        x = np.maximum(y, 0)
    dense, head = found["Dense_0"], found["Dense_1"]
    features = np.maximum(x.ravel() @ dense["kernel"] + dense["bias"], 0)
    return features, features @ head["kernel"] + head["bias"]


def compute_atom_means(outputs: NDArray[Any]) -> Any:
    table = np.exp(outputs.reshape(6, 51))
    return (table / table.sum(1, keepdims=True)) @ np.linspace(-10, 10, 51)


HEADS: dict[str, tuple[int, Any]] = {
    "DQN": (6, lambda outputs: outputs),
    "Rainbow": (6 * 51, compute_atom_means),
    "QR-DQN": (6 * 200, lambda outputs: outputs.reshape(6, 200).mean(1)),
}


@pytest.mark.parametrize("head", HEADS)
def test_the_network_is_dopamines(head: str, tmp_path: Path) -> None:
    outputs, values = HEADS[head]
    found = make_layers(outputs)
    agent = agents.load(write_pickle(tmp_path / "ckpt.199", make_checkpoint(found)), "Pong")
    assert (agent.name, agent.num_actions, agent.num_features) == ("ckpt.199", 6, 512)
    shown = np.random.default_rng(1).integers(0, 256, (2, 4, 84, 84), dtype=np.uint8)
    seen, _ = agent.act(shown, agent.initial_state(2), np.ones(2, bool))
    for n, each in enumerate(shown):
        features, raw = compute_by_loops(found, each)
        Q = values(raw)
        np.testing.assert_allclose(seen.features[n], features, atol=1e-4)
        assert seen.value[n] == pytest.approx(Q.max(), abs=1e-4)
        assert seen.action[n] == Q.argmax()


def test_frozen_dictionaries_of_flax_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FrozenDict:
        def __init__(self, items: Any) -> None:
            self.items = items

        def __reduce__(self) -> Any:
            return FrozenDict, (self.items,)

    module = ModuleType("flax.core.frozen_dict")
    FrozenDict.__module__, FrozenDict.__qualname__ = module.__name__, "FrozenDict"
    vars(module)["FrozenDict"] = FrozenDict
    with monkeypatch.context() as patched:
        for name in ("flax", "flax.core"):
            patched.setitem(sys.modules, name, ModuleType(name))
        patched.setitem(sys.modules, module.__name__, module)
        path = write_pickle(
            tmp_path / "ckpt.1", {"online_params": FrozenDict({"params": make_layers()})}
        )
    assert agents.load(path, "Pong").num_features == 512


class Exploit:
    """Call a function when it is unpickled."""

    def __init__(self, call: Any, *of: Any) -> None:
        self.call, self.of = call, of

    def __reduce__(self) -> Any:
        return self.call, self.of


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("name", ["mkdir", "eval", "getattr", "import"])
def test_code_raises_and_is_not_executed(name: str, protocol: int, tmp_path: Path) -> None:
    folder = str(tmp_path / "harm")
    harm = {
        "mkdir": Exploit(os.mkdir, folder),
        "eval": Exploit(eval, f"__import__('os').mkdir({folder!r})"),
        "getattr": Exploit(getattr, "text", "upper"),
        "import": Exploit(__import__, "antigravity"),
    }[name]
    path = write_pickle(
        tmp_path / "ckpt.1", make_checkpoint(make_layers()) | {"logs": [harm]}, protocol
    )
    with pytest.raises(
        InputError,
        match=r"ckpt\.1 names code, .*\..*, where only arrays .* none of it was",
    ):
        agents.load(path, "Pong")
    assert not Path(folder).exists()
    assert "antigravity" not in sys.modules
    if name == "mkdir":
        pickle.loads(path.read_bytes())
        assert Path(folder).exists(), "the pickle is harmless: nothing was tested"


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9999])
def test_a_truncated_checkpoint_raises(share: float, tmp_path: Path) -> None:
    path = write_pickle(tmp_path / "ckpt.1", make_checkpoint(make_layers()))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match=r"ckpt\.1 is truncated or no pickle of arrays; copy it"):
        agents.load(path, "Pong")


def test_text_raises(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.1"
    path.write_text("This is no checkpoint.")
    with pytest.raises(InputError, match="truncated or no pickle of arrays"):
        agents.load(path, "Pong")


def test_an_agent_of_another_game_raises(tmp_path: Path) -> None:
    path = write_pickle(tmp_path / "ckpt.1", make_checkpoint(make_layers()))
    with pytest.raises(
        InputError, match=r"has 306 outputs; the game has 9 actions and needs 9 \(DQN\), 459 \(Rain"
    ):
        agents.load(path, "Asterix")


def test_an_agent_with_other_observations_raises(tmp_path: Path) -> None:
    found = make_layers()
    found["Conv_0"]["kernel"] = found["Conv_0"]["kernel"][:, :, :1]
    with pytest.raises(InputError, match=r"kernel of Conv_0 has the shape \(8, 8, 1, 32\), and an"):
        agents.load(write_pickle(tmp_path / "ckpt.1", make_checkpoint(found)), "Pong")
    found = make_layers()
    found["Dense_0"]["kernel"] = found["Dense_0"]["kernel"][:100]
    with pytest.raises(InputError, match=r"Dense_0 has the shape \(100, 512\), .* \(7744, 512\)"):
        agents.load(write_pickle(tmp_path / "ckpt.1", make_checkpoint(found)), "Pong")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda found: found.update(Dense_2=found["Dense_1"]),
            "its online_params are .*, Dense_2, ",
        ),
        (lambda found: found.pop("Conv_2"), "its online_params are Conv_0, Conv_1, Dense_0"),
        (lambda found: found.clear(), "it has no online_params"),
        (lambda found: found["Conv_1"].pop("bias"), "the layer Conv_1 is not a kernel and a bias"),
        (lambda found: found["Conv_1"]["bias"].fill(np.nan), "bias of Conv_1 holds numbers that"),
    ],
)
def test_other_networks_raise(change: Any, said: str, tmp_path: Path) -> None:
    found = make_layers()
    change(found)
    path = write_pickle(tmp_path / "ckpt.1", {"online_params": {"params": found}})
    with pytest.raises(InputError, match=said):
        agents.load(path, "Pong")


def test_another_pickle_raises(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no checkpoint .*: it has no online_params"):
        agents.load(write_pickle(tmp_path / "x", [1, 2]), "Pong")


def test_recursive_dictionaries_raise(tmp_path: Path) -> None:
    knot: dict[str, Any] = {}
    knot["self"] = knot
    with pytest.raises(InputError, match="truncated or no pickle"):
        agents.load(write_pickle(tmp_path / "x", knot), "Pong")
