"""DistanceBounds: validation, the middle as a distance, and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, Distance, DistanceBounds, InputError, exact

MATRIX = np.array([[0.0, 1.0], [1.0, 0.0]])


def build(**changes: Any) -> DistanceBounds:
    mdp = MDP.deterministic([[0], [1]], [[0.0], [1.0]], discount=0.5, names="xy")
    fields: dict[str, Any] = {
        "lower": 1.5 * MATRIX, "upper": 2.5 * MATRIX, "kind": "bisimulation", "mdp": mdp,
    }  # fmt: skip
    return DistanceBounds(**{**fields, **changes})


def test_bounds_of_names_ids_and_arrays() -> None:
    d = build()
    assert d.bounds("x", 1) == (1.5, 2.5)
    lower, upper = d.bounds(["x", "y"], "y")
    assert lower.tolist() == [1.5, 0]
    assert upper.tolist() == [2.5, 0]
    with pytest.raises(InputError, match="there is no state 'z'"):
        d.bounds("x", "z")
    with pytest.raises(ValueError, match="read-only"):
        d.lower[0, 1] = 0


def test_the_middle_has_an_error_only_if_the_bounds_are_certain() -> None:
    certain = build().to_distance()
    assert certain.values[0, 1] == 2
    assert 0.5 <= certain.error < 0.5 + 1e-12
    assert certain.estimate is None
    likely = build(confidence=0.95)
    assert likely.error == np.inf
    assert 0.5 <= float(likely.to_distance().estimate or 0) < 0.5 + 1e-12
    assert likely.to_distance().metadata["confidence"] == 0.95
    assert repr(likely) == (
        "DistanceBounds(bisimulation, 2 states, mean width 1, largest 1, with probability 0.95)"
    )


@pytest.mark.parametrize("confidence", [1.0, 0.9])
def test_files_hold_everything(tmp_path: Path, confidence: float) -> None:
    mdp = MDP(np.full((2, 2, 2), 0.5), np.eye(2), discount=0.9, available=[[True, False]] * 2)
    policy, matrix = np.array([0, 0]), 10 * MATRIX
    saved = DistanceBounds(0 * MATRIX, matrix, "on_policy", mdp, policy, confidence, {"k": 1})
    saved.save(tmp_path / "bounds.npz")
    found = DistanceBounds.load(tmp_path / "bounds.npz")
    for name in ("lower", "upper", "policy"):
        assert np.array_equal(getattr(found, name), getattr(saved, name))
    assert (found.kind, found.confidence, found.metadata) == ("on_policy", confidence, {"k": 1})
    assert np.array_equal(found.mdp.P.toarray(), mdp.P.toarray())
    assert np.array_equal(found.mdp.action_mask, mdp.action_mask)


def test_other_files_are_rejected(tmp_path: Path) -> None:
    build().save(tmp_path / "bounds.npz")
    with pytest.raises(InputError, match="its format is 'bisimetric distance bounds, version 1'"):
        Distance.load(tmp_path / "bounds.npz")
    exact.bisimulation(build().mdp).save(tmp_path / "d.npz")
    with pytest.raises(InputError, match="is no file of distance bounds of bisimetric"):
        DistanceBounds.load(tmp_path / "d.npz")
    content = (tmp_path / "bounds.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="is cut short"):
        DistanceBounds.load(tmp_path / "cut.npz")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lower": np.zeros((3, 3))}, r"lower is float64 of shape \(3, 3\)"),
        ({"upper": np.zeros((2, 2), np.float32)}, "upper is float32"),
        ({"lower": 3 * MATRIX}, r"lower\[0, 1\] is 3.0 and must be at most upper\[0, 1\], 2.5"),
        ({"upper": np.full((2, 2), np.nan)}, r"lower\[0, 0\] is 0.0 and must be at most"),
        ({"kind": "other"}, "kind is 'other'"),
        ({"confidence": 1.5}, r"confidence is 1\.5 and must be from 0 to 1"),
    ],
)
def test_what_does_not_fit_is_named(changes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(**changes)
