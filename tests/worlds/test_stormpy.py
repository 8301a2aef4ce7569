"""Storm as the oracle: it reads what is written, and finds the same classes and values."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import planning, relation, worlds
from bisimetric.errors import InputError, MissingActionsWarning
from bisimetric.mdp import MDP
from tests.worlds.test_ctmc import random_rates, write

stormpy = pytest.importorskip("stormpy", reason="the oracle of this module is stormpy 2")

FILES = Path(stormpy.__file__).parent / "examples" / "files"
MODELS = [
    "dtmc/die.pm",
    "dtmc/brp-16-2.pm",
    "dtmc/leader-3-5.pm",
    "mdp/two_dice.nm",
    "mdp/coin2-2.nm",
    "mdp/leader3.nm",
    "mdp/slipgrid.nm",
    "mdp/maze_2.nm",
    "mdp/die_selection.nm",
]


def build(path: Path, *, choice_labels: bool = True, rewards: bool = True) -> Any:
    options = stormpy.BuilderOptions()
    options.set_build_all_labels(True)
    options.set_build_choice_labels(choice_labels)
    options.set_build_all_reward_models(rewards)
    return stormpy.build_model(stormpy.parse_prism_program(str(path)), options=options)


def minimise(model: Any) -> Any:
    """Return Storm's quotient by strong bisimulation that preserves all labels."""
    tools = stormpy.transformations
    options = tools.BisimulationOptions()
    options.bisimulation_type = tools.BisimulationType.STRONG
    options.action_sensitive = False
    options.preserve_all_rewards = False
    options.state_label_preservation = tools.StateLabelPreservation.ALL
    return tools.perform_bisimulation(model, [], options=options)


def labels_of(model: Any) -> list[str]:
    """Return the labels that some state has; no others are written."""
    labels = model.labeling
    return sorted(each for each in labels.get_labels() if list(labels.get_states(each)))


def assert_equal(first: MDP, second: MDP, tol: float = 0.0) -> None:
    assert first.R.shape == second.R.shape
    assert abs(first.P - second.P).max() <= tol
    assert np.abs(first.R - second.R).max() <= tol
    assert np.array_equal(first.action_mask, second.action_mask)
    assert first.choice_labels == second.choice_labels
    assert first.label_classes.tolist() == second.label_classes.tolist()


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingActionsWarning)
        yield


@pytest.mark.parametrize("name", MODELS)
class TestShippedModels:
    def test_files_programs_and_models_agree(self, tmp_path: Path, name: str) -> None:
        model = build(FILES / name)
        options: dict[str, Any] = {"observe": labels_of(model)}
        mdp = worlds.from_stormpy(model, **options)
        assert mdp.num_states == model.nr_states
        assert_equal(mdp, worlds.load(FILES / name, **options))
        stormpy.io.export_to_drn(model, str(tmp_path / "storm.drn"))
        # Storm prints 10 digits or so.
        assert_equal(mdp, worlds.load(tmp_path / "storm.drn", **options), tol=1e-9)

    def test_umb_files(self, tmp_path: Path, name: str) -> None:
        model = build(FILES / name)
        stormpy.io.export_to_umb(model, str(tmp_path / "model.umb"))
        options: dict[str, Any] = {"observe": labels_of(model)}
        mdp = worlds.from_stormpy(model, **options)
        assert_equal(mdp, worlds.load(tmp_path / "model.umb", **options))

    def test_storm_reads_what_is_written(self, tmp_path: Path, name: str) -> None:
        model = build(FILES / name)
        options: dict[str, Any] = {"observe": labels_of(model)}
        mdp = worlds.from_stormpy(model, **options)
        again = worlds.to_stormpy(mdp)
        assert (again.nr_states, again.nr_choices) == (model.nr_states, model.nr_choices)
        assert again.nr_transitions == model.nr_transitions
        assert labels_of(again) == labels_of(model)
        assert_equal(mdp, worlds.from_stormpy(again, **options))

    @pytest.mark.parametrize("choice_labels", [False, True])
    def test_storm_finds_the_same_classes(self, name: str, choice_labels: bool) -> None:
        # Storm compares the choice labels of a DTMC too; here its only action is "step".
        choice_labels = choice_labels and name.startswith("mdp")
        model = build(FILES / name, choice_labels=choice_labels, rewards=False)
        mdp = worlds.from_stormpy(model, observe=labels_of(model))
        classes = relation.bisimulation(mdp) if choice_labels else relation.lax(mdp)
        assert classes.max() + 1 == minimise(model).nr_states
        assert classes.max() + 1 == minimise(worlds.to_stormpy(mdp)).nr_states
        quotient = worlds.to_stormpy(relation.quotient(mdp, classes))
        assert classes.max() + 1 == quotient.nr_states == minimise(quotient).nr_states

    def test_storm_finds_the_same_values_in_the_quotient(self, name: str) -> None:
        model = build(FILES / name, choice_labels=False, rewards=False)
        mdp = worlds.from_stormpy(model, observe=labels_of(model))
        classes = relation.lax(mdp)
        quotient = worlds.to_stormpy(relation.quotient(mdp, classes))
        query = "P" if model.model_type.name == "DTMC" else "Pmax"
        for label in labels_of(model):
            [formula] = stormpy.parse_properties(f'{query}=? [F "{label}"]')
            whole, small = (
                np.array(stormpy.model_checking(each, formula).get_value_vector())
                for each in (model, quotient)
            )
            assert np.abs(whole - small[classes]).max() < 1e-5  # Storm's own precision is 1e-6


