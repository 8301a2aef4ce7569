"""PRISM's explicit files: small models written by hand, every mistake named with its line."""

from __future__ import annotations

import dataclasses
import io
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import exact, planning, relation, worlds
from bisimetric.errors import (
    ExpectedRewardWarning,
    InputError,
    InsufficientMemory,
    MissingActionsWarning,
)
from bisimetric.mdp import MDP
from bisimetric.worlds import text_parser
from tests.property_testing import scaled

# A machine that runs or is mended; running wears it out, and a broken one can only be mended.
MACHINE = {
    "tra": """3 5 7
0 0 0 0.9 run
0 0 1 0.1 run
0 1 0 1 mend
1 0 1 0.5 run
1 0 2 0.5 run
1 1 0 1 mend
2 0 0 1 mend
""",
    "sta": "(wear,on)\n0:(0,true)\n1:(1,true)\n2:(2,false)\n",
    "lab": '0="init" 1="deadlock" 2="broken" 3="worn"\n0: 0\n1: 3\n2: 2 3\n',
    "srew": "3 2\n0 2\n1 1\n",
    "trew": "3 5 3\n0 1 0 -1\n1 1 0 -1\n2 0 0 -5\n",
}
CHAIN = {
    "tra": "4 5\n0 1 0.5\n0 2 0.5\n1 3 1\n2 3 1\n3 3 1\n",
    "lab": '0="init" 1="deadlock" 2="done"\n0: 0\n3: 2\n',
}


def write(folder: Path, files: dict[str, str], stem: str = "model") -> Path:
    for ending, text in files.items():
        (folder / f"{stem}.{ending}").write_text(text)
    return folder / f"{stem}.tra"


def quiet(path: Path, **options: Any) -> MDP:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingActionsWarning)
        warnings.simplefilter("ignore", ExpectedRewardWarning)
        return worlds.from_prism(path, **options)


def row(mdp: MDP, state: int, action: str) -> list[float]:
    index = state * mdp.num_actions + (mdp.actions or ()).index(action)
    return [float(p) for p in mdp.P[[index]].toarray()[0]]


class TestMachine:
    def test_all_files_together(self, tmp_path: Path) -> None:
        path = write(tmp_path, MACHINE)
        with pytest.warns(
            MissingActionsWarning, match="1 of 3 states lack some actions; they are"
        ) as said:
            mdp = worlds.load(path)
        assert [each.filename for each in said] == [__file__]
        assert mdp.names == ("(0,true)", "(1,true)", "(2,false)")
        assert mdp.actions == ("run", "mend")
        assert row(mdp, 0, "run") == [0.9, 0.1, 0.0]
        assert row(mdp, 1, "run") == [0.0, 0.5, 0.5]
        assert row(mdp, 2, "mend") == [1.0, 0.0, 0.0]
        assert mdp.R.tolist() == [[2.0, 1.0], [1.0, 0.0], [0.0, -5.0]]
        assert mdp.available is not None
        assert mdp.available.tolist() == [[True, True], [True, True], [False, True]]
        assert mdp.discount == 0.99

    def test_files_under_other_names(self, tmp_path: Path) -> None:
        path = write(tmp_path, {"tra": MACHINE["tra"]})
        other = write(tmp_path, MACHINE, stem="other")
        mdp = quiet(path, srew=other.with_suffix(".srew"), sta=str(other.with_suffix(".sta")))
        assert mdp.R.tolist() == [[2.0, 2.0], [1.0, 1.0], [0.0, 0.0]]
        assert mdp.state_name(2) == "(2,false)"
        assert quiet(path, discount=0.5).discount == 0.5

    def test_the_endings_of_older_versions(self, tmp_path: Path) -> None:
        path = write(tmp_path, {**only("tra"), "rews": MACHINE["srew"], "rewt": MACHINE["trew"]})
        assert quiet(path).R.tolist() == quiet(write(tmp_path, MACHINE, "all")).R.tolist()

    def test_comments_blank_lines_and_carriage_returns(self, tmp_path: Path) -> None:
        plain = quiet(write(tmp_path, MACHINE))
        noisy = {
            ending: f"# A comment\n# Another\n\n{text}\n\n".replace("\n", "\r\n")
            for ending, text in MACHINE.items()
        }
        same(quiet(write(tmp_path, noisy, "noisy")), plain)

    def test_fractions_of_exact_exports(self, tmp_path: Path) -> None:
        plain = quiet(write(tmp_path, MACHINE))
        text = MACHINE["tra"].replace("0.9", "9/10").replace("0.1", "1/10").replace("0.5", "1/2")
        same(quiet(write(tmp_path, {**MACHINE, "tra": text}, "exact")), plain)

    def test_lines_in_any_order(self, tmp_path: Path) -> None:
        plain = quiet(write(tmp_path, MACHINE))
        first, *lines = MACHINE["tra"].splitlines()
        shuffled = "\n".join([first, *reversed(lines)])
        other = quiet(write(tmp_path, {**MACHINE, "tra": shuffled}, "shuffled"))
        same(other, plain)


