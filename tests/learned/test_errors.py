"""What learning refuses, each in one sentence; and what it does where JAX is not there."""

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
from bisimetric.learned import FeatureScaling, _fit, source_from_mdp, source_from_transitions
from bisimetric.learned.castro2020 import Castro2020Config, FunctionalNetwork, PairNetwork
from tests.recordings import images, steps
from tests.twins import (  # noqa: F401 - a fixture
    OWN,
    SMALL,
    STATES,
    TRIANGLE,
    compiled_in_a_hurry,
    one,
    record,
    run,
    says,
    weights,
)

# Settings.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 1}, "Settings: batch is 1 and must be a whole number, at least 2."),
        ({"batch": 2.5}, "Settings: batch is 2.5 and must be a whole number, at least 2."),
        ({"period": 0}, "Settings: period is 0 and must be a whole number, at least 1."),
        ({"learning_rate": 0}, "Settings: learning_rate is 0 and must be a number, above 0."),
        ({"learning_rate": "a"}, "Settings: learning_rate is 'a' and must be a number, above 0."),
        ({"epsilon": -1e-8}, "Settings: epsilon is -1e-08 and must be a number, above 0."),
        ({"rate": 1}, "Settings: rate is 1.0 and must be below 1, or beta never grows."),
        ({"rate": -0.1}, "Settings: rate is -0.1 and must be a number, at least 0."),
        ({"rate": float("nan")}, "Settings: rate is nan and must be a number, at least 0."),
        ({"network": "mlp"}, "Settings: network is 'mlp' and must be a PairNetwork, ..."),
        ({"network": ()}, "PairNetwork: hidden is () and must be the widths of the hidden ..."),
        ({"network": (8, 0.5)}, "PairNetwork: hidden is (8, 0.5) and must be the widths of ..."),
        ({"network": (8, 0)}, "PairNetwork: hidden is (8, 0) and must be the widths of the ..."),
    ],
)
def test_settings_are_checked_when_they_are_made(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=says(message)):
        Castro2020Config(**changes)


def test_settings_become_plain_numbers_and_networks() -> None:
    made: Any = Castro2020Config
    found = made([np.int64(8)], batch=np.int32(4), learning_rate=np.float32(0.5))
    assert found == Castro2020Config(PairNetwork((8,)), batch=4, learning_rate=0.5)
    assert json.dumps([found.batch, found.learning_rate, *found.network.hidden])
    assert made((OWN.init, OWN.apply)).network == OWN
    with pytest.raises(InputError, match="hidden is 729 and must be the widths"):
        PairNetwork(729)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["activation", "output", "init_weights"])
def test_a_network_is_made_of_known_parts(name: str) -> None:
    options: dict[str, Any] = {name: "swish"}
    with pytest.raises(InputError, match=f"PairNetwork: {name} is 'swish' and must be one of "):
        PairNetwork((8,), **options)


@pytest.mark.parametrize(
    ("answer", "found"), [(lambda p, x, y: x[:1], "(1,)"), (lambda p, x, y: (x, y), "ShapeDtype")]
)
def test_a_network_gives_one_number_for_a_pair(answer: Any, found: str) -> None:
    settings = Castro2020Config(
        FunctionalNetwork(lambda key, features: jnp.zeros(features), answer), batch=4
    )
    with pytest.raises(InputError, match=f"apply gives .*{re.escape(found)}.* must give one float"):
        run(settings=settings)


# What is asked of a run.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "steps is 0 and must be a whole number, at least 1."),
        ({"count": -5}, "steps is -5 and must be a whole number, at least 1."),
        ({"count": 1.5}, "steps is 1.5 and must be a whole number, at least 1."),
        ({"every": 0}, "every is 0 and must be a whole number, at least 1."),
        ({"patience": 0}, "patience is 0 and must be a whole number, at least 1."),
        ({"keys": [-1]}, "key is -1 and must be a whole number, at least 0."),
        ({"keys": ["a"]}, "key is 'a' and must be a whole number, at least 0."),
        ({"keys": []}, "there are no keys; give one for each network."),
        ({"keys": [2**32]}, "key is 4294967296 and must be below 4294967296."),
        ({"source": TRIANGLE}, "the source is MDP and must be made by of_mdp or of_transitions."),
        ({"kind": "on_policy"}, "the source has 2 actions a state and not those of a policy; ..."),
        (
            {"source": record(0, steps=5)},
            "there are 5 steps to learn from and a batch takes 6; collect more, or lower the batch "
            "of the Settings.",
        ),
    ],
)
def test_a_run_is_refused(options: dict[str, Any], message: str) -> None:
    kind = options.get("kind", "bisimulation")
    with pytest.raises(InputError, match=says(f"learned.{kind}: {message}")):
        run(**options)


