"""Labels as part of an MDP: validation, and what keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, Distance, InputError, exact, relation, uses
from bisimetric.mdp import StateLabels

CHAIN = MDP.deterministic(
    [[1], [2], [2]], [[0], [0], [0]], discount=0.5, labels=["a", {"a", "b"}, ()]
)


def sets(mdp: MDP) -> list[set[str]]:
    assert mdp.labels is not None
    return [set(mdp.labels.of(s)) for s in range(mdp.num_states)]


def test_masks_and_sets_are_the_same_labels() -> None:
    assert sets(CHAIN) == [{"a"}, {"a", "b"}, set()]
    masks = {"a": [True, True, False], "b": np.array([False, True, False])}
    assert sets(CHAIN.replace(labels=masks)) == sets(CHAIN)
    assert CHAIN.label_classes.tolist() == [0, 1, 2]
    assert CHAIN.replace(labels=None).label_classes.tolist() == [0, 0, 0]
    assert not CHAIN.replace(labels={"a": [True] * 3}).has_labels
    assert repr(CHAIN) == "MDP(3 states, 1 action, deterministic, discount 0.5, 2 labels)"
    assert "a; b" in CHAIN._repr_html_()


def test_they_are_read_only() -> None:
    assert CHAIN.labels is not None
    with pytest.raises(ValueError, match="read-only"):
        CHAIN.labels["a"][0] = False
    with pytest.raises(KeyError, match="no label 'aa'; did you mean 'a'"):
        CHAIN.labels["aa"]
    assert repr(CHAIN.labels) == "StateLabels(a: 2, b: 1)"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"a": [1, 0, 1]}, r"labels\['a'\] is int64 of shape \(3,\) and must be bool"),
        ({"a": [True]}, r"labels\['a'\] is bool of shape \(1,\)"),
        (["a"], "there are 1 label sets and must be 3"),
        ("abc", "labels are of type str and must be a mapping"),
        ([1, 2, 3], "labels are of type list and must be a mapping"),
        ([(1,), (), ()], "labels are of type list and must be a mapping"),
        (7, "labels are of type int"),
    ],
)
def test_invalid_labels_raise(labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        CHAIN.replace(labels=labels)


@pytest.mark.parametrize("given", ["ab", ["a"], ["a"] * 3])
def test_invalid_choice_labels_raise(given: Any) -> None:
    with pytest.raises(InputError, match=r"choice_labels are .* must be 2 strings, one per action"):
        MDP.deterministic([[0, 0]], [[0, 0]], discount=0.5, choice_labels=given)


def test_different_choice_labels_are_as_none() -> None:
    mdp = MDP.deterministic([[0, 0]], [[0, 0]], discount=0.5, choice_labels=["a", "b"])
    assert mdp.choice_labels is None
    assert mdp.choice_groups.tolist() == [0, 1]


def test_the_diameter_bound() -> None:
    assert CHAIN.diameter_bound == 2
    assert CHAIN.replace(labels=None).diameter_bound == 0
    assert CHAIN.replace(R=[[0], [0], [3]]).diameter_bound == 6


def test_files_quotients_unions_and_chains_keep_them(tmp_path: Path) -> None:
    shared = MDP.deterministic(
        [[1, 0], [1, 1]],
        [[0, 0], [0, 0]],
        discount=0.5,
        labels=["a", "b"],
        choice_labels=["x", "x"],
    )
    exact.bisimulation(shared).save(tmp_path / "d.npz")
    loaded = Distance.load(tmp_path / "d.npz").mdp
    assert sets(loaded) == [{"a"}, {"b"}]
    assert loaded.choice_labels == ("x", "x")
    exact.bisimulation(CHAIN.replace(labels=None)).save(tmp_path / "plain.npz")
    assert "label_masks" not in np.load(tmp_path / "plain.npz")
    assert Distance.load(tmp_path / "plain.npz").mdp.labels is None

    small = relation.quotient(CHAIN, [0, 1, 1])
    assert sets(small) == [{"a"}, {"a", "b"}]
    assert sets(shared.apply_policy([0, 1])) == [{"a"}, {"b"}]
    assert shared.apply_policy([0, 1]).choice_labels is None

    union = uses.disjoint_union(CHAIN, CHAIN.replace(labels=["c", (), ()]))
    assert sets(union) == [{"a"}, {"a", "b"}, set(), {"c"}, set(), set()]
    assert uses.disjoint_union(shared, shared).choice_labels == ("x", "x")
    other = shared.replace(choice_labels=["x", "y"])
    with pytest.raises(InputError, match="action 0 has the choice label '0' in one MDP and 'x'"):
        uses.disjoint_union(shared, other)


def test_two_labelled_models_are_compared_by_their_union() -> None:
    biased = MDP([[[0, 0.6, 0.4]], [[0, 1, 0]], [[0, 0, 1]]], np.zeros((3, 1)), discount=0.9)
    labels = [(), "heads", "tails"]
    fair = biased.replace(P=np.array([[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]]), labels=labels)
    d = exact.bisimulation(uses.disjoint_union(fair, biased.replace(labels=labels)))
    assert 0.1 * d("source 0", "target 0") == pytest.approx(0.09, abs=d.error)
    assert d("source 1", "target 1") == pytest.approx(0, abs=d.error)


def test_a_file_with_wrong_masks_raises(tmp_path: Path) -> None:
    exact.bisimulation(CHAIN).save(tmp_path / "d.npz")
    found = dict(np.load(tmp_path / "d.npz"))
    np.savez(tmp_path / "wrong.npz", **{**found, "label_masks": found["label_masks"][:, :2]})
    with pytest.raises(InputError, match="label_masks"):
        Distance.load(tmp_path / "wrong.npz")


def test_explanations_name_the_labels() -> None:
    d = exact.bisimulation(CHAIN)
    assert "0 has label a and 1 has labels a, b: the largest possible distance" in str(
        d.explain(0, 1)
    )
    text = str(exact.lax(CHAIN).explain(0, 2))
    assert "0 has label a and 2 has no label: the largest possible distance" in text
    path = MDP.deterministic(
        [[2], [3], [2], [3]], np.zeros((4, 1)), discount=0.5, labels=[(), (), "x", ()]
    )
    text = str(exact.bisimulation(path).explain(0, 1))
    assert "then 2 has label x and 3 has no label: the largest possible distance" in text


def test_labels_of_a_subset_of_states() -> None:
    labels = StateLabels({"a": np.array([True, False])}, 2)
    assert "a" in labels
    assert len(labels) == 1