def only(*endings: str) -> dict[str, str]:
    return {ending: MACHINE[ending] for ending in endings}


def same(one: MDP, other: MDP) -> None:
    np.testing.assert_array_equal(one.P.toarray(), other.P.toarray())
    np.testing.assert_array_equal(one.R, other.R)
    assert (one.names, one.actions) == (other.names, other.actions)
    assert (one.available is None) == (other.available is None)
    if one.available is not None and other.available is not None:
        np.testing.assert_array_equal(one.available, other.available)


class TestLabels:
    def test_they_count_where_there_are_no_rewards(self, tmp_path: Path) -> None:
        mdp = worlds.load(write(tmp_path, CHAIN))
        assert mdp.actions == ("step",)
        assert mdp.labels is not None
        assert list(mdp.labels) == ["done"]
        assert mdp.labels["done"].tolist() == [False, False, False, True]
        assert mdp.diameter_bound == pytest.approx(1 / (1 - mdp.discount))

    def test_labels_are_the_usual_distance_of_labelled_chains(self, tmp_path: Path) -> None:
        # A deterministic chain 0 -> 1 -> 2 -> 2 whose last state is "done": two states are at 1
        # where the label differs, else at the discounted distance of their successors.
        files = {"tra": "3 3\n0 1 1\n1 2 1\n2 2 1\n", "lab": '0="init" 1="done"\n0: 0\n2: 1\n'}
        discount = 0.75
        d = exact.bisimulation(worlds.load(write(tmp_path, files), discount=discount))
        usual = np.asarray((1 - discount) * d.values)
        expected = np.array([[0, discount, 1], [discount, 0, 1], [1, 1, 0]])
        np.testing.assert_allclose(usual, expected, atol=(1 - discount) * d.error + 1e-12)

    def test_observed_labels_only_add(self, tmp_path: Path) -> None:
        path = write(tmp_path, MACHINE)
        plain = quiet(path)
        for observe in ("worn,broken", ["worn", "broken"], " worn , broken,worn"):
            mdp = quiet(path, observe=observe)
            same(mdp, plain)
            assert mdp.labels is not None
            assert [mdp.labels.of(s) for s in range(3)] == [(), ("worn",), ("worn", "broken")]
        assert quiet(path, observe=[]).labels is None

    def test_without_rewards_no_label_may_be_observed(self, tmp_path: Path) -> None:
        assert worlds.from_prism(write(tmp_path, CHAIN), observe=[]).labels is None

    def test_unknown_labels(self, tmp_path: Path) -> None:
        path = write(tmp_path, MACHINE)
        with pytest.raises(InputError, match="no label 'brokn'; did you mean 'broken'"):
            quiet(path, observe="brokn")
        path = write(tmp_path, only("tra"), "bare")
        with pytest.raises(InputError, match=r"no label 'x'; there is no \.lab file beside it"):
            quiet(path, observe="x")


class TestActions:
    def test_choices_without_labels_go_by_number(self, tmp_path: Path) -> None:
        tra = "2 3 3\n0 0 0 1\n0 1 1 1\n1 0 1 1\n"
        mdp = quiet(write(tmp_path, {"tra": tra}))
        assert mdp.actions == ("0", "1")
        assert mdp.choice_labels == ("unlabelled", "unlabelled")
        assert mdp.available is not None
        assert mdp.available.tolist() == [[True, True], [True, False]]

    def test_one_label_for_several_choices(self, tmp_path: Path) -> None:
        tra = "3 5 5\n0 0 0 1 a\n0 1 1 1 a\n0 2 2 1\n1 0 1 1 a\n2 0 2 1\n"
        mdp = quiet(write(tmp_path, {"tra": tra}))
        assert mdp.actions == ("a", "a#2", "unlabelled")
        assert mdp.choice_labels == ("a", "a", "unlabelled")
        assert row(mdp, 0, "a") == [1, 0, 0]
        assert row(mdp, 0, "a#2") == [0, 1, 0]
        assert row(mdp, 0, "unlabelled") == [0, 0, 1]
        assert mdp.available is not None
        assert mdp.available.tolist() == [[True] * 3, [True, False, False], [False, False, True]]

    def test_a_chain_may_name_its_actions(self, tmp_path: Path) -> None:
        mdp = worlds.load(write(tmp_path, {"tra": "2 2\n0 1 1 a\n1 1 1 b\n"}))
        assert mdp.actions == ("step",)


