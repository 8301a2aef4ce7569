"""Learn d~ and d^pi with a network: build a source, fit, and wrap the result."""

from __future__ import annotations

import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

import bisimetric
from bisimetric.distance import Distance
from bisimetric.errors import (
    HorizonWarning,
    InputError,
    StochasticDataWarning,
    require_integer,
)
from bisimetric.exact.gaps import GapFunction
from bisimetric.learned import evaluation, files, source_builders, training
from bisimetric.learned._fit import fit
from bisimetric.learned.config import DEFAULT_OPTIONS, RunOptions
from bisimetric.learned.costs import describe_costs, require_gap_of_mdp
from bisimetric.learned.defaults import DEFAULT_UPDATES, choose_config, choose_updates
from bisimetric.learned.learned_distance import LearnedDistance
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.model_based import ModelBasedConfig, describe_uncertainty
from bisimetric.learned.networks.pair_network import require_scalar_output
from bisimetric.learned.repeated_states import describe_randomness
from bisimetric.learned.sources import StateSource, TrainingSource
from bisimetric.learned.training import Algorithm, select_device
from bisimetric.learned.transition_model import ModelSource, source_from_model
from bisimetric.mdp import MDP, validate_discount
from bisimetric.mdp._validation import resolve_policy
from bisimetric.transitions import DEFAULT_DISCOUNT, Transitions


def bisimulation(
    source: MDP | Transitions | TrainingSource,
    *,
    updates: int | None = None,
    seed: int = 0,
    discount: float | None = None,
    config: Algorithm | None = None,
    noise: float = 0.0,
    noise_clip: float = 0.3,
    reference: Distance | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
    gap: ArrayLike | GapFunction | None = None,
) -> LearnedDistance:
    """Approximate the bisimulation metric d~ with a network psi.

    d~ is the optimal value function of the synchronous product MDP, in which two copies of the
    MDP take the same actions (Ferns & Precup 2014). An update samples a batch of transitions and,
    for all pairs with the same action a, reduces the squared error of

        psi_a(s, t)  against  |r - r'| + discount * max_b psi'_b(s', t'),

    with psi' the target network; d(s, t) = max_a psi_a(s, t). Double Q-learning: one network
    selects b, the other evaluates it. For an enumerable MDP without noise, targets look
    `PairQConfig.lookahead` steps ahead. The default network is a pseudometric by construction. The
    terminal state is a state like any other. Nothing is proven about the error: see
    `LearnedDistance.quality`. `learned.castro2020` is the algorithm of Castro (2020).

    If the MDP or the data are stochastic, or the data hold every action in every state, the network
    is fitted to the exact distances of a transition model instead: see `source_from_model` and
    `ModelBasedConfig`.

    Args:
        source: an MDP, whose states are described by its features, else their positions, else
            one-hot vectors; or transitions, whose observations are standardised; or a training
            source.
        updates: gradient updates in all, including those before `options.resume`; default: 24,000,
            and 8,000 with a transition model.
        seed: seed of the weights and the batches; the same seed gives the same run.
        discount: default: that of the MDP, and 0.99 for recorded data.
        config: the algorithm, its network and hyperparameters; default: `choose_config`, by the
            data and the device.
        noise: for an MDP, the standard deviation of Gaussian noise added to the features of a
            state and its successor alike, which makes the states continuous.
        noise_clip: the largest noise, in either direction.
        reference: the exact distance, for an MDP; errors against it are recorded in `history`.
        options: logging, early stopping, checkpoints and devices.
        gap: for an MDP, immediate costs in place of the differences of rewards; see
            `exact.bisimulation` and `exact.on_policy`. The default algorithm is then
            `ModelBasedConfig()`, as for an MDP with observations.

    Returns:
        The learned distance, in units of reward.

    Raises:
        InputError: when an argument is out of range, the data holds no pair to compare, or the MDP
            is stochastic or lacks actions and `config` is for deterministic ones.
        Diverged: when the loss or a weight is not finite, or the output is 0 for all pairs.
        InsufficientMemory: when training would not fit into memory.

    >>> from bisimetric import worlds
    >>> from bisimetric.learned import MetricNetwork, PairQConfig
    >>> network = MetricNetwork((16,), num_groups=4, group_size=2)
    >>> config = PairQConfig(network, batch_size=32, warm_up=100)
    >>> mdp = worlds.load("pessimism", discount=0.5)
    >>> d = bisimulation(mdp, updates=1_000, seed=1, config=config)
    >>> round(d("s", "t"), 1)
    2.0
    """
    return learn_distance(
        "bisimulation",
        source,
        None,
        updates=updates,
        seed=seed,
        discount=discount,
        config=config,
        noise=noise,
        noise_clip=noise_clip,
        reference=reference,
        options=options,
        gap=gap,
    )


