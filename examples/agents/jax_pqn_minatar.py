"""Train PQN on MinAtar with a bisimulation loss, all in JAX: environments, agent and loss.

PQN (Gallici et al. 2024) is Q-learning with Q(lambda) targets on parallel environments, without a
replay buffer. `compute_loss` adds one of `bisimetric.losses` to its loss; everything else is the
agent. Needs `pip install 'bisimetric[learn]' gymnax`.

    python examples/agents/jax_pqn_minatar.py --help
    python examples/agents/jax_pqn_minatar.py --loss mico --game Asterix --steps 1000000
    python examples/agents/jax_pqn_minatar.py --loss on_policy --layer-norm --self-prediction 1

It prints the mean return with and without the loss. The defaults take minutes on two cores and
are too few steps to learn much. docs/reports/agents.md has the study.
"""

import argparse
import dataclasses
from functools import partial
from typing import Any, NamedTuple

import gymnax
import jax
import jax.numpy as jnp
import optax
from jax import Array

from bisimetric import losses

GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
LOSSES = ("mico", "simsr", "on_policy")
Params = dict[str, dict[str, Array]]


@dataclasses.dataclass(frozen=True)
class Config:
    """What is fixed when the program is compiled. Settings of PQN are those of its authors."""

    game: str = "Breakout"
    losses: tuple[str, ...] = ()
    steps: int = 200_000
    num_envs: int = 128
    rollout: int = 32
    epochs: int = 2
    minibatches: int = 32
    learning_rate: float = 5e-4
    discount: float = 0.99
    trace_decay: float = 0.65
    epsilon: float = 0.05
    exploration: float = 0.1
    """The part of the updates in which epsilon decays from 1."""
    num_features: int = 128
    num_coordinates: int = 64
    """Of the metric embeddings, a linear function of the features."""
    group_size: int = 8
    """Of `losses.metric_distance`."""
    lookahead: int = 8
    """Steps of the targets of the loss `on_policy`."""

    @property
    def num_updates(self) -> int:
        """Rollouts, each followed by epochs of gradient steps."""
        return max(1, self.steps // (self.num_envs * self.rollout))


class Options(NamedTuple):
    """Numbers that may differ between agents that `jax.vmap` trains at once."""

    layer_norm: float | Array = 0.0
    self_prediction: float | Array = 0.0
    weights: dict[str, float | Array] = {}  # noqa: RUF012
    distractors: float | Array = 0.0


class EnvState(NamedTuple):
    """The game and its distractor planes."""

    game: Any
    planes: Array


class Batch(NamedTuple):
    """Transitions, (rollout, num_envs, ...) or (minibatch, ...)."""

    observations: Array
    actions: Array
    rewards: Array
    terminated: Array
    truncated: Array
    next_features: Array
    next_values: Array


class TrainState(NamedTuple):
    """The state of the training loop."""

    params: Params
    optimizer: Any
    envs: EnvState
    observations: Array
    returns: Array
    num_updates: Array
    key: Array


# Two planes of i.i.d. noise, and two in which a pixel is drawn again every tenth step.
REDRAW = jnp.array([1.0, 1.0, 0.1, 0.1])
DENSITY = 0.2


class Game:
    """A game of gymnax with distractor planes, whose pixels are independent of the game."""

    def __init__(self, name: str) -> None:
        self.env, self.params = gymnax.make(f"{name}-MinAtar")
        self.num_actions = int(self.env.num_actions)
        self.num_planes = self.env.obs_shape[-1] + len(REDRAW)

    def observe(self, observation: Array, planes: Array, shown: float | Array) -> Array:
        """Return all planes as booleans, of which distractors are empty unless shown."""
        noise = planes & (jnp.asarray(shown) > 0)
        return jnp.concatenate([observation.astype(bool), noise], axis=-1)

    def reset(self, key: Array, shown: float | Array) -> tuple[Array, EnvState]:
        """Start an episode."""
        game_key, noise_key = jax.random.split(key)
        observation, game = self.env.reset(game_key, self.params)
        planes = jax.random.bernoulli(noise_key, DENSITY, (10, 10, len(REDRAW)))
        return self.observe(observation, planes, shown), EnvState(game, planes)

    def draw_planes(self, key: Array, planes: Array) -> Array:
        """Return the distractor planes of the next step."""
        draws = jax.random.uniform(key, planes.shape)
        return jnp.where(draws < REDRAW, draws < DENSITY * REDRAW, planes)

    def step(self, key: Array, state: EnvState, action: Array, shown: float | Array) -> Any:
        """Take a step, and start the next episode where this one ends.

        Returns:
            Observation, state, the observation before a restart, reward, terminated, truncated.
        """
        key, noise_key = jax.random.split(key)
        observation, game, reward, terminated, truncated, info = self.env.step(
            key, state.game, action, self.params
        )
        planes = self.draw_planes(noise_key, state.planes)
        last = self.observe(info["final_observation"], planes, shown)
        ended = truncated & ~terminated
        observation = self.observe(observation, planes, shown)
        return observation, EnvState(game, planes), last, reward, terminated, ended


def create_params(key: Array, config: Config, num_planes: int, num_actions: int) -> Params:
    """Draw the weights of the encoder, of the Q head, of the metric head and of the model."""
    size, k = config.num_features, config.num_coordinates
    shapes = {
        "conv": (9 * num_planes, 16, 2.0),
        "dense": (8 * 8 * 16, size, 2.0),
        "q": (size, num_actions, 1.0),
        "metric": (size, k, 1e-4),
        "model_in": (size + num_actions, size, 2.0),
        "model_out": (size, size, 1.0),
    }
    params = {}
    for (name, (fan_in, fan_out, gain)), each in zip(
        shapes.items(), jax.random.split(key, len(shapes)), strict=True
    ):
        weights = jax.random.normal(each, (fan_in, fan_out)) * (gain / fan_in) ** 0.5
        params[name] = {"w": weights, "b": jnp.zeros(fan_out)}
    # Nearly equal embeddings: all distances, also cosines, are small at first, as those of a value
    # iteration from below.
    params["metric"]["b"] += 0.1
    for name, width in (("conv_norm", 16), ("dense_norm", size)):
        params[name] = {"w": jnp.ones(width), "b": jnp.zeros(width)}
    return params


def apply_linear(layer: dict[str, Array], x: Array) -> Array:
    """Return x w + b."""
    return x @ layer["w"] + layer["b"]


def apply_norm(layer: dict[str, Array], x: Array, used: float | Array) -> Array:
    """Normalise the last axis where layer normalisation is used."""
    centred = x - x.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-6)
    return jnp.where(jnp.asarray(used) > 0, centred * scale * layer["w"] + layer["b"], x)


