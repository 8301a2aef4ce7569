"""Actions that encode labels: d_lax and the lax relation must not match them with others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, Distance, InputError, exact, relation, uses, worlds
from bisimetric.cli import main
from bisimetric.exact import query
from bisimetric.uses.policy_transfer import _disjoint_union

# Two absorbing states with different labels, and one that leads to either.
MODEL = "3 4\n0 1 0.5\n0 2 0.5\n1 1 1\n2 2 1\n"
LABELS = '0="init" 1="goal" 2="fail"\n0: 0\n1: 1\n2: 2\n'
COMPLAINT = "the actions label goal, label fail encode labels of states.*; use bisimulation"


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MDP:
    monkeypatch.chdir(tmp_path)
    Path("model.tra").write_text(MODEL)
    Path("model.lab").write_text(LABELS)
    return worlds.from_prism("model.tra", discount=0.9)


def test_labels_distinguish_absorbing_states(model: MDP) -> None:
    assert model.label_actions == (1, 2)
    d = exact.bisimulation(model)
    assert d(1, 2) == pytest.approx(10, abs=d.error)
    unmarked = model.replace(label_actions=())
    assert exact.lax(unmarked)(1, 2) <= 1e-6  # what is to be prevented


LAX: list[Callable[[MDP], Any]] = [
    exact.lax,
    relation.lax,
    lambda mdp: query(mdp, [(1, 2)], kind="lax"),
    lambda mdp: uses.transfer(mdp, mdp),
    lambda mdp: uses.transfer(mdp, mdp, exact.bisimulation(uses.disjoint_union(mdp, mdp))),
    lambda mdp: uses.transfer(mdp.replace(label_actions=()), mdp),
    lambda mdp: _disjoint_union.solve_lax(uses.disjoint_union(mdp, mdp)),
    lambda mdp: exact.lax(uses.disjoint_union(mdp, mdp.replace(label_actions=()))),
    lambda mdp: exact.lax(mdp.replace(discount=0.5)),
    lambda mdp: exact.lax(relation.quotient(mdp, relation.bisimulation(mdp))),
]


@pytest.mark.parametrize("compute", LAX)
def test_whatever_computes_d_lax_raises(compute: Callable[[MDP], Any], model: MDP) -> None:
    with pytest.raises(InputError, match=COMPLAINT):
        compute(model)


def test_a_file_remembers_them(model: MDP) -> None:
    exact.bisimulation(model).save("d.npz")
    assert Distance.load("d.npz").mdp.label_actions == (1, 2)
    with pytest.raises(InputError, match=COMPLAINT):
        exact.lax(Distance.load("d.npz").mdp)
    exact.bisimulation(worlds.load("pessimism")).save("plain.npz")
    assert "label_actions" not in np.load("plain.npz")
    assert Distance.load("plain.npz").mdp.label_actions == ()


def test_a_chain_has_none(model: MDP) -> None:
    assert model.apply_policy([0, 0, 0]).label_actions == ()
    assert exact.lax(model.apply_policy([0, 0, 0])).error <= 1e-6


def test_without_labels_d_lax_is_as_ever() -> None:
    mdp = worlds.from_prism("model.tra", observe=[], discount=0.9)
    assert mdp.label_actions == ()
    assert exact.lax(mdp)(1, 2) <= 1e-6


def test_a_union_keeps_them_where_they_are() -> None:
    ours = MDP.deterministic([[0, 0]], [[0, 1]], discount=0.5, actions=["go", "x"])
    theirs = MDP.deterministic(
        [[0, 0]], [[1, 0]], discount=0.5, actions=["label y", "go"], label_actions=[0]
    )
    pair = uses.disjoint_union(ours, theirs)
    assert [pair.action_name(a) for a in pair.label_actions] == ["x/label y"]


@pytest.mark.parametrize("given", [[2], [-1], [0, 0], [0.5], ["x"], 3, [None], [float("inf")]])
def test_invalid_label_actions_raise(given: Any) -> None:
    with pytest.raises(InputError, match=r"label_actions are .* distinct actions from 0 to 1"):
        MDP.deterministic([[0, 0]], [[0, 1]], discount=0.5, label_actions=given)


@pytest.mark.parametrize(
    "words",
    [
        "exact lax model.tra -o d.npz",
        "exact lax model.tra --set observe=goal,fail --pairs 1 2",
        "relation lax model.tra -o d.npz",
        "uses transfer model.tra model.tra -o d.npy",
        "uses transfer model.tra model.tra --kind bisimulation -o d.npy",
    ],
)
def test_a_command_reports_it_in_one_line(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    err = capsys.readouterr().err.strip()
    assert "encode labels of states" in err
    assert "use bisimulation" in err
    assert "\n" not in err
    assert not list(Path().glob("d.np*"))
