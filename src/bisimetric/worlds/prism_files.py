"""Read the files that PRISM exports: transitions, states, labels and rewards."""

from __future__ import annotations

import re
from typing import IO

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.worlds.explicit_models import ExplicitRows, ExplicitTransitions
from bisimetric.worlds.text_parser import TokenBlock, open_file, read_tokens

LINE_FORMATS = {
    True: '"state successor {} [action]"',
    False: '"state choice successor {} [action]"',
}
NUM_ID_COLUMNS = {None: 1, True: 2, False: 3}
COUNTS_PATTERN = re.compile(r"\d+(\s+\d+)*")
LABELS_PATTERN = re.compile(r'(\s*\d+="[^"]*")+')


def read_transitions(path: str, *, is_ctmc: bool = False) -> ExplicitTransitions:
    """Read a .tra file of an MDP ("states choices transitions") or a chain ("states transitions").

    The transitions of a CTMC hold rates.
    """
    with open_file(path) as file:
        counts, line = _read_counts(file, path)
        if len(counts) not in (2, 3):
            raise InputError(
                f"{path}: line {line} has {len(counts)} numbers and must have 3 (an MDP: states, "
                "choices, transitions) or 2 (a DTMC: states, transitions); a POMDP cannot be used."
            )
        if counts[0] == 0:
            raise InputError(f"{path}: line {line} says 0 states and must say at least 1.")
        chain = len(counts) == 2
        if is_ctmc and not chain:
            raise InputError(f"{path}: line {line} is that of an MDP and not of a CTMC.")
        rows = _read_rows(file, path, line, chain, "rate" if is_ctmc else "probability")
    _require_count(path, line, "transitions", counts[-1], len(rows.value))
    _reject_unknown_states(path, rows, (0, 2), counts[0])
    wrong = ~((rows.value >= 0) & (rows.value <= (np.inf if is_ctmc else 1)))
    if wrong.any():
        at = int(np.argmax(wrong))
        expected = "rate" if is_ctmc else 'probability; rates? pass model_type="ctmc"'
        raise InputError(
            f"{path}: line {rows.line_number[at]}: {rows.value[at]:g} is no {expected}."
        )
    if not chain:
        state, choice, _ = rows.ids.T
        pairs = np.unique(state * (int(choice.max(initial=0)) + 1) + choice)
        _require_count(path, line, "choices", counts[1], len(pairs))
    return ExplicitTransitions(path, counts[0], chain, rows)


def read_rewards(path: str, transitions: ExplicitTransitions, *, by_state: bool) -> ExplicitRows:
    """Read a .srew file ("state reward"), or a .trew file (with choice and successor between)."""
    with open_file(path) as file:
        counts, line = _read_counts(file, path)
        if counts[0] != transitions.num_states:
            raise InputError(
                f"{path}: line {line} says {counts[0]} states and {transitions.path} has "
                f"{transitions.num_states}; export both from one model."
            )
        rows = _read_rows(file, path, line, None if by_state else transitions.is_dtmc, "reward")
    _require_count(path, line, "rewards", counts[-1], len(rows.value))
    _reject_unknown_states(path, rows, (0,) if by_state else (0, 2), transitions.num_states)
    return rows


def read_states(path: str, transitions: ExplicitTransitions) -> list[str]:
    """Read the names of states from a .sta file, such as "(0,1)"."""
    with open_file(path) as file:
        _, line = _read_first_line(file, path)
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
    if len(names) != transitions.num_states:
        raise InputError(
            f"{path}: has {len(names)} states and {transitions.path} has {transitions.num_states}; "
            "export both from one model."
        )
    return names


def read_labels(path: str, transitions: ExplicitTransitions) -> dict[str, NDArray[np.bool_]]:
    """Read the labels of a .lab file, and the states (S,) that have each."""
    with open_file(path) as file:
        text, line = _read_first_line(file, path)
        numbered = dict(re.findall(r'(\d+)="([^"]*)"', text))
        names = [numbered.get(str(index), "") for index in range(len(numbered))]
        if LABELS_PATTERN.fullmatch(text) is None or "" in names or len(set(names)) < len(names):
            raise InputError(
                f"{path}: line {line} is {text[:40]!r} and must number the labels from 0, as in "
                '0="init" 1="deadlock".'
            )
        carried = np.zeros((len(names), transitions.num_states), dtype=np.bool_)
        for block in read_tokens(file, path, line + 1, separators=b":"):
            owner = np.repeat(block.to_integers(block.first_token, "state"), block.num_tokens)
            label = block.to_integers(np.arange(len(owner)), "number of a label")
            label[block.first_token] = 0
            _reject_out_of_range(block, "state", owner, transitions.num_states)
            _reject_out_of_range(block, "label", label, len(names))
            label, owner = np.delete(label, block.first_token), np.delete(owner, block.first_token)
            carried[label, owner] = True
    return dict(zip(names, carried, strict=True))


