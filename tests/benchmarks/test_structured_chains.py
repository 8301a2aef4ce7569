"""The layered chains of the benchmark: the sizes that Storm reports for the PRISM models."""

from __future__ import annotations

import pytest

from bisimetric import MDP, exact, relation
from structured_chains import crowds, nand_multiplexing


@pytest.mark.parametrize(
    ("mdp", "classes"),
    [(nand_multiplexing(5, 2), 1_049), (crowds(5, 5), 2_149)],
    ids=["nand-5-2", "crowds-5-5"],
)
def test_chains_have_the_classes_of_the_prism_models(mdp: MDP, classes: int) -> None:
    assert relation.bisimulation(mdp).max() + 1 == classes


def test_multiplexing_needs_no_evaluation_and_crowds_few() -> None:
    d = exact.bisimulation(nand_multiplexing(3, 1))
    assert d.metadata["levels"] > 50
    assert d.metadata["rounds"] == 0
    e = exact.bisimulation(crowds(3, 2))
    assert e.metadata["levels"] > 10
    assert 0 < e.metadata["rounds"] < 20
