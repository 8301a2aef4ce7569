"""Train a PyTorch DQN on CartPole with a bisimulation loss, in the style of CleanRL.

The lines between the two comments "bisimulation loss" are all that the loss adds to a plain DQN.
Needs `pip install 'bisimetric[torch]' gymnasium`.

    python examples/agents/torch_dqn.py --help
    python examples/agents/torch_dqn.py --loss simsr --weight 0.1 --steps 20000

It prints the mean return of the last twenty episodes, with and without the loss.
"""

import argparse

import gymnasium
import numpy as np
import torch
from torch import nn

from bisimetric.losses import torch as losses

LOSSES = ("mico", "simsr", "on_policy")
FIELDS = ("observations", "actions", "rewards", "next_observations", "terminated")
DISCOUNT = 0.99
LEARNING_RATE = 5e-4
BATCH_SIZE = 64
TRAIN_PERIOD = 2
TARGET_UPDATE_PERIOD = 500
FIRST_UPDATE = 500
REWARD_SCALE = 1 - DISCOUNT
"""Of the metric losses: distances are then at most 1, and SimSR's cannot exceed 2."""


class QNetwork(nn.Module):
    """An encoder and the action values."""

    def __init__(self, num_inputs: int, num_actions: int, num_features: int = 64) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(num_inputs, 64), nn.ReLU(), nn.Linear(64, num_features), nn.ReLU()
        )
        self.head = nn.Linear(num_features, num_actions)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return the action values (b, A)."""
        return self.head(self.encoder(observations))


class ReplayBuffer:
    """Transitions in arrays."""

    def __init__(self, size: int, num_inputs: int) -> None:
        self.observations = np.zeros((size, num_inputs), np.float32)
        self.next_observations = np.zeros((size, num_inputs), np.float32)
        self.actions = np.zeros(size, np.int64)
        self.rewards = np.zeros(size, np.float32)
        self.terminated = np.zeros(size, np.bool_)
        self.count = 0

    def add(self, *transition: object) -> None:
        """Store one transition in place of the oldest."""
        for name, value in zip(FIELDS, transition, strict=True):
            getattr(self, name)[self.count % len(self.rewards)] = value
        self.count += 1

    def sample(self, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        """Return a batch of tensors."""
        rows = rng.integers(min(self.count, len(self.rewards)), size=BATCH_SIZE)
        return {name: torch.as_tensor(getattr(self, name)[rows]) for name in FIELDS}


def compute_loss(
    network: QNetwork,
    target: QNetwork,
    batch: dict[str, torch.Tensor],
    loss: str = "none",
    weight: float = 0.1,
) -> torch.Tensor:
    """Return the loss of DQN, plus that of a metric with its weight."""
    features = network.encoder(batch["observations"])
    values = network.head(features).gather(1, batch["actions"][:, None])[:, 0]
    with torch.no_grad():
        next_features = target.encoder(batch["next_observations"])
        best = target.head(next_features).max(dim=1).values
        targets = batch["rewards"] + DISCOUNT * best * ~batch["terminated"]
    total = nn.functional.mse_loss(values, targets)
    # bisimulation loss
    if loss != "none":
        rewards = REWARD_SCALE * batch["rewards"]
        metric_loss = getattr(losses, loss)
        total = total + weight * metric_loss(
            features, next_features, rewards, batch["terminated"], discount=DISCOUNT
        )
    # end of the bisimulation loss
    return total


def train(steps: int, loss: str = "none", weight: float = 0.1, seed: int = 0) -> list[float]:
    """Train on CartPole; return the returns of all finished episodes."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = gymnasium.make("CartPole-v1")
    network, target = QNetwork(4, 2), QNetwork(4, 2)
    target.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    replay, returns, total = ReplayBuffer(10_000, 4), [], 0.0
    observation, _ = env.reset(seed=seed)
    for step in range(steps):
        epsilon = max(0.05, 1 - step / (0.3 * steps))
        if rng.random() < epsilon:
            action = int(rng.integers(2))
        else:
            with torch.no_grad():
                action = int(network(torch.as_tensor(observation)[None]).argmax())
        following, reward, terminated, truncated, _ = env.step(action)
        replay.add(observation, action, reward, following, terminated)
        observation, total = following, total + float(reward)
        if terminated or truncated:
            returns.append(total)
            observation, total = env.reset()[0], 0.0
        if step >= min(FIRST_UPDATE, steps // 2) and step % TRAIN_PERIOD == 0:
            optimizer.zero_grad()
            compute_loss(network, target, replay.sample(rng), loss, weight).backward()
            optimizer.step()
        if step % TARGET_UPDATE_PERIOD == 0:
            target.load_state_dict(network.state_dict())
    env.close()
    return returns


def main() -> None:
    """Train with and without the loss, and print both returns."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loss", choices=("none", *LOSSES), default="mico")
    parser.add_argument("--weight", type=float, default=0.1, help="weight of the loss")
    parser.add_argument("--steps", type=int, default=10_000, help="of the environment")
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for loss in dict.fromkeys(("none", args.loss)):
        results = [train(args.steps, loss, args.weight, seed) for seed in range(args.seeds)]
        means = [float(np.mean(returns[-20:])) for returns in results]
        seeds = ", ".join(f"{mean:.1f}" for mean in means)
        print(f"{loss:10} mean return {np.mean(means):6.1f}, per seed {seeds}")


if __name__ == "__main__":
    main()