def on_policy(
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None = None,
    *,
    updates: int | None = None,
    seed: int = 0,
    discount: float | None = None,
    config: Algorithm | None = None,
    noise: float = 0.0,
    noise_clip: float = 0.3,
    reference: Distance | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
    gap: ArrayLike | GapFunction | None = None,
) -> LearnedDistance:
    """Approximate the on-policy metric d^pi with a network psi.

    All pairs of a batch are compared, whatever their actions, which are those of the policy:

        psi(s, t)  against  |r - r'| + discount * psi'(s', t'),

    with psi' the target network. Recorded episodes give n-step targets,

        sum_{k<n} discount^k |r_k - r'_k| + discount^n psi'(s_n, t_n),

    with n = `PairQConfig.lookahead`. An episode that terminates continues in the terminal state
    with reward 0; where one is truncated before, psi' is evaluated there. If the dynamics or the
    policy are stochastic, such distances come out too large, the more so the larger n is. Where
    states repeat with different outcomes, and for a stochastic MDP or policy, the network is
    therefore fitted to the exact distances of a transition model: see `ModelBasedConfig`.

    Args:
        source: an MDP, whose states are described by its features, else their positions, else
            one-hot vectors; or transitions, whose observations are standardised; or a training
            source, which has its policy already.
        policy: (S,) actions, for an MDP also (S, A) probabilities. For an MDP the default is its
            own policy, or its only action. For recorded data, transitions with other actions are
            left out; without a policy all of them are used.
        updates: gradient updates in all, including those before `options.resume`; default: 24,000;
            with a transition model 8,000; from recorded data on a CPU 20,000 for observations of at
            most 8 numbers, and 8,000 for others.
        seed: seed of the weights and the batches; the same seed gives the same run.
        discount: default: that of the MDP, and 0.99 for recorded data.
        config: the algorithm, its network and hyperparameters; default: `choose_config`, by the
            data and the device.
        noise: for an MDP, the standard deviation of Gaussian noise added to the features of a
            state and its successor alike, which makes the states continuous.
        noise_clip: the largest noise, in either direction.
        reference: the exact distance, for an MDP; errors against it are recorded in `history`.
        options: logging, early stopping, checkpoints and devices.
        gap: for an MDP, immediate costs in place of the differences of rewards; see
            `exact.bisimulation` and `exact.on_policy`. The default algorithm is then
            `ModelBasedConfig()`, as for an MDP with observations.

    Returns:
        The learned distance, in units of reward.

    Raises:
        InputError: when an argument is out of range, fewer than 2 transitions can be used, or the
            MDP or the policy is stochastic and `config` is for deterministic ones.
        Diverged: when the loss or a weight is not finite, or the output is 0 for all pairs.
        InsufficientMemory: when training would not fit into memory.

    >>> from bisimetric import worlds
    >>> from bisimetric.learned import MetricNetwork, PairQConfig
    >>> network = MetricNetwork((16,), num_groups=4, group_size=2)
    >>> config = PairQConfig(network, batch_size=32, warm_up=100)
    >>> mdp = worlds.load("pessimism", discount=0.5)
    >>> d = on_policy(mdp, [0] * mdp.num_states, updates=1_000, seed=1, config=config)
    >>> d.kind
    'on_policy'
    """
    return learn_distance(
        "on_policy",
        source,
        policy,
        updates=updates,
        seed=seed,
        discount=discount,
        config=config,
        noise=noise,
        noise_clip=noise_clip,
        reference=reference,
        options=options,
        gap=gap,
    )