def encode(params: Params, observations: Array, layer_norm: float | Array) -> Array:
    """Return the features (b, f) of observations (b, 10, 10, planes)."""
    x = observations.astype(jnp.float32)
    # A 3 x 3 convolution as a product with patches, which is fast for many agents at once.
    patches = [x[:, i : i + 8, j : j + 8] for i in range(3) for j in range(3)]
    x = apply_linear(params["conv"], jnp.concatenate(patches, axis=-1))
    x = jax.nn.relu(apply_norm(params["conv_norm"], x, layer_norm))
    x = apply_linear(params["dense"], x.reshape(len(x), -1))
    return jax.nn.relu(apply_norm(params["dense_norm"], x, layer_norm))


def measure_distance(name: str, config: Config, x: Array, y: Array) -> Array:
    """Return the distance that a loss trains, in units of reward, of metric embeddings."""
    if name == "mico":
        return losses.mico_distance(x, y)
    if name == "simsr":
        return losses.cosine_distance(x, y) / (1 - config.discount)
    return losses.metric_distance(x, y, group_size=config.group_size)


def compute_metric_loss(
    name: str, config: Config, z: Array, next_z: Array, batch: dict[str, Array]
) -> Array:
    """Return a loss of `bisimetric.losses`; each transition is paired with a random one."""
    pairs: dict[str, Any] = {"discount": config.discount, "permutation": batch["partner"]}
    rewards, terminated = batch["rewards"], batch["terminated"]
    if name == "on_policy":
        return losses.on_policy(
            z,
            next_z,
            rewards,
            terminated,
            steps=batch["steps"],
            distance=partial(losses.metric_distance, group_size=config.group_size),
            error="huber",
            **pairs,
        )
    if name == "simsr":  # its distances are at most 2, so rewards are scaled
        scale = 1 - config.discount
        return losses.simsr(z, next_z[:, 0], scale * rewards[:, 0], terminated[:, 0], **pairs)
    return losses.mico(z, next_z[:, 0], rewards[:, 0], terminated[:, 0], **pairs)


def compute_loss(
    params: Params, options: Options, config: Config, batch: dict[str, Array]
) -> Array:
    """Return the loss of PQN, plus self-prediction and metric losses with their weights."""
    features = encode(params, batch["observations"], options.layer_norm)
    values = apply_linear(params["q"], features)
    chosen = jnp.take_along_axis(values, batch["actions"][:, None], axis=1)[:, 0]
    total = 0.5 * jnp.mean((chosen - batch["targets"]) ** 2)

    actions = jax.nn.one_hot(batch["actions"], values.shape[1])
    hidden = apply_linear(params["model_in"], jnp.concatenate([features, actions], axis=1))
    predicted = apply_linear(params["model_out"], jax.nn.relu(hidden))
    total += options.self_prediction * losses.deepmdp_transition(
        predicted, batch["next_features"][:, 0], batch["terminated"][:, 0]
    )

    z = apply_linear(params["metric"], features)
    for name in config.losses:
        loss = compute_metric_loss(name, config, z, batch["next_z"], batch)
        total += options.weights[name] * loss
    return total


