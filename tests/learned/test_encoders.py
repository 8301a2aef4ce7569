"""Encoders: forms, shapes, the terminal state, training, files, and the default for images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bisimetric import InputError, Transitions, learned
from bisimetric.learned import (
    ConvEncoder,
    LearnedDistance,
    MetricNetwork,
    PairQConfig,
    RunOptions,
    source_from_mdp,
    source_from_transitions,
)
from bisimetric.learned.networks.encoders import (
    FunctionalEncoder,
    ShapedEncoder,
    _convolve,
    is_image,
)
from tests.learned_references import TRIANGLE, compile_quickly  # noqa: F401 - a fixture

SHAPE = (5, 4, 3)
SIZE = 60
QUICK = RunOptions(log_every=5)


def init(key: Any, x: Any) -> Any:
    return {"w": 0.1 * jax.random.normal(key, (x[0].size, 6))}


def apply(weights: Any, x: Any) -> Any:
    assert x.shape[1:] == SHAPE
    return jnp.tanh(x.reshape(len(x), -1) @ weights["w"])


def build_linen() -> Any:
    linen = pytest.importorskip("flax.linen", reason="flax is not installed")

    class Encoder(linen.Module):  # type: ignore[misc, name-defined]
        @linen.compact
        def __call__(self, x: Any) -> Any:
            x = linen.relu(linen.Conv(4, (3, 3))(x))
            return linen.Dense(6)(x.reshape(len(x), -1))

    return Encoder()


def build_nnx(key: Any) -> Any:
    nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")

    class Encoder(nnx.Module):  # type: ignore[misc, name-defined]
        def __init__(self, rngs: Any) -> None:
            self.dense = nnx.Linear(SIZE, 6, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return jnp.tanh(self.dense(x.reshape(len(x), -1)))

    return Encoder(nnx.Rngs(key))


def build_equinox(key: Any) -> Any:
    nn = pytest.importorskip("equinox", reason="equinox is not installed").nn
    return nn.Sequential(
        [nn.Lambda(jnp.ravel), nn.Linear(SIZE, 6, key=key), nn.Lambda(jax.nn.relu)]
    )


FORMS: dict[str, Any] = {
    "pair": lambda: (init, apply),
    "linen": build_linen,
    "nnx": lambda: build_nnx(0),
    "nnx factory": lambda: (build_nnx(0), build_nnx)[1],
    "equinox": lambda: build_equinox(jax.random.key(0)),
    "equinox factory": lambda: (build_equinox(jax.random.key(0)), build_equinox)[1],
    "convolutional": lambda: ConvEncoder((4,), num_features=6),
}


def build_config(encoder: Any) -> PairQConfig:
    network = MetricNetwork((8,), num_groups=2, group_size=2, encoder=encoder)
    return PairQConfig(network, batch_size=8, warm_up=0, target_update_period=2)


def record(steps: int = 24, ends: bool = True, shape: tuple[int, ...] = SHAPE) -> Transitions:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (steps + 1, *shape)).astype(np.uint8)
    terminated = np.zeros(steps, bool)
    terminated[-1] = ends
    rewards, actions = rng.random(steps), np.arange(steps) % 2
    return Transitions(images[:-1], actions, rewards, images[1:], terminated)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_an_encoder_learns_from_observations_in_their_shape(
    form: str, tmp_path: Path
) -> None:
    data, encoder = record(), FORMS[form]()
    d = learned.bisimulation(
        data, discount=0.5, updates=10, config=build_config(encoder), options=QUICK
    )
    start = learned.initialise("bisimulation", data, discount=0.5, config=build_config(encoder))
    for before, after in zip(start.params, d.params, strict=True):
        leaves = zip(*(jax.tree.leaves(each["encoder"]) for each in (before, after)), strict=True)
        assert any((a != b).any() for a, b in leaves)
    table = d.table(data.observations[:4])
    np.testing.assert_allclose(table, table.T, atol=1e-6)
    assert not table.diagonal().any()
    assert d(data.observations[0], None) > 0
    d.save(tmp_path / "d.safetensors")
    given = {} if form == "convolutional" else {"encoder": encoder}
    loaded = LearnedDistance.load(tmp_path / "d.safetensors", **given)
    np.testing.assert_array_equal(loaded.table(data.observations[:4]), table)


def test_both_networks_have_encoders_of_their_own_where_a_function_makes_them() -> None:
    d = learned.initialise("on_policy", record(), config=build_config((init, apply)))
    first, second = (each["encoder"]["w"] for each in d.params)
    assert (first != second).any()


def test_the_terminal_state_is_not_encoded() -> None:
    def count(weights: Any, x: Any) -> Any:
        return x.reshape(len(x), -1).sum(axis=1, keepdims=True) + weights

    shaped = ShapedEncoder(FunctionalEncoder(lambda key, x: jnp.ones(1), count), (2, 2), True)
    x = jnp.array([[1.0, 2.0, 3.0, 4.0, 0.0], [9.0, 9.0, 9.0, 9.0, 1.0]])
    assert shaped.apply(jnp.ones(1), x).tolist() == [[11.0, 0.0], [0.0, 1.0]]
    assert shaped.num_features == 2


def test_unscaled_observations_reach_the_encoder_as_they_were() -> None:
    data = record()
    source = source_from_transitions("on_policy", data, scaling="none")
    assert source.scaling.has_terminal
    assert source.scaling.shape == SHAPE
    np.testing.assert_array_equal(
        np.asarray(source.x[:, :-1]).reshape(-1, *SHAPE), data.observations
    )
    with pytest.raises(InputError, match='must be a FeatureScaling or "none"'):
        source_from_transitions("on_policy", data, scaling="all")  # type: ignore[arg-type]


def test_images_of_the_states_of_an_mdp_keep_their_shape(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((TRIANGLE.num_states, *SHAPE))
    source = source_from_mdp("bisimulation", TRIANGLE, points=images, scaling="none")
    config = build_config(ConvEncoder((4,), num_features=6))
    d = learned.bisimulation(source, discount=0.5, updates=10, config=config, options=QUICK)
    assert d.points is not None
    np.testing.assert_allclose(d.points, images, rtol=1e-6)
    np.testing.assert_array_equal(d.table(d.points), d.values)
    d.save(tmp_path / "d.safetensors")
    loaded = LearnedDistance.load(tmp_path / "d.safetensors")
    np.testing.assert_array_equal(loaded.values, d.values)
    assert loaded(0, 1) == d(0, 1)


@pytest.mark.parametrize(
    ("shape", "encoder", "expected"),
    [
        ((7, 7, 3), None, ConvEncoder),
        ((7, 7, 3), "flatten", None),
        ((4, 84, 84), None, None),
        ((6,), None, None),
        ((3, 6), None, None),
        (None, None, None),
    ],
)
def test_the_default_is_a_convolutional_encoder_for_images_only(
    shape: tuple[int, ...] | None, encoder: Any, expected: Any
) -> None:
    network = MetricNetwork(encoder=encoder).fit_to_observations(shape, 6, False)
    if expected is None:
        assert network == MetricNetwork()
    else:
        assert isinstance(network.encoder.encoder, expected)
        assert network.encoder.shape == shape
    assert is_image(shape or ()) == (expected is not None or encoder == "flatten")


def test_large_images_are_halved_until_their_sides_are_small() -> None:
    encoder = ConvEncoder((2, 2, 2, 2), num_features=5)
    weights = encoder.init(jax.random.key(0), jnp.zeros((1, 84, 60, 4)))
    assert weights[-1]["weights"].shape == (11 * 8 * 2, 5)
    assert encoder.apply(weights, jnp.zeros((3, 84, 60, 4))).shape == (3, 5)


def test_a_network_that_flattens_images_is_saved_with_that(tmp_path: Path) -> None:
    data = record()
    d = learned.initialise("on_policy", data, config=build_config("flatten"))
    d.save(tmp_path / "d.safetensors")
    loaded = LearnedDistance.load(tmp_path / "d.safetensors")
    assert loaded.network == d.network
    np.testing.assert_array_equal(loaded.table(data.observations), d.table(data.observations))


def test_loading_demands_the_encoder_and_checks_it(tmp_path: Path) -> None:
    file = tmp_path / "d.safetensors"
    learned.initialise("on_policy", record(), config=build_config((init, apply))).save(file)
    with pytest.raises(InputError, match=r"custom encoder, whose code is not in the file"):
        LearnedDistance.load(file)

    def wider(key: Any, x: Any) -> Any:
        return {"w": jnp.zeros((x[0].size, 7))}

    def renamed(key: Any, x: Any) -> Any:
        return {"v": jnp.zeros((x[0].size, 6))}

    def half(key: Any, x: Any) -> Any:
        return {"w": jnp.zeros((x[0].size, 6), jnp.float16)}

    for other, match in (
        (wider, r"float32 of shape \(60, 6\) and that of the encoder given is .* \(60, 7\)"),
        (half, r"float32 of shape .* is float16"),
    ):
        with pytest.raises(InputError, match=match):
            LearnedDistance.load(file, encoder=(other, apply))
    with pytest.raises(InputError, match="missing"):
        LearnedDistance.load(file, encoder=(renamed, lambda w, x: apply({"w": w["v"]}, x)))
    with pytest.raises(InputError, match="computes other features from the same parameters"):
        LearnedDistance.load(file, encoder=(init, lambda w, x: apply(w, x) ** 2))
    with pytest.raises(InputError, match="must be a pair of functions"):
        LearnedDistance.load(file, encoder=3)
    plain = tmp_path / "plain.safetensors"
    learned.initialise("on_policy", record(), config=build_config("flatten")).save(plain)
    with pytest.raises(InputError, match="without a custom encoder"):
        LearnedDistance.load(plain, encoder=(init, apply))


@pytest.mark.parametrize(
    ("encoder", "match"),
    [
        (3, "must be a pair of functions"),
        ("other", "must be a pair of functions"),
        ((init,), "must be a pair of functions"),
        ((init, apply, apply), "must be a pair of functions"),
    ],
)
def test_what_is_no_encoder_raises(encoder: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        MetricNetwork(encoder=encoder)


@pytest.mark.parametrize(
    ("encoder", "match"),
    [
        ((init, lambda w, x: x.sum()), "must return floats, one row for each"),
        ((init, lambda w, x: jnp.zeros(len(x), int)), "must return floats, one row for each"),
        ((init, lambda w, x: x @ w["w"]), r"fails for observations \(n, 5, 4, 3\)"),
        ((lambda key, x: {"params": 0, "batch_stats": 0}, lambda w, x: x), "batch_stats"),
    ],
)
def test_an_encoder_that_does_not_fit_raises(encoder: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        MetricNetwork(encoder=encoder).fit_to_observations(SHAPE, SIZE, False)


def test_a_convolutional_encoder_needs_images_and_no_fourier_features() -> None:
    with pytest.raises(InputError, match=r"an observation has shape \(6,\)"):
        MetricNetwork(encoder=ConvEncoder()).fit_to_observations((6,), 6, False)
    with pytest.raises(InputError, match="fourier_features"):
        MetricNetwork(encoder=ConvEncoder(), fourier_features=2)
    with pytest.raises(InputError, match="channels"):
        ConvEncoder(())
    with pytest.raises(InputError, match="kernel_size"):
        ConvEncoder(kernel_size=0)


def test_a_run_with_an_encoder_can_be_resumed(tmp_path: Path) -> None:
    data, config = record(), build_config((init, apply))

    def run(updates: int, **options: Any) -> LearnedDistance:
        return learned.on_policy(
            data,
            discount=0.5,
            updates=10,
            config=config,
            options=RunOptions(log_every=updates, **options),
        )

    whole = run(5, checkpoint=tmp_path / "run.safetensors")
    again = run(5, resume=tmp_path / "run.safetensors")
    for a, b in zip(jax.tree.leaves(whole.params), jax.tree.leaves(again.params), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("side", "kernel_size", "stride"), [(1, 3, 1), (5, 2, 1), (16, 3, 2), (17, 3, 2), (20, 4, 2)]
)
def test_the_convolution_on_a_cpu_is_that_of_jax(side: int, kernel_size: int, stride: int) -> None:
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.normal(size=(3, side, side + 1, 2)), jnp.float32)
    kernel = jnp.asarray(rng.normal(size=(kernel_size, kernel_size, 2, 4)), jnp.float32)
    expected = jax.lax.conv_general_dilated(
        images, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    found = _convolve(images, kernel, stride)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