class TestDeadlocks:
    def test_a_deadlock_has_one_self_loop_without_a_label(self, tmp_path: Path) -> None:
        bare = "3 2 2\n0 0 1 1 go\n0 1 2 1 try\n"
        mended = "3 4 4\n0 0 1 1 go\n0 1 2 1 try\n1 0 1 1\n2 0 2 1\n"
        lab = '0="init" 1="deadlock"\n0: 0\n1: 1\n2: 1\n'
        srew = "3 1\n2 4\n"
        one = quiet(write(tmp_path, {"tra": bare, "srew": srew}))
        other = quiet(write(tmp_path, {"tra": mended, "lab": lab, "srew": srew}, "mended"))
        same(one, other)
        assert one.actions == ("go", "try", "unlabelled")
        assert one.action_mask.tolist() == [[True, True, False]] + 2 * [[False, False, True]]
        assert one.next_state[1:, 2].tolist() == [1, 2]
        assert one.R.tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 4]]

    def test_a_deadlock_is_as_a_loop_of_the_model(self, tmp_path: Path) -> None:
        # State 1 has no line, and state 2 a loop without a label: Storm has 2 classes.
        tra = "3 3 3\n0 0 1 1\n0 1 2 1\n2 0 2 1\n"
        mdp = quiet(write(tmp_path, {"tra": tra}))
        assert relation.bisimulation(mdp).tolist() == [0, 0, 0]
        lab = '0="start"\n0: 0\n'
        mdp = quiet(write(tmp_path, {"tra": tra, "lab": lab}))
        assert relation.bisimulation(mdp).tolist() == [0, 1, 1]

    def test_a_loop_that_is_no_deadlock_is_an_action(self, tmp_path: Path) -> None:
        mdp = quiet(write(tmp_path, {"tra": "2 2 2\n0 0 1 1 go\n1 0 1 1\n"}))
        assert mdp.actions == ("go", "unlabelled")
        assert mdp.available is not None

    def test_a_label_does_not_make_a_state_absorbing(self, tmp_path: Path) -> None:
        files = {"tra": "2 2\n0 1 1\n1 1 1\n", "lab": '0="deadlock"\n0: 0\n'}
        assert worlds.load(write(tmp_path, files)).next_state.tolist() == [[1], [1]]

    def test_nothing_moves(self, tmp_path: Path) -> None:
        mdp = worlds.load(write(tmp_path, {"tra": "2 0 0\n"}))
        assert mdp.next_state.tolist() == [[0], [1]]
        chain = worlds.load(write(tmp_path, {"tra": "2 0\n"}))
        assert chain.next_state.tolist() == [[0], [1]]

    def test_rewards_of_a_deadlock(self, tmp_path: Path) -> None:
        tra = "2 3 3\n0 0 1 1 go\n0 1 0 1 wait\n1 0 1 1\n"
        lab = '0="init" 1="deadlock"\n0: 0\n1: 1\n'
        mdp = quiet(write(tmp_path, {"tra": tra, "lab": lab, "trew": "2 3 1\n1 0 1 3\n"}))
        assert mdp.R.tolist() == [[0, 0, 0], [0, 0, 3]]


