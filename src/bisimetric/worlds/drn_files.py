"""Read Storm's explicit format DRN, line by line."""

from __future__ import annotations

import contextlib
import dataclasses
import fractions
import math
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.worlds.explicit_models import (
    EXPLICIT_PROBABILITY_TOL,
    ExplicitRows,
    ExplicitTransitions,
    StormModel,
)

NO_LABEL = "__NOLABEL__"
"""What Storm writes for a choice without a label among labelled ones."""

LABEL_PATTERN = re.compile(r'"([^"]+)"(?=\s|$|")|([^\s"]+)(?=\s|$)')
NUMBER_PATTERN = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?(/\d+)?", re.ASCII)
COUNT_PATTERN = re.compile(r"\d{1,18}", re.ASCII)
VALUE_TYPES = ("double", "rational")

UNSUPPORTED_TYPES = {
    "ctmc": "a CTMC cannot be used: neither uniformisation nor the embedded chain is implemented",
    "markov automaton": "a Markov automaton cannot be used; only DTMCs and MDPs are read",
    "ma": "a Markov automaton cannot be used; only DTMCs and MDPs are read",
    "pomdp": "a POMDP cannot be used; only DTMCs and MDPs are read",
    "s2pg": "a stochastic game cannot be used; only DTMCs and MDPs are read",
    "smg": "a stochastic game cannot be used; only DTMCs and MDPs are read",
}
PARAMETRIC = "a parametric model cannot be used; instantiate its parameters"
INTERVAL = "intervals of probabilities cannot be used"

Lines = Iterator[tuple[int, str]]


@dataclasses.dataclass
class _Header:
    """What stands before the line @model; `values` are those of the placeholders."""

    kind: str = ""
    num_states: int = 0
    num_choices: int | None = None
    reward_models: list[str] = dataclasses.field(default_factory=list)
    values: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class _Choice:
    state: int
    number: int
    label: str | None
    rewards: list[float]
    line: int
    first_transition: int


def read_drn(path: str) -> StormModel:
    """Read a DRN file of a DTMC or an MDP.

    Raises:
        InputError: the file is missing or malformed, or of another type of model.
    """
    with _read_lines(path) as lines:
        header = _read_header(path, lines)
        return _Body(path, header).read(lines)