def test_numbers_are_exact() -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.full(9, 0.1), size=(9, 2))
    mdp = MDP(P, rng.normal(size=(9, 2)) * 10.0 ** rng.integers(-99, 99, (9, 2)), 0.9)
    assert_equal(mdp, worlds.from_stormpy(worlds.to_stormpy(mdp)))


def test_values_of_a_quotient_with_rewards() -> None:
    model = build(FILES / "mdp/two_dice.nm")
    mdp = worlds.from_stormpy(model, reward_model="coinflips", discount=0.9)
    classes = relation.lax(mdp)
    small = worlds.from_stormpy(worlds.to_stormpy(relation.quotient(mdp, classes)), discount=0.9)
    values, lifted = planning.optimal_values(mdp), planning.optimal_values(small)
    difference = np.abs(values.values - lifted.values[classes]).max()
    assert difference <= values.error + lifted.error


def test_rewards_of_transitions_and_exact_values(tmp_path: Path) -> None:
    path = tmp_path / "coin.prism"
    path.write_text(
        "dtmc\nconst int N;\nmodule m\nx : [0..N] init 0;\n"
        "[go] x=0 -> 1/3:(x'=1) + 2/3:(x'=N);\n[] x>0 -> (x'=x);\nendmodule\n"
        'rewards "flips"\n[go] true : 3;\nx=1 : 5;\nendrewards\n'
    )
    mdp = worlds.load(path, constants="N=2", discount=0.9)
    assert mdp.R.ravel().tolist() == [3, 5, 0]
    program, _ = stormpy.instantiate_constants(stormpy.parse_prism_program(str(path)), "N=2")
    rational = stormpy.build_model[stormpy.Rational](program)
    assert np.array_equal(worlds.from_stormpy(rational).P.toarray(), mdp.P.toarray())
    with pytest.raises(InputError, match=r"stormpy cannot build the model .* constants="):
        worlds.load(path)


@pytest.mark.parametrize(
    "name", ["cluster2.sm", "fms2.sm", "polling2.sm", "tandem5.sm", "tiny.sm", "dft.drn"]
)
def test_storm_finds_the_same_classes_of_ctmcs(name: str, tmp_path: Path) -> None:
    path = FILES / "ctmc" / name
    if name.endswith(".drn"):
        model = stormpy.build_model_from_drn(str(path))
    else:
        options = stormpy.BuilderOptions()
        options.set_build_all_labels(True)
        options.set_build_all_reward_models(False)
        program = stormpy.parse_prism_program(str(path), prism_compatibility=True)
        model = stormpy.build_model(program, options=options)
    observe = [*labels_of(model), "exit_rate"]
    classes = relation.bisimulation(worlds.from_stormpy(model, observe=observe))
    assert classes.max() + 1 == minimise(model).nr_states
    stormpy.io.export_to_drn(model, str(tmp_path / "model.drn"))
    # Storm prints 10 digits or so, and each exit rate is a label.
    mdp, again = (
        worlds.load(each, observe=labels_of(model), reward_model="")
        for each in (path, tmp_path / "model.drn")
    )
    assert_equal(mdp, again, tol=1e-9)
    assert relation.bisimulation(again).tolist() == relation.bisimulation(mdp).tolist()


def test_random_ctmcs_have_storms_classes(tmp_path: Path) -> None:
    different = 0
    for seed in range(25):
        rates, labels = random_rates(np.random.default_rng(seed))
        labels[0] += " init"
        path = write(tmp_path / "model.drn", rates, labels)
        model = stormpy.build_model_from_drn(str(path))
        observe = [each for each in labels_of(model) if each != "init"]
        rated, plain = (
            relation.bisimulation(worlds.load(path, observe=[*observe, *more]))
            for more in (["exit_rate"], [])
        )
        assert rated.max() + 1 == minimise(model).nr_states
        different += int(plain.max() < rated.max())
    assert different > 0


def test_broken_umb_files(tmp_path: Path) -> None:
    path = tmp_path / "model.umb"
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match="stormpy cannot build the model"):
        worlds.load(path)
    with pytest.raises(InputError, match="a UMB file has no constants"):
        worlds.load(path, constants="N=2")


def test_a_jani_model() -> None:
    mdp = worlds.load(FILES / "dtmc" / "die.jani", reward_model="")
    assert mdp.num_states == 13


def test_other_models_are_refused(tmp_path: Path) -> None:
    die = stormpy.parse_prism_program(str(FILES / "pdtmc" / "parametric_die.pm"))
    with pytest.raises(InputError, match="a parametric model cannot be used"):
        worlds.from_stormpy(stormpy.build_model[stormpy.RationalFunction](die))
    symbolic = stormpy.build_symbolic_model(stormpy.parse_prism_program(str(FILES / MODELS[0])))
    with pytest.raises(InputError, match="must be a sparse DTMC, CTMC or MDP"):
        worlds.from_stormpy(symbolic)