class TestRewards:
    def test_transition_rewards_become_expectations(self, tmp_path: Path) -> None:
        files = {**only("tra"), "trew": "3 5 2\n0 0 0 10\n1 0 2 4\n"}
        with pytest.warns((ExpectedRewardWarning, MissingActionsWarning)) as said:
            mdp = worlds.load(write(tmp_path, files))
        assert sorted(each.category.__name__ for each in said) == [
            "ExpectedRewardWarning",
            "MissingActionsWarning",
        ]
        assert mdp.R.tolist() == [[9, 0], [2, 0], [0, 0]]

    def test_of_a_chain(self, tmp_path: Path) -> None:
        files = {**CHAIN, "trew": "4 2\n0 1 2\n0 2 2\n", "srew": "4 1\n3 5\n"}
        mdp = worlds.load(write(tmp_path, files))
        assert mdp.actions == ("step",)
        assert mdp.R.ravel().tolist() == [2, 0, 0, 5]
        V = planning.optimal_values(mdp.replace(discount=0.5), tol=1e-10).values
        np.testing.assert_allclose(V, [2 + 0.25 * 10, 5, 5, 10], atol=1e-8)

    def test_several_reward_structures_raise(self, tmp_path: Path) -> None:
        path = write(tmp_path, only("tra", "lab"))
        for number in (1, 2):
            (tmp_path / f"model{number}.srew").write_text(f"3 1\n0 {number}\n")
        with pytest.raises(
            InputError, match=r"several rewards beside it \(model1.srew, model2.srew"
        ):
            worlds.load(path)
        assert quiet(path, srew=tmp_path / "model2.srew").R[0].tolist() == [2, 2]
        labels = quiet(path, observe="broken").labels
        assert labels is not None
        assert list(labels) == ["broken"]


def edit(ending: str, old: str, new: str) -> dict[str, str]:
    assert old in MACHINE[ending]
    return {**MACHINE, ending: MACHINE[ending].replace(old, new, 1)}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            edit("tra", "3 5 7", "3 5 8"),
            "model.tra: line 1 says 8 transitions and the file has 7",
        ),
        (edit("tra", "3 5 7", "3 4 7"), "model.tra: line 1 says 4 choices and the file has 5"),
        (edit("tra", "3 5 7", "3 5 7 2"), "line 1 has 4 numbers .* a POMDP cannot be used"),
        (edit("tra", "3 5 7", "3"), "line 1 has 1 numbers"),
        (edit("tra", "3 5 7", "x y"), "line 1 is 'x y' and must be numbers"),
        (edit("tra", "3 5 7", "mdp"), "line 1 is 'mdp' and starts a file of Storm"),
        (edit("tra", "2 0 0 1 mend\n", "2 0"), "line 8 has 2 words.*is the file cut off"),
        (
            edit("tra", "2 0 0 1", "2 0 7 1"),
            "line 8: there is no state 7; they go from 0 to 2",
        ),
        (edit("tra", "2 0 0 1", "9 0 0 1"), "line 8: there is no state 9"),
        (edit("tra", "0 0 1 0.1", "0 0 1 0.2"), "line 2: .*choice 0 of state 0 sum to 1.1"),
        (edit("tra", "0 0 1 0.1", "0 0 1 -1"), "line 3: -1 is no probability"),
        (edit("tra", "0 0 1 0.1", "0 0 1 nan"), "line 3: 'nan' is no probability"),
        (edit("tra", "0 0 1 0.1", "0 0 1 1/0"), "line 3: '1/0' is no probability"),
        (edit("tra", "0 0 1 0.1", "0 0 x 0.1"), "line 3: 'x' is no successor. A line must be"),
        (edit("tra", "0 0 1 0.1", "0 0 1.5 0.1"), "line 3: '1.5' is no successor"),
        (edit("tra", "0 0 1 0.1", "0 -1 1 0.1"), "line 3: '-1' is no choice"),
        (edit("tra", "0 0 1 0.1", f"0 {10**20} 1 0.1"), "line 3: '1000.*' is no choice"),
        (edit("tra", "0 0 1 0.1 run", "0 0.9:0 0.1:1 run"), "'0.9:0' is no choice.*`rows`"),
        (edit("tra", "0 0 1 0.1", "0 0 1 [0.1,0.2]"), "Intervals of probabilities cannot be"),
        (
            edit("tra", "1 0 2 0.5 run", "1 0 2 0.5 mend"),
            "line 6: choice 0 of state 1 has another",
        ),
        ({"tra": "2 2\n0 1 3.5\n1 0 2\n"}, "line 2: 3.5 is no probability; rates. pass model_type"),
        ({"tra": "2 2\n0 1 0.5\n1 0 1\n"}, "line 2: the probabilities of state 0 sum to"),
        ({"tra": "# A comment\n\n2 2\n\n0 1 1\n1 x 1\n"}, "line 6: 'x' is no successor"),
        ({"tra": "0 0\n"}, "line 1 says 0 states"),
        ({**MACHINE, "tra": ""}, "model.tra: is empty"),
        ({**MACHINE, "tra": "# only a comment\n"}, "model.tra: is empty"),
        (edit("sta", "2:(2,false)\n", ""), "model.sta: has 2 states and .*model.tra has 3"),
        (
            edit("sta", "1:(1", "7:(1"),
            r"model.sta: line 3 is '7:\(1,true\)' and must start with",
        ),
        (edit("lab", "2: 2 3", "5: 2"), "model.lab: line 4: there is no state 5"),
        (edit("lab", "2: 2 3", "2: 9"), "model.lab: line 4: there is no label 9"),
        (edit("lab", "2: 2 3", "2: x"), "model.lab: line 4: 'x' is no number of a label"),
        (edit("lab", '0="init"', '0="worn"'), "model.lab: line 1 .* must number the labels"),
        (edit("lab", '0="init"', "init"), "model.lab: line 1 .* must number the labels"),
        (edit("srew", "3 2", "4 2"), "model.srew: line 1 says 4 states and .*model.tra has 3"),
        (edit("srew", "1 1", "8 1"), "model.srew: line 3: there is no state 8"),
        (edit("srew", "3 2", "3 5"), "model.srew: line 1 says 5 rewards and the file has 2"),
        (edit("srew", "1 1", "1 x"), "model.srew: line 3: 'x' is no reward"),
        (
            edit("trew", "2 0 0 -5", "2 0 1 -5"),
            "model.trew: line 4 pays for a transition that",
        ),
        (edit("trew", "2 0 0 -5", "2 0 -5"), "model.trew: line 4 has 3 words"),
    ],
)
def test_bad_files(tmp_path: Path, files: dict[str, str], message: str) -> None:
    path = write(tmp_path, files)
    with pytest.raises(InputError, match=message) as caught:
        quiet(path)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.tra: there is no such file"):
        worlds.load(tmp_path / "none.tra")
    path = write(tmp_path, MACHINE)
    with pytest.raises(InputError, match=r"none.srew: there is no such file"):
        quiet(path, srew="none.srew")
    (tmp_path / "folder.tra").mkdir()
    with pytest.raises(InputError, match=r"folder.tra: cannot be read"):
        worlds.load(tmp_path / "folder.tra")
    with pytest.raises(InputError, match=r"no option 'rewards'; its options are sta, lab, srew, t"):
        worlds.load(path, rewards="x")


