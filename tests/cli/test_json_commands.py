"""Each command with `--json` prints one object that holds the numbers of its report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bisimetric import (
    Distance,
    Transitions,
    datasets,
    exact,
    relation,
    sampled,
    uses,
    worlds,
)
from bisimetric.cli._main import COMMANDS, TEXT_ONLY
from bisimetric.exact import sharded
from bisimetric.learned import LearnedDistance
from bisimetric.paper import algorithms, claims, gridworld, loss_benchmark, theory_claims
from tests.commands import Run
from tests.learned_references import compile_quickly  # noqa: F401 - a fixture
from tests.paper.test_algorithms import TINY

pytestmark = pytest.mark.usefixtures("compile_quickly")

WORLD, DISCOUNT = "mirrored-rooms-policy", 0.9
GIVEN = (WORLD, "--discount", "0.9")
TRAINING = "--hidden 8 --batch-size 8 --updates 20 --log-every 10 --target-update-period 10"

Found = dict[str, Any]


class Case(NamedTuple):
    """A small command line, the numbers that it must report, and their comparison.

    Attributes:
        words: the arguments of the command.
        numbers: paths of numbers, or of nonempty lists of numbers, in the object.
        check: compares the object with the result of the library.
    """

    words: tuple[str, ...]
    numbers: str
    check: Callable[[Found], None]


def load_mdp() -> Any:
    return worlds.load(WORLD, discount=DISCOUNT)


def same_matrix(compute: Callable[..., Distance], **options: Any) -> Callable[[Found], None]:
    """Compare the largest distance and the error with those of the library."""

    def check(found: Found) -> None:
        d = compute(load_mdp(), **options)
        assert found["largest"]["distance"] == pytest.approx(d.values.max(), abs=1e-12)
        assert found["error"]["bound"] == pytest.approx(d.error, rel=1e-6)

    return check


def same_labels(compute: Callable[[Any], Any]) -> Callable[[Found], None]:
    def check(found: Found) -> None:
        labels = compute(load_mdp())
        assert found["labels"] == labels.tolist()
        assert found["sizes"] == np.bincount(labels).tolist()
        assert found["classes"] == labels.max() + 1

    return check


def same_network(found: Found) -> None:
    metric = LearnedDistance.load("d.safetensors")
    assert found["updates"] == metric.metadata["updates"] == 20
    assert found["loss"] == float(np.mean(metric.history["loss"][..., -1]))
    assert found["largest"]["distance"] == pytest.approx(metric.values.max(), rel=1e-5)
    assert found["reference"]["error"] > 0


def same_fields(result: Any, found: Found, *names: str) -> None:
    for name in names:
        expected = getattr(result, name)
        assert found[name] == pytest.approx(np.asarray(expected), abs=1e-12), name


def check_worlds(found: Found) -> None:
    assert {name: each["discount"] for name, each in found.items()} == {
        world.name: world.discount for world in worlds.describe()
    }


def check_recorded(found: Found) -> None:
    data = Transitions.load("episodes.npz")
    d = exact.recorded(data, discount=0.9, reward_range=(-1, 1), tol=3.0)
    assert found["largest"]["distance"] == d.values.max()
    assert found["error"]["bound"] == d.error
    assert found["steps"] == {"recorded": len(data), "left_out": d.metadata["left_out"]}


def check_undiscounted(found: Found) -> None:
    d = exact.undiscounted(worlds.load("coins.tra", observe="heads"))
    assert found["error"]["bound"] == pytest.approx(d.error, rel=1e-6)
    assert (found["largest"]["distance"], found["classes"]) == (1, 3)


def check_aggregate(found: Found) -> None:
    d = Distance.load("d.npz")
    result = uses.aggregate(d.mdp, d, clusters=4)
    same_fields(result, found, "radius", "regret_bound", "regret", "value_bound", "labels")
    assert (found["distance"], found["rule"]) == ("bisimulation", "incremental")


def check_bonus(found: Found) -> None:
    assert np.shape(found["visited"])[:2] == (3, 2)
    assert found["num_reachable"] == 31


def check_compress(found: Found) -> None:
    result = uses.compress(Transitions.load("data.npz"), Distance.load("lake.npz"), 0.5)
    same_fields(result, found, "radius", "value_bound", "value_gap", "value_gap_error")
    assert found["kept"] == len(result.indices)
    assert found["bound"] == {"value": result.value_bound}


def check_embed(found: Found) -> None:
    result = uses.embed(Distance.load("d.npz"), 2)
    same_fields(result, found, "stress", "coordinates")
    assert found["distortion"] == [result.contraction, result.expansion]


def check_transfer(found: Found) -> None:
    assert found["source"]["states"] == 31
    assert found["target"]["states"] == len(found["policy"])
    assert found["max_regret"] <= found["max_regret_bound"] + 1e-9


def check_rollout(found: Found) -> None:
    data = Transitions.load("steps.npz")
    assert found["data"]["steps"] == len(data) == 100
    assert found["rewards"] == [data.rewards.min(), data.rewards.max()]
    assert found["episodes"]["terminated"] == data.terminated.sum()


def check_explain(found: Found) -> None:
    explanation = Distance.load("d.npz").explain("1,5", "5,5")
    same_fields(explanation, found, "distance", "total", "value_gap")
    gaps = [step.reward_gap for step in explanation.steps]
    assert [step["reward_gap"] for step in found["steps"]] == gaps


def check_show(found: Found) -> None:
    d = Distance.load("d.npz")
    assert found["largest"]["distance"] == d.values.max()
    near = [value for _, value in d.nearest("4,3", 2)]
    assert [each["distance"] for each in found["nearest"]] == near


def check_view(found: Found) -> None:
    assert found["states"] == {"total": 31, "shown": 31}
    assert found["size"]["bytes"] == Path("page.html").stat().st_size


def check_asynchronous(found: Found) -> None:
    bounds = exact.asynchronous(load_mdp(), updates=2_000)
    lower, upper = bounds.bounds("1,5", "5,5")
    assert found["pair"] == [{"states": ["1,5", "5,5"], "lower": lower, "upper": upper}]
    assert found["width"]["largest"] == bounds.max_width


def check_playground(found: Found) -> None:
    assert found["size"]["bytes"] == Path("page.html").stat().st_size


def check_confidence_bounds(found: Found) -> None:
    data = Transitions.load("data.npz")
    bounds = exact.confidence_bounds(data, reward_range=(0, 1), discount=0.5)
    lower, upper = bounds.bounds(0, 1)
    names = [bounds.mdp.state_name(0), bounds.mdp.state_name(1)]
    assert found["pair"] == [{"states": names, "lower": lower, "upper": upper}]
    assert found["width"]["mean"] == bounds.metadata["mean_width"]


def check_abstraction(found: Found) -> None:
    mdp = load_mdp()
    sizes = {
        "bisimulation": relation.bisimulation(mdp),
        "q-pi": relation.q_pi_irrelevance(mdp),
        "q-star": relation.q_star_irrelevance(mdp),
        "a-star": relation.a_star_irrelevance(mdp),
        "pi-star": relation.pi_star_irrelevance(mdp),
    }
    assert found["classes"] == {name: int(labels.max()) + 1 for name, labels in sizes.items()}


def check_distinguish(found: Found) -> None:
    mdp = load_mdp()
    for entry, pair in zip(found["pairs"], [("1,5", "5,5"), ("1,1", "1,2")], strict=True):
        witness = relation.distinguish(mdp, *pair)
        assert entry == {
            "states": list(pair),
            "formula": str(witness.formula),
            "depth": witness.formula.depth,
            "values": list(witness.values),
        }


def check_algorithms(found: Found) -> None:
    rows = algorithms.tabulate(algorithms.load_curves("algorithms"))
    assert [run["algorithm"] for run in found["runs"]] == ["pair-q-learning", "castro2020"]
    for run, row in zip(found["runs"], rows, strict=True):
        assert {name: run[name] for name in row._fields} == row._asdict()


def check_losses(found: Found) -> None:
    rows = loss_benchmark.read_rows(Path("losses/results.csv"))
    records = loss_benchmark.tabulate(rows)
    assert [record["readout"] for record in found["summary"]] == [
        "untrained", "untrained", "constant", "constant",
    ]  # fmt: skip
    for shown, record in zip(found["summary"], records, strict=True):
        assert shown["own_scaled_error"] == pytest.approx(record["own_scaled_error"], rel=1e-4)


def check_claims(found: Found) -> None:
    listed = {claim.name: claim for claim in claims.load_claims()}
    assert list(found["claims"]) == list(listed)
    record = claims.load_record()
    for name, shown in found["claims"].items():
        assert shown["measured"] is (listed[name].outcome == "check_on_policy")
        assert shown["verdict"] == claims.find_outcome(listed[name], record).verdict
    assert any(shown["measured"] for shown in found["claims"].values())


def check_convergence(found: Found) -> None:
    record = json.loads(Path("convergence/convergence.json").read_text())
    assert found["lemma_holds"] is True
    rows = {(row["kind"], row["sampler"]) for row in found["samplers"]}
    kinds = ("bisimulation", "on_policy")
    assert rows == {(kind, name) for kind in kinds for name in record[kind]["samplers"]}
    for row in found["samplers"]:
        stored = record[row["kind"]]["samplers"][row["sampler"]]
        assert row["steps_to_target"] == stored["mean"]
        assert row["half_interval"] == stored["half_interval"]
    for kind, lemma in found["lemma"].items():
        assert lemma["max_excess"] == record[kind]["max_excess"]


def check_gridworld(found: Found) -> None:
    curves = gridworld.load_curves("gridworld")
    rows = [row._asdict() for each in curves.values() for row in gridworld.tabulate(each)]
    assert found["errors"] == rows
    assert found["parts"]["policy"]["seconds"] == curves["policy"].metadata["seconds"]


MATRIX = "world.states largest.distance error.bound seconds"
LEARNED = "loss updates seconds horizon.covered network.features reference.error quality.residual"
CASES = {
    "worlds": Case((), "pessimism.discount", check_worlds),
    "exact bisimulation": Case(GIVEN, f"{MATRIX} classes", same_matrix(exact.bisimulation)),
    "exact on-policy": Case(GIVEN, f"{MATRIX} classes", same_matrix(exact.on_policy)),
    "exact lax": Case(GIVEN, f"{MATRIX} classes", same_matrix(exact.lax)),
    "exact mico": Case(GIVEN, MATRIX, same_matrix(exact.mico)),
    "exact asynchronous": Case(
        (*GIVEN, "--updates", "2k", "--pairs", "1,5", "5,5"),
        "world.states width.mean updates seconds",
        check_asynchronous,
    ),
    "exact confidence-bounds": Case(
        ("data.npz", "--discount", "0.5", "--reward-range", "0", "1", "--pairs", "0", "1"),
        "samples.median assumed.num_states width.mean vacuous confidence seconds",
        check_confidence_bounds,
    ),
    "exact recorded": Case(
        ("episodes.npz", "--discount", "0.9", "--reward-range", "-1", "1", "--tol", "3"),
        f"{MATRIX} steps.recorded steps.left_out",
        check_recorded,
    ),
    "exact reduced-mico": Case(GIVEN, f"{MATRIX} classes", same_matrix(exact.reduced_mico)),
    "exact undiscounted": Case(
        ("coins.tra", "--set", "observe=heads"), f"{MATRIX} classes", check_undiscounted
    ),
    "relation bisimulation": Case(GIVEN, "classes labels", same_labels(relation.bisimulation)),
    "relation on-policy": Case(
        GIVEN, "classes labels", same_labels(lambda mdp: relation.on_policy(mdp, mdp.policy))
    ),
    "relation lax": Case(GIVEN, "classes labels", same_labels(relation.lax)),
    "relation robust": Case(GIVEN, "classes labels", same_labels(relation.robust)),
    "relation abstraction": Case(GIVEN, "classes.q-star", check_abstraction),
    "relation distinguish": Case(
        (*GIVEN, "--pairs", "1,5", "5,5", "--pairs", "1,1", "1,2"), "", check_distinguish
    ),
    "sharded bisimulation": Case(
        GIVEN, f"{MATRIX} shards.processes", same_matrix(sharded.bisimulation)
    ),
    "sharded on-policy": Case(GIVEN, f"{MATRIX} shards.devices", same_matrix(sharded.on_policy)),
    "sampled bisimulation": Case(
        (*GIVEN, "--steps", "20k"),
        f"{MATRIX} steps sampler.seed reference.error",
        same_matrix(sampled.bisimulation, steps=20_000),
    ),
    "sampled on-policy": Case(
        (*GIVEN, "--steps", "20k"),
        f"{MATRIX} steps sampler.seed reference.error",
        same_matrix(sampled.on_policy, steps=20_000),
    ),
    **{
        f"learned {kind}": Case(
            (*GIVEN, *TRAINING.split(), "-o", "d.safetensors"), LEARNED, same_network
        )
        for kind in ("bisimulation", "on-policy")
    },
    **{
        f"learned {kind}": Case(
            (*GIVEN, *TRAINING.split(), "-o", "d.safetensors"),
            "loss updates seconds horizon.covered network.features quality.identity",
            lambda found: None,
        )
        for kind in ("mico", "reduced-mico")
    },
    "uses aggregate": Case(
        ("d.npz", "--clusters", "4"), "radius regret regret_bound seconds", check_aggregate
    ),
    "uses bonus": Case(
        (WORLD, "--steps", "200", "--num-seeds", "2"), "steps visited num_reachable", check_bonus
    ),
    "uses compress": Case(
        ("data.npz", "lake.npz", "--keep", "0.5"), "kept pairs radius seconds", check_compress
    ),
    "uses embed": Case(("d.npz",), "stress distortion deviation coordinates", check_embed),
    "uses transfer": Case(
        (*GIVEN[:1], "open-grid", "--target-set", "rows=3", "columns=3"),
        "max_regret max_regret_bound policy",
        check_transfer,
    ),
    "rollout": Case(
        ("FrozenLake-v1", "--steps", "100", "-o", "steps.npz"),
        "data.steps rewards episodes.truncated states.visited seen.total",
        check_rollout,
    ),
    "explain": Case(("d.npz", "1,5", "5,5"), "distance total error value_gap", check_explain),
    "show": Case(("d.npz", "--from", "4,3", "--nearest", "2"), MATRIX, check_show),
    "view": Case(("d.npz", "-o", "page.html"), "states.total size.bytes", check_view),
    "playground": Case(("-o", "page.html"), "size.bytes", check_playground),
    "reproduce algorithms": Case(
        ("--worlds", "policy", "--updates", "10", "--num-seeds", "2"), "", check_algorithms
    ),
    "reproduce claims": Case(("--quick",), "", check_claims),
    "reproduce convergence": Case(
        ("--num-seeds", "2", "--steps", "50k", "--target-error", "0.1", "--discount", "0.5"),
        "seconds lemma.bisimulation.max_excess lemma.on_policy.max_allowed_excess",
        check_convergence,
    ),
    "reproduce gridworld": Case(
        ("--quick", "--updates", "6", "--num-seeds", "2", "--parts", "no-noise", "policy"),
        "parts.policy.seconds",
        check_gridworld,
    ),
    "reproduce losses": Case(
        ("--quick", "--updates", "2", "--mdps", "inventory", "--losses", "untrained"),
        "",
        check_losses,
    ),
}
SLOW = ("learned", "reproduce")


def list_cases() -> Iterator[Any]:
    for name in CASES:
        yield pytest.param(name, marks=[pytest.mark.slow] if name.startswith(SLOW) else [])


def list_values(value: Any) -> Iterator[Any]:
    """All values inside an object, that are not objects or lists themselves."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from list_values(each)
    else:
        yield value