def compute_returns(batch: Batch, config: Config) -> Array:
    """Return the Q(lambda) targets of a rollout; an episode that is truncated is bootstrapped."""

    def step(following: Array, each: Any) -> tuple[Array, Array]:
        reward, terminated, truncated, value = each
        mixed = (1 - config.trace_decay) * value + config.trace_decay * following
        mixed = jnp.where(truncated, value, mixed)
        target = reward + config.discount * jnp.where(terminated, 0.0, mixed)
        return target, target

    fields = (batch.rewards, batch.terminated, batch.truncated, batch.next_values)
    return jax.lax.scan(step, batch.next_values[-1], fields, reverse=True)[1]


def count_steps(batch: Batch) -> Array:
    """Return the recorded steps from each transition to the end of its episode or rollout."""

    def step(following: Array, ended: Array) -> tuple[Array, Array]:
        steps = jnp.where(ended, 1, following + 1)
        return steps, steps

    ended = batch.terminated | batch.truncated
    return jax.lax.scan(step, jnp.zeros(ended.shape[1:], int), ended, reverse=True)[1]


def gather_minibatch(
    batch: Batch, targets: Array, steps: Array, rows: Array, lookahead: int
) -> dict[str, Array]:
    """Return some transitions of a rollout, numbered step by step, and what follows each of them.

    Rewards, terminations and next features have a second axis of `lookahead` steps. Those after
    the recorded `steps` of a transition are not of its episode, or repeat the end of the rollout.
    """
    length, num_envs = batch.rewards.shape
    time, env = rows // num_envs, rows % num_envs
    window = jnp.minimum(time[:, None] + jnp.arange(lookahead), length - 1), env[:, None]
    return {
        "observations": batch.observations[time, env],
        "actions": batch.actions[time, env],
        "targets": targets[time, env],
        "rewards": batch.rewards[window],
        "terminated": batch.terminated[window],
        "next_features": batch.next_features[window],
        "steps": jnp.minimum(steps[time, env], lookahead),
    }


