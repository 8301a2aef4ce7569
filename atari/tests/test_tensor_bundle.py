"""Checkpoints of TensorFlow 1: agents and metrics of the paper's code, and damaged files."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric_atari import agents
from bisimetric_atari.agents import dopamine
from bisimetric_atari.agents.tensor_bundle import TensorBundle
from bisimetric_atari.games import find_game
from bisimetric_atari.paper.experiment import load_metric
from tensor_bundles import write_bundle
from test_dopamine import make_checkpoint, make_layers, write_pickle

SMALL = {
    "Online/a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "Online/ab": np.array(2.5),
    "count": np.arange(3),
    "z": np.zeros((0, 2), np.int32),
}
VARIABLES = {
    "Conv_0": "Conv",
    "Conv_1": "Conv_1",
    "Conv_2": "Conv_2",
    "Dense_0": "fully_connected",
    "Dense_1": "fully_connected_1",
}


@pytest.fixture(scope="module")
def agent_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same agent as a checkpoint of JAX and of TensorFlow, with other variables beside."""
    folder, layers = tmp_path_factory.mktemp("agents"), make_layers()
    write_pickle(folder / "ckpt.199", make_checkpoint(layers))
    arrays: dict[str, NDArray[Any]] = {"beta1_power": np.array(0.9, np.float32)}
    for name, variable in VARIABLES.items():
        for part, ending in (("kernel", "weights"), ("bias", "biases")):
            arrays[f"Online/{variable}/{ending}"] = layers[name][part]
    write_bundle(folder / "tf_ckpt-199", arrays)
    return folder


def test_variables_are_read(tmp_path: Path) -> None:
    bundle = TensorBundle.load(write_bundle(tmp_path / "tf_ckpt-1", SMALL))
    assert sorted(bundle.records) == sorted(SMALL)
    for name, array in SMALL.items():
        found = bundle.read(name, array.shape)
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
    assert TensorBundle.load(tmp_path / "tf_ckpt-1.index").num_shards == 1


@pytest.mark.parametrize("name", ["tf_ckpt-199", "tf_ckpt-199.index"])
def test_an_agent_equals_its_checkpoint_of_jax(agent_folder: Path, name: str) -> None:
    agent = agents.load(agent_folder / name, "Pong")
    other = agents.load(agent_folder / "ckpt.199", "Pong")
    observations = np.random.default_rng(0).integers(0, 256, (3, 4, 84, 84), np.uint8)
    first = np.ones(3, bool)
    found, _ = agent.act(observations, agent.initial_state(3), first)
    expected, _ = other.act(observations, other.initial_state(3), first)
    assert agent.name == name
    for each in ("features", "value", "action"):
        np.testing.assert_array_equal(getattr(found, each), getattr(expected, each))


def test_an_agent_of_another_game_is_named(agent_folder: Path) -> None:
    with pytest.raises(InputError, match="has 306 outputs; the game has 9 actions"):
        agents.load(agent_folder / "tf_ckpt-199", "Asterix")


def test_other_variables_are_no_agent(tmp_path: Path) -> None:
    write_bundle(tmp_path / "tf_ckpt-1", SMALL)
    with pytest.raises(InputError, match="has no variable Online/Conv/weights; its first ones"):
        agents.load(tmp_path / "tf_ckpt-1", "Pong")


def make_metric(features: int = 512) -> dict[str, NDArray[Any]]:
    """Make the variables of a metric, 16 and 16 units."""
    random, widths = np.random.default_rng(1), (2 * features, 16, 16, 1)
    arrays: dict[str, NDArray[Any]] = {}
    for i, (before, after) in enumerate(itertools.pairwise(widths)):
        layer = "OnlineBisim/fully_connected" + (f"_{i}" if i else "")
        arrays[f"{layer}/weights"] = random.normal(0, 0.2, (before, after)).astype(np.float32)
        arrays[f"{layer}/biases"] = random.normal(0, 0.2, after).astype(np.float32)
    return arrays


