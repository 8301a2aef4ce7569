"""Read Storm's explicit format DRN: transitions as arrays, other lines one by one."""

from __future__ import annotations

import contextlib
import dataclasses
import fractions
import math
import re
from collections.abc import Iterator
from typing import IO

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.worlds.explicit_models import (
    EXPLICIT_PROBABILITY_TOL,
    ExplicitRows,
    ExplicitTransitions,
    StormModel,
)
from bisimetric.worlds.text_parser import TokenBlock, open_file, read_tokens

NO_LABEL = "__NOLABEL__"
"""What Storm writes for a choice without a label among labelled ones."""

LABEL_PATTERN = re.compile(r'"([^"]+)"(?=\s|$|")|([^\s"]+)(?=\s|$)')
NUMBER_PATTERN = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?(/\d+)?", re.ASCII)
COUNT_PATTERN = re.compile(r"\d{1,18}", re.ASCII)
VALUE_TYPES = ("double", "rational")

UNSUPPORTED_TYPES = {
    "markov automaton": "a Markov automaton cannot be used; only DTMCs, CTMCs and MDPs are read",
    "ma": "a Markov automaton cannot be used; only DTMCs, CTMCs and MDPs are read",
    "pomdp": "a POMDP cannot be used; only DTMCs, CTMCs and MDPs are read",
    "s2pg": "a stochastic game cannot be used; only DTMCs, CTMCs and MDPs are read",
    "smg": "a stochastic game cannot be used; only DTMCs, CTMCs and MDPs are read",
}
PARAMETRIC = "a parametric model cannot be used; instantiate its parameters"
INTERVAL = "intervals of probabilities cannot be used"

EXIT_RATE_TOL = 1e-6
"""Relative tolerance between an exit rate, as it is printed, and the sum of the rates."""

Lines = Iterator[tuple[int, str]]


@dataclasses.dataclass
class _Header:
    """What stands before the line @model; `values` are those of the placeholders."""

    kind: str = ""
    num_states: int = 0
    num_choices: int | None = None
    reward_models: list[str] = dataclasses.field(default_factory=list)
    values: dict[str, float] = dataclasses.field(default_factory=dict)


def read_drn(path: str) -> StormModel:
    """Read a DRN file of a DTMC, a CTMC or an MDP.

    Raises:
        InputError: the file is missing or malformed, or of another type of model.
    """
    with open_file(path) as file:
        lines = enumerate((line.decode("utf-8", "replace").strip() for line in file), 1)
        header, line_number = _read_header(path, lines)
        return _Body(path, header).read(file, line_number + 1)


