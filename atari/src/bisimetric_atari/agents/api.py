"""Load agents by file or name, and evaluate them: pretrained, of other libraries, and callables."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._optional import import_optional
from bisimetric._progress import show_progress
from bisimetric.errors import InputError, require_integer
from bisimetric_atari.games.agent import (
    EPSILON,
    Agent,
    EpsilonGreedyPolicy,
    get_observes,
    validate_agent,
)
from bisimetric_atari.games.environments import (
    FRAME_SKIP,
    MAX_NOOPS,
    REPEAT_ACTION_PROBABILITY,
    AtariGames,
    Game,
    find_game,
)

WEIGHTS_FOLDER = Path(__file__).parent / "trained"
"""One file per game: `<game>.safetensors`."""

ACCEPTED_FORMATS = (
    "name a .safetensors file of `bisimetric atari train-agent`, a .zip of Stable-Baselines3, a "
    "checkpoint of Dopamine, or module:function"
)
FUNCTION_HELP = (
    "for any other agent write a Python function that loads it and returns (action, features, "
    "value), state for each observation, and name it module:function; an example is at "
    "https://bisimetric.github.io/bisimetric/how-to/atari.html#use-your-own-agent"
)


def pretrained(game: str | Game) -> Agent:
    """Load the Rainbow agent that is included for a game.

    Its `metadata` hold the configuration of its training and its evaluation.

    Args:
        game: the game or its name: Asterix, Pong or SpaceInvaders.

    Returns:
        The agent.

    Raises:
        InputError: if the game is unknown or no agent is included for it.

    >>> pretrained("Pong").name
    'rainbow of Pong'
    """
    from bisimetric_atari.agents import rainbow

    game = find_game(game)
    path = WEIGHTS_FOLDER / f"{game.name}.safetensors"
    if not path.exists():
        available = ", ".join(sorted(file.stem for file in WEIGHTS_FOLDER.glob("*.safetensors")))
        raise InputError(
            f"{game.name}: no pretrained agent is included for it, only for {available}; train one "
            f"with `bisimetric atari train-agent {game.name}`, or name yours with --agent."
        )
    return rainbow.load(path)


def load(spec: str | os.PathLike[str] | None, game: str | Game) -> Agent:
    """Load an agent for a game.

    Args:
        spec: a `.safetensors` file of `rainbow.save`, a `.zip` of Stable-Baselines3, any other file
            for a checkpoint of Dopamine, or the prefix of one of TensorFlow, `tf_ckpt-199`,
            `module:function` or `file.py:function` for a Python callable, or None for the
            pretrained agent. Modules are executed: name only trusted ones. Files are read without
            executing code.
        game: the game or its name.

    Returns:
        The agent.

    Raises:
        InputError: if there is no such file, it holds no agent, or the agent's observations,
            actions or game differ from this game's.

    >>> load("pong.zip", "Pong")
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: agents: there is no file 'pong.zip'; name a .safetensors file of
    `bisimetric atari train-agent`, a .zip of Stable-Baselines3, a checkpoint of Dopamine, or
    module:function.
    """
    game = find_game(game)
    agent = validate_agent(_resolve(None if spec is None else os.fspath(spec), game), game)
    trained_on = getattr(agent, "metadata", {}).get("game", game.name)
    if trained_on != game.name:
        raise InputError(
            f"agents: {spec} was trained on {trained_on} and not on {game.name}; give an agent "
            "of this game."
        )
    return agent


def _resolve(spec: str | None, game: Game) -> Agent:
    """Load an agent with the reader that its name calls for."""
    agent: Agent
    if spec is None:
        _import_loader("rainbow", "agents")
        return pretrained(game)
    path, num_actions = Path(spec), len(game.actions)
    module, colon, attribute = spec.rpartition(":")
    if is_bundle(spec):
        return _load_dopamine(spec, num_actions)
    if path.is_dir():
        inside = ", a checkpoint in it" if any(path.glob("ckpt.*")) else ""
        raise InputError(f"agents: {spec} is a folder; name a file{inside}.")
    if not path.is_file() and colon and module and attribute.isidentifier():
        agent = _import_loader("callables", spec).load(spec, game)
    elif not path.is_file():
        raise InputError(f"agents: there is no file {spec!r}; {ACCEPTED_FORMATS}.")
    elif path.suffix == ".zip":
        agent = _import_loader("stable_baselines", spec).load(path)
    elif path.suffix == ".safetensors":
        agent = _import_loader("rainbow", spec).load(path)
    elif zipfile.is_zipfile(path) or path.suffix == ".py":
        raise InputError(
            f"agents: {spec} holds no readable agent; {ACCEPTED_FORMATS}; {FUNCTION_HELP}."
        )
    else:
        agent = _load_dopamine(spec, num_actions)
    return agent


def _load_dopamine(spec: str, num_actions: int) -> Agent:
    """Read a checkpoint of Dopamine; for a file of another name, an error explains functions."""
    loader = _import_loader("dopamine", spec)
    try:
        agent: Agent = loader.load(Path(spec), num_actions)
    except InputError as error:
        if Path(spec).name.startswith("ckpt") or is_bundle(spec):
            raise
        raise InputError(
            f"agents: {spec} is no checkpoint of Dopamine ({str(error).rstrip('.')}); "
            f"{FUNCTION_HELP}."
        ) from None
    return agent


def is_bundle(spec: str) -> bool:
    """Return whether a name is that of a checkpoint of TensorFlow: `NAME.index` is a file."""
    return Path(spec.removesuffix(".index") + ".index").is_file()


def _import_loader(name: str, caller: str) -> Any:
    """Import a module of this package; an InputError names a missing dependency of it."""
    return import_optional(f"bisimetric_atari.agents.{name}", caller, None, "bisimetric-atari")


def evaluate(
    game: str | Game,
    agent: Agent,
    *,
    num_episodes: int = 30,
    seed: int = 0,
    epsilon: float = EPSILON,
    max_noops: int = MAX_NOOPS,
    frame_skip: int = FRAME_SKIP,
    repeat_action_probability: float = REPEAT_ACTION_PROBABILITY,
) -> NDArray[np.float64]:
    """Play complete episodes in parallel and return their undiscounted, unclipped returns.

    Args:
        game: the game or its name.
        agent: the agent that plays it.
        num_episodes: number of episodes, one per parallel game.
        seed: of the no-op starts and the random actions.
        epsilon: probability of a uniformly random action.
        max_noops: no-op frames at the start of an episode, fewer than this.
        frame_skip: emulator frames per step.
        repeat_action_probability: sticky actions: the probability, per frame, that the emulator
            repeats the last action.

    Returns:
        The scores (num_episodes,).

    Raises:
        InputError: if the agent does not fit the game or an argument is out of range.

    >>> from bisimetric_atari.games import IdleAgent
    >>> evaluate("Pong", IdleAgent("Pong"), num_episodes=1).tolist()
    [-21.0]
    """
    num_episodes = require_integer("agents.evaluate", "num_episodes", num_episodes, 1)
    games = AtariGames(
        game,
        num_episodes,
        seed=seed,
        max_noops=max_noops,
        frame_skip=frame_skip,
        repeat_action_probability=repeat_action_probability,
        observes=get_observes(agent),
    )
    policy = EpsilonGreedyPolicy(agent, games.game, num_episodes, epsilon=epsilon, seed=seed)
    scores, finished = np.zeros(num_episodes), np.zeros(num_episodes, np.bool_)
    step = games.reset()
    with show_progress(num_episodes, f"playing {games.game.name}") as progress:
        while not finished.all():
            _, action = policy.act(step.observations, step.is_first)
            step = games.step(action)
            scores += np.where(finished, 0.0, step.rewards)
            finished |= step.terminated | step.truncated
            progress.set_position(float(finished.sum()))
    return scores


def summarise_evaluation(
    game: str | Game,
    agent: Agent,
    *,
    num_episodes: int = 30,
    seed: int = 0,
    epsilon: float = EPSILON,
) -> dict[str, Any]:
    """Evaluate an agent; return options, mean and scores as JSON-compatible values."""
    scores = evaluate(game, agent, num_episodes=num_episodes, seed=seed, epsilon=epsilon)
    options = {"num_episodes": num_episodes, "seed": seed, "epsilon": epsilon}
    return {**options, "mean": float(scores.mean()), "scores": scores.tolist()}