class Trainer:
    """PQN for one game, as functions that can be compiled and mapped over agents."""

    def __init__(self, config: Config) -> None:
        self.config, self.game = config, Game(config.game)
        gradient_steps = config.num_updates * config.epochs * config.minibatches
        rate = optax.linear_schedule(config.learning_rate, 1e-20, gradient_steps)
        self.optimizer = optax.chain(optax.clip_by_global_norm(10.0), optax.radam(rate))

    def create(self, seed: int | Array, options: Options) -> TrainState:
        """Return the state before the first update."""
        key, params_key, reset_key = jax.random.split(jax.random.key(seed), 3)
        game = self.game
        params = create_params(params_key, self.config, game.num_planes, game.num_actions)
        keys = jax.random.split(reset_key, self.config.num_envs)
        observations, envs = jax.vmap(game.reset, (0, None))(keys, options.distractors)
        returns = jnp.zeros(self.config.num_envs)
        state = self.optimizer.init(params)
        return TrainState(params, state, envs, observations, returns, jnp.array(0), key)

    def select_actions(
        self, params: Params, observations: Array, options: Options, key: Array, epsilon: Array
    ) -> Array:
        """Return epsilon-greedy actions."""
        values = apply_linear(params["q"], encode(params, observations, options.layer_norm))
        draw_key, explore_key = jax.random.split(key)
        draws = jax.random.randint(draw_key, (len(values),), 0, self.game.num_actions)
        explore = jax.random.uniform(explore_key, (len(values),)) < epsilon
        return jnp.where(explore, draws, jnp.argmax(values, axis=1))

    def collect(self, state: TrainState, options: Options) -> tuple[TrainState, Batch, Array]:
        """Play one rollout; return its transitions, and the sum and number of finished returns."""
        config, params = self.config, state.params
        decay = max(1, round(config.exploration * config.num_updates))
        progress = jnp.minimum(state.num_updates / decay, 1.0)
        epsilon = 1 + progress * (config.epsilon - 1)

        def step(carry: Any, key: Array) -> tuple[Any, tuple[Batch, Array]]:
            envs, observations, returns = carry
            act_key, step_key = jax.random.split(key)
            actions = self.select_actions(params, observations, options, act_key, epsilon)
            following, envs, last, rewards, terminated, truncated = jax.vmap(
                self.game.step, (0, 0, 0, None)
            )(jax.random.split(step_key, config.num_envs), envs, actions, options.distractors)
            features = encode(params, last, options.layer_norm)
            best = jnp.max(apply_linear(params["q"], features), axis=1)
            batch = Batch(observations, actions, rewards, terminated, truncated, features, best)
            returns, ended = returns + rewards, terminated | truncated
            finished = jnp.array([jnp.sum(jnp.where(ended, returns, 0.0)), jnp.sum(ended)])
            return (envs, following, jnp.where(ended, 0.0, returns)), (batch, finished)

        key, rollout_key = jax.random.split(state.key)
        carry = (state.envs, state.observations, state.returns)
        keys = jax.random.split(rollout_key, config.rollout)
        (envs, observations, returns), (batch, finished) = jax.lax.scan(step, carry, keys)
        state = state._replace(envs=envs, observations=observations, returns=returns, key=key)
        return state, batch, jnp.sum(finished, axis=0)

    def update(self, state: TrainState, options: Options) -> tuple[TrainState, Array]:
        """Play one rollout and learn from it; return the sum and number of finished returns."""
        config = self.config
        target_metric = state.params["metric"]
        state, batch, finished = self.collect(state, options)
        targets, steps = compute_returns(batch, config), count_steps(batch)
        lookahead = config.lookahead if "on_policy" in config.losses else 1
        size = config.num_envs * config.rollout

        def learn(carry: Any, rows: Array) -> tuple[Any, None]:
            params, optimizer, key = carry
            key, partner_key = jax.random.split(key)
            minibatch = gather_minibatch(batch, targets, steps, rows, lookahead)
            # The network that played the rollout is the target network.
            minibatch["next_z"] = apply_linear(target_metric, minibatch["next_features"])
            minibatch["partner"] = jax.random.permutation(partner_key, len(rows))
            gradient = jax.grad(compute_loss)(params, options, config, minibatch)
            change, optimizer = self.optimizer.update(gradient, optimizer, params)
            return (optax.apply_updates(params, change), optimizer, key), None

        key, learn_key, *keys = jax.random.split(state.key, 2 + config.epochs)
        rows = jnp.concatenate([jax.random.permutation(each, size) for each in keys])
        rows = rows.reshape(config.epochs * config.minibatches, -1)
        carry = (state.params, state.optimizer, learn_key)
        (params, optimizer, _), _ = jax.lax.scan(learn, carry, rows)
        num_updates = state.num_updates + 1
        return state._replace(
            params=params, optimizer=optimizer, num_updates=num_updates, key=key
        ), finished

    def train(self, seed: int | Array, options: Options) -> tuple[TrainState, Array]:
        """Train one agent; return its state, and the sum and number of returns per update."""
        return jax.lax.scan(
            lambda state, _: self.update(state, options),
            self.create(seed, options),
            None,
            self.config.num_updates,
        )


def measure_return(config: Config, options: Options, seeds: int) -> Array:
    """Return the mean return of the episodes that end in the last quarter, per seed."""
    train = jax.jit(jax.vmap(Trainer(config).train, (0, None)))
    _, finished = train(jnp.arange(seeds), options)
    total, number = finished[:, -max(1, config.num_updates // 4) :].sum(axis=1).T
    return jnp.where(number > 0, total / jnp.maximum(number, 1), jnp.nan)


def main() -> None:
    """Train with and without the loss, and print both returns."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--game", choices=GAMES, default="Breakout")
    parser.add_argument("--loss", choices=("none", *LOSSES), default="mico")
    parser.add_argument("--weight", type=float, default=0.1, help="weight of the loss")
    parser.add_argument("--self-prediction", type=float, default=0.0, help="its weight")
    parser.add_argument("--layer-norm", action="store_true", help="normalise layers")
    parser.add_argument("--distractors", action="store_true", help="show four planes of noise")
    parser.add_argument("--steps", type=int, default=200_000, help="of the environments")
    parser.add_argument("--num-envs", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    flags = (float(args.layer_norm), args.self_prediction)
    for loss in dict.fromkeys(("none", args.loss)):
        names = () if loss == "none" else (loss,)
        config = Config(args.game, names, steps=args.steps, num_envs=args.num_envs)
        options = Options(*flags, dict.fromkeys(names, args.weight), float(args.distractors))
        returns = measure_return(config, options, args.seeds)
        print(f"{loss:10} mean return {returns.mean():6.2f}, per seed {returns.round(2).tolist()}")


if __name__ == "__main__":
    main()