@pytest.mark.parametrize("discount", [1.0, -0.1, float("nan"), "a"])
def test_a_discount_is_refused(discount: Any) -> None:
    with pytest.raises(InputError, match=r"discount is .* and must be at least 0 and below 1"):
        run(discount=discount)
    with pytest.raises(InputError, match=r"discount is .* and must be at least 0 and below 1"):
        learned.bisimulation(TRIANGLE, discount=discount, updates=2)


def test_a_checkpoint_must_have_a_place() -> None:
    with pytest.raises(FileNotFoundError, match="make the folder /nowhere first"):
        run(checkpoint="/nowhere/run.safetensors")


# Worlds.


def stochastic() -> MDP:
    P = [[[0.5, 0.5]], [[0.0, 1.0]]]
    return MDP.from_matrices(P, [[0.0], [1.0]], discount=0.9, names=["here", "there"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"mdp": stochastic()},
            "state here and action 0 have several successors, and these losses need a "
            "deterministic MDP; use exact.bisimulation.",
        ),
        (
            {"mdp": TRIANGLE.replace(available=[[True, True], [True, False], [True, True]])},
            "some states lack some actions; use exact.bisimulation or on_policy.",
        ),
        ({"points": np.eye(2)}, "points have shape (2, 2) and must be (3, k), one row a state."),
        ({"points": [1.0, 2.0, 3.0]}, "points have shape (3,) and must be (3, k), one row ..."),
        ({"points": np.zeros((3, 0))}, "points have shape (3, 0) and must be (3, k), one row ..."),
        ({"points": np.full((3, 1), np.nan)}, "points hold NaN or infinity and must be finite."),
        (
            {"points": np.eye(3), "scale": FeatureScaling(np.zeros(2), np.ones(2))},
            "the scale has 2 numbers and the points have 3.",
        ),
        (
            {"scale": FeatureScaling(np.zeros(3), np.ones(3), has_terminal=True)},
            "no state of an MDP is an end; give a Scale without.",
        ),
        ({"noise": -1.0}, "noise is -1.0 and must be at least 0."),
        ({"noise": 0.1, "most": float("inf")}, "most is inf and must be at least 0."),
        ({"noise": 0.1, "most": 0.0}, "most is 0 and leaves nothing of the noise; raise it."),
        (
            {"mdp": TRIANGLE.replace(R=np.full((3, 2), 1e39))},
            "a reward is as large as 1e+39, too large for 32-bit floats; give rewards on a ...",
        ),
    ],
)
def test_a_world_is_refused(options: dict[str, Any], message: str) -> None:
    options = {"mdp": TRIANGLE, **options}
    with pytest.raises(InputError, match=says(f"learned.bisimulation: {message}")):
        source_from_mdp("bisimulation", **options)


def test_policies_are_refused() -> None:
    with pytest.raises(InputError, match="the policy must take one action a state"):
        source_from_mdp("on_policy", TRIANGLE, np.full((3, 2), 0.5))
    with pytest.raises(InputError, match="comes with no policy; pass one"):
        learned.on_policy(TRIANGLE.replace(policy=None), updates=2)
    with pytest.raises(InputError, match="a source is made with its policy"):
        learned.on_policy(STATES, [0, 0, 0], discount=0.5, updates=2)


def test_scales_are_refused() -> None:
    wrong: list[Any] = [(0.0, 0.0), (0.0, -1.0), (np.nan, 1.0), (np.zeros((2, 2)), 1.0)]
    for shift, width in wrong:
        with pytest.raises(InputError, match=r"shift must be .* finite numbers and width"):
            FeatureScaling(shift, width)
    odd: list[Any] = [("a", 1.0), (np.zeros(2), np.ones(3))]
    for shift, width in odd:
        with pytest.raises(InputError, match="shift and width must be numbers, one a feature"):
            FeatureScaling(shift, width)


