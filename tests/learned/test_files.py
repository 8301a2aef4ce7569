"""Files of runs and of networks that are refused: of others, damaged, or gone."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bisimetric import InputError
from bisimetric.learned import LearnedDistance, source_from_mdp
from bisimetric.learned.castro2020 import PairNetwork
from bisimetric.learned.files import restore_run
from tests.twins import (  # noqa: F401 - a fixture
    OWN,
    PLAIN,
    SMALL,
    TRIANGLE,
    compiled_in_a_hurry,
    one,
    run,
    says,
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("runs") / "run.safetensors"
    run(4, checkpoint=file)
    return file


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"discount": 0.6}, "its discount is 0.5 and here it is 0.6; resume it with the same ..."),
        ({"keys": [1]}, "its keys is [0] and here it is [1]; resume it with the same keys, ..."),
        (
            {"settings": dataclasses.replace(SMALL, horizon_growth=0.5)},
            "its rate is 0.9 and here it is ...",
        ),
        (
            {"settings": dataclasses.replace(SMALL, network=PairNetwork((5,), output="open"))},
            "its output is relu and here it is open; resume it with the same output, or start ...",
        ),
        (
            {"settings": dataclasses.replace(SMALL, network=PairNetwork((6,), output="relu"))},
            "its network is [5] and here it is [6]; resume it with the same network, or ...",
        ),
        (
            {
                "source": source_from_mdp(
                    "bisimulation", TRIANGLE.replace(R=np.ones((3, 2))), points=np.eye(3)
                )
            },
            "what it learns from differs from the source here; resume it with the same, or ...",
        ),
    ],
)
def test_a_run_does_not_go_on_as_another(kept: Path, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=says(f"{kept} is of another run: {message}")):
        run(8, resume=kept, **options)


def test_a_run_does_not_go_on_as_another_kind_or_with_other_features(kept: Path) -> None:
    chain = source_from_mdp("on_policy", TRIANGLE, points=np.eye(3), scaling=PLAIN)
    with pytest.raises(InputError, match="its kind is bisimulation and here it is on_policy"):
        run(8, kind="on_policy", source=chain, resume=kept)
    flat = source_from_mdp("bisimulation", TRIANGLE, points=np.eye(3)[:, :2])
    with pytest.raises(InputError, match=r"is of another network: its .*weights.* is \(1, 6, 5\)"):
        run(8, source=flat, resume=kept)


def test_a_run_does_not_go_back(kept: Path) -> None:
    with pytest.raises(InputError, match="holds 4 steps and 3 are asked for, those included"):
        run(3, resume=kept)


def test_files_that_are_no_runs_are_refused(kept: Path, tmp_path: Path) -> None:
    def resumed(file: Path) -> None:
        start: Any = None
        restore_run(file, "bisimulation", 0.5, SMALL, (0,), "", start, 8)

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
        with pytest.raises(
            InputError, match=f"{file} is cut short or no learning run of bisimetric"
        ):
            resumed(file)
    with pytest.raises(InputError, match="is cut short or no learned distance of bisimetric"):
        LearnedDistance.load(kept)


def test_a_network_of_ones_own_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a network of one's own cannot be saved"):
        one(network=OWN).save(tmp_path / "d")


def test_a_network_is_not_loaded_for_another_world(tmp_path: Path) -> None:
    file = tmp_path / "d.safetensors"
    one().save(file)
    with pytest.raises(InputError, match="it knows none of its states and the MDP has 3"):
        LearnedDistance.load(file, TRIANGLE)
    one(points=np.zeros((2, 2), np.float32)).save(file)
    with pytest.raises(
        InputError, match="it knows 2 of its states and the MDP has 3; give the MDP"
    ):
        LearnedDistance.load(file, TRIANGLE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "lax"}, "its kind is 'lax'"),
        ({"network": [9]}, "its weights do not fit its network"),
        ({"network": None}, "its network is None and must be a list of widths"),
        ({"network": [True]}, "its network is .True. and must be a list of widths"),
        ({"discount": False}, "its discount is False and must be a number"),
        ({"ends": 1}, "its ends is 1 and must be a boolean"),
        ({"discount": 1.5}, "discount is 1.5"),
        ({"shape": 3}, "its shape is 3 and must be a list of integers"),
        ({"shape": [3]}, "its shape is .3. and its shift has 2"),
        ({"names": ["a"]}, "its names are 1 and must be one per state"),
        ({"names": None, "made": None}, "its made is None and must be an object"),
    ],
)
def test_a_damaged_network_is_refused(tmp_path: Path, change: Any, message: str) -> None:
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
    save_file(load_file(file), file, metadata={"about": json.dumps(about | change)})
    with pytest.raises(
        InputError, match=f"{file} is (cut short or )?no learned distance of bisimetric .*{message}"
    ):
        LearnedDistance.load(file)
    tensors = load_file(file)
    tensors.pop("shift")
    save_file(tensors, file, metadata={"about": json.dumps(about)})
    with pytest.raises(InputError, match="it has no 'shift'"):
        LearnedDistance.load(file)