def _read_header(path: str, lines: Lines) -> tuple[_Header, int]:
    """Read the lines up to @model; return the number of that line too."""
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
                return header, number
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
    if kind not in ("dtmc", "ctmc", "mdp"):
        raise InputError(f"{where}: {name[:40]!r} is no type of model; use DTMC, CTMC or MDP.")
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
    """The lines after @model; a choice begins at a number of transitions."""

    def __init__(self, path: str, header: _Header) -> None:
        self.path, self.header = path, header
        self.is_chain = header.kind != "mdp"
        self.value_name = "rate" if header.kind == "ctmc" else "probability"
        self.state_rewards: list[tuple[float, ...]] = []
        self.exit_rates: list[float | None] = []
        self.labels: dict[str, list[int]] = {}
        self.names: list[str] = []
        self.choice_state: list[int] = []
        self.choice_number: list[int] = []
        self.choice_label: list[str | None] = []
        self.choice_rewards: list[tuple[float, ...]] = []
        self.choice_line: list[int] = []
        self.choice_start: list[int] = []
        self.deadlocks: list[int] = []
        """Choices without transitions, which get a self-loop."""
        self.num_choices = 0
        """The number of choices of the last state."""
        self.first_transition = 0
        """The number of transitions before the last state."""
        self.transitions: list[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]]
        self.transitions = []
        self._parsed_states: dict[str, tuple[tuple[float, ...], float | None, tuple[str, ...]]] = {}
        self._parsed_choices: dict[str, tuple[str | None, tuple[float, ...]]] = {}

    def read(self, file: IO[bytes], line_number: int) -> StormModel:
        """Read all lines, from `line_number` on."""
        follows_state, num_transitions = False, 0
        for block in read_tokens(file, self.path, line_number, separators=b":"):
            lead = block.text[block.start[block.first_token]]
            is_transition = (lead >= ord("0")) & (lead <= ord("9"))
            before = num_transitions + np.cumsum(is_transition)
            self.transitions.append(self._read_transitions(block, is_transition))
            num_transitions += int(np.count_nonzero(is_transition))
            others = np.flatnonzero(~is_transition)
            texts = _decode_lines(block, others)
            numbers = block.line_number[others].tolist()
            for number, text, count in zip(numbers, texts, before[others].tolist(), strict=True):
                if text.startswith("//"):
                    # Storm writes the valuation of a state as a comment after its line.
                    if follows_state:
                        self.names.append(text[2:].strip().replace("\t&", " &"))
                elif text.startswith("state "):
                    self._end_state(count)
                    self._read_state(number, text[6:].strip())
                    self.first_transition = count
                    follows_state = True
                    continue
                elif text.startswith("action "):
                    self._end_choice(count)
                    self._read_choice(number, text[7:].strip(), count)
                else:
                    self._parse_transition(number, text)
                follows_state = False
        self._end_state(num_transitions)
        self._require_counts()
        return self._finish()

    def _read_transitions(
        self, block: TokenBlock, lines: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Return the successors, values and line numbers of the lines 'successor : value'."""
        numbers, first = block.line_number[lines], block.first_token[lines]
        if len(numbers) == 0:
            return numbers, np.zeros(0), numbers
        colon = block.start[first] + block.length[first] + 1
        regular = bool((block.num_tokens[lines] == 2).all())
        regular = regular and bool((block.start[first + 1] == colon + 2).all())
        if regular and (block.text[colon] == ord(":")).all():
            # Otherwise, and where a number is wrong, lines are parsed one by one.
            with contextlib.suppress(InputError):
                successors = block.to_integers(first, "state")
                values = block.to_floats(first + 1, self.value_name)
                inside = (values >= 0) & (values <= self._largest_value)
                if inside.all() and (successors < self.header.num_states).all():
                    return successors, values, numbers
        texts = _decode_lines(block, np.flatnonzero(lines))
        parsed = list(map(self._parse_transition, numbers.tolist(), texts))
        targets, found = zip(*parsed, strict=True)
        return np.array(targets, np.int64), np.array(found, np.float64), numbers

    @property
    def _largest_value(self) -> float:
        return math.inf if self.header.kind == "ctmc" else 1 + EXPLICIT_PROBABILITY_TOL

    def _parse_transition(self, number: int, text: str) -> tuple[int, float]:
        target, colon, value = text.partition(":")
        target, where = target.rstrip(), f"{self.path}: line {number}"
        if not colon or COUNT_PATTERN.fullmatch(target) is None:
            raise InputError(
                f"{where}: {text[:40]!r} must be 'state ...', 'action ...' or 'successor : "
                f"{self.value_name}'."
            )
        successor = int(target)
        if successor >= self.header.num_states:
            raise InputError(
                f"{where}: there is no state {successor}; they go from 0 to "
                f"{self.header.num_states - 1}."
            )
        parsed = _parse_value(where, value.strip(), self.header.values, self.value_name)
        if not 0 <= parsed <= self._largest_value:
            raise InputError(f"{where}: {parsed:g} is no {self.value_name}.")
        return successor, parsed

    def _read_state(self, number: int, text: str) -> None:
        word, _, rest = text.partition(" ")
        state = len(self.state_rewards)
        if word != str(state):
            where = f"{self.path}: line {number}"
            found = _parse_count(where, word, "state")
            raise InputError(
                f"{where}: state {found} stands where state {state} must; they stand in order."
            )
        if state >= self.header.num_states:
            raise InputError(
                f"{self.path}: line {number}: there is no state {state}; they go from 0 to "
                f"{self.header.num_states - 1}, by @nr_states."
            )
        if rest not in self._parsed_states:
            self._parsed_states[rest] = self._parse_state(f"{self.path}: line {number}", rest)
        rewards, exit_rate, labels = self._parsed_states[rest]
        self.state_rewards.append(rewards)
        self.exit_rates.append(exit_rate)
        for label in labels:
            self.labels.setdefault(label, []).append(state)

    def _parse_state(
        self, where: str, text: str
    ) -> tuple[tuple[float, ...], float | None, tuple[str, ...]]:
        """Parse the exit rate, the rewards and the labels of a state."""
        rest, exit_rate = text.strip(), None
        if rest.startswith("!") and self.header.kind == "ctmc":
            word, _, rest = rest[1:].partition(" ")
            exit_rate = _parse_value(where, word, self.header.values, "exit rate")
        rewards, rest = self._split_rewards(where, rest.strip())
        if rest.startswith(("!", "{")):
            raise InputError(f"{where}: a DTMC or an MDP has no exit rates and no observations.")
        if LABEL_PATTERN.sub("", rest).strip():
            raise InputError(f"{where}: the labels {rest[:40]!r} have an unpaired quotation mark.")
        found = LABEL_PATTERN.findall(rest)
        return rewards, exit_rate, tuple(quoted or plain for quoted, plain in found)

    def _read_choice(self, number: int, text: str, count: int) -> None:
        if text not in self._parsed_choices:
            where = f"{self.path}: line {number}"
            label, _, rest = text.partition(" ")
            rewards, rest = self._split_rewards(where, rest.strip())
            if rest:
                raise InputError(f"{where}: {rest[:40]!r} stands after the rewards of a choice.")
            self._parsed_choices[text] = None if label == NO_LABEL else label, rewards
        self._add_choice(number, *self._parsed_choices[text], count)

    def _add_choice(
        self, line: int, label: str | None, rewards: tuple[float, ...], count: int
    ) -> None:
        state = len(self.state_rewards) - 1
        if state < 0:
            raise InputError(f"{self.path}: line {line} stands before the first state.")
        if self.is_chain and self.num_choices:
            raise InputError(
                f"{self.path}: line {line}: state {state} of a {self.header.kind.upper()} has a "
                "second choice."
            )
        self.choice_state.append(state)
        self.choice_number.append(self.num_choices)
        self.choice_label.append(label)
        self.choice_rewards.append(rewards)
        self.choice_line.append(line)
        self.choice_start.append(count)
        self.num_choices += 1

    def _split_rewards(self, where: str, text: str) -> tuple[tuple[float, ...], str]:
        """Return the rewards in brackets that begin a text, and the rest of it."""
        if not text.startswith("["):
            return (), text
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
        return tuple(_parse_value(where, part, values, "reward") for part in parts), rest.strip()

    def _end_choice(self, count: int) -> None:
        """Require transitions of the last choice, before the first `count` ones end."""
        if not self.num_choices and count > self.first_transition:
            # Transitions without a line 'action'.
            self._add_choice(0, "0", (), self.first_transition)
        if self.num_choices and self.choice_start[-1] == count:
            raise InputError(
                f"{self.path}: line {self.choice_line[-1]}: choice {self.choice_number[-1]} of "
                f"state {self.choice_state[-1]} has no transition."
            )

    def _end_state(self, count: int) -> None:
        """Complete the current state: a deadlock gets a self-loop without a label."""
        if not self.state_rewards and count:
            line = next(lines[0] for _, _, lines in self.transitions if len(lines))
            raise InputError(f"{self.path}: line {line} stands before the first state.")
        if self.state_rewards and not self.num_choices and count == self.first_transition:
            self._add_choice(0, None, (), count)
        if self.num_choices == 1 and self.choice_start[-1] == count:
            self.choice_label[-1] = None
            self.deadlocks.append(len(self.choice_state) - 1)
        else:
            self._end_choice(count)
        self.num_choices = 0

    def _require_counts(self) -> None:
        found = {"states": len(self.state_rewards), "choices": len(self.choice_state)}
        declared = {"states": self.header.num_states, "choices": self.header.num_choices}
        for name, number in declared.items():
            if number is not None and number != found[name]:
                raise InputError(
                    f"{self.path}: @nr_{name} says {number} {name} and the file has {found[name]}; "
                    "is it cut off?"
                )

    def _finish(self) -> StormModel:
        num_states = self.header.num_states
        successor, value, line = (
            np.concatenate(parts) for parts in zip(*self.transitions, strict=True)
        )
        deadlocks, start = np.array(self.deadlocks, np.int64), np.array(self.choice_start)
        state, number = np.array(self.choice_state), np.array(self.choice_number)
        at = start[deadlocks]
        successor = np.insert(successor, at, state[deadlocks])
        value, line = np.insert(value, at, 1.0), np.insert(line, at, 0)
        counts = np.diff(start, append=len(value) - len(deadlocks))
        counts[deadlocks] += 1
        choice_of = np.repeat(np.arange(len(state)), counts)
        action, actions = self._number_labels()
        ids = np.column_stack([state[choice_of], number[choice_of], successor])
        rows = ExplicitRows(ids.astype(np.int64), value, action[choice_of], line, actions)
        num_rewards = max(map(len, {*self.state_rewards, *self.choice_rewards}), default=0)
        names = self.header.reward_models or [f"rew{index}" for index in range(num_rewards)]
        labels = {}
        for label, states in self.labels.items():
            labels[label] = np.zeros(num_states, np.bool_)
            labels[label][states] = True
        known = len(self.names) == len(set(self.names)) == num_states
        if self.header.kind == "ctmc":
            self._require_exit_rates(ids[:, 0], value)
        return StormModel(
            ExplicitTransitions(self.path, num_states, self.is_chain, rows),
            labels,
            _collect_rewards(names, self.state_rewards),
            _collect_rewards(names, self.choice_rewards),
            {},
            tuple(self.names) if known and all(self.names) else None,
            is_ctmc=self.header.kind == "ctmc",
        )

    def _number_labels(self) -> tuple[NDArray[np.int64], list[str]]:
        """Return the number of the label of each choice, -1 without one, and the labels."""
        labels = self.choice_label
        # Storm numbers the choices of each state where a model has no choice labels.
        numbers = {number: str(number) for number in set(self.choice_number)}
        pairs = zip(labels, self.choice_number, strict=True)
        if all(label is None or label == numbers[number] for label, number in pairs):
            return np.full(len(labels), -1), []
        distinct = [label for label in dict.fromkeys(labels) if label is not None]
        codes = {label: code for code, label in enumerate(distinct)}
        return np.array([-1 if each is None else codes[each] for each in labels]), list(codes)

    def _require_exit_rates(self, source: NDArray[np.int64], rates: NDArray[np.float64]) -> None:
        """Require that the exit rate of a state, if given, is the sum of its rates."""
        sums = np.bincount(source, weights=rates, minlength=self.header.num_states)
        without_transitions = {self.choice_state[each] for each in self.deadlocks}
        for state, (exit_rate, total) in enumerate(zip(self.exit_rates, sums, strict=True)):
            if exit_rate is None or state in without_transitions:
                continue
            if not math.isclose(exit_rate, total, rel_tol=EXIT_RATE_TOL):
                raise InputError(
                    f"{self.path}: state {state} has the exit rate {exit_rate:g} and rates that "
                    f"sum to {total:g}; both must be the same."
                )


def _decode_lines(block: TokenBlock, lines: NDArray[np.int64]) -> list[str]:
    """Return the texts of some lines of a block, without spaces at their ends."""
    text = block.text.tobytes()
    start = block.start[block.first_token[lines]]
    ends = np.append(np.flatnonzero(block.text == ord("\n")), len(text))
    end = ends[np.searchsorted(ends, start)]
    return [
        text[low:high].decode("utf-8", "replace").strip()
        for low, high in zip(start.tolist(), end.tolist(), strict=True)
    ]


def _collect_rewards(
    names: list[str], rewards: list[tuple[float, ...]]
) -> dict[str, NDArray[np.float64]]:
    """Return the rewards of each reward model; an empty tuple stands for zeros."""
    table = np.zeros((len(rewards), len(names)))
    if names:
        codes = {row: code for code, row in enumerate(dict.fromkeys(rewards))}
        distinct = np.array([(*row, *[0.0] * (len(names) - len(row))) for row in codes])
        table = distinct[[codes[row] for row in rewards]]
    return {name: table[:, column].copy() for column, name in enumerate(names)}