def test_a_metric_is_the_network_of_its_variables(tmp_path: Path, agent_folder: Path) -> None:
    arrays = make_metric()
    write_bundle(tmp_path / "tf_ckpt-4", arrays)
    agent = agents.load(agent_folder / "tf_ckpt-199", "Pong")
    metric = load_metric(tmp_path / "tf_ckpt-4", find_game("Pong"), agent)
    x, y = np.random.default_rng(2).normal(size=(2, 512)).astype(np.float32)
    layer = np.concatenate([x, y])
    for i in range(3):
        name = "OnlineBisim/fully_connected" + (f"_{i}" if i else "")
        layer = np.maximum(layer @ arrays[f"{name}/weights"] + arrays[f"{name}/biases"], 0)
    psi = metric.network.table(metric.params, jnp.asarray(x[None]), jnp.asarray(y[None]))
    assert float(psi[0, 0]) == pytest.approx(float(layer[0]), rel=1e-5)
    assert (metric.kind, metric.discount) == ("on_policy", 0.99)


def test_a_network_of_another_form_is_no_metric(tmp_path: Path) -> None:
    arrays = make_metric()
    arrays["OnlineBisim/fully_connected_2/weights"] = np.zeros((9, 1), np.float32)
    with pytest.raises(InputError, match=r"the shapes of .*_2 do not fit a dense network"):
        dopamine.load_metric(write_bundle(tmp_path / "tf_ckpt-4", arrays), "Pong")
    del arrays["OnlineBisim/fully_connected_2/weights"]
    with pytest.raises(InputError, match="not one from two vectors to a number"):
        dopamine.load_metric(write_bundle(tmp_path / "tf_ckpt-5", arrays), "Pong")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"compression": 1}, "a block is compressed"),
        ({"dtype": 7}, "is not a plain array of numbers"),
        ({"size": 23}, "has 23 bytes, which do not fit its shape"),
        ({"crc": 5}, "has another checksum than recorded"),
    ],
)
def test_bad_records_are_named(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    write_bundle(tmp_path / "bad", SMALL, **changes)
    with pytest.raises(InputError, match=complaint):
        TensorBundle.load(tmp_path / "bad").read("Online/a")


def test_missing_and_short_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        TensorBundle.load(tmp_path / "none")
    bundle = TensorBundle.load(write_bundle(tmp_path / "tf_ckpt-1", SMALL))
    with pytest.raises(InputError, match="there is no variable other"):
        bundle.read("other")
    with pytest.raises(InputError, match=r"has the shape \(2, 3\) and must have \(3, 2\)"):
        bundle.read("Online/a", (3, 2))
    data = tmp_path / "tf_ckpt-1.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:20])
    with pytest.raises(InputError, match=r"beyond the end of .*, which is incomplete"):
        bundle.read("Online/a")
    data.unlink()
    with pytest.raises(InputError, match="which is missing beside the index"):
        bundle.read("Online/a")


def test_damaged_files_raise_nothing_but_input_errors(tmp_path: Path) -> None:
    prefix = write_bundle(tmp_path / "tf_ckpt-1", SMALL)
    index = Path(f"{prefix}.index")
    good = index.read_bytes()
    random, refused = np.random.default_rng(0), 0
    for trial in range(600):
        damaged = bytearray(good)
        if trial % 3 == 0:
            del damaged[int(random.integers(len(good))) :]
        for _ in range(1 + trial % 4):
            if damaged:
                damaged[int(random.integers(len(damaged)))] = int(random.integers(256))
        index.write_bytes(bytes(damaged))
        try:
            bundle = TensorBundle.load(prefix)
            for name in bundle.records:
                bundle.read(name)
        except InputError:
            refused += 1
    assert refused > 500


def test_forged_blocks_with_valid_checksums_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the checksums, numbers beyond their block and endless numbers are still errors."""
    from bisimetric_atari.agents import tensor_bundle

    prefix = write_bundle(tmp_path / "tf_ckpt-1", SMALL)
    index = Path(f"{prefix}.index")
    good = index.read_bytes()
    monkeypatch.setattr(tensor_bundle, "mask_checksum", lambda crc: _Anything())
    random = np.random.default_rng(1)
    for _ in range(600):
        damaged = bytearray(good)
        for _ in range(int(random.integers(1, 5))):
            damaged[int(random.integers(len(damaged)))] = int(random.choice([0, 127, 128, 255]))
        index.write_bytes(bytes(damaged))
        try:
            bundle = TensorBundle.load(prefix)
            for name in bundle.records:
                bundle.read(name)
        except InputError:
            pass


class _Anything(int):
    """A checksum that equals every other one."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__