def initialise(
    kind: LearnedKind,
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None = None,
    *,
    seed: int = 0,
    discount: float | None = None,
    config: Algorithm | None = None,
) -> LearnedDistance:
    """Return a distance with random weights, to be trained by a loop of one's own.

    The weights are those that `bisimulation`, `on_policy` and `mico` start from with this seed.

    Args:
        kind: "bisimulation", "on_policy" or "mico".
        source: an MDP, transitions or a training source, which determine the scaling of
            observations, the unit of distances and whether there is a terminal state.
        policy: (S,) actions; see `on_policy`.
        seed: seed of the weights.
        discount: default: that of the MDP, and 0.99 for recorded data.
        config: the algorithm, its network and hyperparameters; default: `choose_config`, and
            `PairTDConfig()` for MICo.

    Returns:
        The distance; `params`, `apply` and `loss` are what a training step needs.

    Raises:
        InputError: when an argument is out of range or does not fit the source.

    >>> from bisimetric import worlds
    >>> d = initialise("bisimulation", worlds.load("pessimism", discount=0.5))
    >>> d.metadata["updates"]
    0
    """
    if discount is None and isinstance(source, StateSource):
        raise InputError(
            "is missing, and a training source has none of its own",
            caller="learned.initialise",
            argument="discount",
            remedy="give one",
        )
    mdp = source if isinstance(source, MDP) else None
    if discount is None:
        discount = DEFAULT_DISCOUNT if mdp is None else mdp.discount
    discount = validate_discount(discount)
    if config is None and kind == "mico":
        from bisimetric.learned._mico import PairTDConfig  # which imports this module

        config = PairTDConfig()
    elif config is None:
        config = choose_config(kind, source, policy=policy)
    training_source = _build_source(kind, source, policy, discount, config)
    network = config.build_network(training_source, kind, discount)
    features = training_source.scaling.num_features
    require_scalar_output(network, features)
    keys = jnp.stack([jax.random.key(require_integer("learned.initialise", "seed", seed, 0))])
    state = training.initialise_state(config, network, features, keys)
    metadata = {
        "method": "learned",
        **files.describe_run(kind, discount, config, (seed,)),
        "updates": 0,
        **describe_costs(mdp),
    }
    names, points = _list_states(source, training_source)
    return LearnedDistance(
        kind,
        discount,
        network,
        jax.tree.map(lambda leaf: leaf[0], state.parameters),
        training_source.scaling,
        None if mdp is None else mdp.replace(discount=discount),
        points,
        metadata,
        {},
        names,
    )


