"""`bisimetric atari sweep`: what the hyperparameters do, as in the supplement of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from tyro.conf import arg

from bisimetric.cli.commands.atari.options import (
    AgentArg,
    CollectArg,
    Flag,
    GameArg,
    OptionalDeviceArg,
    OutputFolderArg,
    SeedArg,
    create_folder,
    load_game_and_agent,
)
from bisimetric.cli.options import parse_count
from bisimetric.errors import InputError

SEVERAL_NUMBERS = arg(metavar="N [N ...]")


def sweep(
    game: GameArg,
    steps: CollectArg,
    agent: AgentArg = None,
    output: OutputFolderArg = None,
    quick: Flag = False,
    updates: Annotated[
        str | None, arg(metavar="N", help_behavior_hint="(default: one in 4 steps; quick: 37.5k)")
    ] = None,
    seeds: Annotated[int, arg(metavar="N")] = 3,
    learning_rates: Annotated[tuple[float, ...], arg(metavar="R [R ...]")] = (
        5e-5,
        7.5e-5,
        1e-4,
        2.5e-4,
        5e-4,
        7.5e-4,
        1e-3,
    ),
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
    discount: Annotated[float, arg(metavar="G")] = 0.99,
    ignore_terminals: Flag = False,
    seed: SeedArg = 0,
    device: OptionalDeviceArg = None,
) -> None:
    """The sweep of the supplement: which settings learn a game best, and what each of them does.

    Networks are judged by how their distances fit the exact ones of recorded futures. All seeds and
    learning rates of one shape learn side by side. Each shape is a file of the folder: the same
    command goes on with those that are missing. The whole grid takes many hours of a large GPU.

    Args:
        game: its name, such as Pong
        agent: a .safetensors file of train-agent, a .zip of Stable-Baselines3, a checkpoint of
            Dopamine, or module:function
        output: where the results go, with sweep.csv and sweep.png; default: atari/GAME/sweep
        quick: one hyperparameter at a time, the others as in the paper; fewer updates
        updates: how many each network learns for
        seeds: networks of each setting
        rates: learning rates
        batch: transitions an update
        period: steps of the agent between two updates of the target network, 4 to an update
        layers: hidden layers
        units: units of each of them
        discount: how much the next step counts
        ignore_ends: the end of a game is a frame like any other, as in the published code
        key: of the games that are played
        device: what to learn on

    Examples:
        bisimetric atari sweep Pong --quick --data steps.npz -o sweep
        bisimetric atari sweep Pong --batch 64 128 --period 500 --layers 2 --units 16 32
    """
    length = None if updates is None else parse_count("--updates", updates, minimum=1)
    grid = {"batch": batch_size, "period": target_update_steps, "layers": layers, "units": units}
    _validate_grid(grid, learning_rates, seeds)
    played, player = load_game_and_agent(game, agent, steps)
    from bisimetric.cli import report
    from bisimetric.paper.atari import sweep as library
    from bisimetric.paper.atari import sweep_results

    folder = create_folder(played, output)
    if output is None:
        folder /= "sweep"
    data = steps.collect(played, player, seed)
    found = library.run_sweep(
        folder,
        data,
        quick=quick,
        selected_shapes=library.list_shapes(quick, grid),
        learning_rates=learning_rates,
        num_seeds=seeds,
        updates=length,
        discount=discount,
        terminal_state=not ignore_terminals,
        device=device,
    )
    table = sweep_results.tabulate(found)
    report.print_lines(
        [f"game       {played.name}, played by {player.name}: {len(table):,} settings"],
        sweep_results.format_table(table, library.get_paper_choice(played.name)),
    )
    report.print_lines(report.describe_saved(library.write_outputs(folder, found)))


def _validate_grid(
    grid: dict[str, tuple[int, ...]], learning_rates: Sequence[float], seeds: int
) -> None:
    least = {"batch": 2}
    for name, values in grid.items():
        low = least.get(name, 1)
        if not values or min(values) < low:
            given = " ".join(map(str, values)) or "empty"
            raise InputError(f"--{name} is {given} and must be whole numbers, at least {low}.")
    if not learning_rates or not all(0 < rate < 1 for rate in learning_rates):
        given = " ".join(f"{rate:g}" for rate in learning_rates) or "empty"
        raise InputError(f"--rates is {given} and must be numbers between 0 and 1.")
    if seeds < 1:
        raise InputError(f"--seeds is {seeds} and must be a whole number, at least 1.")
