"""Storm's DRN files: models in Storm's own layout, round trips, every mistake with its line."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import exact, planning, relation, worlds
from bisimetric.errors import InputError, MissingActionsWarning
from bisimetric.mdp import MDP
from bisimetric.worlds import text_parser
from tests import fuzzing
from tests.fuzzing import mutate_text
from tests.property_testing import scaled
from tests.strategies import stochastic_mdps

# A machine that runs or is mended, as Storm exports it with valuations and choice labels.
MACHINE = """\
// Exported by storm
// Original model type: MDP
@type: MDP
@value_type: double
@parameters

@reward_models
cost gain 
@nr_states
3
@nr_choices
6
@model
state 0 [0.5, 2] init
//[wear=0\t& on=true]
\taction run [0, 1]
\t\t0 : 0.9
\t\t1 : 0.1
\taction mend [3, 0]
\t\t0 : 1
state 1 [0, 1] worn "needs care"
//[wear=1\t& on=true]
\taction run [0, 1]
\t\t1 : 0.5
\t\t2 : 0.5
\taction mend [1, 0]
\t\t0 : 1
\taction mend [2, 0]
\t\t1 : 1
state 2 [0, 0] worn broken deadlock
//[wear=2\t& on=false]
\taction __NOLABEL__ [0, 0]
\t\t2 : 1
"""  # noqa: W291 - Storm ends the names of reward models with a space
CHAIN = """\
@type: DTMC
@parameters

@reward_models

