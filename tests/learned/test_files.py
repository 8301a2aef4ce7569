"""Files of runs and networks that raise: of other runs, damaged, or missing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from bisimetric import InputError
from bisimetric.learned import LearnedDistance, source_from_mdp
from bisimetric.learned.castro2020 import PairNetwork
from bisimetric.learned.files import restore_run
from tests.learned_references import (  # noqa: F401 - a fixture
    OWN,
    PLAIN,
    SMALL,
    TRIANGLE,
    compile_quickly,
    contains,
    one,
    run,
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("runs") / "run.safetensors"
    run(4, checkpoint=file)
    return file


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"discount": 0.6}, "its discount is 0.5 and here it is 0.6"),
        ({"seeds": [1]}, "its seeds is [0] and here it is [1]; resume it with the same seeds"),
        (
            {"config": dataclasses.replace(SMALL, horizon_growth=0.5)},
            "its horizon_growth is 0.9 and here it is",
        ),
        (
            {
                "config": dataclasses.replace(
                    SMALL, network=PairNetwork((5,), output_activation="open")
                )
            },
            "its output_activation is relu and here it is open",
        ),
        (
            {
                "config": dataclasses.replace(
                    SMALL, network=PairNetwork((6,), output_activation="relu")
                )
            },
            "its network is [5] and here it is [6]",
        ),
        (
            {
                "source": source_from_mdp(
                    "bisimulation", TRIANGLE.replace(R=np.ones((3, 2))), points=np.eye(3)
                )
            },
            "its source differs from the source here",
        ),
    ],
)
def test_a_run_is_not_resumed_as_another(kept: Path, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=contains(f"{kept} is of another run: {message}")):
        run(8, resume=kept, **options)


def test_a_run_is_not_resumed_as_another_kind_or_with_other_features(kept: Path) -> None:
    chain = source_from_mdp("on_policy", TRIANGLE, points=np.eye(3), scaling=PLAIN)
    with pytest.raises(InputError, match="its kind is bisimulation and here it is on_policy"):
        run(8, kind="on_policy", source=chain, resume=kept)
    flat = source_from_mdp("bisimulation", TRIANGLE, points=np.eye(3)[:, :2])
    with pytest.raises(InputError, match=r"is of another network: its .*weights.* is \(1, 6, 5\)"):
        run(8, source=flat, resume=kept)


def test_a_run_is_not_resumed_with_fewer_updates(kept: Path) -> None:
    with pytest.raises(InputError, match="holds 4 updates and 3 are requested"):
        run(3, resume=kept)


def test_files_that_are_no_runs_raise(kept: Path, tmp_path: Path) -> None:
    def resumed(file: Path) -> None:
        initial: Any = SimpleNamespace(
            kind="bisimulation", discount=0.5, config=SMALL, seeds=(0,), updates=8
        )
        restore_run(file, initial, "")

    with pytest.raises(FileNotFoundError, match="there is no such file"):
        resumed(tmp_path / "none")
    with pytest.raises(OSError, match=f"cannot read {tmp_path}"):
        resumed(tmp_path)
    cut = tmp_path / "cut"
    cut.write_bytes(kept.read_bytes()[:-10])
    other = tmp_path / "other"
    save_file({"a": np.zeros(2)}, other)
    text = tmp_path / "text"
    text.write_text("hello")
    odd = tmp_path / "odd"
    save_file({"a": np.zeros(2)}, odd, metadata={"about": "[1]"})
    network = tmp_path / "network"
    one().save(network)
    for file in (cut, other, text, odd, network):
        with pytest.raises(InputError, match=f"{file} is damaged or no learning run of bisimetric"):
            resumed(file)
    with pytest.raises(InputError, match="is damaged or no learned distance of bisimetric"):
        LearnedDistance.load(kept)


def test_a_functional_network_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a FunctionalNetwork cannot be saved"):
        one(network=OWN).save(tmp_path / "d")


def test_a_network_is_not_loaded_for_another_mdp(tmp_path: Path) -> None:
    file = tmp_path / "d.safetensors"
    one().save(file)
    with pytest.raises(InputError, match="it has none of its states and the MDP has 3"):
        LearnedDistance.load(file, TRIANGLE)
    one(points=np.zeros((2, 2), np.float32)).save(file)
    with pytest.raises(InputError, match="it has 2 of its states and the MDP has 3; give the MDP"):
        LearnedDistance.load(file, TRIANGLE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "lax"}, "its kind is 'lax'"),
        ({"network": [9]}, "its weights do not fit its network"),
        ({"network": None}, "its network is None and must be a list of widths"),
        ({"network": [True]}, "its network is .True. and must be a list of widths"),
        ({"discount": False}, "its discount is False and must be a number"),
        ({"ends": 1}, "its has_terminal is 1 and must be a boolean"),
        ({"discount": 1.5}, "discount is 1.5"),
        ({"shape": 3}, "its shape is 3 and must be a list of integers"),
        ({"shape": [3]}, "its shape is .3. and its shift has 2"),
        ({"names": ["a"]}, "its names are 1 and must be one per state"),
        ({"made": None}, "its metadata is None and must be an object"),
    ],
)
def test_a_damaged_network_of_version_1_raises(tmp_path: Path, change: Any, message: str) -> None:
    file = tmp_path / "d.safetensors"
    one().save(file)
    about = {
        "format": "bisimetric learned distance, version 1",
        "kind": "bisimulation",
        "discount": 0.5,
        "network": [4],
        "ends": False,
        "shape": None,
        "names": None,
        "made": {},
    }
    save_file(load_file(file), file, metadata={"about": json.dumps(about)})
    assert LearnedDistance.load(file).discount == 0.5
    del about["made"]
    save_file(load_file(file), file, metadata={"about": json.dumps(about)})
    with pytest.raises(InputError, match="it has no made"):
        LearnedDistance.load(file)
    about["made"] = {}
    save_file(load_file(file), file, metadata={"about": json.dumps(about | change)})
    with pytest.raises(
        InputError, match=f"{file} is (damaged or )?no learned distance of bisimetric .*{message}"
    ):
        LearnedDistance.load(file)
    tensors = load_file(file)
    tensors.pop("shift")
    save_file(tensors, file, metadata={"about": json.dumps(about)})
    with pytest.raises(InputError, match="it has no 'shift'"):
        LearnedDistance.load(file)


def test_a_network_with_the_former_name_of_its_output_is_read(tmp_path: Path) -> None:
    file = tmp_path / "d.safetensors"
    one(network=PairNetwork((4,), output_activation="softplus")).save(file)
    with safe_open(file, framework="numpy") as opened:
        about = json.loads(opened.metadata()["about"])
    about["output"] = about.pop("output_activation")
    save_file(load_file(file), file, metadata={"about": json.dumps(about)})
    network = LearnedDistance.load(file).network
    assert isinstance(network, PairNetwork)
    assert network.output_activation == "softplus"


def test_weights_in_half_precision(tmp_path: Path) -> None:
    full, half = tmp_path / "full.safetensors", tmp_path / "half.safetensors"
    d = one()
    d.save(full)
    d.save(half, half_precision=True)
    stored = load_file(half)
    weights = [name for name in stored if name.startswith("[") and "history" not in name]
    assert weights
    assert all(stored[name].dtype == np.float16 for name in weights)
    assert half.stat().st_size < full.stat().st_size
    again = LearnedDistance.load(half)
    for layer, rounded in zip(d.parameters, again.parameters, strict=True):
        for name, array in layer.items():
            expected = np.asarray(array, np.float16).astype(np.float32)
            np.testing.assert_array_equal(rounded[name], expected)
            assert rounded[name].dtype == np.float32


def test_weights_beyond_half_precision_are_refused(tmp_path: Path) -> None:
    d = one()
    large = [{name: array + 1e5 for name, array in layer.items()} for layer in d.parameters]
    file = tmp_path / "half.safetensors"
    with pytest.raises(InputError, match="beyond half precision; leave out"):
        dataclasses.replace(d, parameters=large).save(file, half_precision=True)
    assert not file.exists()
