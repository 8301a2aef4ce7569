"""The PyTorch losses equal the JAX ones and published code, in values and gradients."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bisimetric import InputError, losses
from bisimetric.losses import torch as torch_losses
from tests.losses.batches import NUM_COORDINATES, PAIR_LOSSES, SIZE, build_batch, evaluate
from tests.losses.published import ANGLE_TOLERANCE, DATA, get_input, list_cases
from tests.test_documentation import find_blocks

CASES = list_cases()
ROUNDING: dict[str, Any] = {"rtol": 2e-5, "atol": 2e-6}
"""Single precision, with sums in another order."""
VARIANTS: dict[str, dict[str, Any]] = {
    "all pairs": {},
    "permutation": {"permutation": np.array([2, 0, 1, 4, 3])},
    "termination ignored": {"absorbing": False},
    "terminal embedding": {"terminal_embedding": np.linspace(-1, 1, NUM_COORDINATES)},
}


def test_names_and_arguments_are_equal() -> None:
    assert torch_losses.__all__ == losses.__all__
    for name in losses.__all__:
        ours, twin = (inspect.signature(getattr(each, name)) for each in (losses, torch_losses))
        assert list(ours.parameters) == list(twin.parameters)
        for parameter, other in zip(
            ours.parameters.values(), twin.parameters.values(), strict=True
        ):
            assert parameter.kind == other.kind
            # Default distances are the functions of equal name.
            defaults = [getattr(e.default, "__name__", e.default) for e in (parameter, other)]
            assert defaults[0] == defaults[1]


def test_pytorch_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError) as caught:
        torch_losses.l1_distance(np.zeros(2), np.ones(2))
    expected = "losses.torch: torch is not installed; pip install 'bisimetric[torch]'."
    assert str(caught.value) == expected


def test_jax_is_not_imported() -> None:
    code = "import sys, bisimetric.losses.torch; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def convert_options(options: dict[str, Any], convert: Any) -> dict[str, Any]:
    return {
        name: convert(value.astype(np.float32) if value.dtype == float else value)
        if isinstance(value, np.ndarray)
        else value
        for name, value in options.items()
    }


def compare(name: str, options: dict[str, Any], removed: tuple[str, ...] = ()) -> None:
    """Compare a loss and its gradient in both frameworks."""
    torch = pytest.importorskip("torch")
    batch = build_batch(name, jnp.asarray) | convert_options(options, jnp.asarray)
    twin_batch = build_batch(name, torch.as_tensor) | convert_options(options, torch.as_tensor)
    for each in removed:
        del batch[each], twin_batch[each]
    value, gradient = jax.value_and_grad(
        lambda e: evaluate(losses, name, batch | {"embeddings": e})
    )(batch["embeddings"])
    twin_batch["embeddings"].requires_grad_(True)
    twin = evaluate(torch_losses, name, twin_batch)
    twin.backward()
    assert twin.dtype == torch.float32
    np.testing.assert_allclose(twin.detach().numpy(), value, **ROUNDING)
    np.testing.assert_allclose(twin_batch["embeddings"].grad.numpy(), gradient, **ROUNDING)


@pytest.mark.parametrize("name", PAIR_LOSSES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_jax(name: str, variant: str) -> None:
    compare(name, VARIANTS[variant])


@pytest.mark.parametrize(
    ("name", "options", "removed"),
    [
        ("mico", {"error": "squared", "self_pairs": False}, ()),
        ("mico", {"target_embeddings": np.ones((SIZE, NUM_COORDINATES))}, ()),
        ("reduced_mico", {"reward_range": 3.0}, ()),
        ("dbc", {"per_coordinate": True}, ()),
        ("dbc", {}, ("next_scales",)),
        ("rap", {"squared": False}, ()),
        ("rap", {"per_coordinate": True}, ()),
        ("pair_q", {"error": "huber"}, ()),
        ("on_policy", {"steps": np.array([1, 2, 2, 1, 1])}, ()),
        ("on_policy", {"steps": np.array([1, 2, 2, 1, 1]), "absorbing": False}, ()),
    ],
)
def test_options_equal_jax(name: str, options: dict[str, Any], removed: tuple[str, ...]) -> None:
    compare(name, options, removed)


def test_double_q_equals_jax() -> None:
    other = build_batch("pair_q", np.asarray, seed=1)["next_embeddings"]
    batch = build_batch("pair_q", np.asarray)
    compare("pair_q", {"next_embeddings": np.stack([batch["next_embeddings"], other])})


@pytest.mark.parametrize("name", CASES)
def test_equals_published_code(name: str) -> None:
    torch = pytest.importorskip("torch")
    published = DATA["published"][name]
    x = torch.as_tensor(get_input("embeddings")).requires_grad_(True)
    value = CASES[name](torch_losses, x, torch.as_tensor)
    value.backward()
    atol = ANGLE_TOLERANCE if name == "mico" else 1e-9
    np.testing.assert_allclose(value.item(), published["loss"], rtol=1e-10, atol=atol)
    np.testing.assert_allclose(x.grad.numpy(), published["gradient"], rtol=1e-6, atol=atol)


@pytest.mark.parametrize("scales", [False, True])
def test_deepmdp_equals_jax(scales: bool) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    predicted, following = rng.normal(size=(2, SIZE, 3)).astype(np.float32)
    ends = np.arange(SIZE) == 2
    options = {"predicted_scales": np.exp(predicted)} if scales else {}
    values = [
        module.deepmdp_transition(
            convert(predicted),
            convert(following),
            convert(ends),
            **convert_options(options, convert),
        )
        for module, convert in ((losses, jnp.asarray), (torch_losses, torch.as_tensor))
    ]
    np.testing.assert_allclose(float(values[1]), float(values[0]), rtol=1e-6)
    for squared in (False, True):
        ours = losses.deepmdp_reward(
            jnp.asarray(predicted[:, 0]), jnp.asarray(following[:, 0]), squared=squared
        )
        twin = torch_losses.deepmdp_reward(
            torch.as_tensor(predicted[:, 0]), torch.as_tensor(following[:, 0]), squared=squared
        )
        np.testing.assert_allclose(float(twin), float(ours), rtol=1e-6)


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_equal_embeddings_have_finite_gradients(name: str) -> None:
    torch = pytest.importorskip("torch")
    batch = build_batch(name, torch.as_tensor)
    batch["embeddings"] = torch.zeros_like(batch["embeddings"], requires_grad=True)
    batch["terminated"] = batch["terminated"].float()  # as many replay buffers store it
    evaluate(torch_losses, name, batch).backward()
    assert torch.isfinite(batch["embeddings"].grad).all()


def test_group_maximum_equals_jax() -> None:
    torch = pytest.importorskip("torch")
    x, y = np.random.default_rng(0).normal(size=(2, 3, 6)).astype(np.float32)
    for size in (1, 2, 3, 6):
        ours = losses.metric_distance(jnp.asarray(x), jnp.asarray(y), group_size=size)
        twin = torch_losses.metric_distance(torch.as_tensor(x), torch.as_tensor(y), size)
        np.testing.assert_allclose(twin.numpy(), ours, rtol=1e-6)


def test_the_documented_loop_runs() -> None:
    """The block of docs/how-to/losses.md that `make test` leaves out."""
    torch = pytest.importorskip("torch")
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "losses.md").read_text("utf-8")
    (block,) = [each for each in find_blocks(text) if "compute_loss(agent_loss" in each.code]
    names: dict[str, Any] = {}
    exec(block.code, names)
    batch = {
        "observations": torch.randn(8, 4),
        "next_observations": torch.randn(8, 4),
        "rewards": torch.randn(8),
        "terminated": torch.arange(8) == 3,
    }
    loss = names["compute_loss"](torch.tensor(0.0), batch)
    loss.backward()
    assert names["encoder"].weight.grad.abs().max() > 0
    assert names["target_encoder"].weight.grad is None