def test_probabilities_are_normalised(tmp_path: Path) -> None:
    tra = "3 5\n0 0 0.333333\n0 1 0.333333\n0 2 0.333333\n1 1 1\n2 2 1\n"
    mdp = worlds.load(write(tmp_path, {"tra": tra}))
    np.testing.assert_allclose(mdp.P[[0]].toarray(), 1 / 3, rtol=1e-15)


@st.composite
def models(draw: st.DrawFn) -> tuple[MDP, list[list[str]]]:
    """A small MDP, all of whose states have all actions, and the lines that write it."""
    states, actions = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    P = np.zeros((states, actions, states))
    for s in range(states):
        for a in range(actions):
            weights = draw(st.lists(st.integers(0, 3), min_size=states, max_size=states))
            P[s, a] = weights if any(weights) else np.eye(states)[s]
    P /= P.sum(axis=2, keepdims=True)
    R = np.array(
        draw(st.lists(st.integers(-3, 3), min_size=states * actions, max_size=states * actions))
    ).reshape(states, actions)
    tra = [f"{s} {a} {t} {P[s, a, t]!r} act{a}" for s, a, t in np.argwhere(P)]
    trew = [f"{s} {a} {t} {R[s, a]}" for s, a, t in np.argwhere(P)]
    counts = f"{states} {states * actions} {len(tra)}"
    tra = [line.replace("np.float64(", "").replace(")", "") for line in tra]
    return MDP(P, R, discount=0.9), [[counts, *tra], [counts, *trew]]


@settings(deadline=None, max_examples=scaled(60))
@given(models(), st.sampled_from([16, 64, 1 << 22]))
def test_files_round_trip(
    tmp_path_factory: pytest.TempPathFactory, model: tuple[MDP, list[list[str]]], block: int
) -> None:
    mdp, (tra, trew) = model
    folder = tmp_path_factory.mktemp("model")
    files = {"tra": "\n".join(tra), "trew": "\n".join(trew)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_parser, "BLOCK_BYTES", block)  # lines cut at any place
        read = worlds.from_prism(write(folder, files), discount=0.9)
    assert read.available is None
    assert read.actions == tuple(f"act{a}" for a in range(mdp.num_actions))
    np.testing.assert_array_equal(read.P.toarray(), mdp.P.toarray())
    np.testing.assert_array_equal(read.R, mdp.R)


