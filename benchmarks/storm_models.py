"""Storm's classes of the labelled models that stormpy ships: `python storm_models.py FOLDER`.

Run it with the interpreter of an environment that holds `stormpy` 2. Each model is built from its
PRISM source with all labels, and written to FOLDER in the explicit formats of PRISM (`name.tra`,
`name.lab`; with its rewards, if it has one reward structure, as `name.srew.txt` and
`name.trew.txt`) and of Storm (`name.storm.tra`, `name.storm.lab`). Prints JSON: per model the
numbers of states and transitions, the classes of strong bisimulation without and with choice
labels, and with rewards, and the least CPU seconds of five runs to import the explicit files and to
minimise. CTMCs are written as embedded chains, see `write_embedded_chain`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import stormpy  # type: ignore[import-not-found]
from stormpy import transformations

MODELS = {
    "die": "dtmc/die.pm",
    "brp": "dtmc/brp-16-2.pm",
    "crowds-5-5": "dtmc/crowds-5-5.pm",
    "leader-3-5": "dtmc/leader-3-5.pm",
    "nand-5-2": "dtmc/nand-5-2.pm",
    "two_dice": "mdp/two_dice.nm",
    "coin2": "mdp/coin2-2.nm",
    "csma2": "mdp/csma2-2.nm",
    "firewire": "mdp/firewire3-0.5.nm",
    "wlan0": "mdp/wlan0-2-2.nm",
    "leader3": "mdp/leader3.nm",
    "leader4": "mdp/leader4.nm",
    "slipgrid": "mdp/slipgrid.nm",
    "maze": "mdp/maze_2.nm",
    "die_selection": "mdp/die_selection.nm",
    "scheduler": "mdp/scheduler_generation.nm",
    "multiobjective": "mdp/multiobjective1.nm",
    "deadlocks": "mdp/SmallPrismTest2.nm",
    "unlabelled": "mdp/SmallPrismTest.nm",
}
EMBEDDED = {"embedded2": "ctmc/embedded2.sm"}
"""CTMCs: their embedded chains are written, with the mean time in a state as its reward."""
RUNS = 5


def build(
    path: Path, *, choice_labels: bool = False, rewards: bool = False, rates: bool = False
) -> Any:
    """Build a sparse model with all labels from PRISM source; with `rates`, a CTMC."""
    options = stormpy.BuilderOptions()
    options.set_build_all_labels(True)
    options.set_build_choice_labels(choice_labels)
    options.set_build_all_reward_models(rewards)
    program = stormpy.parse_prism_program(str(path), prism_compatibility=rates)
    return stormpy.build_model(program, options=options)


def minimise(model: Any, *, rewards: bool = False) -> Any:
    """Return the quotient by strong bisimulation that preserves all labels."""
    options = transformations.BisimulationOptions()
    options.bisimulation_type = transformations.BisimulationType.STRONG
    options.action_sensitive = False
    options.preserve_all_rewards = rewards
    options.state_label_preservation = transformations.StateLabelPreservation.ALL
    return transformations.perform_bisimulation(model, [], options=options)


def write(model: Any, path: Path) -> None:
    """Write a model in the explicit formats of PRISM, with choice labels, and of Storm."""
    is_chain = str(model.model_type).endswith("DTMC")
    ours, theirs, num_choices = [], [], 0
    for state in model.states:
        for action in state.actions:
            row = model.transition_matrix.get_row_group_start(state.id) + action.id
            label = ""
            if not is_chain and model.has_choice_labeling():
                label = "_".join(sorted(model.choice_labeling.get_labels_of_choice(row)))
            choice = "" if is_chain else f" {action.id}"
            num_choices += 1
            for entry in action.transitions:
                line = f"{state.id}{choice} {entry.column} {entry.value!r}"
                theirs.append(line)
                ours.append(f"{line} {label}".rstrip())
    counts = f"{num_choices} {len(ours)}" if not is_chain else f"{len(ours)}"
    path.with_suffix(".tra").write_text("\n".join([f"{model.nr_states} {counts}", *ours]) + "\n")
    kind = "dtmc" if is_chain else "mdp"
    path.with_suffix(".storm.tra").write_text("\n".join([kind, *theirs]) + "\n")
    names = sorted(model.labeling.get_labels())
    masks = [model.labeling.get_states(name) for name in names]
    held = [[i for i, mask in enumerate(masks) if mask.get(s)] for s in range(model.nr_states)]
    numbered = " ".join(f'{i}="{name}"' for i, name in enumerate(names))
    lines = [f"{s}: {' '.join(map(str, row))}" for s, row in enumerate(held) if row]
    path.with_suffix(".lab").write_text("\n".join([numbered, *lines]) + "\n")
    lines = [f"{s} {' '.join(names[i] for i in row)}" for s, row in enumerate(held) if row]
    declared = ["#DECLARATION", " ".join(names), "#END"]
    path.with_suffix(".storm.lab").write_text("\n".join([*declared, *lines]) + "\n")


def write_rewards(model: Any, path: Path) -> None:
    """Write the only reward structure of a model in PRISM's explicit formats."""
    [structure] = model.reward_models.values()
    is_chain = str(model.model_type).endswith("DTMC")
    if structure.has_state_rewards:
        lines = [f"{s} {r!r}" for s, r in enumerate(structure.state_rewards) if r]
        text = "\n".join([f"{model.nr_states} {len(lines)}", *lines])
        path.with_suffix(".srew.txt").write_text(text + "\n")
    if structure.has_state_action_rewards:
        by_choice, lines, num_choices = list(structure.state_action_rewards), [], 0
        for state in model.states:
            for action in state.actions:
                row = model.transition_matrix.get_row_group_start(state.id) + action.id
                choice = "" if is_chain else f" {action.id}"
                num_choices += 1
                lines += [
                    f"{state.id}{choice} {entry.column} {by_choice[row]!r}"
                    for entry in action.transitions
                    if by_choice[row]
                ]
        counts = f"{len(lines)}" if is_chain else f"{num_choices} {len(lines)}"
        text = "\n".join([f"{model.nr_states} {counts}", *lines])
        path.with_suffix(".trew.txt").write_text(text + "\n")


