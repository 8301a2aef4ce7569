"""`bisimetric atari`: agents, metrics and figures of Atari games.

`COMMANDS` is the entry point of the group `bisimetric.commands`.
"""

from bisimetric.cli import CommandGroup
from bisimetric_atari.cli import agent, metric

COMMANDS = CommandGroup(
    "Metrics of Atari games played by a trained agent.",
    {
        "train-agent": agent.train_agent,
        "learn": metric.learn,
        "evaluate": metric.evaluate,
        "show": agent.show,
        "sweep": metric.sweep,
    },
)

__all__ = ["COMMANDS"]