def test_a_line_number_far_down_a_file_of_many_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_parser, "BLOCK_BYTES", 100)
    lines = [f"{s} {s} 1" for s in range(5000)]
    lines[4321] = "4321 zzz 1"
    with pytest.raises(InputError, match="line 4323: 'zzz' is no successor"):
        worlds.load(write(tmp_path, {"tra": "\n".join(["5000 5000", *lines])}))


def test_a_deterministic_model_from_file_to_classes(tmp_path: Path) -> None:
    # Two ways to the goal, of equal length: their states are bisimilar.
    tra = "5 5\n0 1 1\n1 2 1\n2 2 1\n3 4 1\n4 2 1\n"
    mdp = worlds.load(write(tmp_path, {"tra": tra, "lab": '0="init" 1="goal"\n0: 0\n2: 1\n'}))
    labels = relation.bisimulation(mdp)
    assert labels[0] == labels[3]
    assert labels[1] == labels[4]
    assert len(set(labels.tolist())) == 3


def test_more_states_than_the_memory_holds_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = psutil.virtual_memory()._replace(available=2**27)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    with pytest.raises(InsufficientMemory, match=r"says 100,000,000 states.*has 1 transitions"):
        worlds.load(write(tmp_path, {"tra": "100000000 1 1\n0 0 0 1\n"}))


class TestCompiledParser:
    """The kernels for large blocks read what NumPy reads."""

    def test_numbers(self) -> None:
        rng = np.random.default_rng(0)
        texts = [repr(x) for x in rng.random(2000).tolist()] + [
            f"{x:.{k % 20}g}"
            for k, x in enumerate(rng.normal(size=2000) * 10.0 ** rng.integers(-30, 30, 2000))
        ]
        texts += ["1", "-1", "+0.5", "1.", ".5", "00.250", "1e5", "1E-3", "2e+2", "9" * 17]
        texts += ["9007199254740991", "9007199254740993", "0.9999999999999999", "1/3", "5e-324"]
        [block] = text_parser.read_tokens(io.BytesIO("\n".join([*texts, ""]).encode()), "doc", 1)
        expected = [float(Fraction(text)) if "/" in text else float(text) for text in texts]
        large = dataclasses.replace(block)
        for compiled in (0, 1 << 30):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(text_parser, "MIN_COMPILED_BYTES", compiled)
                assert large.to_floats(large.first_token, "number").tolist() == expected

    @pytest.mark.parametrize(
        "text", ["x", "1e", "1e+", ".", "-", "1.2.3", "nan", "inf", "1/0", "--1"]
    )
    def test_what_is_no_number(self, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(text_parser, "MIN_COMPILED_BYTES", 0)
        [block] = text_parser.read_tokens(io.BytesIO(f"0.5\n{text}\n".encode()), "doc", 1)
        with pytest.raises(InputError, match=r"doc: line 2: .* is no number"):
            block.to_floats(block.first_token, "number")

    @given(st.binary(max_size=60).map(lambda raw: raw.replace(b"\0", b" ")))
    @settings(deadline=None)
    def test_tokens(self, text: bytes) -> None:
        found = []
        for compiled in (0, 1 << 30):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(text_parser, "MIN_COMPILED_BYTES", compiled)
                blocks = list(text_parser.read_tokens(io.BytesIO(text), "doc", 3, separators=b":"))
                found.append(
                    [
                        [
                            getattr(block, name).tolist()
                            for name in (
                                "start",
                                "length",
                                "first_token",
                                "num_tokens",
                                "line_number",
                            )
                        ]
                        for block in blocks
                    ]
                )
        assert found[0] == found[1]

    def test_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        plain = quiet(write(tmp_path, MACHINE))
        monkeypatch.setattr(text_parser, "MIN_COMPILED_BYTES", 0)
        same(quiet(write(tmp_path, MACHINE, "compiled")), plain)
        for old, new, message in (
            ("0 0 1 0.1", "0 0 x 0.1", "line 3: 'x' is no successor"),
            ("0 0 1 0.1", f"0 {10**20} 1 0.1", "line 3: '1000.*' is no choice"),
        ):
            with pytest.raises(InputError, match=message):
                quiet(write(tmp_path, edit("tra", old, new), "wrong"))
