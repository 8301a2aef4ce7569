"""`bisimetric atari` on real Pong, with a small agent: all commands, and what they refuse."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest

from bisimetric.cli._main import parse
from bisimetric.learned import LearnedDistance
from bisimetric.transitions import Transitions
from bisimetric_atari.cli import COMMANDS
from tests.commands import Run, assert_input_error
from tests.learned_references import compile_quickly  # noqa: F401 - a fixture

AGENT = """
import numpy as np

def mine(observation, state):
    frame = observation[-1, 34:].reshape(5, 10, 4, 21).mean(axis=(1, 3)).ravel() / 255
    steps = 0 if state is None else state + 1
    return (2 + steps // 20 % 2, np.append(frame, steps % 40 / 40), float(frame.mean())), steps

def wide(observation, state):
    return (0, np.zeros(3), 0.0), state
"""
SMALL = [
    "--algorithm",
    "castro2020",
    "--learning-starts",
    "50",
    "--batch-size",
    "16",
    "--hidden",
    "8",
    "--output-activation",
    "open",
    "--num-envs",
    "2",
]


@pytest.fixture
def agent(tmp_path: Path) -> str:
    (tmp_path / "player.py").write_text(AGENT)
    return "player.py:mine"


@pytest.mark.slow
def test_learning_and_showing(run: Run, agent: str, tmp_path: Path) -> None:
    learn = ["atari", "learn", "pong", "--agent", agent, "-o", "out", *SMALL]
    done = run(*learn, "--steps", "240", "--data", "steps.npz", "--device", "cpu")
    assert done.code == 0, done.err
    assert "game       Pong, played by player.py:mine" in done.out
    assert "data       240 steps, 2 episodes, rewards clipped" in done.out
    assert "updates    60" in done.out
    assert "next: bisimetric atari show Pong --agent player.py:mine --metric out" in done.out
    metric = LearnedDistance.load(tmp_path / "out" / "metric.safetensors")
    assert metric.metadata["game"] == "Pong"
    assert metric.metadata["growing"] == [50, 4]
    assert (tmp_path / "out" / "learning.png").stat().st_size > 1_000
    assert len(Transitions.load(tmp_path / "steps.npz")) == 240

    # The same steps again, from their file; other ones are refused.
    again = run(
        *learn[: -len(SMALL) - 2], "-o", "again", *SMALL, "--steps", "240", "--data", "steps.npz"
    )
    assert again.code == 0, again.err
    found = LearnedDistance.load(tmp_path / "again" / "metric.safetensors")
    np.testing.assert_array_equal(found.parameters[0]["weights"], metric.parameters[0]["weights"])
    other = run(*learn, "--steps", "240", "--data", "steps.npz", "--no-reward-clipping")
    assert_input_error(
        other, "steps.npz holds other transitions: its clip_rewards is True and here it is False"
    )

    show = ["atari", "show", "Pong", "--agent", agent, "--metric", "out/metric.safetensors"]
    seen = run(*show, "-o", "shown", "--steps", "120", "--from", "7", "--save-episode")
    assert seen.code == 0, seen.err
    assert "frames     120 of 1 episode" in seen.out
    assert "level starts: undecided" in seen.out
    names = {path.name for path in (tmp_path / "shown").iterdir()}
    assert names == {
        "distances.png", "frames.png", "learning.png", "episode.mp4", "sorted.mp4",
        "episode.npz", "explore.html", "claims.json",
    }  # fmt: skip
    record = json.loads((tmp_path / "shown" / "claims.json").read_text())
    assert (record["source"], record["frames"], record["agent"]) == (7, 120, agent)
    assert len(record["claims"]) == 7
    late = run(*show, "-o", "shown", "--steps", "50", "--from", "60", "--no-videos")
    assert_input_error(late, "60", "50")
    wide = run(*show[:4], "player.py:wide", *show[5:], "-o", "shown")
    assert_input_error(wide, "21 features", "player.py:mine")
    invaders = run("atari", "show", "SpaceInvaders", *show[3:], "-o", "shown")
    assert_input_error(invaders, "metric.safetensors is of Pong and not of SpaceInvaders")


@pytest.mark.parametrize("game", ["Pong", "SpaceInvaders", "Asterix"])
def test_what_is_shipped_is_shown(run: Run, game: str, tmp_path: Path) -> None:
    seen = run("atari", "show", game, "-o", "shown", "--steps", "60", "--no-videos")
    assert seen.code == 0, seen.err
    assert f"game       {game}, played by rainbow of {game}" in seen.out
    assert "updates, pretrained" in seen.out
    page = (tmp_path / "shown" / "explore.html").read_text()
    assert f"<title>{game}, played by rainbow of {game}" in page


@pytest.mark.slow
def test_a_sweep_goes_on(run: Run, agent: str, tmp_path: Path) -> None:
    sweep = [
        "atari", "sweep", "Pong", "--agent", agent, "--steps", "240", "--num-envs", "2",
        "-o", "sweep", "--quick", "--updates", "20", "--num-seeds", "2",
        "--learning-rates", "1e-3", "1e-2", "--batch-size", "8", "--target-update-steps", "500",
        "--layers", "2", "--units", "16", "--data", "steps.npz",
    ]  # fmt: skip
    done = run(*sweep)
    assert done.code == 0, done.err
    assert "played by player.py:mine: 4 configurations" in done.out
    names = {path.name for path in (tmp_path / "sweep").iterdir()}
    assert names == {
        "batch128-period500-2x16.npz", "batch8-period500-2x16.npz", "sweep.csv", "sweep.png",
    }  # fmt: skip
    assert len((tmp_path / "sweep" / "sweep.csv").read_text().splitlines()) == 5
    before = (tmp_path / "sweep" / "batch8-period500-2x16.npz").stat().st_mtime_ns
    assert run(*sweep).code == 0
    assert (tmp_path / "sweep" / "batch8-period500-2x16.npz").stat().st_mtime_ns == before
    sweep[sweep.index("--updates") + 1] = "21"
    assert_input_error(run(*sweep), "is of another sweep: its updates differ")


@pytest.mark.slow
def test_training_an_agent(run: Run, tmp_path: Path) -> None:
    train = [
        "atari", "train-agent", "Pong", "-o", "out", "--num-envs", "2", "--batch-size", "16",
        "--log-every", "40", "--capacity", "200", "--learning-starts", "40",
        "--eval-episodes", "1",
    ]  # fmt: skip
    done = run(*train, "--steps", "60")
    assert done.code == 0, done.err
    assert "of 1 episode" in done.out
    assert "next: bisimetric atari learn Pong --agent out/agent.safetensors -o out" in done.out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"agent.safetensors", "run.safetensors", "training.png"}
    short = run(*train, "--steps", "20", "--resume", "out/run.safetensors")
    assert_input_error(short, "out/run.safetensors has 60", "give more steps")


@pytest.mark.parametrize("path", [(), *((name,) for name in COMMANDS.commands)], ids=" ".join)
def test_help_ends_with_examples_that_parse(run: Run, path: tuple[str, ...]) -> None:
    code, out, _ = run("atari", *path, "--help")
    assert code == 0
    assert f"usage: {' '.join(['bisimetric', 'atari', *path])}" in out
    assert ("--json" in out) == bool(path)
    examples = re.findall(r"^  bisimetric (.*)$", out.partition("examples:\n")[2], re.MULTILINE)
    assert examples
    for example in examples:
        assert example.split()[: 1 + len(path)] == ["atari", *path]
        assert callable(parse(example.split()))


@pytest.mark.parametrize("command", ["train-agent", "learn", "show", "sweep"])
def test_an_unknown_game_is_refused_with_near_names(run: Run, command: str) -> None:
    assert_input_error(
        run("atari", command, "SpaceInvader"), "no game 'SpaceInvader'", "'SpaceInvaders'"
    )
    assert not Path("atari").exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["learn", "--agent", "nobody.zip"], "there is no file 'nobody.zip'"),
        (["learn", "--steps", "3"], "--steps is 3 and must be"),
        (["learn", "--hidden", "0"], "--hidden is (0,) and must be"),
        (
            ["learn", "--batch-size", "1"],
            "--batch-size is 1 and must be a whole number, at least 2",
        ),
        (["learn", "--learning-starts", "0"], "--learning-starts is 0 and must be"),
        (["learn", "--learning-starts", "9"], "--learning-starts is for --algorithm castro2020"),
        (["learn", "--output-activation", "open"], "--output-activation is for --algorithm cas"),
        (["learn", "--updates", "0"], "--updates is 0 and must be"),
        (["learn", "--num-networks", "0"], "--num-networks is 0 and must be"),
        (
            ["learn", "--algorithm", "mico", "--num-networks", "2"],
            "--num-networks is not for --algorithm mico; leave it out",
        ),
        (
            ["learn", "--algorithm", "reward-sequence", "--lookahead", "5"],
            "--lookahead is not for --algorithm reward-sequence",
        ),
        (["learn", "--algorithm", "pair-q", "--lookahead", "0"], "--lookahead is 0 and must be"),
        (["show", "--data", "steps.npz"], "leave out one of them"),
        (["learn", "--learning-rate", "-1"], "--learning-rate is -1.0 and must be"),
        (["learn", "--data", "no/steps.npz"], "make the folder no first"),
        (["show", "--steps", "1"], "--steps is 1 and must be"),
        (["show", "--metric", "none.safetensors"], "cannot read none.safetensors"),
        (["sweep", "--batch-size", "1"], "--batch-size is 1 and must be whole numbers, at least 2"),
        (
            ["sweep", "--learning-rates", "2"],
            "--learning-rates is 2 and must be numbers between 0 and 1",
        ),
        (["sweep", "--num-seeds", "0"], "--num-seeds is 0 and must be"),
        (["sweep", "--updates", "0"], "--updates is 0 and must be"),
        (["train-agent", "--minutes", "0"], "--minutes is 0 and must be above 0"),
        (["train-agent", "--eval-episodes", "0"], "--eval-episodes is 0 and must be"),
        (["train-agent", "--batch-size", "100"], "--batch-size"),
        (["train-agent", "--num-envs", "0"], "--num-envs is 0 and must be"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(
    run: Run, agent: str, words: list[str], complaint: str
) -> None:
    command, *rest = words
    if command != "train-agent" and "--agent" not in rest:
        rest += ["--agent", agent]
    assert_input_error(run("atari", command, "Pong", *rest), complaint)
    assert not Path("atari").exists()


def test_a_metric_that_is_not_shipped_is_said(run: Run, agent: str) -> None:
    game = "Tutankham"
    done = run("atari", "show", game, "--agent", agent)
    command = f"`bisimetric atari learn {game} --agent {agent} -o mine`"
    assert_input_error(done, "no metric is included", command)


def test_the_included_metric_is_not_used_for_another_agent(run: Run, agent: str) -> None:
    done = run("atari", "show", "Pong", "--agent", agent)
    command = f"`bisimetric atari learn Pong --agent {agent} -o mine`"
    assert_input_error(done, "is of rainbow of Pong and not of player.py:mine", command)
    assert not Path("atari").exists()


@pytest.mark.parametrize("name", ["weights.tar", "model.pt", "policy.h5"])
def test_unknown_files_of_agents_explain_functions(run: Run, name: str) -> None:
    with tarfile.open(name, "w") as archive:
        archive.add(__file__, "weights.py")
    done = run("atari", "show", "Pong", "--agent", name)
    assert_input_error(done, f"agents: {name} is no checkpoint of Dopamine", "module:function")
    assert "how-to/atari.html#use-your-own-agent" in done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", ["reward-sequence", "recorded-returns", "pair-q", "mico", "reduced-mico"]
)
def test_every_algorithm_learns(run: Run, agent: str, algorithm: str) -> None:
    small = ("--hidden", "8", "--batch-size", "8", "--num-envs", "2", "--steps", "240")
    words = ("--algorithm", algorithm, "--updates", "6", *small)
    done = run("atari", "learn", "Pong", "--agent", agent, "-o", "out", *words)
    assert done.code == 0, done.err
    assert "updates    6" in done.out
    assert "unknown: no recorded future is long enough; record longer ones with fewer" in done.out
    metric = LearnedDistance.load("out/metric.safetensors")
    assert metric.kind == (algorithm.replace("-", "_") if "mico" in algorithm else "on_policy")
    shown = run(
        "atari", "show", "Pong", "--agent", agent, "--metric", "out/metric.safetensors",
        "--steps", "30", "--no-videos", "-o", "shown", "--frame-skip", "3",
    )  # fmt: skip
    assert shown.code == 0, shown.err
    assert "from frame 29\n" in shown.out
    record = json.loads(Path("shown/claims.json").read_text())
    assert record["episode"]["frame_skip"] == 3
    assert {*record["baselines"]} == {"pixels", "features", "values"}


@pytest.mark.slow
def test_sticky_actions_are_recorded_and_have_no_reference(run: Run, agent: str) -> None:
    words = ("--hidden", "8", "--updates", "4", "--batch-size", "8", "--num-envs", "2")
    sticky = ("--repeat-action-probability", "0.25", "--max-noops", "1", "--epsilon", "0.1")
    play = ("--steps", "80", "--data", "steps.npz", *sticky)
    done = run("atari", "learn", "Pong", "--agent", agent, "-o", "out", *words, *play)
    assert done.code == 0, done.err
    assert "unknown: actions are sampled or sticky" in done.out
    assert LearnedDistance.load("out/metric.safetensors").kind == "mico"
    metadata = Transitions.load("steps.npz").metadata
    assert metadata["repeat_action_probability"] == 0.25
    assert (metadata["max_noops"], metadata["epsilon"]) == (1, 0.1)
    other = run("atari", "learn", "Pong", "--agent", agent, "--data", "steps.npz")
    assert_input_error(other, "its repeat_action_probability is 0.25 and here it is 0.0")


@pytest.mark.slow
def test_features_collected_elsewhere_are_learned_and_shown(run: Run) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(121, 5)).astype(np.float32)
    ended = np.arange(1, 121) % 40 == 0
    data = Transitions(x[:-1], np.zeros(120, np.int64), ended * 1.0, x[1:], ended)
    assert "agent" not in data.metadata
    data.save("features.npz")
    words = ("--data", "features.npz", "--hidden", "8", "--updates", "4", "--batch-size", "8")
    done = run("atari", "learn", "Pong", "-o", "out", *words)
    assert done.code == 0, done.err
    assert "game       Pong, features of features.npz\n" in done.out
    following = done.out.splitlines()[-1]
    expected = "atari show Pong --metric out/metric.safetensors --data features.npz"
    assert following == f"next: bisimetric {expected}"
    assert_input_error(
        run("atari", "show", "Pong", "--data", "features.npz"),
        "--metric is missing; learn one with `bisimetric atari learn Pong --data features.npz",
    )
    shown = run(*expected.split(), "-o", "shown")
    assert shown.code == 0, shown.err
    assert "game       Pong, features of features.npz\n" in shown.out
    assert "frames     120 of 3 episodes\n" in shown.out
    assert {path.name for path in Path("shown").iterdir()} == {
        "distances.png",
        "learning.png",
        "claims.json",
    }


def test_an_agent_of_another_game_is_refused_though_its_actions_fit(run: Run) -> None:
    from bisimetric_atari.agents.api import WEIGHTS_FOLDER

    agent = str(WEIGHTS_FOLDER / "Pong.safetensors")
    seen = run("atari", "show", "SpaceInvaders", "--agent", agent)
    assert_input_error(
        seen, "was trained on Pong and not on SpaceInvaders; give an agent of this game"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--batch-size", "7"], "--batch-size is 7 and must divide"),
        (["--num-envs", "0"], "--num-envs is 0"),
        (["-o", "/proc/none"], "cannot create the folder /proc/none"),
    ],
)
def test_bad_training_is_refused_before_it_starts(run: Run, flags: list[str], message: str) -> None:
    assert_input_error(run("atari", "train-agent", "Pong", *flags), message)