def _read_first_line(file: IO[bytes], path: str) -> tuple[str, int]:
    """Return the first line that is not a comment, and its number."""
    for line, read in enumerate(iter(file.readline, b""), 1):
        text = read.decode("utf-8", "replace").strip()
        if text and not text.startswith("#"):
            return text, line
    raise InputError(f"{path}: is empty; export it again.")


def _read_counts(file: IO[bytes], path: str) -> tuple[list[int], int]:
    """Return the numbers in the first line, and the number of that line."""
    text, line = _read_first_line(file, path)
    if COUNTS_PATTERN.fullmatch(text) is None:
        remedy = "must be numbers, how many states and transitions there are."
        if text.startswith(("mdp", "dtmc", "ctmc", "@type")):
            remedy = (
                "starts a file of Storm; write the numbers of states, choices and transitions "
                "in its place, export with PRISM, or export DRN with Storm."
            )
        raise InputError(f"{path}: line {line} is {text[:40]!r} and {remedy}")
    return [int(word) for word in text.split()], line


def _read_rows(
    file: IO[bytes], path: str, line_number: int, is_dtmc: bool | None, value_name: str
) -> ExplicitRows:
    """Read all other lines; `is_dtmc` None means a file without choices and successors."""
    form = '"state {}"' if is_dtmc is None else LINE_FORMATS[is_dtmc]
    codes: dict[bytes, int] = {}
    none = np.empty(0, dtype=np.int64)
    parts = [(none.reshape(0, NUM_ID_COLUMNS[is_dtmc]), none.astype(np.float64), none, none)]
    for block in read_tokens(file, path, line_number + 1):
        try:
            parts.append(_parse_block(block, is_dtmc, value_name, codes))
        except InputError as error:
            raise InputError(f"{error} {_suggest_remedy(block, form.format(value_name))}") from None
    ids, value, action, lines = map(np.concatenate, zip(*parts, strict=True))
    if is_dtmc:
        ids = np.insert(ids, 1, 0, axis=1)
    return ExplicitRows(
        ids, value, action, lines, [each.decode("utf-8", "replace") for each in codes]
    )


def _parse_block(
    block: TokenBlock, is_dtmc: bool | None, value_name: str, action_codes: dict[bytes, int]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Return ids, values, actions and line numbers of a block; `action_codes` numbers actions."""
    columns = NUM_ID_COLUMNS[is_dtmc]
    wrong = (block.num_tokens < columns + 1) | (block.num_tokens > columns + 2)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"{block.path}: line {block.line_number[at]} has {block.num_tokens[at]} words."
        )
    called = ("state", "successor") if is_dtmc else ("state", "choice", "successor")
    ids = [block.to_integers(block.first_token + k, called[k]) for k in range(columns)]
    value = block.to_floats(block.first_token + columns, value_name)
    action = np.full(len(value), -1)
    named = block.num_tokens == columns + 2
    if named.any():
        texts = block.to_bytes(block.first_token[named] + columns + 1)
        different, back = np.unique(texts, return_inverse=True)
        known = [action_codes.setdefault(each, len(action_codes)) for each in different.tolist()]
        action[named] = np.array(known)[back]
    return np.stack(ids, axis=1), value, action, block.line_number


def _suggest_remedy(block: TokenBlock, line_format: str) -> str:
    """Suggest what may be wrong with a block that cannot be parsed."""
    if (block.text == ord(":")).any():
        return "Export it without the option `rows`."
    if (block.text == ord("[")).any():
        return "Intervals of probabilities cannot be used."
    return f"A line must be {line_format}; is the file cut off?"


def _require_count(path: str, line: int, name: str, declared: int, found: int) -> None:
    if declared != found:
        raise InputError(
            f"{path}: line {line} says {declared} {name} and the file has {found}; is it cut off?"
        )


def _reject_unknown_states(
    path: str, rows: ExplicitRows, columns: tuple[int, ...], num_states: int
) -> None:
    for column in columns:
        wrong = rows.ids[:, column] >= num_states
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InputError(
                f"{path}: line {rows.line_number[at]}: there is no state {rows.ids[at, column]}; "
                f"they go from 0 to {num_states - 1}."
            )


def _reject_out_of_range(
    block: TokenBlock, name: str, values: NDArray[np.int64], limit: int
) -> None:
    if (values >= limit).any():
        at = int(np.argmax(values >= limit))
        raise InputError(
            f"{block.path}: line {block.find_line(at)}: there is no {name} {values[at]}; they go "
            f"from 0 to {limit - 1}."
        )