# Data.


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (
            steps(actions=[0, 1, 2, 3]),
            {},
            "no two steps took the same action, so that no pair can be compared; collect more, or "
            "use learned.on_policy.",
        ),
        (
            steps(actions=np.zeros((4, 2))),
            {},
            "actions are not numbered, so that no two are the same; use learned.on_policy.",
        ),
        (images(1), {}, "1 of 1 steps can be learned from and 2 are needed; collect more."),
        (
            steps(rewards=[0.0, 1e300, 0.0, 0.0]),
            {},
            "a reward is as large as 1e+300, too large for 32-bit floats; give rewards on a ...",
        ),
        (
            steps(),
            {"scale": FeatureScaling(np.zeros(3), np.ones(3))},
            "episodes end in the data and the scale knows of no end; give a Scale with ends=True.",
        ),
    ],
)
def test_data_is_refused(data: Transitions, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=says(f"learned.bisimulation: {message}")):
        source_from_transitions("bisimulation", data, **options)


def test_policies_for_data_are_refused() -> None:
    with pytest.raises(InputError, match=r"must be \(3,\) actions, one a numbered state"):
        source_from_transitions("on_policy", steps(), [0, 1])
    with pytest.raises(InputError, match=r"must be \(None,\) actions, one a numbered"):
        source_from_transitions("on_policy", images(), [0, 1, 0, 0])
    with pytest.raises(InputError, match="0 of 4 steps can be learned from and 2 are needed"):
        source_from_transitions("on_policy", steps(), [3, 3, 3])


def test_observations_must_be_numbers_of_one_shape_in_the_data() -> None:
    with pytest.raises(InputError, match="observations must be an array of numbers"):
        steps(observations=[[0], [1, 2], [0], [1]])
    with pytest.raises(InputError, match=r"observations\[1\] is nan and must be finite"):
        steps(observations=[0.0, np.nan, 0.0, 1.0], next_observations=np.zeros(4))
    large = images(observations=np.full((4, 1), 1e300), next_observations=np.zeros((4, 1)))
    with pytest.raises(InputError, match="an observation is too large for 32-bit floats"):
        source_from_transitions("on_policy", large)


def test_ids_too_many_for_one_feature_each_are_refused() -> None:
    data = steps(num_states=2**40)
    with pytest.raises(
        InsufficientMemory, match="4 steps with one feature for each of 1,099,511,627,776"
    ):
        source_from_transitions("bisimulation", data)


def test_verbs_refuse_what_does_not_belong_together() -> None:
    with pytest.raises(InputError, match="noise is for the states of an MDP; data has its own"):
        learned.bisimulation(steps(), noise=0.1, updates=2)
    with pytest.raises(InputError, match="noise is for the states of an MDP"):
        learned.bisimulation(STATES, noise=0.1, updates=2, discount=0.5)
    with pytest.raises(InputError, match="the source is list and must be an MDP or Transitions"):
        learned.bisimulation([1, 2], updates=2)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a source has no discount of its own; give one"):
        learned.bisimulation(STATES, updates=2)
    with pytest.raises(InputError, match="there are 4 steps to learn from and a batch takes 256"):
        learned.bisimulation(steps(), updates=2)
    with pytest.raises(InputError, match="there are 4 steps to learn from and a batch takes 128"):
        learned.castro2020.bisimulation(steps(), updates=2)
    other = exact.bisimulation(MDP.deterministic([[0]], [[1.0]], discount=0.5))
    for source in (TRIANGLE, steps()):
        with pytest.raises(InputError, match="the truth must be a distance of the states"):
            learned.bisimulation(source, reference=other, updates=2)


@pytest.mark.parametrize("device", ["gpu", "abacus", 7])
def test_a_device_that_is_not_there_is_refused(device: Any) -> None:
    if device == "gpu" and jax.default_backend() == "gpu":
        pytest.skip("there is a GPU")
    have = jax.devices()[0].platform
    message = f"device {device!r} is not there, only {have}; leave it out, or pip install ..."
    with pytest.raises(InputError, match=says(f"learned.bisimulation: {message}")):
        learned.bisimulation(TRIANGLE, updates=2, device=device)