@contextlib.contextmanager
def _read_lines(path: str) -> Iterator[Lines]:
    """Open a text file and yield its lines with their numbers."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            yield enumerate((line.strip() for line in file), 1)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; check the path.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from None


def _read_header(path: str, lines: Lines) -> _Header:
    """Read the lines up to @model."""
    header, section, seen = _Header(), "", set()
    for number, text in lines:
        where = f"{path}: line {number}"
        if text.startswith("@"):
            name, _, argument = text.partition(":")
            section = name.strip()
            if section in seen:
                raise InputError(f"{where}: {section} stands twice in the header.")
            seen.add(section)
            if section == "@type":
                header.kind = _read_type(where, argument.strip())
            elif section == "@value_type":
                _require_value_type(where, argument.strip())
            elif section == "@model":
                if not header.kind or not header.num_states:
                    missing = "@nr_states" if header.kind else "@type"
                    raise InputError(f"{where}: @model stands before {missing}.")
                return header
            elif section not in (
                "@parameters", "@placeholders", "@reward_models", "@nr_states", "@nr_choices",
            ):  # fmt: skip
                raise InputError(f"{where}: {text[:40]!r} is no section of a DRN file.")
        elif text and not text.startswith("//"):
            _read_section_line(where, section, text, header)
    raise InputError(f"{path}: there is no line '@model'; is it a DRN file, and is it cut off?")


def _read_section_line(where: str, section: str, text: str, header: _Header) -> None:
    if section == "@parameters":
        raise InputError(f"{where}: {PARAMETRIC}.")
    if section == "@placeholders":
        name, colon, value = text.partition(":")
        if not colon or not name.startswith("$"):
            raise InputError(f"{where}: {text[:40]!r} is no placeholder, such as '$0 : 0.5'.")
        header.values[name.strip()] = _parse_value(where, value.strip(), header.values, "value")
    elif section == "@reward_models" and not header.reward_models:
        header.reward_models = text.split()
        if len(set(header.reward_models)) < len(header.reward_models):
            raise InputError(f"{where}: two reward models have the same name.")
    elif section == "@nr_states" and not header.num_states:
        header.num_states = _parse_count(where, text, "number of states")
        if header.num_states == 0:
            raise InputError(f"{where}: says 0 states and must say at least 1.")
    elif section == "@nr_choices" and header.num_choices is None:
        header.num_choices = _parse_count(where, text, "number of choices")
    else:
        raise InputError(f"{where}: {text[:40]!r} does not belong to the header of a DRN file.")


def _read_type(where: str, name: str) -> str:
    kind = name.lower()
    if kind in UNSUPPORTED_TYPES:
        raise InputError(f"{where}: {UNSUPPORTED_TYPES[kind]}.")
    if kind not in ("dtmc", "mdp"):
        raise InputError(f"{where}: {name[:40]!r} is no type of model; use DTMC or MDP.")
    return kind


def _require_value_type(where: str, name: str) -> None:
    if name == "parametric":
        raise InputError(f"{where}: {PARAMETRIC}.")
    if name.endswith("interval"):
        raise InputError(f"{where}: {INTERVAL}.")
    if name not in VALUE_TYPES:
        raise InputError(f"{where}: {name[:40]!r} is no type of values; use double or rational.")


def _parse_count(where: str, text: str, name: str) -> int:
    if COUNT_PATTERN.fullmatch(text) is None:
        raise InputError(f"{where}: {text[:40]!r} is no {name}.")
    return int(text)


def _parse_value(where: str, text: str, values: dict[str, float], name: str) -> float:
    """Parse a number, a fraction or a placeholder; equal texts are parsed once."""
    if text in values:
        return values[text]
    if text.startswith("$"):
        raise InputError(f"{where}: there is no placeholder {text[:40]!r} in the header.")
    if text.startswith("["):
        raise InputError(f"{where}: {INTERVAL}.")
    value = math.nan
    if NUMBER_PATTERN.fullmatch(text) is not None:
        with contextlib.suppress(ValueError, ZeroDivisionError, OverflowError):
            value = float(fractions.Fraction(text) if "/" in text else text)
    if not math.isfinite(value):
        raise InputError(f"{where}: {text[:40]!r} is no {name}.")
    values[text] = value
    return value


class _Body:
    """The lines after @model."""

    def __init__(self, path: str, header: _Header) -> None:
        self.path, self.header = path, header
        self.state_rewards: list[list[float]] = []
        self.labels: dict[str, list[int]] = {}
        self.names: list[str] = []
        self.choices: list[_Choice] = []
        self.num_choices = 0
        """The number of choices of the last state."""
        self.choice_of: list[int] = []
        self.successor: list[int] = []
        self.probability: list[float] = []
        self.line_number: list[int] = []

    def read(self, lines: Lines) -> StormModel:
        """Read all lines."""
        follows_state = False
        for number, text in lines:
            if text.startswith("//"):
                # Storm writes the valuation of a state as a comment after its line.
                if follows_state:
                    self.names.append(text[2:].strip().replace("\t&", " &"))
            elif text.startswith("state "):
                self._end_state()
                self._read_state(f"{self.path}: line {number}", text)
                follows_state = True
                continue
            elif text.startswith("action "):
                self._end_choice()
                self._read_choice(number, text)
            elif text:
                self._read_transition(number, text)
            follows_state = False
        self._end_state()
        self._require_counts()
        return self._finish()

    def _read_state(self, where: str, text: str) -> None:
        word, _, rest = text.removeprefix("state ").strip().partition(" ")
        state = _parse_count(where, word, "state")
        expected = len(self.state_rewards)
        if state != expected:
            raise InputError(
                f"{where}: state {state} stands where state {expected} must; they stand in order."
            )
        if state >= self.header.num_states:
            raise InputError(
                f"{where}: there is no state {state}; they go from 0 to "
                f"{self.header.num_states - 1}, by @nr_states."
            )
        rewards, rest = self._split_rewards(where, rest.strip())
        self.state_rewards.append(rewards)
        if rest.startswith(("!", "{")):
            raise InputError(f"{where}: a DTMC or an MDP has no exit rates and no observations.")
        if LABEL_PATTERN.sub("", rest).strip():
            raise InputError(f"{where}: the labels {rest[:40]!r} have an unpaired quotation mark.")
        for quoted, plain in LABEL_PATTERN.findall(rest):
            self.labels.setdefault(quoted or plain, []).append(state)

    def _read_choice(self, number: int, text: str) -> None:
        where = f"{self.path}: line {number}"
        label, _, rest = text.removeprefix("action ").strip().partition(" ")
        rewards, rest = self._split_rewards(where, rest.strip())
        if rest:
            raise InputError(f"{where}: {rest[:40]!r} stands after the rewards of a choice.")
        self._add_choice(number, None if label == NO_LABEL else label, rewards)

    def _add_choice(self, line: int, label: str | None, rewards: list[float]) -> None:
        state = len(self.state_rewards) - 1
        if state < 0:
            raise InputError(f"{self.path}: line {line} stands before the first state.")
        if self.header.kind == "dtmc" and self.num_choices:
            raise InputError(
                f"{self.path}: line {line}: state {state} of a DTMC has a second choice."
            )
        self.choices.append(
            _Choice(state, self.num_choices, label, rewards, line, len(self.successor))
        )
        self.num_choices += 1

    def _read_transition(self, number: int, text: str) -> None:
        target, colon, value = text.partition(":")
        target = target.rstrip()
        if not colon or COUNT_PATTERN.fullmatch(target) is None:
            raise InputError(
                f"{self.path}: line {number}: {text[:40]!r} must be 'state ...', 'action ...' or "
                "'successor : probability'."
            )
        if not self.num_choices:
            self._add_choice(number, "0", [])
        where, successor = f"{self.path}: line {number}", int(target)
        if successor >= self.header.num_states:
            raise InputError(
                f"{where}: there is no state {successor}; they go from 0 to "
                f"{self.header.num_states - 1}."
            )
        probability = _parse_value(where, value.strip(), self.header.values, "probability")
        if not 0 <= probability <= 1 + EXPLICIT_PROBABILITY_TOL:
            raise InputError(f"{where}: {probability:g} is no probability.")
        self._add_transition(successor, probability, number)

    def _add_transition(self, successor: int, probability: float, line: int) -> None:
        self.choice_of.append(len(self.choices) - 1)
        self.successor.append(successor)
        self.probability.append(probability)
        self.line_number.append(line)

    def _split_rewards(self, where: str, text: str) -> tuple[list[float], str]:
        """Return the rewards in brackets that begin a text, and the rest of it."""
        if not text.startswith("["):
            return [], text
        inside, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise InputError(f"{where}: ']' is missing after the rewards.")
        parts = [part.strip() for part in inside.split(",")]
        names = self.header.reward_models
        if names and len(parts) != len(names):
            raise InputError(
                f"{where}: there are {len(parts)} rewards and must be {len(names)}, by "
                "@reward_models."
            )
        values = self.header.values
        return [_parse_value(where, part, values, "reward") for part in parts], rest.strip()

    def _end_choice(self) -> None:
        """Require transitions of the last choice of the current state."""
        if self.num_choices and self.choices[-1].first_transition == len(self.successor):
            choice = self.choices[-1]
            raise InputError(
                f"{self.path}: line {choice.line}: choice {choice.number} of state {choice.state} "
                "has no transition."
            )

    def _end_state(self) -> None:
        """Complete the current state: a deadlock gets a self-loop without a label."""
        state = len(self.state_rewards) - 1
        if state >= 0 and self.num_choices == 0:
            self._add_choice(0, None, [])
        if self.num_choices == 1 and self.choices[-1].first_transition == len(self.successor):
            self.choices[-1].label = None
            self._add_transition(state, 1.0, self.choices[-1].line)
        self._end_choice()
        self.num_choices = 0

    def _require_counts(self) -> None:
        found = {"states": len(self.state_rewards), "choices": len(self.choices)}
        declared = {"states": self.header.num_states, "choices": self.header.num_choices}
        for name, number in declared.items():
            if number is not None and number != found[name]:
                raise InputError(
                    f"{self.path}: @nr_{name} says {number} {name} and the file has {found[name]}; "
                    "is it cut off?"
                )

    def _finish(self) -> StormModel:
        num_states = self.header.num_states
        # Storm numbers the choices of each state where a model has no choice labels.
        numbered = all(each.label in (None, str(each.number)) for each in self.choices)
        codes: dict[str, int] = {}
        action = np.array(
            [
                -1 if numbered or each.label is None else codes.setdefault(each.label, len(codes))
                for each in self.choices
            ]
        )
        choice_of = np.array(self.choice_of)
        of_choice = np.array([(each.state, each.number) for each in self.choices])
        ids = np.column_stack([of_choice[choice_of], np.array(self.successor)])
        rows = ExplicitRows(
            ids.astype(np.int64),
            np.array(self.probability),
            action[choice_of],
            np.array(self.line_number),
            list(codes),
        )
        choice_rewards = [each.rewards for each in self.choices]
        names = self.header.reward_models or [
            f"rew{index}" for index in range(max(map(len, (*self.state_rewards, *choice_rewards))))
        ]
        labels = {}
        for label, states in self.labels.items():
            labels[label] = np.zeros(num_states, np.bool_)
            labels[label][states] = True
        known = len(self.names) == len(set(self.names)) == num_states
        return StormModel(
            ExplicitTransitions(self.path, num_states, self.header.kind == "dtmc", rows),
            labels,
            _collect_rewards(names, self.state_rewards),
            _collect_rewards(names, choice_rewards),
            {},
            tuple(self.names) if known and all(self.names) else None,
        )


def _collect_rewards(
    names: list[str], rewards: list[list[float]]
) -> dict[str, NDArray[np.float64]]:
    """Return the rewards of each reward model; an empty list stands for zeros."""
    table = np.zeros((len(rewards), len(names)))
    for index, row in enumerate(rewards):
        table[index, : len(row)] = row
    return {name: table[:, column].copy() for column, name in enumerate(names)}