def is_number_text(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def find_value(found: Found, path: str) -> Any:
    value: Any = found
    for key in path.split("."):
        value = value[key]
    return value


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distances and transitions, and small networks in place of the paper's."""
    exact.bisimulation(load_mdp()).save(tmp_path / "d.npz")
    data = datasets.rollout("FrozenLake-v1", steps=2_000, seed=0, is_slippery=False)
    data.save(tmp_path / "data.npz")
    right = np.full(16, 2)
    episodes = datasets.rollout("FrozenLake-v1", right, steps=150, seed=0, is_slippery=False)
    episodes.save(tmp_path / "episodes.npz")
    (tmp_path / "coins.tra").write_text("3 5\n0 0 0.5\n0 2 0.5\n1 1 0.4\n1 2 0.6\n2 2 1\n")
    (tmp_path / "coins.lab").write_text('0="heads"\n2: 0\n')
    (tmp_path / "coins.sta").write_text("(coin)\n0:(0)\n1:(1)\n2:(2)\n")
    exact.bisimulation(data.to_mdp(unseen="missing")).save(tmp_path / "lake.npz")
    monkeypatch.setattr(algorithms, "ALGORITHMS", TINY)

    # All claims are measured in tests/paper/test_claims.py.
    def measure(folder: Path, quick: bool) -> dict[str, theory_claims.Outcome]:
        return {"check_on_policy": theory_claims.check_on_policy(2)}

    monkeypatch.setattr(claims, "measure", measure)


def test_every_command_with_json_has_a_case() -> None:
    assert set(CASES) == {" ".join(path) for path in COMMANDS if path not in TEXT_ONLY}


@pytest.mark.parametrize("name", [*list_cases()])
def test_the_object_holds_the_numbers_of_the_report(run: Run, files: None, name: str) -> None:
    check_case(run, name, CASES[name])


def check_case(run: Run, name: str, case: Case) -> None:
    """Run a command with --json and check the numbers of its object."""
    result = run(*name.split(), *case.words, "--json")
    assert result.code == 0, result.err
    found: Found = json.loads(result.out)
    assert isinstance(found, dict)
    for path in case.numbers.split():
        numbers = list(list_values(find_value(found, path)))
        assert numbers, path
        assert all(type(each) in (int, float) for each in numbers), (path, numbers[:5])
    texts = [each for each in list_values(found) if isinstance(each, str)]
    assert not [text for text in texts if "\n" in text or is_number_text(text)]
    case.check(found)
