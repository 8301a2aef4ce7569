"""Views: what is known of a table before it is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bisimetric import views, worlds
from bisimetric.mdp import MDP
from bisimetric.views import _figure, layout, norms
from tests.tables import zeros


class TestLayout:
    @pytest.mark.parametrize(
        "positions",
        [None, [[0, 0], [0, 0.5]], [[1, 1], [1, 1]], [[0, 0], [9000, 9000]]],
        ids=["none", "between cells", "one cell twice", "scattered"],
    )
    def test_no_map(self, positions: Any) -> None:
        d = zeros(2, positions=positions)
        assert layout.find_cells(d.mdp) is None
        assert views.plot_distances_from(d, 0).axes[0].patches
        assert "source" not in views.format_terminal_map(d, 0)

    def test_goals(self) -> None:
        def found(mdp: MDP) -> list[str]:
            return [mdp.state_name(goal) for goal in layout.find_goals(mdp)]

        assert found(worlds.load("mirrored-rooms-policy")) == ["1,5", "5,5"]
        both = [f"{level} {name}" for level in ("lower", "upper") for name in ("1,5", "5,5")]
        assert found(worlds.load("duplicated-grid")) == both
        assert found(worlds.grid("  \n  ")) == []
        assert found(worlds.load("random", states=20)) == []
        assert found(MDP.deterministic([[0]], [[1]], discount=0.5)) == []

    @pytest.mark.parametrize(
        ("names", "columns"),
        [
            (None, [0, 1, 5, 6]),
            (["a 1", "a 2", "b 1", "b2"], [0, 1, 5, 6]),
            (["a 1", "a 2", "a 3", "a 4"], [0, 1, 5, 6]),
            (["a 1", "a 2", "a 3", "b 1"], [0, 1, 5, 6]),
            (["a 1", "a 2", "b 1", "b 2"], [0, 5, 5, 6]),
        ],
        ids=["no names", "no word", "one part", "a part of one state", "a shared column"],
    )
    def test_no_parts(self, names: Any, columns: list[int]) -> None:
        d = zeros(4, names=names, positions=[[s % 2, c] for s, c in enumerate(columns)])
        assert layout.find_parts(d.mdp) == {}
        assert layout.find_parts(zeros(4, names=["a 1", "a 2", "b 1", "b 2"]).mdp) == {}

    def test_parts_above_each_other(self) -> None:
        names = ["a 1", "a 2", "b 1", "b 2"]
        d = zeros(4, names=names, positions=[[0, 0], [0, 1], [3, 0], [3, 1]])
        assert {name: s.tolist() for name, s in layout.find_parts(d.mdp).items()} == {
            "a": [0, 1],
            "b": [2, 3],
        }

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("d~", r"$\tilde d$"),
            ("by d_lax, d^pi or d^\u03c0", r"by $d_{\mathrm{lax}}$, $d^\pi$ or $d^\pi$"),
            ("d^pi, pi optimal", r"$d^\pi$, $\pi$ optimal"),
            ("|V^pi - V*|", r"|$V^\pi$ - $V^*$|"),
            (r"$\tilde d$, d_lax.npz and bid~", r"$\tilde d$, d_lax.npz and bid~"),
            ("d^pixel", "d^pixel"),
        ],
    )
    def test_symbols_are_typeset(self, text: str, expected: str) -> None:
        assert layout.typeset(text) == expected

    @pytest.mark.parametrize(
        ("numbers", "expected"),
        [
            ([0, 9.99999], ["0", "10.00"]),
            ([0.25, 150.25], ["0.2", "150.2"]),
            ([1234.5, 12], ["1234", "12"]),
            ([0.001234], ["0.001"]),
            ([0, 0], ["0", "0"]),
            ([1e-7, 0], ["1.0e-07", "0"]),
            ([2.5e8], ["2.5e+08"]),
        ],
    )
    def test_numbers(self, numbers: list[float], expected: list[str]) -> None:
        written = layout.build_number_format(np.array(numbers))
        assert [written(number) for number in numbers] == expected

    def test_scale_starts_above_the_error(self) -> None:
        scaled, _ = norms.build_norm(np.array([0.0, 1e-7, 3.0, 4.0]), 1e-6)
        assert (scaled.vmin, scaled.vmax) == (3.0, 4.0)
        under = _figure.build_colormap()(scaled(np.array([0.0, 1e-7, 3.0])))
        np.testing.assert_array_equal(under[0], [1, 1, 1, 1])
        np.testing.assert_array_equal(under[1], [1, 1, 1, 1])
        assert under[2, :3].max() < 0.5

    @pytest.mark.parametrize("values", [[0.0, 0.0], [0.0, 5.0]])
    def test_scale_without_a_range(self, values: list[float]) -> None:
        scaled, _ = norms.build_norm(np.array(values), 0.0, "log")
        assert scaled.vmin is not None
        assert scaled.vmax is not None
        assert 0 < scaled.vmin < scaled.vmax