def learn_distance(
    kind: LearnedKind,
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None,
    *,
    updates: int | None,
    seed: int,
    discount: float | None,
    config: Algorithm | None,
    noise: float,
    noise_clip: float,
    reference: Distance | None,
    options: RunOptions,
    gap: ArrayLike | GapFunction | None = None,
) -> LearnedDistance:
    """Learn a distance of any kind; called by the exported functions only (see `stacklevel`)."""
    caller = f"learned.{kind}"
    if isinstance(source, StateSource) and discount is None:
        raise InputError(
            "is missing, and a training source has none of its own",
            caller=caller,
            argument="discount",
            remedy="give one",
        )
    mdp = source if isinstance(source, MDP) else None
    require_gap_of_mdp(kind, source, gap)
    if discount is not None:
        discount = validate_discount(discount)
    else:
        discount = DEFAULT_DISCOUNT if mdp is None else mdp.discount
    device = select_device(kind, options.device)
    start_time = time.perf_counter()
    with jax.default_device(device):
        if config is None:
            config = ModelBasedConfig()
            if gap is None:
                config = choose_config(kind, source, options.device, policy=policy)
            updates = choose_updates(config) if updates is None else updates
        training_source = _build_source(
            kind, source, policy, discount, config, noise=noise, noise_clip=noise_clip, gap=gap
        )
        randomness = None
        if isinstance(training_source, ModelSource):
            problem = describe_uncertainty(kind, training_source)
        else:
            if isinstance(source, Transitions):
                randomness = describe_randomness(kind, source, policy)
            problem = randomness
        if problem is not None:
            warnings.warn(problem, StochasticDataWarning, stacklevel=3)
        measure = None
        if reference is not None:
            if not isinstance(training_source, StateSource) or reference.values.shape != (
                len(training_source.compute_features()),
                len(training_source.compute_features()),
            ):
                raise InputError(
                    "must be a distance between the states of the MDP that is learned from",
                    caller=caller,
                    argument="reference",
                )
            measure = evaluation.build_reference_measure(
                reference.values,
                config.build_network(training_source, kind, discount),
                training_source.compute_features(),
            )
        result = fit(
            kind,
            training_source,
            discount=discount,
            updates=DEFAULT_UPDATES if updates is None else updates,
            seeds=[seed],
            config=config,
            measure=measure,
            options=options,
        )
    completed = int(result.state.step)
    lookahead = config.effective_lookahead(training_source, result.network)
    required = config.count_horizon_updates(discount, lookahead)
    if completed < required:
        warnings.warn(
            f"{caller}: {completed:,} updates do not cover the horizon, for which {required:,} are "
            "needed; give more updates, or a smaller target_update_period.",
            HorizonWarning,
            stacklevel=3,
        )
    metadata: dict[str, Any] = {
        "method": "learned",
        **files.describe_run(kind, discount, config, result.seeds),
        "effective_lookahead": lookahead,
        "updates": completed,
        "required_updates": required,
        "seconds": round(time.perf_counter() - start_time, 3),
        "device": device.platform,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
    metadata.update(describe_costs(mdp, gap))
    if isinstance(source, Transitions):
        metadata["stochastic_data"] = randomness is not None
    if isinstance(training_source, ModelSource):
        metadata["model"] = dict(training_source.summary)
    if mdp is not None and kind != "bisimulation":
        actions = resolve_policy(kind, mdp, policy, caller="learned")
        metadata["policy"] = np.asarray(actions).tolist()
    names, points = _list_states(source, training_source)
    return LearnedDistance(
        kind,
        discount,
        result.network,
        result.parameters(0),
        training_source.scaling,
        None if mdp is None else mdp.replace(discount=discount),
        points,
        metadata,
        {name: each if name == "step" else each[0] for name, each in result.history.items()},
        names,
    )


def _build_source(
    kind: LearnedKind,
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None,
    discount: float,
    config: Algorithm,
    *,
    noise: float = 0.0,
    noise_clip: float = 0.0,
    gap: ArrayLike | GapFunction | None = None,
) -> TrainingSource:
    """Return the training source of an algorithm; model-based learning has one of its own."""
    if not isinstance(config, ModelBasedConfig) or isinstance(source, ModelSource):
        return source_builders.build_source(kind, source, policy, noise, noise_clip, gap)
    if noise:
        raise InputError(
            "is not available for a ModelBasedConfig",
            caller=f"learned.{kind}",
            argument="noise",
            remedy="give a learned.PairQConfig",
        )
    return source_from_model(
        kind,
        source,
        policy,
        discount=discount,
        max_states=config.max_states,
        num_representatives=config.num_representatives,
        neighbours=config.neighbours,
        gap=gap,
    )


def _list_states(
    source: Any, training_source: TrainingSource
) -> tuple[tuple[str, ...] | None, NDArray[np.float32] | None]:
    """Return the names and the observations of the states, where they are enumerated."""
    scaling = training_source.scaling
    if isinstance(training_source, StateSource) and len(training_source.points):
        points = np.asarray(training_source.points)
        if scaling.shape is not None:
            points = points.reshape(len(points), *scaling.shape)
        return source.names if isinstance(source, MDP) else None, points
    if isinstance(source, Transitions) and source_builders.has_id_observations(source):
        return source.names, np.eye(len(scaling.shift), dtype=np.float32)
    return None, None
