"""Invalid arguments of learned distances, and what happens where JAX is not installed."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from bisimetric import MDP, InputError, InsufficientMemory, Transitions, exact, learned
from bisimetric.errors import Diverged
from bisimetric.learned import (
    FeatureScaling,
    RunOptions,
    _fit,
    source_from_mdp,
    source_from_transitions,
)
from bisimetric.learned.castro2020 import Castro2020Config, FunctionalNetwork, PairNetwork
from tests.learned_references import (  # noqa: F401 - a fixture
    OWN,
    SMALL,
    STATES,
    TRIANGLE,
    compile_quickly,
    contains,
    one,
    record,
    run,
    weights,
)
from tests.sample_transitions import images, steps

# Configurations.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 1}, "batch_size is 1 and must be a whole number, at least 2"),
        ({"batch_size": 2.5}, "batch_size is 2.5 and must be a whole number, at least 2"),
        ({"target_update_period": 0}, "target_update_period is 0 and must be"),
        ({"learning_rate": 0}, "learning_rate is 0 and must be a number, above 0"),
        ({"learning_rate": "a"}, "learning_rate is 'a' and must be a number, above 0"),
        ({"epsilon": -1e-8}, "epsilon is -1e-08 and must be a number, above 0"),
        ({"horizon_growth": 1}, "horizon_growth is 1.0 and must be below 1"),
        ({"horizon_growth": -0.1}, "horizon_growth is -0.1 and must be a number, at least 0"),
        ({"horizon_growth": float("nan")}, "horizon_growth is nan and must be a number"),
        ({"network": "mlp"}, "network is 'mlp' and must be a PairNetwork"),
    ],
)
def test_castro2020_config_validates_its_fields(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=contains(f"Castro2020Config: {message}")):
        Castro2020Config(**changes)


@pytest.mark.parametrize("widths", [(), (8, 0.5), (8, 0)])
def test_widths_are_validated(widths: Any) -> None:
    with pytest.raises(
        InputError, match=contains(f"PairNetwork: hidden is {widths!r} and must be")
    ):
        Castro2020Config(widths)


@pytest.mark.parametrize("name", ["log_every", "patience"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "a"])
def test_run_options_validate_their_fields(name: str, value: Any) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(InputError, match=contains(f"RunOptions: {name} is {value!r} and must be")):
        RunOptions(**options)


def test_fields_become_plain_numbers_and_networks() -> None:
    config: Any = Castro2020Config
    found = config([np.int64(8)], batch_size=np.int32(4), learning_rate=np.float32(0.5))
    assert found == Castro2020Config(PairNetwork((8,)), batch_size=4, learning_rate=0.5)
    assert json.dumps([found.batch_size, found.learning_rate, *found.network.hidden])
    assert config((OWN.init, OWN.apply)).network == OWN
    with pytest.raises(InputError, match="hidden is 729 and must be the widths"):
        PairNetwork(729)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["activation", "output_activation", "init_weights"])
def test_a_network_is_made_of_known_parts(name: str) -> None:
    options: dict[str, Any] = {name: "swish"}
    with pytest.raises(InputError, match=f"PairNetwork: {name} is 'swish' and must be one of "):
        PairNetwork((8,), **options)


@pytest.mark.parametrize(
    ("answer", "found"), [(lambda p, x, y: x[:1], "(1,)"), (lambda p, x, y: (x, y), "ShapeDtype")]
)
def test_a_network_gives_one_number_for_a_pair(answer: Any, found: str) -> None:
    settings = Castro2020Config(
        FunctionalNetwork(lambda key, features: jnp.zeros(features), answer), batch_size=4
    )
    with pytest.raises(
        InputError, match=f"apply returns .*{re.escape(found)}.* must return one float"
    ):
        run(config=settings)


# Arguments of a run.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"updates": 0}, "updates is 0 and must be a whole number, at least 1"),
        ({"updates": -5}, "updates is -5 and must be a whole number, at least 1"),
        ({"updates": 1.5}, "updates is 1.5 and must be a whole number, at least 1"),
        ({"seeds": [-1]}, "seed is -1 and must be a whole number, at least 0"),
        ({"seeds": ["a"]}, "seed is 'a' and must be a whole number, at least 0"),
        ({"seeds": []}, "seeds is empty; give one per network"),
        ({"seeds": [2**32]}, "seed is 4294967296 and must be below 4294967296"),
        ({"source": TRIANGLE}, "source is MDP and must be a training source; use source_from_mdp"),
        ({"kind": "on_policy"}, "source has 2 actions per state and no policy"),
        (
            {"source": record(0, steps=5)},
            "batch_size is 6 and there are 5 transitions; collect more, or lower it",
        ),
        ({"learning_rates": [0.1, 0.2]}, "learning_rates has 2 entries and there are 1 seeds"),
        ({"learning_rates": [0.0]}, "learning_rates is 0.0 and must be a number, above 0"),
    ],
)
def test_arguments_of_a_run_are_validated(options: dict[str, Any], message: str) -> None:
    kind = options.get("kind", "bisimulation")
    with pytest.raises(InputError, match=contains(f"learned.{kind}: {message}")):
        run(**options)


@pytest.mark.parametrize("discount", [1.0, -0.1, float("nan"), "a"])
def test_discounts_are_validated(discount: Any) -> None:
    with pytest.raises(InputError, match=r"discount is .* and must be at least 0 and below 1"):
        run(discount=discount)
    with pytest.raises(InputError, match=r"discount is .* and must be at least 0 and below 1"):
        learned.bisimulation(TRIANGLE, discount=discount, updates=2)


def test_a_checkpoint_needs_its_folder() -> None:
    with pytest.raises(FileNotFoundError, match="make the folder /nowhere first"):
        run(checkpoint="/nowhere/run.safetensors")


# Worlds.


def stochastic() -> MDP:
    P = [[[0.5, 0.5]], [[0.0, 1.0]]]
    return MDP(P, [[0.0], [1.0]], discount=0.9, names=["here", "there"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"mdp": stochastic()},
            "source has several successors of state here under action 0 and must be deterministic",
        ),
        (
            {"mdp": TRIANGLE.replace(available=[[True, True], [True, False], [True, True]])},
            "source has states that lack some actions; use exact.bisimulation",
        ),
        ({"points": np.eye(2)}, "points has shape (2, 2) and must be (3, k), one row per state"),
        ({"points": [1.0, 2.0, 3.0]}, "points has shape (3,) and must be (3, k)"),
        ({"points": np.zeros((3, 0))}, "points has shape (3, 0) and must be (3, k)"),
        ({"points": np.full((3, 1), np.nan)}, "points holds NaN or infinity"),
        (
            {"points": np.eye(3), "scaling": FeatureScaling(np.zeros(2), np.ones(2))},
            "scaling has 2 numbers and the points have 3",
        ),
        (
            {"scaling": FeatureScaling(np.zeros(3), np.ones(3), has_terminal=True)},
            "scaling has a terminal state, and an MDP has none",
        ),
        ({"noise": -1.0}, "noise is -1.0 and must be at least 0"),
        ({"noise": 0.1, "noise_clip": float("inf")}, "noise_clip is inf and must be at least 0"),
        ({"noise": 0.1, "noise_clip": 0.0}, "noise_clip is 0 and removes all noise"),
        (
            {"mdp": TRIANGLE.replace(R=np.full((3, 2), 1e39))},
            "a reward is 1e+39, too large for 32-bit floats",
        ),
    ],
)
def test_mdps_are_validated(options: dict[str, Any], message: str) -> None:
    options = {"mdp": TRIANGLE, **options}
    with pytest.raises(InputError, match=contains(f"learned.bisimulation: {message}")):
        source_from_mdp("bisimulation", **options)


def test_policies_are_validated() -> None:
    with pytest.raises(InputError, match="policy must be one action per state"):
        source_from_mdp("on_policy", TRIANGLE, np.full((3, 2), 0.5))
    with pytest.raises(InputError, match="comes with no policy; pass one"):
        learned.on_policy(TRIANGLE.replace(policy=None), updates=2)
    with pytest.raises(InputError, match="policy is part of a training source"):
        learned.on_policy(STATES, [0, 0, 0], discount=0.5, updates=2)


def test_scalings_are_validated() -> None:
    wrong: list[Any] = [(0.0, 0.0), (0.0, -1.0), (np.nan, 1.0), (np.zeros((2, 2)), 1.0)]
    for shift, width in wrong:
        with pytest.raises(InputError, match=r"shift must be .* finite numbers and width"):
            FeatureScaling(shift, width)
    odd: list[Any] = [("a", 1.0), (np.zeros(2), np.ones(3))]
    for shift, width in odd:
        with pytest.raises(InputError, match="shift and width must be numbers, one per feature"):
            FeatureScaling(shift, width)


# Data.


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (
            steps(actions=[0, 1, 2, 3]),
            {},
            "source has no two transitions with the same action",
        ),
        (
            steps(actions=np.zeros((4, 2))),
            {},
            "actions are not numbered, so that no two are equal; use learned.on_policy",
        ),
        (images(1), {}, "1 of 1 transitions can be used and 2 are needed"),
        (
            steps(rewards=[0.0, 1e300, 0.0, 0.0]),
            {},
            "a reward is 1e+300, too large for 32-bit floats",
        ),
        (
            steps(),
            {"scaling": FeatureScaling(np.zeros(3), np.ones(3))},
            "scaling has no terminal state, and episodes of the data terminate",
        ),
    ],
)
def test_data_is_validated(data: Transitions, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=contains(f"learned.bisimulation: {message}")):
        source_from_transitions("bisimulation", data, **options)


def test_policies_for_data_are_validated() -> None:
    with pytest.raises(InputError, match=r"must be \(3,\) actions, one per numbered state"):
        source_from_transitions("on_policy", steps(), [0, 1])
    with pytest.raises(InputError, match=r"must be \(None,\) actions, one per numbered"):
        source_from_transitions("on_policy", images(), [0, 1, 0, 0])
    with pytest.raises(InputError, match="0 of 4 transitions can be used and 2 are needed"):
        source_from_transitions("on_policy", steps(), [3, 3, 3])


def test_observations_must_be_numbers_of_one_shape_in_the_data() -> None:
    with pytest.raises(InputError, match="observations must be an array of numbers"):
        steps(observations=[[0], [1, 2], [0], [1]])
    with pytest.raises(InputError, match=r"observations\[1\] is nan and must be finite"):
        steps(observations=[0.0, np.nan, 0.0, 1.0], next_observations=np.zeros(4))
    large = images(observations=np.full((4, 1), 1e300), next_observations=np.zeros((4, 1)))
    with pytest.raises(InputError, match="an observation is too large for 32-bit floats"):
        source_from_transitions("on_policy", large)


def test_too_many_ids_for_one_hot_vectors_raise() -> None:
    data = steps(num_states=2**40)
    with pytest.raises(
        InsufficientMemory, match="4 transitions with one feature for each of 1,099,511,627,776"
    ):
        source_from_transitions("bisimulation", data)


def test_arguments_that_contradict_each_other_raise() -> None:
    with pytest.raises(InputError, match="noise is for the states of an MDP"):
        learned.bisimulation(steps(), noise=0.1, updates=2)
    with pytest.raises(InputError, match="noise is for the states of an MDP"):
        learned.bisimulation(STATES, noise=0.1, updates=2, discount=0.5)
    with pytest.raises(InputError, match="source is list and must be an MDP or Transitions"):
        learned.bisimulation([1, 2], updates=2)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="discount is missing"):
        learned.bisimulation(STATES, updates=2)
    with pytest.raises(InputError, match="batch_size is 256 and there are 4 transitions"):
        learned.bisimulation(steps(), updates=2)
    with pytest.raises(InputError, match="batch_size is 128 and there are 4 transitions"):
        learned.castro2020.bisimulation(steps(), updates=2)
    other = exact.bisimulation(MDP.deterministic([[0]], [[1.0]], discount=0.5))
    for source in (TRIANGLE, steps()):
        with pytest.raises(InputError, match="reference must be a distance between the states"):
            learned.bisimulation(source, reference=other, updates=2)


@pytest.mark.parametrize("device", ["gpu", "abacus", 7])
def test_a_missing_device_raises(device: Any) -> None:
    if device == "gpu" and jax.default_backend() == "gpu":
        pytest.skip("there is a GPU")
    have = jax.devices()[0].platform
    message = f"device is {device!r} and only {have} is available; leave it out"
    with pytest.raises(InputError, match=contains(f"learned.bisimulation: {message}")):
        learned.bisimulation(TRIANGLE, updates=2, options=RunOptions(device=device))


# What comes out.


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (
            [1.0, 2.0, 3.0],
            "an observation has shape (3,) and those of the training data have (2,)",
        ),
        (1.0, "an observation has shape () and those of the training data have (2,)"),
        ([1.0, [2.0, 3.0]], "the observations have different shapes"),
        ([1.0, np.nan], "an observation holds NaN or infinity"),
        ([1.0, np.inf], "an observation holds NaN or infinity"),
        ([1.0, 1e300], "an observation holds NaN or infinity"),
        (["a", "b"], "observations are <U1 and must be numbers"),
    ],
)
def test_observations_are_validated(observation: Any, message: str) -> None:
    with pytest.raises(InputError, match=contains(f"learned: {message}")):
        one()(observation, [0.0, 0.0])
    with pytest.raises(InputError, match=contains(f"learned: {message}")):
        one().table([observation])


def test_a_transposed_image_raises() -> None:
    scale = dataclasses.replace(source_from_transitions("on_policy", images()).scaling)
    network = PairNetwork((4,), output_activation="relu")
    d = one(scaling=scale, parameters=weights(0, network, 6))
    assert d(np.zeros((3, 2)), np.ones((3, 2))) >= 0
    with pytest.raises(
        InputError, match=r"has shape \(2, 3\) and those of the training data have \(3, 2\)"
    ):
        d(np.zeros((2, 3)), np.ones((2, 3)))


def test_unknown_states_raise() -> None:
    d = one()
    with pytest.raises(
        InputError, match="None is the terminal state, and no episode of the data terminated"
    ):
        d(None, [0.0, 0.0])
    with pytest.raises(InputError, match="values needs a list of states"):
        _ = d.values
    with pytest.raises(InputError, match="to_distance needs the MDP"):
        d.to_distance()
    listed = one(points=np.zeros((3, 2), np.float32), names=("one", "two", "three"))
    for which in (3, -1, 0.5, "onee"):
        with pytest.raises(InputError, match=f"there is no state {which!r}"):
            listed(which, 0)
    with pytest.raises(InputError, match="did you mean 'one'"):
        listed.table(["onee"])


def test_quality_needs_the_same_scaling() -> None:
    d = one()
    with pytest.raises(
        InputError, match="source is MDP and must be Transitions or a training source"
    ):
        d.quality(TRIANGLE)  # type: ignore[arg-type]
    other = source_from_mdp("bisimulation", TRIANGLE, points=np.arange(6.0).reshape(3, 2))
    with pytest.raises(InputError, match="source is scaled differently"):
        d.quality(other)
    with pytest.raises(InputError, match="seed is -1 and must be a whole number"):
        d.quality(
            source_from_mdp("bisimulation", TRIANGLE, points=np.zeros((3, 2)), scaling=d.scaling),
            seed=-1,
        )


# Divergence.


def test_a_diverging_run_names_the_update_and_saves_the_last_good_state(tmp_path: Path) -> None:
    file = tmp_path / "run.safetensors"
    good = run(4, checkpoint=file, seeds=[3])
    wild = dataclasses.replace(SMALL, learning_rate=1e38)
    with pytest.raises(Diverged, match=r"seed 3 are not finite at update \d+;") as found:
        run(12, config=wild, seeds=[3], checkpoint=file, resume=file)
    message = str(found.value)
    assert message.startswith("learned.bisimulation: the loss or the weights of seed 3 ")
    assert f"the state after update 4 is in {file};" in message
    assert 5 <= int(re.findall(r"at update (\d+)", message)[0]) <= 8
    assert int(found.value.partial.state.step) == 4
    kept = load_file(file)
    assert all(np.isfinite(each).all() for each in kept.values() if each.dtype.kind == "f")
    again = run(4, seeds=[3], resume=file)
    for mine, other in zip(
        jax.tree.leaves(again.parameters(0)), jax.tree.leaves(good.parameters(0)), strict=True
    ):
        np.testing.assert_array_equal(mine, other)


def test_rewards_that_overflow_diverge_at_once() -> None:
    source = record(0, actions=1)
    reward = source.reward.at[::2].set(np.inf).at[1::2].set(0.0)
    with pytest.raises(Diverged, match="seed 0 are not finite at update 1; try a smaller") as found:
        run(source=dataclasses.replace(source, reward=reward))
    assert found.value.partial.history == {}


def test_the_state_of_adam_must_be_finite_too() -> None:
    """A gradient whose square is infinite would leave a weight unchanged from then on."""
    state = run().state
    assert _fit._is_finite(state, jnp.zeros(1)).tolist() == [True]
    assert _fit._is_finite(state, jnp.full(1, jnp.inf)).tolist() == [False]
    for name in ("parameters", "optimiser"):
        leaves, tree = jax.tree.flatten(getattr(state, name))
        leaves[-1] = leaves[-1].at[0].set(jnp.inf)
        wrong = state._replace(**{name: jax.tree.unflatten(tree, leaves)})
        assert _fit._is_finite(wrong, jnp.zeros(1)).tolist() == [False]


# Where JAX is not installed.


def alone(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_without_jax_only_learned_raises() -> None:
    hidden = "import sys\nsys.modules['jax'] = None\nimport bisimetric\n"
    said = alone(
        hidden
        + "from bisimetric import exact, worlds\n"
        + "print(exact.bisimulation(worlds.load('pessimism')).mdp.num_states)\n"
        + "try:\n    bisimetric.learned\nexcept bisimetric.InputError as error:\n    print(error)"
    )
    assert said == "3\nlearned: jax is not installed; pip install 'bisimetric[learn]'."


def test_importing_bisimetric_does_not_import_jax() -> None:
    code = (
        "import sys, bisimetric\nfrom bisimetric import exact, sampled\nprint('jax' in sys.modules)"
    )
    assert alone(code) == "False"
