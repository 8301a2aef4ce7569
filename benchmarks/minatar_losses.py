"""Do metric losses help an agent? PQN on MinAtar, with and without distractor planes.

    python benchmarks/minatar_losses.py tune --output FILE          # the weights of the losses
    python benchmarks/minatar_losses.py run Asterix Breakout        # 240 agents per game
    python benchmarks/minatar_losses.py report --write              # docs/reports/agents.md

`PROTOCOL` is the frozen protocol. One compiled program trains all agents of a game at once: three
baselines (plain; layer normalisation; layer normalisation and self-prediction), each with no metric
loss, MICo, SimSR and `on_policy`, each with and without distractors, ten seeds each. The agent is
examples/agents/jax_pqn_minatar.py. Needs a GPU, and `pip install 'bisimetric[learn]' gymnax six`.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples" / "agents"))
RESULTS = ROOT / "docs" / "reports" / "agents"

BASELINES = {"plain": (0, 0), "LayerNorm": (1, 0), "LayerNorm + self-prediction": (1, 1)}
"""Layer normalisation, and whether self-prediction has its weight."""
LOSSES = ("mico", "simsr", "on_policy")
MAX_CHUNK = 10
"""Updates per call of a compiled program."""


@dataclasses.dataclass(frozen=True)
class Protocol:
    """What the study fixes before it is run."""

    games: tuple[str, ...] = ("Asterix", "Breakout", "Freeway", "SpaceInvaders")
    """Seaquest of gymnax takes several times the time of the others, and is left out."""
    steps: int = 983_040
    """Environment steps per agent: 240 rollouts."""
    seeds: int = 10
    checkpoints: int = 4
    """Evaluations after that many equal parts of the updates, and one before the first."""
    weights: tuple[tuple[str, float], ...] = (
        ("self_prediction", 0.03),
        ("mico", 0.03),
        ("simsr", 0.3),
        ("on_policy", 0.03),
    )
    """Selected by `tune` on `tuning_game` with other seeds."""
    tuning_game: str = "Breakout"
    tuning_steps: int = 500_000
    tuning_seeds: int = 5
    tuning_weights: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
    first_tuning_seed: int = 1_000
    episodes: int = 32
    """Evaluation episodes per agent and checkpoint, of at most `max_length` steps."""
    max_length: int = 1_000
    states: int = 32
    """States per agent and checkpoint, all pairs of which are compared."""
    futures: int = 8
    """Recorded futures per state."""
    horizon: int = 400
    """Steps of a future; 0.99^400 is 0.02."""
    num_envs: int = 128


PROTOCOL = Protocol()


def list_configurations() -> list[tuple[str, str, bool]]:
    """Return (baseline, metric loss, distractors) of all configurations.

    >>> len(list_configurations()), list_configurations()[1]
    (24, ('plain', 'mico', False))
    """
    return [
        (baseline, loss, distractors)
        for distractors, baseline, loss in itertools.product(
            (False, True), BASELINES, ("none", *LOSSES)
        )
    ]


def build_options(protocol: Protocol) -> Any:
    """Return the options of all agents, configuration by configuration, with a leading axis."""
    weights, rows = dict(protocol.weights), []
    for baseline, loss, distractors in list_configurations():
        layer_norm, predicts = BASELINES[baseline]
        row = [layer_norm, predicts * weights["self_prediction"], distractors]
        rows += [row + [weights[name] * (name == loss) for name in LOSSES]] * protocol.seeds
    return stack_options(rows)


def stack_options(rows: Sequence[Sequence[float]]) -> Any:
    """Return options from rows (layer_norm, self_prediction, distractors, *weights)."""
    import jax.numpy as jnp

    from jax_pqn_minatar import Options

    columns = jnp.asarray(np.array(rows, np.float32).T)
    return Options(columns[0], columns[1], dict(zip(LOSSES, columns[3:], strict=True)), columns[2])


class Programs(NamedTuple):
    """The compiled functions of one game, for all agents at once."""

    create: Any
    advance: Any
    measure_returns: Any
    measure_metric: Any
    config: Any


def compile_game(
    game: str,
    steps: int,
    options: Any,
    seeds: NDArray[np.int64],
    protocol: Protocol,
    **network: Any,
) -> Programs:
    """Compile the training and the evaluations of one game.

    Args:
        game: a game of MinAtar.
        steps: environment steps per agent.
        options: of all agents, with a leading axis.
        seeds: (agents,).
        protocol: how to evaluate.
        **network: more of `Config`.

    Returns:
        The programs; `advance` takes as many updates as `get_chunk` says.
    """
    import jax

    from jax_pqn_minatar import Config, Trainer
    from minatar_metric import evaluate_metric, evaluate_returns

    config = Config(game, LOSSES, steps=steps, num_envs=protocol.num_envs, **network)
    trainer = Trainer(config)

    def advance(state: Any, options: Any) -> Any:
        length = get_chunk(config, protocol)
        step = partial(jax.lax.scan, length=length, xs=None)
        return step(lambda state, _: (trainer.update(state, options)[0], None), state)[0]

    def play(state: Any, options: Any, epsilon: Any) -> Any:
        key = jax.random.fold_in(state.key, 1)
        return evaluate_returns(trainer, state.params, options, key, protocol, epsilon)

    def compare(state: Any, options: Any) -> Any:
        key = jax.random.fold_in(state.key, 2)
        return evaluate_metric(trainer, state, options, key, protocol)

    create = jax.jit(jax.vmap(trainer.create))
    state = jax.eval_shape(create, seeds, options)
    start = time.perf_counter()
    programs = Programs(
        create.lower(seeds, options).compile(),
        jax.jit(jax.vmap(advance), donate_argnums=0).lower(state, options).compile(),
        jax.jit(jax.vmap(play, (0, 0, None))).lower(state, options, 0.0).compile(),
        jax.jit(jax.vmap(compare)).lower(state, options).compile(),
        config,
    )
    print(f"{game}: compiled in {time.perf_counter() - start:.1f} s", flush=True)
    return programs


def get_chunk(config: Any, protocol: Protocol) -> int:
    """Return the updates per call, a divisor of those between two checkpoints."""
    return math.gcd(config.num_updates // protocol.checkpoints, MAX_CHUNK)


def train_agents(
    programs: Programs,
    options: Any,
    seeds: NDArray[np.int64],
    protocol: Protocol,
    deadline: float = math.inf,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Train all agents of a game at once; yield the evaluations of each checkpoint.

    Args:
        programs: of the game.
        options: of all agents, with a leading axis.
        seeds: (agents,).
        protocol: how to evaluate.
        deadline: value of `time.perf_counter()` at which training stops between two calls.

    Yields:
        Environment steps, and evaluations by name, (agents,) each.
    """
    import jax

    config, start = programs.config, time.perf_counter()
    chunk = get_chunk(config, protocol)
    part = config.num_updates // protocol.checkpoints
    state = programs.create(seeds, options)
    for checkpoint in range(protocol.checkpoints + 1):
        if checkpoint:
            for _ in range(part // chunk):
                state = jax.block_until_ready(programs.advance(state, options))
                if time.perf_counter() > deadline:
                    print(f"{config.game}: stopped at the deadline", flush=True)
                    return
        found = {"returns": programs.measure_returns(state, options, config.epsilon)}
        found |= programs.measure_metric(state, options)
        if not checkpoint:
            found["random_returns"] = programs.measure_returns(state, options, 1.0)
        results = {name: np.asarray(each) for name, each in found.items()}
        done = checkpoint * part * config.num_envs * config.rollout
        print(
            f"{config.game}: {done} steps, {time.perf_counter() - start:.1f} s, "
            f"mean return {results['returns'].mean():.3f}",
            flush=True,
        )
        yield done, results


def run_games(
    games: Sequence[str],
    protocol: Protocol,
    output: Path,
    deadline: float = math.inf,
    **network: Any,
) -> list[Path]:
    """Train and evaluate all configurations of games, one after the other.

    The next game is compiled while one trains. Results are saved after every checkpoint.

    Args:
        games: of MinAtar.
        protocol: the study.
        output: folder of the files.
        deadline: value of `time.perf_counter()` at which training stops.
        **network: more of `Config`.

    Returns:
        The files: `steps` (checkpoints,), and per measure (checkpoints, configurations, seeds).
    """
    options, count = build_options(protocol), len(list_configurations())
    seeds = np.tile(np.arange(protocol.seeds), count)
    output.mkdir(parents=True, exist_ok=True)
    paths = [output / f"{game}.npz" for game in games]
    with ThreadPoolExecutor(1) as compiler:
        compiled = [
            compiler.submit(compile_game, game, protocol.steps, options, seeds, protocol, **network)
            for game in games
        ]
        for path, programs in zip(paths, compiled, strict=True):
            if time.perf_counter() > deadline:
                break
            steps: list[int] = []
            collected: dict[str, list[NDArray[np.float32]]] = {}
            for done, results in train_agents(
                programs.result(), options, seeds, protocol, deadline
            ):
                steps.append(done)
                for name, each in results.items():
                    table = each.reshape(count, protocol.seeds).astype(np.float32)
                    collected.setdefault(name, []).append(table)
                arrays: dict[str, Any] = {name: np.stack(each) for name, each in collected.items()}
                np.savez_compressed(path, steps=np.array(steps), **arrays)
    return paths


def tune_weights(protocol: Protocol, output: Path, **network: Any) -> dict[str, float]:
    """Select each weight by the mean return at the end, over plain and LayerNorm agents.

    Returns:
        The weight per loss, which is printed with all means, and saved.
    """
    terms = ("self_prediction", *LOSSES)
    cases = [("none", 0.0), *itertools.product(terms, protocol.tuning_weights)]
    rows = []
    for term, weight in cases:
        for layer_norm in (0, 1):
            row = [layer_norm, weight * (term == "self_prediction"), 0]
            rows += [row + [weight * (term == name) for name in LOSSES]] * protocol.tuning_seeds
    seeds = np.tile(np.arange(protocol.tuning_seeds) + protocol.first_tuning_seed, 2 * len(cases))
    options = stack_options(rows)
    short = dataclasses.replace(protocol, checkpoints=2)
    programs = compile_game(
        protocol.tuning_game, protocol.tuning_steps, options, seeds, short, **network
    )
    for _, results in train_agents(programs, options, seeds, short):
        returns = results["returns"].reshape(len(cases), 2, protocol.tuning_seeds)
    means = returns.mean(axis=-1)
    output.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(output, cases=np.array([f"{t} {w}" for t, w in cases]), returns=returns)
    for (term, weight), (plain, normalised) in zip(cases, means, strict=True):
        print(f"{term:16} {weight:5.2f}   plain {plain:6.2f}   LayerNorm {normalised:6.2f}")
    return {
        term: max((case for case in zip(cases, means, strict=True) if case[0][0] == term),
                  key=lambda case: float(case[1].mean()))[0][1]
        for term in terms
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one part of the study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    tune = commands.add_parser("tune", help="select the weights of the losses")
    tune.add_argument("--output", type=Path, required=True, help="an .npz file")
    run = commands.add_parser("run", help="train and evaluate all agents of some games")
    run.add_argument("games", nargs="+", choices=PROTOCOL.games)
    run.add_argument("--output", type=Path, default=RESULTS, help="folder of the .npz files")
    run.add_argument("--seconds", type=float, default=math.inf, help="stop training after that")
    report = commands.add_parser("report", help="tables and figures from the results")
    report.add_argument("--write", action="store_true", help="write docs/reports/agents.md")
    args = parser.parse_args(arguments)
    if args.command == "tune":
        print(tune_weights(PROTOCOL, args.output))
    elif args.command == "run":
        run_games(args.games, PROTOCOL, args.output, time.perf_counter() + args.seconds)
    else:
        from minatar_report import write_report

        write_report(RESULTS, RESULTS.with_suffix(".md"), write=args.write)


if __name__ == "__main__":
    main()
