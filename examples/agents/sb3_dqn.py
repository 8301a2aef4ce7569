"""Train a DQN of Stable-Baselines3 with a bisimulation loss, through its extension points.

A subclass of `DQN` overrides `train`, and the features extractor is the encoder: nothing of
Stable-Baselines3 is patched, and saving, loading and callbacks work as before. Needs
`pip install 'bisimetric[torch]' stable-baselines3`.

    python examples/agents/sb3_dqn.py --help
    python examples/agents/sb3_dqn.py --loss on_policy --weight 0.1 --steps 20000

It prints the mean return of twenty episodes after training, with and without the loss.
"""

import argparse
from typing import Any

import gymnasium
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from bisimetric.losses import torch as losses

LOSSES = ("mico", "simsr", "on_policy")


class Encoder(BaseFeaturesExtractor):
    """The features on which both the action values and the metric depend."""

    def __init__(self, observation_space: gymnasium.spaces.Box, features_dim: int = 64) -> None:
        super().__init__(observation_space, features_dim)
        self.layers = nn.Sequential(
            nn.Linear(observation_space.shape[0], 64), nn.ReLU(), nn.Linear(64, features_dim)
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return the features (b, features_dim)."""
        return self.layers(observations)


class MetricDQN(DQN):
    """DQN whose encoder is also trained by a loss of `bisimetric.losses.torch`."""

    def __init__(self, *args: Any, loss: str = "none", weight: float = 0.1, **options: Any) -> None:
        self.loss, self.weight = loss, weight
        super().__init__(*args, **options)

    def compute_loss(self, batch: Any) -> torch.Tensor:
        """Return the loss of DQN, plus that of the metric with its weight."""
        rewards, ends = batch.rewards.squeeze(-1), batch.dones.squeeze(-1)
        features = self.embed(self.q_net, batch.observations)
        values = self.q_net.q_net(features).gather(1, batch.actions.long())[:, 0]
        with torch.no_grad():
            next_features = self.embed(self.q_net_target, batch.next_observations)
            best = self.q_net_target.q_net(next_features).max(dim=1).values
            targets = rewards + self.gamma * (1 - ends) * best
        total = nn.functional.smooth_l1_loss(values, targets)
        if self.loss != "none":
            # Scaled rewards: distances are at most 1, and SimSR's cannot exceed 2.
            scaled = (1 - self.gamma) * rewards
            metric_loss = getattr(losses, self.loss)
            total = total + self.weight * metric_loss(
                features, next_features, scaled, ends, discount=self.gamma
            )
        return total

    @staticmethod
    def embed(network: Any, observations: torch.Tensor) -> torch.Tensor:
        """Return the features of a Q network."""
        return network.extract_features(observations, network.features_extractor)

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Take gradient steps on batches of the replay buffer, as `DQN.train` does."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        for _ in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            loss = self.compute_loss(batch)
            self.policy.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", loss.item())


def train(steps: int, loss: str = "none", weight: float = 0.1, seed: int = 0) -> MetricDQN:
    """Train on CartPole, with hyperparameters of RL Zoo for a short run."""
    return MetricDQN(
        "MlpPolicy",
        Monitor(gymnasium.make("CartPole-v1")),
        policy_kwargs={"features_extractor_class": Encoder, "net_arch": [64]},
        loss=loss,
        weight=weight,
        seed=seed,
        learning_rate=1e-3,
        learning_starts=min(1_000, steps // 2),
        train_freq=16,
        gradient_steps=8,
        batch_size=64,
        target_update_interval=250,
        exploration_fraction=0.3,
        device="cpu",
    ).learn(steps)


def main() -> None:
    """Train with and without the loss, and print both returns."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loss", choices=("none", *LOSSES), default="mico")
    parser.add_argument("--weight", type=float, default=0.1, help="weight of the loss")
    parser.add_argument("--steps", type=int, default=10_000, help="of the environment")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for loss in dict.fromkeys(("none", args.loss)):
        agent = train(args.steps, loss, args.weight, args.seed)
        mean, deviation = evaluate_policy(agent, agent.get_env(), n_eval_episodes=20)
        print(f"{loss:10} mean return {mean:6.1f} (standard deviation {deviation:.1f})")


if __name__ == "__main__":
    main()
