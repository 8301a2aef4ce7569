"""Read and write transitions: one .npz file of plain arrays with a JSON header."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from bisimetric._io import ARCHIVE_ERRORS, open_archive, parse_object, write_record
from bisimetric.errors import InputError
from bisimetric.mdp._validation import freeze
from bisimetric.transitions.episodes import observations_are_ids

if TYPE_CHECKING:
    from bisimetric.transitions import Transitions

FORMAT = "bisimetric transitions, version 1"
HEADER_FIELDS = ("num_states", "num_actions", "metadata")
OBSERVATION_FIELDS = ("observations", "next_observations")
REQUIRED_FIELDS = (*OBSERVATION_FIELDS, "actions", "rewards", "terminated", "truncated")
ID_FIELDS = ("states", "next_states")
NAME_FIELDS = ("names", "action_names")
OPTIONAL_FIELDS = (*ID_FIELDS, *NAME_FIELDS, "positions")


def write_transitions(transitions: Transitions, path: str | os.PathLike[str]) -> None:
    """Write one `.npz` file, which replaces `path` atomically."""
    header = {"format": FORMAT, **{name: getattr(transitions, name) for name in HEADER_FIELDS}}
    # Ids that equal the observations are not written twice.
    omitted = ID_FIELDS if observations_are_ids(transitions) else ()
    columns = {
        name: getattr(transitions, name)
        for name in (*REQUIRED_FIELDS, *OPTIONAL_FIELDS)
        if name not in omitted
    }
    arrays = {name: np.asarray(column) for name, column in columns.items() if column is not None}
    write_record(path, header, arrays)


def read_fields(path: str | os.PathLike[str], observations: bool) -> dict[str, Any]:
    """Read the fields that `write_transitions` wrote; only the format is validated."""
    try:
        with open_archive(path) as opened:
            header = _read_header(path, opened)
            if header["format"] != FORMAT:
                raise wrong_format_error(path, f"its format is {header['format']!r}")
            missing = [name for name in REQUIRED_FIELDS if name not in opened.files]
            if missing:
                raise wrong_format_error(path, f"it has no {missing[0]!r}")
            names = {*REQUIRED_FIELDS, *OPTIONAL_FIELDS} & set(opened.files)
            if not observations and names.issuperset(ID_FIELDS):
                names -= {*OBSERVATION_FIELDS}
            fields: dict[str, Any] = {name: freeze(opened[name]) for name in names}
    except InputError:
        raise
    except ARCHIVE_ERRORS as error:
        raise InputError(
            f"{path} is cut short or no file of transitions ({error}); write it again with "
            "Transitions.save."
        ) from None
    for name, ids in zip(OBSERVATION_FIELDS, ID_FIELDS, strict=True):
        if name not in fields:
            fields[name] = fields[ids]
    for name in NAME_FIELDS:
        if name in fields:
            fields[name] = tuple(np.ravel(fields[name]).tolist())
    return {**fields, **{name: header.get(name) for name in HEADER_FIELDS}}


def wrong_format_error(path: str | os.PathLike[str], reason: str) -> InputError:
    """Return the error for a file that holds something else."""
    return InputError(
        f"{path} is no file of transitions ({reason}); write one with Transitions.save."
    )


def is_transitions_file(path: str | os.PathLike[str]) -> bool:
    """Whether the header of a file declares transitions; nothing else is read."""
    try:
        with open_archive(path) as opened:
            return str(_read_header(path, opened)["format"]).startswith(FORMAT.partition(",")[0])
    except (OSError, *ARCHIVE_ERRORS):
        return False


def _read_header(path: str | os.PathLike[str], archive: Any) -> dict[str, Any]:
    """Read the JSON header of an archive, which names its format."""
    try:
        text = str(archive["about"])
    except KeyError:
        raise wrong_format_error(path, "it has no 'about'") from None
    try:
        header = parse_object(text)
    except json.JSONDecodeError:
        raise wrong_format_error(path, "it has no 'about'") from None
    except ValueError:
        header = {}
    if "format" not in header:
        raise wrong_format_error(path, "it has no 'format'")
    return header