@nr_states
4
@model
state 0 init
\taction 0
\t\t1 : 1/2
\t\t2 : 0.5
state 1
\taction 0
\t\t3 : 1
state 2
\taction 0
\t\t3 : 1
state 3 done
\taction 0
\t\t3 : 1
"""


def read(folder: Path, text: str, **options: Any) -> MDP:
    path = folder / "model.drn"
    path.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingActionsWarning)
        return worlds.load(path, **options)


def write_and_read(folder: Path, mdp: MDP, **options: Any) -> MDP:
    path = folder / "round.drn"
    worlds.to_drn(mdp, path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingActionsWarning)
        return worlds.from_drn(path, discount=mdp.discount, **options)


def row(mdp: MDP, state: int, action: str) -> list[float]:
    index = state * mdp.num_actions + (mdp.actions or ()).index(action)
    return [float(p) for p in mdp.P[[index]].toarray()[0]]


class TestImport:
    def test_an_mdp_in_storms_layout(self, tmp_path: Path) -> None:
        mdp = read(tmp_path, MACHINE, reward_model="gain", observe="worn,needs care", discount=0.9)
        assert mdp.actions == ("run", "mend", "mend#2", "unlabelled")
        assert mdp.choice_labels == ("run", "mend", "mend", "unlabelled")
        assert mdp.names is not None
        assert mdp.names[0] == "[wear=0 & on=true]"
        assert row(mdp, 0, "run") == [0.9, 0.1, 0.0]
        assert row(mdp, 1, "mend#2") == [0.0, 1.0, 0.0]
        assert mdp.R[mdp.action_mask].tolist() == [3, 2, 2, 1, 1, 0]
        assert mdp.labels is not None
        assert {name: mask.tolist() for name, mask in mdp.labels.items()} == {
            "worn": [False, True, True],
            "needs care": [False, True, False],
        }

    def test_the_other_reward_model(self, tmp_path: Path) -> None:
        mdp = read(tmp_path, MACHINE, reward_model="cost")
        assert mdp.R[mdp.action_mask].tolist() == [0.5, 3.5, 0, 1, 2, 0]
        assert mdp.labels is None

    def test_no_reward_model_observes_all_labels(self, tmp_path: Path) -> None:
        mdp = read(tmp_path, MACHINE, reward_model="")
        assert mdp.labels is not None
        assert list(mdp.labels) == ["worn", "needs care", "broken"]
        assert not mdp.R.any()

    def test_observed_labels_need_no_choice_of_rewards(self, tmp_path: Path) -> None:
        mdp = read(tmp_path, MACHINE, observe=["broken"])
        assert mdp.labels is not None
        assert (list(mdp.labels), bool(mdp.R.any())) == (["broken"], False)

    def test_a_chain(self, tmp_path: Path) -> None:
        mdp = read(tmp_path, CHAIN, discount=0.9)
        assert mdp.actions == ("step",)
        assert mdp.labels is not None
        assert list(mdp.labels) == ["done"]
        assert relation.bisimulation(mdp).tolist() == [0, 1, 1, 2]

    def test_numbered_choices_are_a_set(self, tmp_path: Path) -> None:
        text = MACHINE.replace("action run", "action 0").replace("action mend [3", "action 1 [3")
        text = (
            text.replace("mend [1", "1 [1").replace("mend [2", "2 [2").replace("__NOLABEL__", "0")
        )
        mdp = read(tmp_path, text, reward_model="gain")
        assert mdp.actions == ("0", "1", "2")
        assert mdp.choice_labels == ("unlabelled",) * 3

    def test_deadlocks_get_a_loop_without_a_label(self, tmp_path: Path) -> None:
        text = MACHINE.replace("\taction __NOLABEL__ [0, 0]\n\t\t2 : 1\n", "")
        explicit, implicit = (
            read(tmp_path, each, reward_model="gain", observe="worn") for each in (MACHINE, text)
        )
        assert_equal(explicit, implicit)
        assert_equal(
            implicit, read(tmp_path, text + "\taction x\n", reward_model="gain", observe="worn")
        )

    def test_rewards_without_names(self, tmp_path: Path) -> None:
        mdp = read(tmp_path, CHAIN.replace("state 3 done", "state 3 [2.5] done"))
        assert mdp.R.ravel().tolist() == [0, 0, 0, 2.5]
        assert_equal(
            mdp, read(tmp_path, CHAIN.replace("state 3", "state 3 [2.5]"), reward_model="rew0")
        )

    def test_placeholders(self, tmp_path: Path) -> None:
        text = CHAIN.replace("@reward_models", "@placeholders\n$0 : 0.25\n$1 : 3/4\n@reward_models")
        mdp = read(tmp_path, text.replace(": 1/2", ": $0").replace(": 0.5", ": $1"))
        assert row(mdp, 0, "step") == [0, 0.25, 0.75, 0]

    def test_the_command_line(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        from bisimetric.cli import main

        (tmp_path / "chain.drn").write_text(CHAIN)
        main(["relation", "bisimulation", str(tmp_path / "chain.drn"), "--set", "observe=done"])
        assert "classes    3" in capsys.readouterr().out


MISTAKES = [
    (("@type: MDP", "@type: CTMC"), "line 19: state 0 of a CTMC has a second choice"),
    (("@type: MDP", "@type: Markov Automaton"), "line 3: a Markov automaton cannot be used"),
    (("@type: MDP", "@type: POMDP"), "line 3: a POMDP cannot be used"),
    (("@type: MDP", "@type: SMG"), "line 3: a stochastic game cannot be used"),
    (("@type: MDP", "@type: maze"), "line 3: 'maze' is no type of model"),
    (("@parameters\n", "@parameters\np q"), "line 6: a parametric model cannot be used"),
    (("double", "parametric"), "line 4: a parametric model cannot be used"),
    (("double", "double-interval"), "line 4: intervals of probabilities cannot be used"),
    (("double", "text"), "line 4: 'text' is no type of values"),
    (("@nr_choices", "@nr_things"), "line 11: '@nr_things' is no section"),
    (("@value_type: double", "@type: MDP"), "line 4: @type stands twice"),
    (("\n3\n", "\nthree\n"), "line 10: 'three' is no number of states"),
    (("\n3\n", "\n0\n"), "line 10: says 0 states"),
    (("\n3\n", "\n3\n4\n"), "line 11: '4' does not belong to the header"),
    (("@nr_states\n3\n", ""), "line 11: @model stands before @nr_states"),
    (("\n3\n", "\n4\n"), "@nr_states says 4 states and the file has 3; is it cut off?"),
    (("\n3\n", "\n2\n"), "line 25: there is no state 2; they go from 0 to 1"),
    (("\n6\n", "\n7\n"), "@nr_choices says 7 choices and the file has 6"),
    (("cost gain", "cost cost"), "line 8: two reward models have the same name"),
    (("@model", "@models"), "line 13: '@models' is no section"),
    (("state 1", "state 5"), "line 21: state 5 stands where state 1 must"),
    (("state 1", "state one"), "line 21: 'one' is no state"),
    (("[0.5, 2]", "[0.5, 2"), "line 14: ']' is missing"),
    (("[0.5, 2]", "[0.5]"), "line 14: there are 1 rewards and must be 2"),
    (("[0.5, 2]", "[0.5, two]"), "line 14: 'two' is no reward"),
    (("[0.5, 2]", "[0.5, 1e999]"), "line 14: '1e999' is no reward"),
    (("[0.5, 2]", "!2"), "line 14: a DTMC or an MDP has no exit rates"),
    (('"needs care"', '"needs care'), "line 21: the labels"),
    (("[3, 0]", "[3, 0] x"), "line 19: 'x' stands after the rewards"),
    (("0 : 0.9", "0 : 1.9"), "line 17: 1.9 is no probability"),
    (("0 : 0.9", "0 : -0.1"), "line 17: -0.1 is no probability"),
    (("0 : 0.9", "0 : nan"), "line 17: 'nan' is no probability"),
    (("0 : 0.9", "0 : 1/0"), "line 17: '1/0' is no probability"),
    (("0 : 0.9", "0 : $3"), "line 17: there is no placeholder '$3'"),
    (("0 : 0.9", "0 : [0.8, 0.9]"), "line 17: intervals of probabilities cannot be used"),
    (("0 : 0.9", "7 : 0.9"), "line 17: there is no state 7; they go from 0 to 2"),
    (("0 : 0.9", "0 0.9"), "line 17: '0 0.9' must be 'state ...', 'action ...' or"),
    (("0 : 0.9", "0 : 0.8"), "line 17: the probabilities of choice 0 of state 0 sum to 0.9"),
    (("\t\t0 : 0.9\n\t\t1 : 0.1\n", ""), "line 16: choice 0 of state 0 has no transition"),
]


class TestMistakes:
    @pytest.mark.parametrize(("change", "message"), MISTAKES)
    def test_are_named_with_their_line(
        self, tmp_path: Path, change: tuple[str, str], message: str
    ) -> None:
        assert change[0] in MACHINE
        text = MACHINE.replace(*change, 1)
        with pytest.raises(InputError) as raised:
            read(tmp_path, text, reward_model="gain")
        assert str(raised.value).startswith(f"{tmp_path / 'model.drn'}: ")
        assert message in str(raised.value)
        assert "\n" not in str(raised.value)

    def test_damaged_files_are_read_or_rejected(self, tmp_path: Path) -> None:
        path = tmp_path / "model.drn"

        def mutate(rng: random.Random) -> Callable[[], Any]:
            path.write_bytes(mutate_text(rng, MACHINE.encode()))
            return lambda: repr(worlds.load(path, reward_model="gain"))

        counts = fuzzing.run(range(200), mutate, [str(tmp_path)])
        assert 0 < counts["read"] < sum(counts.values())

    def test_a_second_choice_of_a_chain(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="line 12: state 0 of a DTMC has a second choice"):
            read(tmp_path, CHAIN.replace("\t\t2 : 0.5", "\taction 1\n\t\t2 : 0.5"))

    def test_a_transition_before_the_first_state(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="line 9 stands before the first state"):
            read(tmp_path, CHAIN.replace("state 0 init\n", ""))

    def test_unknown_rewards_and_labels(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"several reward models \(cost, gain\); choose with"):
            read(tmp_path, MACHINE)
        with pytest.raises(InputError, match="no reward model 'gian'; did you mean 'gain'"):
            read(tmp_path, MACHINE, reward_model="gian")
        with pytest.raises(InputError, match="no label 'don'; did you mean 'done'"):
            read(tmp_path, CHAIN, observe="don")
        with pytest.raises(InputError, match="no reward model 'x'; it has none"):
            read(tmp_path, CHAIN, reward_model="x")

    def test_a_missing_or_foreign_file(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="there is no such file"):
            worlds.load(tmp_path / "none.drn")
        with pytest.raises(InputError, match="there is no line '@model'"):
            read(tmp_path, "// nothing\n")
        with pytest.raises(InputError, match="line 1: 'mdp' does not belong to the header"):
            read(tmp_path, "mdp\nmodule x\n")


def assert_equal(first: MDP, second: MDP) -> None:
    assert first.R.shape == second.R.shape
    assert np.array_equal(first.P.toarray(), second.P.toarray())
    assert np.array_equal(first.R, second.R)
    assert np.array_equal(first.action_mask, second.action_mask)
    assert first.names == second.names
    assert first.choice_labels == second.choice_labels
    assert first.label_classes.tolist() == second.label_classes.tolist()


class TestExport:
    @pytest.mark.parametrize("options", [{"observe": "worn,needs care,broken"}, {}])
    def test_an_imported_model_comes_back(self, tmp_path: Path, options: dict[str, Any]) -> None:
        mdp = read(tmp_path, MACHINE, reward_model="gain", **options)
        again = write_and_read(tmp_path, mdp, **options)
        assert_equal(mdp, again)
        assert again.actions == mdp.actions

    def test_a_chain_comes_back(self, tmp_path: Path) -> None:
        mdp = read(tmp_path, CHAIN)
        assert_equal(mdp, write_and_read(tmp_path, mdp))
        assert "@type: DTMC\n" in (tmp_path / "round.drn").read_text()

    @given(mdp=stochastic_mdps(), names=st.booleans(), sets=st.booleans())
    @settings(max_examples=scaled(60), deadline=None)
    def test_any_mdp_comes_back(
        self, tmp_path_factory: pytest.TempPathFactory, mdp: MDP, names: bool, sets: bool
    ) -> None:
        labels = [("even",) if s % 2 else ("odd", "a b") for s in range(mdp.num_states)]
        actions = [f"do {a}" for a in range(mdp.num_actions)]
        mdp = mdp.replace(
            labels=labels,
            names=[f"state {s}" for s in range(mdp.num_states)] if names else None,
            actions=actions,
            choice_labels=["x"] * mdp.num_actions if sets else None,
        )
        again = write_and_read(tmp_path_factory.mktemp("drn"), mdp, observe=list(mdp.labels or ()))
        # Actions are ordered by their first use; those of a set are told by their rank.
        assert relation.bisimulation(mdp).tolist() == relation.bisimulation(again).tolist()
        assert relation.lax(mdp).tolist() == relation.lax(again).tolist()
        assert again.names == mdp.names
        assert mdp.R[mdp.action_mask].tolist() == again.R[again.action_mask].tolist() or not sets
        if mdp.available is None:
            assert_equal(mdp, again)

    def test_numbers_are_exact(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        P = rng.dirichlet(np.full(9, 0.1), size=(9, 2))
        R = rng.normal(size=(9, 2)) * 10.0 ** rng.integers(-300, 300, (9, 2))
        mdp = MDP(P, R, 0.9)
        again = write_and_read(tmp_path, mdp)
        assert again.actions == ("a0", "a1")
        assert_equal(mdp, again)

    def test_the_initial_state(self, tmp_path: Path) -> None:
        mdp = MDP.deterministic([[1], [1]], [[0], [0]], discount=0.9, names=["on", "off"])
        worlds.to_drn(mdp, tmp_path / "x.drn", initial="off")
        assert "state 1 init\n" in (tmp_path / "x.drn").read_text()
        worlds.to_drn(mdp.replace(labels=["init", "init"]), tmp_path / "x.drn")
        assert (tmp_path / "x.drn").read_text().count(" init\n") == 2

    def test_what_cannot_be_written_leaves_the_file(self, tmp_path: Path) -> None:
        mdp = MDP.deterministic([[0, 0]], [[0, 1]], discount=0.9)
        path = tmp_path / "kept.drn"
        path.write_text("kept")
        with pytest.raises(InputError, match="the label 'a\"b' cannot be written"):
            worlds.to_drn(mdp.replace(labels=['a"b']), path)
        with pytest.raises(InputError, match=r"choices \['a b', 'a_b'\] cannot be written"):
            worlds.to_drn(mdp.replace(actions=["a b", "a_b"]), path)
        with pytest.raises(InputError, match="reward_model is 'a b' and must be a name"):
            worlds.to_drn(mdp, path, reward_model="a b")
        with pytest.raises(InputError, match="there is no state 4"):
            worlds.to_drn(mdp, path, initial=4)
        assert path.read_text() == "kept"
        assert len(list(tmp_path.iterdir())) == 1


class TestQuotient:
    @pytest.mark.parametrize("kind", ["bisimulation", "lax"])
    def test_a_quotient_is_written_and_its_values_are_lifted(
        self, tmp_path: Path, kind: str
    ) -> None:
        mdp = worlds.load("duplicated-grid", discount=0.9)
        classes = getattr(relation, kind)(mdp)
        small = write_and_read(tmp_path, relation.quotient(mdp, classes))
        assert small.num_states == classes.max() + 1 < mdp.num_states
        values, lifted = planning.optimal_values(mdp), planning.optimal_values(small)
        error = values.error + lifted.error
        assert np.abs(values.values - lifted.values[classes]).max() <= error

    def test_distances_of_the_quotient_are_lifted(self, tmp_path: Path) -> None:
        mdp = read(tmp_path, CHAIN, discount=0.9)
        classes = relation.bisimulation(mdp)
        small = write_and_read(tmp_path, relation.quotient(mdp, classes))
        d, lifted = exact.bisimulation(mdp), exact.bisimulation(small)
        difference = np.abs(d.values - lifted.values[np.ix_(classes, classes)])
        assert difference.max() <= d.error + lifted.error


def test_programs_need_stormpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stormpy", None)
    for ending in ("prism", "nm", "pm", "sm", "jani", "umb"):
        path = tmp_path / f"model.{ending}"
        path.write_text("mdp\nmodule m\nx : [0..1];\nendmodule\n")
        with pytest.raises(InputError, match="needs stormpy, which is not installed; pip install"):
            worlds.load(path)
    with pytest.raises(InputError, match="there is no such file"):
        worlds.load(tmp_path / "none.nm")
    with pytest.raises(InputError, match="to_stormpy: this needs stormpy"):
        worlds.to_stormpy(MDP.deterministic([[0]], [[0]], discount=0.9))
    with pytest.raises(InputError, match="is of type dict and must be a sparse DTMC, CTMC or MDP"):
        worlds.from_stormpy({})


def test_arrays_and_single_lines_are_read_alike(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.full(60, 0.05), size=(60, 3))
    P[np.arange(60), 0] = np.eye(60)  # one successor
    mdp = MDP(P, rng.integers(3, size=(60, 3)), 0.9, labels={"x": rng.random(60) < 0.5})
    worlds.to_drn(mdp, tmp_path / "model.drn")
    text = (tmp_path / "model.drn").read_text()
    assert len(text) > 2 * text_parser.MIN_COMPILED_BYTES  # compiled kernels read it
    found = read(tmp_path, text, observe="x")
    assert abs(found.P - mdp.P).max() == 0
    for old, new in ((" : ", ":"), (" : ", "  :\t"), ("\n", "\r\n"), ("\t\t", " ")):
        again = read(tmp_path, text.replace(old, new), observe="x")
        assert abs(again.P - found.P).max() == 0
        assert np.array_equal(again.R, found.R)
        assert again.label_classes.tolist() == found.label_classes.tolist()
    lines = text.splitlines()
    last = max(number for number, line in enumerate(lines, 1) if " : " in line)
    lines[last - 1] = "\t\t99 : 0.5"
    with pytest.raises(InputError, match=f"line {last}: there is no state 99"):
        read(tmp_path, "\n".join(lines))


def test_blocks_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = read(tmp_path, MACHINE, reward_model="gain")
    for size in (1, 7, 40, 200):
        monkeypatch.setattr(text_parser, "BLOCK_BYTES", size)
        found = read(tmp_path, MACHINE, reward_model="gain")
        assert_equal(found, expected)
        assert found.names == expected.names