def write_embedded_chain(model: Any, path: Path) -> None:
    """Write the embedded chain of a CTMC, and the mean times 1 / E(s) as state rewards.

    States of the chain with these rewards are bisimilar iff those of the CTMC are.
    """
    lines, rewards = [], []
    for state in model.states:
        [action] = state.actions
        entries = [(entry.column, entry.value) for entry in action.transitions]
        total = sum(rate for _, rate in entries)
        lines += [f"{state.id} {column} {rate / total!r}" for column, rate in entries]
        rewards.append(f"{state.id} {1 / total!r}")
    text = "\n".join([f"{model.nr_states} {len(lines)}", *lines])
    path.with_suffix(".tra").write_text(text + "\n")
    text = "\n".join([f"{model.nr_states} {len(rewards)}", *rewards])
    path.with_suffix(".srew.txt").write_text(text + "\n")
    names = sorted(model.labeling.get_labels())
    masks = [model.labeling.get_states(name) for name in names]
    held = [[i for i, mask in enumerate(masks) if mask.get(s)] for s in range(model.nr_states)]
    numbered = " ".join(f'{i}="{name}"' for i, name in enumerate(names))
    rows = [f"{s}: {' '.join(map(str, row))}" for s, row in enumerate(held) if row]
    path.with_suffix(".lab").write_text("\n".join([numbered, *rows]) + "\n")


def measure(work: Callable[..., Any], *arguments: Any) -> float:
    """Return the least CPU seconds of some runs."""
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        work(*arguments)
        seconds.append(time.process_time() - start)
    return min(seconds)


def main() -> None:
    folder, found = Path(sys.argv[1]), {}
    sources = Path(stormpy.__file__).parent / "examples" / "files"
    for name, source in MODELS.items():
        plain = build(sources / source)
        named = build(sources / source, choice_labels=True)
        paid = build(sources / source, rewards=True)
        write(named, folder / name)
        reward_classes = None
        if len(paid.reward_models) == 1:
            write_rewards(paid, folder / name)
            reward_classes = int(minimise(paid, rewards=True).nr_states)
        files = [str(folder / f"{name}.storm.{ending}") for ending in ("tra", "lab")]
        found[name] = {
            "chain": str(plain.model_type).endswith("DTMC"),
            "states": int(plain.nr_states),
            "transitions": int(plain.nr_transitions),
            # Storm does not preserve "init".
            "labels": sorted(set(plain.labeling.get_labels()) - {"init"}),
            "classes": int(minimise(plain).nr_states),
            "choice_classes": int(minimise(named).nr_states),
            "reward_classes": reward_classes,
            "import": measure(stormpy.build_model_from_explicit, *files),
            "minimise": measure(minimise, plain),
        }
    for name, source in EMBEDDED.items():
        model = build(sources / source, rates=True)
        write_embedded_chain(model, folder / name)
        found[name] = {
            "embedded": True,
            "states": int(model.nr_states),
            "transitions": int(model.nr_transitions),
            "labels": sorted(set(model.labeling.get_labels()) - {"init"}),
            "classes": int(minimise(model).nr_states),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
