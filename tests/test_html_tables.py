"""HTML tables of notebooks: well-formed, escaped, and small however large the object is."""

from __future__ import annotations

import html.parser
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import worlds
from bisimetric._text import render_html_table
from bisimetric.learned import FeatureScaling, LearnedDistance
from bisimetric.learned.castro2020 import PairNetwork
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions
from tests.property_testing import scaled
from tests.recordings import images, steps

UNSAFE = ("<script>alert(1)</script>", "\"&amp;'", "x" * 10_000)
MAX_LENGTH = 4_000


class TableParser(html.parser.HTMLParser):
    """Read a table; raise ValueError where a tag is unexpected or not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("table", "caption", "tr", "th", "td"):
            raise ValueError(tag)
        self.open.append(tag)
        self.texts.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        if self.open.pop() != tag:
            raise ValueError(tag)

    def handle_data(self, data: str) -> None:
        tag, text = self.texts[-1]
        self.texts[-1] = (tag, text + data)


def read_table(text: str) -> tuple[str, dict[str, str]]:
    """Return the caption and the rows."""
    parser = TableParser()
    parser.feed(text)
    parser.close()
    assert not parser.open
    columns = {tag: [t for found, t in parser.texts if found == tag] for tag in ("th", "td")}
    (caption,) = [t for tag, t in parser.texts if tag == "caption"]
    return caption, dict(zip(columns["th"], columns["td"], strict=True))


def read_repr(value: Any) -> dict[str, str]:
    text = value._repr_html_()
    assert len(text) <= MAX_LENGTH
    caption, rows = read_table(text)
    assert caption == type(value).__name__
    return rows


def learned_distance(**changes: Any) -> LearnedDistance:
    network = PairNetwork((4,))
    parameters = network.init(jax.random.key(0), 2)
    return LearnedDistance(
        "on_policy", 0.9, network, parameters, FeatureScaling(np.zeros(2), np.ones(2)), **changes
    )


@settings(max_examples=scaled(50), deadline=None)
@given(st.text(max_size=50), st.dictionaries(st.text(min_size=1), st.text(max_size=50)))
def test_all_text_is_escaped(title: str, rows: dict[str, str]) -> None:
    text = render_html_table(title, rows)
    assert text.count("<") == 4 + 6 * len(rows)
    assert text.count(">") == text.count("<")


class TestMDP:
    def test_rows(self) -> None:
        rows = read_repr(worlds.load("pessimism"))
        assert rows == {
            "states": "3: s; t; u",
            "actions": "2: a; b",
            "dynamics": "deterministic",
            "rewards": "0 to 1",
            "discount": "0.9",
            "distances": "at most 10, reward range / (1 - discount)",
        }

    def test_stochastic_and_empirical(self) -> None:
        P, R = [[[0.5, 0.5]], [[0.0, 1.0]]], [[2.0], [2.0]]
        rows = read_repr(MDP(P, R, 0.5, policy=[0, 0], is_empirical=True))
        assert rows["states"] == "2"
        assert rows["dynamics"] == "stochastic, 3 transitions"
        assert rows["rewards"] == "2"
        assert rows["also has"] == "policy"
        assert rows["model"].startswith("empirical")

    def test_missing_actions_have_no_reward(self) -> None:
        available = [[True, False], [True, True]]
        P = np.zeros((2, 2, 2))
        P[..., 0] = 1
        rows = read_repr(MDP(P, [[5.0, np.nan], [7.0, 6.0]], 0.5, available=available))
        assert rows["rewards"] == "5 to 7"
        assert rows["missing"] == "1 of 4 pairs of state and action"

    def test_names_are_escaped_and_shortened(self) -> None:
        rows = read_repr(MDP(np.eye(3)[:, None], np.zeros((3, 1)), 0.5, names=UNSAFE))
        assert UNSAFE[0] in rows["states"]
        assert "xxx..." in rows["states"]

    def test_extreme_rewards(self) -> None:
        rows = read_repr(MDP(np.eye(2)[:, None], [[-1e308], [1e308]], 0.99))
        assert rows["distances"].startswith("at most inf")

    def test_a_large_mdp(self) -> None:
        n = 50_000
        names = [f"state {s}" for s in range(n)]
        next_state = np.zeros((n, 2), int)
        large = MDP.deterministic(next_state, np.zeros((n, 2)), discount=0.5, names=names)
        assert read_repr(large)["states"].endswith("state 4; state 5; ...")


class TestTransitions:
    def test_rows(self) -> None:
        assert read_repr(
            steps(names=("a", "b", "c"), metadata={"environment": "x", "seed": 0})
        ) == {
            "steps": "4",
            "episodes": "2: 1 terminated, 1 truncated",
            "states": "3: a; b; c",
            "observations": "() int64",
            "actions": "2",
            "rewards": "-1 to 1",
            "environment": "x",
            "seed": "0",
        }

    def test_images_and_continuous_actions(self) -> None:
        rows = read_repr(images(1000, actions=np.zeros((1000, 2), np.float32)))
        assert rows["observations"] == "(3, 2) uint8"
        assert rows["actions"] == "(2,) float32"
        assert "states" not in rows

    def test_names_and_metadata_are_escaped_and_shortened(self) -> None:
        rows = read_repr(steps(names=UNSAFE, metadata={"environment": UNSAFE[0] * 1000}))
        assert UNSAFE[0] in rows["states"]
        assert rows["environment"].startswith(UNSAFE[0])

    def test_many_steps(self) -> None:
        ids = np.arange(100_000)
        zeros = np.zeros(100_000, int)
        names = [f"s{i}" for i in ids]
        many = Transitions(ids, zeros, zeros, ids, zeros, names=names)
        assert read_repr(many)["steps"] == "100,000"


class TestLearnedDistance:
    def test_rows(self) -> None:
        metadata = {"algorithm": "castro2020", "updates": 24_000, "seeds": [0], "device": "cpu"}
        d = learned_distance(metadata=metadata, history={"loss": np.array([2.0, 0.125])})
        rows = read_repr(d)
        assert rows.pop("network").startswith("PairNetwork, ")
        assert rows == {
            "kind": "on_policy",
            "discount": "0.9",
            "learned from": "observations",
            "features": "2",
            "algorithm": "castro2020",
            "updates": "24,000",
            "seeds": "[0]",
            "device": "cpu",
            "final loss": "0.125",
            "error": "unknown: an approximation; measure it with quality()",
        }

    @pytest.mark.parametrize("loss", [np.array([np.nan]), np.array([]), np.array([np.inf])])
    def test_a_loss_that_is_not_finite(self, loss: np.ndarray[Any, Any]) -> None:
        rows = read_repr(learned_distance(history={"loss": loss}))
        assert rows.get("final loss", "") == "".join(map(str, loss))

    def test_names_are_escaped_and_shortened(self) -> None:
        points = np.zeros((3, 2), np.float32)
        rows = read_repr(learned_distance(points=points, names=UNSAFE))
        assert rows["learned from"].startswith("states, 3: <script>")

    def test_weights_are_counted(self) -> None:
        d = learned_distance()
        count = sum(np.size(leaf) for leaf in jax.tree.leaves(d.parameters))
        assert read_repr(d)["network"] == f"PairNetwork, {count} weights"
