"""Export labelled models that stormpy ships, some larger: `python undiscounted_models.py FOLDER`.

Run it with the interpreter of an environment that holds `stormpy` 2. Constants of the PRISM source
are replaced, and each model is written to FOLDER in PRISM's explicit formats. Prints JSON: per
model the numbers of states and transitions, and its labels.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import stormpy  # type: ignore[import-not-found]

from storm_models import build, write

MODELS: dict[str, tuple[str, dict[str, int]]] = {
    "die": ("dtmc/die.pm", {}),
    "leader-3-5": ("dtmc/leader-3-5.pm", {}),
    "brp-16-2": ("dtmc/brp-16-2.pm", {}),
    "brp-64-2": ("dtmc/brp-16-2.pm", {"N": 64}),
    "nand-5-2": ("dtmc/nand-5-2.pm", {}),
    "nand-10-1": ("dtmc/nand-5-2.pm", {"N": 10, "K": 1}),
    "nand-10-2": ("dtmc/nand-5-2.pm", {"N": 10}),
    "crowds-5-3": ("dtmc/crowds-5-5.pm", {"TotalRuns": 3}),
    "crowds-5-4": ("dtmc/crowds-5-5.pm", {"TotalRuns": 4}),
    "crowds-5-5": ("dtmc/crowds-5-5.pm", {}),
    "crowds-5-6": ("dtmc/crowds-5-5.pm", {"TotalRuns": 6}),
    "two_dice": ("mdp/two_dice.nm", {}),
    "coin2": ("mdp/coin2-2.nm", {}),
    "csma2": ("mdp/csma2-2.nm", {}),
    "leader3": ("mdp/leader3.nm", {}),
    "leader4": ("mdp/leader4.nm", {}),
    "firewire": ("mdp/firewire3-0.5.nm", {}),
}
"""Per model the source, and the constants that are replaced; chains first."""


def export(source: Path, constants: dict[str, int], path: Path) -> dict[str, Any]:
    """Write a model with other constants; return its size and labels."""
    text = source.read_text()
    for name, value in constants.items():
        text, found = re.subn(rf"(const int {name} *= *)\d+", rf"\g<1>{value}", text)
        if found != 1:
            raise RuntimeError(f"{source}: {found} constants {name}")
    replaced = path.with_suffix(".pm")
    replaced.write_text(text)
    model = build(replaced, choice_labels=True)
    write(model, path)
    return {
        "states": int(model.nr_states),
        "transitions": int(model.nr_transitions),
        "labels": sorted(set(model.labeling.get_labels()) - {"init"}),
    }


def main() -> None:
    folder = Path(sys.argv[1])
    sources = Path(stormpy.__file__).parent / "examples" / "files"
    found = {
        name: export(sources / source, constants, folder / name)
        for name, (source, constants) in MODELS.items()
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