# What comes out.


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (
            [1.0, 2.0, 3.0],
            "an observation has shape (3,) and those learned from have (2,); give ...",
        ),
        (1.0, "an observation has shape () and those learned from have (2,); give ..."),
        ([1.0, [2.0, 3.0]], "the observations are of different shapes; give all of one shape."),
        ([1.0, np.nan], "an observation holds NaN or infinity; leave it out."),
        ([1.0, np.inf], "an observation holds NaN or infinity; leave it out."),
        ([1.0, 1e300], "an observation holds NaN or infinity; leave it out."),
        (["a", "b"], "observations are <U1 and must be numbers."),
    ],
)
def test_an_observation_is_refused(observation: Any, message: str) -> None:
    with pytest.raises(InputError, match=says(f"learned: {message}")):
        one()(observation, [0.0, 0.0])
    with pytest.raises(InputError, match=says(f"learned: {message}")):
        one().table([observation])


def test_a_picture_on_its_side_is_refused() -> None:
    scale = dataclasses.replace(source_from_transitions("on_policy", images()).scaling)
    network = PairNetwork((4,), output="relu")
    d = one(scale=scale, parameters=weights(0, network, 6))
    assert d(np.zeros((3, 2)), np.ones((3, 2))) >= 0
    with pytest.raises(
        InputError, match=r"has shape \(2, 3\) and those learned from have \(3, 2\)"
    ):
        d(np.zeros((2, 3)), np.ones((2, 3)))


def test_what_a_network_cannot_know_is_refused() -> None:
    d = one()
    with pytest.raises(
        InputError, match="no episode ended in the data, so that None means nothing"
    ):
        d(None, [0.0, 0.0])
    with pytest.raises(InputError, match="values are those of listed states"):
        _ = d.values
    with pytest.raises(InputError, match="a table of states needs an MDP"):
        d.to_distance()
    listed = one(points=np.zeros((3, 2), np.float32), names=("one", "two", "three"))
    for which in (3, -1, 0.5, "onee"):
        with pytest.raises(InputError, match=f"there is no state {which!r}"):
            listed(which, 0)
    with pytest.raises(InputError, match="did you mean 'one'"):
        listed.table(["onee"])


def test_quality_is_refused_on_another_scale() -> None:
    d = one()
    with pytest.raises(InputError, match="the source is MDP and must be Transitions, or made by"):
        d.quality(TRIANGLE)  # type: ignore[arg-type]
    other = source_from_mdp("bisimulation", TRIANGLE, points=np.arange(6.0).reshape(3, 2))
    with pytest.raises(InputError, match="scaled in another way than what was learned from"):
        d.quality(other)
    with pytest.raises(InputError, match="key is -1 and must be a whole number"):
        d.quality(
            source_from_mdp("bisimulation", TRIANGLE, points=np.zeros((3, 2)), scaling=d.scaling),
            seed=-1,
        )


# Not a number.


def test_a_run_that_diverges_says_where_and_keeps_the_last_good_state(tmp_path: Path) -> None:
    file = tmp_path / "run.safetensors"
    good = run(4, checkpoint=file, keys=[3])
    wild = dataclasses.replace(SMALL, learning_rate=1e38)
    with pytest.raises(Diverged, match=r"key 3 are not finite at step \d+;") as found:
        run(12, settings=wild, keys=[3], checkpoint=file, resume=file)
    message = str(found.value)
    assert message.startswith("learned.bisimulation: the loss or the weights of key 3 ")
    assert f"the state after step 4 is kept in {file};" in message
    assert 5 <= int(re.findall(r"at step (\d+)", message)[0]) <= 8
    assert int(found.value.partial.state.step) == 4
    kept = load_file(file)
    assert all(np.isfinite(each).all() for each in kept.values() if each.dtype.kind == "f")
    again = run(4, keys=[3], resume=file)
    for mine, other in zip(
        jax.tree.leaves(again.parameters(0)), jax.tree.leaves(good.parameters(0)), strict=True
    ):
        np.testing.assert_array_equal(mine, other)


def test_rewards_that_overflow_diverge_at_once() -> None:
    source = record(0, actions=1)
    reward = source.reward.at[::2].set(np.inf).at[1::2].set(0.0)
    with pytest.raises(Diverged, match="key 0 are not finite at step 1; try a smaller") as found:
        run(source=dataclasses.replace(source, reward=reward))
    assert found.value.partial.history == {}


def test_what_adam_keeps_must_be_finite_too() -> None:
    """A slope whose square is infinite would leave a weight as it is, for ever."""
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


def test_without_jax_only_learning_is_refused() -> None:
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
