"""`bisimetric atari learn`, `atari evaluate` and `atari sweep`: the metric of a game."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from bisimetric._text import pluralise
from bisimetric.cli.learned_options import omit_none, parse_lookahead
from bisimetric.cli.options import (
    DeviceArg,
    DiscountArg,
    NumSeedsArg,
    SeedArg,
    parse_optional_count,
    program_name,
)
from bisimetric.cli.output import report_checkpoint
from bisimetric.errors import InputError
from bisimetric_atari.cli.options import (
    AgentArg,
    CollectOptions,
    FolderArg,
    GameArg,
    ResumeArg,
    create_folder,
    describe_player,
    format_agent_arguments,
    load_game_and_agent,
)

if TYPE_CHECKING:
    from bisimetric.cli.report import Fact
    from bisimetric.learned import LearnedDistance
    from bisimetric.learned.training import Algorithm
    from bisimetric.transitions import Transitions
    from bisimetric_atari.games import Agent, Game
    from bisimetric_atari.paper.learning import AlgorithmName

SEVERAL_NUMBERS = arg(metavar="N [N ...]")
HELD_OUT = CollectOptions(steps="100k", num_envs=8)
"""Few games, so that most futures are recorded for long enough."""

LEARNING_RATES = (5e-5, 7.5e-5, 1e-4, 2.5e-4, 5e-4, 7.5e-4, 1e-3)


def learn(
    game: GameArg,
    steps: CollectOptions,
    agent: AgentArg = None,
    output: FolderArg = None,
    algorithm: Annotated[
        Literal[
            "reward-sequence", "recorded-returns", "pair-q", "castro2020", "mico", "reduced-mico"
        ]
        | None,
        arg(
            metavar="{reward-sequence,recorded-returns,...}",
            help_behavior_hint="(default: reward-sequence; recorded-returns if there are more than "
            "eight different rewards; mico if actions are random)",
        ),
    ] = None,
    updates: Annotated[
        str | None,
        arg(
            metavar="N",
            help_behavior_hint="(default: 20k; recorded-returns: 60k; pair-q, mico: 24k; "
            "castro2020: steps / 4)",
        ),
    ] = None,
    hidden: Annotated[
        tuple[int, ...] | None,
        arg(
            metavar="N [N ...]",
            help_behavior_hint="(default: 512 512 128; recorded-returns, pair-q: 512 512; "
            "mico: 256 256; castro2020: 16 16)",
        ),
    ] = None,
    num_networks: Annotated[
        int | None, arg(metavar="N", help_behavior_hint="(default: 4; pair-q: 1)")
    ] = None,
    lookahead: Annotated[
        str | None,
        arg(metavar="N", help_behavior_hint="(default: inf for recorded-returns, 10 for pair-q)"),
    ] = None,
    output_activation: Annotated[
        Literal["relu", "open", "softplus", "linear"] | None,
        arg(metavar="{relu,open,...}", help_behavior_hint="(default: relu)"),
    ] = None,
    batch_size: Annotated[
        int | None,
        arg(metavar="B", help_behavior_hint="(default: 256; pair-q, mico, castro2020: 128)"),
    ] = None,
    learning_rate: Annotated[
        float | None,
        arg(metavar="R", help_behavior_hint="(default: 0.001; castro2020: 7.5e-5, Pong 0.001)"),
    ] = None,
    target_update_period: Annotated[
        int | None,
        arg(
            metavar="C",
            help_behavior_hint="(default: 25; recorded-returns: 500; castro2020: 125)",
        ),
    ] = None,
    discount: DiscountArg = 0.99,
    learning_starts: Annotated[
        int | None, arg(metavar="N", help_behavior_hint="(default: 10000)")
    ] = None,
    ignore_terminals: bool = False,
    half_precision: bool = False,
    seed: SeedArg = 0,
    resume: ResumeArg = None,
    device: DeviceArg = None,
) -> None:
    """Learn a distance of a game from the features of an agent: by default d^pi.

    The default predicts the rewards of the next steps, for games and agents that are deterministic:
    a quarter of an hour on two CPU cores. `recorded-returns` is regression on the exact distances
    of recorded futures; it is meant for a GPU. `castro2020` is the paper's algorithm: a minute or
    two on a large GPU, about an hour on two CPU cores.

    Args:
        game: its name, such as Pong
        agent: a .safetensors file of train-agent, a .zip of Stable-Baselines3, a checkpoint of
            Dopamine, or module:function
        output: the folder of metric.safetensors, its checkpoint and a figure of the training
        algorithm: reward-sequence (for at most eight different rewards), recorded-returns, pair-q
            (n-step targets) and castro2020 learn d^pi; mico and reduced-mico are consistent for
            sampled and sticky actions too
        updates: gradient updates
        hidden: widths of the hidden layers
        num_networks: networks that are averaged, for reward-sequence, recorded-returns and pair-q
        lookahead: steps ahead of a target, for pair-q and castro2020; `inf`: recorded futures
        output_activation: for castro2020: keeps the distance nonnegative; `relu` may stay at 0,
            `open` does not
        batch_size: transitions per update; all pairs of them are compared
        learning_rate: learning rate of Adam
        target_update_period: updates between two synchronisations of the target network; for
            castro2020, 125 updates are 500 steps of the agent
        discount: discount factor
        learning_starts: for castro2020: steps in the replay buffer at the first update; each
            update adds 4
        ignore_terminals: bootstrap from terminal frames like any other, as in the published code
        half_precision: round the weights of metric.safetensors, for half the size
        seed: seed of the games, the weights and the batches
        resume: continue from a checkpoint, run.safetensors in the folder
        device: the device to train on

    Examples:
        bisimetric atari learn Pong -o pong
        bisimetric atari learn Pong --steps 20k --updates 500 -o pong
        bisimetric atari learn Pong --algorithm castro2020 -o paper
        bisimetric atari learn SpaceInvaders --no-reward-clipping --data steps.npz
        bisimetric atari learn Asterix --agent agents.py:mine --frame-skip 5
    """
    num_updates = parse_optional_count("--updates", updates)
    if learning_starts is not None and learning_starts < 1:
        raise InputError(
            f"--learning-starts is {learning_starts} and must be a whole number, at least 1."
        )
    for flag, value in (
        ("--output-activation", output_activation),
        ("--learning-starts", learning_starts),
    ):
        if value is not None and algorithm != "castro2020":
            raise InputError(f"{flag} is for --algorithm castro2020; add that, or leave it out.")
    changes = omit_none(
        hidden=hidden,
        output_activation=output_activation,
        num_networks=num_networks,
        batch_size=batch_size,
        learning_rate=learning_rate,
        target_update_period=target_update_period,
        lookahead=None if lookahead is None else parse_lookahead(lookahead),
    )
    found, player = load_game_and_agent(game, agent, steps)
    from bisimetric import views
    from bisimetric.cli import report
    from bisimetric_atari.paper import learning

    # Bad hyperparameters are rejected before the first step is played.
    _build_config(algorithm or learning.DEFAULT_ALGORITHM, found.name, changes)
    folder = create_folder(found, output)
    checkpoint, target = folder / "run.safetensors", folder / "metric.safetensors"
    data = steps.collect(found, player, seed)
    chosen = algorithm or learning.choose_algorithm(data)
    with report_checkpoint(checkpoint):
        learned = learning.learn(
            data,
            config=_build_config(chosen, found.name, changes),
            updates=num_updates or learning.count_updates(chosen, data),
            seed=seed,
            discount=discount,
            terminal_state=not ignore_terminals,
            replay_growth=(
                learning_starts or learning.INITIAL_STEPS,
                learning.STEPS_PER_UPDATE,
            ),
            reduce=chosen == "reduced-mico",
            checkpoint=checkpoint,
            resume=resume,
            device=device,
        )
    # The game of features that were collected elsewhere is the one that was named.
    learned = dataclasses.replace(learned, metadata={"game": found.name, **learned.metadata})
    learned.save(target, half_precision=half_precision)
    played = f"{found.name}, {describe_player(player, steps.data)}"
    report.emit(_describe(found, played, player, data, learned), report.describe_saved([target]))
    figure = folder / "learning.png"
    views.save_figure(views.plot_metric_curve({found.name: learned.history}), figure)
    words = [found.name, *format_agent_arguments(agent), "--metric", str(target)]
    if player is None:
        words += ["--data", str(steps.data)]
    command = shlex.join([program_name(), "atari", "show", *words])
    report.emit(report.describe_saved([figure]), [report.Fact("next", command)])


def evaluate(
    game: GameArg,
    steps: CollectOptions = HELD_OUT,
    agent: AgentArg = None,
    metric: Annotated[
        tuple[str, ...] | None,
        arg(metavar="METRIC [METRIC ...]", help_behavior_hint="(default: both included ones)"),
    ] = None,
    num_states: Annotated[int, arg(metavar="N")] = 2_000,
    seed: SeedArg = 1,
) -> None:
    """Compare metrics with exact distances on games that they were not learned from.

    The agent plays with another seed. The exact distance of two recorded frames follows from the
    rewards after them.

    Args:
        game: its name, such as Pong
        agent: a .safetensors file of train-agent, a .zip of Stable-Baselines3, a checkpoint of
            Dopamine, or module:function
        metric: metrics saved by `bisimetric atari learn`, for the same agent; `included` and
            `castro2020` are the included ones
        num_states: frames to sample; all their pairs are compared
        seed: seed of the games and of the sample; it must differ from that of the training

    Examples:
        bisimetric atari evaluate Pong
        bisimetric atari evaluate Pong --metric mine/metric.safetensors castro2020 --steps 20k
    """
    found, player = load_game_and_agent(game, agent, steps)
    from bisimetric.cli import report
    from bisimetric.learned import LearnedDistance
    from bisimetric_atari.paper import evaluation, experiment

    metrics: dict[str, LearnedDistance] = {}
    for name in metric or ("included", experiment.PAPER_METRIC):
        if player is None:
            metrics[name] = LearnedDistance.load(name)
        else:
            metrics[name] = experiment.load_metric(
                None if name == "included" else name, found, player
            )
    for name, each in metrics.items():
        if _has_training_seed(each, seed):
            raise InputError(
                f"{name} was learned from games of seed {seed}, which are not held out; choose "
                "another --seed."
            )
    data = steps.collect(found, player, seed)
    accuracies = evaluation.evaluate_metrics(metrics, data, num_states=num_states, seed=seed)
    sizes = pluralise(int((data.terminated | data.truncated).sum()), "episode")
    report.emit(
        [
            report.Fact("game", f"{found.name}, {describe_player(player, steps.data)}", found.name),
            report.Fact("data", f"{len(data):,} steps, {sizes}, seed {seed}", len(data)),
            "agreement with the exact distances of recorded futures:",
        ],
        evaluation.format_table(accuracies),
    )
    report.emit_values(
        accuracy={name: dataclasses.asdict(each) for name, each in accuracies.items()}
    )


def _has_training_seed(metric: LearnedDistance, seed: int) -> bool:
    """Return whether a metric was learned from games of this seed, as far as it is recorded."""
    collected = metric.metadata.get("collected", {})
    return seed in (collected.get("seed"), collected.get("key"))


def _build_config(name: AlgorithmName, game: str, changes: dict[str, Any]) -> Algorithm:
    """Return the default configuration of an algorithm with some fields changed."""
    from bisimetric_atari.paper import learning

    config: Any = learning.build_config(name, game)
    fields = dict(changes)
    known = {"hidden", "output_activation", *(field.name for field in dataclasses.fields(config))}
    for field in fields.keys() - known:
        flag = "--" + field.replace("_", "-")
        raise InputError(
            f"{flag} is not for --algorithm {name}; leave it out, or name another --algorithm."
        )
    network = config.network
    shape = {key: fields.pop(key) for key in ("hidden", "output_activation") if key in fields}
    if shape and name in ("mico", "reduced-mico"):
        network = dataclasses.replace(
            network, embedding=dataclasses.replace(network.embedding, **shape)
        )
    elif shape:
        network = dataclasses.replace(network, **shape)
    replaced: Algorithm = dataclasses.replace(config, network=network, **fields)
    return replaced


def _describe(
    game: Game, played: str, agent: Agent | None, data: Transitions, learned: LearnedDistance
) -> Iterator[Fact | str]:
    from bisimetric.cli.learned_report import describe_quality, describe_sampled_largest
    from bisimetric.cli.network_report import (
        describe_horizon,
        describe_loss,
        describe_network,
        get_algorithm,
    )
    from bisimetric.cli.report import Fact, emit_values
    from bisimetric.learned.evaluation import EVALUATION_BATCH
    from bisimetric_atari.paper.learning import evaluate_metric, is_stochastic

    metadata, history = learned.metadata, learned.history
    episodes = int((data.terminated | data.truncated).sum())
    clipped = "clipped" if metadata.get("clip", True) else "not clipped"
    yield Fact("game", played, {"name": game.name, "agent": None if agent is None else agent.name})
    sizes = f"{pluralise(len(data), 'step')}, {pluralise(episodes, 'episode')}"
    yield Fact("data", f"{sizes}, rewards {clipped}", {"steps": len(data), "episodes": episodes})
    terminal = "lead to a terminal state" if metadata["ends"] else "are ignored"
    kind = "d^pi, the on-policy distance" if learned.kind == "on_policy" else learned.kind
    text = f"{kind}: an approximation; terminations {terminal}"
    yield Fact("distance", text, learned.kind)
    yield Fact("algorithm", get_algorithm(metadata))
    yield describe_network(learned.scaling.num_features, metadata)
    updates, seconds = metadata["updates"], metadata["seconds"]
    speed = updates / max(seconds, 1e-9)
    yield Fact("updates", f"{updates:,}, in {seconds:.3g} s, {speed:,.0f} per second", updates)
    emit_values(seconds=seconds)
    yield Fact("device", metadata["device"])
    yield describe_horizon(metadata, learned.discount)
    yield describe_loss(history)
    if "correlation" in history:
        correlation, error = float(history["correlation"][-1]), float(history["error"][-1])
        text = f"correlation {correlation:.3f} with the exact distances of recorded futures, mean "
        value = {"correlation": correlation, "relative_error": error}
        yield Fact("reference", f"{text}error {error:.0%} of their mean", value)
    else:
        unknown = {"correlation": None, "relative_error": None}
        stochastic = is_stochastic(data)
        reason = (
            "actions are sampled or sticky"
            if stochastic
            else "no recorded future is long enough; record longer ones with fewer --num-envs or "
            "more --steps"
        )
        yield Fact("reference", f"unknown: {reason}", unknown)
    quality = evaluate_metric(learned, data)
    yield describe_sampled_largest(quality)
    yield from describe_quality(learned.kind, quality, EVALUATION_BATCH, "pairs")


def sweep(
    game: GameArg,
    steps: CollectOptions,
    agent: AgentArg = None,
    output: FolderArg = None,
    quick: bool = False,
    updates: Annotated[
        str | None,
        arg(metavar="N", help_behavior_hint="(default: one per 4 steps; quick: 37.5k)"),
    ] = None,
    num_seeds: NumSeedsArg = 3,
    learning_rates: Annotated[tuple[float, ...], arg(metavar="R [R ...]")] = LEARNING_RATES,
    batch_size: Annotated[tuple[int, ...], SEVERAL_NUMBERS] = (4, 8, 16, 32, 64, 128),
    target_update_steps: Annotated[tuple[int, ...], SEVERAL_NUMBERS] = (
        10,
        50,
        100,
        250,
        500,
        1000,
        2000,
    ),
    layers: Annotated[tuple[int, ...], SEVERAL_NUMBERS] = (1, 2, 3),
    units: Annotated[tuple[int, ...], SEVERAL_NUMBERS] = (16, 32, 64, 128),
    discount: DiscountArg = 0.99,
    ignore_terminals: bool = False,
    seed: SeedArg = 0,
    device: DeviceArg = None,
) -> None:
    """Run the hyperparameter sweep of the paper's supplement on one game.

    Networks are compared by the correlation of their distances with the exact ones of recorded
    futures. All seeds and learning rates of one shape train together, and each shape is a file.
    Runs found in the output folder are reused. The whole grid takes many hours on a large GPU.

    Args:
        game: its name, such as Pong
        agent: a .safetensors file of train-agent, a .zip of Stable-Baselines3, a checkpoint of
            Dopamine, or module:function
        output: the folder of the results, sweep.csv and sweep.png; default: atari/GAME/sweep
        quick: vary one hyperparameter at a time around the paper's; fewer updates
        updates: gradient updates per network
        num_seeds: the number of networks per configuration
        learning_rates: learning rates
        batch_size: transitions per update
        target_update_steps: steps of the agent between two synchronisations of the target
            network; an update takes 4 steps
        layers: numbers of hidden layers
        units: units per hidden layer
        discount: discount factor
        ignore_terminals: bootstrap from terminal frames like any other, as in the published code
        seed: seed of the games that are played
        device: the device to train on

    Examples:
        bisimetric atari sweep Pong --quick --data steps.npz -o sweep
        bisimetric atari sweep Pong --batch-size 64 128 --target-update-steps 500 --layers 2
    """
    num_updates = parse_optional_count("--updates", updates)
    flags = {
        "--batch-size": batch_size,
        "--target-update-steps": target_update_steps,
        "--layers": layers,
        "--units": units,
    }
    _validate_grid(flags, learning_rates, num_seeds)
    found, player = load_game_and_agent(game, agent, steps)
    from bisimetric.cli import report
    from bisimetric_atari.paper import sweep as library
    from bisimetric_atari.paper import sweep_results

    folder = create_folder(found, output)
    if output is None:
        folder /= "sweep"
    data = steps.collect(found, player, seed)
    grid = {
        "batch": batch_size,
        "target_update_period": target_update_steps,
        "layers": layers,
        "units": units,
    }
    results = library.run_sweep(
        folder,
        data,
        quick=quick,
        selected_shapes=library.list_shapes(quick, grid),
        learning_rates=learning_rates,
        num_seeds=num_seeds,
        updates=num_updates,
        discount=discount,
        terminal_state=not ignore_terminals,
        device=device,
    )
    rows = sweep_results.tabulate(results)
    text = f"{found.name}, {describe_player(player, steps.data)}: {len(rows):,} configurations"
    table = sweep_results.format_table(rows, library.get_paper_choice(found.name))
    value = {"name": found.name, "agent": None if player is None else player.name}
    report.emit([report.Fact("game", text, value)], table)
    report.emit_values(configurations=[row._asdict() for row in rows])
    report.emit(report.describe_saved(library.write_outputs(folder, results)))


def _validate_grid(
    grid: dict[str, tuple[int, ...]], learning_rates: Sequence[float], num_seeds: int
) -> None:
    minimums = {"--batch-size": 2}
    for flag, values in grid.items():
        minimum = minimums.get(flag, 1)
        if not values or min(values) < minimum:
            text = " ".join(map(str, values)) or "empty"
            raise InputError(f"{flag} is {text} and must be whole numbers, at least {minimum}.")
    if not learning_rates or not all(0 < rate < 1 for rate in learning_rates):
        text = " ".join(f"{rate:g}" for rate in learning_rates) or "empty"
        raise InputError(f"--learning-rates is {text} and must be numbers between 0 and 1.")
    if num_seeds < 1:
        raise InputError(f"--num-seeds is {num_seeds} and must be a whole number, at least 1.")
