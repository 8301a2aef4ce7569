"""Run the benchmark: tune each loss, select its setting, and score its final runs."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from bisimetric._progress import ProgressBar, show_progress
from bisimetric.errors import InputError
from bisimetric.paper.gridworld_curves import validate_counts, validate_names
from bisimetric.paper.loss_benchmark import environments, storage, training
from bisimetric.paper.loss_benchmark.environments import ENVIRONMENTS, TUNING, Environment
from bisimetric.paper.loss_benchmark.methods import METHODS, Method
from bisimetric.paper.loss_benchmark.protocol import (
    DEFAULT_SETTING,
    QUICK,
    SELECTED,
    Protocol,
    Run,
    Setting,
    list_final_runs,
    list_tuning_runs,
)
from bisimetric.paper.loss_benchmark.storage import Row

QUICK_MDPS = ("rooms", "inventory")
CALLER = "paper.loss_benchmark"
RESULTS, TUNING_RESULTS, PROTOCOL = "results.csv", "tuning.csv", "protocol.json"


def measure(
    folder: str | os.PathLike[str],
    mdps: Sequence[str] | None = None,
    losses: Sequence[str] | None = None,
    *,
    num_seeds: int | None = None,
    updates: int | None = None,
    quick: bool = False,
    tune: bool | None = None,
    methods: Mapping[str, Method] = METHODS,
    protocol: Protocol | None = None,
    report_progress: Callable[[str], None] = lambda line: None,
) -> list[Row]:
    """Train and score the losses on the MDPs; results found in the folder are reused.

    Args:
        folder: where `results.csv`, `tuning.csv`, `protocol.json` and the MDPs are written.
        mdps: names in `ENVIRONMENTS`; default: all; quick: rooms and inventory.
        losses: names in `methods`; default: all.
        num_seeds: seeds of the final runs; default: 10; quick: 2.
        updates: gradient updates per network; default: 4,000; quick: 400.
        quick: fewer updates, seeds and MDPs, and no tuning.
        tune: whether to select the settings by tuning on the tuning MDPs, rather than to take those
            that the report selected; default: yes, unless quick.
        methods: the losses by name; to add one, pass it beside the others.
        protocol: all sizes, in place of the default ones.
        report_progress: called with a line after each loss and MDP.

    Returns:
        The scores of the final runs, in the order of losses and MDPs.

    Raises:
        InputError: if a name is unknown, a number out of range, or the folder holds results of
            another protocol.
    """
    mdps = (QUICK_MDPS if quick else tuple(ENVIRONMENTS)) if mdps is None else mdps
    losses = tuple(methods) if losses is None else losses
    validate_names(CALLER, "MDP", mdps, ENVIRONMENTS)
    validate_names(CALLER, "loss", losses, methods)
    validate_counts(CALLER, updates, num_seeds)
    protocol = protocol or (QUICK if quick else Protocol())
    changes = {"num_seeds": num_seeds, "updates": updates}
    protocol = dataclasses.replace(
        protocol, **{name: value for name, value in changes.items() if value is not None}
    )
    tune = not quick if tune is None else tune
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    storage.match_protocol(folder / PROTOCOL, protocol.describe())
    benchmark = _Benchmark(folder, protocol, report_progress)
    rows: list[Row] = []
    total = len(losses) * (len(mdps) + (len(TUNING) if tune else 0))
    with show_progress(total, "losses") as progress:
        for name in losses:
            method = methods[name]
            is_tuned = tune and not method.is_control
            setting = benchmark.tune(method, progress) if is_tuned else _get_setting(name)
            rows += [
                row
                for mdp in mdps
                for row in benchmark.measure_final(method, mdp, setting, progress)
            ]
    return rows


def select_setting(rows: Iterable[Row]) -> Setting:
    """Select the setting with the least mean scaled error against the fixed point of the loss.

    The mean is over MDPs, policies, noises and seeds; a network that diverged counts as 1, which is
    the scaled error of the distance 0.

    Args:
        rows: of the tuning of one loss.

    Returns:
        The setting; the first of equal ones.
    """
    errors = storage.average_errors(rows)
    return min(errors, key=lambda setting: errors[setting])


def _get_setting(name: str) -> Setting:
    return SELECTED.get(name, DEFAULT_SETTING)


class _Benchmark:
    """A folder of results, to which losses and MDPs are added one at a time."""

    def __init__(self, folder: Path, protocol: Protocol, report: Callable[[str], None]) -> None:
        self._folder, self._protocol, self._report = folder, protocol, report
        self._environments: dict[str, Environment] = {}
        self._position = 0

    def tune(self, method: Method, progress: ProgressBar) -> Setting:
        """Return the setting that tuning on the tuning MDPs selects."""
        runs = list_tuning_runs(self._protocol)
        rows = [
            row
            for mdp in TUNING
            for row in self._measure(method, mdp, runs, TUNING_RESULTS, progress)
        ]
        return select_setting(rows)

    def measure_final(
        self, method: Method, mdp: str, setting: Setting, progress: ProgressBar
    ) -> list[Row]:
        """Return the scores of the final runs of a loss on an MDP."""
        runs = list_final_runs(self._protocol, setting)
        return self._measure(method, mdp, runs, RESULTS, progress)

    def _measure(
        self, method: Method, mdp: str, runs: list[Run], file: str, progress: ProgressBar
    ) -> list[Row]:
        """Return the rows of a loss and MDP from the file, or train, score and add them."""
        path = self._folder / file
        stored = storage.read_rows(path)
        self._position += 1
        progress.set_position(self._position, f"{method.name}, {mdp}")
        found = [row for row in stored if (row.loss, row.mdp) == (method.name, mdp)]
        if found:
            self._require_same_setting(path, found, runs)
            return found
        start = time.perf_counter()
        environment = self._load(mdp)
        distances = training.train(method, environment, runs, self._protocol)
        tuning = file == TUNING_RESULTS
        rows = storage.build_rows(method, environment, runs, distances, own_only=tuning)
        storage.write_rows(path, [*stored, *rows])
        seconds = time.perf_counter() - start
        kind = "tuning" if tuning else "final"
        self._report(f"{kind} runs of {method.name} on {mdp}: {len(runs)} in {seconds:.1f} s")
        return rows

    def _require_same_setting(self, path: Path, rows: list[Row], runs: list[Run]) -> None:
        expected = {tuple(f"{x:g}" for x in run.setting) for run in runs}
        stored = {tuple(f"{x:g}" for x in row.setting) for row in rows}
        if stored != expected:
            raise InputError(
                f"{path} holds {rows[0].loss} on {rows[0].mdp} with another setting: {stored} and "
                f"here it is {expected}; name another folder."
            )

    def _load(self, name: str) -> Environment:
        """Return an MDP, from the folder if it was built before."""
        if name not in self._environments:
            path = self._folder / "mdps" / f"{name}.npz"
            if path.exists():
                self._environments[name] = Environment.load(path)
            else:
                path.parent.mkdir(exist_ok=True)
                self._environments[name] = environments.build(name)
                self._environments[name].save(path)
        return self._environments[name]
