"""Worlds: what they hold, against facts written by hand; and what bad input gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric import worlds
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.worlds import builtin

UP, DOWN, LEFT, RIGHT = range(4)


def step(mdp: MDP, state: str, action: int) -> tuple[str, float]:
    """Where an action leads from a named state, and what it pays."""
    s = mdp.state(state)
    return mdp.state_name(int(mdp.next_state[s, action])), float(mdp.R[s, action])


def slow_bisimulation(mdp: MDP, sweeps: int) -> NDArray[np.float64]:
    """d(s, t) = max_a |R(s, a) - R(t, a)| + discount * d(s', t'), iterated from 0."""
    d = np.zeros((mdp.num_states, mdp.num_states))
    for _ in range(sweeps):
        moves = zip(mdp.R.T, mdp.next_state.T, strict=True)
        gaps = [abs(r[:, None] - r) + mdp.discount * d[np.ix_(n, n)] for r, n in moves]
        d = np.max(gaps, axis=0)
    return d


def optimal_q(mdp: MDP, sweeps: int) -> NDArray[np.float64]:
    Q = np.zeros_like(mdp.R)
    for _ in range(sweeps):
        Q = mdp.R + mdp.discount * (mdp.P @ Q.max(axis=1)).reshape(mdp.R.shape)
    return Q


class TestMirroredRooms:
    def test_has_31_states_row_by_row(self) -> None:
        mdp = worlds.load("mirrored-rooms")
        assert mdp.R.shape == (31, 4)
        assert mdp.discount == 0.99
        assert mdp.actions == ("up", "down", "left", "right")
        assert mdp.names is not None
        assert mdp.names[:6] == ("1,1", "1,2", "1,3", "1,4", "1,5", "2,1")
        assert mdp.names[15] == "4,3"
        assert mdp.names[16] == "5,1"
        assert mdp.names[-1] == "7,5"
        assert mdp.policy is None

    @pytest.mark.parametrize(
        ("state", "action", "to", "reward"),
        [
            ("1,4", RIGHT, "1,5", 1.0),
            ("2,5", UP, "1,5", 1.0),
            ("6,5", UP, "5,5", 1.0),
            ("1,5", UP, "1,5", -1.0),
            ("1,5", RIGHT, "1,5", -1.0),
            ("1,5", DOWN, "2,5", 0.0),
            ("1,1", LEFT, "1,1", -1.0),
            ("3,3", DOWN, "4,3", 0.0),
            ("3,2", DOWN, "3,2", -1.0),
            ("4,3", LEFT, "4,3", -1.0),
            ("4,3", UP, "3,3", 0.0),
            ("4,3", DOWN, "5,3", 0.0),
            ("5,3", UP, "4,3", 0.0),
        ],
    )
    def test_moves(self, state: str, action: int, to: str, reward: float) -> None:
        assert step(worlds.load("mirrored-rooms"), state, action) == (to, reward)

    def test_pays_plus_one_four_times(self) -> None:
        R = worlds.load("mirrored-rooms").R
        assert (R == 1).sum() == 4
        # 2 rooms with 16 sides of wall less a door each, and the two sides of the hallway.
        assert (R == -1).sum() == 2 * (16 - 1) + 2
        assert set(np.unique(R)) == {-1.0, 0.0, 1.0}

    def test_positions_and_features(self) -> None:
        mdp = worlds.load("mirrored-rooms")
        assert mdp.positions is not None
        assert mdp.features is not None
        assert mdp.positions[mdp.state("5,2")].tolist() == [5, 2]
        np.testing.assert_array_equal(mdp.features, mdp.positions + 0.5)

    def test_largest_distance_and_the_hallway_remark(self) -> None:
        mdp = worlds.load("mirrored-rooms")
        d = slow_bisimulation(mdp, 2200)
        assert d.max() == pytest.approx(150.25, abs=0.005)
        hallway = d[mdp.state("4,3")]
        rows = {row: hallway[[mdp.state(f"{row},{c}") for c in range(1, 6)]] for row in (1, 5)}
        for row in (1, 5):
            assert rows[row].min() == pytest.approx(148.8, abs=0.05)
            assert rows[row].max() == pytest.approx(150.25, abs=0.005)
        others = [s for s in range(31) if mdp.state_name(s)[0] not in "15"]
        assert hallway[others].max() < rows[5].min()

    def test_policy_is_optimal_and_leads_to_the_goals(self) -> None:
        mdp = worlds.load("mirrored-rooms-policy")
        plain = worlds.load("mirrored-rooms")
        np.testing.assert_array_equal(mdp.R, plain.R)
        np.testing.assert_array_equal(mdp.next_state, plain.next_state)
        assert mdp.policy is not None
        assert mdp.policy.shape == (31,)
        Q = optimal_q(mdp, 3000)
        chosen = Q[np.arange(31), mdp.policy]
        np.testing.assert_allclose(chosen, Q.max(axis=1), atol=1e-9)
        for goal in ("1,5", "5,5"):
            assert mdp.policy[mdp.state(goal)] == DOWN


class TestDuplicatedGrid:
    def test_every_move_lands_on_either_level(self) -> None:
        base, mdp = worlds.load("mirrored-rooms"), worlds.load("duplicated-grid")
        assert mdp.num_states == 62
        assert not mdp.is_deterministic
        assert mdp.discount == 0.99
        P = mdp.P.toarray().reshape(62, 4, 62)
        for level in range(2):
            for s in range(31):
                np.testing.assert_array_equal(mdp.R[31 * level + s], base.R[s])
                for a in range(4):
                    t = base.next_state[s, a]
                    row = P[31 * level + s, a]
                    assert row[t] == row[31 + t] == 0.5
                    assert row.sum() == 1

    def test_names_and_places(self) -> None:
        mdp = worlds.load("duplicated-grid")
        assert (mdp.state_name(0), mdp.state_name(31)) == ("lower 1,1", "upper 1,1")
        assert mdp.positions is not None
        assert mdp.features is not None
        assert len(np.unique(mdp.positions, axis=0)) == 62
        np.testing.assert_array_equal(mdp.positions[:31, 1], mdp.positions[31:, 1])
        assert mdp.positions[:31, 0].min() - mdp.positions[31:, 0].max() == 3
        np.testing.assert_array_equal(mdp.features[:31, :2], mdp.features[31:, :2])
        assert mdp.features[[0, 31], 2].tolist() == [0, 1]

    def test_base_by_text_by_name_and_by_path(self, tmp_path: Path) -> None:
        text = "****\n*>g*\n****\n"
        small = worlds.load("duplicated-grid", base=text)
        assert small.names == ("lower 1,1", "lower 1,2", "upper 1,1", "upper 1,2")
        assert small.policy is not None
        assert small.policy.tolist() == [RIGHT, DOWN, RIGHT, DOWN]
        (tmp_path / "small.txt").write_text(text)
        from_file = worlds.load("duplicated-grid", base=tmp_path / "small.txt")
        assert from_file.names == small.names
        named = worlds.load("duplicated-grid", base="mirrored-rooms-policy")
        assert named.policy is not None
        with pytest.raises(InputError, match=r"grid file nowhere: there is no such file"):
            worlds.load("duplicated-grid", base="nowhere")


class TestPessimism:
    def test_is_figure_2(self) -> None:
        mdp = worlds.load("pessimism")
        assert mdp.names == ("s", "t", "u")
        assert mdp.actions == ("a", "b")
        assert mdp.discount == 0.9
        assert mdp.next_state.tolist() == [[1, 2], [2, 0], [2, 2]]
        assert mdp.R.tolist() == [[1, 0], [0, 1], [0, 0]]
        np.testing.assert_allclose(optimal_q(mdp, 400).max(axis=1), [10, 10, 0], atol=1e-9)
        assert slow_bisimulation(mdp, 400)[0, 1] == pytest.approx(10, abs=1e-9)

    def test_reward_is_an_option(self) -> None:
        assert worlds.load("pessimism", K=2.5, discount=0.5).R.max() == 2.5


class TestOpenGrid:
    def test_default_size(self) -> None:
        mdp = worlds.load("open-grid")
        assert 4300 < mdp.num_states <= 4900 - 490
        assert mdp.num_actions == 4
        assert mdp.is_deterministic

    def test_without_obstacles_every_cell_is_a_state(self) -> None:
        mdp = worlds.load("open-grid", rows=3, columns=4, obstacles=0)
        assert mdp.num_states == 12
        assert step(mdp, "1,3", RIGHT) == ("1,4", 1.0)
        assert step(mdp, "3,1", DOWN) == ("3,1", -1.0)
        assert (mdp.R == 1).sum() == 2

    @pytest.mark.parametrize("obstacles", [0.1, 0.45, 0.9, 0.999])
    def test_everything_is_reachable(self, obstacles: float) -> None:
        mdp = worlds.load("open-grid", rows=12, columns=15, obstacles=obstacles, seed=3)
        reached = {0}
        frontier = [0]
        while frontier:
            found = set(mdp.next_state[frontier.pop()].tolist()) - reached
            reached |= found
            frontier += found
        assert len(reached) == mdp.num_states
        assert mdp.num_states <= max(1, 12 * 15 - round(obstacles * 180))

    def test_one_goal(self) -> None:
        mdp = worlds.load("open-grid", rows=9, columns=9, obstacles=0.3, seed=5)
        assert len(set(mdp.next_state[mdp.R == 1].tolist())) == 1

    def test_seed_decides(self) -> None:
        one, same, other = (
            worlds.load("open-grid", rows=20, columns=20, seed=k) for k in (1, 1, 2)
        )
        assert one.names == same.names
        np.testing.assert_array_equal(one.next_state, same.next_state)
        np.testing.assert_array_equal(one.R, same.R)
        assert one.names != other.names

    def test_one_cell(self) -> None:
        mdp = worlds.load("open-grid", rows=1, columns=1, obstacles=0.9)
        assert mdp.R.tolist() == [[-1.0] * 4]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"rows": 0}, r"world 'open-grid': option rows is 0 and must be at least 1\."),
            ({"columns": -3}, r"option columns is -3 and must be at least 1\."),
            ({"seed": -1}, r"option seed is -1 and must be at least 0\."),
            ({"obstacles": 1.0}, r"option obstacles is 1.0 and must be a fraction, at least 0"),
            ({"obstacles": -0.1}, r"option obstacles is -0.1 and must be a fraction"),
            ({"obstacles": float("nan")}, r"option obstacles is nan and must be a finite number"),
            ({"rows": 2.5}, r"option rows is 2.5 and must be a whole number\."),
            ({"rows": "ten"}, r"option rows is 'ten' and must be a whole number\."),
        ],
    )
    def test_bad_options(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            worlds.load("open-grid", **options)


class TestRandom:
    def test_shape_and_range(self) -> None:
        mdp = worlds.load("random")
        assert mdp.R.shape == (1000, 4)
        assert mdp.is_deterministic
        assert 0 <= mdp.R.min() < 0.01
        assert 0.99 < mdp.R.max() <= 1
        # Uniform successors leave about 1/e^4 of the states without a predecessor.
        assert 960 < len(np.unique(mdp.next_state)) < 995

    def test_seed_decides(self) -> None:
        one, same, other = (worlds.load("random", states=50, seed=seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(one.next_state, same.next_state)
        np.testing.assert_array_equal(one.R, same.R)
        assert (one.next_state != other.next_state).any()
        assert (one.R != other.R).any()

    def test_bad_options(self) -> None:
        with pytest.raises(InputError, match=r"world 'random': option states is 0 and must be"):
            worlds.load("random", states=0)
        with pytest.raises(InputError, match=r"world 'random': option seed is -2 and must be"):
            worlds.load("random", seed=-2)
        with pytest.raises(InputError, match=r"successors is 6 and must be at most the 5 states"):
            worlds.load("random", states=5, successors=6)

    def test_several_successors(self) -> None:
        mdp = worlds.load("random", states=30, actions=2, successors=4)
        assert (np.diff(mdp.P.indptr) == 4).all()
        assert mdp.P.data.min() < 0.1 < 0.4 < mdp.P.data.max()


class TestGridText:
    def test_the_edge_of_the_text_is_a_wall(self) -> None:
        mdp = worlds.grid(" g\n  ")
        assert mdp.names == ("0,0", "0,1", "1,0", "1,1")
        assert mdp.next_state.tolist() == [[0, 2, 0, 1], [1, 3, 0, 1], [0, 2, 2, 3], [1, 3, 2, 3]]
        assert mdp.R.tolist() == [[-1, 0, -1, 1], [-1, 0, 0, -1], [0, -1, -1, 0], [1, -1, 0, -1]]

    def test_entering_a_goal_pays_from_another_goal_too(self) -> None:
        assert worlds.grid("gg").R.tolist() == [[-1, -1, -1, 1], [-1, -1, 1, -1]]

    def test_rewards_and_traps_pay_when_they_are_entered(self) -> None:
        mdp = worlds.grid("1 x9g")
        assert mdp.R[:, LEFT].tolist() == [-1, 0.1, 0, -1, 0.9]
        assert mdp.R[:, RIGHT].tolist() == [0, -1, 0.9, 1, -1]
        assert mdp.next_state[:, RIGHT].tolist() == [1, 2, 3, 4, 4]
        policy = worlds.grid("3>x").policy
        assert policy is not None
        assert policy.tolist() == [DOWN, RIGHT, DOWN]

    def test_empty_lines_around_and_carriage_returns(self) -> None:
        plain = worlds.grid("***\n* *\n***")
        for text in ("\n\n***\n* *\n***\n\n", "***\r\n* *\r\n***\r\n"):
            assert worlds.grid(text).names == plain.names == ("1,1",)

    def test_arrows_are_the_policy(self) -> None:
        mdp = worlds.grid("^v<>g")
        assert mdp.policy is not None
        assert mdp.policy.tolist() == [UP, DOWN, LEFT, RIGHT, DOWN]
        assert worlds.grid(" g").policy is None
        assert worlds.grid("g").policy is None

    def test_discount(self) -> None:
        assert worlds.grid(" ").discount == 0.99
        assert worlds.grid(" ", discount=0.5).discount == 0.5
        with pytest.raises(InputError, match="discount is 1"):
            worlds.grid(" ", discount=1)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", r"grid: is empty; draw the cells with '\*' wall"),
            ("\n\r\n\n", r"grid: is empty"),
            ("***\n* \n***", r"grid: line 2 is 2 wide and line 1 is 3; all lines must be equally"),
            ("\n***\n* * \n***", r"grid: line 3 is 4 wide and line 2 is 3"),
            ("***\n\n***", r"grid: line 2 is 0 wide"),
            ("***\n*y*\n***", r"grid: line 2, column 2 is 'y'; allowed are '\*' wall, ' ' floor"),
            ("\n* *\n*\t*", r"grid: line 3, column 2 is '\\t'; allowed are"),
            ("* \x00", r"line 1, column 3 is '\\x00'"),
            ("* \udc80", r"line 1, column 3 is '\\udc80'"),
            ("***\n***", r"grid: has walls only; leave at least one floor cell"),
            ("***\n*> \n*g*", r"grid: line 2, column 3 \(state 1,2\) has no arrow"),
        ],
    )
    def test_errors(self, text: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            worlds.grid(text)


class TestGridFile:
    def test_by_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "rooms.txt"
        path.write_text(builtin.MIRRORED_ROOMS)
        monkeypatch.chdir(tmp_path)
        expected = worlds.load("mirrored-rooms")
        for name in (path, str(path), "rooms.txt", "./rooms.txt"):
            mdp = worlds.load(name)
            assert mdp.discount == 0.99
            np.testing.assert_array_equal(mdp.next_state, expected.next_state)
            np.testing.assert_array_equal(mdp.R, expected.R)
        assert worlds.load(path, discount=0.5).discount == 0.5
        assert worlds.read_grid(path, discount=0.25).discount == 0.25

    def test_any_existing_file_and_a_byte_order_mark(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "rooms").write_bytes(b"\xef\xbb\xbf g\r\n")
        monkeypatch.chdir(tmp_path)
        assert worlds.load("rooms").num_states == 2

    def test_errors_name_the_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("ragged.txt").write_text("***\n*  *\n***\n")
        Path("photo.txt").write_bytes(b"* \xff\xfe")
        cases = {
            "missing.txt": r"grid file missing.txt: there is no such file; check the path\.",
            "no/where": r"grid file no/where: there is no such file",
            "./": r"grid file ./: cannot be read \(Is a directory\)\.",
            "a/\0": r"cannot be read",
            "ragged.txt": r"grid file ragged.txt: line 2 is 4 wide and line 1 is 3",
            "photo.txt": r"grid file photo.txt: byte 2 is not UTF-8 text; a grid is a plain text",
        }
        for name, message in cases.items():
            with pytest.raises(InputError, match=message):
                worlds.load(name)

    def test_has_no_options(self) -> None:
        with pytest.raises(InputError, match=r"grid file a.txt: there is no option 'rows'"):
            worlds.load("a.txt", rows=3)


class TestLoad:
    def test_every_world_loads_and_is_described(self) -> None:
        described = worlds.describe()
        assert [world.name for world in described] == worlds.list_names()
        assert worlds.list_names() == [
            "mirrored-rooms",
            "mirrored-rooms-policy",
            "duplicated-grid",
            "pessimism",
            "open-grid",
            "random",
        ]
        for world in described:
            assert 20 < len(world.description) <= 90
            assert "\n" not in world.description
            assert worlds.load(world.name, **world.options).discount == world.discount
            assert worlds.load(world.name, discount=0.25).discount == 0.25
        options = {world.name: world.options for world in described}
        assert options["open-grid"] == {"rows": 70, "columns": 70, "obstacles": 0.1, "seed": 0}
        assert options["pessimism"] == {"K": 1.0}
        assert options["mirrored-rooms"] == {}

    def test_options_may_be_texts(self) -> None:
        mdp = worlds.load("open-grid", rows="3", columns="4", obstacles="0.0")
        assert mdp.num_states == builtin.open_grid(rows=3, columns=4, obstacles=0.0).num_states

    @pytest.mark.parametrize("name", ["mirrored-room", "nothing-like-it", ""])
    def test_unknown_name(self, name: str) -> None:
        with pytest.raises(InputError) as caught:
            worlds.load(name)
        message = str(caught.value)
        assert f"there is no world {name!r}" in message
        assert "Use one of mirrored-rooms, " in message
        assert message.endswith("or the path of a grid, .tra, .drn or .npz file.")
        assert ("did you mean 'mirrored-rooms'" in message) == (name == "mirrored-room")

    def test_unknown_option(self) -> None:
        with pytest.raises(
            InputError,
            match=r"world 'random': there is no option 'key'; its options are "
            r"states=1000, actions=4, successors=1, seed=0\.",
        ):
            worlds.load("random", key=1)
        with pytest.raises(InputError, match=r"no option 'rows'; it has none\."):
            worlds.load("mirrored-rooms", rows=3)
        with pytest.raises(InputError, match=r"option base is 7 and must be a text"):
            worlds.load("duplicated-grid", base=7)
        with pytest.raises(InputError, match=r"option K is inf and must be a finite number"):
            worlds.load("pessimism", K=float("inf"))

    def test_bad_discount(self) -> None:
        with pytest.raises(InputError, match=r"discount is 1.5 and must be"):
            worlds.load("mirrored-rooms", discount=1.5)
