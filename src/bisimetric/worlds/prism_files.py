"""The files that PRISM exports: transitions, states, labels and rewards, checked line by line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.worlds.words import Words, words_of

LINES = {True: '"state successor {} [action]"', False: '"state choice successor {} [action]"'}
COLUMNS = {None: 1, True: 2, False: 3}
COUNTS = re.compile(r"\d+(\s+\d+)*")
LABELS = re.compile(r'(\s*\d+="[^"]*")+')


@dataclasses.dataclass(frozen=True)
class Rows:
    """The lines of a file of numbers, after its first.

    `ids` (n, k) are the whole numbers of each line, `value` (n,) the number after them, `action`
    (n,) the word after that, as an index into `actions` (-1: none), `line` (n,) its number.
    """

    ids: NDArray[np.int64]
    value: NDArray[np.float64]
    action: NDArray[np.int64]
    line: NDArray[np.int64]
    actions: list[str]


@dataclasses.dataclass(frozen=True)
class Transitions:
    """A .tra file: how many `states`, whether it is a `chain` (a DTMC), and its `rows`: state,
    choice and successor. The only choice of a chain is 0."""

    path: str
    states: int
    chain: bool
    rows: Rows


def read_transitions(path: str) -> Transitions:
    """A .tra file of an MDP ("states choices transitions") or of a DTMC ("states transitions")."""
    with _reading(path) as file:
        counts, line = _counts(file, path)
        if len(counts) not in (2, 3):
            raise InputError(
                f"{path}: line {line} has {len(counts)} numbers and must have 3 (an MDP: states, "
                "choices, transitions) or 2 (a DTMC: states, transitions); a POMDP cannot be used."
            )
        if counts[0] == 0:
            raise InputError(f"{path}: line {line} says 0 states and must say at least 1.")
        chain = len(counts) == 2
        rows = _rows(file, path, line, chain, "probability")
    _refuse_count(path, line, "transitions", counts[-1], len(rows.value))
    _refuse_outside(path, rows, (0, 2), counts[0])
    wrong = ~((rows.value >= 0) & (rows.value <= 1))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"{path}: line {rows.line[at]}: {rows.value[at]:g} is no probability; the rates of a "
            "CTMC cannot be used."
        )
    if not chain:
        state, choice, _ = rows.ids.T
        pairs = np.unique(state * (int(choice.max(initial=0)) + 1) + choice)
        _refuse_count(path, line, "choices", counts[1], len(pairs))
    return Transitions(path, counts[0], chain, rows)


def read_rewards(path: str, transitions: Transitions, *, by_state: bool) -> Rows:
    """A .srew file ("state reward"), or a .trew file (with choice and successor between)."""
    with _reading(path) as file:
        counts, line = _counts(file, path)
        if counts[0] != transitions.states:
            raise InputError(
                f"{path}: line {line} says {counts[0]} states and {transitions.path} has "
                f"{transitions.states}; export both from one model."
            )
        rows = _rows(file, path, line, None if by_state else transitions.chain, "reward")
    _refuse_count(path, line, "rewards", counts[-1], len(rows.value))
    _refuse_outside(path, rows, (0,) if by_state else (0, 2), transitions.states)
    return rows


def read_states(path: str, transitions: Transitions) -> list[str]:
    """The states of a .sta file as they are written there, such as "(0,1)"."""
    with _reading(path) as file:
        _, line = _first_line(file, path)
        names: list[str] = []
        for at, read in enumerate(file, line + 1):
            text = read.decode("utf-8", "replace").strip()
            index, colon, name = text.partition(":")
            if text and (not colon or index != str(len(names))):
                raise InputError(
                    f"{path}: line {at} is {text[:40]!r} and must start with '{len(names)}:'; the "
                    "states stand in order."
                )
            if text:
                names.append(name)
    if len(names) != transitions.states:
        raise InputError(
            f"{path}: has {len(names)} states and {transitions.path} has {transitions.states}; "
            "export both from one model."
        )
    return names


def read_labels(path: str, transitions: Transitions) -> dict[str, NDArray[np.bool_]]:
    """The labels of a .lab file, and the states (S,) that carry each."""
    with _reading(path) as file:
        text, line = _first_line(file, path)
        numbered = dict(re.findall(r'(\d+)="([^"]*)"', text))
        names = [numbered.get(str(index), "") for index in range(len(numbered))]
        if LABELS.fullmatch(text) is None or "" in names or len(set(names)) < len(names):
            raise InputError(
                f"{path}: line {line} is {text[:40]!r} and must number the labels from 0, as in "
                '0="init" 1="deadlock".'
            )
        carried = np.zeros((len(names), transitions.states), dtype=np.bool_)
        for block in words_of(file, path, line + 1, gaps=b":"):
            owner = np.repeat(block.integers(block.first, "state"), block.count)
            label = block.integers(np.arange(len(owner)), "number of a label")
            label[block.first] = 0
            _refuse_beyond(block, "state", owner, transitions.states)
            _refuse_beyond(block, "label", label, len(names))
            label, owner = np.delete(label, block.first), np.delete(owner, block.first)
            carried[label, owner] = True
    return dict(zip(names, carried, strict=True))


@contextmanager
def _reading(path: str) -> Iterator[IO[bytes]]:
    try:
        with open(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; check the path.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from None


def _first_line(file: IO[bytes], path: str) -> tuple[str, int]:
    """The first line that is no comment, and its number."""
    for line, read in enumerate(iter(file.readline, b""), 1):
        text = read.decode("utf-8", "replace").strip()
        if text and not text.startswith("#"):
            return text, line
    raise InputError(f"{path}: is empty; export it again.")


def _counts(file: IO[bytes], path: str) -> tuple[list[int], int]:
    """The numbers in the first line, and the number of that line."""
    text, line = _first_line(file, path)
    if COUNTS.fullmatch(text) is None:
        remedy = "must be numbers, how many states and transitions there are."
        if text.startswith(("mdp", "dtmc", "ctmc", "@type")):
            remedy = (
                "starts a file of Storm; write the numbers of states, choices and transitions "
                "in its place, or export with PRISM."
            )
        raise InputError(f"{path}: line {line} is {text[:40]!r} and {remedy}")
    return [int(word) for word in text.split()], line


def _rows(file: IO[bytes], path: str, line: int, chain: bool | None, what: str) -> Rows:
    """All other lines; `chain` None means a file of states without choices and successors."""
    form = '"state {}"' if chain is None else LINES[chain]
    codes: dict[bytes, int] = {}
    none = np.empty(0, dtype=np.int64)
    parts = [(none.reshape(0, COLUMNS[chain]), none.astype(np.float64), none, none)]
    for block in words_of(file, path, line + 1):
        try:
            parts.append(_parsed(block, chain, what, codes))
        except InputError as error:
            raise InputError(f"{error} {_hint(block, form.format(what))}") from None
    ids, value, action, lines = map(np.concatenate, zip(*parts, strict=True))
    if chain:
        ids = np.insert(ids, 1, 0, axis=1)
    return Rows(ids, value, action, lines, [each.decode("utf-8", "replace") for each in codes])


def _parsed(
    block: Words, chain: bool | None, what: str, codes: dict[bytes, int]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """The ids, values, actions and line numbers of a block; `codes` numbers the actions."""
    columns = COLUMNS[chain]
    wrong = (block.count < columns + 1) | (block.count > columns + 2)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(f"{block.where}: line {block.line[at]} has {block.count[at]} words.")
    called = ("state", "successor") if chain else ("state", "choice", "successor")
    ids = [block.integers(block.first + k, called[k]) for k in range(columns)]
    value = block.numbers(block.first + columns, what)
    action = np.full(len(value), -1)
    named = block.count == columns + 2
    if named.any():
        texts = block.texts(block.first[named] + columns + 1)
        different, back = np.unique(texts, return_inverse=True)
        known = [codes.setdefault(each, len(codes)) for each in different.tolist()]
        action[named] = np.array(known)[back]
    return np.stack(ids, axis=1), value, action, block.line


def _hint(block: Words, form: str) -> str:
    """What may be wrong with a block that cannot be read."""
    if (block.text == ord(":")).any():
        return "Export it without the option `rows`."
    if (block.text == ord("[")).any():
        return "Intervals of probabilities cannot be used."
    return f"A line must be {form}; is the file cut off?"


def _refuse_count(path: str, line: int, what: str, said: int, found: int) -> None:
    if said != found:
        raise InputError(
            f"{path}: line {line} says {said} {what} and the file has {found}; is it cut off?"
        )


def _refuse_outside(path: str, rows: Rows, columns: tuple[int, ...], states: int) -> None:
    for column in columns:
        wrong = rows.ids[:, column] >= states
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InputError(
                f"{path}: line {rows.line[at]}: there is no state {rows.ids[at, column]}; they go "
                f"from 0 to {states - 1}."
            )


def _refuse_beyond(block: Words, what: str, found: NDArray[np.int64], count: int) -> None:
    if (found >= count).any():
        at = int(np.argmax(found >= count))
        raise InputError(
            f"{block.where}: line {block.line_of(at)}: there is no {what} {found[at]}; they go "
            f"from 0 to {count - 1}."
        )
